//! What is given or lies in the wrong place: the error says what it is and what to give or to do.
#![cfg(unix)]

mod common;

use std::fs;
use std::process::Command;

use common::{Converted, Copy, checkpoint, run};

const F16: &[&str] = &["--outtype", "f16"];
const REFUSED: i32 = 3;
const NOT_WRITTEN: i32 = 5;

#[test]
fn folders_files_and_pipes_are_called_what_they_are() {
    let converted = Converted::new("qwen3-std", F16);
    let folder = converted.folder.path();
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let path = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let (file, pipe, out) = (path(&converted.path), path(&pipe), path(&folder.join("out.gguf")));
    let (dir, missing) = (path(&checkpoint("qwen3-std")), path(&folder.join("missing")));
    let weights = format!("{dir}/model.safetensors");
    let (no_file, no_folder) =
        ("a folder, not a GGUF file; give the *.gguf file", "a file, not a folder; give the folder");
    let neither = "give the folder of a Hugging Face checkpoint, with config.json in it, or a GGUF file";
    for (args, named, part) in [
        (vec!["inspect", &dir], &dir, no_file),
        (vec!["edit", &dir, "--set", "a=u8:1", "-o", &out], &dir, no_file),
        (vec!["verify", &dir, &dir], &dir, no_file),
        (vec!["verify", &file, &file], &file, no_folder),
        (vec!["verify", &file, &missing], &missing, "there is nothing; give the folder"),
        (vec!["verify", &file, &pipe], &pipe, "a device or pipe, not a folder; give the folder"),
        (vec!["inspect", &pipe], &pipe, "a device or pipe, not a GGUF file; give a regular file"),
        (vec![&missing, "--outtype", "f16"], &missing, neither),
        (vec![&pipe, "--outtype", "f16"], &pipe, neither),
        (vec![&weights, "--outtype", "f16"], &weights, "to convert a checkpoint give its folder"),
        (vec!["inspect", &missing], &missing, "No such file"),
    ] {
        let (_, stderr) = run(&args, REFUSED);
        assert!(stderr.contains(named.as_str()) && stderr.contains(part), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    for (name, part) in [("config.json", "it is a folder"), ("tokenizer.json", "it is a folder")] {
        let copy = Copy::of("qwen3-std");
        copy.remove(name);
        fs::create_dir(copy.dir.join(name)).expect("a folder");
        copy.assert_refused(F16, REFUSED, &[name, part]);
    }
}

#[test]
fn pickled_weights_are_known_and_the_way_out_is_said() {
    for name in ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "consolidated.00.pth"] {
        let copy = Copy::of("qwen3-std");
        copy.remove("model.safetensors");
        copy.write(name, "PK");
        copy.write("optimizer.bin", "PK");
        copy.write("training_args.bin", "PK");
        copy.assert_refused(F16, REFUSED, &[name, "pickled by PyTorch", "safetensors", "save_pretrained"]);
        // Beside weights that are read they do not matter.
        let whole = Copy::of("qwen3-std");
        whole.write(name, "PK");
        common::converter(&whole.dir, F16).arg("--outfile").arg(whole.output()).assert().success();
    }
    let copy = Copy::of("qwen3-std");
    copy.remove("model.safetensors");
    copy.write("training_args.bin", "PK");
    copy.assert_refused(F16, REFUSED, &["no model.safetensors"]);
}

#[test]
fn an_obstacle_at_the_temporary_path_is_named_with_what_to_do() {
    let dir = checkpoint("qwen3-std");
    let dir = dir.to_str().expect("UTF-8");
    type Obstacle = fn(&std::path::Path);
    let cases: [(Obstacle, &str); 3] = [
        (|path| fs::create_dir(path).expect("a folder"), "where there is a folder; remove it, or choose another"),
        (
            |path| assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success()),
            "where there is a device or pipe; remove it, or choose another",
        ),
        (
            |path| std::os::unix::fs::symlink("elsewhere", path).expect("a link"),
            "where there is a symbolic link; remove it, or choose another",
        ),
    ];
    for (put, part) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let (out, partial) = (folder.path().join("out.gguf"), folder.path().join(".out.gguf.partial"));
        put(&partial);
        let (_, stderr) = run([dir, "--outtype", "f16", "--outfile", out.to_str().expect("UTF-8")], NOT_WRITTEN);
        assert!(stderr.contains(".out.gguf.partial first, ") && stderr.contains(part), "{stderr}");
        assert!(fs::symlink_metadata(&partial).is_ok() && !out.exists());
    }
    // Not removed, and nothing is written into it: it may be a file of someone else.
    let folder = tempfile::tempdir().expect("a folder");
    let (out, victim) = (folder.path().join("out.gguf"), folder.path().join("victim"));
    fs::write(&victim, "mine").expect("a file");
    fs::hard_link(&victim, folder.path().join(".out.gguf.partial")).expect("a link");
    let (_, stderr) = run([dir, "--outtype", "f16", "--outfile", out.to_str().expect("UTF-8")], NOT_WRITTEN);
    let part = "which is another name (a hard link) of some file; remove it, or choose another output path";
    assert!(stderr.contains(".out.gguf.partial first, ") && stderr.contains(part), "{stderr}");
    assert!(fs::read(&victim).expect("still there") == b"mine" && !out.exists());
    // A name that fits where the longer one of the temporary file does not.
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("o".repeat(250));
    let (_, stderr) = run([dir, "--outtype", "f16", "--outfile", out.to_str().expect("UTF-8")], NOT_WRITTEN);
    assert!(stderr.contains(".partial first, ") && stderr.contains("choose another output path"), "{stderr}");
}

#[test]
fn numbers_that_no_model_has_are_refused_by_key_as_they_stand() {
    for key in ["hidden_size", "vocab_size", "num_hidden_layers", "head_dim", "max_position_embeddings"] {
        for value in ["1e30", "-1", "3.7", "18446744073709551615", "18446744073709551616", "128.0", "\"128\"", "1e400"]
        {
            let copy = Copy::of("qwen3-std");
            copy.edit_json("config.json", |config| config[key] = "here".into());
            let text = String::from_utf8(copy.read("config.json")).expect("UTF-8");
            copy.write("config.json", text.replace("\"here\"", value));
            copy.assert_refused(F16, REFUSED, &["config.json: ", key]);
        }
    }
    for (key, value) in [("rms_norm_eps", 1e-60), ("rope_theta", 1e300), ("rms_norm_eps", -1e-6)] {
        let copy = Copy::of("qwen3-std");
        copy.edit_json("config.json", |config| config[key] = value.into());
        let named = format!("config.json: \"{key}\" = ");
        copy.assert_refused(F16, REFUSED, &[&named, "it must be positive and finite as a 32-bit float"]);
    }
}
