//! What a store accepts and what it refuses, each by name.

use crate::common::{bits, devices, testdata};
use bitnet_embed::gguf::{GgufFile, GgufWriter};
use bitnet_embed::{BackendKind, BitNetEmbedding, Embedder, F16Backend, GgufStore, I2sBackend};
use burn::store::ModuleSnapshot;
use burn_i2s::ggml::GgmlType;
use converter::{ConvertOptions, Outtype};
use std::path::{Path, PathBuf};

/// A tensor of a file being rewritten.
struct Tensor {
    name: String,
    ty: GgmlType,
    shape: Vec<usize>,
    data: Vec<u8>,
}

/// The file with its tensors changed.
fn rewrite(file: &Path, change: impl FnOnce(&mut Vec<Tensor>)) -> Vec<u8> {
    let file = GgufFile::read(file).unwrap();
    let mut tensors: Vec<Tensor> = file
        .tensors()
        .iter()
        .map(|tensor| Tensor {
            name: tensor.name().to_owned(),
            ty: tensor.ggml_type().unwrap(),
            shape: tensor.shape(),
            data: file.data(tensor).unwrap().to_vec(),
        })
        .collect();
    change(&mut tensors);
    let mut writer = GgufWriter::new();
    for key in file.metadata().keys() {
        writer.metadata(key, file.metadata().value(key).unwrap().into_owned()).unwrap();
    }
    for tensor in &tensors {
        writer.tensor(&tensor.name, tensor.ty, &tensor.shape).unwrap();
    }
    let mut writer = writer.write_to(Vec::new()).unwrap();
    for tensor in &tensors {
        writer.write(&tensor.name, &tensor.data).unwrap();
    }
    writer.finish().unwrap()
}

fn published(name: &str) -> PathBuf {
    testdata().join("gguf").join(format!("{name}.i2_s.gguf"))
}

fn convert(name: &str, outtype: Outtype, folder: &Path) -> PathBuf {
    let outfile = folder.join(format!("{name}.{outtype:?}.gguf"));
    let mut options = ConvertOptions::new(testdata().join("checkpoints").join(name), outtype);
    options.outfile = Some(outfile.clone());
    converter::convert(&options, &mut ()).unwrap();
    outfile
}

/// The refusal of a changed file.
fn refusal(change: impl FnOnce(&mut Vec<Tensor>)) -> String {
    let bytes = rewrite(&published("qwen3-bitnet"), change);
    GgufStore::from_bytes(bytes, &Default::default()).unwrap_err().to_string()
}

#[test]
fn a_rewritten_file_is_the_same_file() {
    let file = published("qwen3-bitnet");
    assert_eq!(rewrite(&file, |_| ()), std::fs::read(&file).unwrap());
}

#[test]
fn missing_tensors_are_named() {
    let error = refusal(|tensors| tensors.retain(|tensor| !tensor.name.ends_with("attn_k.weight")));
    assert!(error.contains("2 tensor(s)") && error.contains("\"blk.0.attn_k.weight\""), "{error}");
    // An input norm may be absent: the layer is then another, so nothing is missing.
    let bytes = rewrite(&published("qwen3-bitnet"), |tensors| {
        tensors.retain(|tensor| !tensor.name.ends_with("blk.0.attn_k_norm_in.weight"));
    });
    let store = GgufStore::from_bytes(bytes, &Default::default()).unwrap();
    assert!(store.plan().is_ternary());
    // But it is said.
    assert_eq!(store.plan().projections_without_norm(), ["blk.0.attn_k.weight"]);
    assert!(store.plan().notes().iter().any(|note| note.contains("\"blk.0.attn_k.weight\"")));
}

