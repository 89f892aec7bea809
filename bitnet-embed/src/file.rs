//! Reading small files whole, without trusting what a path leads to.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The inner error of [`io::ErrorKind::FileTooLarge`].
#[derive(Debug, thiserror::Error)]
#[error("it is longer than {limit} bytes, which is the limit")]
struct TooLong {
    limit: u64,
}

/// The bytes of a regular file of at most `limit` bytes.
///
/// # Errors
/// Those of the operating system; [`io::ErrorKind::InvalidInput`] for what is no regular file, for a pipe may never end
/// and `/dev/zero` does not; [`io::ErrorKind::FileTooLarge`]. None of them names the path: the caller's error does.
pub(crate) fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Asked before opening: to open a pipe would wait for its writer.
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        let problem = format!("it is {}, not a regular file; give the file itself", kind_of(&metadata));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, TooLong { limit });
    if metadata.len() > limit {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(metadata.len()).map_err(|_| too_long())?)?;
    // One byte more than allowed: a file may be longer than its directory entry says.
    File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_long()) } else { Ok(bytes) }
}

/// What is there instead of a regular file.
pub(crate) fn kind_of(metadata: &fs::Metadata) -> &'static str {
    if metadata.is_dir() { "a folder" } else { "a device or pipe" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_up_to_the_limit_and_not_beyond() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read_regular(&path, 5).unwrap(), b"12345");
        let error = read_regular(&path, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it is longer than 4 bytes, which is the limit");
        assert_eq!(read_regular(&folder.path().join("absent"), 5).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read_regular(folder.path(), 5).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_without_a_true_length_are_refused_or_cut_off() {
        assert_eq!(read_regular(Path::new("/dev/zero"), 5).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // Its directory entry says that it is empty.
        let error = read_regular(Path::new("/proc/self/status"), 5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
