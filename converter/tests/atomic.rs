//! However a run ends, the old file is whole and nothing half-written bears its name.
#![cfg(unix)]

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bitnet_embed::gguf::{GgufFile, GgufWriter};
use common::{Converted, Copy, checkpoint, converter, run};

/// The program writing a model that takes a moment, into this folder.
fn writing(path: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("converter"));
    command.args(["dummy", "--arch", "gemma3-270m", "--outtype", "f32", "--layers", "1", "--outfile"]).arg(path);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Waits until the partial file has some data.
fn await_partial(partial: &Path, child: &mut Child) {
    let start = Instant::now();
    while fs::metadata(partial).map_or(0, |file| file.len()) < 1 << 20 {
        assert!(child.try_wait().expect("a status").is_none(), "it ended before it was interrupted");
        assert!(start.elapsed() < Duration::from_secs(60), "nothing was written");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
}

fn older(folder: &Path) -> PathBuf {
    let path = folder.join("model.gguf");
    fs::write(&path, "older file").expect("a file");
    path
}

#[test]
fn a_killed_run_leaves_the_old_file_and_one_partial_that_the_next_run_takes_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = older(folder.path());
    let partial = folder.path().join(".model.gguf.partial");
    let mut child = writing(&path).spawn().expect("the program runs");
    await_partial(&partial, &mut child);
    child.kill().expect("killed");
    assert_eq!(child.wait().expect("a status").signal(), Some(9));
    assert_eq!(fs::read(&path).expect("still there"), b"older file");
    assert_eq!(names(folder.path()), [".model.gguf.partial", "model.gguf"]);

    let small = ["dummy", "--arch", "custom", "--outtype", "i2_s", "--layers", "1", "--outfile"];
    let path_text = path.to_str().expect("UTF-8");
    run([&small[..], &[path_text]].concat(), 0);
    assert_eq!(names(folder.path()), ["model.gguf"]);
    GgufFile::read(&path).expect("a whole file").check_data().expect("valid data");
}

#[test]
fn a_replaced_file_keeps_its_permissions_and_lends_them_to_the_partial_one() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o7777;
    let folder = tempfile::tempdir().expect("a folder");
    let small = ["dummy", "--arch", "custom", "--outtype", "i2_s", "--layers", "1", "--outfile"];
    for wanted in [0o600, 0o440, 0o666] {
        let path = older(folder.path());
        fs::set_permissions(&path, fs::Permissions::from_mode(wanted)).expect("set");
        run([&small[..], &[path.to_str().expect("UTF-8")]].concat(), 0);
        assert_eq!(mode(&path), wanted);
        GgufFile::read(&path).expect("replaced");
        fs::remove_file(&path).expect("a file");
    }
    let path = older(folder.path());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).expect("set");
    let partial = folder.path().join(".model.gguf.partial");
    let mut child = writing(&path).spawn().expect("the program runs");
    await_partial(&partial, &mut child);
    // Read by no one else, and yet open to the next run.
    assert_eq!(mode(&partial), 0o640);
    child.kill().expect("killed");
    child.wait().expect("a status");
}

#[test]
fn an_interrupted_run_cleans_up() {
    for (name, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = older(folder.path());
        let mut child = writing(&path).spawn().expect("the program runs");
        await_partial(&folder.path().join(".model.gguf.partial"), &mut child);
        signal(&child, name);
        assert_eq!(child.wait().expect("a status").code(), Some(128 + number), "{name}");
        assert_eq!(names(folder.path()), ["model.gguf"], "{name}");
        assert_eq!(fs::read(&path).expect("still there"), b"older file");
    }
}

#[test]
fn a_second_run_for_the_same_path_is_refused_and_does_not_disturb_the_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let mut first = writing(&path).spawn().expect("the program runs");
    await_partial(&folder.path().join(".model.gguf.partial"), &mut first);
    let second = writing(&path).output().expect("the program runs");
    let stderr = String::from_utf8(second.stderr).expect("UTF-8");
    assert_eq!(second.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("another process is writing this file"), "{stderr}");
    assert!(first.wait().expect("a status").success());
    assert_eq!(names(folder.path()), ["model.gguf"]);
    GgufFile::read(&path).expect("a whole file");
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = older(folder.path());
    // A limit on the size of files stands for a full disk: the write fails in the same place.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 2000; exec \"$@\"", "sh"]).arg(assert_cmd::cargo::cargo_bin("converter"));
    limited.args(["dummy", "--arch", "gemma3-270m", "--outtype", "f32", "--layers", "1", "--outfile"]).arg(&path);
    let output = limited.output().expect("the program runs");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("cannot write: File too large"), "{stderr}");
    assert_eq!(names(folder.path()), ["model.gguf"]);
    assert_eq!(fs::read(&path).expect("still there"), b"older file");
}

