//! Ragged batches: texts laid end to end, without padding.

use burn_i2s::pooling::Pooling;
use std::ops::Range;

/// Where each text of a batch lies in its flat list of tokens, and at which position it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaggedBatch {
    offsets: Vec<usize>,
    positions: Vec<u32>,
}

impl RaggedBatch {
    /// Texts of these numbers of tokens, each starting at position 0.
    ///
    /// # Panics
    /// When a length is 0, or the tokens are more than `u32::MAX`.
    pub fn new(lengths: &[usize]) -> Self {
        let mut offsets = Vec::with_capacity(lengths.len() + 1);
        offsets.push(0);
        let mut positions = Vec::new();
        for &length in lengths {
            assert!(length > 0, "a text needs at least one token");
            let length = u32::try_from(length).expect("a text of fewer than 2^32 tokens");
            positions.extend(0..length);
            offsets.push(positions.len());
        }
        Self { offsets, positions }
    }

    /// Number of texts.
    pub fn texts(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of tokens of all texts.
    pub fn tokens(&self) -> usize {
        self.positions.len()
    }

    /// Text `i` is the tokens `offsets[i]..offsets[i + 1]`.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Each token's position within its text.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// The tokens whose states make the embeddings, in the order of the texts; `None` where all of them do.
    pub fn pooled_tokens(&self, pooling: Pooling) -> Option<TokenRows> {
        let position_in = |length: usize| match pooling {
            Pooling::Last => Some(length - 1),
            Pooling::Cls => Some(0),
            Pooling::Mean => None,
        };
        let mut tokens = TokenRows::default();
        for text in self.offsets.windows(2) {
            let position = position_in(text[1] - text[0])?;
            tokens.rows.push(text[0] + position);
            tokens.positions.push(self.positions[text[0] + position]);
            tokens.within.push(position..position + 1);
        }
        Some(tokens)
    }

    /// One more than the largest position; 0 for an empty batch.
    pub fn max_positions(&self) -> usize {
        self.positions.iter().max().map_or(0, |&position| position as usize + 1)
    }
}

/// Some tokens of a batch, a run of them of each text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRows {
    rows: Vec<usize>,
    positions: Vec<u32>,
    within: Vec<Range<usize>>,
}

impl TokenRows {
    /// Each token's index in the batch.
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Each token's position, as [`RaggedBatch::positions`].
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// For each text, which of its tokens these are, counted from its first.
    pub fn within(&self) -> &[Range<usize>] {
        &self.within
    }
}

/// Groups texts of these lengths into batches of at most `token_budget` tokens, longest texts first, so that a batch
/// holds texts of like length. A text longer than the budget is a batch of its own.
///
/// Returns indices into `lengths`; each occurs once. What shares a batch never changes a vector, only the speed.
pub fn plan_batches(lengths: &[usize], token_budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(lengths[index]));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for index in order {
        match batches.last_mut() {
            Some(batch) if tokens + lengths[index] <= token_budget => {
                batch.push(index);
                tokens += lengths[index];
            }
            _ => {
                batches.push(vec![index]);
                tokens = lengths[index];
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_lays_texts_end_to_end_and_counts_positions_from_zero() {
        let batch = RaggedBatch::new(&[2, 1, 3]);
        assert_eq!(batch.offsets(), [0, 2, 3, 6]);
        assert_eq!(batch.positions(), [0, 1, 0, 0, 1, 2]);
        assert_eq!((batch.texts(), batch.tokens(), batch.max_positions()), (3, 6, 3));
    }

    #[test]
    fn the_pooled_tokens_are_the_last_or_the_first_of_each_text() {
        let batch = RaggedBatch::new(&[2, 1, 3]);
        let last = batch.pooled_tokens(Pooling::Last).unwrap();
        assert_eq!((last.rows(), last.positions()), (&[1, 2, 5][..], &[1, 0, 2][..]));
        assert_eq!(last.within(), [1..2, 0..1, 2..3]);
        let first = batch.pooled_tokens(Pooling::Cls).unwrap();
        assert_eq!((first.rows(), first.positions()), (&[0, 2, 3][..], &[0, 0, 0][..]));
        assert_eq!(first.within(), [0..1, 0..1, 0..1]);
        assert_eq!(batch.pooled_tokens(Pooling::Mean), None);
    }

    #[test]
    fn the_plan_takes_every_text_once_within_the_budget() {
        let lengths = [5, 90, 5, 200, 7, 1, 100];
        let batches = plan_batches(&lengths, 100);
        let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6]);
        for batch in &batches {
            let tokens: usize = batch.iter().map(|&index| lengths[index]).sum();
            assert!(tokens <= 100 || batch.len() == 1, "{batch:?} holds {tokens} tokens");
        }
        assert_eq!(batches, [vec![3], vec![6], vec![1, 4], vec![0, 2, 5]]);
        assert!(plan_batches(&[], 100).is_empty());
    }
}
