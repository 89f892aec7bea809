//! Damaged, incomplete and foreign checkpoints: each ends with its exit code and one line that says what and where,
//! an older output stays as it was, and nothing else is left behind.

mod common;

use common::{Copy, converter};
use serde_json::json;

const F16: &[&str] = &["--outtype", "f16"];
const REFUSED: i32 = 3;
const UNSUPPORTED: i32 = 4;
const NOT_WRITTEN: i32 = 5;
const WEIGHTS: &str = "model.safetensors";
const SHARDED: &str = "qwen3-sharded-f16-mean";
const INDEX: &str = "model.safetensors.index.json";

/// A copy of a checkpoint with an edited safetensors file, as bytes.
fn with_weights(edit: impl FnOnce(&mut Vec<u8>)) -> Copy {
    let copy = Copy::of("qwen3-std");
    let mut bytes = copy.read(WEIGHTS);
    edit(&mut bytes);
    copy.write(WEIGHTS, bytes);
    copy
}

/// Replaces a piece of the safetensors header by one of the same length.
fn with_header(from: &str, to: &str) -> Copy {
    assert_eq!(from.len(), to.len());
    with_weights(|bytes| {
        let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).expect("in the header");
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    })
}

#[test]
fn a_truncated_file_is_refused() {
    for keep in [0, 7, 8, 100] {
        with_weights(|bytes| bytes.truncate(keep)).assert_refused(F16, REFUSED, &[WEIGHTS, "download it again"]);
    }
    let copy = with_weights(|bytes| bytes.truncate(bytes.len() - 1));
    copy.assert_refused(F16, REFUSED, &[WEIGHTS, "bytes of data but the file has", "download it again"]);
}

#[test]
fn a_header_length_that_lies_is_refused() {
    for length in [0, 1, 1 << 20, u64::MAX, u64::MAX - 7] {
        let copy = with_weights(|bytes| bytes[..8].copy_from_slice(&length.to_le_bytes()));
        copy.assert_refused(F16, REFUSED, &[WEIGHTS, "header"]);
    }
}

#[test]
fn a_header_that_is_no_json_is_refused() {
    with_weights(|bytes| bytes[8] = b'[').assert_refused(F16, REFUSED, &[WEIGHTS, "safetensors header"]);
    with_weights(|bytes| bytes[20] = 0xFF).assert_refused(F16, REFUSED, &[WEIGHTS, "safetensors header"]);
}

#[test]
fn offsets_that_leave_the_file_overlap_or_run_backwards_are_refused() {
    let parts = [WEIGHTS, "the header is damaged"];
    let copy = Copy::of("qwen3-std");
    let header_end = 8 + u64::from_le_bytes(copy.read(WEIGHTS)[..8].try_into().expect("8 bytes")) as usize;
    let header = String::from_utf8(copy.read(WEIGHTS)[8..header_end].to_vec()).expect("UTF-8");
    // The offsets of the last tensor in the header, whatever it is.
    let start = header.rfind("\"data_offsets\":[").expect("offsets") + 16;
    let end = start + header[start..].find(']').expect("offsets");
    let old = &header[start..end];
    let (from, to) = old.split_once(',').expect("two offsets");
    for new in
        [format!("{to},{from}"), format!("{from},{}", "9".repeat(to.len())), format!("{},{to}", "1".repeat(from.len()))]
    {
        with_header(&format!("[{old}]"), &format!("[{new}]")).assert_refused(F16, REFUSED, &parts);
    }
}

#[test]
fn a_tensor_named_twice_is_refused() {
    let copy = Copy::of("qwen3-std");
    copy.write("more.safetensors", copy.read(WEIGHTS));
    copy.remove(WEIGHTS);
    copy.write("model-1.safetensors", copy.read("more.safetensors"));
    copy.assert_refused(F16, REFUSED, &["model-1.safetensors", "more.safetensors", "again in"]);
}

