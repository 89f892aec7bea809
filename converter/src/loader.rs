//! What `bitnet-embed` makes of a file: asked of itself, so that the answer is the one its users get.

use std::path::Path;

use bitnet_embed::config::ModelConfig;

/// Loads the model of a file, or of the parts that it is one of, as `bitnet-embed embed` does, and lets go of it again.
///
/// # Errors
/// Why it would be refused.
#[cfg(feature = "embeddings")]
pub fn load(path: &Path) -> Result<ModelConfig, String> {
    match bitnet_embed::Embedder::open(path) {
        Ok(embedder) => Ok(embedder.config().clone()),
        Err(error) => {
            // Whoever asks has named the file.
            let (error, named) = (error.to_string(), format!("{}: ", path.display()));
            Err(error.strip_prefix(&named).map(str::to_owned).unwrap_or(error))
        }
    }
}

/// As with the feature `embeddings`; without it nothing is known.
///
/// # Errors
/// Always.
#[cfg(not(feature = "embeddings"))]
pub fn load(_: &Path) -> Result<ModelConfig, String> {
    Err("not tried: built without the feature `embeddings`".to_owned())
}

/// What is said about a file that was written but that no loader takes.
pub(crate) fn note(path: &Path) -> Option<String> {
    let reason = load(path).err()?;
    Some(format!("bitnet-embed would refuse the file as it is: {reason}"))
}
