//! GGUF files: a reader that trusts no byte of them, and a writer.
//!
//! ```text
//! magic "GGUF" | u32 version | u64 tensor count | u64 metadata count
//! metadata      per entry:  u64 length, key | u32 value type | value
//! tensor infos  per tensor: u64 length, name | u32 n | n x u64 dimension | u32 type | u64 offset
//! padding to the alignment (`general.alignment`, 32 unless the file says otherwise)
//! tensor data   each tensor at its offset from here, a multiple of the alignment
//! ```
//!
//! All numbers are little-endian. Versions 2 and 3 have this same form; other versions and big-endian files are refused
//! by number.
//!
//! [`GgufFile`] reads from any owner of bytes. Opening one costs one walk over the header: every length, count, type,
//! dimension and offset in it is checked against the bytes that are there before it is used, and nothing is allocated in
//! proportion to a number that was not checked first. Arrays stay byte ranges until someone asks for their elements, and
//! tensor data is not looked at. [`GgufFile::check_data`] is the one pass that reads it.
//!
//! [`GgufWriter`] writes what the `gguf` Python package would write, byte for byte.

mod cursor;
mod describe;
mod error;
mod file;
mod metadata;
mod owned;
mod partial;
mod split;
mod tensor;
mod value;
mod writer;

pub use describe::Description;
pub use error::{GgufError, Part};
pub use file::{GgufFile, MappedFile};
pub use metadata::Metadata;
pub use owned::{OwnedArray, OwnedValue};
pub use split::{ModelBytes, SPLIT_COUNT, SPLIT_NO, SPLIT_TENSORS, split_path};
pub use tensor::TensorInfo;
pub use value::{Array, Value, ValueKind, ValueType};
pub use writer::{FileWriter, GgufWriter, TensorWriter};

/// Tensor data starts at multiples of this unless `general.alignment` says otherwise, in bytes.
pub const DEFAULT_ALIGNMENT: usize = 32;
/// The largest `general.alignment` accepted, in bytes.
pub const MAX_ALIGNMENT: usize = 1 << 16;
/// The longest metadata key or tensor name accepted, in bytes.
pub const MAX_NAME_BYTES: usize = u16::MAX as usize;
/// The most metadata entries accepted in one file.
pub const MAX_METADATA: usize = 1 << 16;
/// The most tensors accepted in one file.
pub const MAX_TENSORS: usize = 1 << 16;
/// The most dimensions a tensor may have.
pub const MAX_DIMENSIONS: usize = 4;
/// How deep arrays may nest: a plain array has depth 1.
pub const MAX_ARRAY_DEPTH: usize = 4;

const MAGIC: [u8; 4] = *b"GGUF";
const ALIGNMENT_KEY: &str = "general.alignment";
