//! Whether a file can be loaded: what `inspect` says is what loading does, and a file that was written and that no loader
//! takes is not written in silence.
#![cfg(feature = "embeddings")]

mod common;

use bitnet_embed::Embedder;
use bitnet_embed::gguf::{OwnedArray, OwnedValue};
use burn_i2s::ggml::GgmlType;
use common::{Converted, Copy, Parts, converter, run};
use serde_json::Value;
use std::path::Path;

type Change = fn(&mut Parts);

const NORM: &str = "blk.0.attn_norm.weight";

/// Whether `inspect` and the loader agree on the file, and what both say: `None` that it can be loaded.
fn refused(path: &Path, what: &str) -> Option<String> {
    let (json, _) = run(["inspect".as_ref(), path.as_os_str(), "--json".as_ref()], 0);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let refused = json["loader"]["refused"].as_str().map(str::to_owned);
    let error = Embedder::open(path).err().map(|error| error.to_string());
    assert_eq!(refused.is_some(), error.is_some(), "{what}: inspect says {refused:?}, the loader {error:?}");
    if let (Some(refused), Some(error)) = (&refused, error) {
        assert!(error.ends_with(refused.as_str()), "{what}: {refused} is not the reason, {error}");
    }
    refused
}

#[test]
fn inspect_refuses_what_the_loader_refuses_and_nothing_else() {
    for (name, kind) in [("qwen3-bitnet", "qwen3"), ("gemma3-bitnet", "gemma3"), ("qwen3-std", "qwen3")] {
        let outtype = if name.ends_with("std") { "f16" } else { "i2_s" };
        let converted = Converted::new(name, &["--outtype", outtype]);
        let whole = Parts::read(&converted.path);
        assert_eq!(refused(&converted.path, "whole"), None);
        let changed = converted.folder.path().join("changed.gguf");
        let refused_if = |change: &dyn Fn(&mut Parts), what: &str| {
            let mut parts = whole.clone();
            change(&mut parts);
            parts.write(&changed);
            refused(&changed, &format!("{name}, {what}")).is_some()
        };
        let mut count = 0;
        for (key, _) in &whole.metadata {
            count += usize::from(refused_if(&|parts| parts.remove(key), &format!("without {key}")));
            for value in [OwnedValue::F32(f32::NAN), "text".into(), true.into(), 0_u32.into(), u64::MAX.into()] {
                let what = format!("{key} = {value:?}");
                count += usize::from(refused_if(&|parts| *parts.value(key) = value.clone(), &what));
            }
            let numbers = OwnedValue::from(OwnedArray::from(&[1_i32, 2][..]));
            count += usize::from(refused_if(&|parts| *parts.value(key) = numbers.clone(), &format!("{key} = [1, 2]")));
        }
        assert!(count > whole.metadata.len(), "{count} refusals");
        for (key, value) in [
            (format!("{kind}.vocab_size"), 767_u32),
            (format!("{kind}.block_count"), 3),
            (format!("{kind}.context_length"), 1),
            ("tokenizer.ggml.eos_token_id".to_owned(), 768),
        ] {
            assert!(refused_if(&|parts| *parts.value(&key) = value.into(), &key), "{key} = {value}");
        }
        let changes: [(&str, Change); 5] = [
            ("a tensor is missing", |parts| parts.tensors.retain(|tensor| tensor.0 != NORM)),
            ("a tensor too many", |parts| {
                parts.tensors.push(("score.weight".to_owned(), GgmlType::F32, vec![1], vec![0; 4]));
            }),
            ("a tensor of another shape", |parts| {
                let shape = &mut parts.tensor(NORM).2;
                *shape = vec![2, shape[0] / 2];
            }),
            ("a norm that is no number", |parts| parts.data(NORM).fill(0xff)),
            ("tokens too few", |parts| parts.strings("tokenizer.ggml.tokens", |tokens| tokens.truncate(9))),
        ];
        for (what, change) in changes {
            assert!(refused_if(&change, what), "{name}, {what}");
        }
        // Dense weights neither of them looks at, ternary ones both.
        refused_if(&|parts| parts.data("blk.0.ffn_up.weight").fill(0xff), "a weight that is no number");
    }
}

#[test]
fn tokens_that_are_not_utf8_are_seen_by_inspect() {
    let converted = Converted::new("qwen3-bitnet", &["--outtype", "i2_s"]);
    let mut bytes = std::fs::read(&converted.path).expect("a file");
    let at = bytes.windows(13).position(|window| window == b"<|endoftext|>").expect("a token of the vocabulary");
    bytes[at + 2] = 0xff;
    std::fs::write(&converted.path, bytes).expect("written");
    let reason = refused(&converted.path, "tokens").expect("refused");
    assert!(reason.contains("tokenizer.ggml.tokens") && reason.contains("UTF-8"), "{reason}");
}

#[test]
fn a_file_that_no_loader_takes_is_not_written_in_silence() {
    // Of a BitNet in floats a loader would read everything, so that is looked at in another way.
    for outtype in ["i2_s", "bf16"] {
        no_loader_takes_it_without(outtype);
    }
}

