//! How the vectors of a text's tokens become one vector.

use std::path::{Component, Path};

use serde_json::Value;

use super::ConfigError;
use super::hf::read_json;
use super::json::{Object, wrong_type};

pub use burn_i2s::pooling::Pooling;

/// The modes of a sentence-transformers pooling module; `None`: not implemented.
const MODES: [(&str, &str, Option<Pooling>); 6] = [
    ("pooling_mode_cls_token", "cls", Some(Pooling::Cls)),
    ("pooling_mode_mean_tokens", "mean", Some(Pooling::Mean)),
    ("pooling_mode_lasttoken", "lasttoken", Some(Pooling::Last)),
    ("pooling_mode_max_tokens", "max", None),
    ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", None),
    ("pooling_mode_weightedmean_tokens", "weightedmean", None),
];
const SUPPORTED: &str = "exactly one of lasttoken, mean_tokens, cls_token";

/// A pooling's number in a GGUF file.
pub fn pooling_gguf_id(pooling: Pooling) -> u32 {
    match pooling {
        Pooling::Mean => 1,
        Pooling::Cls => 2,
        Pooling::Last => 3,
    }
}

/// The pooling with that number in a GGUF file; `key` is the key it stands under.
pub(super) fn pooling_from_gguf_id(key: &str, id: u32) -> Result<Pooling, ConfigError> {
    let pooling =
        [Pooling::Mean, Pooling::Cls, Pooling::Last].into_iter().find(|pooling| pooling_gguf_id(*pooling) == id);
    pooling.ok_or_else(|| ConfigError::Unsupported {
        key: key.into(),
        found: match id {
            0 => "0 (none)".into(),
            4 => "4 (rank)".into(),
            _ => id.to_string(),
        },
        supported: "1 (mean), 2 (cls), 3 (last); an override of the key chooses one",
    })
}

/// Reads `modules.json` of the checkpoint in `dir` and the pooling module it names, as sentence-transformers does.
/// `None` if there is no `modules.json` or no pooling module in it.
///
/// # Errors
/// Unreadable files, a module path that leaves `dir`, and modules and modes that are not implemented.
pub fn pooling_of_checkpoint(dir: impl AsRef<Path>) -> Result<Option<Pooling>, ConfigError> {
    let dir = dir.as_ref();
    let modules = match read_json(&dir.join("modules.json")) {
        Err(ConfigError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let list = modules.as_array().ok_or_else(|| wrong_type("modules.json".into(), "an array", &modules))?;
    let mut pooling = None;
    for module in list {
        let module = Object::new(module, "modules.json")?;
        let kind = module.str("type")?.ok_or_else(|| ConfigError::Missing { key: "type".into() })?;
        match kind.rsplit('.').next() {
            Some("Pooling") => {}
            Some("Transformer" | "Normalize") => continue,
            // A dense layer after pooling, for example, would make other vectors.
            _ => return Err(module.unsupported("type", "Transformer, Pooling, Normalize")),
        }
        if pooling.is_some() {
            return Err(module.unsupported("type", "Pooling only once"));
        }
        let path = module.str("path")?.ok_or_else(|| ConfigError::Missing { key: "path".into() })?;
        let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(path).components().all(inside) {
            return Err(ConfigError::ModulePath { path: path.into() });
        }
        let config = read_json(&dir.join(path).join("config.json"))?;
        pooling = Some(pooling_of_module(&config)?);
    }
    Ok(pooling)
}

/// Reads the parsed `config.json` of a pooling module: one flag a mode, or `pooling_mode` with a name.
///
/// # Errors
/// A [`ConfigError`] with the key that is missing, of another type, or asks for what is not implemented.
pub fn pooling_of_module(config: &Value) -> Result<Pooling, ConfigError> {
    let config = Object::new(config, "the pooling module's config.json")?;
    let mut chosen = None;
    for (key, _, pooling) in MODES {
        if config.bool(key)? == Some(true) {
            // Two modes at once concatenate their vectors.
            if pooling.is_none() || chosen.is_some() {
                return Err(config.unsupported(key, SUPPORTED));
            }
            chosen = pooling;
        }
    }
    if let (None, Some(name)) = (chosen, config.str("pooling_mode")?) {
        chosen = MODES.iter().find(|mode| mode.1 == name).and_then(|mode| mode.2);
        if chosen.is_none() {
            return Err(config.unsupported("pooling_mode", "\"lasttoken\", \"mean\", \"cls\""));
        }
    }
    chosen.ok_or_else(|| ConfigError::Missing { key: "pooling_mode_*".into() })
}