#[test]
fn tensors_without_a_place_are_named_but_a_tied_output_is_not_read() {
    let extra = |name: &str| Tensor { name: name.to_owned(), ty: GgmlType::F32, shape: vec![4], data: vec![0; 16] };
    let error = refusal(|tensors| tensors.push(extra("blk.7.attn_q.weight")));
    assert!(error.contains("\"blk.7.attn_q.weight\"") && error.contains("qwen3"), "{error}");
    let error = refusal(|tensors| tensors.push(extra("blk.0.attn_q.bias")));
    assert!(error.contains("\"blk.0.attn_q.bias\""), "{error}");
    let bytes = rewrite(&published("qwen3-bitnet"), |tensors| tensors.push(extra("output.weight")));
    assert!(GgufStore::from_bytes(bytes, &Default::default()).is_ok());
}

#[test]
fn wrong_shapes_and_types_are_named_with_both_sides() {
    let error = refusal(|tensors| {
        let norm = tensors.iter_mut().find(|tensor| tensor.name == "blk.1.ffn_norm.weight").unwrap();
        norm.shape = vec![64];
        norm.data.truncate(128);
    });
    assert!(
        error.contains("\"blk.1.ffn_norm.weight\"") && error.contains("[128]") && error.contains("[64]"),
        "{error}"
    );
    let error = refusal(|tensors| {
        let table = tensors.iter_mut().find(|tensor| tensor.name == "token_embd.weight").unwrap();
        table.ty = GgmlType::I2_S;
        table.data = vec![0x55; 768 * 128 / 4 + 32];
        table.data[768 * 128 / 4..][..4].copy_from_slice(&1.0f32.to_le_bytes());
    });
    assert!(error.contains("\"token_embd.weight\"") && error.contains("I2_S"), "{error}");
}

#[test]
fn a_norm_that_is_not_finite_is_named_with_its_index() {
    for (_, device) in devices() {
        let bytes = rewrite(&published("qwen3-bitnet"), |tensors| {
            let norm = tensors.iter_mut().find(|tensor| tensor.name == "output_norm.weight").unwrap();
            norm.data[2 * 5..][..2].copy_from_slice(&half::f16::NAN.to_le_bytes());
        });
        let mut store = GgufStore::from_bytes(bytes, &Default::default()).unwrap();
        let error = BitNetEmbedding::<I2sBackend>::from_store(&mut store, &device).unwrap_err().to_string();
        assert!(error.contains("\"output_norm.weight\"") && error.contains("value 5"), "{error}");
    }
}

#[test]
fn a_weight_that_is_not_finite_is_named_once_a_vector_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = convert("qwen3-std", Outtype::F16, folder.path());
    let id = 5;
    let bad = |name: &str, index: usize, value: half::f16| {
        let bytes = rewrite(&file, |tensors| {
            let tensor = tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
            tensor.data[2 * index..][..2].copy_from_slice(&value.to_le_bytes());
        });
        let path = folder.path().join("bad.gguf");
        std::fs::write(&path, bytes).unwrap();
        Embedder::open(path).unwrap()
    };
    let at_id = id * 64 + 3;
    for (name, index, value, shown) in [
        ("blk.1.ffn_up.weight", 70, half::f16::NAN, "NaN"),
        ("blk.0.attn_q.weight", 0, half::f16::INFINITY, "inf"),
        ("token_embd.weight", at_id, half::f16::NEG_INFINITY, "-inf"),
    ] {
        let embedder = bad(name, index, value);
        let error = embedder.embed_ids(&[vec![id as u32, 7]]).unwrap_err().to_string();
        let expected = format!("tensor {name:?}: value {index} is {shown}, expected a finite number");
        assert!(error.contains(&expected) && error.contains("bad.gguf: text 0: "), "{error}");
    }
    // A row of the table that a text does not look up is not its concern.
    let vectors = bad("token_embd.weight", at_id, half::f16::NAN).embed_ids(&[vec![6, 7]]).unwrap();
    assert!(vectors[0].iter().all(|value| value.is_finite()));
    // Finite weights whose sums are not.
    let bytes = rewrite(&convert("qwen3-std", Outtype::F32, folder.path()), |tensors| {
        for tensor in tensors.iter_mut().filter(|tensor| tensor.name.contains("ffn_down")) {
            tensor.data.chunks_exact_mut(4).for_each(|value| value.copy_from_slice(&f32::MAX.to_le_bytes()));
        }
    });
    let error = Embedder::builder().from_bytes(bytes).unwrap().embed(&["a text"]).unwrap_err().to_string();
    assert!(error.contains("sums overflow"), "{error}");
}

