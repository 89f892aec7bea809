//! Parity with the published converter: same metadata, and tensors that are equal byte for byte.

mod common;

use std::path::Path;

use bitnet_embed::gguf::{GgufFile, Value as GgufValue};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Keys that the published converter loses and that we add.
const ADDED: [&str; 4] =
    ["attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa", "attention.scale"];

#[test]
fn testdata_checkpoints_convert_to_the_published_converters_tensors() {
    for name in ["qwen3-bitnet", "qwen3-std", "qwen3-sharded-f16-mean", "gemma3-bitnet", "gemma3-std", "gemma3-ternary"]
    {
        let contract = common::workspace().join(format!("testdata/contract/{name}.json"));
        let contract: Value = serde_json::from_slice(&std::fs::read(contract).expect("a contract")).expect("JSON");
        for outtype in ["f32", "f16", "i2_s"] {
            check(&common::checkpoint(name), outtype, &[], &contract[outtype]);
        }
    }
}

#[test]
fn further_checkpoints_convert_to_the_published_converters_tensors() {
    let folder = common::workspace().join("../shared/fixtures/visible");
    let Ok(manifest) = std::fs::read(folder.join("manifest.json")) else {
        eprintln!("skipped: no further checkpoints beside this workspace");
        return;
    };
    let manifest: Vec<Value> = serde_json::from_slice(&manifest).expect("JSON");
    assert!(!manifest.is_empty());
    for contract in &manifest {
        let file = contract["file"].as_str().expect("a name");
        let (name, outtype) =
            file.strip_suffix(".gguf").and_then(|stem| stem.rsplit_once('.')).expect("name.type.gguf");
        // The published converter falls back to the mean where nothing is said; we ask.
        let pooling: &[&str] = if name.contains("nomodules") { &["--pooling", "mean"] } else { &[] };
        check(&folder.join(name), outtype, pooling, contract);
    }
}

fn check(checkpoint: &Path, outtype: &str, args: &[&str], contract: &Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.gguf");
    let mut command = common::converter(checkpoint, &["--outtype", outtype, "--force"]);
    let output = command.args(args).arg("--outfile").arg(&path).assert().success();
    assert_eq!(output.get_output().stdout, format!("{}\n", path.display()).as_bytes());

    let file = GgufFile::read(&path).expect("a valid file");
    let label = format!("{} {outtype}", checkpoint.display());
    assert_eq!(u64::from(file.version()), contract["version"], "{label}");
    assert_eq!(file.alignment() as u64, contract["alignment"], "{label}");
    check_metadata(&file, &contract["metadata"], &label);
    check_tensors(&file, contract["tensors"].as_array().expect("tensors"), &label);
    file.check_data().expect("valid data");
}

fn check_metadata(file: &GgufFile<impl AsRef<[u8]>>, contract: &Value, label: &str) {
    let contract = contract.as_object().expect("metadata");
    let added = |key: &str| ADDED.iter().any(|added| key.ends_with(&format!("gemma3.{added}")));
    let keys: Vec<&str> = file.metadata().keys().filter(|key| !added(key)).collect();
    assert_eq!(keys, contract_keys(contract), "{label}");
    for (key, expected) in contract {
        let value = file.metadata().value(key).expect("a key of the file");
        let context = format!("{label}: {key}");
        if let GgufValue::Array(array) = value
            && expected["sha256_raw"].is_string()
        {
            let mut raw = Vec::new();
            raw.extend(array.element_type().id().to_le_bytes());
            raw.extend((array.len() as u64).to_le_bytes());
            raw.extend(array.bytes());
            assert_eq!(array.len() as u64, expected["len"], "{context}");
            assert_eq!(sha256(&raw), expected["sha256_raw"], "{context}");
            continue;
        }
        let (kind, found) = match value {
            GgufValue::U32(value) => ("u32", json!(value)),
            GgufValue::F32(value) => ("f32", json!(f64::from(value))),
            GgufValue::Bool(value) => ("bool", json!(value)),
            GgufValue::Str(value) => ("str", json!(value)),
            other => panic!("{context}: unexpected {other:?}"),
        };
        assert_eq!((json!(kind), &found), (expected["type"].clone(), &expected["value"]), "{context}");
    }
}

