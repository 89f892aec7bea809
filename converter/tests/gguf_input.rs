//! Commands that start from a GGUF file: other types, other metadata, and a look at it.

mod common;

use bitnet_embed::gguf::{GgufFile, GgufWriter, OwnedArray};
use burn_i2s::ggml::GgmlType;
use common::{Converted, Parts, run};
use serde_json::Value;

fn read(path: &std::path::Path) -> GgufFile<Vec<u8>> {
    GgufFile::read(path).expect("a valid file")
}

#[test]
fn a_half_precision_bitnet_becomes_the_ternary_file_of_its_checkpoint() {
    for name in ["qwen3-bitnet", "gemma3-bitnet"] {
        // F32 of a bf16 checkpoint has lost nothing, so even the scales are the same.
        let float = Converted::new(name, &["--outtype", "f32"]);
        let ternary = Converted::new(name, &["--outtype", "i2_s", "--name", name]);
        let (path, out) = (float.path.to_str().expect("UTF-8"), float.folder.path().join("out.gguf"));
        let out_text = out.to_str().expect("UTF-8");
        let args = ["convert", path, "--outtype", "i2_s", "--norm-type", "f16", "--outfile", out_text];
        assert_eq!(run(args, 0).0, format!("{out_text}\n"));
        assert!(read(&out).into_owner() == read(&ternary.path).into_owner(), "{name}");
    }
}

#[test]
fn norms_keep_their_type_unless_told_otherwise_and_equal_types_are_copied() {
    let converted = Converted::new("qwen3-bitnet", &["--outtype", "i2_s", "--norm-type", "f32"]);
    let path = converted.path.to_str().expect("UTF-8");
    // The short form, and the default name beside the input.
    let (stdout, _) = run([path, "--outtype", "i2_s", "--embedding-type", "q8_0"], 0);
    let out = converted.folder.path().join("model-i2_s.gguf");
    assert_eq!(stdout, format!("{}\n", out.display()));
    let (before, after) = (Parts::read(&converted.path), Parts::read(&out));
    assert_eq!(before.metadata, after.metadata);
    for (old, new) in before.tensors.iter().zip(&after.tensors) {
        if old.0 == "token_embd.weight" {
            assert_eq!((new.1, &new.2), (GgmlType::Q8_0, &old.2));
        } else {
            assert_eq!(old, new);
        }
    }
}

#[test]
fn the_help_says_what_becomes_of_norms_and_name_of_a_file_and_it_is_so() {
    let (help, _) = run(["convert", "--help"], 0);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("in FILE as they are, f32 for f32"), "{help}");
    assert!(help.contains("and so is the name without --name"), "{help}");
    let converted = Converted::new("qwen3-bitnet", &["--outtype", "f16"]);
    let (path, out) = (converted.path.to_str().expect("UTF-8"), converted.folder.path().join("out.gguf"));
    let out_text = out.to_str().expect("UTF-8");
    for (outtype, norms) in [("bf16", GgmlType::F16), ("f16", GgmlType::F16), ("f32", GgmlType::F32)] {
        for name in [None, Some("mine")] {
            let named: Vec<&str> = name.map(|name| ["--name", name]).into_iter().flatten().collect();
            run([&["convert", path, "--outtype", outtype, "--outfile", out_text], &named[..]].concat(), 0);
            let file = read(&out);
            assert_eq!(file.metadata().str("general.name").expect("text"), Some(name.unwrap_or("qwen3-bitnet")));
            assert_eq!(file.tensor("output_norm.weight").expect("there").ggml_type(), Some(norms), "{outtype}");
        }
    }
}

#[test]
fn block_types_are_widened_to_what_they_stand_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("q.gguf");
    let values: Vec<f32> = (0..4 * 256).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect();
    let mut packed = vec![0; GgmlType::Q6_K.row_bytes(values.len()).expect("whole blocks")];
    GgmlType::Q6_K.encode_row(&values, &mut packed);
    let mut expected = vec![0.0; values.len()];
    GgmlType::Q6_K.decode_row(&packed, &mut expected);
    Parts {
        metadata: vec![("general.architecture".to_owned(), "anything".into())],
        tensors: vec![
            ("blk.0.ffn_up.weight".to_owned(), GgmlType::Q6_K, vec![4, 256], packed),
            ("rope_freqs.weight".to_owned(), GgmlType::F32, vec![2], vec![0; 8]),
        ],
    }
    .write(&path);
    for (outtype, ty) in [("f32", GgmlType::F32), ("f16", GgmlType::F16), ("bf16", GgmlType::BF16)] {
        let out = folder.path().join("out.gguf");
        run([path.to_str().expect("UTF-8"), "--outtype", outtype, "--outfile", out.to_str().expect("UTF-8")], 0);
        let mut bytes = vec![0; ty.row_bytes(expected.len()).expect("floats")];
        ty.encode_row(&expected, &mut bytes);
        let mut parts = Parts::read(&out);
        assert_eq!(*parts.data("blk.0.ffn_up.weight"), bytes, "{outtype}");
        assert_eq!(parts.tensor("rope_freqs.weight").1, GgmlType::F32);
    }
}