/// The program, which may write files of at most 20 times 512 (or 1024) bytes.
fn on_a_full_disk() -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 20; exec \"$@\"", "sh"]).arg(assert_cmd::cargo::cargo_bin("converter"));
    limited
}

#[test]
fn a_full_disk_is_not_blamed_on_the_input() {
    let converted = Converted::new("qwen3-std", &["--outtype", "f16"]);
    let (checkpoint, out) = (checkpoint("qwen3-std"), converted.folder.path().join("out.gguf"));
    for input in [&checkpoint, &converted.path] {
        let mut command = on_a_full_disk();
        command.arg(input).args(["--outtype", "f32", "--outfile"]).arg(&out);
        let output = command.output().expect("the program runs");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(5), "{stderr}");
        assert!(stderr.starts_with(&format!("error: not written: {}: cannot write", out.display())), "{stderr}");
    }
}

#[cfg(feature = "embeddings")]
#[test]
fn a_full_folder_of_temporary_files_is_called_that() {
    let converted = Converted::new("qwen3-std", &["--outtype", "f16"]);
    let temporary = tempfile::tempdir().expect("a folder");
    let mut command = on_a_full_disk();
    command.env("TMPDIR", temporary.path()).arg("verify").arg(&converted.path).arg(checkpoint("qwen3-std"));
    let output = command.output().expect("the program runs");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.starts_with("error: no room for the checkpoint in f32: "), "{stderr}");
    assert!(stderr.contains("set TMPDIR") && stderr.contains("--no-embeddings"), "{stderr}");
    assert!(names(temporary.path()).is_empty());
}

#[test]
fn a_disk_that_is_really_full_is_one_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(folder.path()).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: may not mount a small disk here");
        return;
    }
    let path = older(folder.path());
    let output = writing(&path).output();
    let (left, kept) = (names(folder.path()), fs::read(&path).expect("still there"));
    let unmounted = Command::new("umount").arg(folder.path()).status().expect("umount");
    assert!(unmounted.success());
    let output = output.expect("the program runs");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("No space left on device"), "{stderr}");
    assert_eq!((left, kept), (vec!["model.gguf".to_owned()], b"older file".to_vec()));
}

#[test]
fn a_folder_that_cannot_be_written_to_is_an_error() {
    let copy = Copy::of("qwen3-std");
    // Not even root creates files there.
    let output = converter(&copy.dir, &["--outtype", "f16", "--outfile", "/proc/model.gguf"]).output();
    let output = output.expect("the program runs");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("/proc/model.gguf: cannot create"), "{stderr}");
}

#[test]
fn links_folders_and_devices_are_not_replaced() {
    let copy = Copy::of("qwen3-std");
    let link = copy.dir.join("link.gguf");
    std::os::unix::fs::symlink(copy.dir.join("elsewhere"), &link).expect("a link");
    for (path, what) in
        [(link.clone(), "a symbolic link"), (copy.dir.clone(), "a folder"), ("/dev/null".into(), "a device or pipe")]
    {
        let output = converter(&copy.dir, &["--outtype", "f16", "--outfile"]).arg(&path).output();
        let output = output.expect("the program runs");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(5), "{stderr}");
        assert!(stderr.contains(what), "{stderr}");
    }
    // A link to a file that is being read is one to the input.
    fs::remove_file(&link).expect("the link");
    std::os::unix::fs::symlink(copy.dir.join("model.safetensors"), &link).expect("a link");
    let output = converter(&copy.dir, &["--outtype", "f16", "--outfile"]).arg(&link).output().expect("it runs");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.code() == Some(5) && stderr.contains("choose another output path"), "{stderr}");
}

#[test]
fn many_writers_of_one_path_never_leave_a_half_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let written = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let (path, written) = (&path, &written);
            scope.spawn(move || {
                for _ in 0..20 {
                    let mut writer = GgufWriter::new();
                    writer.tensor("a", burn_i2s::ggml::GgmlType::F32, &[1 << 12]).expect("a new tensor");
                    let Ok(mut file) = writer.create(path) else { continue };
                    file.write("a", &vec![thread; 1 << 14]).expect("written");
                    file.finish().expect("in its place");
                    written.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let file = GgufFile::read(path).expect("a whole file");
                    let data = file.data(file.tensor("a").expect("there")).expect("data");
                    assert!(data.iter().all(|byte| *byte == data[0]), "two writers met");
                }
            });
        }
    });
    assert!(written.into_inner() > 0);
    assert_eq!(names(folder.path()), ["model.gguf"]);
}
