//! Everything that can end a conversion, and the exit code that each ending has.

use std::path::PathBuf;

use bitnet_embed::config::ConfigError;
use bitnet_embed::gguf::GgufError;

use crate::checkpoint::CheckpointError;
use crate::encode::EncodeError;
use crate::plan::PlanError;
use crate::vocab::VocabError;

/// The checkpoint is refused: damaged, incomplete, or at odds with its own config.
pub const EXIT_REFUSED: u8 = 3;
/// The model is of a kind that is not supported.
pub const EXIT_UNSUPPORTED: u8 = 4;
/// The output could not be written.
pub const EXIT_NOT_WRITTEN: u8 = 5;

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The given folder is none.
    #[error("{}: not a folder; give the folder of a Hugging Face checkpoint, with config.json in it", dir.display())]
    NoFolder {
        /// What was given.
        dir: PathBuf,
    },
    /// A tensor file is damaged or missing, or a file could not be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The model's configuration is damaged or not supported.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Which key, and why.
        source: ConfigError,
    },
    /// The tokenizer is damaged or not supported.
    #[error("{}: {source}", path.display())]
    Vocab {
        /// `tokenizer.json`.
        path: PathBuf,
        /// Which field, and why.
        source: VocabError,
    },
    /// The model goes on after pooling.
    #[error("{}: a module of type {kind} follows; supported are Transformer, Pooling and Normalize", path.display())]
    Module {
        /// `modules.json`.
        path: PathBuf,
        /// The type, as the file names it.
        kind: String,
    },
    /// Nothing says how token vectors become one vector.
    #[error("{}: no modules.json with a pooling module, so the pooling is unknown; say which one the model was trained with: --pooling last|mean|cls", dir.display())]
    NoPooling {
        /// The checkpoint.
        dir: PathBuf,
    },
    /// The tensors are not those of the model in config.json.
    #[error("{}: {source}", dir.display())]
    Plan {
        /// The checkpoint.
        dir: PathBuf,
        /// Which tensor, and why.
        source: PlanError,
    },
    /// A tensor cannot be converted.
    #[error("{}: {source}", path.display())]
    Encode {
        /// The file the tensor is in.
        path: PathBuf,
        /// Which tensor, and why.
        source: EncodeError,
    },
    /// The output would replace a file that is being read.
    #[error("{}: the output would replace a file of the checkpoint; choose another --outfile", path.display())]
    OutputIsInput {
        /// The file.
        path: PathBuf,
    },
    /// The sizes asked for make no model.
    #[error("--{flag} {found}: {expected}")]
    DummySize {
        /// The flag.
        flag: &'static str,
        /// Its value.
        found: usize,
        /// What it may be.
        expected: &'static str,
    },
    /// The output could not be written.
    #[error("not written: {0}")]
    Output(#[from] GgufError),
}

impl ConvertError {
    /// The exit code of the program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::DummySize { .. } => 2,
            Self::Config { source: ConfigError::Unsupported { .. }, .. } | Self::Module { .. } => EXIT_UNSUPPORTED,
            Self::Vocab { source: VocabError::Unsupported { .. }, .. } => EXIT_UNSUPPORTED,
            Self::Encode { source: EncodeError::Write(_), .. } | Self::OutputIsInput { .. } | Self::Output(_) => {
                EXIT_NOT_WRITTEN
            }
            _ => EXIT_REFUSED,
        }
    }
}
