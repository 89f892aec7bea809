//! `KEY=TYPE:VALUE`: metadata from the caller in front of the file's.

use std::str::FromStr;

use super::ConfigError;
use crate::gguf::OwnedValue;

/// Values that replace, or add to, the metadata of a GGUF file; of several for one key that are [pushed](Self::push) the
/// last one counts.
///
/// ```
/// # use bitnet_embed::config::Overrides;
/// let mut overrides = Overrides::default();
/// overrides.parse_push("qwen3.rope.freq_base=float:1e6")?;
/// overrides.push("qwen3.pooling_type", 1u32);
/// assert_eq!(overrides.as_slice().len(), 2);
/// # Ok::<(), bitnet_embed::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Overrides(Vec<(String, OwnedValue)>);

impl Overrides {
    /// Adds a value.
    pub fn push(&mut self, key: impl Into<String>, value: impl Into<OwnedValue>) {
        self.0.push((key.into(), value.into()));
    }

    /// Adds a value written as `KEY=TYPE:VALUE`, where `TYPE` is `int`, `float`, `bool` or `str`.
    ///
    /// # Errors
    /// [`ConfigError::OverrideForm`], [`ConfigError::OverrideType`], [`ConfigError::OverrideValue`], and
    /// [`ConfigError::OverrideTwice`], for somebody who writes two values for one key means only one of them.
    pub fn parse_push(&mut self, text: &str) -> Result<(), ConfigError> {
        let (key, value) = parse(text)?;
        if self.keys().any(|stated| stated == key) {
            return Err(ConfigError::OverrideTwice { key });
        }
        self.0.push((key, value));
        Ok(())
    }

    /// The keys that are stated, in the order given.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// The overrides in the form that [`crate::gguf::Metadata::with_overrides`] takes.
    pub fn as_slice(&self) -> &[(String, OwnedValue)] {
        &self.0
    }
}

impl FromStr for Overrides {
    type Err = ConfigError;

    /// One override, see [`Overrides::parse_push`].
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        parse(text).map(|entry| Self(vec![entry]))
    }
}

fn parse(text: &str) -> Result<(String, OwnedValue), ConfigError> {
    let form = || ConfigError::OverrideForm { text: text.into() };
    let (key, typed) = text.split_once('=').ok_or_else(form)?;
    let (kind, value) = typed.split_once(':').ok_or_else(form)?;
    if key.is_empty() {
        return Err(form());
    }
    let bad = |expected| ConfigError::OverrideValue { text: text.into(), value: value.into(), expected };
    let value = match kind {
        "int" => OwnedValue::I64(value.parse().map_err(|_| bad("an integer"))?),
        "float" => match value.parse() {
            Ok(value) if f64::is_finite(value) => OwnedValue::F64(value),
            _ => return Err(bad("a finite number")),
        },
        "bool" => OwnedValue::Bool(value.parse().map_err(|_| bad("true or false"))?),
        "str" => OwnedValue::Str(value.into()),
        _ => return Err(ConfigError::OverrideType { text: text.into(), found: kind.into() }),
    };
    Ok((key.into(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_parsed() {
        for (text, key, value) in [
            ("a.b=int:-3", "a.b", OwnedValue::I64(-3)),
            ("a=float:1e6", "a", OwnedValue::F64(1e6)),
            ("a=bool:false", "a", OwnedValue::Bool(false)),
            ("a=str:x=y:z", "a", OwnedValue::Str("x=y:z".into())),
            ("a=str:", "a", OwnedValue::Str(String::new())),
        ] {
            assert_eq!(parse(text).unwrap(), (key.into(), value), "{text}");
        }
    }

    #[test]
    fn a_key_is_stated_once() {
        let mut overrides = Overrides::default();
        overrides.parse_push("a=int:1").unwrap();
        let error = overrides.parse_push("a=float:2").unwrap_err();
        assert_eq!(error.to_string(), "the key \"a\" is overridden twice; state one value for it");
        overrides.parse_push("b=int:1").unwrap();
        assert_eq!(overrides.keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        for (text, message) in [
            ("a", "the override \"a\" is not KEY=TYPE:VALUE"),
            ("a=int", "the override \"a=int\" is not KEY=TYPE:VALUE"),
            ("=int:1", "the override \"=int:1\" is not KEY=TYPE:VALUE"),
            ("a=u32:1", "the override \"a=u32:1\" has type \"u32\", not int, float, bool or str"),
            ("a=int:1.5", "the override \"a=int:1.5\": \"1.5\" is not an integer"),
            ("a=float:nan", "the override \"a=float:nan\": \"nan\" is not a finite number"),
            ("a=bool:1", "the override \"a=bool:1\": \"1\" is not true or false"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }
}