#[test]
fn an_index_that_leaves_the_folder_is_refused() {
    let outside = ["../x.safetensors", "/etc/passwd", "", ".", "a/../../x.safetensors", "..\\x.safetensors"];
    for file in outside {
        let copy = Copy::of(SHARDED);
        copy.edit_json(INDEX, |index| index["weight_map"]["model.norm.weight"] = json!(file));
        copy.assert_refused(F16, REFUSED, &[INDEX, "model.norm.weight", "not a file inside the folder"]);
    }
}

#[test]
fn an_index_at_odds_with_the_files_is_refused() {
    let copy = Copy::of(SHARDED);
    copy.remove("model-00002-of-00002.safetensors");
    copy.assert_refused(F16, REFUSED, &["model-00002-of-00002.safetensors", "missing"]);

    let copy = Copy::of(SHARDED);
    copy.edit_json(INDEX, |index| index["weight_map"]["x.weight"] = json!("model-00001-of-00002.safetensors"));
    copy.assert_refused(F16, REFUSED, &["model-00001-of-00002.safetensors", "x.weight", INDEX]);

    let copy = Copy::of(SHARDED);
    copy.edit_json(INDEX, |index| {
        index["weight_map"].as_object_mut().expect("an object").remove("model.norm.weight");
    });
    copy.assert_refused(F16, REFUSED, &["model.norm.weight", "not listed", INDEX]);

    let copy = Copy::of(SHARDED);
    for (text, part) in [
        ("{\"weight_map\": 3}", "weight_map: invalid type: integer `3`, expected an object"),
        ("{\"weight_map\": {}}", "lists no tensor"),
        ("{}", "missing field `weight_map`"),
        ("3", "expected an object with a weight_map"),
    ] {
        copy.write(INDEX, text);
        copy.assert_refused(F16, REFUSED, &[INDEX, part]);
    }
}

#[test]
fn files_beside_an_index_are_not_looked_at() {
    let copy = Copy::of(SHARDED);
    copy.write("adapter_model.safetensors", "nothing of the kind");
    copy.write("optimizer.safetensors", "");
    converter(&copy.dir, F16).arg("--outfile").arg(copy.output()).assert().success();
}

#[test]
fn a_folder_without_weights_is_refused() {
    let copy = Copy::of("qwen3-std");
    copy.remove(WEIGHTS);
    copy.assert_refused(F16, REFUSED, &["no model.safetensors"]);
}

#[test]
fn a_missing_tensor_is_refused() {
    for tensor in ["model.norm.weight", "model.layers.1.mlp.down_proj.weight", "model.embed_tokens.weight"] {
        let copy = Copy::of("qwen3-std");
        copy.edit_tensors(WEIGHTS, |tensors| assert!(tensors.0.remove(tensor).is_some()));
        copy.assert_refused(F16, REFUSED, &["is missing", "1 missing in all"]);
    }
    let copy = Copy::of("qwen3-std");
    copy.edit_json("config.json", |config| config["num_hidden_layers"] = json!(4096));
    copy.assert_refused(F16, REFUSED, &["is missing", "num_hidden_layers"]);
}

#[test]
fn a_tensor_without_a_place_is_refused() {
    let foreign = ["model.layers.0.self_attn.q_proj.bias", "model.layers.2.input_layernorm.weight", "score.weight"];
    for name in foreign {
        let copy = Copy::of("qwen3-std");
        copy.edit_tensors(WEIGHTS, |tensors| {
            tensors.0.insert(name.to_owned(), ("F32".to_owned(), vec![1], vec![0; 4]));
        });
        copy.assert_refused(F16, REFUSED, &[name, "no place"]);
    }
    let copy = Copy::of("qwen3-std");
    copy.edit_tensors(WEIGHTS, |tensors| {
        let norm = tensors.0["model.norm.weight"].clone();
        tensors.0.insert("norm.weight".to_owned(), norm);
    });
    copy.assert_refused(F16, REFUSED, &["model.norm.weight", "norm.weight are both output_norm.weight"]);
}

