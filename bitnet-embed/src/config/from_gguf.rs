//! The metadata of a GGUF file. Absent keys are read literally, and each one that could matter is listed.

use std::fmt;

use super::hf::periodic;
use super::pooling::pooling_from_gguf_id;
use super::{
    Architecture, Assumed, ConfigError, LayerAttention, MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH,
    ModelConfig, Pooling, bounded, check_heads, effective_window, inverse_sqrt, keys, positive,
};
use crate::gguf::{Metadata, Value};

/// Base of RoPE where a file does not say; also the base of sliding layers in files that say nothing about those.
const DEFAULT_ROPE_BASE: f64 = 10_000.0;
/// Every how manieth layer is full in files that have a window and no pattern.
const DEFAULT_PERIOD: usize = 6;

impl ModelConfig {
    /// Reads the metadata of a GGUF file. For overrides, see [`Metadata::with_overrides`].
    ///
    /// The absence of a key means no window, a score factor of `head_dim^-0.5`, one RoPE base of 10000, causal, pooling
    /// of the last token. With a window but without pattern or local base, every sixth layer is full and the local
    /// base is 10000. `assumed` lists the keys for which that happened.
    ///
    /// # Errors
    /// A [`ConfigError`] with the key that is missing, out of bounds, or asks for what is not implemented.
    pub fn from_gguf(metadata: Metadata<'_>) -> Result<Self, ConfigError> {
        let name = metadata.str(keys::ARCHITECTURE)?;
        let architecture = match name {
            Some("qwen3") => Architecture::Qwen3,
            Some("gemma3") => Architecture::Gemma3,
            Some(other) => return Err(unsupported(keys::ARCHITECTURE.into(), format!("{other:?}"), "qwen3, gemma3")),
            None => return Err(ConfigError::Missing { key: keys::ARCHITECTURE.into() }),
        };
        let mut reader = Reader { metadata, architecture, assumed: Vec::new() };
        reader.refuse_unimplemented()?;
        let hidden_size = reader.required(keys::EMBEDDING_LENGTH, MAX_WIDTH)?;
        let num_layers = reader.required(keys::BLOCK_COUNT, MAX_LAYERS)?;
        let num_heads = reader.required(keys::HEAD_COUNT, MAX_HEADS)?;
        let num_kv_heads = reader.size(keys::HEAD_COUNT_KV, MAX_HEADS)?;
        let num_kv_heads = reader.or_assume(keys::HEAD_COUNT_KV, num_kv_heads, num_heads);
        let head_dim = reader.size(keys::KEY_LENGTH, MAX_WIDTH)?;
        let head_dim = reader.or_assume(keys::KEY_LENGTH, head_dim, (hidden_size / num_heads).max(1));
        check_heads(&reader.key(keys::HEAD_COUNT), num_heads, num_kv_heads, head_dim)?;
        for key in [keys::VALUE_LENGTH, keys::ROPE_DIMENSION_COUNT] {
            if let Some(other) = reader.size(key, MAX_WIDTH)?.filter(|other| *other != head_dim) {
                return Err(unsupported(reader.key(key), other.to_string(), "the same as attention.key_length"));
            }
        }
        let eps = reader.float(keys::RMS_EPSILON)?;
        let eps = eps.ok_or_else(|| ConfigError::Missing { key: reader.key(keys::RMS_EPSILON) })?;
        let (causal, attention_scale) = reader.attention(head_dim)?;
        let layers = reader.layers(num_layers, causal)?;
        let pooling = reader.pooling()?;
        Ok(Self {
            architecture,
            vocab_size: reader.vocab_size()?,
            hidden_size,
            intermediate_size: reader.required(keys::FEED_FORWARD_LENGTH, MAX_WIDTH)?,
            num_layers,
            num_heads,
            num_kv_heads,
            head_dim,
            rms_norm_eps: eps as f32,
            attention_scale,
            embedding_scale: architecture.embedding_scale(hidden_size),
            activation: architecture.activation(),
            max_position: reader.required(keys::CONTEXT_LENGTH, MAX_CONTEXT)?,
            causal,
            pooling,
            layers,
            assumed: reader.assumed,
        })
    }
}

struct Reader<'a> {
    metadata: Metadata<'a>,
    architecture: Architecture,
    assumed: Vec<Assumed>,
}

