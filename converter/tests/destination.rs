//! Where output may go, and what is said when it cannot: nothing that is no GGUF file is replaced, and the path reaches
//! whoever asked for it.
#![cfg(unix)]

mod common;

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use bitnet_embed::gguf::GgufFile;
use common::{Converted, Copy, checkpoint, converter, program, run};
use serde_json::json;

const F16: &[&str] = &["--outtype", "f16"];

/// Runs the program, which must refuse that output in one line with all of `parts` that names no temporary file.
fn assert_not_written(dir: &Path, outfile: &Path, parts: &[&str]) {
    let output = converter(dir, F16).arg("--outfile").arg(outfile).output().expect("the program runs");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(5), "{}: {stderr}", outfile.display());
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(!stderr.contains(".partial"), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "no {part:?} in: {stderr}");
    }
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

#[test]
fn what_is_no_file_is_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    pipe(&at("pipe.gguf"));
    symlink("/dev/null", at("device.gguf")).expect("a link");
    symlink(folder.path(), at("folder.gguf")).expect("a link");
    symlink("nowhere", at("dangling.gguf")).expect("a link");
    symlink("loop.gguf", at("loop.gguf")).expect("a link");
    fs::write(at("file"), "x").expect("a file");
    // A folder that is no checkpoint: only the output can be what is refused.
    let empty = tempfile::tempdir().expect("a folder");
    for (outfile, parts) in [
        (Path::new("/dev/null").to_owned(), ["/dev/null: ", "a device or pipe"]),
        (at("pipe.gguf"), ["pipe.gguf: ", "a device or pipe"]),
        (at("device.gguf"), ["device.gguf: ", "a device or pipe"]),
        (at("folder.gguf"), ["folder.gguf: ", "a folder"]),
        (folder.path().to_owned(), ["a folder", "where the file should go"]),
        (at("new/"), ["new", "a folder"]),
        (at("dangling.gguf"), ["dangling.gguf: ", "a symbolic link to nothing"]),
        (at("loop.gguf"), ["loop.gguf: ", "a symbolic link to nothing"]),
        (at("missing/out.gguf"), ["missing/out.gguf: ", "missing does not exist"]),
        (at("file/out.gguf"), ["file/out.gguf: ", "file is not a folder"]),
    ] {
        assert_not_written(empty.path(), &outfile, &parts);
    }
    assert!(fs::symlink_metadata(at("pipe.gguf")).expect("still there").file_type().is_fifo());
    assert!(fs::symlink_metadata("/dev/null").expect("still there").file_type().is_char_device());
}

#[test]
fn every_command_refuses_them() {
    let converted = Converted::new("qwen3-std", F16);
    let file = converted.path.to_str().expect("UTF-8");
    let pipe_path = converted.folder.path().join("pipe");
    pipe(&pipe_path);
    let pipe_text = pipe_path.to_str().expect("UTF-8");
    for args in [
        vec!["convert", file, "--outtype", "f32", "--outfile"],
        vec!["edit", file, "--set", "general.name=x", "--outfile"],
        vec!["dummy", "--arch", "custom", "--outtype", "f16", "--outfile"],
    ] {
        let (_, stderr) = run([&args[..], &[pipe_text]].concat(), 5);
        assert!(stderr.contains("a device or pipe"), "{stderr}");
    }
    assert!(fs::symlink_metadata(&pipe_path).expect("still there").file_type().is_fifo());
}

#[test]
fn a_link_to_a_file_is_followed() {
    let copy = Copy::of("qwen3-std");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let target = elsewhere.path().join("target.gguf");
    fs::write(&target, "older file").expect("a file");
    let link = copy.dir.join("link.gguf");
    symlink(&target, &link).expect("a link");
    let output = converter(&copy.dir, F16).arg("--outfile").arg(&link).output().expect("the program runs");
    assert!(output.status.success());
    // The path is the one that was asked for.
    assert_eq!(output.stdout, format!("{}\n", link.display()).as_bytes());
    assert!(fs::symlink_metadata(&link).expect("still there").is_symlink());
    GgufFile::read(&target).expect("a whole file").check_data().expect("valid data");
    let left: Vec<_> = fs::read_dir(elsewhere.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1, "no partial file: {left:?}");
}

#[test]
fn only_gguf_files_of_a_checkpoint_are_replaced() {
    let copy = Copy::of("qwen3-std");
    copy.write("notes.txt", "mine");
    fs::create_dir(copy.dir.join("onnx")).expect("a folder");
    copy.write("onnx/model.bin", "mine");
    for file in ["1_Pooling/config.json", "modules.json", "notes.txt", "onnx/model.bin", "model.safetensors"] {
        let before = copy.read(file);
        assert_not_written(&copy.dir, &copy.dir.join(file), &[file, "choose another output path"]);
        assert_eq!(copy.read(file), before);
    }
    // By other names: a link inside to a file outside, a link outside to a file inside, an input that lies outside.
    let outside = copy.output();
    fs::write(&outside, "mine").expect("a file");
    symlink(&outside, copy.dir.join("link.bin")).expect("a link");
    assert_not_written(&copy.dir, &copy.dir.join("link.bin"), &["link.bin", "choose another output path"]);
    fs::remove_file(&outside).expect("a file");
    symlink(copy.dir.join("notes.txt"), &outside).expect("a link");
    assert_not_written(&copy.dir, &outside, &["out.gguf", "choose another output path"]);
    fs::remove_file(&outside).expect("a file");
    fs::rename(copy.dir.join("1_Pooling/config.json"), &outside).expect("moved");
    symlink(&outside, copy.dir.join("1_Pooling/config.json")).expect("a link");
    assert_not_written(&copy.dir, &outside, &["out.gguf", "being read"]);

    copy.write("older.gguf", "older");
    converter(&copy.dir, F16).arg("--outfile").arg(copy.dir.join("older.gguf")).assert().success();
}

