//! The token strings of a vocabulary, packed, with a hash index; and the cutter that takes added tokens out of a text.

use std::hash::BuildHasher;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use hashbrown::{DefaultHashBuilder, HashTable};

use super::TokenizerError;

/// The longest token string accepted, in bytes. Lengths of merge parts are packed into 16 bits.
pub(super) const MAX_TOKEN_BYTES: usize = u16::MAX as usize;
/// The most tokens a vocabulary may have: sixteen times the largest one in use.
pub(super) const MAX_TOKENS: usize = 1 << 22;
/// The most bytes all added tokens may have together. The automaton that finds them costs some 40 bytes for each.
pub(super) const MAX_ADDED_BYTES: usize = 4 << 20;

/// Token byte strings by id, and ids by byte string.
///
/// Everything lies in three flat allocations; the index holds ids only and compares against the packed bytes.
pub(super) struct Vocab {
    bytes: Vec<u8>,
    /// `starts[id]..starts[id + 1]` is token `id`.
    starts: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    longest: usize,
}

impl Vocab {
    pub(super) fn with_capacity(tokens: usize) -> Self {
        let mut starts = Vec::with_capacity(tokens + 1);
        starts.push(0);
        Self {
            bytes: Vec::with_capacity(tokens * 8),
            starts,
            index: HashTable::with_capacity(tokens),
            hasher: DefaultHashBuilder::default(),
            longest: 0,
        }
    }

    /// Appends the token with the next id. Only an `indexed` token is found by [`Self::get`]; of equal strings the
    /// first one is.
    pub(super) fn push(&mut self, token: &[u8], indexed: bool) -> Result<(), TokenizerError> {
        let id = self.starts.len() - 1;
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenizerError::TokenTooLong { id, bytes: token.len(), limit: MAX_TOKEN_BYTES });
        }
        // MAX_TOKENS tokens of MAX_TOKEN_BYTES could overflow u32: a file of that size is refused here.
        let (Ok(end), true) = (u32::try_from(self.bytes.len() + token.len()), id < MAX_TOKENS) else {
            return Err(TokenizerError::VocabularyTooLarge { tokens: id + 1, limit: MAX_TOKENS });
        };
        if indexed && !token.is_empty() {
            let Self { bytes, starts, index, hasher, .. } = self;
            let hash_of = |id: &u32| hasher.hash_one(slot(bytes, starts, *id));
            index
                .entry(hasher.hash_one(token), |other| slot(bytes, starts, *other) == token, hash_of)
                .or_insert(id as u32);
            self.longest = self.longest.max(token.len());
        }
        self.bytes.extend_from_slice(token);
        self.starts.push(end);
        Ok(())
    }

    /// Number of tokens, indexed or not.
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The bytes of token `id`.
    pub(super) fn token(&self, id: u32) -> &[u8] {
        slot(&self.bytes, &self.starts, id)
    }

    /// The id of the indexed token with exactly these bytes.
    pub(super) fn get(&self, token: &[u8]) -> Option<u32> {
        if token.len() > self.longest {
            return None;
        }
        self.index.find(self.hasher.hash_one(token), |id| self.token(*id) == token).copied()
    }
}

fn slot<'a>(bytes: &'a [u8], starts: &[u32], id: u32) -> &'a [u8] {
    &bytes[starts[id as usize] as usize..starts[id as usize + 1] as usize]
}

/// A stretch of a text, as [`Cutter::cut`] yields them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    /// Ordinary text, never empty.
    Text(&'t str),
    /// An added token.
    Added(u32),
}

/// Finds added tokens in raw text: leftmost, and of those the longest.
pub(super) struct Cutter {
    automaton: Option<AhoCorasick>,
    /// Token id of each pattern of the automaton.
    ids: Vec<u32>,
}

impl Cutter {
    /// `added` holds (id, literal); empty literals are skipped, of equal literals the first one counts.
    pub(super) fn new(added: &[(u32, &str)]) -> Result<Self, TokenizerError> {
        let bytes = added.iter().map(|(_, literal)| literal.len()).sum();
        if bytes > MAX_ADDED_BYTES {
            return Err(TokenizerError::AddedTokensTooLarge { bytes, limit: MAX_ADDED_BYTES });
        }
        let mut seen = std::collections::HashSet::with_capacity(added.len());
        let (ids, literals): (Vec<u32>, Vec<&str>) =
            added.iter().filter(|(_, literal)| !literal.is_empty() && seen.insert(*literal)).copied().unzip();
        let automaton = if ids.is_empty() {
            None
        } else {
            let built = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(&literals);
            Some(built.map_err(|_| TokenizerError::AddedTokensTooLarge { bytes, limit: MAX_ADDED_BYTES })?)
        };
        Ok(Self { automaton, ids })
    }

    /// Calls `visit` with the pieces of `text` in order, until it says stop by returning `false`.
    pub(super) fn cut<'t>(&self, text: &'t str, mut visit: impl FnMut(Piece<'t>) -> bool) {
        let mut rest = 0;
        for found in self.automaton.iter().flat_map(|automaton| automaton.find_iter(text)) {
            // Literals are UTF-8, so a match starts and ends between characters.
            if rest < found.start() && !visit(Piece::Text(&text[rest..found.start()])) {
                return;
            }
            if !visit(Piece::Added(self.ids[found.pattern().as_usize()])) {
                return;
            }
            rest = found.end();
        }
        if rest < text.len() {
            visit(Piece::Text(&text[rest..]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_tokens_is_found_and_unindexed_ones_are_not() {
        let mut vocab = Vocab::with_capacity(4);
        for (token, indexed) in [("a", true), ("b", false), ("a", true), ("", true)] {
            vocab.push(token.as_bytes(), indexed).unwrap();
        }
        assert_eq!((vocab.get(b"a"), vocab.get(b"b"), vocab.get(b""), vocab.len()), (Some(0), None, None, 4));
        assert_eq!(vocab.token(1), b"b");
    }

    #[test]
    fn refuses_a_token_whose_length_does_not_fit_the_merge_key() {
        let mut vocab = Vocab::with_capacity(1);
        let error = vocab.push(&vec![b'x'; MAX_TOKEN_BYTES + 1], true).unwrap_err();
        assert!(matches!(error, TokenizerError::TokenTooLong { id: 0, bytes: 65536, .. }), "{error}");
    }

    #[test]
    fn added_tokens_are_cut_leftmost_longest() {
        let cutter = Cutter::new(&[(7, "ab"), (8, "abc"), (9, "bcd"), (10, ""), (11, "ab")]).unwrap();
        let mut pieces = Vec::new();
        cutter.cut("xabcdabé", |piece| {
            pieces.push(piece);
            true
        });
        assert_eq!(pieces, [Piece::Text("x"), Piece::Added(8), Piece::Text("d"), Piece::Added(7), Piece::Text("é")]);
    }

    #[test]
    fn a_text_without_added_tokens_is_one_piece() {
        let mut pieces = Vec::new();
        Cutter::new(&[]).unwrap().cut("abc", |piece| {
            pieces.push(piece);
            true
        });
        assert_eq!(pieces, [Piece::Text("abc")]);
    }
}
