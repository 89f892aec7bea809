//! The `llama` kind (Gemma): no merges are stored, only scores, and the merges follow from them.
//!
//! Two neighbours may merge when their joined text is a token. Higher scores go first, then the longer left part,
//! then the longer right part, then the leftmost. Scores are minus the rank of a token's first merge; added tokens
//! carry one common low score, and among those the lengths restore the order.

use super::merge::{MergeRule, Merger, Symbol};
use super::rebuilt::Reached;
use super::vocab::Vocab;
use super::{TokenType, TokenizerError, keys};

/// How a space is written inside tokens.
pub(super) const SPACE: char = '\u{2581}';
/// In [`Scored::orders`]: a token that no merge produces.
const NEVER: u32 = u32::MAX;

pub(super) struct Scored {
    vocab: Vocab,
    /// Scores by id as integers, lowest first in merge order, or [`NEVER`].
    orders: Vec<u32>,
    byte_ids: [u32; 256],
    neighbours: Neighbours,
    reached: Reached,
}

impl Scored {
    pub(super) fn new(tokens: &[&str], types: &[TokenType], scores: &[f32]) -> Result<Self, TokenizerError> {
        if scores.len() != tokens.len() {
            let (expected, found) = (tokens.len(), scores.len());
            return Err(TokenizerError::Length { key: keys::SCORES, expected, found });
        }
        let mut vocab = Vocab::with_capacity(tokens.len());
        let mut orders = Vec::with_capacity(tokens.len());
        let mut neighbours = Neighbours::default();
        for (id, ((token, kind), &score)) in tokens.iter().zip(types).zip(scores).enumerate() {
            if !score.is_finite() {
                return Err(TokenizerError::Score { id, found: score });
            }
            vocab.push(token.as_bytes(), *kind != TokenType::Unused)?;
            if matches!(kind, TokenType::Normal | TokenType::Control | TokenType::UserDefined) {
                orders.push(descending(score));
                neighbours.add(token);
            } else {
                orders.push(NEVER);
            }
        }
        let mut byte_ids = [0; 256];
        for (byte, id) in (0..=u8::MAX).zip(&mut byte_ids) {
            let token = format!("<0x{byte:02X}>");
            *id = vocab.get(token.as_bytes()).ok_or(TokenizerError::MissingByte { byte })?;
        }
        Ok(Self { orders, byte_ids, neighbours, reached: Reached::new(vocab.len()), vocab })
    }

    /// Appends the ids of `text`, until at least `limit` are there.
    pub(super) fn encode(
        &self,
        text: &str,
        limit: usize,
        buffer: &mut String,
        merger: &mut Merger,
        ids: &mut Vec<u32>,
    ) {
        buffer.clear();
        for (at, part) in text.split(' ').enumerate() {
            if at > 0 {
                buffer.push(SPACE);
            }
            buffer.push_str(part);
        }
        // No merge spans two characters that are neighbours in no token, so the text may be cut there.
        let (mut start, mut previous) = (0, None);
        for (at, c) in buffer.char_indices() {
            if let Some(previous) = previous
                && !self.neighbours.contains(previous, c)
            {
                self.encode_segment(&buffer[start..at], merger, ids);
                if ids.len() >= limit {
                    return;
                }
                start = at;
            }
            previous = Some(c);
        }
        self.encode_segment(&buffer[start..], merger, ids);
    }

    fn encode_segment(&self, segment: &str, merger: &mut Merger, ids: &mut Vec<u32>) {
        let whole = self.vocab.get(segment.as_bytes());
        if let Some(id) = whole
            && self.reached.is_known(id)
        {
            return ids.push(id);
        }
        merger.symbols.clear();
        for (start, c) in segment.char_indices() {
            let (start, len) = (start as u32, c.len_utf8() as u32);
            let bytes = &segment.as_bytes()[start as usize..(start + len) as usize];
            match self.vocab.get(bytes) {
                Some(id) => merger.symbols.push(Symbol { start, len, chars: 1, id }),
                None => merger.symbols.extend((start..).zip(bytes).map(|(start, byte)| Symbol {
                    start,
                    len: 1,
                    chars: 0,
                    id: self.byte_ids[usize::from(*byte)],
                })),
            }
        }
        merger.run(&Rule { model: self, text: segment.as_bytes() });
        if let (Some(id), [_]) = (whole, &merger.symbols[..]) {
            self.reached.mark(id);
        }
        ids.extend(merger.symbols.iter().map(|symbol| symbol.id));
    }
}

