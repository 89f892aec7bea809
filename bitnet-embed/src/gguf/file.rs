//! A parsed file over any owner of its bytes.

use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use burn_i2s::ggml::GgmlType;
use burn_i2s::layout;
use burn_i2s::pack::first_invalid_code;

use super::cursor::{Cursor, Short};
use super::metadata::{Index, find_sorted, sorted_unique};
use super::tensor::place;
use super::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, GgufError, MAGIC, MAX_ALIGNMENT, MAX_METADATA, MAX_TENSORS, Metadata, Part,
    TensorInfo, Value, ValueType,
};
use crate::file::kind_of;

/// A file mapped into memory, read-only; on systems that map no files (WebAssembly), read into memory instead.
///
/// The file must not be changed or truncated while it is mapped; see [`GgufFile::open`].
#[derive(Debug)]
pub struct MappedFile(Map);

#[cfg(any(unix, windows))]
type Map = memmap2::Mmap;
#[cfg(not(any(unix, windows)))]
type Map = Vec<u8>;

impl MappedFile {
    /// Maps a regular file.
    ///
    /// # Errors
    /// [`GgufError::Io`] in [`GgufError::InFile`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        Self::map(path).map_err(|error| error.in_file(path))
    }

    fn map(path: &Path) -> Result<Self, GgufError> {
        Ok(Self(contents(&open_regular(path)?)?))
    }
}

/// The bytes of an open file.
#[cfg(any(unix, windows))]
fn contents(file: &File) -> Result<Map, GgufError> {
    // SAFETY: the mapping is private to this value and read-only, so this process writes to it through no path. That
    // no other process changes or truncates the file meanwhile cannot be proved here; it is a condition that `open`
    // documents. Our own writer keeps it: it replaces a file by renaming and never writes into an existing one. No
    // value is decoded from the mapping without being checked at that moment (lengths, UTF-8 and booleans again on
    // every access), so nothing relies on bytes that were checked earlier being the same now.
    unsafe { memmap2::Mmap::map(file) }.map_err(GgufError::io("map"))
}

/// The bytes of an open file, where there is no mapping.
#[cfg(not(any(unix, windows)))]
fn contents(mut file: &File) -> Result<Map, GgufError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(GgufError::io("read"))?;
    Ok(bytes)
}

/// Opens a file that has a length.
fn open_regular(path: &Path) -> Result<File, GgufError> {
    // Asked before opening: to open a pipe would wait for its writer.
    let metadata = fs::metadata(path).map_err(GgufError::io("open"))?;
    if !metadata.is_file() {
        return Err(GgufError::InputKind { found: kind_of(&metadata) });
    }
    File::open(path).map_err(GgufError::io("open"))
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A GGUF file whose header has been checked, over any owner of its bytes.
///
/// Everything it reports about tensors is proved: they are inside the file, aligned and apart. Their contents have not
/// been looked at; [`check_data`](Self::check_data) does that.
#[derive(Debug)]
pub struct GgufFile<B> {
    bytes: B,
    header: Header,
}

#[derive(Debug)]
struct Header {
    version: u32,
    alignment: usize,
    data_start: usize,
    metadata: Index,
    tensors: Vec<TensorInfo>,
    /// Positions in `tensors`, ordered by name.
    by_name: Vec<u32>,
}

impl GgufFile<MappedFile> {
    /// Maps a file into memory and reads its header.
    ///
    /// The file must not be changed or truncated while it is open: reading a page that is no longer there ends the
    /// process on Unix (`SIGBUS`), and changed bytes give changed results. Replacing it by renaming another file over it
    /// is harmless. [`GgufFile::read`] has no such condition.
    ///
    /// # Errors
    /// [`GgufError::InFile`] with what is wrong.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        Self::from_owner(MappedFile::open(path)?).map_err(|error| error.in_file(path))
    }
}

impl GgufFile<Vec<u8>> {
    /// Reads a whole regular file into memory, then its header. What happens to the file afterwards does not matter.
    ///
    /// # Errors
    /// [`GgufError::InFile`] with what is wrong.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        let read = || {
            let mut bytes = Vec::new();
            open_regular(path)?.read_to_end(&mut bytes).map_err(GgufError::io("read"))?;
            Self::from_owner(bytes)
        };
        read().map_err(|error| error.in_file(path))
    }
}

impl<B: AsRef<[u8]>> GgufFile<B> {
    /// Reads the header of a file whose bytes `bytes` owns: a `Vec<u8>`, a `&[u8]`, a `bytes::Bytes`, a [`MappedFile`].
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn from_owner(bytes: B) -> Result<Self, GgufError> {
        let header = Header::read(bytes.as_ref())?;
        Ok(Self { bytes, header })
    }

    /// The owner of the file's bytes.
    pub fn owner(&self) -> &B {
        &self.bytes
    }

    /// The owner of the file's bytes, back.
    pub fn into_owner(self) -> B {
        self.bytes
    }

    /// GGUF version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// Tensor data starts at multiples of this from [`data_start`](Self::data_start), in bytes.
    pub fn alignment(&self) -> usize {
        self.header.alignment
    }

    /// Where the data section starts, in bytes from the start of the file.
    pub fn data_start(&self) -> usize {
        self.header.data_start
    }

