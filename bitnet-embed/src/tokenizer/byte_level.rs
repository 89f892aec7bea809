//! The `gpt2` kind (Qwen3): NFC, the Qwen2 pattern, bytes merged by a list of merges.

use std::borrow::Cow;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::merge::{MergeRule, Merger, Symbol};
use super::rebuilt::Reached;
use super::split::words;
use super::vocab::Vocab;
use super::{TokenType, TokenizerError};

/// How GPT-2 writes a byte as a character: printable Latin-1 stands for itself, the other 68 bytes follow from U+0100.
const BYTE_CHARS: [u16; 256] = {
    let mut chars = [0; 256];
    let (mut byte, mut next) = (0, 256);
    while byte < 256 {
        chars[byte as usize] = if matches!(byte, 33..=126 | 161..=172 | 174..=255) {
            byte
        } else {
            next += 1;
            next - 1
        };
        byte += 1;
    }
    chars
};

/// The inverse of [`BYTE_CHARS`]; -1 where a character stands for no byte.
const CHAR_BYTES: [i16; 256 + 68] = {
    let mut bytes = [-1; 256 + 68];
    let mut byte = 0;
    while byte < 256 {
        bytes[BYTE_CHARS[byte as usize] as usize] = byte;
        byte += 1;
    }
    bytes
};

/// Appends the bytes that a string of the byte alphabet stands for; false if it is not such a string.
fn push_bytes(text: &str, bytes: &mut Vec<u8>) -> bool {
    text.chars().all(|c| match CHAR_BYTES.get(c as usize) {
        Some(&byte) if byte >= 0 => {
            bytes.push(byte as u8);
            true
        }
        _ => false,
    })
}

/// The first byte whose character in the byte alphabet is not a token.
pub(super) fn missing_byte(is_token: impl Fn(&str) -> bool) -> Option<u8> {
    let spelled = |byte: u8| char::from_u32(BYTE_CHARS[usize::from(byte)].into());
    (0..=u8::MAX).find(|byte| !spelled(*byte).is_some_and(|c| is_token(c.encode_utf8(&mut [0; 4]))))
}

struct Merge {
    left: u32,
    right: u32,
    rank: u32,
    id: u32,
}

pub(super) struct ByteLevel {
    /// Keyed by raw bytes, not by the byte alphabet.
    vocab: Vocab,
    byte_ids: [u32; 256],
    merges: HashTable<Merge>,
    hasher: DefaultHashBuilder,
    reached: Reached,
}

impl ByteLevel {
    pub(super) fn new(tokens: &[&str], types: &[TokenType], merges: &[&str]) -> Result<Self, TokenizerError> {
        let mut vocab = Vocab::with_capacity(tokens.len());
        let mut bytes = Vec::new();
        for (token, kind) in tokens.iter().zip(types) {
            bytes.clear();
            // A token outside the byte alphabet is an added token: found in raw text, never by merging.
            let mergeable = push_bytes(token, &mut bytes) && *kind != TokenType::Unused;
            vocab.push(&bytes, mergeable)?;
        }
        let mut byte_ids = [0; 256];
        for (byte, id) in (0..=u8::MAX).zip(&mut byte_ids) {
            *id = vocab.get(&[byte]).ok_or(TokenizerError::MissingByte { byte })?;
        }
        let mut model = Self {
            byte_ids,
            merges: HashTable::with_capacity(merges.len()),
            hasher: DefaultHashBuilder::default(),
            reached: Reached::new(tokens.len()),
            vocab,
        };
        for (rank, merge) in merges.iter().enumerate() {
            model.add_merge(rank, merge, &mut bytes)?;
        }
        Ok(model)
    }

