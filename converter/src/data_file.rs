//! The data of a GGUF file, read where its mapping would do as well: the pages of a mapping count as memory of the process,
//! up to the whole file, and what is read into a buffer does not.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bitnet_embed::gguf::{GgufFile, TensorInfo};

use crate::ConvertError;
use crate::checkpoint::CheckpointError;
use crate::outfile::same_file;

/// Bytes copied at a time.
const PIECE: usize = 1 << 22;

/// A file that is mapped as well.
pub(crate) struct DataFile {
    file: File,
    path: PathBuf,
}

impl DataFile {
    /// Opens a file in two ways. There is no second way where the two may not be the same file: one of them may be
    /// replaced meanwhile.
    pub(crate) fn beside<T, E>(path: &Path, open: impl FnOnce() -> Result<T, E>) -> Result<(T, Option<Self>), E> {
        let before = fs::metadata(path).ok();
        let opened = open()?;
        let file = File::open(path).ok().filter(|file| same_file(before.as_ref(), file.metadata().ok().as_ref()));
        Ok((opened, file.map(|file| Self { file, path: path.to_owned() })))
    }

    /// These bytes of the file.
    pub(crate) fn read(&self, range: Range<usize>) -> Result<Vec<u8>, CheckpointError> {
        let read = || -> io::Result<Vec<u8>> {
            // Allocated in proportion to bytes that were there when the header was checked.
            let mut bytes = vec![0; range.len()];
            (&self.file).seek(SeekFrom::Start(range.start as u64))?;
            (&self.file).read_exact(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|source| CheckpointError::Read { path: self.path.clone(), source })
    }
}

/// Passes the data of a tensor of any type to `out`, in pieces if `data` is there.
pub(crate) fn copy<B: AsRef<[u8]>>(
    input: &GgufFile<B>,
    data: Option<&DataFile>,
    tensor: &TensorInfo,
    out: &mut dyn FnMut(&[u8]) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    let (Some(data), Some(len)) = (data, tensor.byte_len()) else {
        return out(input.raw_data(tensor).map_err(ConvertError::Input)?);
    };
    let start = start_of(input, tensor);
    for piece in (0..len).step_by(PIECE) {
        out(&data.read(start + piece..start + len.min(piece + PIECE))?)?;
    }
    Ok(())
}

/// Where a tensor starts in its file: the header was checked, so this does not overflow.
pub(crate) fn start_of<B: AsRef<[u8]>>(input: &GgufFile<B>, tensor: &TensorInfo) -> usize {
    input.data_start() + tensor.offset() as usize
}
