//! Whether the merges of a `llama` vocabulary can be rebuilt from what GGUF keeps of them.
//!
//! GGUF keeps one score per token and no merges. A reader takes every split of a token into two tokens for a merge, and
//! orders them by score, then by the length of the left part. For Gemma 3 that gives back exactly the list it was
//! made with; a tokenizer trained otherwise may lack some of these splits, or have them in another order, and would give
//! other ids.

use std::collections::{HashMap, HashSet};

use bitnet_embed::tokenizer::TokenType;

use crate::tokenizer_json::Merge;
use crate::vocab::Vocab;

/// Says why the merges do not follow from the scores; `None` if they do.
pub(crate) fn obstacle(vocab: &Vocab, merges: &[Merge]) -> Option<String> {
    let pieces: HashMap<&str, usize> = (0..)
        .zip(&vocab.tokens)
        .filter(|(id, _)| !matches!(vocab.types[*id], TokenType::Byte | TokenType::Unused))
        .map(|(id, token)| (token.as_str(), id))
        .collect();
    missing_split(vocab, merges, &pieces).or_else(|| misplaced_merge(vocab, merges, &pieces))
}

/// A split that a reader would take for a merge, and that is none.
fn missing_split(vocab: &Vocab, merges: &[Merge], pieces: &HashMap<&str, usize>) -> Option<String> {
    let known: HashSet<(&str, &str)> = merges.iter().map(|merge| (merge.left(), merge.right())).collect();
    for (token, kind) in vocab.tokens.iter().zip(&vocab.types) {
        if !pieces.contains_key(token.as_str()) {
            continue;
        }
        // An added token is cut out of the text before anything merges, unless it only arises from spaces.
        if *kind != TokenType::Normal && !token.contains('\u{2581}') {
            continue;
        }
        for (at, _) in token.char_indices().skip(1) {
            let split = token.split_at(at);
            if pieces.contains_key(split.0) && pieces.contains_key(split.1) && !known.contains(&split) {
                return Some(format!(
                    "{:?} + {:?} is no merge although both and {token:?} are tokens",
                    split.0, split.1
                ));
            }
        }
    }
    None
}

/// A merge that a reader would place elsewhere.
fn misplaced_merge(vocab: &Vocab, merges: &[Merge], pieces: &HashMap<&str, usize>) -> Option<String> {
    let mixed = mixed_characters(pieces.keys());
    let mut last: HashMap<Option<char>, (f32, usize)> = HashMap::new();
    for merge in merges {
        // A character that no token mixes with others merges on its own: only its own merges need to be in order.
        let first = merge.both().chars().next()?;
        let group = if mixed.contains(&first) { None } else { Some(first) };
        let score = pieces.get(merge.both()).map_or(0.0, |&id| vocab.scores[id]);
        let key = (-score, usize::MAX - merge.left().chars().count());
        if last.insert(group, key).is_some_and(|last| last > key) {
            return Some(format!("the merge {:?} + {:?} is out of order", merge.left(), merge.right()));
        }
    }
    None
}

/// Characters that occur in a token together with another character.
fn mixed_characters<'a>(tokens: impl Iterator<Item = &'a &'a str>) -> HashSet<char> {
    let mut mixed = HashSet::new();
    for token in tokens {
        let mut chars = token.chars();
        if chars.next().is_some_and(|first| chars.any(|other| other != first)) {
            mixed.extend(token.chars());
        }
    }
    mixed
}
