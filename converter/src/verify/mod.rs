//! A GGUF file against the checkpoint it was made of: everything in it is computed once more and compared.
//!
//! Each tensor is converted again to the type it has in the file, whichever that is, and must be equal byte for byte; each
//! key must have the value that a conversion would write; the file's tokenizer must give the ids of `tokenizer.json`; and
//! the vectors of the file are compared with those of the checkpoint in 32-bit floats, to show what its types cost.

#[cfg(feature = "embeddings")]
mod embeddings;
mod keys;
mod tensors;
mod texts;
mod tokens;

use std::fmt;
use std::path::{Path, PathBuf};

use bitnet_embed::config::Pooling;
use bitnet_embed::gguf::{GgufError, GgufFile, MappedFile};
use bitnet_embed::tokenizer::TokenizerError;

use crate::ConvertError;
use crate::convert::{Prepared, folder_name};
use crate::edit::part_count;
use crate::plan::Outtype;
use crate::recode::part_files;
use crate::report::{Progress, one_line};

/// What to compare.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// The GGUF file.
    pub file: PathBuf,
    /// Folder of the checkpoint.
    pub dir: PathBuf,
    /// Replaces the pooling that `modules.json` states.
    pub pooling: Option<Pooling>,
    /// The least cosine between a text's vectors of the file and of the checkpoint; `None` computes no vectors.
    ///
    /// Needs the feature `embeddings`, and room for the model in 32-bit floats in the folder of temporary files.
    pub min_cosine: Option<f32>,
}

/// What a value is not, and what it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Difference {
    /// The file's own structure is damaged.
    #[error("{source}")]
    Damaged {
        /// What is wrong.
        source: GgufError,
    },
    /// More than tensors and their padding.
    #[error("{}: {bytes} bytes after the last tensor", path.display())]
    Trailing {
        /// The file, of a split model the part.
        path: PathBuf,
        /// How many.
        bytes: u64,
    },
    /// A tensor of the model is not in the file.
    #[error("tensor {name:?} is missing")]
    TensorMissing {
        /// The tensor.
        name: String,
    },
    /// A tensor that the model does not have.
    #[error("tensor {name:?} is in the file, but the checkpoint has none like it")]
    TensorUnexpected {
        /// The tensor.
        name: String,
    },
    /// A tensor of another shape.
    #[error("tensor {name:?}: expected shape {expected:?}, found {found:?}")]
    TensorShape {
        /// The tensor.
        name: String,
        /// Its shape in the checkpoint.
        expected: Vec<usize>,
        /// Its shape in the file.
        found: Vec<usize>,
    },
    /// A tensor of a type that a file of this kind does not have there.
    #[error("tensor {name:?}: expected type {expected}, found {found}")]
    TensorType {
        /// The tensor.
        name: String,
        /// The types it may have.
        expected: String,
        /// Its type in the file.
        found: String,
    },
    /// A tensor with another value.
    #[error("tensor {name:?}: {place}: expected {expected}, found {found}")]
    Value {
        /// The tensor.
        name: String,
        /// Which value of it: `value 17`, `the scale`.
        place: String,
        /// As computed from the checkpoint.
        expected: String,
        /// As in the file.
        found: String,
    },
    /// A key that is missing.
    #[error("key {key:?} is missing: expected {expected}")]
    KeyMissing {
        /// The key.
        key: String,
        /// The value it should have.
        expected: String,
    },
    /// A key that changes the model, and that a conversion would not write.
    #[error("key {key:?} is in the file, but the checkpoint gives no reason for it: found {found}")]
    KeyUnexpected {
        /// The key.
        key: String,
        /// Its value.
        found: String,
    },
    /// A key with another value.
    #[error("key {key:?}{place}: expected {expected}, found {found}")]
    Key {
        /// The key.
        key: String,
        /// Which element of an array, or nothing.
        place: String,
        /// The value it should have.
        expected: String,
        /// The value it has.
        found: String,
    },
    /// No tokenizer can be made of the file.
    #[error("the tokenizer of the file: {source}")]
    Tokenizer {
        /// Why.
        source: TokenizerError,
    },
    /// Other ids.
    #[error("token ids of {text:?}: expected {expected}, found {found}")]
    Ids {
        /// The text.
        text: String,
        /// The ids by `tokenizer.json`, or why there are none.
        expected: String,
        /// The ids by the file, or why there are none.
        found: String,
    },
    /// A vector that has little to do with that of the checkpoint.
    #[error("the vector of {text:?} has the cosine {found:.4} with that of the checkpoint, expected at least {limit}")]
    Cosine {
        /// The text.
        text: String,
        /// The cosine.
        found: f64,
        /// The least that is accepted.
        limit: f32,
    },
    /// The file's vectors could not be computed.
    #[error("the file gives no vectors: {reason}")]
    NoVectors {
        /// Why.
        reason: String,
    },
}

