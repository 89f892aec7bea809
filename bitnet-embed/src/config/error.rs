//! What can be wrong with a model's description.

use std::io;
use std::path::PathBuf;

/// Why a `config.json`, the metadata of a GGUF file, or an override was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A file is not valid JSON.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: crate::json::JsonError,
    },
    /// The GGUF metadata could not be read.
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
    /// A key without a sensible default is absent.
    #[error("{key:?} is missing")]
    Missing {
        /// The key.
        key: String,
    },
    /// A key has a value of another type.
    #[error("{key:?} is {found}, not {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// What it should be.
        expected: &'static str,
        /// The value.
        found: String,
    },
    /// A key has a value that would change the computation into one that is not implemented.
    #[error("{key:?} = {found} is not supported (supported: {supported})")]
    Unsupported {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// The values that are supported.
        supported: &'static str,
    },
    /// A size outside its bounds.
    #[error("{key:?} = {found}, it must be {min} to {max}")]
    OutOfRange {
        /// The key.
        key: String,
        /// Its value.
        found: u64,
        /// The smallest value accepted.
        min: u64,
        /// The largest value accepted.
        max: u64,
    },
    /// A factor, base or epsilon that is not a positive, finite number.
    #[error("{key:?} = {found:?}, it must be positive and finite as a 32-bit float, from 1e-45 to 3.4e38")]
    NotPositive {
        /// The key.
        key: String,
        /// Its value.
        found: f64,
    },
    /// Query heads cannot be shared out evenly among the key and value heads.
    #[error("{num_heads} query heads are not a multiple of {num_kv_heads} key and value heads")]
    Heads {
        /// Query heads.
        num_heads: usize,
        /// Key and value heads.
        num_kv_heads: usize,
    },
    /// A head cannot be rotated: its width is odd.
    #[error("the head width {head_dim} is odd, RoPE rotates pairs")]
    OddHead {
        /// The width.
        head_dim: usize,
    },
    /// A list with an entry for each layer has another length.
    #[error("{key:?} has {found} entries, the model has {expected} layers")]
    LayerCount {
        /// The key.
        key: String,
        /// Layers of the model.
        expected: usize,
        /// Entries of the list.
        found: usize,
    },
    /// A path in `modules.json` leaves the checkpoint's folder.
    #[error("\"modules.json\" names the folder {path:?}, which is outside the checkpoint")]
    ModulePath {
        /// The path.
        path: String,
    },
    /// Two overrides of one key.
    #[error("the key {key:?} is overridden twice; state one value for it")]
    OverrideTwice {
        /// The key.
        key: String,
    },
    /// An override that is not `KEY=TYPE:VALUE`.
    #[error(
        "nothing is read from the key {key:?} that an override states; a {architecture} model has {architecture}.* keys"
    )]
    OverrideUnread {
        /// The key.
        key: String,
        /// The model's architecture.
        architecture: super::Architecture,
    },
    /// An override that is not `KEY=TYPE:VALUE`.
    #[error("the override {text:?} is not KEY=TYPE:VALUE")]
    OverrideForm {
        /// The override.
        text: String,
    },
    /// An override of a type that does not exist.
    #[error("the override {text:?} has type {found:?}, not int, float, bool or str")]
    OverrideType {
        /// The override.
        text: String,
        /// Its type.
        found: String,
    },
    /// An override whose value does not fit its type.
    #[error("the override {text:?}: {value:?} is not {expected}")]
    OverrideValue {
        /// The override.
        text: String,
        /// Its value.
        value: String,
        /// What its type asks for.
        expected: &'static str,
    },
}

impl ConfigError {
    /// Whether the model is of a kind, or uses a feature, that this crate does not compute; the other errors are damaged
    /// or contradictory input.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Unsupported { .. })
    }
}
