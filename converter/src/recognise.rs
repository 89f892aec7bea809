//! Which of GGUF's two kinds a tokenizer is, judged by what each of its parts does.

use std::fmt;

use serde_json::{Value, json};

use crate::tokenizer_json::TokenizerJson;
use crate::vocab::{VocabError, VocabKind};

/// The pattern of the Qwen2 and Qwen3 tokenizers, and the same without inline flags, as some exporters write it.
const QWEN2_PATTERNS: [&str; 2] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];
/// Which of the two kinds a tokenizer is.
pub(crate) fn recognise(tokenizer: &TokenizerJson) -> Result<VocabKind, VocabError> {
    let model = &tokenizer.model;
    let empty = |affix: &Option<String>| affix.as_deref().unwrap_or_default().is_empty();
    expect(empty(&model.continuing_subword_prefix), "model.continuing_subword_prefix", "none", &"a prefix")?;
    expect(empty(&model.end_of_word_suffix), "model.end_of_word_suffix", "none", &"a suffix")?;
    expect(!model.ignore_merges, "model.ignore_merges", "false", &"true")?;
    expect(model.dropout.is_none_or(|rate| rate == 0.0), "model.dropout", "none", &"a rate")?;

    let normalizer = unwrap_sequence(&tokenizer.normalizer, "normalizers");
    let pre = &tokenizer.pre_tokenizer;
    if model.byte_fallback {
        let replaces_space = normalizer["type"] == "Replace"
            && normalizer["pattern"] == json!({"String": " "})
            && normalizer["content"] == "\u{2581}";
        expect(replaces_space, "normalizer", "space replaced by U+2581 and nothing else", normalizer)?;
        // With every space replaced beforehand, splitting at spaces does nothing.
        let splits_at_space = pre.is_null() || (pre["type"] == "Split" && pre["pattern"] == json!({"String": " "}));
        expect(splits_at_space, "pre_tokenizer", "none, or a split at spaces", pre)?;
        return Ok(VocabKind::Llama);
    }
    expect(normalizer["type"] == "NFC", "normalizer", "NFC (or byte_fallback, as Gemma has it)", normalizer)?;
    let parts = pre["pretokenizers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [split, bytes] = parts else {
        expect(false, "pre_tokenizer", "a split by the Qwen2 pattern, then bytes", pre)?;
        return Ok(VocabKind::Gpt2);
    };
    let pattern = &split["pattern"]["Regex"];
    expect(
        split["type"] == "Split" && split["behavior"] == "Isolated" && split["invert"] != true,
        "pre_tokenizer",
        "an isolating split by the Qwen2 pattern",
        split,
    )?;
    expect(
        pattern.as_str().is_some_and(|pattern| QWEN2_PATTERNS.contains(&pattern)),
        "pre_tokenizer pattern",
        "the Qwen2 pattern",
        pattern,
    )?;
    expect(
        bytes["type"] == "ByteLevel" && bytes["add_prefix_space"] == false && bytes["use_regex"] == false,
        "pre_tokenizer",
        "ByteLevel without prefix space or pattern of its own",
        bytes,
    )?;
    Ok(VocabKind::Gpt2)
}

/// A sequence of one is that one.
fn unwrap_sequence<'a>(value: &'a Value, list: &str) -> &'a Value {
    match value[list].as_array().map(Vec::as_slice) {
        Some([only]) if value["type"] == "Sequence" => only,
        _ => value,
    }
}

/// What the post-processor puts around a single text.
#[derive(Default)]
pub(crate) struct Template {
    pub(crate) before: Option<TemplateToken>,
    pub(crate) after: Option<TemplateToken>,
}

/// A token of the template.
pub(crate) struct TemplateToken {
    pub(crate) content: String,
    /// Its ids by the template's own table, which is what a reader of `tokenizer.json` uses.
    pub(crate) ids: Value,
}

impl Template {
    pub(crate) fn read(value: &Value) -> Result<Self, VocabError> {
        if value.is_null() {
            return Ok(Self::default());
        }
        let one = std::slice::from_ref(value);
        let steps = match value["processors"].as_array() {
            Some(steps) if value["type"] == "Sequence" => steps,
            _ => one,
        };
        let mut template = Self::default();
        let mut found = false;
        for step in steps {
            // ByteLevel as a post-processor only trims offsets.
            if step["type"] == "ByteLevel" {
                continue;
            }
            expect(!found && step["type"] == "TemplateProcessing", "post_processor", "one template", step)?;
            found = true;
            template = Self::from_single(&step["single"], &step["special_tokens"])?;
        }
        Ok(template)
    }

    fn from_single(single: &Value, special_tokens: &Value) -> Result<Self, VocabError> {
        let pieces: Vec<Option<&str>> = single
            .as_array()
            .into_iter()
            .flatten()
            .map(|piece| if piece["Sequence"].is_object() { None } else { piece["SpecialToken"]["id"].as_str() })
            .collect();
        let texts = single.as_array().into_iter().flatten().filter(|piece| piece["Sequence"].is_object()).count();
        let (before, after) = match pieces[..] {
            [None] => (None, None),
            [None, after] => (None, after),
            [before, None] => (before, None),
            [before, None, after] => (before, after),
            _ => (None, None),
        };
        let tokens = usize::from(before.is_some()) + usize::from(after.is_some());
        expect(
            texts == 1 && tokens + 1 == pieces.len(),
            "post_processor template",
            "at most one token on each side of the text",
            single,
        )?;
        let token =
            |content: &str| TemplateToken { content: content.to_owned(), ids: special_tokens[content]["ids"].clone() };
        Ok(Self { before: before.map(token), after: after.map(token) })
    }
}

/// The error for a part of the tokenizer that is not as `expected`.
pub(crate) fn expect(
    holds: bool,
    field: &str,
    expected: &'static str,
    found: &dyn fmt::Display,
) -> Result<(), VocabError> {
    if holds {
        return Ok(());
    }
    let found: String = found.to_string().chars().take(120).collect();
    Err(VocabError::Unsupported { field: field.to_owned(), expected, found })
}
