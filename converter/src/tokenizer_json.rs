//! The fields of `tokenizer.json` and `tokenizer_config.json` that are read, as the files spell them.

use std::collections::HashMap;
use std::fmt;

use bitnet_embed::json::{parse_value, strict, unique};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;

use crate::vocab::VocabError;

/// `tokenizer.json`.
#[derive(Deserialize)]
pub(crate) struct TokenizerJson {
    #[serde(default)]
    pub(crate) added_tokens: Vec<AddedToken>,
    #[serde(default, deserialize_with = "strict")]
    pub(crate) normalizer: Value,
    #[serde(default, deserialize_with = "strict")]
    pub(crate) pre_tokenizer: Value,
    #[serde(default, deserialize_with = "strict")]
    pub(crate) post_processor: Value,
    pub(crate) model: ModelSpec,
}

/// A token that is cut out of the text before anything else happens to it.
#[derive(Deserialize)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) single_word: bool,
    #[serde(default)]
    pub(crate) lstrip: bool,
    #[serde(default)]
    pub(crate) rstrip: bool,
    #[serde(default)]
    pub(crate) special: bool,
}

/// The BPE model.
#[derive(Deserialize)]
pub(crate) struct ModelSpec {
    pub(crate) dropout: Option<f32>,
    pub(crate) unk_token: Option<String>,
    pub(crate) continuing_subword_prefix: Option<String>,
    pub(crate) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(crate) byte_fallback: bool,
    #[serde(default)]
    pub(crate) ignore_merges: bool,
    #[serde(deserialize_with = "unique")]
    pub(crate) vocab: HashMap<String, u32>,
    pub(crate) merges: Vec<Merge>,
}

/// One merge. Files spell it `"left right"` or `["left", "right"]`; one allocation either way, for there are
/// half a million of them.
pub(crate) struct Merge {
    both: String,
    left_len: usize,
}

impl Merge {
    pub(crate) fn left(&self) -> &str {
        &self.both[..self.left_len]
    }

    pub(crate) fn right(&self) -> &str {
        &self.both[self.left_len..]
    }

    /// The token that the merge makes.
    pub(crate) fn both(&self) -> &str {
        &self.both
    }
}

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge: \"left right\" or [\"left\", \"right\"]")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Merge, E> {
                match text.split_once(' ') {
                    Some((left, right)) if !right.contains(' ') => {
                        Ok(Merge { both: [left, right].concat(), left_len: left.len() })
                    }
                    _ => Err(E::custom(format_args!("merge {text:?} is not two tokens with a space between them"))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Merge, A::Error> {
                let mut both: String = parts.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                let left_len = both.len();
                let right: String = parts.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
                if parts.next_element::<serde::de::IgnoredAny>()?.is_some() {
                    return Err(A::Error::invalid_length(3, &self));
                }
                both.push_str(&right);
                Ok(Merge { both, left_len })
            }
        }
        deserializer.deserialize_any(MergeVisitor)
    }
}

/// `tokenizer_config.json`.
#[derive(Default)]
pub(crate) struct TokenizerConfig {
    pub(crate) bos_token: Option<String>,
    pub(crate) eos_token: Option<String>,
    pub(crate) unk_token: Option<String>,
    pub(crate) pad_token: Option<String>,
    pub(crate) add_bos_token: Option<bool>,
    pub(crate) add_eos_token: Option<bool>,
    pub(crate) tokenizer_class: Option<String>,
}

impl TokenizerConfig {
    /// Reads the file field by field, so that errors name the field.
    pub(crate) fn read(json: &[u8]) -> Result<Self, VocabError> {
        let config = parse_value(json).map_err(|source| VocabError::ConfigJson { source })?;
        if !config.is_object() {
            return Err(wrong("the file", "an object", &config));
        }
        let flag = |field| typed(&config, field, "true or false", Value::as_bool);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        // A special token is a string, or an object whose `content` is the string.
        let token = |field| {
            let expected = "a string or an object with a string \"content\"";
            typed(&config, field, expected, |value| text(value).or_else(|| text(&value["content"])))
        };
        Ok(Self {
            bos_token: token("bos_token")?,
            eos_token: token("eos_token")?,
            unk_token: token("unk_token")?,
            pad_token: token("pad_token")?,
            add_bos_token: flag("add_bos_token")?,
            add_eos_token: flag("add_eos_token")?,
            tokenizer_class: typed(&config, "tokenizer_class", "a string", text)?,
        })
    }
}

/// A field, if it is there and not null.
fn typed<T>(
    config: &Value,
    field: &'static str,
    expected: &'static str,
    take: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, VocabError> {
    let Some(value) = config.get(field).filter(|value| !value.is_null()) else { return Ok(None) };
    take(value).map(Some).ok_or_else(|| wrong(field, expected, value))
}

fn wrong(field: &'static str, expected: &'static str, found: &Value) -> VocabError {
    VocabError::ConfigField { field, expected, found: found.to_string().chars().take(60).collect() }
}
