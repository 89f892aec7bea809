//! The steps of a `tokenizer.json` that are taken, and their counterparts in the library.
//!
//! The library has steps that panic, or take memory without bound, for parameters that a file may well have: an empty
//! pattern to replace, pieces of no length, a damaged character map, a template that names a token it does not define.
//! So none of it is built from the file's own description. What the two families of embedding models use is recognised
//! and built here; anything else is refused by name.

use serde::Deserialize;
use serde_json::{Value, json};
use tokenizers::normalizers::{self, NFC, NormalizerWrapper, Replace};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

use super::TokenizerError;
use crate::config::shown;

/// The pattern of the Qwen2 and Qwen3 tokenizers, and the same without inline flags, as some exporters write it.
const QWEN2_PATTERNS: [&str; 2] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];
const REPLACEMENT: &str = "\u{2581}";

/// The most steps of a sequence, and the most tokens around a text: some ten times what is in use. Each step goes over
/// every text.
const MAX_STEPS: usize = 16;
const MAX_SPECIAL: usize = 16;

/// A part of the document with the path that leads to it.
pub(super) struct Node<'a> {
    value: &'a Value,
    at: String,
}

impl<'a> Node<'a> {
    pub(super) fn new(value: &'a Value, at: &str) -> Self {
        Self { value, at: at.into() }
    }

    /// The value under a key; an absent one is `null`.
    fn get(&self, key: &str) -> Self {
        Self { value: self.value.get(key).unwrap_or(&Value::Null), at: format!("{}.{key}", self.at) }
    }

    fn kind(&self) -> &'a str {
        self.value.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn unsupported(&self, supported: &'static str) -> TokenizerError {
        TokenizerError::Component { component: self.at.clone(), found: shown(self.value), supported }
    }

    /// The refusal of a step for its type.
    fn unsupported_step(&self, supported: &'static str) -> TokenizerError {
        match self.value.get("type") {
            Some(_) => self.get("type").unsupported(supported),
            None => self.unsupported(supported),
        }
    }

    fn expect(&self, holds: impl FnOnce(&Value) -> bool, supported: &'static str) -> Result<(), TokenizerError> {
        if holds(self.value) { Ok(()) } else { Err(self.unsupported(supported)) }
    }

    /// `true`, `false` or nothing, which is `false`.
    pub(super) fn flag(&self) -> Result<bool, TokenizerError> {
        self.expect(|value| value.is_null() || value.is_boolean(), "true, false")?;
        Ok(self.value == true)
    }

    /// Nothing, or the empty string.
    pub(super) fn no_affix(&self) -> Result<(), TokenizerError> {
        self.expect(|value| value.is_null() || value == "", "null, \"\"")
    }

