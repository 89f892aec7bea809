//! One vector per text: pooling of its token states, and L2 normalisation.

use crate::isa::Isa;
use crate::kernel::float::multiversion;
use crate::lanes::sum_of_squares;

/// Which states of a text make its embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The last token's.
    Last,
    /// The mean over all tokens.
    Mean,
    /// The first token's.
    Cls,
}

impl Pooling {
    /// `last`, `mean` or `cls`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Mean => "mean",
            Self::Cls => "cls",
        }
    }
}

/// Pools `hidden` `[tokens, hidden_size]` into `out` `[texts, hidden_size]`; text `i` is the tokens
/// `offsets[i]..offsets[i + 1]`. A text without tokens gives zeros.
///
/// The mean adds the tokens in order and divides once.
///
/// # Panics
/// When `offsets` does not ascend or leaves `hidden`, or `out` is not whole rows for `offsets.len() - 1` texts.
pub fn pool(isa: Isa, hidden: &[f32], offsets: &[usize], pooling: Pooling, out: &mut [f32]) {
    let texts = offsets.len().saturating_sub(1);
    if texts == 0 {
        assert!(out.is_empty(), "{} output values for no text", out.len());
        return;
    }
    assert!(out.len().is_multiple_of(texts), "{} output values for {texts} texts", out.len());
    let size = out.len() / texts;
    if size == 0 {
        return;
    }
    for (text, out) in offsets.windows(2).zip(out.chunks_exact_mut(size)) {
        assert!(text[0] <= text[1], "offsets must ascend");
        let tokens = &hidden[text[0] * size..text[1] * size];
        let token = match pooling {
            Pooling::Mean => {
                mean(isa, tokens, out);
                continue;
            }
            Pooling::Last => tokens.rchunks_exact(size).next(),
            Pooling::Cls => tokens.chunks_exact(size).next(),
        };
        match token {
            Some(token) => out.copy_from_slice(token),
            None => out.fill(0.0),
        }
    }
}

/// Scales `row` to length 1: `x / sqrt(sum of squares)`. A row of zeros, or one that holds a NaN or an infinity, stays
/// as it is.
pub fn l2_normalize(isa: Isa, row: &mut [f32]) {
    normalize(isa, row);
}

#[inline(always)]
fn mean_body(tokens: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    let count = tokens.len() / out.len();
    for token in tokens.chunks_exact(out.len()) {
        for (out, &x) in out.iter_mut().zip(token) {
            *out += x;
        }
    }
    if count > 0 {
        for out in out.iter_mut() {
            *out /= count as f32;
        }
    }
}

/// Sums of squares outside these bounds have lost values, or may have, to overflow or underflow.
const TRUSTED_SUMS: std::ops::RangeInclusive<f32> = 1e-30..=1e30;

#[inline(always)]
fn normalize_body(row: &mut [f32]) {
    let mut sum = sum_of_squares(row);
    if !TRUSTED_SUMS.contains(&sum) {
        let largest = row.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7FFF_FFFF));
        if largest == 0 || largest >= f32::INFINITY.to_bits() {
            return;
        }
        // By the power of two that brings the largest value near 1, which is exact for all values that count.
        let factor = f32::from_bits((254 - (largest >> 23)).max(1) << 23);
        row.iter_mut().for_each(|x| *x *= factor);
        sum = sum_of_squares(row);
    }
    let length = sum.sqrt();
    for x in row.iter_mut() {
        *x /= length;
    }
}

multiversion!(fn mean(tokens: &[f32], out: &mut [f32]) = mean_body);
multiversion!(fn normalize(row: &mut [f32]) = normalize_body);
