//! The files of the published converter and of the `gguf` Python package: what is read from them is what they hold, and
//! writing that again gives the same bytes.

use std::fs;
use std::path::{Path, PathBuf};

use bitnet_embed::gguf::{Array, GgufFile, GgufWriter, MappedFile, OwnedArray, OwnedValue, Value};
use burn_i2s::ggml::GgmlType;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

const MODELS: [&str; 2] = ["qwen3-bitnet", "gemma3-bitnet"];

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(path)
}

fn fixture(model: &str) -> PathBuf {
    testdata(&format!("gguf/{model}.i2_s.gguf"))
}

fn contract(model: &str) -> Json {
    let text = fs::read_to_string(testdata(&format!("contract/{model}.json"))).unwrap();
    serde_json::from_str::<Json>(&text).unwrap()["i2_s"].take()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn usize_of(json: &Json) -> usize {
    json.as_u64().unwrap() as usize
}

#[test]
fn the_header_is_the_contracts() {
    for model in MODELS {
        let (file, contract) = (GgufFile::open(fixture(model)).unwrap(), contract(model));
        assert_eq!(file.version(), 3);
        assert_eq!(file.alignment(), usize_of(&contract["alignment"]));
        assert_eq!(file.data_start(), usize_of(&contract["data_start"]));
        assert_eq!(file.owner().as_ref().len(), usize_of(&contract["size"]));
        assert_eq!(sha256(file.owner().as_ref()), contract["file_sha256"].as_str().unwrap());
    }
}

#[test]
fn the_metadata_is_the_contracts() {
    for model in MODELS {
        let (file, contract) = (GgufFile::open(fixture(model)).unwrap(), contract(model));
        let metadata = file.metadata();
        let expected = contract["metadata"].as_object().unwrap();
        assert_eq!(metadata.len(), expected.len());
        for key in metadata.keys() {
            let expected = &expected[key];
            let found = match metadata.value(key).unwrap() {
                Value::U32(value) => ("u32", Json::from(value)),
                Value::F32(value) => ("f32", Json::from(value)),
                Value::Bool(value) => ("bool", Json::from(value)),
                Value::Str(value) => ("str", Json::from(value)),
                Value::Array(array) => {
                    check_array(key, array, expected);
                    continue;
                }
                other => panic!("{key} is {other:?}"),
            };
            assert_eq!(found, (expected["type"].as_str().unwrap(), expected["value"].clone()), "{key}");
        }
    }
}

fn check_array(key: &str, array: Array<'_>, expected: &Json) {
    assert_eq!(format!("arr[{}]", array.element_type()), expected["type"].as_str().unwrap(), "{key}");
    assert_eq!(array.len(), usize_of(&expected["len"]), "{key}");
    // The contract's hash is of the encoded value: element type, length, elements.
    let mut raw = array.element_type().id().to_le_bytes().to_vec();
    raw.extend((array.len() as u64).to_le_bytes());
    raw.extend_from_slice(array.bytes());
    assert_eq!(sha256(&raw), expected["sha256_raw"].as_str().unwrap(), "{key}");
    let head: Vec<Json> = array
        .values()
        .take(4)
        .map(|value| match value.unwrap() {
            Value::Str(value) => Json::from(value),
            Value::F32(value) => Json::from(value),
            Value::I32(value) => Json::from(value),
            other => panic!("{key} holds {other:?}"),
        })
        .collect();
    assert_eq!(Json::from(head), expected["head"], "{key}");
}

#[test]
fn the_tensors_are_the_contracts() {
    for model in MODELS {
        let (file, contract) = (GgufFile::open(fixture(model)).unwrap(), contract(model));
        let expected = contract["tensors"].as_array().unwrap();
        assert_eq!(file.tensors().len(), expected.len());
        for (tensor, expected) in file.tensors().iter().zip(expected) {
            let data = file.data(tensor).unwrap();
            assert_eq!(tensor.name(), expected[0].as_str().unwrap());
            assert_eq!(tensor.type_name(), expected[1].as_str().unwrap());
            assert_eq!(Json::from(tensor.dims()), expected[2]);
            assert_eq!(tensor.offset() as usize, usize_of(&expected[3]));
            assert_eq!(tensor.byte_len().unwrap(), usize_of(&expected[4]));
            assert_eq!(sha256(data), expected[5].as_str().unwrap(), "{}", tensor.name());
            assert_eq!(file.tensor(tensor.name()), Some(tensor));
        }
        assert_eq!(file.tensor("no.such.tensor"), None);
        file.check_data().unwrap();
    }
}

#[test]
fn the_arrays_of_the_vocabulary_are_typed() {
    let file = GgufFile::open(fixture("gemma3-bitnet")).unwrap();
    let metadata = file.metadata();
    let array = |key| metadata.array(key).unwrap().unwrap();
    let tokens: Vec<&str> = array("tokenizer.ggml.tokens").strings().unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!((tokens.len(), tokens[1]), (768, "<eos>"));
    assert_eq!(array("tokenizer.ggml.scores").f32s().unwrap().next(), Some(-1000.0));
    assert_eq!(array("tokenizer.ggml.token_type").i32s().unwrap().next(), Some(3));
    let error = array("tokenizer.ggml.token_type").f32s().map(drop).unwrap_err();
    assert_eq!(error.to_string(), "\"tokenizer.ggml.token_type\" is array of i32, expected array of f32");
}

#[test]
fn every_value_type_is_read() {
    let file = GgufFile::open(testdata("gguf-python/every_type.gguf")).unwrap();
    let metadata = file.metadata();
    let scalars = [
        ("general.alignment", Value::U32(128)),
        ("u8", Value::U8(255)),
        ("i8", Value::I8(-3)),
        ("u16", Value::U16(65535)),
        ("i16", Value::I16(-4)),
        ("u32", Value::U32(u32::MAX)),
        ("i32", Value::I32(-5)),
        ("f32", Value::F32(1.5)),
        ("u64", Value::U64(1 << 60)),
        ("i64", Value::I64(-(1 << 60))),
        ("f64", Value::F64(0.1)),
        ("bool", Value::Bool(true)),
        ("str", Value::Str("h\u{e9}\n")),
    ];
    for (key, expected) in scalars {
        assert_eq!(metadata.value(key), Some(expected), "{key}");
    }
    let array = |key| metadata.array(key).unwrap().unwrap();
    assert!(array("i32s").i32s().unwrap().eq([1, 2, 3]));
    assert!(array("f32s").f32s().unwrap().eq([1.5, 2.5]));
    assert!(array("strs").strings().unwrap().map(Result::unwrap).eq(["a", "", "\u{e9}"]));
    assert!(array("bools").bools().unwrap().eq([true, false]));
    assert_eq!(array("u8s").bytes(), b"abc");
    let inner: Vec<usize> = array("nested")
        .values()
        .map(|value| match value.unwrap() {
            Value::Array(inner) => inner.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(inner, [2, 1]);
    assert_eq!(file.tensor("four").unwrap().shape(), [2, 3, 1, 5]);
    assert_eq!(file.tensor("TQ2_0").unwrap().ggml_type(), Some(GgmlType::TQ2_0));
}

#[test]
fn rewriting_a_file_gives_the_same_bytes() {
    let of_the_package = testdata("gguf-python/every_type.gguf");
    for path in MODELS.map(fixture).into_iter().chain([of_the_package]) {
        let file = GgufFile::read(&path).unwrap();
        let mut writer = GgufWriter::new();
        for key in file.metadata().keys() {
            writer.metadata(key, file.metadata().value(key).unwrap().into_owned()).unwrap();
        }
        for tensor in file.tensors() {
            writer.tensor(tensor.name(), tensor.ggml_type().unwrap(), &tensor.shape()).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let again = folder.path().join("again.gguf");
        let mut tensors = writer.create(&again).unwrap();
        for tensor in file.tensors() {
            let data = file.data(tensor).unwrap();
            let (first, second) = data.split_at(data.len() / 3);
            tensors.write(tensor.name(), first).unwrap();
            tensors.write(tensor.name(), second).unwrap();
        }
        assert!(!again.exists(), "nothing is there before the end");
        tensors.finish().unwrap();
        assert!(fs::read(&again).unwrap() == *file.owner(), "{} differs", path.display());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }
}

#[test]
fn overrides_replace_and_add_values() {
    let file = GgufFile::open(fixture("qwen3-bitnet")).unwrap();
    let overrides = [
        ("qwen3.rope.freq_base".to_owned(), OwnedValue::F32(5.0)),
        ("qwen3.rope.freq_base".to_owned(), OwnedValue::F64(0.1)),
        ("qwen3.attention.causal".to_owned(), OwnedValue::Bool(false)),
        ("mask".to_owned(), OwnedArray::from(&[true, false][..]).into()),
        ("qwen3.block_count".to_owned(), OwnedValue::Str("two".to_owned())),
    ];
    let plain = file.metadata();
    let metadata = plain.with_overrides(&overrides);
    assert_eq!(plain.f32("qwen3.rope.freq_base").unwrap(), Some(1_000_000.0));
    assert_eq!(metadata.f32("qwen3.rope.freq_base").unwrap(), Some(0.1), "the last one counts, rounded to f32");
    assert_eq!(metadata.bool("qwen3.attention.causal").unwrap(), Some(false));
    assert_eq!(metadata.u32("qwen3.vocab_size").unwrap(), Some(768), "what is not overridden stays");
    let mask: Vec<bool> = metadata.array("mask").unwrap().unwrap().bools().unwrap().collect();
    assert_eq!(mask, [true, false]);
    let error = metadata.u32("qwen3.block_count").unwrap_err();
    assert_eq!(error.to_string(), "\"qwen3.block_count\" is str, expected u32");
}

#[test]
fn a_file_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    shared(&GgufFile::<MappedFile>::open(fixture("qwen3-bitnet")).unwrap());
}
