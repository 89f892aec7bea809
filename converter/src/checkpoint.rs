//! A Hugging Face checkpoint folder: which files hold tensors, and which tensors they hold.
//!
//! Nothing here trusts a file: a safetensors header is at most [`MAX_HEADER_BYTES`] long, every offset is checked
//! against the file's size before it is used, and tensors are read in pieces, so a hostile header costs no memory.
//! Files are read, not mapped: a file that shrinks meanwhile is an error instead of a crash, and what has been
//! converted does not stay in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};

use bitnet_embed::json::{parse, unique};
use serde::Deserialize;

pub use crate::checkpoint_error::CheckpointError;
use crate::header::read_header;

/// The longest safetensors header that is read. The format's own implementation has the same limit.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The longest JSON file (tokenizer, index, config) that is read.
pub const MAX_JSON_BYTES: u64 = 512 << 20;

pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";
pub(crate) const SINGLE_FILE: &str = "model.safetensors";

/// How a checkpoint stores the values of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 64-bit float.
    F64,
    /// 32-bit float.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
    /// Anything else, by safetensors' name: can be listed and skipped, not converted.
    Other(String),
}

impl Dtype {
    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "F64" => Self::F64,
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::BF16,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Bytes of one value; `None` for a type that is not converted.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::F64 => Some(8),
            Self::F32 => Some(4),
            Self::F16 | Self::BF16 => Some(2),
            Self::Other(_) => None,
        }
    }

    /// safetensors' name of the type.
    pub fn name(&self) -> &str {
        match self {
            Self::F64 => "F64",
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Other(name) => name,
        }
    }
}

/// One tensor of a checkpoint.
#[derive(Clone, Debug)]
pub struct TensorEntry {
    /// Name in the checkpoint, such as `model.layers.0.mlp.up_proj.weight`.
    pub name: String,
    /// How its values are stored.
    pub dtype: Dtype,
    /// Dimensions, slowest first: `[out_features, in_features]` for a projection.
    pub shape: Vec<usize>,
    /// Which of the checkpoint's files it is in.
    pub(crate) shard: usize,
    /// Where in that file its data starts, in bytes.
    pub(crate) offset: u64,
}

impl TensorEntry {
    /// Number of values. The product was checked when the header was read.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

struct Shard {
    path: PathBuf,
    file: File,
}

/// The tensor files of a folder, their headers read and checked.
pub struct Checkpoint {
    shards: Vec<Shard>,
    tensors: Vec<TensorEntry>,
    index: Option<PathBuf>,
    ignored: Vec<PathBuf>,
}

impl Checkpoint {
    /// Reads the headers of a folder's tensor files.
    ///
    /// With a `model.safetensors.index.json` the files are those it lists, and whatever else lies in the folder
    /// (adapters, optimizer states) is not looked at; else `model.safetensors`; else every `*.safetensors`.
    /// Tensors are ordered by file name, then by their own name.
    ///
    /// # Errors
    /// When a file is missing, damaged, or disagrees with the index.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        let index_path = dir.join(INDEX_FILE);
        let single = dir.join(SINGLE_FILE);
        let mut ignored = Vec::new();
        let (paths, index) = if is_there(&index_path) {
            let index = read_index(&index_path)?;
            (index.keys().map(|file| dir.join(file)).collect(), Some(index))
        } else if is_there(&single) {
            (vec![single], None)
        } else {
            (list_safetensors(dir, &mut ignored)?, None)
        };
        if paths.is_empty() {
            return Err(match pickled(dir) {
                Some(path) => CheckpointError::Pickled { path },
                None => CheckpointError::NoWeights { dir: dir.to_owned() },
            });
        }

        let mut checkpoint =
            Self { shards: Vec::new(), tensors: Vec::new(), index: index.is_some().then_some(index_path), ignored };
        for path in paths {
            checkpoint.add_shard(path)?;
        }
        checkpoint.refuse_duplicates()?;
        if let Some(index) = index {
            checkpoint.check_against(index.values())?;
        }
        Ok(checkpoint)
    }

    /// The tensors, ordered by file name, then by name.
    pub fn tensors(&self) -> &[TensorEntry] {
        &self.tensors
    }