#[test]
fn what_cannot_be_converted_is_refused_and_leaves_nothing() {
    let ternary = Converted::new("qwen3-bitnet", &["--outtype", "i2_s"]);
    let plain = Converted::new("qwen3-std", &["--outtype", "f16"]);
    let path = |converted: &Converted| converted.path.to_str().expect("UTF-8").to_owned();
    let cases = [
        (vec![path(&ternary), "--outtype".into(), "f16".into()], 3, "is I2_S"),
        (vec![path(&plain), "--outtype".into(), "i2_s".into()], 3, "no input norm"),
        (vec![path(&plain), "--outtype".into(), "f16".into(), "--pooling".into(), "mean".into()], 2, "--pooling"),
        (vec![path(&plain), "--outtype".into(), "f16".into(), "--outfile".into(), path(&plain)], 5, "being read"),
        (vec![path(&plain), "--outtype".into(), "f16".into(), "--embedding-type".into(), "q6_k".into()], 3, "q8_0"),
    ];
    for (args, code, part) in cases {
        let (stdout, stderr) = run(&args, code);
        assert!(stdout.is_empty() && stderr.contains(part), "{stderr}");
    }
    assert_eq!(std::fs::read_dir(ternary.folder.path()).expect("a folder").count(), 1);
    assert_eq!(std::fs::read_dir(plain.folder.path()).expect("a folder").count(), 1);
}

#[test]
fn a_value_that_is_not_finite_is_refused_where_tensors_are_copied_too() {
    for (name, outtype) in
        [("blk.0.attn_q.weight", "f16"), ("output_norm.weight", "f16"), ("output_norm.weight", "bf16")]
    {
        let converted = Converted::new("qwen3-std", &["--outtype", "f16"]);
        let mut parts = Parts::read(&converted.path);
        let (_, ty, _, data) = parts.tensors.iter_mut().find(|tensor| tensor.0 == name).expect("the tensor");
        let width = if *ty == GgmlType::F32 { 4 } else { 2 };
        // All bits: a NaN in each of the types.
        data[3 * width..4 * width].fill(0xff);
        parts.write(&converted.path);
        let out = converted.folder.path().join("out.gguf");
        let file = converted.path.to_str().expect("UTF-8");
        let args = ["convert", file, "--outtype", outtype, "--outfile", out.to_str().expect("UTF-8")];
        let (_, stderr) = run(args, 3);
        assert!(stderr.contains(name) && stderr.contains('3'), "{stderr}");
        assert!(!out.exists());
    }
}

#[test]
fn a_tensor_of_unknown_size_is_the_inputs_fault() {
    let converted = Converted::new("qwen3-std", &["--outtype", "f16"]);
    let mut bytes = std::fs::read(&converted.path).expect("a file");
    let name = b"output_norm.weight";
    // Behind the name: the number of dimensions, which is 1, the dimension, and the type.
    let at = bytes.windows(name.len()).position(|window| window == name).expect("the tensor") + name.len() + 4 + 8;
    bytes[at..at + 4].copy_from_slice(&999_u32.to_le_bytes());
    std::fs::write(&converted.path, bytes).expect("written");
    let (file, out) = (converted.path.to_str().expect("UTF-8"), converted.folder.path().join("out.gguf"));
    let out = out.to_str().expect("UTF-8");
    for args in [vec!["convert", file, "--outtype", "f16", "--outfile", out], vec!["edit", file, "-o", out]] {
        let (_, stderr) = run(args, 3);
        assert!(
            stderr.starts_with(&format!("error: {file}: tensor \"output_norm.weight\" has the unsupp")),
            "{stderr}"
        );
    }
}

