//! `config.json` of `transformers`, model types `qwen3` and `gemma3_text`.

use std::path::Path;

use serde_json::Value;

use super::json::{Object, shown, wrong_type};
use super::{
    Architecture, ConfigError, LayerAttention, MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, ModelConfig,
    Pooling, check_heads, effective_window, inverse_sqrt,
};
use crate::file::read_regular;
use crate::json;

/// The longest configuration file read; a real one has some kilobytes.
const MAX_JSON_BYTES: u64 = 16 << 20;
const MODEL_TYPE: &str = "model_type";
const SLIDING: &str = "sliding_attention";
const FULL: &str = "full_attention";

impl ModelConfig {
    /// Reads a parsed `config.json`. How the model pools is not in there, see [`super::pooling_of_checkpoint`].
    ///
    /// # Errors
    /// A [`ConfigError`] with the key that is missing, out of bounds, or asks for what is not implemented.
    pub fn from_json(config: &Value, pooling: Pooling) -> Result<Self, ConfigError> {
        let config = Object::new(config, "config.json")?;
        let architecture = match config.str(MODEL_TYPE)? {
            Some("qwen3") => Architecture::Qwen3,
            Some("gemma3_text") => Architecture::Gemma3,
            Some(_) => return Err(config.unsupported(MODEL_TYPE, "\"qwen3\", \"gemma3_text\"")),
            None => return Err(ConfigError::Missing { key: MODEL_TYPE.into() }),
        };
        refuse_unimplemented(&config, architecture)?;
        let hidden_size = config.required("hidden_size", MAX_WIDTH)?;
        let num_layers = config.required("num_hidden_layers", MAX_LAYERS)?;
        let num_heads = config.required("num_attention_heads", MAX_HEADS)?;
        // The defaults of the two configuration classes; they hold whatever the hidden size is.
        let (default_kv_heads, default_head_dim, default_context) = match architecture {
            Architecture::Qwen3 => (num_heads, 128, 32_768),
            Architecture::Gemma3 => (4, 256, 131_072),
        };
        let num_kv_heads = config.size("num_key_value_heads", MAX_HEADS)?.unwrap_or(default_kv_heads);
        let head_dim = config.size("head_dim", MAX_WIDTH)?.unwrap_or(default_head_dim);
        check_heads("num_attention_heads", num_heads, num_kv_heads, head_dim)?;
        let (layers, causal, score_divisor) = match architecture {
            Architecture::Qwen3 => (qwen3_layers(&config, num_layers)?, true, head_dim as f64),
            Architecture::Gemma3 => {
                let causal = !config.bool("use_bidirectional_attention")?.unwrap_or(false);
                let divisor = config.float("query_pre_attn_scalar")?.unwrap_or(256.0);
                (gemma3_layers(&config, num_layers, causal)?, causal, divisor)
            }
        };
        Ok(Self {
            architecture,
            vocab_size: config.required("vocab_size", MAX_VOCAB)?,
            hidden_size,
            intermediate_size: config.required("intermediate_size", MAX_WIDTH)?,
            num_layers,
            num_heads,
            num_kv_heads,
            head_dim,
            rms_norm_eps: config.float("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            attention_scale: inverse_sqrt(score_divisor),
            embedding_scale: architecture.embedding_scale(hidden_size),
            activation: architecture.activation(),
            max_position: config.size("max_position_embeddings", MAX_CONTEXT)?.unwrap_or(default_context),
            causal,
            pooling,
            layers,
            assumed: Vec::new(),
        })
    }

    /// Reads the `config.json` at `path`, see [`Self::from_json`].
    ///
    /// # Errors
    /// [`ConfigError::Io`], [`ConfigError::Json`], and those of [`Self::from_json`].
    pub fn from_json_file(path: impl AsRef<Path>, pooling: Pooling) -> Result<Self, ConfigError> {
        Self::from_json(&read_json(path.as_ref())?, pooling)
    }
}

/// Parses a JSON file of at most [`MAX_JSON_BYTES`].
pub(super) fn read_json(path: &Path) -> Result<Value, ConfigError> {
    let bytes = read_regular(path, MAX_JSON_BYTES).map_err(|source| ConfigError::Io { path: path.into(), source })?;
    json::parse_value(&bytes).map_err(|source| ConfigError::Json { path: path.into(), source })
}

/// Refuses every key that would change the computation into one that is not implemented.
fn refuse_unimplemented(config: &Object<'_>, architecture: Architecture) -> Result<(), ConfigError> {
    for key in ["attention_bias", "mlp_bias"] {
        if config.bool(key)? == Some(true) {
            return Err(config.unsupported(key, "false"));
        }
    }
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if config.get(key).is_some() {
            return Err(config.unsupported(key, "null"));
        }
    }
    if let Some(scaling) = config.object("rope_scaling", "rope_scaling.")? {
        check_rope(&scaling)?;
        if scaling.get("rope_type").or(scaling.get("type")).is_none() {
            return Err(config.unsupported("rope_scaling", "null"));
        }
    }
    let (activation, supported) = match architecture {
        Architecture::Qwen3 => ("silu", "\"silu\""),
        Architecture::Gemma3 => ("gelu_pytorch_tanh", "\"gelu_pytorch_tanh\""),
    };
    for key in ["hidden_act", "hidden_activation"] {
        if config.str(key)?.is_some_and(|found| found != activation) {
            return Err(config.unsupported(key, supported));
        }
    }
    Ok(())
}

