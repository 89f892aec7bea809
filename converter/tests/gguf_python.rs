//! Our files in the `gguf` Python package, where that is installed: `GGUF_PYTHON` names a Python that has it, `python3` is
//! tried otherwise, and without one the test says that it was skipped.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use bitnet_embed::gguf::{GgufFile, GgufWriter, TensorInfo};
use burn_i2s::ggml::GgmlType;
use common::Converted;
use converter::dummy::{self, DummyArch, DummyOptions};
use converter::{ConvertOptions, Outtype, recode};
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

/// The package cannot write Q6_K; it must read what we write as we do.
#[test]
fn the_gguf_package_reads_q6_k_tables_as_we_do() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (dummy, converted) = (folder.path().join("dummy.gguf"), folder.path().join("q6_k.gguf"));
    let mut options = DummyOptions::new(DummyArch::Custom, Outtype::F32);
    options.outfile = Some(dummy.clone());
    dummy::write(&options, &mut ()).expect("a model");
    let mut options = ConvertOptions::new(&dummy, Outtype::F32);
    options.embedding_type = Some(GgmlType::Q6_K);
    options.outfile = Some(converted.clone());
    recode(&options, &mut ()).expect("a model");
    // Rows that ask more of an encoder than a model's: nothing, one value, one sign, every size that has a half scale.
    let table = GgufFile::read(&converted).expect("a valid file");
    let table = table.data(table.tensor("token_embd.weight").expect("a table")).expect("data").to_vec();
    let mut values: Vec<f32> = Vec::new();
    values.extend([0.0; 256]);
    values.extend((0..256).map(|n| if n == 77 { -3.5 } else { 0.0 }));
    values.extend((0..256).map(|n| -(n as f32)));
    values.extend((0..256).map(|n| 2f32.powi(n % 40 - 25) * if n % 3 == 0 { -1.0 } else { 1.0 }));
    values.extend((0..256).map(|n| 2e6 * (n as f32).sin()));
    let mut bytes = table;
    let row_bytes = GgmlType::Q6_K.row_bytes(256).expect("whole blocks");
    let hard = bytes.len();
    bytes.resize(hard + values.len() / 256 * row_bytes, 0);
    GgmlType::Q6_K.encode_row(&values, &mut bytes[hard..]);
    let rows = bytes.len() / row_bytes;
    let mut writer = GgufWriter::new();
    // The package's reader wants an architecture's file to have metadata at all.
    writer.metadata("general.architecture", "qwen3").expect("a key");
    writer.tensor("token_embd.weight", GgmlType::Q6_K, &[rows, 256]).expect("a tensor");
    let mut writer = writer.write_to(Vec::new()).expect("memory");
    writer.write("token_embd.weight", &bytes).expect("in order");
    std::fs::write(&converted, writer.finish().expect("complete")).expect("written");
    let output = python(&[], &converted);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let file = GgufFile::read(&converted).expect("a valid file");
    let tensor = &file.tensors()[0];
    assert!(rows == 4096 + 5 && tensor.rows() == rows);
    let expected = serde_json::json!([["token_embd.weight", "Q6_K", [rows, 256], expected(&file, tensor)]]);
    assert_eq!(found["tensors"], expected);
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
