//! A tokenizer rebuilt from a vocabulary's arrays: added tokens cut out, the rest encoded by one of two models.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, Ordering};

use super::byte_level::ByteLevel;
use super::merge::Merger;
use super::scored::{SPACE, Scored};
use super::vocab::{Cutter, Piece};
use super::{MergeSource, TokenType, TokenizerError, VocabArrays, keys};

enum Model {
    ByteLevel(ByteLevel),
    Scored(Scored),
}

pub(super) struct Rebuilt {
    model: Model,
    cutter: Cutter,
    bos: Option<u32>,
    eos: Option<u32>,
    tokens: usize,
}

impl Rebuilt {
    pub(super) fn new(arrays: &VocabArrays<'_>) -> Result<Self, TokenizerError> {
        let types = token_types(arrays)?;
        let literal = match &arrays.source {
            MergeSource::Merges(_) => Vec::new(),
            MergeSource::Scores(_) => literal_spaces(&arrays.tokens, &types),
        };
        let mut added: Vec<(u32, &str)> = arrays
            .tokens
            .iter()
            .zip(&types)
            .enumerate()
            .filter(|(_, (_, kind))| matches!(kind, TokenType::Control | TokenType::UserDefined))
            .map(|(id, (token, _))| (id as u32, *token))
            .collect();
        added.extend(literal.iter().map(|(id, token)| (*id, token.as_str())));
        let tokens = arrays.tokens.len();
        let special = |add: bool, key: &'static str, id: Option<u32>| match id {
            Some(id) if id as usize >= tokens => Err(TokenizerError::IdOutOfRange { key, id, tokens }),
            None if add => Err(TokenizerError::MissingKey { key }),
            id => Ok(id.filter(|_| add)),
        };
        Ok(Self {
            bos: special(arrays.add_bos, keys::BOS_ID, arrays.bos)?,
            eos: special(arrays.add_eos, keys::EOS_ID, arrays.eos)?,
            model: match &arrays.source {
                MergeSource::Merges(merges) => Model::ByteLevel(ByteLevel::new(&arrays.tokens, &types, merges)?),
                MergeSource::Scores(scores) => Model::Scored(Scored::new(&arrays.tokens, &types, scores)?),
            },
            cutter: Cutter::new(&added)?,
            tokens,
        })
    }

    /// Number of tokens, which is one more than the largest id.
    pub(super) fn len(&self) -> usize {
        self.tokens
    }

    /// Tokens added around every text.
    pub(super) fn special(&self) -> usize {
        usize::from(self.bos.is_some()) + usize::from(self.eos.is_some())
    }

    /// Ids of `text` with at most `limit` of them between the special ones.
    pub(super) fn encode(&self, text: &str, limit: usize) -> Vec<u32> {
        // English has some four bytes a token; other scripts fewer.
        let mut ids = Vec::with_capacity((text.len() / 4).min(limit) + self.special() + 1);
        ids.extend(self.bos);
        let limit = limit.saturating_add(ids.len());
        let mut merger = Merger::default();
        let mut buffer = String::new();
        self.cutter.cut(text, |piece| {
            match (piece, &self.model) {
                (Piece::Added(id), _) => ids.push(id),
                (Piece::Text(text), Model::ByteLevel(model)) => model.encode(text, limit, &mut merger, &mut ids),
                (Piece::Text(text), Model::Scored(model)) => {
                    model.encode(text, limit, &mut buffer, &mut merger, &mut ids);
                }
            }
            ids.len() < limit
        });
        ids.truncate(limit);
        ids.extend(self.eos);
        ids
    }
}

/// Second spellings of added tokens. llama.cpp's converter turns U+2581 in user-defined tokens into a space, so that
/// Gemma's runs of it are runs of spaces in its files; in a text both are cut out.
fn literal_spaces(tokens: &[&str], types: &[TokenType]) -> Vec<(u32, String)> {
    let respelled = tokens
        .iter()
        .zip(types)
        .zip(0..)
        .filter(|((token, kind), _)| **kind == TokenType::UserDefined && token.contains(' '));
    let mut respelled: Vec<(u32, String)> =
        respelled.map(|((token, _), id)| (id, token.replace(' ', SPACE.encode_utf8(&mut [0; 4])))).collect();
    if !respelled.is_empty() {
        // Where the other spelling is a token too, each stands for itself.
        let other: HashSet<&str> = tokens.iter().copied().filter(|token| token.contains(SPACE)).collect();
        respelled.retain(|(_, token)| !other.contains(token.as_str()));
    }
    respelled
}

fn token_types(arrays: &VocabArrays<'_>) -> Result<Vec<TokenType>, TokenizerError> {
    let (expected, found) = (arrays.tokens.len(), arrays.token_types.len());
    if found != expected {
        return Err(TokenizerError::Length { key: keys::TOKEN_TYPES, expected, found });
    }
    let parsed = arrays.token_types.iter().enumerate();
    parsed.map(|(id, &found)| TokenType::from_i32(found).ok_or(TokenizerError::TokenType { id, found })).collect()
}

/// Remembers of which tokens it is known that their own text encodes to them.
///
/// Not every token is reached by merging its characters, and to find out means to merge them. The answer never
/// changes, so it may be stored by any thread at any time: it saves work, it never changes a result.
pub(super) struct Reached(Vec<AtomicU8>);

impl Reached {
    pub(super) fn new(tokens: usize) -> Self {
        Self((0..tokens).map(|_| AtomicU8::new(0)).collect())
    }

    pub(super) fn is_known(&self, id: u32) -> bool {
        self.0[id as usize].load(Ordering::Relaxed) != 0
    }

    pub(super) fn mark(&self, id: u32) {
        self.0[id as usize].store(1, Ordering::Relaxed);
    }
}