#[test]
fn a_module_built_for_another_file_is_refused_by_parameter() {
    for (_, device) in devices() {
        let mut gemma = GgufStore::open(published("gemma3-bitnet")).unwrap();
        let qwen = GgufStore::open(published("qwen3-bitnet")).unwrap();
        let mut model = BitNetEmbedding::<I2sBackend>::init(qwen.plan(), &device).unwrap();
        let error = model.load_from(&mut gemma).unwrap_err().to_string();
        assert!(error.contains("gemma3-bitnet") && error.contains("layers.0."), "{error}");
    }
}

#[test]
fn a_plain_model_is_for_the_float_backend_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = convert("qwen3-std", Outtype::F16, folder.path());
    assert_eq!(Embedder::open(&file).unwrap().backend(), BackendKind::F16);
    let error = Embedder::builder().backend(BackendKind::I2s).open(&file).unwrap_err().to_string();
    assert!(error.contains("F16Backend") && error.contains("qwen3-std"), "{error}");
}

#[test]
fn bfloat16_tables_and_norms_and_masters_load_in_both_backends() {
    // The checkpoint is bfloat16 throughout (Qwen3 adds nothing to its norms), so a file of it loses nothing.
    let folder = tempfile::tempdir().unwrap();
    let f32_file = convert("qwen3-bitnet", Outtype::F32, folder.path());
    let bf16 = rewrite(&f32_file, |tensors| {
        for tensor in tensors {
            tensor.ty = GgmlType::BF16;
            let values = tensor.data.as_chunks::<4>().0;
            assert!(values.iter().all(|value| value[..2] == [0, 0]), "{} is not bfloat16", tensor.name);
            tensor.data = values.iter().flat_map(|value| [value[2], value[3]]).collect();
        }
    });
    let texts = ["one text", "and another"];
    let expected = bits(&Embedder::open(&f32_file).unwrap().embed(&texts).unwrap());
    for backend in [BackendKind::I2s, BackendKind::F16] {
        for (_, device) in devices() {
            let embedder = Embedder::builder().backend(backend).device(device).from_bytes(bf16.clone()).unwrap();
            assert_eq!(bits(&embedder.embed(&texts).unwrap()), expected, "{backend:?}");
        }
    }
}

#[test]
fn loading_borrows_the_bytes_it_is_given() {
    for (_, device) in devices() {
        let owner = bytes::Bytes::from(std::fs::read(published("qwen3-bitnet")).unwrap());
        let mut store = GgufStore::from_bytes(owner.clone(), &Default::default()).unwrap();
        let model = BitNetEmbedding::<I2sBackend>::from_store(&mut store, &device).unwrap();
        let inside = owner.as_ptr_range();
        let weights = [model.layers[0].mlp.down_proj.weight.val(), model.layers[1].self_attn.k_proj.weight.val()];
        burn_i2s::ops::with_bytes(&weights, |lent| {
            assert!(lent.iter().all(|bytes| inside.contains(&bytes.as_ptr())));
        });
        burn_i2s::ops::with_bytes(&[model.embed_tokens.weight.val()], |lent| {
            assert!(inside.contains(&lent[0].as_ptr()));
        });
        let dense = BitNetEmbedding::<F16Backend>::from_store(&mut store, &device).unwrap();
        burn_i2s::ops::with_bytes(&[dense.layers[0].mlp.down_proj.weight.val()], |lent| {
            assert!(inside.contains(&lent[0].as_ptr()));
        });
    }
}
