//! What is read of a `tokenizer.json`.
//!
//! The large parts, vocabulary and merges, go straight into the form that the library's model is built from; the others
//! stay JSON until [`super::pipeline`] has looked at them. Decoder, padding and truncation are skipped: nothing here
//! decodes, pads, or truncates by them.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use tokenizers::models::bpe::Vocab;

use super::TokenizerError;
use super::pipeline::Node;
use crate::json::{parse, strict, unique};

const BPE: &str = "\"BPE\"";

#[derive(Deserialize)]
#[serde(expecting = "an object with a model and its steps")]
pub(super) struct Document {
    #[serde(default)]
    pub(super) version: Value,
    pub(super) added_tokens: Option<Vec<Added>>,
    #[serde(default, deserialize_with = "strict")]
    pub(super) normalizer: Value,
    #[serde(default, deserialize_with = "strict")]
    pub(super) pre_tokenizer: Value,
    #[serde(default, deserialize_with = "strict")]
    pub(super) post_processor: Value,
    pub(super) model: Model,
}

#[derive(Deserialize)]
pub(super) struct Added {
    pub(super) id: u32,
    pub(super) content: String,
    pub(super) single_word: bool,
    pub(super) lstrip: bool,
    pub(super) rstrip: bool,
    pub(super) normalized: bool,
    pub(super) special: bool,
}

#[derive(Deserialize)]
#[serde(expecting = "an object, the model")]
pub(super) struct Model {
    #[serde(default, rename = "type")]
    pub(super) kind: Value,
    #[serde(default)]
    pub(super) dropout: Value,
    #[serde(default)]
    pub(super) unk_token: Value,
    #[serde(default)]
    pub(super) continuing_subword_prefix: Value,
    #[serde(default)]
    pub(super) end_of_word_suffix: Value,
    #[serde(default)]
    pub(super) fuse_unk: Value,
    #[serde(default)]
    pub(super) byte_fallback: Value,
    #[serde(default)]
    pub(super) ignore_merges: Value,
    #[serde(default, deserialize_with = "vocab")]
    pub(super) vocab: Option<Vocab>,
    pub(super) merges: Option<Vec<Merge>>,
}

/// One merge: `"left right"` or `["left", "right"]`.
pub(super) struct Merge(pub(super) String, pub(super) String);

impl Document {
    pub(super) fn parse(json: &[u8]) -> Result<Self, TokenizerError> {
        let document: Self = parse(json).map_err(|source| {
            // Other models spell vocabulary and merges in other ways; their name says more than where that shows.
            match other_model(json) {
                Some(kind) => Node::new(&kind, "model.type").unsupported(BPE),
                None => TokenizerError::Json { source },
            }
        })?;
        // Early files do not say.
        if !document.model.kind.is_null() && document.model.kind != "BPE" {
            return Err(Node::new(&document.model.kind, "model.type").unsupported(BPE));
        }
        if !document.version.is_null() && document.version != "1.0" {
            return Err(Node::new(&document.version, "version").unsupported("\"1.0\""));
        }
        Ok(document)
    }
}

/// A vocabulary, in which no token may stand twice: readers would differ on its id.
fn vocab<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vocab>, D::Error> {
    #[derive(Deserialize)]
    struct Tokens(#[serde(deserialize_with = "unique")] Vocab);
    Ok(Option::<Tokens>::deserialize(deserializer)?.map(|Tokens(vocab)| vocab))
}

/// The type of a model that says it is not BPE.
fn other_model(json: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct Outline {
        model: ModelOutline,
    }
    #[derive(Deserialize)]
    struct ModelOutline {
        #[serde(rename = "type")]
        kind: Value,
    }
    let outline: Outline = serde_json::from_slice(json).ok()?;
    Some(outline.model.kind).filter(|kind| kind.is_string() && kind != "BPE")
}

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge, \"left right\" or [\"left\", \"right\"]")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Merge, E> {
                match text.split_once(' ') {
                    Some((left, right)) if !right.contains(' ') => Ok(Merge(left.into(), right.into())),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Merge, A::Error> {
                let left = parts.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                let right = parts.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
                match parts.next_element::<IgnoredAny>()? {
                    None => Ok(Merge(left, right)),
                    Some(_) => Err(A::Error::invalid_length(3, &self)),
                }
            }
        }
        deserializer.deserialize_any(Parts)
    }
}
