//! The types that table and norms can have, and what a conversion says or refuses about values.

mod common;

use bitnet_embed::gguf::{GgufFile, TensorInfo};
use burn_i2s::ggml::GgmlType;
use common::{Copy, converter, run};
use half::{bf16, f16};
use serde_json::json;

/// Converts a copy; returns the file and what was said.
fn convert(copy: &Copy, args: &[&str]) -> (GgufFile<Vec<u8>>, String) {
    let output = converter(&copy.dir, args).arg("--outfile").arg(copy.output()).assert().success();
    let stderr = String::from_utf8(output.get_output().stderr.clone()).expect("UTF-8");
    (GgufFile::read(copy.output()).expect("a valid file"), stderr)
}

fn types(file: &GgufFile<Vec<u8>>) -> [Option<GgmlType>; 4] {
    ["token_embd.weight", "output_norm.weight", "blk.0.attn_q_norm_in.weight", "blk.0.attn_q.weight"]
        .map(|name| file.tensor(name).and_then(TensorInfo::ggml_type))
}

#[test]
fn table_and_norms_take_the_types_asked_for_and_nothing_else_changes() {
    use GgmlType::{BF16, F16, F32, I2_S, Q8_0};
    let copy = Copy::of("qwen3-bitnet");
    for (args, expected) in [
        (&["--outtype", "i2_s"][..], [F16, F16, F16, I2_S]),
        (&["--outtype", "i2_s", "--embedding-type", "q8_0"], [Q8_0, F16, F16, I2_S]),
        (&["--outtype", "i2_s", "--embedding-type", "bf16", "--norm-type", "f32"], [BF16, F32, F32, I2_S]),
        (&["--outtype", "bf16"], [BF16, F32, F32, BF16]),
        (&["--outtype", "bf16", "--norm-type", "f16"], [BF16, F16, F16, BF16]),
        (&["--outtype", "f32", "--embedding-type", "f16"], [F16, F32, F32, F32]),
    ] {
        let (file, _) = convert(&copy, args);
        assert_eq!(types(&file), expected.map(Some), "{args:?}");
    }
    // The published settings, spelled out, are the default.
    let plain = convert(&copy, &["--outtype", "i2_s"]).0.into_owner();
    let spelled =
        convert(&copy, &["--outtype", "i2_s", "--norm-type", "f16", "--embedding-type", "f16"]).0.into_owner();
    assert!(plain == spelled);
}

#[test]
fn bf16_of_a_bf16_checkpoint_is_the_checkpoint() {
    let copy = Copy::of("qwen3-std");
    let (file, _) = convert(&copy, &["--outtype", "bf16"]);
    let source = common::Tensors::parse(&copy.read("model.safetensors"));
    for (ours, theirs) in [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"),
    ] {
        assert_eq!(file.data(file.tensor(ours).expect("there")).expect("data"), source.0[theirs].2, "{ours}");
    }
    assert_eq!(file.metadata().u32("general.file_type").expect("a number"), Some(32));
}

#[test]
fn f32_norms_of_gemma_are_exact() {
    let (file, _) = convert(&Copy::of("gemma3-bitnet"), &["--outtype", "i2_s", "--norm-type", "f32"]);
    let (exact, _) = convert(&Copy::of("gemma3-bitnet"), &["--outtype", "f32"]);
    for name in ["output_norm.weight", "blk.1.post_ffw_norm.weight"] {
        let data = |file: &GgufFile<Vec<u8>>| file.data(file.tensor(name).expect("there")).expect("data").to_vec();
        assert_eq!(data(&file), data(&exact));
    }
}

#[test]
fn six_bits_need_rows_of_256_values() {
    let copy = Copy::of("qwen3-bitnet");
    copy.assert_refused(&["--outtype", "i2_s", "--embedding-type", "q6_k"], 3, &["rows of 128", "256", "q8_0"]);
}

#[test]
fn name_and_tokenizer_are_stored_when_asked_for() {
    let copy = Copy::of("qwen3-std");
    let (file, _) = convert(&copy, &["--outtype", "f16", "--name", "mine", "--embed-tokenizer"]);
    assert_eq!(file.metadata().str("general.name").expect("a string"), Some("mine"));
    let json = file.metadata().str("tokenizer.huggingface.json").expect("a string").expect("there");
    assert_eq!(json.as_bytes(), copy.read("tokenizer.json"));
    let tokenizer = bitnet_embed::tokenizer::Tokenizer::from_gguf(file.metadata()).expect("a tokenizer");
    assert_eq!(tokenizer.encode("a").expect("ids").last(), Some(&760));
}

#[test]
fn values_beyond_a_type_widen_their_tensor_when_asked_to() {
    let copy = Copy::of("qwen3-std");
    copy.edit_tensors("model.safetensors", |tensors| {
        let table = &mut tensors.0.get_mut("model.embed_tokens.weight").expect("there").2;
        table[2 * 5..2 * 5 + 2].copy_from_slice(&bf16::from_f32(1e7).to_le_bytes());
    });
    let parts = ["model.embed_tokens.weight", "value 5 is 10027008", "f16", "--auto-widen"];
    copy.assert_refused(&["--outtype", "f16"], 3, &parts);
    copy.assert_refused(&["--outtype", "f16", "--embedding-type", "q8_0"], 3, &["value 5 is 10027008", "q8_0"]);
    let (file, said) = convert(&copy, &["--outtype", "f16", "--auto-widen"]);
    assert_eq!(types(&file)[0], Some(GgmlType::F32));
    assert_eq!(types(&file)[3], Some(GgmlType::F16), "the others stay as they are");
    assert!(said.contains("token_embd.weight has values beyond f16 and stays f32"), "{said}");
    let (file, _) = convert(&copy, &["--outtype", "f16", "--embedding-type", "bf16"]);
    assert_eq!(types(&file)[0], Some(GgmlType::BF16), "bf16 holds them");
    // What is no number stays refused.
    copy.edit_tensors("model.safetensors", |tensors| {
        let table = &mut tensors.0.get_mut("model.embed_tokens.weight").expect("there").2;
        table[2 * 9..2 * 9 + 2].copy_from_slice(&bf16::NAN.to_le_bytes());
    });
    copy.assert_refused(&["--outtype", "f16", "--auto-widen"], 3, &["value 9 is NaN"]);
}

