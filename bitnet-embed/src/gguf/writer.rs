//! Writing files: declare everything, then stream the data.

use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use burn_i2s::ggml::GgmlType;

use super::file::checked_alignment;
use super::owned::encode_string;
use super::partial::PartialFile;
use super::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, GgufError, MAGIC, MAX_DIMENSIONS, MAX_METADATA, MAX_NAME_BYTES, MAX_TENSORS,
    OwnedValue, Part, TensorInfo, ValueType,
};

const VERSION: u32 = 3;

/// What a file will hold: its metadata, and the names, types and shapes of its tensors, in file order.
///
/// ```
/// use bitnet_embed::gguf::{GgufFile, GgufWriter};
/// use burn_i2s::ggml::GgmlType;
///
/// let mut writer = GgufWriter::new();
/// writer.metadata("general.architecture", "qwen3")?;
/// writer.tensor("output_norm.weight", GgmlType::F32, &[2])?;
/// let mut tensors = writer.write_to(Vec::new())?;
/// tensors.write("output_norm.weight", &[0; 8])?;
/// let file = GgufFile::from_owner(tensors.finish()?)?;
/// assert_eq!(file.metadata().str("general.architecture")?, Some("qwen3"));
/// # Ok::<(), bitnet_embed::gguf::GgufError>(())
/// ```
#[derive(Debug)]
pub struct GgufWriter {
    metadata: Vec<u8>,
    keys: HashSet<String>,
    tensors: Vec<Declared>,
    names: HashSet<String>,
    alignment: usize,
}

#[derive(Debug)]
struct Declared {
    name: String,
    type_id: u32,
    shape: Vec<usize>,
    byte_len: usize,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GgufWriter {
    /// A file with nothing in it.
    pub fn new() -> Self {
        Self {
            metadata: Vec::new(),
            keys: HashSet::new(),
            tensors: Vec::new(),
            names: HashSet::new(),
            alignment: DEFAULT_ALIGNMENT,
        }
    }

    /// Adds a metadata entry. `general.alignment` also sets the alignment.
    ///
    /// # Errors
    /// [`GgufError::DuplicateKey`], [`GgufError::Limit`]; for `general.alignment` also [`GgufError::Alignment`] and
    /// [`GgufError::ValueType`].
    pub fn metadata(&mut self, key: &str, value: impl Into<OwnedValue>) -> Result<&mut Self, GgufError> {
        let value = value.into();
        let index = self.keys.len();
        check_limit(Part::MetadataKey(index), "the length of a name", key.len(), MAX_NAME_BYTES)?;
        check_limit(Part::Header, "the number of metadata entries", index + 1, MAX_METADATA)?;
        let alignment = match &value {
            _ if key != ALIGNMENT_KEY => self.alignment,
            OwnedValue::U32(alignment) => checked_alignment(*alignment)?,
            other => {
                let (expected, found) = (ValueType::U32.into(), other.as_value(key).kind());
                return Err(GgufError::ValueType { key: key.to_owned(), expected, found });
            }
        };
        if !self.keys.insert(key.to_owned()) {
            return Err(GgufError::DuplicateKey { key: key.to_owned() });
        }
        self.alignment = alignment;
        encode_string(key, &mut self.metadata);
        value.encode(&mut self.metadata);
        Ok(self)
    }

    /// Declares a tensor. `shape` has the slowest dimension first, `[rows, cols]` for a matrix; the file stores it the
    /// other way round.
    ///
    /// # Errors
    /// [`GgufError::DuplicateTensor`], [`GgufError::DimensionCount`], [`GgufError::ZeroDimension`],
    /// [`GgufError::PartialBlock`], [`GgufError::TensorTooLarge`], [`GgufError::Limit`].
    pub fn tensor(&mut self, name: &str, ty: GgmlType, shape: &[usize]) -> Result<&mut Self, GgufError> {
        let byte_len = declared_bytes(name, ty, shape)?;
        self.declare(name, ty.id(), shape, byte_len)
    }

    /// Declares a tensor like one of another file, of whatever type: its data are to be copied as they are, see
    /// [`GgufFile::raw_data`](super::GgufFile::raw_data).
    ///
    /// # Errors
    /// [`GgufError::DuplicateTensor`], [`GgufError::UnsupportedType`] for a type whose size is not known,
    /// [`GgufError::Limit`].
    pub fn copy_of(&mut self, tensor: &TensorInfo) -> Result<&mut Self, GgufError> {
        let Some(byte_len) = tensor.byte_len() else { return Err(tensor.unsupported()) };
        self.declare(tensor.name(), tensor.type_id(), &tensor.shape(), byte_len)
    }

    fn declare(&mut self, name: &str, type_id: u32, shape: &[usize], byte_len: usize) -> Result<&mut Self, GgufError> {
        let index = self.tensors.len();
        check_limit(Part::TensorInfo(index), "the length of a name", name.len(), MAX_NAME_BYTES)?;
        check_limit(Part::Header, "the number of tensors", index + 1, MAX_TENSORS)?;
        if !self.names.insert(name.to_owned()) {
            return Err(GgufError::DuplicateTensor { tensor: name.to_owned() });
        }
        self.tensors.push(Declared { name: name.to_owned(), type_id, shape: shape.to_owned(), byte_len });
        Ok(self)
    }

    /// Starts the file at `path`. Nothing appears there before [`FileWriter::finish`] has succeeded; until then the data
    /// goes to `.<name>.partial` in the same folder, which is removed when the writer is dropped. A process that is killed
    /// leaves that file behind; the next one that writes to the same path takes it over.
    ///
    /// # Errors
    /// [`GgufError::InFile`] with what is wrong: [`GgufError::Busy`] while another process writes the same path,
    /// [`GgufError::OutputKind`] when something is there that is no file, else [`GgufError::Io`].
    pub fn create(self, path: impl AsRef<Path>) -> Result<FileWriter, GgufError> {
        self.create_with(path, |_| {})
    }

    /// As [`create`](Self::create). `begun` is told the path of the partial file once it belongs to this process and before
    /// anything is written to it, so that a handler of signals can remove it.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_with(self, path: impl AsRef<Path>, begun: impl FnOnce(&Path)) -> Result<FileWriter, GgufError> {
        let path = path.as_ref().to_owned();
        let start = || {
            let file = PartialFile::create(&path)?;
            let partial = file.partial().to_owned();
            begun(&partial);
            Ok((self.write_to(BufWriter::with_capacity(1 << 20, file))?, partial))
        };
        match start() {
            Ok((tensors, partial)) => Ok(FileWriter { tensors, path, partial }),
            Err(error) => Err(GgufError::in_file(error, path)),
        }
    }

