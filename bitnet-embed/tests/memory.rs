//! Loading ternary weights that are stored as floats or in compressed blocks takes memory for what is kept, 2 bits a
//! weight, and never for a layer in floats.
#![cfg(all(feature = "cli", target_os = "linux"))]

mod support;

use std::path::Path;
use std::process::Command;

use bitnet_embed::gguf::{GgufFile, GgufWriter};
use burn_i2s::ggml::GgmlType;
use converter::Outtype;
use converter::dummy::{self, DummyArch, DummyOptions};
use support::{Random, peak_anonymous};

const HIDDEN: usize = 1024;
const FFN: usize = 8192;

/// A BitNet model of one wide layer.
fn write(path: &Path, outtype: Outtype) {
    let mut options = DummyOptions::new(DummyArch::Custom, outtype);
    options.bitnet = true;
    options.outfile = Some(path.to_owned());
    let shape = &mut options.shape;
    (shape.hidden_size, shape.intermediate_size, shape.num_layers, shape.vocab_size) = (HIDDEN, FFN, 1, 512);
    dummy::write(&options, &mut ()).unwrap();
}

/// The same with its projections in TQ2_0: blocks of 64 bytes of codes and a half-precision scale.
fn compress(from: &Path, to: &Path) {
    let file = GgufFile::read(from).unwrap();
    let mut writer = GgufWriter::new();
    for key in file.metadata().keys() {
        writer.metadata(key, file.metadata().value(key).unwrap().into_owned()).unwrap();
    }
    let ty = |name: &str| (name.contains(".ffn_") && !name.contains("norm")).then_some(GgmlType::TQ2_0);
    for tensor in file.tensors() {
        let ty = ty(tensor.name()).unwrap_or(tensor.ggml_type().unwrap());
        writer.tensor(tensor.name(), ty, &tensor.shape()).unwrap();
    }
    let mut writer = writer.write_to(Vec::new()).unwrap();
    let mut random = Random(1);
    for tensor in file.tensors() {
        if ty(tensor.name()).is_none() {
            writer.write(tensor.name(), file.data(tensor).unwrap()).unwrap();
            continue;
        }
        let block = |_| {
            let mut block = [0; 66];
            block[..64].fill_with(|| [0x00, 0x55, 0xaa, 0x16, 0x64, 0x91][random.below(6)]);
            block[64..].copy_from_slice(&half::f16::from_f32(0.02).to_le_bytes());
            block
        };
        let blocks: Vec<[u8; 66]> = (0..tensor.element_count() / 256).map(block).collect();
        writer.write(tensor.name(), blocks.as_flattened()).unwrap();
    }
    std::fs::write(to, writer.finish().unwrap()).unwrap();
}

#[test]
fn ternary_weights_are_packed_without_a_layer_in_floats() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("f16.gguf"), Outtype::F16);
    compress(&path("f16.gguf"), &path("tq2_0.gguf"));
    let peak = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bitnet-embed"));
        peak_anonymous(command.args(["embed", "-p", "a", "-m"]).arg(path(name)).env("RAYON_NUM_THREADS", "2"))
    };
    // In kibibytes. The program itself takes a few thousand; the embedding of one token next to nothing.
    let layer = HIDDEN * FFN;
    let packed = (3 * layer / 4 / 1024) as u64;
    let floats = (4 * layer / 1024) as u64;
    for name in ["f16.gguf", "tq2_0.gguf"] {
        let peak = peak(name);
        println!("{name}: {peak} KiB; packed the layers are {packed}, one in floats is {floats}");
        assert!(peak < packed + floats / 2, "{name}: {peak} KiB");
        assert!(peak > packed, "{name}: {peak} KiB is too little to be true");
    }
}