/// Refuses RoPE types other than the default one, and heads that are rotated in part.
fn check_rope(rope: &Object<'_>) -> Result<(), ConfigError> {
    for key in ["rope_type", "type"] {
        if rope.str(key)?.is_some_and(|kind| kind != "default") {
            return Err(rope.unsupported(key, "\"default\""));
        }
    }
    match rope.float("partial_rotary_factor")? {
        Some(factor) if factor != 1.0 => Err(rope.unsupported("partial_rotary_factor", "1.0")),
        _ => Ok(()),
    }
}

fn qwen3_layers(config: &Object<'_>, num_layers: usize) -> Result<Vec<LayerAttention>, ConfigError> {
    if config.bool("use_sliding_window")? == Some(true) {
        return Err(config.unsupported("use_sliding_window", "false"));
    }
    if layer_types(config, num_layers)?.is_some_and(|sliding| sliding.contains(&true)) {
        return Err(config.unsupported("layer_types", "\"full_attention\" for every layer"));
    }
    let parameters = config.object("rope_parameters", "rope_parameters.")?;
    if let Some(parameters) = &parameters {
        check_rope(parameters)?;
    }
    let theta = match (config.float("rope_theta")?, parameters) {
        (Some(theta), _) => Some(theta),
        (None, Some(parameters)) => parameters.float("rope_theta")?,
        (None, None) => None,
    };
    // No default: `transformers` has changed its own, and the published checkpoints all say.
    let rope_theta = theta.ok_or_else(|| ConfigError::Missing { key: "rope_theta".into() })?;
    Ok(vec![LayerAttention { rope_theta, window: None }; num_layers])
}

fn gemma3_layers(config: &Object<'_>, num_layers: usize, causal: bool) -> Result<Vec<LayerAttention>, ConfigError> {
    let sliding = match layer_types(config, num_layers)? {
        Some(sliding) => sliding,
        None => {
            let period = match config.size("sliding_window_pattern", MAX_LAYERS)? {
                Some(period) => Some(period),
                None => config.size("_sliding_window_pattern", MAX_LAYERS)?,
            };
            periodic(period.unwrap_or(6), num_layers)
        }
    };
    let (mut full_theta, mut sliding_theta) = (None, None);
    if let Some(parameters) = config.object("rope_parameters", "rope_parameters.")? {
        // One flat set says nothing about which kind of layer it is for.
        if ["rope_theta", "rope_type", "type"].iter().any(|key| parameters.get(key).is_some()) {
            return Err(config.unsupported("rope_parameters", "one set for each of full_attention, sliding_attention"));
        }
        let theta_of = |key, prefix| match parameters.object(key, prefix)? {
            Some(rope) => check_rope(&rope).and_then(|()| rope.float("rope_theta")),
            None => Ok(None),
        };
        full_theta = theta_of(FULL, "rope_parameters.full_attention.")?;
        sliding_theta = theta_of(SLIDING, "rope_parameters.sliding_attention.")?;
    }
    let full_theta = full_theta.or(config.float("rope_theta")?).unwrap_or(1e6);
    let sliding_theta = sliding_theta.or(config.float("rope_local_base_freq")?).unwrap_or(1e4);
    let window = effective_window(config.size("sliding_window", MAX_CONTEXT)?.unwrap_or(4096), causal);
    let layer = |sliding| match sliding {
        true => LayerAttention { rope_theta: sliding_theta, window: Some(window) },
        false => LayerAttention { rope_theta: full_theta, window: None },
    };
    Ok(sliding.into_iter().map(layer).collect())
}

/// Which layers slide, when every `period`-th one does not.
pub(super) fn periodic(period: usize, num_layers: usize) -> Vec<bool> {
    (1..=num_layers).map(|layer| !layer.is_multiple_of(period)).collect()
}

/// Which layers slide according to `layer_types`, if it is there.
fn layer_types(config: &Object<'_>, num_layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    const KEY: &str = "layer_types";
    let Some(types) = config.array(KEY)? else { return Ok(None) };
    if types.len() != num_layers {
        return Err(ConfigError::LayerCount { key: KEY.into(), expected: num_layers, found: types.len() });
    }
    let slides = types.iter().map(|kind| match kind.as_str() {
        Some(SLIDING) => Ok(true),
        Some(FULL) => Ok(false),
        Some(_) => Err(ConfigError::Unsupported {
            key: KEY.into(),
            found: shown(kind),
            supported: "\"full_attention\", \"sliding_attention\"",
        }),
        None => Err(wrong_type(KEY.into(), "an array of strings", kind)),
    });
    slides.collect::<Result<_, _>>().map(Some)
}
