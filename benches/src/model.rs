//! A GGUF file as the benchmarks see it: the loaded model, and what the table says about it.

use crate::error::BenchError;
use crate::shapes::Random;
use bitnet_embed::batch::RaggedBatch;
use bitnet_embed::config::ModelConfig;
use bitnet_embed::embedder::BackendKind;
use bitnet_embed::gguf::GgufFile;
use bitnet_embed::model::BitNetEmbedding;
use bitnet_embed::names::TOKEN_TABLE;
use bitnet_embed::store::GgufStore;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_i2s::linear::{F16Backend, I2sBackend};
use std::path::{Path, PathBuf};

/// A loaded model.
#[derive(Debug)]
pub struct BenchModel {
    /// The file.
    pub path: PathBuf,
    /// What its metadata say.
    pub config: ModelConfig,
    /// Architecture, size and type, such as `qwen3 0.6B I2_S`.
    pub description: String,
    /// Name of the type most projection weights are stored in.
    pub file_type: &'static str,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Values of all tensors.
    pub parameters: u64,
    /// Which linear layers compute it.
    pub backend: BackendKind,
    device: Device,
    loaded: Loaded,
}

#[derive(Debug)]
enum Loaded {
    I2s(BitNetEmbedding<I2sBackend>),
    F16(BitNetEmbedding<F16Backend>),
}

impl BenchModel {
    /// Opens a file. By default I2_S files are computed in integers and all others in f32.
    ///
    /// # Errors
    /// When the file is refused, or the backend does not compute it.
    pub fn open(path: &Path, backend: Option<BackendKind>) -> Result<Self, BenchError> {
        let mut store = GgufStore::open(path)?;
        let config = store.plan().config.clone();
        let (bytes, parameters, file_type) = measure(store.file());
        let default = if file_type == "I2_S" { BackendKind::I2s } else { BackendKind::F16 };
        let backend = backend.unwrap_or(default);
        let device = Device::default();
        let loaded = match backend {
            BackendKind::I2s => Loaded::I2s(BitNetEmbedding::from_store(&mut store, &device)?),
            BackendKind::F16 => Loaded::F16(BitNetEmbedding::from_store(&mut store, &device)?),
        };
        let description = format!("{} {} {file_type}", config.architecture, size_name(&config));
        Ok(Self { path: path.to_owned(), config, description, file_type, bytes, parameters, backend, device, loaded })
    }

    /// Weights of the projections: what each token is multiplied with.
    pub fn projection_weights(&self) -> usize {
        projection_weights(&self.config)
    }

    /// Random ids of the vocabulary, `n_prompt` for each of `texts` texts.
    pub fn random_ids(&self, random: &mut Random, n_prompt: usize, texts: usize) -> Vec<i32> {
        (0..n_prompt * texts).map(|_| random.below(self.config.vocab_size) as i32).collect()
    }

    /// One forward, from ids to pooled vectors.
    ///
    /// # Panics
    /// When the batch is not of that many ids, or an id is not below the vocabulary's size.
    pub fn forward(&self, ids: &[i32], batch: &RaggedBatch) -> Vec<f32> {
        let data = TensorData::new(ids.to_vec(), [ids.len()]);
        let ids = Tensor::<1, Int>::from_data(data, (&self.device, DType::I32));
        let pooled = match &self.loaded {
            Loaded::I2s(model) => model.forward(ids, batch),
            Loaded::F16(model) => model.forward(ids, batch),
        };
        pooled.into_data().try_into_vec().expect("the operations give f32")
    }
}

/// Bytes and values of all tensors, and the type that most values of the projections have.
fn measure<B: AsRef<[u8]>>(file: &GgufFile<B>) -> (u64, u64, &'static str) {
    let mut types: Vec<(&'static str, u64)> = Vec::new();
    let (mut bytes, mut parameters) = (0, 0);
    for tensor in file.tensors() {
        let values = tensor.element_count() as u64;
        parameters += values;
        bytes += tensor.file_range().map_or(0, |range| range.len() as u64);
        if tensor.dims().len() < 2 || tensor.name() == TOKEN_TABLE {
            continue;
        }
        match types.iter_mut().find(|(name, _)| *name == tensor.type_name()) {
            Some((_, count)) => *count += values,
            None => types.push((tensor.type_name(), values)),
        }
    }
    let most = types.into_iter().max_by_key(|(_, count)| *count);
    (bytes, parameters, most.map_or("unknown", |(name, _)| name))
}

/// The size as people call it: of the values in the token table and the projections.
fn size_name(config: &ModelConfig) -> String {
    let millions = (config.vocab_size * config.hidden_size + projection_weights(config)) as f64 / 1e6;
    match millions {
        500.0.. => format!("{:.1}B", millions / 1000.0),
        10.0.. => format!("{:.0}M", (millions / 10.0).round() * 10.0),
        _ => format!("{millions:.1}M"),
    }
}

fn projection_weights(config: &ModelConfig) -> usize {
    let heads = 2 * (config.num_heads + config.num_kv_heads) * config.head_dim;
    config.layers.len() * config.hidden_size * (heads + 3 * config.intermediate_size)
}
