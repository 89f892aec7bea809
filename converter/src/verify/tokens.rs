//! Token ids: the file's tokenizer against `tokenizer.json`, on the texts of [`TEXTS`] and on every token as a text.

use std::path::Path;

use bitnet_embed::gguf::GgufFile;
use bitnet_embed::tokenizer::{TokenType, Tokenizer, TokenizerError};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::texts::TEXTS;
use super::{Difference, VerifyReport};
use crate::ConvertError;
use crate::convert::Prepared;
use crate::vocab::{Vocab, VocabError, VocabKind};

/// Texts with other ids that are shown.
const SHOWN: usize = 3;

pub(super) fn compare<B: AsRef<[u8]>>(
    file: &GgufFile<B>,
    prepared: &Prepared,
    dir: &Path,
    report: &mut VerifyReport,
) -> Result<(), ConvertError> {
    let reference = reference(prepared).map_err(|source| ConvertError::Vocab {
        path: dir.join("tokenizer.json"),
        source: VocabError::Library { source },
    })?;
    let tokenizer = match Tokenizer::from_gguf(file.metadata()) {
        Ok(tokenizer) => tokenizer,
        Err(source) => {
            report.differences.push(Difference::Tokenizer { source });
            return Ok(());
        }
    };
    let mut texts: Vec<String> = TEXTS.iter().map(|text| (*text).to_owned()).collect();
    texts.extend(token_texts(&prepared.vocab));
    report.texts += texts.len();
    let ids = |tokenizer: &Tokenizer, text: &str| {
        tokenizer.encode(text).map_or_else(|error| error.to_string(), |ids| format!("{ids:?}"))
    };
    let different: Vec<Difference> = texts
        .par_iter()
        .filter_map(|text| {
            let (expected, found) = (ids(&reference, text), ids(&tokenizer, text));
            (expected != found).then(|| Difference::Ids { text: text.clone(), expected, found })
        })
        .collect();
    if different.len() > SHOWN {
        report.notes.push(format!("{} texts have other token ids; the first {SHOWN} are shown", different.len()));
    }
    report.differences.extend(different.into_iter().take(SHOWN));
    Ok(())
}

/// `tokenizer.json`, with the special tokens around a text that the conversion found to count.
fn reference(prepared: &Prepared) -> Result<Tokenizer, TokenizerError> {
    let Ok(mut json) = serde_json::from_slice::<Value>(&prepared.tokenizer) else {
        return Tokenizer::from_json_for_rows(&prepared.tokenizer, prepared.config.model.vocab_size);
    };
    let vocab = &prepared.vocab;
    let sequence = json!({"Sequence": {"id": "A", "type_id": 0}});
    let token =
        |id: Option<u32>, added: bool| id.filter(|_| added).and_then(|id| vocab.tokens.get(id as usize).zip(Some(id)));
    let (before, after) = (token(vocab.bos, vocab.add_bos), token(vocab.eos, vocab.add_eos));
    let piece = |(token, _): (&String, u32)| json!({"SpecialToken": {"id": token, "type_id": 0}});
    let single: Vec<Value> = before.map(piece).into_iter().chain([sequence.clone()]).chain(after.map(piece)).collect();
    let special: serde_json::Map<String, Value> = before
        .into_iter()
        .chain(after)
        .map(|(token, id)| (token.clone(), json!({"id": token, "ids": [id], "tokens": [token]})))
        .collect();
    let second = json!({"Sequence": {"id": "B", "type_id": 0}});
    json["post_processor"] = json!({
        "type": "TemplateProcessing", "single": single, "pair": [sequence, second], "special_tokens": special,
    });
    Tokenizer::from_json_for_rows(json.to_string().as_bytes(), prepared.config.model.vocab_size)
}

/// Every token as the text it stands for; tokens that are part of a character stand for none.
fn token_texts(vocab: &Vocab) -> impl Iterator<Item = String> {
    vocab.tokens.iter().zip(&vocab.types).filter(|(_, kind)| **kind != TokenType::Unused).filter_map(|(token, kind)| {
        match vocab.kind {
            VocabKind::Llama => Some(token.replace('\u{2581}', " ")),
            VocabKind::Gpt2 if *kind != TokenType::Normal => Some(token.clone()),
            VocabKind::Gpt2 => String::from_utf8(token.chars().map(byte_of).collect::<Option<_>>()?).ok(),
        }
    })
}

/// The byte that a character of the byte alphabet stands for: printable bytes are themselves, the others follow U+0100.
fn byte_of(c: char) -> Option<u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    match u8::try_from(c) {
        Ok(byte) => printable(byte).then_some(byte),
        Err(_) => (0..=u8::MAX).filter(|byte| !printable(*byte)).nth((c as usize).checked_sub(0x100)?),
    }
}
