//! Our files in the `gguf` Python package, where that is installed: `GGUF_PYTHON` names a Python that has it, `python3` is
//! tried otherwise, and without one the test says that it was skipped.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use bitnet_embed::gguf::{GgufFile, TensorInfo};
use burn_i2s::ggml::GgmlType;
use common::Converted;
use serde_json::Value;
use sha2::{Digest, Sha256};

fn python(args: &[&str], path: &Path) -> Output {
    let python = std::env::var("GGUF_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(python);
    command.arg(common::workspace().join("testdata/gguf-python/load.py")).args(args).arg(path);
    command.output().unwrap_or_else(|error| panic!("{error}"))
}

fn is_installed() -> bool {
    let python = std::env::var("GGUF_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(python).args(["-c", "import gguf"]).output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: no Python with the gguf package; name one in GGUF_PYTHON");
    }
    found
}

/// What the package should find in a tensor: the SHA-256 of its values, of I2_S that of its codes.
fn expected(file: &GgufFile<Vec<u8>>, tensor: &TensorInfo) -> String {
    let data = file.data(tensor).expect("data");
    let bytes: Vec<u8> = match tensor.require_type().expect("a type") {
        GgmlType::I2_S => data[..tensor.element_count() / 4].to_vec(),
        ty => {
            let mut values = vec![0.0; tensor.element_count()];
            ty.decode_row(data, &mut values);
            values.iter().flat_map(|value| value.to_le_bytes()).collect()
        }
    };
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_gguf_package_loads_our_files_whole() {
    if !is_installed() {
        return;
    }
    for (name, args) in [
        ("qwen3-bitnet", &["--outtype", "f32"][..]),
        ("gemma3-bitnet", &["--outtype", "f16"]),
        ("qwen3-std", &["--outtype", "bf16", "--embedding-type", "q8_0"]),
        ("gemma3-bitnet", &["--outtype", "i2_s", "--embedding-type", "q8_0", "--norm-type", "f32"]),
    ] {
        let converted = Converted::new(name, args);
        let register: &[&str] = if args[1] == "i2_s" { &["--register-i2_s"] } else { &[] };
        let output = python(register, &converted.path);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {args:?}: {stderr}");
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let file = GgufFile::read(&converted.path).expect("a valid file");
        assert_eq!(found["keys"].as_object().expect("keys").len(), file.metadata().len());
        assert_eq!(found["tensors"].as_array().expect("tensors").len(), file.tensors().len());
        for (tensor, found) in file.tensors().iter().zip(found["tensors"].as_array().expect("tensors")) {
            let expected =
                serde_json::json!([tensor.name(), tensor.type_name(), tensor.shape(), expected(&file, tensor)]);
            assert_eq!(*found, expected, "{name} {args:?}");
        }
    }
}

#[test]
fn the_gguf_package_refuses_ternary_tensors_unless_the_type_is_registered() {
    if !is_installed() {
        return;
    }
    let converted = Converted::new("qwen3-bitnet", &["--outtype", "i2_s"]);
    let output = python(&[], &converted.path);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not a valid GGMLQuantizationType"));
}
