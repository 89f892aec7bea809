//! The residual stream after every layer, and the integers of layer 0, against the references of the fixture models.

use crate::common::{devices, read_json, testdata};
use bitnet_embed::batch::RaggedBatch;
use bitnet_embed::model::Block;
use bitnet_embed::{BitNetEmbedding, F16Backend, GgufStore, I2sBackend};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_i2s::linear::{ComputeBackend, LinearLayer};
use burn_i2s::pooling::Pooling;
use converter::{ConvertOptions, Outtype};
use serde_json::Value;
use std::path::Path;

fn f32_file(name: &str, folder: &Path) -> std::path::PathBuf {
    let outfile = folder.join(format!("{name}.gguf"));
    let mut options = ConvertOptions::new(testdata().join("checkpoints").join(name), Outtype::F32);
    options.outfile = Some(outfile.clone());
    converter::convert(&options, &mut ()).unwrap_or_else(|error| panic!("{name}: {error}"));
    outfile
}

fn matrix(value: &Value) -> Vec<f32> {
    let rows = value.as_array().unwrap();
    rows.iter().flat_map(|row| row.as_array().unwrap()).map(|value| value.as_f64().unwrap() as f32).collect()
}

fn floats(tensor: Tensor<2>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

/// Largest difference relative to the largest magnitude.
fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let worst = found.iter().zip(expected).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs())) / scale;
    assert!(worst <= 1e-5, "{what}: {worst:e} of the largest value");
}

fn check<B: ComputeBackend>(name: &str, file: &Path, golden: &Value, device: &Device) {
    let model = BitNetEmbedding::<B>::from_gguf(file, device).unwrap();
    let layers = &golden["layers"];
    let ids: Vec<i32> = layers["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as i32).collect();
    let batch = RaggedBatch::new(&[ids.len()]);
    let input: Tensor<1, Int> = Tensor::from_data(TensorData::new(ids.clone(), [ids.len()]), (device, DType::I32));
    let scale = if golden["arch"] == "gemma3" { (golden["dim"].as_f64().unwrap() as f32).sqrt() } else { 1.0 };
    let mut hidden = model.embed_tokens.forward(input.clone(), scale);
    let expected = layers["hidden"].as_array().unwrap();
    assert_eq!(expected.len(), model.layers.len() + 1);
    for (index, expected) in expected.iter().enumerate() {
        if index > 0 {
            let layer: &Block<B> = &model.layers[index - 1];
            hidden = layer.forward(hidden, &batch);
        }
        assert_close(&floats(hidden.clone()), &matrix(expected), &format!("{name} on {}: layer {index}", B::NAME));
    }
    let last = floats(model.norm.forward(hidden));
    assert_close(&last, &matrix(&layers["final_norm"]), &format!("{name} on {}: final norm", B::NAME));
    let whole = floats(model.hidden_states(input, &batch));
    assert_eq!(whole, last, "the steps above are the model's own forward");
}

#[test]
fn the_residual_stream_follows_the_reference_layer_by_layer() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["gemma3-bitnet", "gemma3-std", "gemma3-ternary", "qwen3-bitnet", "qwen3-sharded-f16-mean", "qwen3-std"]
    {
        let golden = read_json(&testdata().join("goldens").join(format!("{name}.json")));
        let file = f32_file(name, folder.path());
        for (_, device) in devices() {
            check::<F16Backend>(name, &file, &golden, &device);
            if golden["bitnet"] == true {
                check::<I2sBackend>(name, &file, &golden, &device);
            }
        }
    }
}

/// A point of the trace as rows.
fn point(golden: &Value, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
    let point = golden["trace"]["points"].get(name)?;
    let shape = point["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    let data = point["data"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect();
    Some((shape, data))
}

/// Feeds a projection what the reference fed it and expects what the reference's integers give.
fn check_projection<L: LinearLayer>(layer: &L, golden: &Value, path: &str, input: &str, output: &str, device: &Device) {
    let (Some((shape, x)), Some((_, y))) = (point(golden, input), point(golden, output)) else { return };
    let width = x.len() / shape[0];
    let x = Tensor::from_data(TensorData::new(x, [shape[0], width]), device);
    let found = floats(layer.forward(x));
    assert_close(&found, &y, &format!("{path} from {input}"));
}

#[test]
fn layer_0_gives_the_traced_outputs_of_every_projection() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["gemma3-bitnet", "qwen3-bitnet"] {
        let golden = read_json(&testdata().join("goldens").join(format!("{name}.json")));
        let file = f32_file(name, folder.path());
        for (_, device) in devices() {
            let mut store = GgufStore::open(&file).unwrap();
            let model = BitNetEmbedding::<I2sBackend>::from_store(&mut store, &device).unwrap();
            let attention = &model.layers[0].self_attn;
            check_projection(&attention.q_proj, &golden, name, "L0.attn_norm", "L0.q", &device);
            check_projection(&attention.k_proj, &golden, name, "L0.attn_norm", "L0.k", &device);
            check_projection(&attention.v_proj, &golden, name, "L0.attn_norm", "L0.v", &device);
            check_projection(&attention.o_proj, &golden, name, "L0.attn", "L0.attn_out", &device);
            let mlp = &model.layers[0].mlp;
            check_projection(&mlp.up_proj, &golden, name, "L0.ffn_norm", "L0.up", &device);
        }
    }
}

/// The last layer computes pooled tokens alone; that must change nothing.
#[test]
fn pooled_vectors_have_the_bits_of_pooled_states() {
    for (name, device) in devices() {
        for file in ["qwen3-bitnet", "gemma3-bitnet"] {
            let file = testdata().join("gguf").join(format!("{file}.i2_s.gguf"));
            pooled_like_states::<I2sBackend>(&file, &device, name);
            pooled_like_states::<F16Backend>(&file, &device, name);
        }
    }
}

fn pooled_like_states<B: ComputeBackend>(file: &Path, device: &Device, name: &str) {
    let mut model = BitNetEmbedding::<B>::from_gguf(file, device).unwrap();
    for lengths in [vec![1], vec![130], vec![3, 1, 70, 2, 64, 65]] {
        let batch = RaggedBatch::new(&lengths);
        let ids: Vec<i32> = (0..batch.tokens() as i32).map(|token| (token * 37 + 11) % 300).collect();
        let input = || Tensor::<1, Int>::from_data(TensorData::new(ids.clone(), [ids.len()]), (device, DType::I32));
        for pooling in [Pooling::Last, Pooling::Cls, Pooling::Mean] {
            model = model.with_pooling(pooling);
            let states = model.hidden_states(input(), &batch);
            let expected = floats(burn_i2s::ops::pool(states, batch.offsets(), pooling));
            let found = floats(model.forward(input(), &batch));
            let same = found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && found.len() == expected.len(), "{} on {name}: {pooling:?} of {lengths:?}", B::NAME);
        }
    }
}
