//! Models, references and the rules by which one is held against the other.
//!
//! The rules, and why there are two: a float model must agree with the f64 reference to a few ulps of f32. In a BitNet
//! model one activation that falls on the other side of an int8 rounding boundary changes everything after it, so runs
//! agree to about 1e-7 or differ by about 1e-3. The texts that were settled in every reference run are marked stable;
//! nine in ten of them must agree closely, and all texts must point the same way.

use bitnet_embed::output::cosine_similarity;
use bitnet_embed::{BackendKind, Embedder};
use burn::tensor::Device;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Largest difference of a component in a float model.
pub(crate) struct Tolerance {
    pub(crate) float: f64,
}

/// `stable` texts of a BitNet model: largest difference of a component, for the share of them below.
const STABLE: f64 = 5e-5;
const STABLE_SHARE: f64 = 0.9;
/// Every text of a BitNet model: largest `1 - cosine`.
const ANGLE: f64 = 3e-3;

/// The texts of a golden file and what each must become.
pub(crate) struct Golden {
    pub(crate) texts: Vec<String>,
    pub(crate) ids: Vec<Vec<u32>>,
    pub(crate) vectors: Vec<Vec<f32>>,
    pub(crate) stable: Vec<bool>,
    pub(crate) bitnet: bool,
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn testdata() -> PathBuf {
    workspace().join("testdata")
}

pub(crate) fn read_json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn vector(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

impl Golden {
    /// The reference of the checkpoint itself.
    pub(crate) fn of_checkpoint(json: &Value) -> Self {
        let texts = json["texts"].as_array().unwrap();
        Self {
            texts: texts.iter().map(|text| text["text"].as_str().unwrap().to_owned()).collect(),
            ids: texts
                .iter()
                .map(|text| text["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect())
                .collect(),
            vectors: texts.iter().map(|text| vector(&text["hf"])).collect(),
            stable: texts.iter().map(|text| text["stable"].as_bool().unwrap()).collect(),
            bitnet: json["bitnet"].as_bool().unwrap_or_else(|| json.get("trace").is_some()),
        }
    }

    /// The reference of a file of that type, read the first of `readings` that the golden lists; `None` if it lists
    /// none. The two sets of fixtures nest the same things differently.
    pub(crate) fn of_file(json: &Value, ty: &str, readings: &[&str]) -> Option<Self> {
        let file = &json["gguf"][ty];
        let (vectors, stable) = readings.iter().find_map(|reading| {
            let nested = &file[reading];
            let vectors = nested.get("embeddings").unwrap_or(nested).as_array()?;
            // An f16 file of a BitNet model holds the same ternary weights and the same rounded norms as its I2_S file, so
            // the same texts are settled in both; they are listed once.
            let settled = &json["gguf"]["i2_s"];
            let flag = format!("{reading}_stable");
            let lists = [&nested["stable"], &file[&flag], &settled[reading]["stable"], &settled[&flag]];
            Some((vectors, lists.into_iter().find_map(Value::as_array)))
        })?;
        let mut golden = Self::of_checkpoint(json);
        golden.vectors = vectors.iter().map(vector).collect();
        if let Some(stable) = stable {
            golden.stable = stable.iter().map(|stable| stable.as_bool().unwrap()).collect();
        }
        // I2_S weights make BitLinears whatever the checkpoint was.
        golden.bitnet |= ty == "i2_s";
        Some(golden)
    }

    /// Asserts the rules above.
    pub(crate) fn assert_close(&self, vectors: &[Vec<f32>], tolerance: &Tolerance, what: &str) {
        assert_eq!(vectors.len(), self.vectors.len(), "{what}");
        let distance = |a: &[f32], b: &[f32]| {
            assert_eq!(a.len(), b.len(), "{what}");
            a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
        };
        let distances: Vec<f64> = vectors.iter().zip(&self.vectors).map(|(a, b)| distance(a, b)).collect();
        if !self.bitnet {
            let worst = distances.iter().copied().fold(0.0, f64::max);
            assert!(worst <= tolerance.float, "{what}: a component differs by {worst:e}");
            println!("{what}: {} texts, largest difference {worst:.1e}", vectors.len());
            return;
        }
        let stable: Vec<f64> = distances.iter().zip(&self.stable).filter(|(_, s)| **s).map(|(d, _)| *d).collect();
        let settled = stable.iter().filter(|distance| **distance <= STABLE).count();
        let angle = vectors.iter().zip(&self.vectors).map(|(a, b)| 1.0 - cosine_similarity(a, b)).fold(0.0, f64::max);
        println!("{what}: {settled} of {} stable texts agree, largest angle {angle:.1e}", stable.len());
        assert!(
            settled as f64 >= STABLE_SHARE * stable.len() as f64,
            "{what}: {settled} of {} stable texts agree: {distances:?}",
            stable.len()
        );
        assert!(angle <= ANGLE, "{what}: 1 - cosine is {angle:e}");
    }
}

/// The Burn devices that this build has.
pub(crate) fn devices() -> Vec<(&'static str, Device)> {
    vec![
        #[cfg(feature = "flex")]
        ("flex", Device::flex()),
        #[cfg(feature = "ndarray")]
        ("ndarray", burn_i2s::backend::ndarray_device()),
    ]
}

/// Embeds on every device and on each of `backends`, asserts equal token ids and equal bits, and returns the vectors.
pub(crate) fn embed_everywhere(file: &Path, golden: &Golden, backends: &[BackendKind]) -> Vec<Vec<f32>> {
    let mut first: Option<(String, Vec<Vec<f32>>)> = None;
    for (device_name, device) in devices() {
        for &backend in backends {
            let embedder = Embedder::builder().device(device.clone()).backend(backend).open(file);
            let embedder = embedder.unwrap_or_else(|error| panic!("{error}"));
            for (text, ids) in golden.texts.iter().zip(&golden.ids) {
                assert_eq!(&embedder.tokenize(text).unwrap(), ids, "{}: {text:?}", file.display());
            }
            let vectors = embedder.embed(&golden.texts).unwrap();
            let here = format!("{} on {device_name}", backend.name());
            match &first {
                None => first = Some((here, vectors)),
                Some((there, expected)) => {
                    assert_eq!(bits(&vectors), bits(expected), "{}: {here} against {there}", file.display());
                }
            }
        }
    }
    first.expect("a build with a Burn backend").1
}

pub(crate) fn bits(vectors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    vectors.iter().map(|vector| vector.iter().map(|value| value.to_bits()).collect()).collect()
}
