//! What can be wrong with the files of a checkpoint.

use std::io;
use std::path::PathBuf;

use bitnet_embed::json::JsonError;

use crate::checkpoint::{INDEX_FILE, SINGLE_FILE};

/// What is wrong with a checkpoint folder's tensor files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file could not be opened or read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that every checkpoint has is not there.
    #[error("{}: no such file; {hint}", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
        /// Where to get it.
        hint: &'static str,
    },
    /// A symbolic link whose target is not there.
    #[error("{}: a symbolic link to {}, which does not exist; download it again", path.display(), target.display())]
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// What it names.
        target: PathBuf,
    },
    /// A file is longer than anything this program reads whole.
    #[error("{}: {found} bytes is more than the {limit} bytes read of such a file", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A JSON file, or the JSON header of a safetensors file, does not parse.
    #[error("{}: {what} is not what was expected: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Which part of the file.
        what: &'static str,
        /// Where and why.
        source: JsonError,
    },
    /// The folder has no weights.
    #[error("{}: no {SINGLE_FILE}, no {INDEX_FILE} and no other *.safetensors file; give the folder of a Hugging Face checkpoint", dir.display())]
    NoWeights {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder has weights, of a kind that is not read.
    #[error(
        "{}: these weights are pickled by PyTorch and there is no *.safetensors file; download the model.safetensors of the model, or write it with `AutoModel.from_pretrained(FOLDER).save_pretrained(FOLDER)` of transformers 4.35 or newer",
        path.display()
    )]
    Pickled {
        /// One of the files.
        path: PathBuf,
    },
    /// A safetensors file ends before its header does.
    #[error("{}: the header should take {header} bytes but the file has {file}; the file is incomplete or no safetensors file: download it again", path.display())]
    HeaderPastEnd {
        /// The file.
        path: PathBuf,
        /// Header length as stated.
        header: u64,
        /// File length.
        file: u64,
    },
    /// The data of a safetensors file is not as long as its header says.
    #[error("{}: the header describes {expected} bytes of data but the file has {found}; the file is incomplete: download it again", path.display())]
    DataLength {
        /// The file.
        path: PathBuf,
        /// Data length by the header.
        expected: u64,
        /// Data length in the file.
        found: u64,
    },
    /// The offsets of a tensor overlap, leave a gap, run backwards or do not fit its shape.
    #[error("{}: tensor {tensor}: expected data at {expected}, found offsets {}..{}; the header is damaged", path.display(), found.0, found.1)]
    Offsets {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Where its data should be.
        expected: String,
        /// The offsets in the header.
        found: (u64, u64),
    },
    /// A tensor is named twice.
    #[error("tensor {tensor} is in {} and again in {}; remove the file that is not part of the model", first.display(), second.display())]
    Duplicate {
        /// The tensor.
        tensor: String,
        /// First file.
        first: PathBuf,
        /// Second file.
        second: PathBuf,
    },
    /// The index names a file outside of the folder.
    #[error("{}: tensor {tensor} points to {file:?}, which is not a file inside the folder", path.display())]
    IndexLeavesFolder {
        /// The index.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What the index says.
        file: String,
    },
    /// The index names no file.
    #[error("{}: its weight_map lists no tensor; download it again", path.display())]
    IndexEmpty {
        /// The index.
        path: PathBuf,
    },
    /// The index names a file that is not there.
    #[error("{}: the file is listed in {INDEX_FILE} but missing: download it again", path.display())]
    MissingShard {
        /// The missing file.
        path: PathBuf,
    },
    /// The index promises a tensor that the file does not have.
    #[error("{}: tensor {tensor} should be here by {INDEX_FILE} but is not; index and files are of different models", path.display())]
    IndexTensorAbsent {
        /// The file it should be in.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A file holds a tensor that the index does not list for it.
    #[error("{}: tensor {tensor} is not listed for this file in {INDEX_FILE}; index and files are of different models", path.display())]
    NotInIndex {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
}
