//! `config.json` and `modules.json` of a checkpoint.

use std::path::Path;

use bitnet_embed::config::{ConfigError, ModelConfig, Pooling};
use serde_json::Value;

use crate::ConvertError;
use crate::checkpoint::{CheckpointError, read_json_bytes_if_there};

/// What a checkpoint says about its model. A [`ModelConfig`] holds what is computed; a file states it in the terms
/// of the checkpoint, so that every reader can draw its own conclusions.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// What is computed.
    pub model: ModelConfig,
    /// RoPE base of full-attention layers, also where there is no such layer.
    pub full_rope_theta: f64,
    /// How layers with a window differ; `None` if there is none.
    pub sliding: Option<Sliding>,
}

/// What holds for layers with a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sliding {
    /// The window as stated, not halved for a model that sees both directions.
    pub window: usize,
    /// Their RoPE base.
    pub rope_theta: f64,
}

impl SourceConfig {
    /// Reads the folder of a checkpoint. `pooling` replaces what `modules.json` says.
    ///
    /// # Errors
    /// When a file is damaged or missing, the model is not supported, or nothing states its pooling.
    pub fn read(dir: &Path, pooling: Option<Pooling>) -> Result<Self, ConvertError> {
        let path = dir.join("config.json");
        let hint = "give the folder of a Hugging Face checkpoint";
        let config = read_json(&path)?.ok_or_else(|| CheckpointError::NoFile { path: path.clone(), hint })?;
        let pooling = read_modules(dir, pooling)?;
        let unsupported = |source| ConvertError::Config { path, source };
        // The model before the pooling: it is no use to ask for a flag that will not help.
        let mut source = Self::from_json(&config, pooling.unwrap_or(Pooling::Last)).map_err(unsupported)?;
        source.model.pooling = pooling.ok_or_else(|| ConvertError::NoPooling { dir: dir.to_owned() })?;
        Ok(source)
    }

    /// Reads a parsed `config.json`.
    ///
    /// # Errors
    /// Those of [`ModelConfig::from_json`].
    pub fn from_json(config: &Value, pooling: Pooling) -> Result<Self, ConfigError> {
        let model = ModelConfig::from_json(config, pooling)?;
        let full = model.layers.iter().find(|layer| layer.window.is_none());
        let full_rope_theta = match full {
            Some(layer) => layer.rope_theta,
            None => {
                // Asks the one place that knows: the same config with a first layer that is full.
                let mut all_full = config.clone();
                all_full["layer_types"] = vec!["full_attention"; model.num_layers].into();
                ModelConfig::from_json(&all_full, pooling)?.layers.first().map_or(0.0, |layer| layer.rope_theta)
            }
        };
        let sliding = model.layers.iter().find_map(|layer| {
            let effective = layer.window?;
            let stated = config.get("sliding_window").and_then(Value::as_u64).and_then(|w| usize::try_from(w).ok());
            // Not stated: the default, which is even, so undoing `window / 2 + 1` is exact.
            let window = if model.causal { effective } else { effective.saturating_sub(1) * 2 };
            Some(Sliding { window: stated.unwrap_or(window), rope_theta: layer.rope_theta })
        });
        Ok(Self { model, full_rope_theta, sliding })
    }
}

fn read_json(path: &Path) -> Result<Option<Value>, ConvertError> {
    let Some(bytes) = read_json_bytes_if_there(path)? else { return Ok(None) };
    let value = serde_json::from_slice(&bytes);
    let what = "the file";
    Ok(value.map_err(|source| CheckpointError::Json { path: path.to_owned(), what, source })?)
}

/// `given`, or else the pooling of `modules.json`; either way that file may hold only modules that are supported.
fn read_modules(dir: &Path, given: Option<Pooling>) -> Result<Option<Pooling>, ConvertError> {
    let path = dir.join("modules.json");
    let Some(modules) = read_json(&path)? else { return Ok(given) };
    for kind in modules.as_array().into_iter().flatten().filter_map(|module| module["type"].as_str()) {
        if !["Transformer", "Pooling", "Normalize"].iter().any(|known| kind.ends_with(known)) {
            return Err(ConvertError::Module { path, kind: kind.to_owned() });
        }
    }
    if given.is_some() {
        return Ok(given);
    }
    bitnet_embed::config::pooling_of_checkpoint(dir).map_err(|source| match source {
        // These name their file themselves.
        ConfigError::Io { path, source } => CheckpointError::Read { path, source }.into(),
        ConfigError::Json { path, source } => CheckpointError::Json { path, what: "the file", source }.into(),
        source => ConvertError::Config { path, source },
    })
}