impl Reader<'_> {
    fn key(&self, key: &str) -> String {
        keys::of(self.architecture, key)
    }

    fn size(&self, key: &str, max: usize) -> Result<Option<usize>, ConfigError> {
        let key = self.key(key);
        self.metadata.u64(&key)?.map(|size| bounded(&key, size, max)).transpose()
    }

    fn required(&self, key: &str, max: usize) -> Result<usize, ConfigError> {
        self.size(key, max)?.ok_or_else(|| ConfigError::Missing { key: self.key(key) })
    }

    fn float(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        let key = self.key(key);
        self.metadata.f32(&key)?.map(|value| positive(&key, value.into())).transpose()
    }

    fn assume(&mut self, key: &str, value: impl fmt::Display) {
        self.assumed.push(Assumed { key: self.key(key), value: value.to_string() });
    }

    fn or_assume<T: fmt::Display>(&mut self, key: &str, value: Option<T>, default: T) -> T {
        value.unwrap_or_else(|| {
            self.assume(key, &default);
            default
        })
    }

    fn refuse_unimplemented(&self) -> Result<(), ConfigError> {
        for (key, off) in keys::MUST_BE {
            let key = self.key(key);
            let value = self.metadata.value(&key);
            let number = match value {
                None => continue,
                Some(value) => value.as_integer().map(|integer| integer as f32),
            };
            let number = number.map_or_else(|| self.metadata.f32(&key).map(Option::unwrap_or_default), Ok)?;
            // Not `!=`: a NaN is refused too.
            if !(number == off) {
                return Err(unsupported(key, number.to_string(), if off == 0.0 { "0" } else { "1" }));
            }
        }
        let key = self.key(keys::ROPE_SCALING_TYPE);
        match self.metadata.str(&key)? {
            None | Some("none") => Ok(()),
            Some(other) => Err(unsupported(key, format!("{other:?}"), "none")),
        }
    }

    fn states_attention(&self) -> bool {
        self.metadata.value(&self.key(keys::ATTENTION_SCALE)).is_some()
    }

    /// Whether attention is causal, and the factor on its scores.
    fn attention(&mut self, head_dim: usize) -> Result<(bool, f32), ConfigError> {
        let causal = self.metadata.bool(&self.key(keys::CAUSAL))?;
        let scale = self.float(keys::ATTENTION_SCALE)?.map(|scale| scale as f32);
        let default = inverse_sqrt(head_dim as f64);
        Ok(match self.architecture {
            // Every Qwen3 is causal and scales like this: nothing is assumed.
            Architecture::Qwen3 => (causal.unwrap_or(true), scale.unwrap_or(default)),
            // A file that states the scale is one whose converter states everything about attention, and what it leaves
            // out is meant so; one without it may have lost the rest as well.
            Architecture::Gemma3 if self.states_attention() => (causal.unwrap_or(true), scale.unwrap_or(default)),
            Architecture::Gemma3 => {
                (self.or_assume(keys::CAUSAL, causal, true), self.or_assume(keys::ATTENTION_SCALE, scale, default))
            }
        })
    }

    fn layers(&mut self, num_layers: usize, causal: bool) -> Result<Vec<LayerAttention>, ConfigError> {
        let base = self.float(keys::ROPE_FREQ_BASE)?;
        let full =
            LayerAttention { rope_theta: self.or_assume(keys::ROPE_FREQ_BASE, base, DEFAULT_ROPE_BASE), window: None };
        let window = self.size(keys::SLIDING_WINDOW, MAX_CONTEXT)?;
        let pattern = self.pattern(num_layers)?;
        let local_base = self.float(keys::ROPE_FREQ_BASE_SWA)?;
        if self.architecture == Architecture::Qwen3 {
            return match window {
                Some(window) => Err(unsupported(self.key(keys::SLIDING_WINDOW), window.to_string(), "absent in qwen3")),
                None => Ok(vec![full; num_layers]),
            };
        }
        let Some(window) = window else {
            if pattern.is_some_and(|pattern| pattern.contains(&true)) {
                return Err(ConfigError::Missing { key: self.key(keys::SLIDING_WINDOW) });
            }
            if !self.states_attention() {
                self.assume(keys::SLIDING_WINDOW, "none, every layer is full");
            }
            return Ok(vec![full; num_layers]);
        };
        let pattern = pattern.unwrap_or_else(|| {
            self.assume(keys::SLIDING_WINDOW_PATTERN, DEFAULT_PERIOD);
            periodic(DEFAULT_PERIOD, num_layers)
        });
        let sliding = LayerAttention {
            rope_theta: self.or_assume(keys::ROPE_FREQ_BASE_SWA, local_base, DEFAULT_ROPE_BASE),
            window: Some(effective_window(window, causal)),
        };
        Ok(pattern.into_iter().map(|slides| if slides { sliding } else { full }).collect())
    }

    /// Which layers slide: one boolean a layer, or a period.
    fn pattern(&self, num_layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
        let key = self.key(keys::SLIDING_WINDOW_PATTERN);
        if let Some(Value::Array(array)) = self.metadata.value(&key) {
            if array.len() != num_layers {
                return Err(ConfigError::LayerCount { key, expected: num_layers, found: array.len() });
            }
            return Ok(Some(array.bools()?.collect()));
        }
        let period = self.size(keys::SLIDING_WINDOW_PATTERN, MAX_LAYERS)?;
        Ok(period.map(|period| periodic(period, num_layers)))
    }

    fn pooling(&mut self) -> Result<Pooling, ConfigError> {
        let key = self.key(keys::POOLING_TYPE);
        match self.metadata.u32(&key)? {
            Some(id) => pooling_from_gguf_id(&key, id),
            None => {
                self.assume(keys::POOLING_TYPE, "3 (last)");
                Ok(Pooling::Last)
            }
        }
    }

    /// The key, or else the number of tokens, which is the same in every file that lacks the key.
    fn vocab_size(&self) -> Result<usize, ConfigError> {
        if let Some(size) = self.size(keys::VOCAB_SIZE, MAX_VOCAB)? {
            return Ok(size);
        }
        let tokens = self.metadata.array(keys::tokenizer::TOKENS)?;
        let tokens = tokens.ok_or_else(|| ConfigError::Missing { key: self.key(keys::VOCAB_SIZE) })?;
        bounded(keys::tokenizer::TOKENS, tokens.len() as u64, MAX_VOCAB)
    }
}

fn unsupported(key: String, found: String, supported: &'static str) -> ConfigError {
    ConfigError::Unsupported { key, found, supported }
}
