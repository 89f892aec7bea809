//! A model written as one file, or as several that each hold some of the tensors.
//!
//! The files appear together at the end, the first one last: a reader that finds the first one finds them all.

use std::path::{Path, PathBuf};

use bitnet_embed::gguf::{FileWriter, GgufError, GgufWriter, SPLIT_COUNT, SPLIT_NO, SPLIT_TENSORS, split_path};
use burn_i2s::ggml::GgmlType;

use crate::ConvertError;
use crate::interrupt::{self, Registered};
use crate::metadata::Entries;

/// One file to be written.
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    writer: GgufWriter,
}

/// Distributes tensors, in order, over files with at most `max_size` bytes of them; one larger than that has a file of
/// its own.
pub(crate) fn plan(
    outfile: &Path,
    max_size: Option<u64>,
    entries: Entries,
    tensors: &[(&str, GgmlType, &[usize])],
) -> Result<Vec<Part>, GgufError> {
    // Where each file's tensors start.
    let mut starts = vec![0];
    let mut filled = 0_u64;
    for (index, (_, ty, shape)) in tensors.iter().enumerate() {
        // A tensor too large to be counted is refused below, by the writer.
        let bytes = ty.tensor_bytes(shape.iter().product()).unwrap_or(usize::MAX) as u64;
        if filled > 0 && max_size.is_some_and(|max| filled.saturating_add(bytes) > max) {
            starts.push(index);
            filled = 0;
        }
        filled = filled.saturating_add(bytes);
    }
    let count = u16::try_from(starts.len()).map_err(|_| GgufError::Limit {
        part: bitnet_embed::gguf::Part::Header,
        what: "the number of files",
        found: starts.len() as u64,
        limit: usize::from(u16::MAX),
    })?;
    let stem = if outfile.extension().is_some_and(|ending| ending == "gguf") {
        outfile.with_extension("")
    } else {
        outfile.to_owned()
    };
    let mut entries = Some(entries);
    let mut parts = Vec::with_capacity(starts.len());
    let ends = starts.iter().skip(1).copied().chain([tensors.len()]);
    for (index, (&start, end)) in (0_u16..).zip(starts.iter().zip(ends)) {
        let mut writer = GgufWriter::new();
        for (key, value) in entries.take().unwrap_or_default() {
            writer.metadata(&key, value)?;
        }
        let path = if count > 1 {
            writer.metadata(SPLIT_NO, index)?;
            writer.metadata(SPLIT_COUNT, count)?;
            // At most 2^16 tensors: the writer refuses more.
            writer.metadata(SPLIT_TENSORS, i32::try_from(tensors.len()).unwrap_or(i32::MAX))?;
            split_path(&stem, index.into(), count.into())
        } else {
            outfile.to_owned()
        };
        for (name, ty, shape) in &tensors[start..end] {
            writer.tensor(name, *ty, shape)?;
        }
        parts.push(Part { path, writer });
    }
    Ok(parts)
}

/// What is said of tensors that make a file larger than was asked for.
pub(crate) fn oversize_note(max_size: u64, tensors: &[(&str, GgmlType, &[usize])]) -> Option<String> {
    let sizes = tensors.iter().filter_map(|(name, ty, shape)| {
        let bytes = ty.tensor_bytes(shape.iter().product())? as u64;
        (bytes > max_size).then_some((*name, bytes))
    });
    let (count, (name, bytes)) = (sizes.clone().count(), sizes.max_by_key(|(_, bytes)| *bytes)?);
    Some(format!(
        "{count} tensor(s) are larger than --split-max-size, {name} with {:.1} MB most of all: a tensor is not divided, so \
         each of them has a larger file of its own",
        bytes as f64 / 1e6
    ))
}

/// The files being written.
pub(crate) struct PartsWriter {
    parts: Vec<(FileWriter, Option<Registered>, PathBuf)>,
    /// The file being written.
    current: usize,
}