#[test]
fn names_from_files_cannot_break_the_line_or_drive_the_terminal() {
    let copy = Copy::of("qwen3-std");
    copy.edit_tensors(WEIGHTS, |tensors| {
        tensors.0.insert("a\nerror: b\u{1b}[2J".to_owned(), ("F32".to_owned(), vec![1], vec![0; 4]));
    });
    copy.assert_refused(F16, REFUSED, &["a\\nerror: b\\u{1b}[2J"]);
}

#[test]
fn a_shape_at_odds_with_the_config_is_refused() {
    let copy = Copy::of("qwen3-std");
    copy.edit_json("config.json", |config| config["intermediate_size"] = json!(256));
    copy.assert_refused(F16, REFUSED, &["mlp.down_proj.weight", "expected shape [64, 256]", "found [64, 128]"]);

    let copy = Copy::of("qwen3-std");
    copy.edit_tensors(WEIGHTS, |tensors| tensors.0.get_mut("model.norm.weight").expect("there").1 = vec![8, 8]);
    copy.assert_refused(F16, REFUSED, &["model.norm.weight", "expected shape [64]", "found [8, 8]"]);
}

#[test]
fn values_that_are_no_numbers_are_refused_by_position() {
    for (bits, shown) in [([0xC0, 0x7F], "NaN"), ([0x80, 0x7F], "inf"), ([0x80, 0xFF], "-inf")] {
        for outtype in ["f32", "f16", "i2_s"] {
            let copy = Copy::of("qwen3-std");
            copy.edit_tensors(WEIGHTS, |tensors| {
                let values = &mut tensors.0.get_mut("model.layers.0.mlp.up_proj.weight").expect("there").2;
                values[2 * 77..2 * 77 + 2].copy_from_slice(&bits);
            });
            let parts = [WEIGHTS, "layers.0.mlp.up_proj.weight", "value 77 is", shown];
            copy.assert_refused(&["--outtype", outtype, "--force"], REFUSED, &parts);
        }
    }
}

#[test]
fn values_too_large_for_the_type_are_refused_by_position() {
    let large = || {
        let copy = Copy::of("qwen3-std");
        copy.edit_tensors(WEIGHTS, |tensors| {
            let table = &mut tensors.0.get_mut("model.embed_tokens.weight").expect("there").2;
            // 65536 as bf16; the largest f16 is 65504.
            table[2 * 5..2 * 5 + 2].copy_from_slice(&[0x80, 0x47]);
        });
        copy
    };
    let parts = ["model.embed_tokens.weight", "value 5 is 65536", "f16", "--outtype f32"];
    large().assert_refused(F16, REFUSED, &parts);
    large().assert_refused(&["--outtype", "i2_s", "--force"], REFUSED, &parts);
    let copy = large();
    converter(&copy.dir, &["--outtype", "f32"]).arg("--outfile").arg(copy.output()).assert().success();

    let copy = Copy::of("qwen3-std");
    copy.edit_tensors(WEIGHTS, |tensors| {
        let norm = tensors.0.get_mut("model.norm.weight").expect("there");
        let mut values = vec![1.0_f64; 64];
        values[63] = 1e300;
        *norm = ("F64".to_owned(), vec![64], values.iter().flat_map(|value| value.to_le_bytes()).collect());
    });
    copy.assert_refused(
        &["--outtype", "f32"],
        REFUSED,
        &["model.norm.weight", "value 63 is", "beyond the largest f32"],
    );
}

#[test]
fn a_dtype_that_is_no_float_is_refused() {
    let copy = Copy::of("qwen3-std");
    copy.edit_tensors(WEIGHTS, |tensors| {
        *tensors.0.get_mut("model.norm.weight").expect("there") = ("U8".to_owned(), vec![64], vec![1; 64]);
    });
    copy.assert_refused(F16, REFUSED, &["model.norm.weight", "found U8", "unquantized"]);
}