    fn add_merge(&mut self, rank: usize, merge: &str, bytes: &mut Vec<u8>) -> Result<(), TokenizerError> {
        let form = || TokenizerError::MergeForm { rank, merge: merge.into() };
        let (left, right) = merge.split_once(' ').ok_or_else(form)?;
        bytes.clear();
        let left_ok = push_bytes(left, bytes);
        let middle = bytes.len();
        if !left_ok || !push_bytes(right, bytes) || middle == 0 || middle == bytes.len() {
            return Err(form());
        }
        let id_of = |token: &[u8], part: &dyn Fn() -> String| {
            let missing = || TokenizerError::MergeToken { rank, merge: merge.into(), part: part() };
            self.vocab.get(token).ok_or_else(missing)
        };
        let entry = Merge {
            left: id_of(&bytes[..middle], &|| left.into())?,
            right: id_of(&bytes[middle..], &|| right.into())?,
            rank: u32::try_from(rank).map_err(|_| form())?,
            id: id_of(bytes, &|| format!("{left}{right}"))?,
        };
        let hasher = &self.hasher;
        let hash = hasher.hash_one(pair(entry.left, entry.right));
        let same = |other: &Merge| (other.left, other.right) == (entry.left, entry.right);
        match self.merges.find_mut(hash, same) {
            // The `tokenizers` library keeps the last of equal merges.
            Some(known) => *known = entry,
            None => {
                self.merges.insert_unique(hash, entry, |other| hasher.hash_one(pair(other.left, other.right)));
            }
        }
        Ok(())
    }

    /// Appends the ids of `text`, until at least `limit` are there.
    pub(super) fn encode(&self, text: &str, limit: usize, merger: &mut Merger, ids: &mut Vec<u32>) {
        for word in words(&nfc(text)) {
            if ids.len() >= limit {
                return;
            }
            self.encode_word(word.as_bytes(), merger, ids);
        }
    }

    fn encode_word(&self, word: &[u8], merger: &mut Merger, ids: &mut Vec<u32>) {
        let whole = self.vocab.get(word);
        if let Some(id) = whole
            && self.reached.is_known(id)
        {
            return ids.push(id);
        }
        merger.symbols.clear();
        merger.symbols.extend(word.iter().enumerate().map(|(start, byte)| Symbol {
            start: start as u32,
            len: 1,
            chars: 1,
            id: self.byte_ids[usize::from(*byte)],
        }));
        merger.run(self);
        if let (Some(id), [_]) = (whole, &merger.symbols[..]) {
            self.reached.mark(id);
        }
        ids.extend(merger.symbols.iter().map(|symbol| symbol.id));
    }
}

impl MergeRule for ByteLevel {
    fn merge(&self, left: &Symbol, right: &Symbol) -> Option<(u64, u32)> {
        let same = |merge: &Merge| (merge.left, merge.right) == (left.id, right.id);
        let merge = self.merges.find(self.hasher.hash_one(pair(left.id, right.id)), same)?;
        Some((u64::from(merge.rank), merge.id))
    }
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// NFC with the Unicode tables of the `tokenizers` library.
fn nfc(text: &str) -> Cow<'_, str> {
    // The first character that normalization can change or move is U+0300.
    let plain = text.chars().all(|c| c < '\u{300}');
    if plain || matches!(is_nfc_quick(text.chars()), IsNormalized::Yes) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.nfc().map(|(c, _)| c).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_alphabet_is_a_bijection() {
        let all: String = BYTE_CHARS.iter().map(|c| char::from_u32(u32::from(*c)).unwrap()).collect();
        let mut bytes = Vec::new();
        assert!(push_bytes(&all, &mut bytes));
        assert_eq!(bytes, (0..=u8::MAX).collect::<Vec<_>>());
        assert_eq!((all.chars().nth(32), all.chars().nth(10)), (Some('Ġ'), Some('Ċ')));
        for outside in [" ", "\u{ad}", "\u{144}", "中"] {
            assert!(!push_bytes(outside, &mut bytes), "{outside:?}");
        }
    }

    #[test]
    fn the_shortcut_of_nfc_changes_nothing() {
        for c in ('\0'..'\u{300}').chain("\u{340}\u{212b}\u{1100}\u{1161}ÅÅ".chars()) {
            let text = format!("a{c}b");
            assert_eq!(nfc(&text), text.nfc().map(|(c, _)| c).collect::<String>(), "{c:?}");
        }
        assert!(matches!(nfc("é"), Cow::Borrowed(_)));
        assert_eq!(nfc("e\u{301}"), "é");
    }
}
