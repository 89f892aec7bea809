//! The model as a Burn module on a Burn device, filled from a GGUF record:
//! `cargo run --release --example burn_module -- MODEL.gguf TEXT`

use bitnet_embed::batch::RaggedBatch;
use bitnet_embed::tokenizer::Tokenizer;
use bitnet_embed::{BitNetEmbedding, F16Backend, GgufStore, I2sBackend};
use burn::module::Module;
use burn::store::ModuleSnapshot;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_i2s::linear::ComputeBackend;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, text] = arguments.as_slice() else {
        return Err("usage: burn_module MODEL.gguf TEXT".into());
    };
    let store = GgufStore::open(path)?;
    // The file's layers decide which backends can compute it.
    if store.plan().is_ternary() { run::<I2sBackend>(store, text) } else { run::<F16Backend>(store, text) }
}

fn run<B: ComputeBackend>(mut store: GgufStore, text: &str) -> Result<(), Box<dyn Error>> {
    let device = Device::default();
    let mut model = BitNetEmbedding::<B>::init(store.plan(), &device)?;
    model.load_from(&mut store)?;
    println!("{} layers, {} float parameters, on {:?}", model.layers.len(), model.num_params(), device);

    let tokenizer = Tokenizer::from_gguf(store.file().metadata())?;
    let ids: Vec<i32> = tokenizer.encode(text)?.into_iter().map(u32::cast_signed).collect();
    let batch = RaggedBatch::new(&[ids.len()]);
    let shape = [ids.len()];
    let input_ids = Tensor::<1, Int>::from_data(TensorData::new(ids, shape), (&device, DType::I32));
    let vectors = model.forward(input_ids, &batch);
    println!("{vectors}");
    Ok(())
}
