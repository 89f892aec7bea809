//! What can be wrong with a GGUF file, or with a request for one.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ValueKind;

/// The part of the header that was being read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Magic, version and the two counts.
    Header,
    /// The key of the metadata entry with this position in the file.
    MetadataKey(usize),
    /// The value of the metadata entry with this key.
    MetadataValue(String),
    /// The description of the tensor with this position in the file.
    TensorInfo(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Header => f.write_str("the header"),
            Part::MetadataKey(index) => write!(f, "the key of metadata entry {index}"),
            Part::MetadataValue(key) => write!(f, "the value of {key:?}"),
            Part::TensorInfo(index) => write!(f, "the description of tensor {index}"),
        }
    }
}

/// Why a GGUF file was refused, or could not be written.
///
/// Keys and names come from the file and are shown quoted and escaped: they may hold control characters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// Any of the others, with the file it happened in.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file as the caller named it.
        path: PathBuf,
        /// What is wrong.
        error: Box<GgufError>,
    },
    /// The operating system refused.
    #[error("cannot {operation}: {source}")]
    Io {
        /// What was attempted: `open`, `read`, `map`, `create`, `lock`, `write`, `sync`, `rename`,
        /// `set the permissions of`, `follow`.
        operation: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
    /// Another process is writing the same file.
    #[error("another process is writing this file: it has {} locked", partial.display())]
    Busy {
        /// The file that the other process writes to until it is done.
        partial: PathBuf,
    },
    /// What is at the input's path is no regular file.
    #[error(
        "{found}, not a GGUF file; {}",
        if *found == "a folder" {
            "give the *.gguf file itself, or make one of a checkpoint's folder with `converter FOLDER --outtype i2_s`"
        } else {
            "give a regular file"
        }
    )]
    InputKind {
        /// What is there.
        found: &'static str,
    },
    /// The file that the data go to until they are complete cannot be written.
    #[error(
        "the data go to {} first, {problem}; {}choose another output path",
        partial.display(),
        if fs::symlink_metadata(partial).is_ok() { "remove it, or " } else { "" }
    )]
    Partial {
        /// That file.
        partial: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// What is at the output's path is no file that could be replaced.
    #[error("there is {found} where the file should go; give the path of the file itself")]
    OutputKind {
        /// What is there.
        found: &'static str,
    },
    /// A file of a split model that is not named as one, so that the others cannot be found.
    #[error("part of a split model, but its name does not end in {suffix:?}")]
    SplitName {
        /// How the name should end.
        suffix: String,
    },
    /// A file of a split model is not beside the others.
    #[error(
        "file {number} of the {count} that this model is split into is not there; all of them must be in one folder"
    )]
    SplitMissing {
        /// Which one, from one.
        number: u32,
        /// How many there are.
        count: u32,
    },
    /// A file that is not the part of a split model that its name says.
    #[error(
        "expected split.no {} and split.count {} by its name, found {} and {}",
        expected.0, expected.1, or_none(found.0), or_none(found.1)
    )]
    SplitPart {
        /// Position and number of files, by the name.
        expected: (u32, u32),
        /// The same in the metadata.
        found: (Option<u32>, Option<u32>),
    },
    /// The files of a split model do not have as many tensors as the first one says.
    #[error("the files of this split model should have {expected} tensors, but have {found}")]
    SplitTensors {
        /// By `split.tensors.count`.
        expected: u64,
        /// In all files.
        found: u64,
    },
    /// The file does not start with `GGUF`.
    #[error("not a GGUF file: it starts with {:?}, not \"GGUF\"", found.escape_ascii().to_string())]
    Magic {
        /// The bytes it starts with, at most four.
        found: Vec<u8>,
    },
    /// A version this reader does not know.
    #[error("GGUF version {found} is not supported, only 2 and 3 are")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// A file written for big-endian machines.
    #[error("big-endian GGUF (version {version}) is not supported")]
    BigEndian {
        /// The version, byte order undone.
        version: u32,
    },
    /// A length or count reaches past the end of the file.
    #[error("{part} needs {needed} bytes at offset {offset}, {available} are left in the file")]
    Truncated {
        /// What was being read.
        part: Part,
        /// Where, in bytes from the start of the file.
        offset: usize,
        /// Bytes that the length or count stands for, at least.
        needed: u64,
        /// Bytes from there to the end of the file.
        available: usize,
    },
    /// A count or length over one of this reader's limits.
    #[error("{part}: {what} is {found}, the limit is {limit}")]
    Limit {
        /// What was being read.
        part: Part,
        /// Which number.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The largest accepted.
        limit: usize,
    },
    /// Text that is not UTF-8.
    #[error("{part} is not UTF-8")]
    NotUtf8 {
        /// What was being read.
        part: Part,
    },
    /// Two metadata entries with one key.
    #[error("metadata key {key:?} appears twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// Two tensors with one name.
    #[error("tensor {tensor:?} appears twice")]
    DuplicateTensor {
        /// The name.
        tensor: String,
    },
    /// A metadata value type that GGUF does not define.
    #[error("{key:?} has the unknown value type {id}")]
    UnknownValueType {
        /// The metadata key.
        key: String,
        /// The type number in the file.
        id: u32,
    },
    /// A boolean that is neither 0 nor 1.
    #[error("{key:?} holds a boolean with the value {found}")]
    InvalidBool {
        /// The metadata key.
        key: String,
        /// The byte in the file.
        found: u8,
    },
    /// A metadata value of another type than the one asked for.
    #[error("{key:?} is {found}, expected {expected}")]
    ValueType {
        /// The metadata key.
        key: String,
        /// The type asked for.
        expected: ValueKind,
        /// The type in the file.
        found: ValueKind,
    },
    /// An integer that does not fit the type asked for.
    #[error("{key:?} is {found}, which does not fit {expected}")]
    ValueRange {
        /// The metadata key.
        key: String,
        /// The type asked for.
        expected: ValueKind,
        /// The value in the file.
        found: i128,
    },
    /// `general.alignment` is no usable alignment.
    #[error("alignment {found} is not a power of two up to {}", super::MAX_ALIGNMENT)]
    Alignment {
        /// The value in the file.
        found: u64,
    },
    /// A tensor with no dimensions or too many.
    #[error("tensor {tensor:?} has {found} dimensions, expected 1 to {}", super::MAX_DIMENSIONS)]
    DimensionCount {
        /// The tensor.
        tensor: String,
        /// Its number of dimensions.
        found: u64,
    },
    /// A tensor with a dimension of zero.
    #[error("tensor {tensor:?} has no elements: its dimensions are {dims:?}")]
    ZeroDimension {
        /// The tensor.
        tensor: String,
        /// Its dimensions, fastest first.
        dims: Vec<u64>,
    },
    /// A tensor larger than the address space.
    #[error("tensor {tensor:?} is too large: its dimensions are {dims:?}")]
    TensorTooLarge {
        /// The tensor.
        tensor: String,
        /// Its dimensions, fastest first.
        dims: Vec<u64>,
    },
    /// A tensor that is not whole blocks of its type.
    #[error("tensor {tensor:?}: {found} values are not whole blocks of {block} ({type_name})")]
    PartialBlock {
        /// The tensor.
        tensor: String,
        /// Its type.
        type_name: &'static str,
        /// Values per block.
        block: usize,
        /// Values per row, or in the whole tensor for I2_S.
        found: usize,
    },
    /// A tensor whose data does not start at a multiple of the alignment.
    #[error("tensor {tensor:?} starts at {offset}, which is not a multiple of the alignment {alignment}")]
    UnalignedOffset {
        /// The tensor.
        tensor: String,
        /// Its offset in the data section, in bytes.
        offset: u64,
        /// The file's alignment, in bytes.
        alignment: usize,
    },
    /// A tensor whose data reaches past the end of the file.
    #[error("tensor {tensor:?} ends at byte {end}, the file at {file_len}")]
    OutOfFile {
        /// The tensor.
        tensor: String,
        /// The first byte after its data (after its start, when its length is not known).
        end: u128,
        /// The length of the file.
        file_len: usize,
    },
    /// Two tensors that share bytes.
    #[error("tensors {tensor:?} and {other:?} overlap")]
    Overlap {
        /// The one that starts first.
        tensor: String,
        /// The one that starts inside it.
        other: String,
    },
    /// A tensor of type number 36 that cannot be I2_S: another type had that number once.
    #[error(
        "tensor {tensor:?} has type 36 but not the byte length of I2_S: expected {expected} with padding, found {found}"
    )]
    I2sLength {
        /// The tensor.
        tensor: String,
        /// Bytes that I2_S weights of this shape take, padded to the alignment.
        expected: usize,
        /// Bytes from its start to the next tensor or the end of the file.
        found: usize,
    },
    /// The data of a tensor was asked for, but its type is one that this crate does not decode.
    #[error("tensor {tensor:?} has the unsupported type {type_name} ({id})")]
    UnsupportedType {
        /// The tensor.
        tensor: String,
        /// GGML's name of the type, `unknown` if it has none.
        type_name: &'static str,
        /// GGML's number of the type.
        id: u32,
    },
    /// An I2_S tensor whose scale is not a positive finite number.
    #[error("tensor {tensor:?}: expected a positive finite weight scale, found {found}")]
    WeightScale {
        /// The tensor.
        tensor: String,
        /// The scale in the file.
        found: f32,
    },
    /// An I2_S tensor with the two-bit code 3, which stands for no weight.
    #[error("tensor {tensor:?}: weight {index} has the invalid code 3")]
    WeightCode {
        /// The tensor.
        tensor: String,
        /// The first such weight, counted row by row.
        index: usize,
    },
    /// The data given for a tensor is longer or shorter than its declared shape and type.
    #[error("tensor {tensor:?} takes {expected} bytes, {found} were given")]
    DataLength {
        /// The tensor.
        tensor: String,
        /// Bytes of the declared shape and type.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// Tensor data given out of order, for an undeclared tensor or not at all.
    #[error("the next tensor to write is {}, not {}", quoted(expected), quoted(found))]
    TensorOrder {
        /// The next declared tensor; `None` when all are written.
        expected: Option<String>,
        /// The tensor given; `None` when the file was finished instead.
        found: Option<String>,
    },
}

fn quoted(name: &Option<String>) -> String {
    name.as_ref().map_or_else(|| "the end of the file".to_owned(), |name| format!("{name:?}"))
}

impl GgufError {
    /// The same error, naming the file it happened in.
    pub fn in_file(self, path: impl AsRef<Path>) -> Self {
        match self {
            named @ GgufError::InFile { .. } => named,
            error => GgufError::InFile { path: path.as_ref().to_owned(), error: Box::new(error) },
        }
    }

    /// The error itself, without the file it happened in.
    pub fn kind(&self) -> &GgufError {
        match self {
            GgufError::InFile { error, .. } => error.kind(),
            error => error,
        }
    }

    pub(super) fn io(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| GgufError::Io { operation, source }
    }
}

fn or_none(number: Option<u32>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| number.to_string())
}
