//! The fields of `tokenizer.json` and `tokenizer_config.json` that are read, as the files spell them.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;

/// `tokenizer.json`.
#[derive(Deserialize)]
pub(crate) struct TokenizerJson {
    #[serde(default)]
    pub(crate) added_tokens: Vec<AddedToken>,
    pub(crate) normalizer: Option<Value>,
    pub(crate) pre_tokenizer: Option<Value>,
    pub(crate) post_processor: Option<Value>,
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
#[derive(Default, Deserialize)]
pub(crate) struct TokenizerConfig {
    #[serde(default, deserialize_with = "token_text")]
    pub(crate) bos_token: Option<String>,
    #[serde(default, deserialize_with = "token_text")]
    pub(crate) eos_token: Option<String>,
    #[serde(default, deserialize_with = "token_text")]
    pub(crate) unk_token: Option<String>,
    #[serde(default, deserialize_with = "token_text")]
    pub(crate) pad_token: Option<String>,
    pub(crate) add_bos_token: Option<bool>,
    pub(crate) add_eos_token: Option<bool>,
    pub(crate) tokenizer_class: Option<String>,
}

/// A special token is a string, or an object whose `content` is the string.
fn token_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Spelling {
        Text(String),
        Object { content: String },
    }
    Ok(Option::<Spelling>::deserialize(deserializer)?.map(|spelling| match spelling {
        Spelling::Text(text) | Spelling::Object { content: text } => text,
    }))
}
