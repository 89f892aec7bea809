//! A model in several files: written, read by any of them, and refused when they do not belong together.

mod common;

use std::path::{Path, PathBuf};

use bitnet_embed::gguf::{GgufError, GgufFile, OwnedValue};
use common::{Converted, Parts, checkpoint, run};

const BITNET: &str = "gemma3-bitnet";

/// The model in files of at most 100 kB, which its table alone exceeds.
fn split() -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = checkpoint(BITNET);
    let mut options = converter::ConvertOptions::new(dir, converter::Outtype::I2S);
    options.outfile = Some(folder.path().join("model.gguf"));
    options.split_max_size = Some(20_000);
    let report = converter::convert(&options, &mut ()).expect("converted");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert_eq!((&report.outfile, report.files), (&paths[0], paths.len()));
    let larger =
        |note: &&String| note.contains("larger than --split-max-size, token_embd.weight with 0.2 MB most of all");
    assert_eq!(report.notes.iter().filter(larger).count(), 1, "{:?}", report.notes);
    (folder, paths)
}

fn kind(path: &Path) -> GgufError {
    let GgufError::InFile { error, .. } = GgufFile::open_model(path).map(drop).expect_err("refused") else {
        panic!("no file is named")
    };
    *error
}

#[test]
fn every_part_leads_to_the_whole_model() {
    let (folder, paths) = split();
    let count = paths.len();
    assert!(count > 3);
    let whole = Converted::new(BITNET, &["--outtype", "i2_s"]);
    let whole = Parts::read(&whole.path);
    for (index, path) in paths.iter().enumerate() {
        let name = format!("model-{:05}-of-{count:05}.gguf", index + 1);
        assert_eq!(path.file_name().expect("a name").to_str(), Some(&*name));
        let part = GgufFile::read(path).expect("a valid file");
        assert_eq!(part.metadata().u32("split.no").expect("a number"), Some(index as u32));
        let bytes: usize = part.tensors().iter().map(|tensor| tensor.byte_len().expect("a size")).sum();
        assert!(bytes <= 20_000 || part.tensors().len() == 1, "{bytes}");
        let joined = GgufFile::open_model(path).expect("all files are there");
        std::fs::write(folder.path().join("joined"), joined.into_owner()).expect("written");
        let joined = Parts::read(&folder.path().join("joined"));
        assert_eq!((joined.metadata, joined.tensors), (whole.metadata.clone(), whole.tensors.clone()));
    }
    let path = paths[1].to_str().expect("UTF-8");
    let dir = checkpoint(BITNET);
    run(["verify", path, dir.to_str().expect("UTF-8"), "--no-embeddings"], 0);
    let out = folder.path().join("out.gguf");
    run(["convert", path, "--outtype", "i2_s", "--outfile", out.to_str().expect("UTF-8")], 0);
    assert_eq!(Parts::read(&out).tensors, whole.tensors);
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let (_folder, paths) = split();
    // Under another name the others cannot be found.
    let renamed = paths[0].with_file_name("renamed.gguf");
    std::fs::copy(&paths[0], &renamed).expect("a copy");
    assert!(matches!(kind(&renamed), GgufError::SplitName { .. }));
    // Another part under its name.
    let second = std::fs::read(&paths[1]).expect("a file");
    std::fs::copy(&paths[2], &paths[1]).expect("a copy");
    assert!(matches!(kind(&paths[0]), GgufError::SplitPart { expected: (1, _), found: (Some(2), _) }));
    // A tensor less than promised.
    std::fs::write(&paths[1], &second).expect("written");
    let mut parts = Parts::read(&paths[1]);
    parts.tensors.pop();
    parts.write(&paths[1]);
    assert!(matches!(kind(&paths[0]), GgufError::SplitTensors { .. }));
    // The same tensor twice.
    let first = Parts::read(&paths[0]).tensors.remove(0);
    parts.tensors.push(first);
    parts.write(&paths[1]);
    assert!(matches!(kind(&paths[0]), GgufError::DuplicateTensor { .. }));
    // A count that no folder holds.
    *parts.value("split.count") = OwnedValue::U32(u32::MAX);
    parts.write(&paths[1]);
    assert!(matches!(kind(&paths[1]), GgufError::SplitName { .. }));
    std::fs::remove_file(&paths[1]).expect("a file");
    assert!(matches!(kind(&paths[0]), GgufError::SplitMissing { number: 2, .. }));
}

#[test]
fn a_part_is_described_as_one_and_not_edited() {
    let (folder, paths) = split();
    let path = paths[0].to_str().expect("UTF-8");
    let (stdout, _) = run(["inspect", path], 0);
    assert!(stdout.contains(&format!("one of {} parts", paths.len())), "{stdout}");
    let out = folder.path().join("out.gguf");
    let (_, stderr) = run(["edit", path, "--set", "general.name=x", "-o", out.to_str().expect("UTF-8")], 2);
    assert!(stderr.contains("parts of a split model"), "{stderr}");
    assert!(!out.exists());
}

#[test]
fn sizes_are_checked_and_one_file_that_suffices_has_its_plain_name() {
    let dir = checkpoint(BITNET);
    let dir = dir.to_str().expect("UTF-8");
    for size in ["", "5", "M", "0M", "-1G", "99999999999999999999M", "1T"] {
        let (_, stderr) = run([dir, "--outtype", "i2_s", &format!("--split-max-size={size}")], 2);
        assert!(stderr.contains("--split-max-size"), "{stderr}");
    }
    let split = Converted::new(BITNET, &["--outtype", "i2_s", "--split-max-size", "1G"]);
    let whole = Converted::new(BITNET, &["--outtype", "i2_s"]);
    assert_eq!(std::fs::read(&split.path).expect("a file"), std::fs::read(&whole.path).expect("a file"));
}
