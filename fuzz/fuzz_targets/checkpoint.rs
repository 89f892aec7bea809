//! Any bytes as the tensor file of a checkpoint, as its index, and as its config.
#![no_main]

use std::fs;

use bitnet_embed::config::{ModelConfig, Pooling};
use burn_i2s::ggml::GgmlType;
use converter::checkpoint::Checkpoint;
use converter::encode::encode;
use converter::plan::{Outtype, TensorHead, plan};
use converter::source::CheckpointTensor;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    match bytes.first() {
        // A JSON text is an index beside an empty file, and a config.
        Some(b'{') => {
            fs::write(dir.join("model.safetensors.index.json"), bytes).expect("written");
            fs::write(dir.join("a.safetensors"), [2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']).expect("written");
            let _ = Checkpoint::open(dir);
            fs::write(dir.join("config.json"), bytes).expect("written");
            let _ = converter::config::SourceConfig::read(dir, Some(Pooling::Last));
        }
        _ => {
            fs::write(dir.join("model.safetensors"), bytes).expect("written");
            let Ok(checkpoint) = Checkpoint::open(dir) else { return };
            let heads: Vec<TensorHead<'_>> = checkpoint
                .tensors()
                .iter()
                .map(|tensor| TensorHead { name: &tensor.name, dtype: &tensor.dtype, shape: &tensor.shape })
                .collect();
            let config = r#"{"model_type": "qwen3", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 4,
                "head_dim": 2, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
                "rope_theta": 1e6, "rms_norm_eps": 1e-6}"#;
            let _ = plan(&model_of(config), &heads, Outtype::I2S.into(), true);
            for tensor in checkpoint.tensors().iter().filter(|tensor| tensor.dtype.size().is_some()) {
                let source = CheckpointTensor { checkpoint: &checkpoint, tensor, add_one: true };
                for target in [GgmlType::F16, GgmlType::I2_S] {
                    let _ = encode(&source, target, &mut |_| Ok(()));
                }
            }
        }
    }
});

/// The model of a `config.json`.
fn model_of(text: &str) -> ModelConfig {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("config.json"), text).expect("written");
    converter::config::SourceConfig::read(folder.path(), Some(Pooling::Last)).expect("a valid config").model
}
