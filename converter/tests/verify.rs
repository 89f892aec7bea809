//! `converter verify`: equal files pass, and whatever is changed is found and named.

mod common;

use bitnet_embed::gguf::{OwnedArray, OwnedValue, Value};
use burn_i2s::ggml::GgmlType;
use common::{Converted, Copy, Parts, checkpoint, run};
use half::f16;
use serde_json::json;

/// Verifies without vectors, which these tests do not need; returns the lines that name a difference.
fn differences(file: &std::path::Path, dir: &std::path::Path, code: i32) -> Vec<String> {
    let (file, dir) = (file.to_str().expect("UTF-8"), dir.to_str().expect("UTF-8"));
    let (stdout, _) = run(["verify", file, dir, "--no-embeddings"], code);
    stdout.lines().filter_map(|line| line.strip_prefix("differs: ").map(str::to_owned)).collect()
}

#[test]
fn what_was_converted_is_equal_whatever_the_types() {
    let bitnets = ["qwen3-bitnet", "gemma3-bitnet", "gemma3-ternary"];
    for name in ["qwen3-std", "gemma3-std", "qwen3-sharded-f16-mean"].into_iter().chain(bitnets) {
        for args in [
            &["--outtype", "f32"][..],
            &["--outtype", "f16", "--embed-tokenizer", "--name", "another"],
            &["--outtype", "bf16", "--embedding-type", "q8_0"],
            &["--outtype", "i2_s", "--norm-type", "f32", "--embedding-type", "f32"],
        ] {
            if args[1] == "i2_s" && !bitnets.contains(&name) {
                continue;
            }
            let converted = Converted::new(name, args);
            assert_eq!(differences(&converted.path, &checkpoint(name), 0), [""; 0], "{name} {args:?}");
        }
    }
}

#[test]
fn a_name_of_its_own_is_no_difference_and_not_counted_as_compared() {
    let dir = checkpoint("qwen3-std");
    let said = |args: &[&str]| {
        let converted = Converted::new("qwen3-std", args);
        run(["verify".as_ref(), converted.path.as_os_str(), dir.as_os_str(), "--no-embeddings".as_ref()], 0).0
    };
    let keys = |said: &str| -> usize {
        let words: Vec<&str> = said.split_whitespace().collect();
        words[words.iter().position(|word| word.starts_with("keys")).expect("a count") - 1].parse().expect("a number")
    };
    let (same, other) = (said(&["--outtype", "f16"]), said(&["--outtype", "f16", "--name", "another"]));
    assert!(!same.contains("note:"), "{same}");
    assert!(other.contains("note: key \"general.name\" is not compared"), "{other}");
    assert_eq!(keys(&other) + 1, keys(&same));
}

#[test]
fn files_of_the_published_converter_lack_only_what_it_loses() {
    let published = |name: &str| common::workspace().join(format!("testdata/gguf/{name}.i2_s.gguf"));
    assert_eq!(differences(&published("qwen3-bitnet"), &checkpoint("qwen3-bitnet"), 0), [""; 0]);
    let lost = differences(&published("gemma3-bitnet"), &checkpoint("gemma3-bitnet"), 1);
    assert_eq!(lost.len(), 4, "{lost:?}");
    assert!(lost.iter().all(|line| line.starts_with("key \"gemma3.") && line.contains("is missing")), "{lost:?}");
}

type Corruption = fn(&mut Parts);

const LAYER: &str = "blk.1.ffn_up.weight";

