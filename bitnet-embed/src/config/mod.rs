//! What a model computes, as data: read from a checkpoint's `config.json` or from the metadata of a GGUF file.
//!
//! Both architectures are one forward pass with different numbers, so [`ModelConfig`] holds the numbers and nothing
//! later asks where they came from. A feature that is not implemented is refused here, by the name of its key.

mod error;
mod from_gguf;
mod hf;
mod json;
pub mod keys;
mod overrides;
mod pooling;

use std::fmt;

pub use burn_i2s::elementwise::Activation;
pub use error::ConfigError;
pub(crate) use json::shown;
pub use overrides::Overrides;
pub use pooling::{Pooling, pooling_gguf_id, pooling_of_checkpoint, pooling_of_module};

/// The most layers accepted.
pub const MAX_LAYERS: usize = 1 << 12;
/// The most heads accepted.
pub const MAX_HEADS: usize = 1 << 12;
/// The largest width accepted: of the residual stream, the feed-forward layer, a head, or all heads together. With
/// 8-bit activations a row's integer sum stays below 2^31 at 127 * 2^20.
pub const MAX_WIDTH: usize = 1 << 20;
/// The most rows of the token table accepted.
pub const MAX_VOCAB: usize = 1 << 26;
/// The longest context accepted, in tokens.
pub const MAX_CONTEXT: usize = 1 << 30;

/// The family of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Qwen3: two norms a layer, SiLU.
    Qwen3,
    /// Gemma 3, text only: four norms a layer, tanh GELU, scaled embeddings, sliding windows.
    Gemma3,
}

impl Architecture {
    /// Its name in a GGUF file, also the prefix of its keys.
    pub fn gguf_name(self) -> &'static str {
        match self {
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3",
        }
    }

    /// Its `model_type` in a `config.json`.
    pub fn hf_name(self) -> &'static str {
        match self {
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3_text",
        }
    }

    fn activation(self) -> Activation {
        match self {
            Self::Qwen3 => Activation::Silu,
            Self::Gemma3 => Activation::GeluTanh,
        }
    }

    /// Whether the outputs of attention and feed-forward are normalised before they join the residual stream.
    #[cfg(feature = "burn")]
    pub(crate) fn has_post_norms(self) -> bool {
        self == Self::Gemma3
    }

    /// Gemma scales embeddings by the square root of their width, which HF rounds once to f32.
    fn embedding_scale(self, hidden_size: usize) -> f32 {
        match self {
            Self::Qwen3 => 1.0,
            Self::Gemma3 => (hidden_size as f64).sqrt() as f32,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.gguf_name())
    }
}
/// What differs between the attention of one layer and of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerAttention {
    /// RoPE base: pair `i` of a head is turned by `position * rope_theta^(-2i / head_dim)` radians.
    pub rope_theta: f64,
    /// A query sees keys with `|query - key| < window` only; `None`: at any distance. The value for a bidirectional
    /// model is already halved.
    pub window: Option<usize>,
}

/// A metadata key that a file does not have, and what its absence was taken to mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumed {
    /// The full key.
    pub key: String,
    /// What was assumed.
    pub value: String,
}

impl fmt::Display for Assumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is absent, assuming {}", self.key, self.value)
    }
}

/// Everything about a model except its weights and its vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The family.
    pub architecture: Architecture,
    /// Rows of the token table; may be more than the tokenizer has tokens.
    pub vocab_size: usize,
    /// Width of the residual stream, and of an embedding.
    pub hidden_size: usize,
    /// Width between the up and the down projection.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_layers: usize,
    /// Query heads; a multiple of `num_kv_heads`.
    pub num_heads: usize,
    /// Key and value heads.
    pub num_kv_heads: usize,
    /// Width of a head; even, and not `hidden_size / num_heads` in general.
    pub head_dim: usize,
    /// Epsilon of every RMSNorm.
    pub rms_norm_eps: f32,
    /// Factor on the attention scores.
    pub attention_scale: f32,
    /// Factor on the token table's rows.
    pub embedding_scale: f32,
    /// The function in the feed-forward layer.
    pub activation: Activation,
    /// The longest input the model was made for, in tokens.
    pub max_position: usize,
    /// Whether a token sees only itself and what is before it.
    pub causal: bool,
    /// How token vectors become one.
    pub pooling: Pooling,
    /// One entry a layer.
    pub layers: Vec<LayerAttention>,
    /// Keys whose absence was given a meaning that may be wrong.
    pub assumed: Vec<Assumed>,
}

/// `size` if it lies in `1..=max`.
fn bounded(key: &str, size: u64, max: usize) -> Result<usize, ConfigError> {
    match usize::try_from(size) {
        Ok(fits) if (1..=max).contains(&fits) => Ok(fits),
        _ => Err(ConfigError::OutOfRange { key: key.into(), found: size, min: 1, max: max as u64 }),
    }
}

/// `value` if it is positive and finite, also once it is an f32.
fn positive(key: &str, value: f64) -> Result<f64, ConfigError> {
    let narrow = value as f32;
    if narrow > 0.0 && narrow.is_finite() {
        Ok(value)
    } else {
        Err(ConfigError::NotPositive { key: key.into(), found: value })
    }
}

/// What must hold between the head counts and widths; `key` names the query heads.
fn check_heads(key: &str, num_heads: usize, num_kv_heads: usize, head_dim: usize) -> Result<(), ConfigError> {
    if !num_heads.is_multiple_of(num_kv_heads) {
        return Err(ConfigError::Heads { num_heads, num_kv_heads });
    }
    if !head_dim.is_multiple_of(2) {
        return Err(ConfigError::OddHead { head_dim });
    }
    // At most 2^12 * 2^20, which fits.
    if num_heads as u64 * head_dim as u64 > MAX_WIDTH as u64 {
        let max = (MAX_WIDTH / head_dim) as u64;
        return Err(ConfigError::OutOfRange { key: key.into(), found: num_heads as u64, min: 1, max });
    }
    Ok(())
}

/// The window as the attention applies it: HF halves it when both directions are seen.
fn effective_window(window: usize, causal: bool) -> usize {
    if causal { window } else { window / 2 + 1 }
}

/// `x^-0.5`, rounded once to f32. Division and square root are exact operations, the same on every machine.
fn inverse_sqrt(x: f64) -> f32 {
    (1.0 / x.sqrt()) as f32
}
