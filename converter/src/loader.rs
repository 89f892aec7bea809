//! What `bitnet-embed` makes of a file: asked of itself, so that the answer is the one its users get.

use std::path::Path;

use bitnet_embed::config::ModelConfig;
#[cfg(feature = "embeddings")]
use bitnet_embed::{
    EmbedError,
    gguf::{GgufFile, TensorInfo},
    names::IGNORED,
    store::StoreProblem,
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

/// What is said about a file that was written but that no loader takes, however large it is: of one whose tensors a loader
/// would read all of, they are read one at a time, since pages of a mapped file count as memory of the process.
#[cfg(feature = "embeddings")]
pub(crate) fn note(path: &Path) -> Option<String> {
    let store = match bitnet_embed::GgufStore::open(path) {
        Ok(store) => store,
        Err(error) => return Some(would_refuse(&unnamed(path, &error.to_string()))),
    };
    let file = store.file();
    if !file.tensors().iter().any(|tensor| is_dense_bitlinear(file, tensor)) {
        return load(path).err().map(|reason| would_refuse(&reason));
    }
    let reason = text_refused(&store).or_else(|| {
        let mut reader = std::fs::File::open(path).ok()?;
        file.tensors().iter().find_map(|tensor| tensor_refused(&mut reader, file, tensor))
    })?;
    Some(would_refuse(&reason))
}

/// Nothing is known, so nothing is said.
#[cfg(not(feature = "embeddings"))]
pub(crate) fn note(_: &Path) -> Option<String> {
    None
}

#[cfg(feature = "embeddings")]
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

/// What no text gets past, in the loader's words.
#[cfg(feature = "embeddings")]
fn text_refused(store: &bitnet_embed::GgufStore) -> Option<String> {
    let config = &store.plan().config;
    let tokenizer = match Tokenizer::from_gguf(store.file().metadata()) {
        Ok(tokenizer) => tokenizer,
        Err(source) => return Some(EmbedError::Tokenizer { path: None, source }.to_string()),
    };
    let (tokens, vocab_size) = (tokenizer.id_count(), config.vocab_size);
    if tokens > vocab_size {
        return Some(EmbedError::Vocabulary { path: None, tokenizer: None, tokens, vocab_size }.to_string());
    }
    let (context, at_least) = (config.max_position, tokenizer.special_count() + 1);
    if context < at_least {
        return Some(EmbedError::Context { path: None, context, at_least }.to_string());
    }
    store.file().check_data().err().map(|error| error.to_string())
}

/// What is wrong with the values of a tensor that a loader looks at, in its words.
#[cfg(feature = "embeddings")]
fn tensor_refused<B: AsRef<[u8]>>(
    reader: &mut std::fs::File,
    file: &GgufFile<B>,
    tensor: &TensorInfo,
) -> Option<String> {
    use std::io::{Read, Seek, SeekFrom};
    let is_norm = tensor.dims().len() == 1 && !IGNORED.contains(&tensor.name());
    if !is_norm && !is_dense_bitlinear(file, tensor) {
        return None;
    }
    let (ty, range) = (tensor.ggml_type()?, tensor.file_range().ok()?);
    let mut data = vec![0; range.len()];
    // Just written: a file that is not there any more is no one's to judge.
    reader.seek(SeekFrom::Start(range.start as u64)).and_then(|_| reader.read_exact(&mut data)).ok()?;
    if is_norm {
        let mut values = vec![0.0; tensor.element_count()];
        ty.decode_row(&data, &mut values);
        let index = values.iter().position(|value| !value.is_finite())?;
        let (tensor, value) = (tensor.name().to_owned(), values[index]);
        return Some(StoreProblem::NotFinite { tensor, index, value }.to_string());
    }
    let row_bytes = data.len() / tensor.rows().max(1);
    let decode = |row: usize, out: &mut [f32]| ty.decode_row(&data[row * row_bytes..][..row_bytes], out);
    let packed = burn_i2s::pack::ternarize_and_pack_decoded(tensor.rows(), tensor.cols(), decode);
    let tensor = tensor.name().to_owned();
    packed.err().map(|source| StoreProblem::Ternary { tensor, source }.to_string())
}