fn no_loader_takes_it_without(outtype: &str) {
    let converted = Converted::new("qwen3-bitnet", &["--outtype", outtype]);
    let whole = Parts::read(&converted.path);
    let file = converted.path.to_str().expect("UTF-8");
    let out = converted.folder.path().join("out.gguf");
    let out = out.to_str().expect("UTF-8");
    let mut noted = 0;
    for (key, _) in &whole.metadata {
        let (stdout, stderr) = run(["edit", file, "--delete", key, "-o", out], 0);
        assert_eq!(stdout, format!("{out}\n"));
        let note = stderr.lines().find(|line| line.starts_with("note: bitnet-embed would refuse"));
        match refused(out.as_ref(), key) {
            Some(reason) => assert!(note.is_some_and(|note| note.ends_with(&reason)), "{key}: {stderr}"),
            None => assert_eq!(note, None, "{key}"),
        }
        noted += usize::from(note.is_some());
        // The step that puts it right says nothing more.
        if key == "general.architecture" {
            let again = format!("{out}.again");
            let set = ["edit", out, "--set", "general.architecture=str:qwen3", "-o", &again];
            assert!(!run(set, 0).1.contains("note:"));
        }
    }
    assert!(noted > 8, "{noted}");
    for (set, part) in [
        ("qwen3.block_count=3", "blk.2."),
        ("tokenizer.ggml.eos_token_id=5000", "eos_token_id"),
        ("qwen3.context_length=1", "context of 1"),
    ] {
        let (_, stderr) = run(["edit", file, "--set", set, "-o", out], 0);
        assert!(
            stderr.contains("note: bitnet-embed would refuse the file as it is: ") && stderr.contains(part),
            "{stderr}"
        );
    }
    let (_, stderr) = run(["edit", file, "--set", "general.name=x", "-o", out], 0);
    assert!(!stderr.contains("note:"), "{stderr}");

    run(["edit", file, "--delete", "tokenizer.ggml.tokens", "-o", out], 0);
    let again = format!("{out}.again");
    let (_, stderr) = run(["convert", out, "--outtype", outtype, "--outfile", &again], 0);
    assert!(stderr.contains("note: bitnet-embed would refuse") && stderr.contains("tokenizer.ggml.tokens"), "{stderr}");

    // A norm that is no number is copied like anything else.
    let changed = converted.folder.path().join("changed.gguf");
    let mut parts = whole.clone();
    parts.data(NORM)[..4].fill(0xff);
    parts.write(&changed);
    let (_, stderr) = run(["edit", changed.to_str().expect("UTF-8"), "--set", "general.name=x", "-o", out], 0);
    let reason = refused(out.as_ref(), "a norm").expect("refused");
    assert!(reason.contains("NaN") && stderr.contains(&format!("as it is: {reason}\n")), "{reason}: {stderr}");
}

/// A BitNet with weights that every float type holds and whose sums overflow.
fn huge() -> Copy {
    let copy = Copy::of("qwen3-bitnet");
    copy.edit_tensors("model.safetensors", |tensors| {
        let (name, (_, _, data)) =
            tensors.0.iter_mut().find(|tensor| tensor.0.ends_with("v_proj.weight")).expect("there");
        assert!(name.contains("layers.0."), "{name}");
        for bytes in data.as_chunks_mut::<2>().0 {
            *bytes = half::bf16::from_f32(3e38).to_le_bytes();
        }
    });
    copy
}

#[test]
fn a_checkpoint_whose_file_no_loader_takes_is_converted_with_a_note() {
    let copy = huge();
    for outtype in ["f32", "bf16"] {
        let output = converter(&copy.dir, &["--outtype", outtype, "--outfile"]).arg(copy.output()).output();
        let output = output.expect("the program runs");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let reason = refused(&copy.output(), outtype).expect("refused");
        assert!(stderr.contains(&format!("note: bitnet-embed would refuse the file as it is: {reason}\n")), "{stderr}");
    }
    let whole = Copy::of("qwen3-bitnet");
    let output = converter(&whole.dir, &["--outtype", "f32", "--outfile"]).arg(whole.output()).output();
    assert!(!String::from_utf8_lossy(&output.expect("the program runs").stderr).contains("note:"));
}

#[test]
fn verify_says_that_there_were_no_vectors_to_compare_with() {
    let copy = huge();
    let (dir, out) = (copy.dir.to_str().expect("UTF-8"), copy.output());
    let out = out.to_str().expect("UTF-8");
    run([dir, "--outtype", "f32", "--outfile", out], 0);
    let (stdout, _) = run(["verify", out, dir], 3);
    let last = stdout.lines().last().expect("a line");
    assert!(last.starts_with("equal, but no vectors were compared: compared "), "{stdout}");
    assert!(last.contains(dir) && last.contains("attn_v"), "{stdout}");
    assert!(!stdout.contains("exact.gguf"), "{stdout}");
    run(["verify", out, dir, "--no-embeddings"], 0);
    // What differs is said first of all by the code.
    run(["edit", out, "--set", "qwen3.context_length=9", "-o", &format!("{out}.edited")], 0);
    let (stdout, _) = run(["verify", &format!("{out}.edited"), dir], 1);
    assert!(stdout.contains("not equal, but no vectors were compared: "), "{stdout}");
}
