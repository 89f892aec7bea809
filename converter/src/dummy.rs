//! Models of full size with random weights and a made-up vocabulary, for trying and measuring without a download.
//!
//! Everything is generated in pieces from a seed and streamed to the file; the same options give the same bytes.

use std::path::PathBuf;

use bitnet_embed::config::{ModelConfig, Pooling};
use bitnet_embed::gguf::{GgufWriter, MAX_TENSORS};
use bitnet_embed::names::{ExpectedTensor, TensorRole, expected_tensors};
use burn_i2s::ggml::GgmlType;
use half::{bf16, f16};
use rayon::prelude::*;
use serde_json::json;

use crate::config::SourceConfig;
use crate::dummy_vocab::{self, MIN_TOKENS};
use crate::interrupt;
use crate::plan::{Outtype, PlannedTensor};
use crate::report::{Progress, Report};
use crate::vocab::VocabKind;
use crate::{ConvertError, metadata, outfile};

/// Bytes generated at a time by one task: whole I2_S blocks and whole values of every type.
const TASK_BYTES: usize = 1 << 16;
/// Tasks between two writes.
const TASKS: usize = 128;
/// Standard deviation of the weights, and the scale of the ternary ones.
const WEIGHT_SCALE: f32 = 0.02;
/// The largest size accepted for anything: far beyond every model, far below overflow.
pub(crate) const MAX_SIZE: usize = 1 << 20;

/// Which model to imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DummyArch {
    /// Qwen3 with 0.6 billion weights.
    Qwen3,
    /// Gemma 3 with 270 million weights.
    Gemma3,
    /// Qwen3 of any size.
    Custom,
}

impl DummyArch {
    fn name(self) -> &'static str {
        match self {
            Self::Qwen3 => "qwen3-0.6b",
            Self::Gemma3 => "gemma3-270m",
            Self::Custom => "custom",
        }
    }
}

/// Sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DummyShape {
    /// Rows of the token table.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_layers: usize,
    /// Number of attention heads.
    pub num_heads: usize,
    /// Number of key and value heads.
    pub num_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
}

/// What to write.
#[derive(Clone, Debug)]
pub struct DummyOptions {
    /// Which model to imitate.
    pub arch: DummyArch,
    /// Its sizes; [`DummyOptions::new`] sets those of `arch`.
    pub shape: DummyShape,
    /// Type of the weights.
    pub outtype: Outtype,
    /// The file; `None` is `dummy-<arch>-<type>.gguf` in the current folder.
    pub outfile: Option<PathBuf>,
    /// Whether projections have input norms.
    pub bitnet: bool,
    /// Seed of the weights.
    pub seed: u64,
}

impl DummyOptions {
    /// The real sizes of `arch` (small ones for [`DummyArch::Custom`]), seed 1, input norms where the type needs them.
    pub fn new(arch: DummyArch, outtype: Outtype) -> Self {
        let sizes = match arch {
            DummyArch::Qwen3 => [151_936, 1024, 28, 16, 8, 128, 3072],
            DummyArch::Gemma3 => [262_144, 640, 18, 4, 1, 256, 2048],
            DummyArch::Custom => [4096, 256, 4, 4, 2, 64, 512],
        };
        let [vocab_size, hidden_size, num_layers, num_heads, num_kv_heads, head_dim, intermediate_size] = sizes;
        let shape =
            DummyShape { vocab_size, hidden_size, num_layers, num_heads, num_kv_heads, head_dim, intermediate_size };
        Self { arch, shape, outtype, outfile: None, bitnet: outtype == Outtype::I2S, seed: 1 }
    }
}