    /// Starts the file on any writer, for files that are not to be on disk. Consider a `BufWriter`.
    ///
    /// # Errors
    /// [`GgufError::TensorTooLarge`] when the offsets overflow, [`GgufError::Io`].
    pub fn write_to<W: Write>(self, mut writer: W) -> Result<TensorWriter<W>, GgufError> {
        let header = self.encode_header()?;
        writer.write_all(&header).map_err(GgufError::io("write"))?;
        Ok(TensorWriter { writer, tensors: self.tensors, alignment: self.alignment, current: 0, written: 0 })
    }

    /// Everything before the data, padding included.
    fn encode_header(&self) -> Result<Vec<u8>, GgufError> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.metadata);
        let mut offset = 0u64;
        for tensor in &self.tensors {
            encode_string(&tensor.name, &mut out);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            for dim in tensor.shape.iter().rev() {
                out.extend((*dim as u64).to_le_bytes());
            }
            out.extend(tensor.type_id.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = offset
                .checked_add(tensor.byte_len as u64)
                .and_then(|end| end.checked_next_multiple_of(self.alignment as u64))
                .ok_or_else(|| too_large(&tensor.name, &tensor.shape))?;
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        Ok(out)
    }
}

/// A started file: takes the data of the declared tensors, in their order.
#[derive(Debug)]
pub struct TensorWriter<W> {
    writer: W,
    tensors: Vec<Declared>,
    alignment: usize,
    /// The tensor being written.
    current: usize,
    /// Bytes of it written so far.
    written: usize,
}

impl<W: Write> TensorWriter<W> {
    /// Name and byte length of the tensor that comes next, or of the one begun; `None` when all are written.
    pub fn next(&self) -> Option<(&str, usize)> {
        self.tensors.get(self.current).map(|tensor| (tensor.name.as_str(), tensor.byte_len))
    }

