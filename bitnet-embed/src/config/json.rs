//! Typed access to a JSON object, with errors that name the key. `null` counts as absent, as in `transformers`.

use serde_json::{Map, Value};

use super::{ConfigError, bounded, positive};

#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    map: &'a Map<String, Value>,
    /// What stands before the key in error messages, with its dot.
    prefix: &'a str,
}

impl<'a> Object<'a> {
    pub(super) fn new(value: &'a Value, name: &str) -> Result<Self, ConfigError> {
        let map = value.as_object().ok_or_else(|| wrong_type(name.into(), "an object", value))?;
        Ok(Self { map, prefix: "" })
    }

    /// The object under `key`; `prefix` is the key with its dot.
    pub(super) fn object(&self, key: &str, prefix: &'a str) -> Result<Option<Self>, ConfigError> {
        let nested = self.typed(key, "an object", Value::as_object)?;
        Ok(nested.map(|map| Self { map, prefix }))
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// The key as it is shown in messages.
    pub(super) fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        take: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        take(value).map(Some).ok_or_else(|| wrong_type(self.name(key), expected, value))
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(super) fn str(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        self.typed(key, "a string", Value::as_str)
    }

    pub(super) fn array(&self, key: &str) -> Result<Option<&'a Vec<Value>>, ConfigError> {
        self.typed(key, "an array", Value::as_array)
    }

    /// A positive, finite number.
    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        let number = self.typed(key, "a number", Value::as_f64)?;
        number.map(|number| positive(&self.name(key), number)).transpose()
    }

    /// A size of 1 to `max`.
    pub(super) fn size(&self, key: &str, max: usize) -> Result<Option<usize>, ConfigError> {
        let number = self.typed(key, "a whole number", Value::as_u64)?;
        number.map(|number| bounded(&self.name(key), number, max)).transpose()
    }

    /// A size that must be there.
    pub(super) fn required(&self, key: &str, max: usize) -> Result<usize, ConfigError> {
        self.size(key, max)?.ok_or_else(|| ConfigError::Missing { key: self.name(key) })
    }

    /// The refusal of what `key` says.
    pub(super) fn unsupported(&self, key: &str, supported: &'static str) -> ConfigError {
        let found = self.get(key).map_or_else(|| "null".into(), shown);
        ConfigError::Unsupported { key: self.name(key), found, supported }
    }
}

pub(super) fn wrong_type(key: String, expected: &'static str, found: &Value) -> ConfigError {
    ConfigError::WrongType { key, expected, found: shown(found) }
}

/// A value for a message: as JSON, cut when long.
pub(crate) fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST).chain("...".chars()).collect() }
}
