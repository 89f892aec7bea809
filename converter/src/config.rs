//! `config.json` and `modules.json` of a checkpoint.

use std::path::{Component, Path, PathBuf};

use bitnet_embed::config::{ConfigError, ModelConfig, Pooling, pooling_of_module};
use bitnet_embed::json::parse_value;
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
    /// The `config.json` of the pooling module, if it was read from a folder that has one.
    pub(crate) pooling_config: Option<PathBuf>,
    /// The pooling of the checkpoint, where another one was asked for.
    pub(crate) replaced_pooling: Option<Pooling>,
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
        let modules = match read_modules(dir, pooling) {
            // The model before a missing pooling: it is no use to ask for a flag that will not help.
            Err(missing @ ConvertError::NoPooling { .. }) => Err(missing),
            other => Ok(other?),
        };
        let stated = modules.as_ref().map_or(Pooling::Last, |modules| modules.pooling);
        let source = Self::from_json(&config, stated).map_err(|source| ConvertError::Config { path, source })?;
        let Modules { config, replaced, .. } = modules?;
        Ok(Self { pooling_config: config, replaced_pooling: replaced, ..source })
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
        Ok(Self { model, full_rope_theta, sliding, pooling_config: None, replaced_pooling: None })
    }
}

fn read_json(path: &Path) -> Result<Option<Value>, ConvertError> {
    let Some(bytes) = read_json_bytes_if_there(path)? else { return Ok(None) };
    // Not an `Option<Value>`, for which a file that says `null` would be one that is not there.
    let value = parse_value(&bytes);
    let what = "the file";
    Ok(Some(value.map_err(|source| CheckpointError::Json { path: path.to_owned(), what, source })?))
}

/// What `modules.json` says.
struct Modules {
    pooling: Pooling,
    /// The `config.json` of the pooling module.
    config: Option<PathBuf>,
    replaced: Option<Pooling>,
}

/// Reads `modules.json`. `given` stands for a pooling that is missing, or replaces it; never for the check that all modules
/// are supported.
fn read_modules(dir: &Path, given: Option<Pooling>) -> Result<Modules, ConvertError> {
    let path = dir.join("modules.json");
    let only = |pooling| Modules { pooling, config: None, replaced: None };
    let no_pooling = |found| ConvertError::NoPooling { dir: dir.to_owned(), found };
    let Some(modules) = read_json(&path)? else {
        return given.map(only).ok_or_else(|| no_pooling("no modules.json"));
    };
    let fail = |source| ConvertError::Config { path: path.clone(), source };
    let wrong = |key: &str, expected, found: &Value| {
        let found = found.to_string().chars().take(60).collect();
        fail(ConfigError::WrongType { key: key.to_owned(), expected, found })
    };
    let list = modules.as_array().ok_or_else(|| wrong("modules.json", "an array", &modules))?;
    let mut folder = None;
    for module in list {
        let kind = module["type"].as_str().ok_or_else(|| wrong("type", "a string", &module["type"]))?;
        match kind.rsplit('.').next() {
            Some("Transformer" | "Normalize") => {}
            Some("Pooling") if folder.is_some() => {
                let (key, found) = ("type".to_owned(), kind.to_owned());
                return Err(fail(ConfigError::Unsupported { key, found, supported: "Pooling only once" }));
            }
            Some("Pooling") => {
                folder = Some(module["path"].as_str().ok_or_else(|| wrong("path", "a string", &module["path"]))?);
            }
            // A dense layer after pooling, for example, would make other vectors.
            _ => return Err(ConvertError::Module { path, kind: kind.to_owned() }),
        }
    }
    let Some(folder) = folder else {
        return given.map(only).ok_or_else(|| no_pooling("modules.json names no pooling module"));
    };
    let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(folder).components().all(inside) {
        return Err(fail(ConfigError::ModulePath { path: folder.to_owned() }));
    }
    let config = dir.join(folder).join("config.json");
    let stated = match read_json(&config)? {
        Some(json) => {
            Some(pooling_of_module(&json).map_err(|source| ConvertError::Config { path: config.clone(), source })?)
        }
        None => None,
    };
    let hint = "modules.json names it; download it, or say --pooling last|mean|cls";
    let missing = || CheckpointError::NoFile { path: config.clone(), hint };
    let pooling = given.or(stated).ok_or_else(missing)?;
    Ok(Modules { pooling, replaced: stated.filter(|stated| *stated != pooling), config: Some(config) })
}
