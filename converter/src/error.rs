//! Everything that can end a conversion, and the exit code that each ending has.

use std::path::{Path, PathBuf};

use bitnet_embed::config::ConfigError;
use bitnet_embed::gguf::GgufError;

use crate::checkpoint::CheckpointError;
use crate::edit::EditError;
use crate::encode::EncodeError;
use crate::plan::PlanError;
use crate::vocab::VocabError;

/// `verify` found a difference.
pub const EXIT_DIFFERS: u8 = 1;
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
    #[error("{}: {found}; give {expected}", dir.display())]
    NoFolder {
        /// What was given.
        dir: PathBuf,
        /// What is there.
        found: &'static str,
        /// What should be.
        expected: &'static str,
    },
    /// A file to convert that is no GGUF file.
    #[error("{source}; to convert a checkpoint give its folder, with config.json in it")]
    NoGguf {
        /// How it starts.
        source: GgufError,
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
    #[error("{}: {found}, so the pooling is unknown; say which one the model was trained with: --pooling last|mean|cls", dir.display())]
    NoPooling {
        /// The checkpoint.
        dir: PathBuf,
        /// What is missing.
        found: &'static str,
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
    /// Model, tokenizer and token table disagree on how many tokens there are.
    #[error(
        "{}: vocab_size of config.json is {vocab_size}, the token table has {table_rows} rows, and tokenizer.json needs {tokenizer_ids}; these are not of one model, or the table was resized without saving the config",
        dir.display()
    )]
    VocabSizes {
        /// The checkpoint.
        dir: PathBuf,
        /// By `config.json`.
        vocab_size: usize,
        /// Rows of the token table.
        table_rows: usize,
        /// One more than the largest id of the tokenizer that a table must have a row for.
        tokenizer_ids: usize,
    },
    /// The weights were not trained to be ternary.
    #[error(
        "{}: tensor {tensor}: ternary weights lose {:.0} % of it, more than {:.0} %: it was not trained as a BitNet and i2_s would ruin it; convert with --outtype f16, or insist with --force",
        path.display(), found * 100.0, limit * 100.0
    )]
    NotTernary {
        /// The file the tensor is in.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Share of the squared norm that is lost.
        found: f64,
        /// The largest share accepted.
        limit: f64,
    },
    /// A GGUF file given as input was refused.
    #[error(transparent)]
    Input(GgufError),
    /// Tensors of a GGUF file cannot be stored as asked.
    #[error("{}: {source}", path.display())]
    Recode {
        /// The file.
        path: PathBuf,
        /// Which tensor, and why.
        source: PlanError,
    },
    /// Ternary weights are not turned back into floats.
    #[error(
        "{}: tensor {tensor} is I2_S; as floats its weights would be given another scale by whoever makes them ternary again, so only --outtype i2_s is possible",
        path.display()
    )]
    FromTernary {
        /// The file.
        path: PathBuf,
        /// The first such tensor.
        tensor: String,
    },
    /// A flag that only a checkpoint has a use for.
    #[error(
        "--{flag}: a GGUF file is converted with what it holds; give the folder of the checkpoint, or see `converter edit`"
    )]
    OnlyOfCheckpoint {
        /// The flag.
        flag: &'static str,
    },
    /// A change of the metadata that cannot be made.
    #[error("{source}")]
    Edit {
        /// Which, and why.
        source: EditError,
    },
    /// The output would replace a file that is being read.
    #[error("{}: the output would replace a file that is being read; choose another output path", path.display())]
    OutputIsInput {
        /// The file.
        path: PathBuf,
    },
    /// The output would replace a file of the checkpoint.
    #[error("{}: in the folder of the checkpoint only *.gguf files are replaced; choose another output path", path.display())]
    OutputInCheckpoint {
        /// The file.
        path: PathBuf,
    },
    /// The output has the name of one file of several.
    #[error(
        "--outfile {}: {} is the name of one part of a split model, which the file would not be; give a name that does not end in -NNNNN-of-NNNNN.gguf: the parts of --split-max-size are named by the converter",
        path.display(), name.display()
    )]
    PartName {
        /// The path as it was given.
        path: PathBuf,
        /// Its last name, or that of the file it links to.
        name: PathBuf,
    },
    /// A set of files would have to be replaced.
    #[error(
        "not written: {}: there is such a set of {count} files already, and a set is not replaced, for that takes several steps; remove it, or choose another output path",
        path.display()
    )]
    SetExists {
        /// The first file of the set.
        path: PathBuf,
        /// How many there are.
        count: usize,
    },
    /// The output's folder is not there.
    #[error("not written: {}: {} {problem}", path.display(), folder.display())]
    NoOutputFolder {
        /// The output.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Standard output is closed or full.
    #[error("{what} could not be printed to standard output: {source}")]
    Print {
        /// What was to be printed.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The threads that do the work could not be started.
    #[error("cannot start {count} threads: {source}; set RAYON_NUM_THREADS to fewer")]
    Threads {
        /// How many.
        count: usize,
        /// Why.
        source: rayon::ThreadPoolBuildError,
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
    /// The sizes asked for make a model that is refused.
    #[error("the sizes asked for make no model: {source}")]
    DummyConfig {
        /// Why.
        source: ConfigError,
    },
    /// No folder for temporary files.
    #[error("no folder for temporary files: {source}; set TMPDIR, or leave the vectors out with --no-embeddings")]
    Temporary {
        /// What the system said.
        source: std::io::Error,
    },
    /// A temporary file could not be written.
    #[error(
        "no room for the checkpoint in f32: {source}; set TMPDIR to a folder with more, or leave the vectors out with --no-embeddings"
    )]
    TemporaryFile {
        /// Which file, and what the system said.
        source: GgufError,
    },
    /// The output could not be written.
    #[error("not written: {0}")]
    Output(#[from] GgufError),
}

impl ConvertError {
    /// An error of a tensor in the file `path`; if that tensor was not the reason, but the output, it is not named.
    pub(crate) fn of_tensor(path: &Path, source: EncodeError) -> Self {
        match source {
            EncodeError::Write(error) => Self::Output(error),
            source => Self::Encode { path: path.to_owned(), source },
        }
    }

    /// The exit code of the program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::DummySize { .. }
            | Self::DummyConfig { .. }
            | Self::Edit { .. }
            | Self::OnlyOfCheckpoint { .. }
            | Self::PartName { .. } => 2,
            Self::Config { source: ConfigError::Unsupported { .. }, .. } | Self::Module { .. } => EXIT_UNSUPPORTED,
            Self::Vocab { source, .. } if source.is_unsupported() => EXIT_UNSUPPORTED,
            Self::OutputIsInput { .. }
            | Self::OutputInCheckpoint { .. }
            | Self::NoOutputFolder { .. }
            | Self::SetExists { .. }
            | Self::Print { .. }
            | Self::Threads { .. }
            | Self::Temporary { .. }
            | Self::TemporaryFile { .. }
            | Self::Output(_) => EXIT_NOT_WRITTEN,
            _ => EXIT_REFUSED,
        }
    }
}