#[test]
fn ternary_weights_of_a_model_that_is_no_bitnet_need_force() {
    let i2_s = ["--outtype", "i2_s"];
    Copy::of("qwen3-std").assert_refused(&i2_s, REFUSED, &["no input norm", "attn_k_norm_in", "--force"]);
    let copy = Copy::of("qwen3-bitnet");
    converter(&copy.dir, &i2_s).arg("--outfile").arg(copy.output()).assert().success();
}

#[test]
fn ternary_weights_that_are_not_whole_blocks_are_refused() {
    let copy = Copy::of("qwen3-std");
    copy.edit_json("config.json", |config| config["intermediate_size"] = json!(97));
    copy.edit_tensors(WEIGHTS, |tensors| {
        for (name, (_, shape, bytes)) in &mut tensors.0 {
            if name.contains("mlp") {
                *shape = if name.contains("down") { vec![64, 97] } else { vec![97, 64] };
                bytes.truncate(64 * 97 * 2);
            }
        }
    });
    let parts = ["mlp.down_proj.weight", "64 x 97", "--outtype f16"];
    copy.assert_refused(&["--outtype", "i2_s", "--force"], REFUSED, &parts);
    converter(&copy.dir, F16).arg("--outfile").arg(copy.output()).assert().success();
}

#[test]
fn the_pooling_must_be_known() {
    let copy = Copy::of("qwen3-std");
    copy.remove("modules.json");
    copy.assert_refused(F16, REFUSED, &["--pooling last|mean|cls"]);
    converter(&copy.dir, F16).args(["--pooling", "cls", "--outfile"]).arg(copy.output()).assert().success();

    let copy = Copy::of("qwen3-std");
    copy.edit_json("modules.json", |modules| modules[2]["type"] = json!("sentence_transformers.models.Dense"));
    copy.assert_refused(F16, UNSUPPORTED, &["modules.json", "models.Dense"]);
}

