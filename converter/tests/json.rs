//! The JSON files of a checkpoint: an error names the file and the key, says what was expected and what is there, and a
//! key that stands twice is one.

mod common;

use common::Copy;

const F16: &[&str] = &["--outtype", "f16"];
const REFUSED: i32 = 3;
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A copy whose file has the first `from` replaced.
fn with_text(name: &str, file: &str, from: &str, to: &str) -> Copy {
    let copy = Copy::of(name);
    let text = String::from_utf8(copy.read(file)).expect("UTF-8");
    assert!(text.contains(from), "no {from:?} in {file}");
    copy.write(file, text.replacen(from, to, 1));
    copy
}

/// A copy whose safetensors header has the first `from` replaced.
fn with_header(from: &str, to: &str) -> Copy {
    let copy = Copy::of("qwen3-std");
    let bytes = copy.read(WEIGHTS);
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().expect("8 bytes")) as usize);
    let header = String::from_utf8(header.to_vec()).expect("UTF-8");
    assert!(header.contains(from), "no {from:?} in {header}");
    let header = header.replacen(from, to, 1).into_bytes();
    copy.write(WEIGHTS, [&(header.len() as u64).to_le_bytes()[..], &header, data].concat());
    copy
}

#[test]
fn a_value_of_another_type_is_refused_by_file_and_key() {
    let tokenizer = |from, to| with_text("qwen3-std", "tokenizer.json", from, to);
    for (copy, parts) in [
        (tokenizer("\"special\":true", "\"special\":3"), ["added_tokens[0].special", "`3`, expected a boolean"]),
        (tokenizer("\"vocab\":{", "\"vocab\":{\"zz\": \"x\", "), ["model.vocab.zz", "\"x\", expected u32"]),
        (tokenizer("\"vocab\":{", "\"vocab\":{\"zz\": -1, "), ["model.vocab.zz", "`-1`, expected u32"]),
        (tokenizer("\"merges\":[", "\"merges\":[5,"), ["model.merges[0]", "`5`, expected a merge"]),
        (tokenizer("\"type\":\"BPE\",", ""), ["model.type", "expected BPE, found none"]),
    ] {
        let code = if parts[0] == "model.type" { 4 } else { REFUSED };
        copy.assert_refused(F16, code, &["tokenizer.json: ", parts[0], parts[1]]);
    }
    let index =
        with_text("qwen3-sharded-f16-mean", INDEX, "\"lm_head.weight\": \"", "\"x\": 1e30, \"lm_head.weight\": \"");
    index.assert_refused(F16, REFUSED, &[INDEX, "weight_map.x: ", "`1e+30`, expected a string"]);
    let copy = with_header("\"dtype\":\"BF16\"", "\"dtype\":5");
    copy.assert_refused(F16, REFUSED, &[WEIGHTS, ".weight.dtype: ", "`5`, expected a string"]);
    let copy = with_header("\"shape\":[", "\"shape\":[-1,");
    copy.assert_refused(F16, REFUSED, &[WEIGHTS, ".weight.shape[0]: ", "`-1`, expected usize"]);
}

#[test]
fn a_key_that_stands_twice_is_refused_by_name() {
    for (name, file, from, to, key) in [
        ("qwen3-std", "config.json", "\"hidden_size\"", "\"hidden_size\": 1, \"hidden_size\"", "hidden_size"),
        ("qwen3-std", "config.json", "{", "{\"x\": {\"rope_theta\": 1, \"rope_theta\": 2},", "rope_theta"),
        ("qwen3-std", "modules.json", "\"type\"", "\"type\": 1, \"type\"", "type"),
        ("qwen3-std", "1_Pooling/config.json", "{", "{\"pooling_mode\": 1, \"pooling_mode\": 2,", "pooling_mode"),
        ("qwen3-std", "tokenizer_config.json", "{", "{\"pad_token\": \"a\", \"pad_token\": \"b\",", "pad_token"),
        ("qwen3-std", "tokenizer.json", "\"normalizer\":{", "\"normalizer\":{\"type\": \"NFC\", ", "type"),
        ("qwen3-std", "tokenizer.json", "\"model\":{", "\"model\":{\"vocab\": {}, ", "vocab"),
        ("qwen3-std", "tokenizer.json", "\"vocab\":{", "\"vocab\":{\"zz\": 5, \"zz\": 6, ", "zz"),
        ("qwen3-sharded-f16-mean", INDEX, "\"weight_map\": {", "\"weight_map\": {\"x\": \"y\", \"x\": \"z\", ", "x"),
        ("qwen3-sharded-f16-mean", INDEX, "\"weight_map\": {", "\"weight_map\": {}, \"weight_map\": {", "weight_map"),
    ] {
        let copy = with_text(name, file, from, to);
        copy.assert_refused(F16, REFUSED, &[&format!("{file}: "), key]);
        let output = common::converter(&copy.dir, F16).output().expect("the program runs");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(stderr.contains("twice") || stderr.contains("duplicate field"), "{file}: {stderr}");
    }
    with_header("{", "{\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},")
        .assert_refused(F16, REFUSED, &[WEIGHTS, "tensor x is named twice"]);
}
