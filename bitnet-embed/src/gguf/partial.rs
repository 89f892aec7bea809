//! A file that appears at its path only when it is complete.
//!
//! The data goes to `.<name>.partial` in the same folder, which is renamed over the path at the end. The name is fixed on
//! purpose: a process that is killed leaves one file that says what it is, and the next run for the same path takes it
//! over. A lock on it, which the system drops with the process, tells a file being written from one left behind.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::GgufError;

/// A file being written: see the module.
#[derive(Debug)]
pub(super) struct PartialFile {
    /// `None` once the file is in its place.
    file: Option<File>,
    partial: PathBuf,
    path: PathBuf,
}

impl PartialFile {
    /// Starts, or takes over what a killed process left.
    pub(super) fn create(path: &Path) -> Result<Self, GgufError> {
        let partial = partial_path(path)?;
        if let Some(found) = no_file(path) {
            return Err(GgufError::OutputKind { found });
        }
        if let Some(found) = no_file(&partial) {
            return Err(GgufError::Partial { partial, problem: format!("where there is {found}") });
        }
        loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                // Not before it is locked: another process may be writing it.
                .truncate(false)
                .open(&partial)
                .map_err(|source| cannot_create(&partial, source))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(GgufError::Busy { partial }),
                // Some network file systems have no locks; the rename is atomic there as well.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => return Err(GgufError::io("lock")(error)),
            }
            // Its writer may have renamed or removed it between opening and locking: then this is not the file of that
            // name any more, and to write into it would be to write into the finished one.
            if is_still(&file, &partial) {
                if has_other_names(&file) {
                    let problem = "which is another name (a hard link) of some file".to_owned();
                    return Err(GgufError::Partial { partial, problem });
                }
                file.set_len(0).map_err(GgufError::io("create"))?;
                // Before there are data in it that the older file's owner let no one else read.
                take_permissions(&file, path, OWNER)?;
                return Ok(Self { file: Some(file), partial, path: path.to_owned() });
            }
        }
    }

    pub(super) fn partial(&self) -> &Path {
        &self.partial
    }

    /// Makes the data durable and puts the file in its place.
    pub(super) fn persist(mut self) -> Result<(), GgufError> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let place = || {
            take_permissions(&file, &self.path, 0)?;
            file.sync_all().map_err(GgufError::io("sync"))?;
            fs::rename(&self.partial, &self.path).map_err(GgufError::io("rename"))
        };
        if let Err(error) = place() {
            self.file = Some(file);
            return Err(error);
        }
        sync_folder(folder_of(&self.path)).map_err(GgufError::io("sync"))
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // Removed while it is still locked, so it is this file and no other's. What cannot be removed is taken over
            // by the next run.
            let _ = fs::remove_file(&self.partial);
            drop(file);
        }
    }
}

fn partial_path(path: &Path) -> Result<PathBuf, GgufError> {
    let Some(name) = path.file_name() else {
        return Err(GgufError::OutputKind { found: "a folder" });
    };
    let mut partial = std::ffi::OsString::from(".");
    partial.push(name);
    partial.push(".partial");
    Ok(path.with_file_name(partial))
}

/// Whoever takes over a partial file must be able to open it, whatever may be done with the file it replaces.
const OWNER: u32 = 0o600;

/// Gives the file the permissions of the one it is to replace, if there is one, and those of `more`.
#[cfg(unix)]
fn take_permissions(file: &File, path: &Path, more: u32) -> Result<(), GgufError> {
    use std::os::unix::fs::PermissionsExt;
    let fail = || GgufError::io("set the permissions of");
    // Not the bits by which a program runs as its owner: they are no permissions, and no model is a program.
    let bits = |permissions: fs::Permissions| permissions.mode() & 0o777;
    let Ok(older) = fs::symlink_metadata(path) else { return Ok(()) };
    let wanted = bits(older.permissions()) | more;
    // Some file systems have the same permissions for all files and refuse to set any.
    if bits(file.metadata().map_err(fail())?.permissions()) == wanted {
        return Ok(());
    }
    file.set_permissions(fs::Permissions::from_mode(wanted)).map_err(fail())
}

/// There are no such bits.
#[cfg(not(unix))]
fn take_permissions(_: &File, _: &Path, _: u32) -> Result<(), GgufError> {
    Ok(())
}

/// What is there that is no file. Renaming would replace a symbolic link, a device or a pipe by a file, which is hardly what
/// was meant.
fn no_file(path: &Path) -> Option<&'static str> {
    match fs::symlink_metadata(path).ok()?.file_type() {
        kind if kind.is_file() => None,
        kind if kind.is_symlink() => Some("a symbolic link"),
        kind if kind.is_dir() => Some("a folder"),
        _ => Some("a device or pipe"),
    }
}

/// Whoever asked for `path` knows nothing of the partial file, so it is named where it is what is wrong: an obstacle, or a
/// name that is too long only because it is longer.
fn cannot_create(partial: &Path, source: io::Error) -> GgufError {
    if fs::symlink_metadata(partial).is_ok() || source.kind() == io::ErrorKind::InvalidFilename {
        GgufError::Partial { partial: partial.to_owned(), problem: format!("which cannot be written: {source}") }
    } else {
        GgufError::Io { operation: "create", source }
    }
}

#[cfg(unix)]
fn is_still(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// Whether what is written into the file would show under another name as well, as it would through a symbolic link.
#[cfg(unix)]
fn has_other_names(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|file| file.nlink() > 1)
}

/// Whoever can make such links elsewhere is not told apart from the owner.
#[cfg(not(unix))]
fn has_other_names(_: &File) -> bool {
    false
}

/// An open file cannot be renamed or removed by others there.
#[cfg(not(unix))]
fn is_still(_: &File, _: &Path) -> bool {
    true
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes a rename in the folder durable, where folders can be synced.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
