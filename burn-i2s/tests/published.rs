//! Packed bytes against those of the published converter, and sums against traces of an independent forward.

use burn_i2s::gemm::{Activations, ternary_accumulate};
use burn_i2s::ggml::GgmlType;
use burn_i2s::isa::Isa;
use burn_i2s::layout;
use burn_i2s::matrix::TernaryMatrix;
use burn_i2s::pack::{repack_rows, ternarize_and_pack, ternarize_and_pack_rows};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::PathBuf;

fn testdata(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(path)
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(testdata(path)).unwrap()).unwrap()
}

/// The weight files of a checkpoint.
fn checkpoint(model: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = std::fs::read_dir(testdata(&format!("checkpoints/{model}")))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
        .collect();
    files.sort();
    files.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// The values and the `[rows, cols]` shape of the tensor `name`, with or without the prefix `model.`.
fn tensor(files: &[Vec<u8>], name: &str) -> (Vec<f32>, usize, usize) {
    for file in files {
        let tensors = SafeTensors::deserialize(file).unwrap();
        let Ok(view) = tensors.tensor(name).or_else(|_| tensors.tensor(&format!("model.{name}"))) else { continue };
        let kind = match view.dtype() {
            Dtype::BF16 => GgmlType::BF16,
            Dtype::F16 => GgmlType::F16,
            other => panic!("{name} is {other:?}"),
        };
        let mut values = vec![0.0; view.shape().iter().product()];
        kind.decode_row(view.data(), &mut values);
        return (values, view.shape()[0], view.shape()[1]);
    }
    panic!("no tensor {name}");
}

/// `blk.3.attn_q.weight` to `layers.3.self_attn.q_proj.weight`.
fn checkpoint_name(gguf_name: &str) -> String {
    let parts: Vec<_> = gguf_name.split('.').collect();
    let projection = match parts[2] {
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        other => panic!("no projection is named {other}"),
    };
    format!("layers.{}.{projection}.weight", parts[1])
}

/// The I2_S tensors of a contract: name, rows, columns, offset in the file, bytes, SHA-256 and scale.
fn i2s_tensors(contract: &Value) -> Vec<(String, usize, usize, usize, usize, String, String)> {
    let start = contract["data_start"].as_u64().unwrap();
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let tensors = contract["tensors"].as_array().unwrap().iter();
    tensors
        .filter(|tensor| tensor[1] == "I2_S")
        .map(|t| {
            let offset = start as usize + number(&t[3]);
            (text(&t[0]), number(&t[2][1]), number(&t[2][0]), offset, number(&t[4]), text(&t[5]), text(&t[6]))
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// Packs every I2_S tensor of a model from its checkpoint and compares with the contract's hash, length and scale;
/// returns how many there were.
fn check_contract(model: &str) -> usize {
    let files = checkpoint(model);
    let tensors = i2s_tensors(&json(&format!("contract/{model}.json"))["i2_s"]);
    for (name, rows, cols, _, len, sha256, scale) in &tensors {
        let (values, found_rows, found_cols) = tensor(&files, &checkpoint_name(name));
        assert_eq!((found_rows, found_cols), (*rows, *cols), "{model} {name}");
        let bytes = ternarize_and_pack(&values).unwrap();
        assert_eq!(bytes.len(), *len, "{model} {name}");
        assert_eq!(hex(&bytes[len - layout::TAIL_BYTES..][..4]), *scale, "{model} {name}");
        assert_eq!(hex(&Sha256::digest(&bytes)), *sha256, "{model} {name}");
        // From the file's form or straight from the values: kernels read the same bytes.
        assert_eq!(repack_rows(&bytes, *rows, *cols), ternarize_and_pack_rows(&values, *rows, *cols), "{model} {name}");
    }
    tensors.len()
}

#[test]
fn bitnet_checkpoints_pack_to_the_published_bytes() {
    for model in ["qwen3-bitnet", "gemma3-bitnet"] {
        assert_eq!(check_contract(model), 14, "{model}");
        let gguf = std::fs::read(testdata(&format!("gguf/{model}.i2_s.gguf"))).unwrap();
        let files = checkpoint(model);
        for (name, rows, cols, offset, len, ..) in i2s_tensors(&json(&format!("contract/{model}.json"))["i2_s"]) {
            let (values, ..) = tensor(&files, &checkpoint_name(&name));
            let stored = &gguf[offset..][..len];
            assert!(ternarize_and_pack(&values).unwrap() == stored, "{model} {name}");
            assert_eq!(TernaryMatrix::new(stored, rows, cols).unwrap().first_invalid_code(), None);
        }
    }
    assert_eq!(check_contract("gemma3-ternary"), 7);
}

#[test]
fn blocks_that_straddle_rows_pack_to_the_published_bytes() {
    assert_eq!(check_contract("qwen3-std"), 14);
    assert_eq!(check_contract("gemma3-std"), 14);
    assert_eq!(check_contract("qwen3-sharded-f16-mean"), 7);
}

#[test]
fn traced_codes_give_the_traced_sums() {
    for model in ["qwen3-bitnet", "gemma3-bitnet", "gemma3-ternary"] {
        let golden = json(&format!("goldens/{model}.json"));
        let points = golden["trace"]["points"].as_object().unwrap();
        let files = checkpoint(model);
        let ints = |point: &Value| -> Vec<i32> {
            let data = point["data"].as_array().unwrap().iter();
            data.map(|value| value.as_f64().unwrap() as i32).collect()
        };
        let mut projections = 0;
        for (name, point) in points {
            let Some(projection) = name.strip_prefix("L0.").and_then(|name| name.strip_suffix(".int8")) else {
                continue;
            };
            let expected = ints(&points[&format!("L0.{projection}.acc")]);
            let (values, rows, cols) = tensor(&files, &format!("layers.0.{projection}.weight"));
            assert!(cols % layout::BLOCK == 0, "the trace's rows need no padding");
            let codes: Vec<i8> = ints(point).into_iter().map(|code| i8::try_from(code).unwrap()).collect();
            let sums: Vec<i32> = codes.chunks(cols).map(|row| row.iter().map(|&x| i32::from(x)).sum()).collect();
            let scales = vec![1.0; sums.len()];
            let bytes = ternarize_and_pack_rows(&values, rows, cols).unwrap();
            let w = TernaryMatrix::new(&bytes, rows, cols).unwrap();
            let x = Activations::new(&codes, &sums, &scales, cols).unwrap();
            for &isa in Isa::available() {
                let mut acc = vec![0; expected.len()];
                ternary_accumulate(isa, &x, &w, &mut acc).unwrap();
                assert_eq!(acc, expected, "{model} {projection} on {isa}");
            }
            projections += 1;
        }
        assert_eq!(projections, 7, "{model}");
    }
}