/// Writes a model.
///
/// # Errors
/// When the sizes make no model, or the file cannot be written.
pub fn write(options: &DummyOptions, progress: &mut dyn Progress) -> Result<Report, ConvertError> {
    check(&options.shape)?;
    let file_name = || format!("dummy-{}-{}.gguf", options.arch.name(), options.outtype.name());
    let outfile = options.outfile.clone().unwrap_or_else(|| file_name().into());
    outfile::refuse_part_name(&outfile)?;
    let config = config(options)?;
    check_count(&config.model, options.bitnet)?;
    let kind = if options.arch == DummyArch::Gemma3 { VocabKind::Llama } else { VocabKind::Gpt2 };
    let vocab = dummy_vocab::vocab(kind, options.shape.vocab_size);

    let mut tensors: Vec<ExpectedTensor> = expected_tensors(&config.model);
    tensors.retain(|tensor| options.bitnet || !tensor.is_optional());
    let mut writer = GgufWriter::new();
    let name = format!("dummy-{}", options.arch.name());
    for (key, value) in metadata::entries(&name, &config, options.outtype, &vocab) {
        writer.metadata(&key, value)?;
    }
    let mut planned = Vec::new();
    for (source, tensor) in tensors.iter().enumerate() {
        let target = options.outtype.of(tensor.role);
        writer.tensor(&tensor.name, target, &tensor.shape)?;
        planned.push(PlannedTensor { source, name: tensor.name.clone(), target, add_one: false });
    }

    let random = Random::new(options.seed);
    let (mut file, _registered) = interrupt::create(writer, &outfile)?;
    let mut buffer = vec![0; TASK_BYTES * TASKS];
    for (position, (tensor, planned)) in tensors.iter().zip(&planned).enumerate() {
        progress.tensor(&tensor.name, position, tensors.len());
        let elements: usize = tensor.shape.iter().product();
        let mut left = match planned.target {
            GgmlType::I2_S => elements / 4,
            // No type that a dummy has takes blocks of more than one value.
            other => other.row_bytes(elements).unwrap_or(0),
        };
        let mut first_task = 0;
        while left > 0 {
            let piece = &mut buffer[..left.min(TASK_BYTES * TASKS)];
            piece.par_chunks_mut(TASK_BYTES).enumerate().for_each(|(task, bytes)| {
                random.fill(position, first_task + task, planned.target, tensor.role, bytes);
            });
            file.write(&tensor.name, piece)?;
            left -= piece.len();
            first_task += TASKS;
        }
        if planned.target == GgmlType::I2_S {
            file.write(&tensor.name, &burn_i2s::layout::tail(WEIGHT_SCALE))?;
        }
    }
    file.finish()?;
    progress.finish();
    Ok(Report::of_file(outfile, planned.iter().map(|tensor| tensor.target), Vec::new(), Vec::new()))
}

/// Refuses what no model can be, by the name of the flag.
fn check(shape: &DummyShape) -> Result<(), ConvertError> {
    let fail = |flag, found, expected| Err(ConvertError::DummySize { flag, found, expected });
    for (flag, found) in [
        ("hidden-size", shape.hidden_size),
        ("layers", shape.num_layers),
        ("heads", shape.num_heads),
        ("kv-heads", shape.num_kv_heads),
        ("head-dim", shape.head_dim),
        ("ffn", shape.intermediate_size),
    ] {
        if found == 0 || found > MAX_SIZE {
            return fail(flag, found, "must be from 1 to 1048576");
        }
    }
    if shape.vocab_size < MIN_TOKENS || shape.vocab_size > MAX_SIZE {
        return fail("vocab-size", shape.vocab_size, "must be from 384 to 1048576");
    }
    if !shape.num_heads.is_multiple_of(shape.num_kv_heads) {
        return fail("kv-heads", shape.num_kv_heads, "must divide --heads");
    }
    if !shape.head_dim.is_multiple_of(2) {
        return fail("head-dim", shape.head_dim, "must be even");
    }
    // Every projection is then whole I2_S blocks, row by row.
    for (flag, found) in [
        ("hidden-size", shape.hidden_size),
        ("head-dim (times --heads)", shape.head_dim * shape.num_heads),
        ("ffn", shape.intermediate_size),
    ] {
        if !found.is_multiple_of(burn_i2s::layout::BLOCK) {
            return fail(flag, found, "must be a multiple of 128");
        }
    }
    Ok(())
}

/// Refuses more tensors than a file may have, before they are listed: a million layers have many.
fn check_count(model: &ModelConfig, bitnet: bool) -> Result<(), ConvertError> {
    let count = |num_layers| {
        let tensors = expected_tensors(&ModelConfig { num_layers, ..model.clone() });
        tensors.iter().filter(|tensor| bitnet || !tensor.is_optional()).count()
    };
    let (others, one) = (count(0), count(1));
    let found = model.num_layers;
    if found.saturating_mul(one - others).saturating_add(others) > MAX_TENSORS {
        let expected = "they would have more than 65536 tensors, the most that a file may have";
        return Err(ConvertError::DummySize { flag: "layers", found, expected });
    }
    Ok(())
}

