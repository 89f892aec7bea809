//! Vectors: the file against the checkpoint in 32-bit floats, where neither table nor norms have lost anything.

use bitnet_embed::Embedder;
use bitnet_embed::output::cosine_similarity;

use super::texts::EMBEDDED;
use super::{Agreement, Difference, VerifyOptions, VerifyReport};
use crate::ConvertError;
use crate::convert::{ConvertOptions, convert_only};
use crate::plan::Outtype;

pub(super) fn compare(options: &VerifyOptions, min_cosine: f32, report: &mut VerifyReport) -> Result<(), ConvertError> {
    let folder = tempfile::tempdir().map_err(|source| ConvertError::Temporary { source })?;
    let exact = folder.path().join("exact.gguf");
    let mut conversion = ConvertOptions::new(&options.dir, Outtype::F32);
    conversion.outfile = Some(exact.clone());
    conversion.pooling = options.pooling;
    convert_only(&conversion, &mut ()).map_err(|error| match error {
        ConvertError::Output(source) => ConvertError::TemporaryFile { source },
        other => other,
    })?;
    let embed = |path: &std::path::Path| Embedder::open(path)?.embed(&EMBEDDED);
    let expected = match embed(&exact) {
        Ok(vectors) => vectors,
        Err(error) => {
            // Of the temporary file nothing is left for whoever reads this.
            let [temporary, dir] = [&exact, &options.dir].map(|path| path.display().to_string());
            report.no_vectors = Some(error.to_string().replace(&temporary, &dir));
            return Ok(());
        }
    };
    let found = match embed(&options.file) {
        Ok(vectors) => vectors,
        Err(error) => {
            report.differences.push(Difference::NoVectors { reason: error.to_string() });
            return Ok(());
        }
    };
    let mut agreement = Agreement { texts: EMBEDDED.len(), min_cosine: 1.0, max_difference: 0.0 };
    for ((text, expected), found) in EMBEDDED.iter().zip(&expected).zip(&found) {
        if expected.len() != found.len() {
            let reason = format!("{} values, expected {}", found.len(), expected.len());
            report.differences.push(Difference::NoVectors { reason });
            return Ok(());
        }
        let cosine = cosine_similarity(expected, found);
        agreement.min_cosine = agreement.min_cosine.min(cosine);
        for (expected, found) in expected.iter().zip(found) {
            agreement.max_difference = agreement.max_difference.max((expected - found).abs());
        }
        if cosine < f64::from(min_cosine) {
            report.differences.push(Difference::Cosine { text: (*text).to_owned(), found: cosine, limit: min_cosine });
        }
    }
    report.agreement = Some(agreement);
    Ok(())
}