    /// Nothing, or zero.
    pub(super) fn no_rate(&self) -> Result<(), TokenizerError> {
        self.expect(|value| value.is_null() || value.as_f64() == Some(0.0), "null, 0.0")
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    fn list(&self, limit: usize, supported: &'static str) -> Result<Vec<Self>, TokenizerError> {
        let list = self.value.as_array().filter(|list| list.len() <= limit);
        let list = list.ok_or_else(|| self.unsupported(supported))?.iter().enumerate();
        Ok(list.map(|(index, value)| Self { value, at: format!("{}[{index}]", self.at) }).collect())
    }

    /// The steps of a sequence, one step, or none.
    fn steps(self, list: &str) -> Result<Vec<Self>, TokenizerError> {
        match self.value {
            Value::Null => Ok(Vec::new()),
            _ if self.kind() == "Sequence" => self.get(list).list(MAX_STEPS, "a list of at most 16 steps"),
            _ => Ok(vec![self]),
        }
    }
}

fn library(source: Box<dyn std::error::Error + Send + Sync>) -> TokenizerError {
    TokenizerError::Library { source }
}

pub(super) fn normalizer(document: &Value) -> Result<Option<NormalizerWrapper>, TokenizerError> {
    let steps = Node::new(document, "normalizer").steps("normalizers")?;
    let steps = steps.iter().map(|step| match step.kind() {
        "NFC" => Ok(NFC.into()),
        "Replace" => {
            step.get("pattern").expect(|pattern| *pattern == json!({"String": " "}), "{\"String\":\" \"}")?;
            step.get("content").expect(|content| content == REPLACEMENT, "\"\u{2581}\"")?;
            Ok(Replace::new(" ", REPLACEMENT).map_err(library)?.into())
        }
        _ => Err(step.unsupported_step("null, NFC, Replace of \" \" by U+2581, a Sequence of these")),
    });
    let mut steps = steps.collect::<Result<Vec<_>, _>>()?;
    Ok(if steps.len() > 1 { Some(normalizers::Sequence::new(steps).into()) } else { steps.pop() })
}

/// How text is split before the model sees it.
pub(super) struct PreTokenizer {
    pub(super) steps: Option<PreTokenizerWrapper>,
    /// Whether one of the steps is a regular expression.
    pub(super) regex: bool,
    /// Whether the model sees the byte alphabet.
    pub(super) bytes: bool,
}

pub(super) fn pre_tokenizer(document: &Value) -> Result<PreTokenizer, TokenizerError> {
    let (mut regex, mut bytes) = (false, false);
    let steps = Node::new(document, "pre_tokenizer").steps("pretokenizers")?;
    let steps = steps.iter().map(|step| match step.kind() {
        "Split" => {
            step.get("invert").expect(|invert| invert == false, "false")?;
            let (pattern, behavior) = (step.get("pattern"), step.get("behavior"));
            let qwen = pattern.value.as_object().filter(|only| only.len() == 1).and_then(|only| only.get("Regex"));
            let qwen = qwen.and_then(|regex| QWEN2_PATTERNS.into_iter().find(|known| regex == known));
            let (pattern, behavior) = match qwen {
                Some(pattern) => {
                    regex = true;
                    behavior.expect(|behavior| behavior == "Isolated", "\"Isolated\"")?;
                    (SplitPattern::Regex(pattern.into()), SplitDelimiterBehavior::Isolated)
                }
                None => {
                    let space = |pattern: &Value| *pattern == json!({"String": " "});
                    pattern.expect(space, "the Qwen2 pattern, {\"String\":\" \"}")?;
                    let known = SplitDelimiterBehavior::deserialize(behavior.value);
                    let known = known.map_err(|_| behavior.unsupported("\"MergedWithPrevious\" and its like"))?;
                    (SplitPattern::String(" ".into()), known)
                }
            };
            Ok(Split::new(pattern, behavior, false).map_err(library)?.into())
        }
        "ByteLevel" => {
            bytes = true;
            for flag in ["add_prefix_space", "use_regex"] {
                // Both are true where they are absent.
                step.get(flag).expect(|value| value == false, "false")?;
            }
            Ok(ByteLevel::new(false, false, false).into())
        }
        _ => Err(step.unsupported_step("null, Split, ByteLevel, a Sequence of these")),
    });
    let mut steps = steps.collect::<Result<Vec<PreTokenizerWrapper>, _>>()?;
    let steps = if steps.len() > 1 { Some(Sequence::new(steps).into()) } else { steps.pop() };
    Ok(PreTokenizer { steps, regex, bytes })
}

/// The ids around every text.
#[derive(Default)]
pub(super) struct Template {
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
}

/// Reads the post-processor of a tokenizer with `tokens` ids.
pub(super) fn template(document: &Value, tokens: usize) -> Result<Template, TokenizerError> {
    let mut template = None;
    for step in Node::new(document, "post_processor").steps("processors")? {
        match step.kind() {
            // It only trims offsets.
            "ByteLevel" => {}
            "TemplateProcessing" if template.is_none() => template = Some(single(&step, tokens)?),
            _ => return Err(step.unsupported_step("null, ByteLevel, one TemplateProcessing, a Sequence of these")),
        }
    }
    Ok(template.unwrap_or_default())
}

/// The template for a text that stands alone: sequence A once, special tokens around it.
fn single(step: &Node<'_>, tokens: usize) -> Result<Template, TokenizerError> {
    const PIECES: &str = "Sequence A once, at most 16 tokens of special_tokens around it";
    let (pieces, special) = (step.get("single"), step.get("special_tokens"));
    let (mut before, mut after, mut texts) = (Vec::new(), Vec::new(), 0);
    for piece in pieces.list(MAX_SPECIAL + 1, PIECES)? {
        let is_text = piece.value["Sequence"]["id"] == "A";
        let side = if texts == 0 { &mut before } else { &mut after };
        match piece.value["SpecialToken"]["id"].as_str() {
            None if is_text && texts == 0 => texts = 1,
            Some(id) if !is_text => side.extend(special_ids(&piece, special.value.get(id), tokens)?),
            _ => return Err(piece.unsupported(PIECES)),
        }
    }
    pieces.expect(|_| texts == 1 && before.len() + after.len() <= MAX_SPECIAL, PIECES)?;
    Ok(Template { before, after })
}

/// The ids that a template's special token stands for.
fn special_ids(piece: &Node<'_>, token: Option<&Value>, tokens: usize) -> Result<Vec<u32>, TokenizerError> {
    let ids = token.and_then(|token| token["ids"].as_array());
    let ids = ids.ok_or_else(|| piece.unsupported("a token of special_tokens, with its ids"))?.iter();
    let checked = ids.map(|id| {
        let known = id.as_u64().filter(|id| *id < tokens as u64);
        known.map(|id| id as u32).ok_or_else(|| TokenizerError::TemplateId {
            component: piece.at.clone(),
            found: shown(id),
            tokens,
        })
    });
    checked.collect()
}