    /// Every file this checkpoint consists of.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path.as_path()).chain(self.index.as_deref())
    }

    /// Tensor files of the folder that are not the model's, by their names.
    pub fn ignored(&self) -> &[PathBuf] {
        &self.ignored
    }

    /// The file a tensor is in.
    pub fn file_of(&self, tensor: &TensorEntry) -> &Path {
        &self.shards[tensor.shard].path
    }

    /// Reads `bytes.len()` bytes of a tensor, starting `start` bytes into it.
    ///
    /// # Errors
    /// When the file no longer holds them.
    pub fn read_at(&self, tensor: &TensorEntry, start: u64, bytes: &mut [u8]) -> Result<(), CheckpointError> {
        let shard = &self.shards[tensor.shard];
        let mut file = &shard.file;
        file.seek(SeekFrom::Start(tensor.offset.saturating_add(start)))
            .and_then(|_| file.read_exact(bytes))
            .map_err(|source| CheckpointError::Read { path: shard.path.clone(), source })
    }

    fn add_shard(&mut self, path: PathBuf) -> Result<(), CheckpointError> {
        let file = match open_regular(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_there(&path) => {
                return Err(CheckpointError::MissingShard { path });
            }
            Err(source) => return Err(cannot_read(&path, source)),
            Ok(file) => file,
        };
        let shard = self.shards.len();
        self.tensors.extend(read_header(&file, &path, shard)?);
        self.shards.push(Shard { path, file });
        Ok(())
    }

    fn refuse_duplicates(&self) -> Result<(), CheckpointError> {
        let mut seen = HashMap::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            if let Some(first) = seen.insert(tensor.name.as_str(), tensor) {
                return Err(CheckpointError::Duplicate {
                    tensor: tensor.name.clone(),
                    first: self.file_of(first).to_owned(),
                    second: self.file_of(tensor).to_owned(),
                });
            }
        }
        Ok(())
    }

    /// `listed` has one set of tensor names per shard, in the order of the shards.
    fn check_against<'a>(&self, listed: impl Iterator<Item = &'a BTreeSet<String>>) -> Result<(), CheckpointError> {
        for (shard, listed) in listed.enumerate() {
            let path = || self.shards[shard].path.clone();
            let found: BTreeSet<&str> =
                self.tensors.iter().filter(|t| t.shard == shard).map(|t| t.name.as_str()).collect();
            if let Some(tensor) = listed.iter().find(|name| !found.contains(name.as_str())) {
                return Err(CheckpointError::IndexTensorAbsent { path: path(), tensor: tensor.clone() });
            }
            if let Some(tensor) = found.iter().find(|name| !listed.contains(**name)) {
                return Err(CheckpointError::NotInIndex { path: path(), tensor: (*tensor).to_owned() });
            }
        }
        Ok(())
    }
}

/// Whether anything has that name; a link to nothing does, and is an error once it is opened.
fn is_there(path: &Path) -> bool {
    !std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn cannot_read(path: &Path, source: io::Error) -> CheckpointError {
    let path = path.to_owned();
    match std::fs::read_link(&path) {
        Ok(target) if source.kind() == io::ErrorKind::NotFound => CheckpointError::DanglingLink { path, target },
        _ => CheckpointError::Read { path, source },
    }
}

/// Opens a file that has a length: a pipe would block, or end where it likes.
fn open_regular(path: &Path) -> io::Result<File> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_file() {
        return File::open(path);
    }
    let found = if metadata.is_dir() { "a folder" } else { "a device or pipe" };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {found}, not a regular file")))
}

/// Reads a whole JSON file, if it is no longer than [`MAX_JSON_BYTES`].
///
/// # Errors
/// When it cannot be read or is too long.
pub fn read_json_bytes(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    let fail = |source| CheckpointError::Read { path: path.to_owned(), source };
    let file = open_regular(path).map_err(|source| cannot_read(path, source))?;
    let mut bytes = Vec::new();
    // One byte more than allowed: a file may be longer than its directory entry says.
    let found = file.take(MAX_JSON_BYTES + 1).read_to_end(&mut bytes).map_err(fail)? as u64;
    if found > MAX_JSON_BYTES {
        return Err(CheckpointError::TooLong { path: path.to_owned(), found, limit: MAX_JSON_BYTES });
    }
    Ok(bytes)
}

/// As [`read_json_bytes`]; `None` if there is no such file.
///
/// # Errors
/// Those of [`read_json_bytes`], less that one.
pub fn read_json_bytes_if_there(path: &Path) -> Result<Option<Vec<u8>>, CheckpointError> {
    match read_json_bytes(path) {
        Err(CheckpointError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Names of what training leaves beside a model: adapters, states of the optimizer and of the schedule.
const NOT_THE_MODEL: [&str; 4] = ["adapter", "optimizer", "scheduler", "rng_state"];

fn list_safetensors(dir: &Path, ignored: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>, CheckpointError> {
    let fail = |source| CheckpointError::Read { path: dir.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            let foreign = NOT_THE_MODEL.iter().any(|prefix| name.starts_with(prefix));
            if foreign { ignored.push(path) } else { paths.push(path) }
        }
    }
    paths.sort();
    ignored.sort();
    Ok(paths)
}

/// A file that is likely to be PyTorch's form of the model.
fn pickled(dir: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_model = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ending =
            path.extension().is_some_and(|ending| ["bin", "pt", "pth", "ckpt"].iter().any(|known| ending == *known));
        ending && !NOT_THE_MODEL.iter().chain(&["training_args"]).any(|prefix| name.starts_with(prefix))
    };
    entries.filter(is_model).min()
}

/// Which tensors each file should hold, by the index.
fn read_index(path: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, CheckpointError> {
    #[derive(Deserialize)]
    #[serde(expecting = "an object with a weight_map")]
    struct IndexFile {
        #[serde(deserialize_with = "unique")]
        weight_map: BTreeMap<String, String>,
    }
    let index: IndexFile = parse(&read_json_bytes(path)?).map_err(|source| CheckpointError::Json {
        path: path.to_owned(),
        what: "the index",
        source,
    })?;
    let mut files = BTreeMap::<String, BTreeSet<String>>::new();
    for (tensor, file) in index.weight_map {
        let mut parts = Path::new(&file).components().peekable();
        let inside = parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)));
        // A backslash separates folders on Windows only; refused everywhere, so that a folder means the same.
        if !inside || file.contains('\\') {
            return Err(CheckpointError::IndexLeavesFolder { path: path.to_owned(), tensor, file });
        }
        files.entry(file).or_default().insert(tensor);
    }
    if files.is_empty() {
        return Err(CheckpointError::IndexEmpty { path: path.to_owned() });
    }
    Ok(files)
}
