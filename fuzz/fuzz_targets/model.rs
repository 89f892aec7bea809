//! Any GGUF file as a model: its configuration, its list of tensors, and every row of every tensor as floats.
#![no_main]

use bitnet_embed::config::ModelConfig;
use bitnet_embed::gguf::GgufFile;
use burn_i2s::ggml::GgmlType;
use burn_i2s::matrix::TernaryMatrix;
use converter::encode::encode;
use converter::inspect::Inspection;
use converter::source::GgufTensor;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = GgufFile::from_owner(bytes) else { return };
    let inspection = Inspection::of(&file, ModelConfig::from_gguf(file.metadata()).map_err(|error| error.to_string()));
    let json = inspection.to_json();
    assert!(json.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')), "nothing that a terminal obeys");
    let text = inspection.to_string();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "nothing that a terminal obeys");
    for tensor in file.tensors() {
        if let Some(source) = GgufTensor::new(&file, tensor) {
            let _ = encode(&source, GgmlType::F16, &mut |_| Ok(()));
        } else if let (Some(GgmlType::I2_S), Ok(data)) = (tensor.ggml_type(), file.data(tensor)) {
            let (rows, cols) = (tensor.rows(), tensor.cols());
            let packed = burn_i2s::pack::repack_rows(data, rows, cols).expect("the length was checked");
            let _ = TernaryMatrix::new(&packed, rows, cols);
        }
    }
});