/// What is done to a Gemma 3 file, and what must be in the line that names it.
const GEMMA: &[(&str, Corruption)] = &[
    ("tensor \"blk.1.ffn_up.weight\": weight ", |p| p.data(LAYER)[700] = flip(p.data(LAYER)[700])),
    ("tensor \"blk.1.ffn_up.weight\": the scale: expected", |p| scale(p.data(LAYER), |s| s * 1.001)),
    ("tensor \"blk.1.ffn_up.weight\": the scale: expected", |p| {
        scale(p.data(LAYER), |s| f32::from_bits(s.to_bits() + 1))
    }),
    ("tensor \"blk.1.ffn_up.weight\": the bytes after the scale", |p| *p.data(LAYER).last_mut().expect("bytes") = 1),
    ("tensor \"blk.0.attn_q.weight\": weight ", |p| p.swap("blk.0.attn_q.weight", "blk.1.attn_q.weight")),
    ("tensor \"blk.1.ffn_up.weight\": weight ", |p| p.swap("blk.1.ffn_gate.weight", LAYER)),
    ("tensor \"blk.0.attn_k.weight\": weight ", |p| p.swap("blk.0.attn_k.weight", "blk.0.attn_v.weight")),
    // Blocks of 64 instead of 128, which is what other machines wrote.
    ("tensor \"blk.1.ffn_up.weight\": weight ", |p| {
        let data = p.data(LAYER);
        let end = data.len() - 32;
        data[..end].chunks_mut(32).for_each(|block| block.rotate_left(16));
    }),
    // Columns for rows.
    ("tensor \"blk.0.attn_q.weight\": expected shape [256, 128], found [128, 256]", |p| {
        p.tensor("blk.0.attn_q.weight").2.reverse();
    }),
    ("tensor \"output_norm.weight\": value 0: ", |p| p.data("output_norm.weight").rotate_left(2)),
    // The norms of Gemma without the one that is added.
    ("tensor \"blk.0.attn_norm.weight\": value 0: ", |p| halves(p.data("blk.0.attn_norm.weight"), |x| x - 1.0)),
    // And with it where there should be none.
    ("tensor \"blk.0.attn_q_norm_in.weight\": value 0: ", |p| {
        halves(p.data("blk.0.attn_q_norm_in.weight"), |x| x + 1.0)
    }),
    ("tensor \"blk.1.post_ffw_norm.weight\": value 127: ", |p| p.data("blk.1.post_ffw_norm.weight")[254] ^= 1),
    ("tensor \"blk.0.attn_norm.weight\": value ", |p| p.swap("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight")),
    ("tensor \"blk.1.attn_q_norm.weight\": value ", |p| p.swap("blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight")),
    ("tensor \"token_embd.weight\": value 98303: ", |p| {
        *p.data("token_embd.weight").last_mut().expect("bytes") ^= 0x80
    }),
    // Two rows of the token table exchanged.
    ("tensor \"token_embd.weight\": value 25600: ", |p| p.data("token_embd.weight")[51200..51712].rotate_left(256)),
    ("tensor \"blk.0.attn_q_norm_in.weight\" is missing", |p| {
        p.tensors.retain(|t| t.0 != "blk.0.attn_q_norm_in.weight")
    }),
    ("tensor \"blk.2.attn_norm.weight\" is in the file", |p| {
        let mut extra = p.tensor("blk.1.attn_norm.weight").clone();
        extra.0 = "blk.2.attn_norm.weight".to_owned();
        p.tensors.push(extra);
    }),
    ("tensor \"blk.1.ffn_up.weight\": expected type i2_s, found F16", |p| {
        let tensor = p.tensor(LAYER);
        (tensor.1, tensor.3) = (GgmlType::F16, vec![0; tensor.2.iter().product::<usize>() * 2]);
    }),
    ("key \"gemma3.attention.sliding_window\": expected u32 16, found u32 17", |p| {
        *p.value("gemma3.attention.sliding_window") = OwnedValue::U32(17);
    }),
    ("key \"gemma3.attention.sliding_window_pattern\", element 0: expected true, found false", |p| {
        *p.value("gemma3.attention.sliding_window_pattern") = OwnedArray::from(&[false, true][..]).into();
    }),
    ("key \"gemma3.attention.scale\" is missing: expected 0.125", |p| p.remove("gemma3.attention.scale")),
    ("key \"gemma3.rope.freq_base\": expected f32 1000000.0, found f32 10000.0", |p| {
        *p.value("gemma3.rope.freq_base") = OwnedValue::F32(1e4);
    }),
    ("key \"gemma3.attention.layer_norm_rms_epsilon\": expected f32 1e-6, found f32 1e-5", |p| {
        *p.value("gemma3.attention.layer_norm_rms_epsilon") = OwnedValue::F32(1e-5);
    }),
    ("key \"gemma3.pooling_type\": expected u32 3, found u32 1", |p| {
        *p.value("gemma3.pooling_type") = OwnedValue::U32(1)
    }),
    ("key \"general.file_type\": expected u32 40, found u32 7", |p| *p.value("general.file_type") = OwnedValue::U32(7)),
    ("key \"gemma3.block_count\": expected u32 2, found u64 2", |p| {
        *p.value("gemma3.block_count") = OwnedValue::U64(2)
    }),
    ("key \"gemma3.final_logit_softcapping\" is in the file", |p| {
        p.metadata.push(("gemma3.final_logit_softcapping".to_owned(), OwnedValue::F32(30.0)));
    }),
    ("key \"tokenizer.ggml.scores\", element 300: expected", |p| floats(p, "tokenizer.ggml.scores", |s| s[300] -= 1.0)),
    ("key \"tokenizer.ggml.token_type\", element 2: expected 3, found 1", |p| {
        let mut types = ints(p, "tokenizer.ggml.token_type");
        types[2] = 1;
        *p.value("tokenizer.ggml.token_type") = OwnedArray::from(&types[..]).into();
    }),
    ("key \"tokenizer.ggml.tokens\", element 400: expected", |p| {
        p.strings("tokenizer.ggml.tokens", |t| t.swap(400, 401))
    }),
    ("key \"tokenizer.ggml.add_bos_token\": expected bool true, found bool false", |p| {
        *p.value("tokenizer.ggml.add_bos_token") = OwnedValue::Bool(false);
    }),
    ("key \"tokenizer.ggml.eos_token_id\": expected u32 1, found u32 2", |p| {
        *p.value("tokenizer.ggml.eos_token_id") = OwnedValue::U32(2);
    }),
];