#[test]
fn keys_are_set_and_deleted_and_everything_else_stays() {
    let converted = Converted::new("gemma3-bitnet", &["--outtype", "i2_s"]);
    let out = converted.folder.path().join("edited.gguf");
    let path = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let args = [
        "edit".to_owned(),
        path(&converted.path),
        "--set".to_owned(),
        "general.name=a: b".to_owned(),
        "--set".to_owned(),
        "gemma3.context_length=512".to_owned(),
        "--set".to_owned(),
        "general.author=str:me".to_owned(),
        "--set".to_owned(),
        "general.alignment=u32:64".to_owned(),
        "--delete".to_owned(),
        "gemma3.attention.scale".to_owned(),
        "-o".to_owned(),
        path(&out),
    ];
    run(&args, 0);
    let (before, after) = (Parts::read(&converted.path), Parts::read(&out));
    assert_eq!(before.tensors, after.tensors);
    assert_eq!(read(&out).alignment(), 64);
    let mut expected = before;
    *expected.value("general.name") = "a: b".into();
    *expected.value("gemma3.context_length") = 512_u32.into();
    expected.remove("gemma3.attention.scale");
    expected.metadata.push(("general.author".to_owned(), "me".into()));
    expected.metadata.push(("general.alignment".to_owned(), 64_u32.into()));
    assert_eq!(after.metadata, expected.metadata);
}

#[test]
fn changes_that_cannot_be_made_are_refused() {
    let converted = Converted::new("qwen3-std", &["--outtype", "f16"]);
    let (file, folder) = (converted.path.to_str().expect("UTF-8"), converted.folder.path());
    let out = folder.join("out.gguf");
    let out = out.to_str().expect("UTF-8");
    for (args, code, part) in [
        (["--set", "new.key=5"], 2, "type must be given"),
        (["--set", "qwen3.block_count=-1"], 2, "is no u32"),
        (["--set", "qwen3.block_count=u32:x"], 2, "is no u32"),
        (["--set", "novalue"], 2, "KEY=VALUE"),
        (["--set", "tokenizer.ggml.tokens=a"], 2, "arrays cannot be set"),
        (["--delete", "no.such.key"], 2, "no such key"),
        (["--set", "general.alignment=u32:3"], 2, "--set \"general.alignment\": alignment 3 is not a power of two"),
        (["--set", "split.count=u16:3"], 2, "part of a model"),
    ] {
        let (_, stderr) = run([&["edit", file, "-o", out][..], &args].concat(), code);
        assert!(stderr.contains(part), "{stderr}");
    }
    let (_, stderr) = run(["edit", file, "--set", "a=u8:1", "--delete", "a", "-o", out], 2);
    assert!(stderr.contains("twice"), "{stderr}");
    let (_, stderr) = run(["edit", file, "--set", "a=u8:1", "-o", file], 5);
    assert!(stderr.contains("being read"), "{stderr}");
    run(["edit", "no/such/file", "-o", out], 3);
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 1, "nothing was written");
}

#[test]
fn a_file_of_the_published_converter_is_described_with_what_is_assumed() {
    let path = common::workspace().join("testdata/gguf/gemma3-bitnet.i2_s.gguf");
    let path = path.to_str().expect("UTF-8");
    let (text, _) = run(["inspect", path], 0);
    for part in [
        "blk.1.attn_q.weight",
        "14 tensors",
        "kind \"llama\"",
        "bos 2 \"<bos>\", added to every text",
        "gemma3: 2 layers of 128",
        "gemma3.attention.sliding_window is absent, assuming none",
    ] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    let (json, _) = run(["inspect", path, "--json"], 0);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["tensors"].as_array().expect("tensors").len(), 42);
    assert_eq!(json["types"]["I2_S"]["tensors"], 14);
    assert_eq!(json["tokenizer"]["tokens"], 768);
    assert_eq!(json["tokenizer"]["special"]["eos"]["token"], "<eos>");
    assert_eq!(json["loader"]["model"]["head_dim"], 64);
    assert_eq!(json["loader"]["refused"], Value::Null);
    let assumed = json["loader"]["assumed"].as_array().expect("keys");
    assert!(assumed.iter().any(|entry| entry["key"] == "gemma3.attention.sliding_window"));
    let eps = &json["metadata"].as_array().expect("metadata")[13];
    assert_eq!((&eps["key"], &eps["value"]), (&"gemma3.attention.layer_norm_rms_epsilon".into(), &1e-6.into()));
}