/// The config of a checkpoint of that model; reading it as one keeps a single definition of what a config means.
fn config(options: &DummyOptions) -> Result<SourceConfig, ConvertError> {
    let shape = &options.shape;
    let mut config = json!({
        "model_type": "qwen3",
        "rope_theta": 1_000_000.0,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
    });
    if options.arch == DummyArch::Gemma3 {
        config["model_type"] = json!("gemma3_text");
        config["hidden_activation"] = json!("gelu_pytorch_tanh");
        config["query_pre_attn_scalar"] = json!(shape.head_dim);
        config["sliding_window"] = json!(512);
        config["rope_local_base_freq"] = json!(10_000.0);
        config["layer_types"] = (1..=shape.num_layers)
            .map(|layer| if layer.is_multiple_of(6) { "full_attention" } else { "sliding_attention" })
            .collect();
    }
    SourceConfig::from_json(&config, Pooling::Last).map_err(|source| ConvertError::DummyConfig { source })
}

/// Random bytes of weights. Values are drawn from a table: as good as any for a model that means nothing, and fast.
struct Random {
    seed: u64,
    weights: Vec<f32>,
    weights_f16: Vec<[u8; 2]>,
    weights_bf16: Vec<[u8; 2]>,
    /// A byte of four codes 0..=2, for any random byte.
    codes: [u8; 256],
}

impl Random {
    fn new(seed: u64) -> Self {
        let mut state = seed ^ 0x5EED;
        // The sum of 12 uniform numbers, less 6, is nearly normal with variance 1.
        let mut normal = || (0..12).map(|_| (next(&mut state) >> 40) as f32 / (1 << 24) as f32).sum::<f32>() - 6.0;
        let weights: Vec<f32> = (0..1 << 12).map(|_| normal() * WEIGHT_SCALE).collect();
        let weights_f16 = weights.iter().map(|&weight| f16::from_f32(weight).to_le_bytes()).collect();
        let weights_bf16 = weights.iter().map(|&weight| bf16::from_f32(weight).to_le_bytes()).collect();
        let codes = std::array::from_fn(|byte| {
            let four = byte % 81;
            ((four % 3) | ((four / 3 % 3) << 2) | ((four / 9 % 3) << 4) | ((four / 27) << 6)) as u8
        });
        Self { seed, weights, weights_f16, weights_bf16, codes }
    }

    /// Fills one task's bytes: a function of the seed, the tensor and the position in it alone.
    fn fill(&self, tensor: usize, task: usize, target: GgmlType, role: TensorRole, bytes: &mut [u8]) {
        let mut state = self.seed ^ ((tensor as u64) << 40) ^ ((task as u64) << 8);
        // A norm's factors lie around 1 in every file, whatever the checkpoint's convention.
        let offset = if matches!(role, TensorRole::Norm | TensorRole::InputNorm) { 1.0 } else { 0.0 };
        match target {
            GgmlType::I2_S => {
                for group in bytes.chunks_mut(8) {
                    let random = next(&mut state).to_le_bytes();
                    for (byte, random) in group.iter_mut().zip(random) {
                        *byte = self.codes[usize::from(random)];
                    }
                }
            }
            GgmlType::F16 if offset == 0.0 => {
                each(&mut state, bytes, |index| self.weights_f16[index]);
            }
            GgmlType::BF16 => each(&mut state, bytes, |index| self.weights_bf16[index]),
            GgmlType::F16 => each(&mut state, bytes, |index| f16::from_f32(self.weights[index] + offset).to_le_bytes()),
            _ => each(&mut state, bytes, |index| (self.weights[index] + offset).to_le_bytes()),
        }
    }
}

/// Fills `bytes` with values chosen by 12 random bits each.
fn each<const N: usize>(state: &mut u64, bytes: &mut [u8], value: impl Fn(usize) -> [u8; N]) {
    for group in bytes.as_chunks_mut::<N>().0.chunks_mut(4) {
        let mut random = next(state);
        for slot in group {
            *slot = value((random & 0xFFF) as usize);
            random >>= 16;
        }
    }
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