/// The contract's keys in the order of the file. `serde_json` sorts objects, so the order is restated here once.
fn contract_keys(contract: &serde_json::Map<String, Value>) -> Vec<String> {
    let arch = contract["general.architecture"]["value"].as_str().expect("an architecture");
    let order = [
        "general.architecture general.name",
        "A.block_count A.context_length A.embedding_length A.feed_forward_length A.attention.head_count",
        "A.attention.head_count_kv A.vocab_size A.rope.dimension_count A.attention.key_length A.attention.value_length",
        "A.rope.freq_base A.attention.layer_norm_rms_epsilon general.file_type A.pooling_type",
        if arch == "qwen3" {
            "T.model T.pre T.tokens T.token_type T.merges T.eos_token_id T.padding_token_id T.eot_token_id \
             T.add_eos_token T.add_sep_token T.add_bos_token"
        } else {
            "T.model T.pre T.tokens T.scores T.token_type T.add_space_prefix T.bos_token_id T.eos_token_id \
             T.unknown_token_id T.padding_token_id T.add_bos_token T.add_eos_token T.add_sep_token"
        },
    ];
    let keys: Vec<String> = order
        .join(" ")
        .split_whitespace()
        .map(|key| match key.split_once('.') {
            Some(("A", rest)) => format!("{arch}.{rest}"),
            Some(("T", rest)) => format!("tokenizer.ggml.{rest}"),
            _ => key.to_owned(),
        })
        .collect();
    let mut sorted = keys.clone();
    sorted.sort();
    let mut expected: Vec<&String> = contract.keys().collect();
    expected.sort();
    assert_eq!(sorted.iter().collect::<Vec<_>>(), expected, "the order above misses a key");
    keys
}

fn check_tensors(file: &GgufFile<impl AsRef<[u8]>>, contract: &[Value], label: &str) {
    assert_eq!(file.tensors().len(), contract.len(), "{label}");
    for (tensor, expected) in file.tensors().iter().zip(contract) {
        // The manifests come in two spellings.
        let field = |index: usize, key: &str| {
            if expected.is_array() { expected[index].clone() } else { expected[key].clone() }
        };
        let context = format!("{label}: {}", tensor.name());
        assert_eq!(field(0, "name"), tensor.name(), "{context}");
        assert_eq!(field(1, "type"), tensor.type_name(), "{context}");
        assert_eq!(field(2, "shape"), json!(tensor.dims()), "{context}");
        assert_eq!(field(3, "offset"), tensor.offset(), "{context}");
        let data = file.data(tensor).expect("data");
        assert_eq!(field(4, "nbytes"), data.len(), "{context}");
        assert_eq!(field(5, "sha256"), sha256(data), "{context}");
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_demo_model_is_what_this_converter_makes_of_its_checkpoint() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = tempfile::tempdir().unwrap();
    let outfile = folder.path().join("demo.gguf");
    let mut options =
        converter::ConvertOptions::new(root.join("testdata/checkpoints/qwen3-bitnet"), converter::Outtype::I2S);
    options.outfile = Some(outfile.clone());
    converter::convert(&options, &mut ()).unwrap();
    let made = GgufFile::read(&outfile).unwrap();
    let demo = GgufFile::read(root.join("bitnet-embed/assets/demo.gguf")).unwrap();
    assert_eq!(made.tensors().len(), demo.tensors().len());
    for tensor in demo.tensors() {
        let other = made.tensor(tensor.name()).unwrap();
        assert_eq!(made.data(other).unwrap(), demo.data(tensor).unwrap(), "{}", tensor.name());
    }
    // The metadata differ in the name of the folder alone.
    let keys: Vec<&str> = demo.metadata().keys().filter(|key| *key != "general.name").collect();
    for key in keys {
        assert_eq!(format!("{:?}", made.metadata().value(key)), format!("{:?}", demo.metadata().value(key)), "{key}");
    }
}