    /// Writes the next tensor, or the next piece of it: a tensor is complete when its declared length is reached.
    ///
    /// # Errors
    /// [`GgufError::TensorOrder`], [`GgufError::DataLength`] (too much for this tensor, or too little for the one
    /// before), [`GgufError::Io`]. What was written before stays as it was, and after an `Io` error the file is lost.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), GgufError> {
        let Some(tensor) = self.tensors.get(self.current).filter(|tensor| tensor.name == name) else {
            return Err(self.out_of_order(Some(name)));
        };
        let expected = tensor.byte_len;
        let found = self.written.saturating_add(bytes.len());
        if found > expected {
            return Err(GgufError::DataLength { tensor: name.to_owned(), expected, found });
        }
        self.writer.write_all(bytes).map_err(GgufError::io("write"))?;
        self.written = found;
        if found == expected {
            const ZEROS: [u8; 4096] = [0; 4096];
            let mut padding = expected.next_multiple_of(self.alignment) - expected;
            while padding > 0 {
                let piece = padding.min(ZEROS.len());
                self.writer.write_all(&ZEROS[..piece]).map_err(GgufError::io("write"))?;
                padding -= piece;
            }
            self.current += 1;
            self.written = 0;
        }
        Ok(())
    }

    /// Flushes and returns the writer, when the data of all tensors has been written.
    ///
    /// # Errors
    /// [`GgufError::TensorOrder`], [`GgufError::DataLength`], [`GgufError::Io`].
    pub fn finish(mut self) -> Result<W, GgufError> {
        if self.current < self.tensors.len() {
            return Err(self.out_of_order(None));
        }
        self.writer.flush().map_err(GgufError::io("write"))?;
        Ok(self.writer)
    }

    fn out_of_order(&self, found: Option<&str>) -> GgufError {
        match self.tensors.get(self.current) {
            Some(begun) if self.written > 0 => {
                GgufError::DataLength { tensor: begun.name.clone(), expected: begun.byte_len, found: self.written }
            }
            next => GgufError::TensorOrder {
                expected: next.map(|tensor| tensor.name.clone()),
                found: found.map(str::to_owned),
            },
        }
    }
}

/// A started file on disk: see [`GgufWriter::create`].
#[derive(Debug)]
pub struct FileWriter {
    tensors: TensorWriter<BufWriter<PartialFile>>,
    path: PathBuf,
    partial: PathBuf,
}

impl FileWriter {
    /// As [`TensorWriter::next`].
    pub fn next(&self) -> Option<(&str, usize)> {
        self.tensors.next()
    }

    /// Where the data are until the file is complete: what to remove if the process has to end before.
    pub fn partial_path(&self) -> &Path {
        &self.partial
    }

    /// As [`TensorWriter::write`].
    ///
    /// # Errors
    /// [`GgufError::InFile`] with what is wrong.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), GgufError> {
        self.tensors.write(name, bytes).map_err(|error| error.in_file(&self.path))
    }

    /// Hands what was written so far to the system, so that a full disk shows before [`finish`](Self::finish).
    ///
    /// # Errors
    /// [`GgufError::InFile`] with [`GgufError::Io`].
    pub fn flush(&mut self) -> Result<(), GgufError> {
        self.tensors.writer.flush().map_err(|error| GgufError::io("write")(error).in_file(&self.path))
    }

    /// Makes sure that the data is on the disk, then puts the file in its place, over an older one if there is one.
    ///
    /// # Errors
    /// [`GgufError::InFile`] with what is wrong; then nothing has changed at the path, unless it was the last step that
    /// failed, the syncing of the folder.
    pub fn finish(self) -> Result<(), GgufError> {
        let Self { tensors, path, .. } = self;
        let place = || {
            let buffered = tensors.finish()?;
            let file = buffered.into_inner().map_err(|error| GgufError::io("write")(error.into_error()))?;
            file.persist()
        };
        place().map_err(|error: GgufError| error.in_file(&path))
    }
}

fn check_limit(part: Part, what: &'static str, found: usize, limit: usize) -> Result<(), GgufError> {
    if found > limit {
        return Err(GgufError::Limit { part, what, found: found as u64, limit });
    }
    Ok(())
}

fn too_large(name: &str, shape: &[usize]) -> GgufError {
    let dims = shape.iter().rev().map(|dim| *dim as u64).collect();
    GgufError::TensorTooLarge { tensor: name.to_owned(), dims }
}

fn declared_bytes(name: &str, ty: GgmlType, shape: &[usize]) -> Result<usize, GgufError> {
    let tensor = name.to_owned();
    let Some(&cols) = shape.last().filter(|_| shape.len() <= MAX_DIMENSIONS) else {
        return Err(GgufError::DimensionCount { tensor, found: shape.len() as u64 });
    };
    if shape.contains(&0) {
        return Err(GgufError::ZeroDimension { tensor, dims: shape.iter().rev().map(|dim| *dim as u64).collect() });
    }
    let Some(element_count) = shape.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim)) else {
        return Err(too_large(name, shape));
    };
    let (block, found) = ty.block().map_or((128, element_count), |(block, _)| (block, cols));
    if !found.is_multiple_of(block) {
        return Err(GgufError::PartialBlock { tensor, type_name: ty.name(), block, found });
    }
    ty.tensor_bytes(element_count).ok_or_else(|| too_large(name, shape))
}