/// The same for a Qwen3 file, whose vocabulary is of the other kind.
const QWEN: &[(&str, Corruption)] = &[
    ("key \"tokenizer.ggml.merges\", element 100: expected", |p| {
        p.strings("tokenizer.ggml.merges", |m| m.swap(100, 101))
    }),
    ("key \"tokenizer.ggml.merges\": expected", |p| p.strings("tokenizer.ggml.merges", |m| drop(m.pop()))),
    ("token ids of ", |p| p.strings("tokenizer.ggml.merges", |m| m.truncate(m.len() / 2))),
    ("token ids of ", |p| *p.value("tokenizer.ggml.add_eos_token") = OwnedValue::Bool(false)),
    ("the tokenizer of the file: ", |p| p.remove("tokenizer.ggml.pre")),
    ("key \"tokenizer.huggingface.json\": expected tokenizer.json of the checkpoint, found", |p| {
        let other = std::fs::read_to_string(checkpoint("gemma3-std").join("tokenizer.json")).expect("a file");
        p.metadata.push(("tokenizer.huggingface.json".to_owned(), other.into()));
    }),
    ("tensor \"blk.0.attn_norm.weight\": value ", |p| p.swap("blk.0.attn_norm.weight", "blk.1.attn_norm.weight")),
];

#[test]
fn every_seeded_corruption_is_found_and_named() {
    assert!(GEMMA.len() + QWEN.len() >= 30);
    for (name, corruptions) in [("gemma3-bitnet", GEMMA), ("qwen3-bitnet", QWEN)] {
        let converted = Converted::new(name, &["--outtype", "i2_s"]);
        let whole = Parts::read(&converted.path);
        whole.write(&converted.path);
        assert_eq!(differences(&converted.path, &checkpoint(name), 0), [""; 0], "written again, {name} is still equal");
        for (expected, corrupt) in corruptions {
            let mut parts = whole.clone();
            corrupt(&mut parts);
            parts.write(&converted.path);
            let found = differences(&converted.path, &checkpoint(name), 1);
            assert!(found.iter().any(|line| line.starts_with(expected)), "{expected}: {found:#?}");
        }
    }
}

#[test]
fn a_corruption_of_any_other_type_is_found_too() {
    for (args, byte) in [
        (&["--outtype", "f32"][..], 1000),
        (&["--outtype", "f16"], 1001),
        (&["--outtype", "bf16"], 1001),
        (&["--outtype", "i2_s", "--embedding-type", "q8_0"], 35),
    ] {
        let converted = Converted::new("qwen3-bitnet", args);
        let mut parts = Parts::read(&converted.path);
        parts.data("token_embd.weight")[byte] ^= 4;
        parts.write(&converted.path);
        let found = differences(&converted.path, &checkpoint("qwen3-bitnet"), 1);
        assert_eq!(found.len(), 1, "{args:?}: {found:?}");
        assert!(found[0].starts_with("tensor \"token_embd.weight\": value "), "{found:?}");
    }
}

#[test]
fn a_code_that_stands_for_nothing_is_a_difference_and_no_crash() {
    let converted = Converted::new("qwen3-bitnet", &["--outtype", "i2_s"]);
    let mut parts = Parts::read(&converted.path);
    parts.data(LAYER)[5] = 0xFF;
    parts.write(&converted.path);
    let found = differences(&converted.path, &checkpoint("qwen3-bitnet"), 1);
    assert!(found.iter().any(|line| line.contains("invalid code 3")), "{found:?}");
}

