//! Small models with their header, metadata and tensor list damaged at random, always in the same way: each is refused
//! with a reason, or gives vectors. `fuzz/fuzz_targets/embed.rs` asks the same of any bytes.

use crate::common::workspace;
use crate::support::Random;
use bitnet_embed::gguf::GgufFile;
use bitnet_embed::{BackendKind, EmbedError, Embedder};
use std::ops::Range;

/// Damaged copies of each model.
const COPIES: usize = 250;

/// The seeds of the fuzzer: a plain and a ternary model of each architecture, and two of every type of weight.
const MODELS: [&str; 5] = [
    "model/gemma3-ternary.gguf",
    "model/qwen3-plain.gguf",
    "model/qwen3-ternary.gguf",
    "embed/mixed-plain.gguf",
    "embed/mixed-ternary.gguf",
];

/// Replaces one to three pieces of the header, or now and then of the weights.
fn damage(random: &mut Random, whole: &[u8], header: usize, infos: Range<usize>) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = match random.below(8) {
            0 => random.below(bytes.len() - 8),
            1..=3 => infos.start + random.below(infos.len() - 8),
            _ => random.below(header - 8),
        };
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => {
                let value = random.pick(&[0, 1, 2, 7, 32, 255, 65_536, 1 << 31, u32::MAX]);
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            3 => {
                let value = random.pick(&[0, 1, 64, 1 << 20, 1 << 32, 1 << 40, 1 << 63, u64::MAX]);
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            _ => bytes.swap(at, at + 1 + random.below(7)),
        }
    }
    bytes
}

fn vectors(bytes: &[u8], backend: BackendKind) -> Result<Vec<Vec<f32>>, EmbedError> {
    let embedder = Embedder::builder().backend(backend).max_tokens(64).from_bytes(bytes.to_vec())?;
    embedder.embed(&["the lazy dog", ""])
}

#[test]
fn a_damaged_model_is_refused_with_a_reason_or_gives_vectors() {
    let mut random = Random(7);
    for name in MODELS {
        let whole = std::fs::read(workspace().join("fuzz/corpus").join(name)).unwrap();
        let undamaged = vectors(&whole, BackendKind::F16).unwrap();
        let file = GgufFile::from_owner(&whole[..]).unwrap();
        let header = file.tensors().iter().map(|tensor| tensor.file_range().unwrap().start).min().unwrap();
        let first = file.tensors()[0].name().as_bytes();
        let infos = whole.windows(first.len()).position(|window| window == first).unwrap()..header;
        let (mut refused, mut others) = (0, 0);
        for copy in 0..COPIES {
            let bytes = damage(&mut random, &whole, header, infos.clone());
            match vectors(&bytes, BackendKind::F16) {
                Err(error) => {
                    let line = error.to_string();
                    assert!(!line.chars().any(char::is_control), "{name}, copy {copy}: {line:?}");
                    // A key, a tensor or a token by its name, or the place or the number that is wrong.
                    let names = line.contains('"') || line.contains('.') || line.chars().any(|c| c.is_ascii_digit());
                    assert!(names, "{name}, copy {copy}: {line}");
                    refused += 1;
                }
                Ok(found) => {
                    for vector in &found {
                        let square: f64 = vector.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
                        assert!(square == 0.0 || (square - 1.0).abs() < 1e-5, "{name}, copy {copy}: {square}");
                    }
                    others += usize::from(found != undamaged);
                    // A plain model is refused by this one.
                    if let Ok(integers) = vectors(&bytes, BackendKind::I2s) {
                        assert_eq!(integers, found, "{name}, copy {copy}");
                    }
                }
            }
        }
        println!("{name}: {refused} of {COPIES} refused, {others} are other models");
        assert!(refused > COPIES / 4 && others > 0, "{name}: {refused} refused, {others} are other models");
    }
}