#[test]
fn other_models_are_refused_by_the_key_that_makes_them_different() {
    let cases = [
        ("model_type", json!("llama")),
        ("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0})),
        ("use_sliding_window", json!(true)),
        ("hidden_act", json!("gelu")),
        ("attention_bias", json!(true)),
    ];
    for (key, value) in cases {
        let copy = Copy::of("qwen3-std");
        copy.edit_json("config.json", |config| config[key] = value);
        copy.assert_refused(F16, UNSUPPORTED, &["config.json", "not supported"]);
    }
}

#[test]
fn damaged_json_is_refused_by_file() {
    for file in ["config.json", "modules.json", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json"] {
        for text in ["", "{", "[", "null", "3", "{\"a\": \u{1}}"] {
            let copy = Copy::of("gemma3-std");
            copy.write(file, text);
            let part = &format!("{file}: ");
            copy.assert_refused(F16, REFUSED, &[part]);
        }
    }
    for file in ["config.json", "tokenizer.json"] {
        let copy = Copy::of("gemma3-std");
        copy.remove(file);
        copy.assert_refused(F16, REFUSED, &[file]);
    }
}

#[test]
fn sizes_that_no_model_has_are_refused() {
    for (key, value) in [
        ("vocab_size", json!(u64::MAX)),
        ("vocab_size", json!(1 << 26)),
        ("hidden_size", json!(0)),
        ("num_hidden_layers", json!(u64::MAX)),
        ("num_attention_heads", json!(-1)),
        ("head_dim", json!(1e300)),
        ("rms_norm_eps", json!("x")),
    ] {
        let copy = Copy::of("qwen3-std");
        copy.edit_json("config.json", |config| config[key] = value.clone());
        copy.assert_refused(F16, REFUSED, &[]);
    }
}

#[test]
fn tokenizers_that_gguf_cannot_express_are_refused() {
    type Edit = fn(&mut serde_json::Value);
    let cases: [(&str, Edit, &str); 9] = [
        ("qwen3-std", |t| t["model"]["type"] = json!("WordPiece"), "model.type"),
        ("qwen3-std", |t| t["normalizer"] = json!({"type": "Lowercase"}), "normalizer"),
        ("qwen3-std", |t| t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!("\\w+"), "pattern"),
        ("qwen3-std", |t| t["model"]["ignore_merges"] = json!(true), "ignore_merges"),
        ("qwen3-std", |t| t["added_tokens"][0]["lstrip"] = json!(true), "<|endoftext|>"),
        ("qwen3-std", |t| t["pre_tokenizer"] = json!({"type": "Whitespace"}), "pre_tokenizer"),
        ("gemma3-std", |t| t["normalizer"] = json!({"type": "NFKC"}), "normalizer"),
        ("gemma3-std", |t| t["pre_tokenizer"] = json!({"type": "ByteLevel"}), "pre_tokenizer"),
        ("gemma3-std", |t| t["post_processor"]["single"] = json!([]), "post_processor"),
    ];
    for (name, edit, part) in cases {
        let copy = Copy::of(name);
        copy.edit_json("tokenizer.json", edit);
        copy.assert_refused(F16, UNSUPPORTED, &["tokenizer.json", part]);
    }
}

#[test]
fn what_only_the_reader_of_a_whole_tokenizer_does_not_know_is_unsupported_as_well() {
    let copy = Copy::of("gemma3-std");
    copy.edit_json("tokenizer.json", |tokenizer| tokenizer["version"] = json!("2.0"));
    let parts = ["tokenizer.json", "version is \"2.0\"", "supported: \"1.0\""];
    copy.assert_refused(&["--outtype", "f16", "--embed-tokenizer"], UNSUPPORTED, &parts);
    converter(&copy.dir, F16).arg("--outfile").arg(copy.output()).assert().success();
    let paths = [copy.output(), copy.dir.clone()].map(|path| path.display().to_string());
    let (_, stderr) = common::run(["verify", "--no-embeddings", &paths[0], &paths[1]], UNSUPPORTED);
    assert!(stderr.contains(parts[1]), "{stderr}");
}

#[test]
fn tokenizers_that_contradict_themselves_are_refused() {
    type Edit = fn(&mut serde_json::Value);
    let cases: [(Edit, &str); 5] = [
        (|t| t["model"]["vocab"]["zz top"] = json!(5), "same id 5"),
        (|t| t["model"]["vocab"]["zz top"] = json!(768), "vocab_size"),
        (|t| t["model"]["merges"][3] = json!(["zz", "top"]), "merges[3]"),
        (|t| t["model"]["merges"][3] = json!("a b c"), "a b c"),
        (|t| t["post_processor"]["processors"][1]["single"][1]["SpecialToken"]["id"] = json!("<x>"), "<x>"),
    ];
    for (edit, part) in cases {
        let copy = Copy::of("qwen3-std");
        copy.edit_json("tokenizer.json", edit);
        copy.assert_refused(F16, REFUSED, &["tokenizer.json", part]);
    }
    let copy = Copy::of("qwen3-std");
    copy.edit_json("tokenizer_config.json", |config| config["pad_token"] = json!("<nowhere>"));
    copy.assert_refused(F16, REFUSED, &["pad_token", "<nowhere>"]);
}

#[test]
fn the_output_never_replaces_an_input() {
    for file in [WEIGHTS, "config.json", "tokenizer.json"] {
        let copy = Copy::of("qwen3-std");
        let before = copy.read(file);
        let result = converter(&copy.dir, F16).arg("--outfile").arg(copy.dir.join("../qwen3-std").join(file)).assert();
        let stderr = String::from_utf8(result.code(NOT_WRITTEN).get_output().stderr.clone()).expect("UTF-8");
        assert!(stderr.contains("choose another output path"), "{stderr}");
        assert_eq!(copy.read(file), before);
    }
}

#[test]
fn an_output_that_cannot_be_written_has_its_own_code() {
    let copy = Copy::of("qwen3-std");
    let result = converter(&copy.dir, F16).arg("--outfile").arg(copy.dir.join("no/such/folder.gguf")).assert();
    result.code(NOT_WRITTEN);
    // A folder is in the way.
    let result = converter(&copy.dir, F16).arg("--outfile").arg(&copy.dir).assert();
    result.code(NOT_WRITTEN);
}