/// How close the vectors of the file are to those of the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// How many texts.
    pub texts: usize,
    /// The least cosine of a text's two vectors.
    pub min_cosine: f64,
    /// The largest difference of two values of unit-length vectors.
    pub max_difference: f32,
}

/// What was compared, and what differs.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tensors that were recomputed.
    pub tensors: usize,
    /// Values in them.
    pub values: usize,
    /// Keys that were compared.
    pub keys: usize,
    /// Texts whose ids were compared.
    pub texts: usize,
    /// The vectors, if they were computed.
    pub agreement: Option<Agreement>,
    /// Why `bitnet-embed` refuses the checkpoint, converted without loss, so that there were no vectors to compare with.
    pub no_vectors: Option<String>,
    /// Everything that differs: at most one entry per tensor and key, and few per kind of text.
    pub differences: Vec<Difference>,
    /// What else the user should know.
    pub notes: Vec<String>,
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "note: {}", one_line(note))?;
        }
        for difference in &self.differences {
            writeln!(f, "differs: {}", one_line(&difference.to_string()))?;
        }
        write!(
            f,
            "{}{}: compared {} tensors of {} values, {} keys, token ids of {} texts",
            if self.differences.is_empty() { "equal" } else { "not equal" },
            if self.no_vectors.is_some() { ", but no vectors were compared" } else { "" },
            self.tensors,
            self.values,
            self.keys,
            self.texts
        )?;
        match (&self.no_vectors, self.agreement) {
            (None, None) => Ok(()),
            (Some(reason), _) => {
                write!(f, "; bitnet-embed would refuse the checkpoint in f32: {}", one_line(reason))
            }
            (None, Some(Agreement { texts, min_cosine, max_difference })) => write!(
                f,
                "; vectors of {texts} texts: cosine at least {min_cosine:.7}, largest difference {max_difference:.1e} \
                 against the checkpoint in f32"
            ),
        }
    }
}

/// Compares a file with a checkpoint.
///
/// # Errors
/// When the file is no GGUF file or the checkpoint is refused. Differences are not errors: see
/// [`VerifyReport::differences`].
pub fn verify(options: &VerifyOptions, progress: &mut dyn Progress) -> Result<VerifyReport, ConvertError> {
    let file = GgufFile::open_model(&options.file).map_err(ConvertError::Input)?;
    // In F32 nothing about the checkpoint depends on what the file is.
    let prepared = Prepared::read(&options.dir, Outtype::F32.into(), options.pooling, true)?;
    let mut report = VerifyReport::default();
    if let Err(source) = file.check_data() {
        report.differences.push(Difference::Damaged { source });
    }
    report.differences.extend(trailing_bytes(&options.file)?);
    let outtype = keys::compare(&file, &prepared, &folder_name(&options.dir), &mut report);
    tensors::compare(&file, &prepared, outtype, progress, &mut report)?;
    tokens::compare(&file, &prepared, &options.dir, &mut report)?;
    if let Some(min_cosine) = options.min_cosine {
        #[cfg(feature = "embeddings")]
        embeddings::compare(options, min_cosine, &mut report)?;
        #[cfg(not(feature = "embeddings"))]
        report.notes.push(format!("built without the feature `embeddings`: no vectors, no cosine of {min_cosine}"));
    }
    progress.finish();
    Ok(report)
}

/// What stands in the file, or in the parts of the model that it is one of, beyond the padding after the last tensor.
fn trailing_bytes(path: &Path) -> Result<Vec<Difference>, ConvertError> {
    let open = |path: &Path| GgufFile::<MappedFile>::open(path).map_err(ConvertError::Input);
    let is_part = part_count(&open(path)?).is_some_and(|count| count > 1);
    let mut found = Vec::new();
    for path in if is_part { part_files(path) } else { vec![path.to_owned()] } {
        let file = open(&path)?;
        let ends = file.tensors().iter().filter_map(|tensor| Some(tensor.file_range().ok()?.end));
        let end = ends.max().unwrap_or(file.data_start()).next_multiple_of(file.alignment());
        let bytes = file.owner().as_ref().len().saturating_sub(end) as u64;
        if bytes > 0 {
            found.push(Difference::Trailing { path, bytes });
        }
    }
    Ok(found)
}
