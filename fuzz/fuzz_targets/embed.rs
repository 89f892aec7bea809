//! Any GGUF file as the model itself: loaded through the store into Burn modules, by either backend, and asked for two
//! vectors. Time and memory are bounded by the flags that `.ci/fuzz` gives.
#![no_main]

use bitnet_embed::{BackendKind, EmbedError, Embedder};
use libfuzzer_sys::fuzz_target;

const TEXTS: [&str; 2] = ["the lazy dog's \u{e9}\u{301} 123", ""];

/// Loads and embeds; what a user would read instead has no control characters of the file in it.
fn vectors(bytes: &[u8], backend: BackendKind) -> Option<Vec<Vec<f32>>> {
    let embed = || -> Result<_, EmbedError> {
        Embedder::builder().backend(backend).max_tokens(64).from_bytes(bytes.to_vec())?.embed(&TEXTS)
    };
    match embed() {
        Ok(vectors) => Some(vectors),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.is_empty() && !line.chars().any(char::is_control), "{line:?}");
            None
        }
    }
}

fuzz_target!(
    init: {
        // One thread, so that a found input fails the same way again.
        rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("a thread");
    },
    |bytes: &[u8]| {
        let Some(floats) = vectors(bytes, BackendKind::F16) else { return };
        for vector in &floats {
            assert!(vector.iter().all(|value| value.is_finite()));
            let length = vector.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt();
            assert!(length == 0.0 || (length - 1.0).abs() < 1e-5, "length {length}");
        }
        // A plain model is refused here; a BitNet one has the same bits.
        if let Some(integers) = vectors(bytes, BackendKind::I2s) {
            let bits = |vectors: &[Vec<f32>]| vectors.concat().iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&integers), bits(&floats));
        }
    }
);