    /// The metadata.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata::new(&self.header.metadata, self.bytes.as_ref())
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        find_sorted(&self.header.tensors, &self.header.by_name, TensorInfo::name, name)
    }

    /// The data of one of this file's tensors, as stored.
    ///
    /// # Errors
    /// [`GgufError::UnsupportedType`] for a type that this crate does not decode; [`GgufError::OutOfFile`] for a tensor
    /// of another file.
    pub fn data(&self, tensor: &TensorInfo) -> Result<&[u8], GgufError> {
        self.slice(tensor, tensor.file_range()?)
    }

    /// The data of one of this file's tensors, as stored, also of a type that this crate does not decode.
    ///
    /// # Errors
    /// [`GgufError::UnsupportedType`] for a type whose size is not known; [`GgufError::OutOfFile`] for a tensor of another
    /// file.
    pub fn raw_data(&self, tensor: &TensorInfo) -> Result<&[u8], GgufError> {
        self.slice(tensor, tensor.raw_range()?)
    }

    fn slice(&self, tensor: &TensorInfo, range: Range<usize>) -> Result<&[u8], GgufError> {
        let bytes = self.bytes.as_ref();
        let end = range.end as u128;
        let file_len = bytes.len();
        bytes.get(range).ok_or_else(|| GgufError::OutOfFile { tensor: tensor.name().to_owned(), end, file_len })
    }
}

impl<B: AsRef<[u8]> + Sync> GgufFile<B> {
    /// Reads what the header does not vouch for: that the scale of every I2_S tensor is a positive number, that none of
    /// its codes is 3, and that all strings in arrays are UTF-8. Uses the current rayon pool.
    ///
    /// # Errors
    /// [`GgufError::WeightScale`], [`GgufError::WeightCode`], [`GgufError::NotUtf8`]; the first in file order.
    pub fn check_data(&self) -> Result<(), GgufError> {
        let metadata = self.metadata();
        for key in metadata.keys() {
            if let Some(Value::Array(array)) = metadata.value(key)
                && array.element_type() == ValueType::Str
            {
                array.strings()?.try_for_each(|string| string.map(drop))?;
            }
        }
        for tensor in self.tensors().iter().filter(|tensor| tensor.ggml_type() == Some(GgmlType::I2_S)) {
            check_i2s(tensor, self.data(tensor)?)?;
        }
        Ok(())
    }
}

fn check_i2s(tensor: &TensorInfo, data: &[u8]) -> Result<(), GgufError> {
    let name = || tensor.name().to_owned();
    let (blocks, scale) = layout::split(data).unwrap_or((&[], f32::NAN));
    if !(scale.is_finite() && scale > 0.0) {
        return Err(GgufError::WeightScale { tensor: name(), found: scale });
    }
    match first_invalid_code(blocks.as_flattened()) {
        Some(index) => Err(GgufError::WeightCode { tensor: name(), index }),
        None => Ok(()),
    }
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(bytes);
        if !bytes.starts_with(&MAGIC) {
            return Err(GgufError::Magic { found: bytes[..bytes.len().min(4)].to_vec() });
        }
        let in_header = |short: Short| short.at(Part::Header);
        cursor.take(4).map_err(in_header)?;
        let version = cursor.u32().map_err(in_header)?;
        match version {
            2 | 3 => {}
            swapped if matches!(swapped.swap_bytes(), 1..=3) => {
                return Err(GgufError::BigEndian { version: swapped.swap_bytes() });
            }
            found => return Err(GgufError::Version { found }),
        }
        let tensor_count = cursor.u64().map_err(in_header)?;
        let metadata_count = cursor.u64().map_err(in_header)?;
        // The least that an entry takes: an empty key, a type and one byte; an empty name, one dimension, type, offset.
        cursor.expect(metadata_count, 8 + 4 + 1).map_err(in_header)?;
        cursor.expect(tensor_count, 8 + 4 + 8 + 4 + 8).map_err(in_header)?;
        let metadata_count = limited("the number of metadata entries", metadata_count, MAX_METADATA)?;
        let tensor_count = limited("the number of tensors", tensor_count, MAX_TENSORS)?;

        let metadata = Index::read(&mut cursor, metadata_count)?;
        let alignment = read_alignment(Metadata::new(&metadata, bytes))?;
        let mut tensors = Vec::with_capacity(tensor_count);
        for index in 0..tensor_count {
            tensors.push(TensorInfo::read(&mut cursor, index)?);
        }
        let by_name = sorted_unique(&tensors, TensorInfo::name)
            .map_err(|tensor| GgufError::DuplicateTensor { tensor: tensor.name().to_owned() })?;
        // A slice is no longer than isize::MAX, so rounding up does not overflow.
        let data_start = cursor.position().next_multiple_of(alignment);
        place(&mut tensors, data_start, bytes.len(), alignment)?;
        Ok(Self { version, alignment, data_start, metadata, tensors, by_name })
    }
}

fn limited(what: &'static str, found: u64, limit: usize) -> Result<usize, GgufError> {
    match usize::try_from(found) {
        Ok(count) if count <= limit => Ok(count),
        _ => Err(GgufError::Limit { part: Part::Header, what, found, limit }),
    }
}

fn read_alignment(metadata: Metadata<'_>) -> Result<usize, GgufError> {
    let Some(value) = metadata.value(ALIGNMENT_KEY) else { return Ok(DEFAULT_ALIGNMENT) };
    match value {
        Value::U32(found) => checked_alignment(found),
        other => Err(GgufError::ValueType {
            key: ALIGNMENT_KEY.to_owned(),
            expected: ValueType::U32.into(),
            found: other.kind(),
        }),
    }
}

pub(super) fn checked_alignment(found: u32) -> Result<usize, GgufError> {
    match found as usize {
        alignment if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => Ok(alignment),
        _ => Err(GgufError::Alignment { found: found.into() }),
    }
}
