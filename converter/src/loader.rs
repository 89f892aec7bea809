//! What `bitnet-embed` makes of a file: asked of itself, so that the answer is the one its users get.

use std::path::Path;

use bitnet_embed::config::ModelConfig;
#[cfg(feature = "embeddings")]
use bitnet_embed::{
    EmbedError,
    gguf::{GgufFile, TensorInfo},
    tokenizer::Tokenizer,
};

/// Loads the model of a file, or of the parts that it is one of, as `bitnet-embed embed` does, and lets go of it again.
///
/// # Errors
/// Why it would be refused.
#[cfg(feature = "embeddings")]
pub fn load(path: &Path) -> Result<ModelConfig, String> {
    match bitnet_embed::Embedder::open(path) {
        Ok(embedder) => Ok(embedder.config().clone()),
        Err(error) => Err(unnamed(path, &error.to_string())),
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
    // Without the feature nothing is known, so nothing is said.
    let reason = load(path).err().filter(|_| cfg!(feature = "embeddings"))?;
    Some(would_refuse(&reason))
}

/// The same about the file of a checkpoint, however large: of one whose tensors a loader would read all of, they are read
/// one at a time, since pages of a mapped file count as memory of the process.
#[cfg(feature = "embeddings")]
pub(crate) fn note_of_converted(path: &Path) -> Option<String> {
    let store = match bitnet_embed::GgufStore::open(path) {
        Ok(store) => store,
        Err(error) => return Some(would_refuse(&unnamed(path, &error.to_string()))),
    };
    let file = store.file();
    let dense: Vec<&TensorInfo> = file.tensors().iter().filter(|tensor| is_dense_bitlinear(file, tensor)).collect();
    if dense.is_empty() {
        return note(path);
    }
    let reason = context_refused(&store).or_else(|| {
        let mut reader = std::fs::File::open(path).ok()?;
        dense.iter().find_map(|tensor| ternary_refused(&mut reader, tensor))
    })?;
    Some(would_refuse(&reason))
}

/// As [`note`].
#[cfg(not(feature = "embeddings"))]
pub(crate) fn note_of_converted(path: &Path) -> Option<String> {
    note(path)
}

fn would_refuse(reason: &str) -> String {
    format!("bitnet-embed would refuse the file as it is: {reason}")
}

/// Whoever asks has named the file.
#[cfg(feature = "embeddings")]
fn unnamed(path: &Path, error: &str) -> String {
    error.strip_prefix(&format!("{}: ", path.display())).unwrap_or(error).to_owned()
}

/// Whether a loader makes these weights ternary: those of a projection with an input norm.
#[cfg(feature = "embeddings")]
fn is_dense_bitlinear<B: AsRef<[u8]>>(file: &GgufFile<B>, tensor: &TensorInfo) -> bool {
    let norm = tensor.name().strip_suffix(".weight").map(|stem| format!("{stem}_norm_in.weight"));
    tensor.ggml_type().is_some_and(|ty| ty.block().is_some()) && norm.is_some_and(|norm| file.tensor(&norm).is_some())
}

/// Why no text fits the model, in the loader's words. What else the metadata may be refused for was found before they were
/// written.
#[cfg(feature = "embeddings")]
fn context_refused(store: &bitnet_embed::GgufStore) -> Option<String> {
    let tokenizer = Tokenizer::from_gguf(store.file().metadata()).ok()?;
    let (context, at_least) = (store.plan().config.max_position, tokenizer.special_count() + 1);
    (context < at_least).then(|| EmbedError::Context { path: None, context, at_least }.to_string())
}

/// Why a tensor cannot be made ternary, in the loader's words.
#[cfg(feature = "embeddings")]
fn ternary_refused(file: &mut std::fs::File, tensor: &TensorInfo) -> Option<String> {
    use std::io::{Read, Seek, SeekFrom};
    let (ty, range) = (tensor.ggml_type()?, tensor.file_range().ok()?);
    let mut data = vec![0; range.len()];
    // Just written: a file that is not there any more is no one's to judge.
    file.seek(SeekFrom::Start(range.start as u64)).and_then(|_| file.read_exact(&mut data)).ok()?;
    let row_bytes = data.len() / tensor.rows().max(1);
    let decode = |row: usize, out: &mut [f32]| ty.decode_row(&data[row * row_bytes..][..row_bytes], out);
    let packed = burn_i2s::pack::ternarize_and_pack_decoded(tensor.rows(), tensor.cols(), decode);
    packed.err().map(|source| format!("tensor {:?}: {source}", tensor.name()))
}