#[test]
fn nothing_that_is_inspected_can_drive_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("evil.gguf");
    let evil = "\u{1b}[2J\n\u{202e}\u{7f}\u{85}\u{1f600}";
    let mut writer = GgufWriter::new();
    for key in ["general.architecture", evil, "tokenizer.ggml.model", "tokenizer.ggml.pre"] {
        writer.metadata(key, evil).expect("a new key");
    }
    writer.metadata("tokenizer.ggml.tokens", OwnedArray::strings([evil])).expect("a new key");
    writer.metadata("tokenizer.ggml.eos_token_id", 0_u32).expect("a new key");
    writer.tensor(evil, GgmlType::F32, &[1]).expect("a new tensor");
    let mut file = writer.create(&path).expect("a file");
    file.write(evil, &[0; 4]).expect("written");
    file.finish().expect("written");
    let path = path.to_str().expect("UTF-8");
    let (text, _) = run(["inspect", path], 0);
    assert!(text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{text:?}");
    let (json, _) = run(["inspect", path, "--json"], 0);
    assert!(json.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')), "{json:?}");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["tensors"][0]["name"], evil, "and yet nothing is lost");
    let (_, stderr) = run(["inspect", folder.path().to_str().expect("UTF-8")], 3);
    assert!(stderr.contains("a folder, not a GGUF file; give"), "{stderr}");
}

#[test]
fn very_long_values_are_cut_wherever_they_are_quoted() {
    let converted = Converted::new("qwen3-std", &["--outtype", "f16"]);
    let changed = converted.folder.path().join("changed.gguf");
    let (path, out) = (changed.to_str().expect("UTF-8"), converted.folder.path().join("out.gguf"));
    let out = out.to_str().expect("UTF-8");
    let dir = common::checkpoint("qwen3-std");
    let whole = Parts::read(&converted.path);
    // In one word and in many.
    for text in ["x".repeat(100_000), "x y ".repeat(25_000)] {
        for key in ["tokenizer.ggml.pre", "tokenizer.ggml.model", "general.architecture"] {
            let mut parts = whole.clone();
            *parts.value(key) = text.as_str().into();
            parts.write(&changed);
            for (args, code) in [
                (vec!["inspect", path], 0),
                (vec!["verify", path, dir.to_str().expect("UTF-8"), "--no-embeddings"], 1),
                (vec!["edit", path, "--set", "general.name=x", "-o", out], 0),
                (vec!["convert", path, "--outtype", "f16", "--outfile", out], 0),
            ] {
                let (stdout, stderr) = run(&args, code);
                let longest = stdout.lines().chain(stderr.lines()).map(str::len).max().expect("a line");
                assert!(longest < 2200, "{key}, {}: a line of {longest} bytes", args[0]);
            }
            let (json, _) = run(["inspect", path, "--json"], 0);
            let json: Value = serde_json::from_str(&json).expect("JSON");
            let reason = json["loader"]["refused"].as_str().expect("refused");
            assert!(reason.len() < 2200 && reason.contains("more ...]"), "{} bytes", reason.len());
        }
    }
}

/// The largest resident size that a command was seen to have while it ran, in kilobytes, mapped pages included.
#[cfg(target_os = "linux")]
fn peak_of(args: &[&str]) -> usize {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("converter"));
    let quiet = std::process::Stdio::null;
    let mut child = command.args(args).stdout(quiet()).stderr(quiet()).spawn().expect("the program runs");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let size = line.split_whitespace().next().and_then(|size| size.parse().ok()).unwrap_or(0);
        peak = peak.max(size);
        if let Some(status) = child.try_wait().expect("a status") {
            assert!(status.success(), "{args:?}");
            return peak;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_is_written_anew_in_less_memory_than_its_largest_tensor() {
    let folder = tempfile::tempdir().expect("a folder");
    let [path, out] = ["in.gguf", "out.gguf"].map(|name| folder.path().join(name).display().to_string());
    let sizes = ["--vocab", "60000", "--hidden-size", "512", "--bitnet", "--outfile", &path];
    run([&["dummy", "--arch", "custom", "--outtype", "f32"], &sizes[..]].concat(), 0);
    for args in [
        &["edit", &path, "--set", "general.name=x", "-o", &out][..],
        &["convert", &path, "--outtype", "f32", "--name", "x", "--outfile", &out],
        &["convert", &path, "--outtype", "f16", "--outfile", &out],
    ] {
        let peak = peak_of(args);
        // The table alone has 123 MB.
        assert!((5_000..90_000).contains(&peak), "{peak} kB for {args:?}");
    }
}