struct Rule<'a> {
    model: &'a Scored,
    text: &'a [u8],
}

impl MergeRule for Rule<'_> {
    fn merge(&self, left: &Symbol, right: &Symbol) -> Option<(u64, u32)> {
        if left.chars == 0 || right.chars == 0 {
            return None;
        }
        let joined = &self.text[left.start as usize..(right.start + right.len) as usize];
        let id = self.model.vocab.get(joined)?;
        let order = self.model.orders[id as usize];
        // A token is at most 65535 bytes long, so its parts' lengths fit in 16 bits each.
        let lengths =
            (u64::from(u16::MAX) - u64::from(left.chars)) << 16 | (u64::from(u16::MAX) - u64::from(right.chars));
        (order != NEVER).then_some((u64::from(order) << 32 | lengths, id))
    }
}

/// A finite score as an integer that is lower the higher the score is, and never [`NEVER`].
fn descending(score: f32) -> u32 {
    // Adding zero makes -0.0 equal to 0.0.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 { bits } else { !bits & !(1 << 31) }
}

/// Which characters stand next to each other inside some token. May say yes wrongly, never no.
struct Neighbours {
    /// ASCII pairs, exactly; the space character's place is taken by [`SPACE`].
    ascii: Box<[u128; 128]>,
    /// All other pairs: a Bloom filter with two probes.
    filter: Vec<u64>,
}

/// Bits of the filter: some 300,000 pairs occur in the largest vocabulary, which makes 2 % wrong answers.
const FILTER_BITS: u32 = 22;

impl Default for Neighbours {
    fn default() -> Self {
        Self { ascii: Box::new([0; 128]), filter: vec![0; 1 << (FILTER_BITS - 6)] }
    }
}

impl Neighbours {
    fn add(&mut self, token: &str) {
        for (left, right) in token.chars().zip(token.chars().skip(1)) {
            match (ascii(left), ascii(right)) {
                (Some(left), Some(right)) => self.ascii[left] |= 1 << right,
                _ => probes(left, right).into_iter().for_each(|bit| self.filter[bit / 64] |= 1 << (bit % 64)),
            }
        }
    }

    fn contains(&self, left: char, right: char) -> bool {
        match (ascii(left), ascii(right)) {
            (Some(left), Some(right)) => self.ascii[left] >> right & 1 == 1,
            _ => probes(left, right).into_iter().all(|bit| self.filter[bit / 64] >> (bit % 64) & 1 == 1),
        }
    }
}

fn ascii(c: char) -> Option<usize> {
    match c {
        SPACE => Some(usize::from(b' ')),
        _ => c.is_ascii().then_some(c as usize),
    }
}

fn probes(left: char, right: char) -> [usize; 2] {
    let pair = u64::from(left as u32) << 21 | u64::from(right as u32);
    let hash = pair.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mask = (1 << FILTER_BITS) - 1;
    [(hash >> (64 - FILTER_BITS)) as usize, (hash >> (40 - FILTER_BITS)) as usize & mask]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_become_integers_in_descending_order() {
        let scores = [f32::MAX, 3.5, 1e-40, 0.0, -1e-40, -1.0, -2.0, -1000.0, -514905.0, f32::MIN];
        let orders = scores.map(descending);
        assert!(orders.is_sorted_by(|a, b| a < b), "{orders:?}");
        assert!(orders.iter().all(|order| *order != NEVER));
        assert_eq!(descending(-0.0), descending(0.0));
    }

    #[test]
    fn neighbours_inside_tokens_are_found_and_others_mostly_not() {
        let mut neighbours = Neighbours::default();
        neighbours.add("ab\u{2581}c中文x");
        for (left, right) in "ab\u{2581}c中文x".chars().zip("b\u{2581}c中文x".chars()) {
            assert!(neighbours.contains(left, right));
        }
        for (left, right) in [('b', 'a'), ('a', '\u{2581}'), ('文', '中'), ('x', 'a'), ('中', 'x')] {
            assert!(!neighbours.contains(left, right), "{left}{right}");
        }
    }
}