#[test]
fn a_partial_file_that_is_an_input_by_another_name_is_not_overwritten() {
    let copy = Copy::of("qwen3-std");
    let before = copy.read("model.safetensors");
    fs::hard_link(copy.dir.join("model.safetensors"), copy.dir.join(".x.gguf.partial")).expect("a link");
    let output = converter(&copy.dir, F16).arg("--outfile").arg(copy.dir.join("x.gguf")).output().expect("it runs");
    assert_eq!(output.status.code(), Some(5));
    assert!(copy.read("model.safetensors") == before);
}

#[test]
fn no_part_of_a_split_model_is_replaced_by_a_whole_one() {
    let converted = Converted::new("qwen3-std", F16);
    let path = |name: &str| converted.folder.path().join(name);
    let (first, second, link) = (path("z-00001-of-00002.gguf"), path("z-00002-of-00002.gguf"), path("link.gguf"));
    fs::write(&first, "a part").expect("a file");
    symlink(&first, &link).expect("a link");
    let (file, dir) = (converted.path.to_str().expect("UTF-8"), checkpoint("qwen3-std"));
    let dir = dir.to_str().expect("UTF-8");
    for args in [
        vec!["convert", dir, "--outtype", "f16", "--outfile"],
        vec!["convert", dir, "--outtype", "f16", "--split-max-size", "1M", "--outfile"],
        vec!["convert", file, "--outtype", "f32", "--outfile"],
        vec!["edit", file, "--set", "general.name=x", "-o"],
        vec!["dummy", "--arch", "custom", "--outtype", "f16", "--outfile"],
    ] {
        for outfile in [&first, &second, &link] {
            let (stdout, stderr) = run([&args[..], &[outfile.to_str().expect("UTF-8")]].concat(), 2);
            assert!(stdout.is_empty() && stderr.contains("is the name of one part of a split model"), "{stderr}");
            assert!(stderr.contains("z-0000") && stderr.contains("--split-max-size"), "{stderr}");
        }
    }
    assert_eq!(fs::read(&first).expect("still there"), b"a part");
    assert!(!second.exists());
}

#[test]
fn a_path_that_cannot_be_printed_is_an_error() {
    let copy = Copy::of("qwen3-std");
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let (reader, closed) = std::io::pipe().expect("a pipe");
    drop(reader);
    for stdout in [Stdio::from(closed)].into_iter().chain(full.ok().map(Stdio::from)) {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("converter"));
        command.arg(&copy.dir).args(F16).arg("--outfile").arg(copy.output());
        let child = command.stdout(stdout).stderr(Stdio::piped()).spawn().expect("the program runs");
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(5), "{stderr}");
        assert!(stderr.contains("out.gguf is written, but its path could not be printed"), "{stderr}");
        GgufFile::read(copy.output()).expect("a whole file");
    }
}

#[test]
fn a_number_of_threads_beyond_reason_is_cut() {
    let copy = Copy::of("qwen3-std");
    let mut command = converter(&copy.dir, F16);
    command.env("RAYON_NUM_THREADS", "100000").timeout(std::time::Duration::from_secs(60));
    command.arg("--outfile").arg(copy.output()).assert().success();
}

#[test]
fn long_names_are_shortened_in_messages_and_not_in_paths() {
    let folder = tempfile::tempdir().expect("a folder");
    let deep = folder.path().join("d".repeat(240)).join("e".repeat(240));
    fs::create_dir_all(&deep).expect("a folder");
    let (_, stderr) = run([deep.to_str().expect("UTF-8"), "--outtype", "f16"], 3);
    assert!(stderr.len() < 400 && stderr.contains(" more ...]") && stderr.contains("config.json"), "{stderr}");

    let outfile = deep.join("out.gguf");
    let output = converter(&checkpoint("qwen3-std"), F16).arg("--outfile").arg(&outfile).output().expect("it runs");
    assert_eq!(output.stdout, format!("{}\n", outfile.display()).as_bytes());

    let copy = Copy::of("qwen3-std");
    copy.edit_json("tokenizer.json", |tokenizer| tokenizer["model"]["vocab"]["y".repeat(5000)] = json!(5));
    let output = converter(&copy.dir, F16).arg("--outfile").arg(copy.output()).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stderr.len() < 1000, "{}", output.stderr.len());
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    let dummy = ["dummy", "--arch", "custom", "--outtype", "f16"];
    for (flag, value, part) in [
        ("--seed", "-1", "from 0 to 18446744073709551615"),
        ("--seed", "x", "from 0 to 18446744073709551615"),
        ("--layers", "-3", "from 1 to 1048576"),
        ("--hidden-size", "0", "from 1 to 1048576"),
        ("--vocab", "99999999999999999999", "from 1 to 1048576"),
    ] {
        let (_, stderr) = run([&dummy[..], &[flag, value]].concat(), 2);
        assert!(stderr.contains(part) && stderr.contains(flag.trim_end_matches("cab")), "{stderr}");
    }
    for (args, part) in [
        (["x", "--outtype", "f16", "--split-max-size", "-5M"], "a positive whole number and M or G"),
        (["verify", "x", "y", "--min-cosine", "-1.5"], "a number from -1 to 1"),
        (["verify", "x", "y", "--min-cosine", "NaN"], "a number from -1 to 1"),
    ] {
        let (_, stderr) = run(args, 2);
        assert!(stderr.contains(part), "{stderr}");
    }
    assert!(program(["--help"]).output().expect("it runs").status.success());
}
