//! The files of the published converter: what is read from them is what their contract says, and writing that again
//! gives the same bytes.

use std::fs;
use std::path::{Path, PathBuf};

use bitnet_embed::gguf::{Array, GgufFile, GgufWriter, Value};
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
fn rewriting_a_file_gives_the_same_bytes() {
    for model in MODELS {
        let file = GgufFile::read(fixture(model)).unwrap();
        let mut writer = GgufWriter::new();
        for key in file.metadata().keys() {
            writer.metadata(key, file.metadata().value(key).unwrap().into_owned()).unwrap();
        }
        for tensor in file.tensors() {
            writer.tensor(tensor.name(), tensor.ggml_type().unwrap(), &tensor.shape()).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("again.gguf");
        let mut tensors = writer.create(&path).unwrap();
        for tensor in file.tensors() {
            let data = file.data(tensor).unwrap();
            let (first, second) = data.split_at(data.len() / 3);
            tensors.write(tensor.name(), first).unwrap();
            tensors.write(tensor.name(), second).unwrap();
        }
        assert!(!path.exists(), "nothing is there before the end");
        tensors.finish().unwrap();
        assert!(fs::read(&path).unwrap() == *file.owner(), "{model} differs");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }
}