#[test]
fn values_that_become_zero_are_counted_in_one_line_a_tensor() {
    let copy = Copy::of("qwen3-std");
    let small = [1e-9, -2e-8, 0.0, -0.0, 6e-8];
    copy.edit_tensors("model.safetensors", |tensors| {
        for name in ["model.norm.weight", "model.embed_tokens.weight"] {
            for (bytes, value) in tensors.0.get_mut(name).expect("there").2.as_chunks_mut().0.iter_mut().zip(small) {
                *bytes = bf16::from_f32(value).to_le_bytes();
            }
        }
    });
    let (file, said) = convert(&copy, &["--outtype", "f16"]);
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("became 0")).collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines.iter().all(|line| line.contains("2 value(s) too small for f16")), "{said}");
    let data = file.data(file.tensor("output_norm.weight").expect("there")).expect("data");
    assert_eq!(data[4 * 2..5 * 2], f16::from_f32(6e-8).to_le_bytes(), "what f16 can hold is kept");
    assert!(!convert(&copy, &["--outtype", "f32"]).1.contains("became 0"));
}

#[test]
fn weights_that_are_ternary_already_are_reported() {
    let (_, said) = convert(&Copy::of("gemma3-ternary"), &["--outtype", "i2_s"]);
    assert!(said.contains("6 projection(s) were ternary already"), "{said}");
    assert!(!convert(&Copy::of("gemma3-bitnet"), &["--outtype", "i2_s"]).1.contains("already"));
}

#[test]
fn a_model_with_norms_but_without_ternary_training_is_refused() {
    let copy = Copy::of("qwen3-bitnet");
    copy.edit_tensors("model.safetensors", |tensors| {
        let (_, _, data) = tensors.0.get_mut("layers.1.mlp.up_proj.weight").expect("there");
        // A few weights that carry nearly all of the norm.
        for bytes in data.as_chunks_mut::<2>().0.iter_mut().step_by(500) {
            *bytes = bf16::from_f32(10.0).to_le_bytes();
        }
    });
    let parts = ["layers.1.mlp.up_proj.weight", "not trained as a BitNet", "--force", "model.safetensors"];
    copy.assert_refused(&["--outtype", "i2_s"], 3, &parts);
    convert(&copy, &["--outtype", "i2_s", "--force"]);
    convert(&copy, &["--outtype", "f16"]);
}

#[test]
fn projections_without_a_norm_are_counted_where_they_are_made_ternary_by_force() {
    let copy = Copy::of("qwen3-std");
    let (float, said) = convert(&copy, &["--outtype", "f16"]);
    assert!(!said.contains("no input norm"), "{said}");
    let floats = copy.output().with_file_name("floats.gguf");
    std::fs::write(&floats, float.into_owner()).expect("written");
    let (_, from_checkpoint) = convert(&copy, &["--outtype", "i2_s", "--force"]);
    let out = copy.output();
    let args = ["convert", floats.to_str().expect("UTF-8"), "--outtype", "i2_s", "--force", "--outfile"];
    let (_, from_gguf) = run([&args[..], &[out.to_str().expect("UTF-8")]].concat(), 0);
    for said in [from_checkpoint, from_gguf] {
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("no input norm")).collect();
        assert_eq!(lines.len(), 1, "{said}");
        assert!(lines[0].starts_with("note: 14 projection(s) have no input norm, blk.0."), "{said}");
    }
}

#[test]
fn a_table_of_other_rows_is_explained_with_three_numbers() {
    let copy = Copy::of("qwen3-std");
    copy.edit_json("config.json", |config| config["vocab_size"] = json!(1024));
    copy.assert_refused(&["--outtype", "f16"], 3, &["is 1024", "has 768 rows", "needs 765"]);
}

#[test]
fn what_training_leaves_beside_a_model_is_ignored_and_named() {
    let copy = Copy::of("qwen3-std");
    let weights = copy.read("model.safetensors");
    copy.remove("model.safetensors");
    copy.write("weights.safetensors", weights);
    copy.write("adapter_model.safetensors", "nothing of the kind");
    copy.write("optimizer.safetensors", "");
    let (_, said) = convert(&copy, &["--outtype", "f16"]);
    for file in ["adapter_model.safetensors", "optimizer.safetensors"] {
        assert!(said.lines().any(|line| line.contains(file) && line.contains("ignored")), "{said}");
    }
}

#[test]
fn the_help_says_what_each_choice_gains() {
    let (help, _) = run(["convert", "--help"], 0);
    for part in ["q8_0", "q6_k", "bf16", "exact", "published", "--norm-type", "--embed-tokenizer", "--auto-widen"] {
        assert!(help.contains(part), "no {part:?} in the help");
    }
}