#[test]
fn bytes_after_the_last_tensor_are_a_difference() {
    let converted = Converted::new("gemma3-bitnet", &["--outtype", "i2_s"]);
    let mut bytes = std::fs::read(&converted.path).expect("readable");
    bytes.push(0);
    std::fs::write(&converted.path, bytes).expect("written");
    let found = differences(&converted.path, &checkpoint("gemma3-bitnet"), 1);
    assert!(found.iter().any(|line| line.contains("model.gguf: 1 bytes after the last tensor")), "{found:?}");
}

#[test]
fn another_checkpoint_is_another_model() {
    let converted = Converted::new("qwen3-bitnet", &["--outtype", "i2_s"]);
    let copy = Copy::of("qwen3-bitnet");
    copy.edit_json("config.json", |config| config["rms_norm_eps"] = json!(1e-5));
    copy.edit_tensors("model.safetensors", |tensors| {
        let norm = &mut tensors.0.get_mut("norm.weight").expect("there").2;
        norm.swap(0, 2);
        norm.swap(1, 3);
    });
    let found = differences(&converted.path, &copy.dir, 1);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn no_file_and_no_checkpoint_are_refused() {
    let converted = Converted::new("qwen3-std", &["--outtype", "f16"]);
    let (file, dir) = (converted.path.to_str().expect("UTF-8"), checkpoint("qwen3-std"));
    let dir = dir.to_str().expect("UTF-8");
    for args in [["verify", "no/such/file.gguf", dir], ["verify", file, "no/such/folder"], ["verify", dir, dir]] {
        let (stdout, stderr) = run(args, 3);
        assert!(stdout.is_empty() && stderr.starts_with("error: "), "{stderr}");
    }
}

#[cfg(feature = "embeddings")]
#[test]
fn vectors_are_compared_and_a_limit_on_them_is_kept() {
    let dir = checkpoint("gemma3-bitnet");
    let dir = dir.to_str().expect("UTF-8");
    for (args, least) in [
        (&["--outtype", "f32"][..], 1.0),
        (&["--outtype", "i2_s"], 0.99),
        (&["--outtype", "i2_s", "--embedding-type", "q8_0", "--norm-type", "f32"], 0.99),
    ] {
        let converted = Converted::new("gemma3-bitnet", args);
        let file = converted.path.to_str().expect("UTF-8");
        let (stdout, _) = run(["verify", file, dir, "--min-cosine", &least.to_string()], 0);
        assert!(stdout.contains("vectors of 8 texts: cosine at least "), "{stdout}");
    }
    // The file of the published converter, without window: another model for long texts, and refused for its keys.
    let converted = Converted::new("gemma3-bitnet", &["--outtype", "i2_s"]);
    let file = converted.path.to_str().expect("UTF-8");
    let (stdout, _) = run(["verify", file, dir, "--min-cosine", "1"], 1);
    assert!(stdout.contains("has the cosine"), "{stdout}");
}

/// Another of the three codes in the lowest plane of a byte.
fn flip(byte: u8) -> u8 {
    (byte & !3) | (((byte & 3) + 1) % 3)
}

fn scale(data: &mut [u8], change: impl Fn(f32) -> f32) {
    let at = data.len() - 32;
    let old = f32::from_le_bytes(data[at..at + 4].try_into().expect("4 bytes"));
    data[at..at + 4].copy_from_slice(&change(old).to_le_bytes());
}

fn halves(data: &mut [u8], change: impl Fn(f32) -> f32) {
    for bytes in data.as_chunks_mut::<2>().0 {
        *bytes = f16::from_f32(change(f16::from_le_bytes(*bytes).to_f32())).to_le_bytes();
    }
}

fn floats(parts: &mut Parts, key: &str, edit: impl FnOnce(&mut Vec<f32>)) {
    let value = parts.value(key);
    let Value::Array(array) = value.as_value(key) else { panic!("{key} is no array") };
    let mut floats: Vec<f32> = array.f32s().expect("floats").collect();
    edit(&mut floats);
    *value = OwnedArray::from(&floats[..]).into();
}

fn ints(parts: &mut Parts, key: &str) -> Vec<i32> {
    let Value::Array(array) = parts.value(key).as_value(key) else { panic!("{key} is no array") };
    array.i32s().expect("integers").collect()
}
