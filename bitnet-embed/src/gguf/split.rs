//! A model in several files, as llama.cpp's `gguf-split` writes them: `name-00001-of-00003.gguf` and so on.
//!
//! Each file is a whole GGUF file with some of the tensors; the first has the metadata of the model. `split.no` counts from
//! zero, the names from one.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{GgufError, GgufFile, GgufWriter, MappedFile, Metadata};

/// Which file of a split model this is, from zero.
pub const SPLIT_NO: &str = "split.no";
/// How many files a split model has.
pub const SPLIT_COUNT: &str = "split.count";
/// How many tensors all of them have together.
pub const SPLIT_TENSORS: &str = "split.tensors.count";

/// The bytes of a whole model: one file mapped, or several joined in memory.
#[derive(Debug)]
pub enum ModelBytes {
    /// One file.
    Mapped(MappedFile),
    /// Several, copied into one. What happens to the files afterwards does not matter.
    Joined(Vec<u8>),
}

impl AsRef<[u8]> for ModelBytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map.as_ref(),
            Self::Joined(bytes) => bytes,
        }
    }
}

impl GgufFile<ModelBytes> {
    /// Maps a file; if it is part of a split model, whichever, joins all of its files in memory.
    ///
    /// The condition of [`GgufFile::open`] holds for a file that is mapped.
    ///
    /// # Errors
    /// [`GgufError::InFile`] with what is wrong: [`GgufError::SplitName`], [`GgufError::SplitPart`],
    /// [`GgufError::SplitTensors`] for files that do not belong together, [`GgufError::SplitMissing`], and those of [`GgufFile::open`].
    pub fn open_model(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        let file = GgufFile::<MappedFile>::open(path)?;
        let bytes = match count(file.metadata()).map_err(|error| error.in_file(path))? {
            None | Some(0 | 1) => ModelBytes::Mapped(file.into_owner()),
            Some(count) => {
                drop(file);
                ModelBytes::Joined(join(path, count)?)
            }
        };
        Self::from_owner(bytes).map_err(|error| error.in_file(path))
    }
}

fn count(metadata: Metadata<'_>) -> Result<Option<u32>, GgufError> {
    metadata.u32(SPLIT_COUNT)
}

/// The path of one file of a split model; `index` counts from zero, `stem` is the path without ending.
pub fn split_path(stem: &Path, index: u32, count: u32) -> PathBuf {
    let mut name = stem.file_name().unwrap_or_default().to_owned();
    name.push(suffix(index, count));
    stem.with_file_name(name)
}

fn suffix(index: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", u64::from(index) + 1)
}

/// Reads all files of the model that `path` is one of.
fn join(path: &Path, count: u32) -> Result<Vec<u8>, GgufError> {
    let part = GgufFile::<MappedFile>::open(path)?;
    let index = part.metadata().u32(SPLIT_NO).map_err(|error| error.in_file(path))?.unwrap_or(0);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let suffix = suffix(index, count);
    let stem = name.strip_suffix(&suffix).ok_or_else(|| GgufError::SplitName { suffix }.in_file(path))?;
    let stem = path.with_file_name(stem);

    let mut writer = GgufWriter::new();
    let mut parts = Vec::new();
    let mut tensors = 0;
    let mut promised = None;
    for index in 0..count {
        let path = split_path(&stem, index, count);
        let fail = |error: GgufError| error.in_file(&path);
        let part = GgufFile::<MappedFile>::open(&path).map_err(|error| match error.kind() {
            GgufError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
                GgufError::SplitMissing { number: index + 1, count }.in_file(&path)
            }
            _ => error,
        })?;
        let metadata = part.metadata();
        let found = (metadata.u32(SPLIT_NO).map_err(fail)?, metadata.u32(SPLIT_COUNT).map_err(fail)?);
        if found != (Some(index), Some(count)) {
            return Err(fail(GgufError::SplitPart { expected: (index, count), found }));
        }
        if index == 0 {
            promised = metadata.u64(SPLIT_TENSORS).map_err(fail)?;
            for key in metadata.keys().filter(|key| !key.starts_with("split.")) {
                let Some(value) = metadata.value(key) else { continue };
                writer.metadata(key, value.into_owned()).map_err(fail)?;
            }
        }
        for tensor in part.tensors() {
            writer.copy_of(tensor).map_err(fail)?;
        }
        tensors += part.tensors().len() as u64;
        parts.push((path, part));
    }
    if let Some(expected) = promised.filter(|promised| *promised != tensors) {
        return Err(GgufError::SplitTensors { expected, found: tensors }.in_file(path));
    }
    let mut joined = writer.write_to(Vec::new())?;
    for (path, part) in parts {
        for tensor in part.tensors() {
            let data = part.raw_data(tensor).map_err(|error| error.in_file(&path))?;
            joined.write(tensor.name(), data)?;
        }
    }
    joined.finish()
}