impl PartsWriter {
    /// Starts all files, if the set is not there already.
    ///
    /// Replaced one by one, the parts of two models would stand beside each other for a while, and of the older one
    /// nothing whole would be left by whoever is killed meanwhile. Parts without a first one are no model: what such a run
    /// leaves is replaced.
    pub(crate) fn create(parts: Vec<Part>) -> Result<Self, ConvertError> {
        let mut writers = Vec::with_capacity(parts.len());
        for Part { path, writer } in parts {
            let (file, registered) = interrupt::create(writer, &path)?;
            writers.push((file, registered, path));
        }
        // Not before the parts are locked: another process may just have finished the set.
        if let [(_, _, first), _, ..] = &writers[..]
            && first.symlink_metadata().is_ok()
        {
            return Err(ConvertError::SetExists { path: first.clone(), count: writers.len() });
        }
        Ok(Self { parts: writers, current: 0 })
    }

    /// Writes the next tensor, or the next piece of it.
    pub(crate) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), GgufError> {
        while self.current + 1 < self.parts.len() && self.parts[self.current].0.next().is_none() {
            self.current += 1;
        }
        self.parts[self.current].0.write(name, bytes)
    }

    /// Puts all files in their places, the first one last; returns their paths.
    pub(crate) fn finish(mut self) -> Result<Vec<PathBuf>, GgufError> {
        for (file, ..) in &mut self.parts {
            file.flush()?;
        }
        let mut paths = Vec::with_capacity(self.parts.len());
        for (file, _registered, path) in self.parts.into_iter().rev() {
            file.finish()?;
            paths.push(path);
        }
        paths.reverse();
        Ok(paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENSORS: [(&str, GgmlType, &[usize]); 3] =
        [("a", GgmlType::F32, &[4]), ("b", GgmlType::F32, &[4]), ("c", GgmlType::F32, &[4])];

    fn three_parts(folder: &Path) -> Vec<Part> {
        plan(&folder.join("m.gguf"), Some(16), Entries::default(), &TENSORS).expect("three files")
    }

    #[test]
    fn tensors_larger_than_a_file_should_be_are_named() {
        assert_eq!(oversize_note(16, &TENSORS), None);
        let larger: [(&str, GgmlType, &[usize]); 3] = [TENSORS[0], ("large", GgmlType::F16, &[1000, 1000]), TENSORS[1]];
        let note = oversize_note(16, &larger).expect("one is larger");
        assert!(note.contains("1 tensor(s)") && note.contains("large with 2.0 MB"), "{note}");
    }

    #[test]
    fn a_set_that_is_there_is_not_touched_and_the_rest_of_one_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths: Vec<PathBuf> = three_parts(folder.path()).iter().map(|part| part.path.clone()).collect();
        for path in &paths {
            std::fs::write(path, "of another model").expect("written");
        }
        let error = PartsWriter::create(three_parts(folder.path())).err().expect("refused").to_string();
        assert!(error.contains("m-00001-of-00003.gguf: ") && error.contains("remove it"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 3, "no partial files");
        assert!(paths.iter().all(|path| std::fs::read(path).expect("still there") == b"of another model"));

        std::fs::remove_file(&paths[0]).expect("removed");
        let mut writer = PartsWriter::create(three_parts(folder.path())).expect("started");
        for (name, ..) in TENSORS {
            writer.write(name, &[0; 16]).expect("written");
        }
        assert_eq!(writer.finish().expect("in place"), paths);
        bitnet_embed::gguf::GgufFile::open_model(&paths[2]).expect("a whole model");
    }

    #[test]
    fn a_set_that_is_placed_halfway_has_no_first_part() {
        let folder = tempfile::tempdir().expect("a folder");
        let parts = three_parts(folder.path());
        let paths: Vec<PathBuf> = parts.iter().map(|part| part.path.clone()).collect();
        let mut writer = PartsWriter::create(parts).expect("started");
        for (name, ..) in TENSORS {
            writer.write(name, &[0; 16]).expect("written");
        }
        // What is in the way of the second file stops the conversion between the third and the second.
        std::fs::create_dir_all(paths[1].join("x")).expect("a folder");
        writer.finish().expect_err("the second file has no place");
        assert!(paths[2].exists() && !paths[0].exists());
    }
}
