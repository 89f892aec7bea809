//! Where a file may be written: checked before any work is done, in terms of the path that the user gave.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use bitnet_embed::gguf::GgufError;

use crate::ConvertError;

/// The path to write at: `path`, or what it links to. What is there, if anything, is a regular file.
///
/// # Errors
/// When something else is there, or there is no such folder.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, ConvertError> {
    let refuse = |found| Err(GgufError::OutputKind { found }.in_file(path).into());
    let ends_in_separator = path.as_os_str().as_encoded_bytes().last().is_some_and(|last| {
        // Every separator is ASCII.
        std::path::is_separator(char::from(*last))
    });
    if path.file_name().is_none() || (ends_in_separator && !path.is_file()) {
        return refuse("a folder");
    }
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::NotADirectory => {
            check_folder(path)?;
            return Ok(path.to_owned());
        }
        Err(source) => return Err(GgufError::Io { operation: "create", source }.in_file(path).into()),
    };
    let Ok(target) = fs::metadata(path) else { return refuse("a symbolic link to nothing") };
    match target.file_type() {
        kind if kind.is_dir() => refuse("a folder"),
        kind if !kind.is_file() => refuse("a device or pipe"),
        // Renaming over the link would leave the file it names as it was, which is not what was asked for.
        _ if there.is_symlink() => {
            path.canonicalize().map_err(|source| GgufError::Io { operation: "follow", source }.in_file(path).into())
        }
        _ => Ok(path.to_owned()),
    }
}

/// Refuses a path that has the name of one part of a split model, or is a link to such a file.
///
/// Readers find the parts of a model by their names alone: a whole model under such a name would replace a part of a set,
/// or be taken for one.
///
/// # Errors
/// When it does.
pub(crate) fn refuse_part_name(path: &Path) -> Result<(), ConvertError> {
    for named in [Some(path.to_owned()), path.canonicalize().ok()].into_iter().flatten() {
        if let Some(name) = named.file_name().filter(|name| is_part_name(&name.to_string_lossy())) {
            return Err(ConvertError::PartName { path: path.to_owned(), name: name.into() });
        }
    }
    Ok(())
}

/// `stem-00001-of-00003.gguf`, also where letters of either case name the same file.
fn is_part_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_suffix(".gguf").and_then(|name| name.rsplit_once("-of-")).is_some_and(|(rest, count)| {
        is_number(count) && rest.rsplit_once('-').is_some_and(|(_, number)| is_number(number))
    })
}

/// Whether the folder of `path` is there.
///
/// # Errors
/// When it is not, or is no folder.
pub(crate) fn check_folder(path: &Path) -> Result<(), ConvertError> {
    let folder = folder_of(path);
    if folder.is_dir() {
        return Ok(());
    }
    let problem = if folder.exists() { "is not a folder" } else { "does not exist" };
    Err(ConvertError::NoOutputFolder { path: path.to_owned(), folder: folder.to_owned(), problem })
}

/// Refuses an output that would destroy what is being read: one of `inputs`, or a file of the checkpoint in `dir`, of
/// which only GGUF files are replaced.
pub(crate) fn refuse_input<'a>(
    path: &Path,
    dir: Option<&Path>,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), ConvertError> {
    // The data go to the partial file first, which may be another name of an input as well.
    let partial = partial_of(path);
    let outputs: Vec<(&Path, PathBuf, Option<Metadata>)> = [Some(path), partial.as_deref()]
        .into_iter()
        .flatten()
        .filter_map(|output| Some((output, output.canonicalize().ok()?, fs::metadata(output).ok())))
        .collect();
    if outputs.is_empty() {
        return Ok(());
    }
    for input in inputs {
        let Ok(canonical) = input.canonicalize() else { continue };
        let metadata = fs::metadata(input).ok();
        for (output, resolved, found) in &outputs {
            if *resolved == canonical || same_file(found.as_ref(), metadata.as_ref()) {
                return Err(ConvertError::OutputIsInput { path: (*output).to_owned() });
            }
        }
    }
    let Some(dir) = dir.and_then(|dir| dir.canonicalize().ok()) else { return Ok(()) };
    let Ok(resolved) = path.canonicalize() else { return Ok(()) };
    let inside = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(&dir));
    let is_gguf = |path: &Path| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
    if (inside(path) || inside(folder_of(path))) && !(is_gguf(path) && is_gguf(&resolved)) {
        return Err(ConvertError::OutputInCheckpoint { path: path.to_owned() });
    }
    Ok(())
}

/// As the writer of GGUF files names it.
fn partial_of(path: &Path) -> Option<PathBuf> {
    let mut partial = std::ffi::OsString::from(".");
    partial.push(path.file_name()?);
    partial.push(".partial");
    Some(path.with_file_name(partial))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Hard links and second mounts have paths of their own.
#[cfg(unix)]
pub(crate) fn same_file(a: Option<&Metadata>, b: Option<&Metadata>) -> bool {
    use std::os::unix::fs::MetadataExt;
    a.zip(b).is_some_and(|(a, b)| (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// Paths have to do.
#[cfg(not(unix))]
pub(crate) fn same_file(_: Option<&Metadata>, _: Option<&Metadata>) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::is_part_name;

    #[test]
    fn names_of_parts_are_told_from_others() {
        for name in
            ["m-00001-of-00002.gguf", "-00001-of-00002.gguf", "a-b-100000-of-100000.gguf", "M-00001-OF-00002.GGUF"]
        {
            assert!(is_part_name(name), "{name}");
        }
        for name in ["m.gguf", "m-1-of-2.gguf", "m-00001-of-00002", "m-0000x-of-00002.gguf", "00001-of-00002.gguf"] {
            assert!(!is_part_name(name), "{name}");
        }
    }
}
