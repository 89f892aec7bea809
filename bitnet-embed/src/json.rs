//! JSON files, read strictly: errors name the key, and a key that stands twice is one.
//!
//! `serde_json` alone keeps the last of two equal keys. Which of them is meant nobody knows: other readers keep the first.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Characters of a path that are kept.
const LONGEST_KEY: usize = 200;

/// Why JSON was refused.
#[derive(Debug, thiserror::Error)]
#[error("{}{source}", if key.is_empty() { String::new() } else { format!("{}: ", key.escape_debug()) })]
pub struct JsonError {
    /// The path that leads to the key, `added_tokens[3].id`, its beginning if it is long; empty for the whole.
    pub key: String,
    /// What was expected and found there, and where in the text.
    pub source: serde_json::Error,
}

/// Reads JSON into a type of its own.
///
/// # Errors
/// When it is no JSON, or another type than `T` says.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, JsonError> {
    serde_json::from_slice(json).map_err(|source| {
        // Once more, for the path: to keep it costs time that only an error is worth.
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
            Err(error) => {
                let path = error.path().to_string();
                // The whole is `.`, and a key that could not be read `?`.
                let key = path.strip_suffix('?').unwrap_or(&path).trim_end_matches('.');
                let key = key.chars().take(LONGEST_KEY).collect();
                JsonError { key, source: error.into_inner() }
            }
            // What is wrong is behind it.
            Ok(_) => JsonError { key: String::new(), source },
        }
    })
}

/// Reads JSON of any form, in which no object has a key twice.
///
/// # Errors
/// When it is no JSON, or one has.
pub fn parse_value(json: &[u8]) -> Result<Value, JsonError> {
    parse::<Strict>(json).map(|Strict(value)| value)
}

/// [`parse_value`] for a field of a larger type: `#[serde(deserialize_with = "strict")]`.
///
/// # Errors
/// Those of the deserializer, and a key that stands twice.
pub fn strict<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Strict::deserialize(deserializer).map(|Strict(value)| value)
}

/// A map whose keys must differ, for a field of a larger type: `#[serde(deserialize_with = "unique")]`.
///
/// # Errors
/// Those of the deserializer, and a key that stands twice.
pub fn unique<'de, D, M, V>(deserializer: D) -> Result<M, D::Error>
where
    D: Deserializer<'de>,
    M: FromIterator<(String, V)>,
    V: Deserialize<'de>,
{
    struct Entries<V>(PhantomData<V>);
    impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
        type Value = Vec<(String, V)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    let entries = deserializer.deserialize_map(Entries(PhantomData))?;
    let mut keys = HashSet::with_capacity(entries.len());
    match entries.iter().find(|(key, _)| !keys.insert(key.as_str())) {
        Some((key, _)) => Err(twice(key)),
        None => Ok(entries.into_iter().collect()),
    }
}

fn twice<E: serde::de::Error>(key: &str) -> E {
    E::custom(format_args!("the key {key:?} stands there twice; remove the wrong one"))
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor).map(Strict)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if values.contains_key(&key) {
                return Err(A::Error::custom(twice::<A::Error>(&key)));
            }
            let Strict(value) = map.next_value()?;
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_serde_json_reads() {
        for text in
            ["null", "[true, -1, 18446744073709551615, 1.5e3, \"\\u00e9\\n\", []]", "{\"a\": {\"a\": {}}, \"b\": 0}"]
        {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse_value(text.as_bytes()).unwrap(), expected);
        }
    }

    #[test]
    fn errors_name_the_key() {
        let error = |text: &str| parse_value(text.as_bytes()).unwrap_err().to_string();
        for (text, start) in [
            ("{\"a\": 1, \"a\": 1}", "the key \"a\" stands there twice; remove the wrong one at line 1"),
            ("{\"b\": [{\"a\": 1, \"a\": 1}]}", "b[0]: the key \"a\" stands there twice"),
            ("{\"b\": 1e400}", "b: number out of range at line 1 column 11"),
            ("{\"\\u001b\": x}", "\\u{1b}: expected value"),
            ("{\"b\": {x", "b: key must be a string"),
            ("{} x", "trailing characters"),
            ("", "EOF while parsing a value"),
        ] {
            assert!(error(text).starts_with(start), "{}", error(text));
        }
        let deep = error(&"[".repeat(200));
        assert!(deep.contains("recursion limit exceeded") && deep.len() < 300, "{deep}");
    }

    #[test]
    fn a_map_keeps_what_it_has_and_takes_no_key_twice() {
        #[derive(serde::Deserialize)]
        struct Document {
            #[serde(deserialize_with = "unique")]
            map: std::collections::BTreeMap<String, u32>,
        }
        let read = |text: &str| parse::<Document>(text.as_bytes()).map(|document| document.map.len());
        assert_eq!(read("{\"map\": {\"a\": 1, \"b\": 1}}").unwrap(), 2);
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert!(error("{\"map\": {\"a\": 1, \"a\": 1}}").starts_with("map: the key \"a\" stands there twice"));
        assert!(error("{\"map\": {\"a\": -1}}").starts_with("map.a: invalid value: integer `-1`, expected u32"));
        assert!(error("{\"map\": []}").starts_with("map: invalid type: sequence, expected an object"));
    }
}
