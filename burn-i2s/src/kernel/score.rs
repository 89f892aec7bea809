//! Attention scores and their maxima on the 512-bit levels.
//!
//! A score is a sum of short chains of products, and here both the chains and their sums stay in registers. Of the
//! portable loop the compiler keeps one of the two in memory, which costs 3 % of attention. The lanes of a maximum it
//! takes apart into pairs, which costs 2 %.

use crate::isa::Isa;
use crate::lanes::LANES;
use std::ops::Range;

/// Queries that are scored together.
pub(crate) const ROWS: usize = 6;

/// Dimensions of a chain.
pub(crate) const CHAIN: usize = 16;

/// Keys of a row of scores.
pub(crate) const KEYS: usize = 64;

/// Writes the scores of six queries, `[6, dim]`, with the keys of `groups`, 16 each, and returns true; or returns false,
/// where the level has no such kernel or a query is not whole chains. `keys` are transposed, `[dim, groups of 16]`.
///
/// # Panics
/// When queries or keys are not as many as that, or there are no such groups or more than a row of scores has.
pub(crate) fn score(
    isa: Isa,
    queries: &[f32],
    keys: &[[f32; LANES]],
    groups: Range<usize>,
    scores: &mut [[f32; KEYS]; ROWS],
) -> bool {
    match isa {
        Isa::Avx512Bw(_) | Isa::Avx512Vnni(_) if queries.len().is_multiple_of(ROWS * CHAIN) => {
            // SAFETY: both witnesses are built only where avx512f was detected.
            unsafe { x86::score(queries, keys, groups, scores) };
            true
        }
        _ => false,
    }
}

/// Sets the scores of keys that a row does not see to minus infinity, in the groups of 16 keys in which it sees others, and
/// writes the largest score in these groups, `lowest` at least, to the row's place in `maxima`; and returns true. Or returns
/// false, where the level has no such kernel. `keys` names the keys that a row sees.
///
/// A score that is NaN is no maximum; but in a group that is masked, a seen key's becomes infinity first.
///
/// # Panics
/// When there are fewer maxima than rows. May panic when `keys` is no range of a row's keys.
pub(crate) fn mask_and_find_maxima(
    isa: Isa,
    scores: &mut [[f32; KEYS]],
    keys: impl Fn(usize) -> Range<usize>,
    lowest: f32,
    maxima: &mut [f32],
) -> bool {
    match isa {
        Isa::Avx512Bw(_) | Isa::Avx512Vnni(_) => {
            // SAFETY: both witnesses are built only where avx512f was detected.
            unsafe { x86::mask_and_find_maxima(scores, keys, lowest, maxima) };
            true
        }
        _ => false,
    }
}

mod x86 {
    use super::{CHAIN, KEYS, LANES, ROWS};
    use std::arch::x86_64::*;
    use std::ops::Range;

    #[target_feature(enable = "avx512f")]
    pub(super) fn score(
        queries: &[f32],
        keys: &[[f32; LANES]],
        groups: Range<usize>,
        scores: &mut [[f32; KEYS]; ROWS],
    ) {
        let (queries, rest) = queries.as_chunks::<CHAIN>();
        assert!(rest.is_empty() && queries.len().is_multiple_of(ROWS), "six queries of whole chains");
        let mut rows: [&[[f32; CHAIN]]; ROWS] = [&[]; ROWS];
        let chains = queries.len() / ROWS;
        for (i, row) in rows.iter_mut().enumerate() {
            *row = &queries[i * chains..][..chains];
        }
        let mut group = groups.start;
        while group + 2 <= groups.end {
            columns::<2, 1>(rows, keys, group, scores);
            group += 2;
        }
        if group < groups.end {
            // Six sums at a time would wait for their own additions.
            if chains.is_multiple_of(2) {
                columns::<1, 2>(rows, keys, group, scores);
            } else {
                columns::<1, 1>(rows, keys, group, scores);
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn mask_and_find_maxima(
        scores: &mut [[f32; KEYS]],
        keys: impl Fn(usize) -> Range<usize>,
        lowest: f32,
        maxima: &mut [f32],
    ) {
        let (infinity, minus_infinity) = (_mm512_set1_ps(f32::INFINITY), _mm512_set1_ps(f32::NEG_INFINITY));
        let maxima = &mut maxima[..scores.len()];
        for (row, (scores, maximum)) in scores.iter_mut().zip(maxima).enumerate() {
            let keys = keys(row);
            let mut lanes = _mm512_set1_ps(lowest);
            let groups = keys.start / LANES..keys.end.div_ceil(LANES);
            for (group, scores) in groups.clone().zip(&mut scores.as_chunks_mut::<LANES>().0[groups]) {
                // SAFETY: `scores` is 64 readable bytes, and the load takes any alignment.
                let mut values = unsafe { _mm512_loadu_ps(scores.as_ptr()) };
                let place = |key: usize| key.saturating_sub(group * LANES).min(LANES);
                let (start, end) = (place(keys.start), place(keys.end));
                if end - start < LANES {
                    let seen = ((1u32 << end) - (1u32 << start)) as u16;
                    // Where one of its operands is NaN, an instruction's result is the second.
                    values = _mm512_mask_min_ps(minus_infinity, seen, values, infinity);
                    // SAFETY: `scores` is 64 writable bytes, and the store takes any alignment.
                    unsafe { _mm512_storeu_ps(scores.as_mut_ptr(), values) };
                }
                lanes = _mm512_max_ps(values, lanes);
            }
            // 8 + 8, 4 + 4, 2 + 2, 1 + 1.
            let high = _mm512_castps512_ps256(_mm512_shuffle_f32x4::<0b1110>(lanes, lanes));
            let eight = _mm256_max_ps(high, _mm512_castps512_ps256(lanes));
            let four = _mm_max_ps(_mm256_extractf128_ps::<1>(eight), _mm256_castps256_ps128(eight));
            let two = _mm_max_ps(_mm_movehl_ps(four, four), four);
            *maximum = _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(two), two));
        }
    }

    /// `N` groups of keys from `group` on, and `C` chains at a time, which divides their number.
    #[expect(clippy::needless_range_loop, reason = "iterators over the sums would keep them in memory")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn columns<const N: usize, const C: usize>(
        queries: [&[[f32; CHAIN]]; ROWS],
        keys: &[[f32; LANES]],
        group: usize,
        scores: &mut [[f32; KEYS]; ROWS],
    ) {
        let chains = queries[0].len();
        let stride = keys.len() / (chains * CHAIN).max(1);
        assert!(queries.iter().all(|query| query.len() == chains) && keys.len() == chains * CHAIN * stride);
        assert!(group + N <= stride && group + N <= KEYS / LANES && chains.is_multiple_of(C), "groups of keys");
        let mut totals = [[_mm512_setzero_ps(); N]; ROWS];
        for first in (0..chains).step_by(C) {
            let mut sums = [[[_mm512_setzero_ps(); N]; ROWS]; C];
            for p in 0..CHAIN {
                for c in 0..C {
                    let at = ((first + c) * CHAIN + p) * stride + group;
                    let mut key = [_mm512_setzero_ps(); N];
                    for j in 0..N {
                        // SAFETY: `first + c < chains` as `C` divides `chains`, `p < CHAIN` and `group + j < stride`, so
                        // `at + j` is below `chains * CHAIN * stride`, the number of groups in `keys` (all checked above).
                        // A group is 64 readable bytes, and the load takes any alignment.
                        key[j] = unsafe { _mm512_loadu_ps(keys.as_ptr().wrapping_add(at + j).cast()) };
                    }
                    for i in 0..ROWS {
                        let x = _mm512_set1_ps(queries[i][first + c][p]);
                        for j in 0..N {
                            sums[c][i][j] = _mm512_fmadd_ps(x, key[j], sums[c][i][j]);
                        }
                    }
                }
            }
            for c in 0..C {
                for i in 0..ROWS {
                    for j in 0..N {
                        let sum = sums[c][i][j];
                        totals[i][j] = if first + c == 0 { sum } else { _mm512_add_ps(totals[i][j], sum) };
                    }
                }
            }
        }
        for i in 0..ROWS {
            for j in 0..N {
                let scores = &mut scores[i].as_chunks_mut::<LANES>().0[group + j];
                // SAFETY: `scores` is 64 writable bytes, and the store takes any alignment.
                unsafe { _mm512_storeu_ps(scores.as_mut_ptr(), totals[i][j]) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One score as it is defined: chains of 16 dimensions, added in order.
    fn expected(query: &[f32], keys: &[[f32; LANES]], stride: usize, key: usize) -> f32 {
        let product =
            |chain: usize, p: usize| (query[chain * CHAIN + p], keys[(chain * CHAIN + p) * stride + key / LANES]);
        let chains = (0..query.len() / CHAIN).map(|chain| {
            (0..CHAIN).map(|p| product(chain, p)).fold(0.0f32, |sum, (x, keys)| x.mul_add(keys[key % LANES], sum))
        });
        chains.reduce(|sum, chain| sum + chain).expect("a chain")
    }

    #[test]
    fn scores_are_sums_of_chains_and_other_groups_are_left_alone() {
        let value = |i: usize| ((i.wrapping_mul(2_654_435_761) >> 7) % 4093) as f32 / 2048.0 - 1.0;
        for (&isa, dim) in Isa::available().iter().flat_map(|isa| [16, 32, 48, 128, 256].map(|dim| (isa, dim))) {
            let queries: Vec<f32> = (0..ROWS * dim).map(value).collect();
            for stride in 1..=4 {
                let keys: Vec<[f32; LANES]> =
                    (0..dim * stride).map(|i| std::array::from_fn(|lane| value(i * LANES + lane + 7))).collect();
                for groups in (0..stride).flat_map(|start| (start..=stride).map(move |end| start..end)) {
                    let mut scores = [[-7.0; KEYS]; ROWS];
                    if !score(isa, &queries, &keys, groups.clone(), &mut scores) {
                        assert!(!isa.name().starts_with("avx512"), "{isa}");
                        continue;
                    }
                    for (query, scores) in queries.chunks_exact(dim).zip(&scores) {
                        for (key, &found) in scores.iter().enumerate() {
                            let is_asked = groups.contains(&(key / LANES));
                            let expected = if is_asked { expected(query, &keys, stride, key) } else { -7.0 };
                            assert_eq!(found.to_bits(), expected.to_bits(), "{isa}: {dim} x {stride}, key {key}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let Some(&isa) = Isa::available().iter().find(|isa| isa.name().starts_with("avx512")) else { return };
        let refused = |queries: usize, keys: usize, groups: Range<usize>| {
            let (queries, keys) = (vec![0.0; queries], vec![[0.0; LANES]; keys]);
            std::panic::catch_unwind(|| score(isa, &queries, &keys, groups, &mut [[0.0; KEYS]; ROWS])).is_err()
        };
        assert!(!refused(ROWS * 32, 32 * 4, 0..4));
        assert!(refused(ROWS * 32, 32 * 4, 3..5), "beyond the keys");
        assert!(refused(ROWS * 32, 32 * 5, 4..5), "beyond a row of scores");
        assert!(refused(ROWS * 32, 32 * 4 - 1, 0..1), "a dimension that is not whole");
        assert!(!score(isa, &[0.0; ROWS * 24], &[[0.0; LANES]; 24], 0..1, &mut [[0.0; KEYS]; ROWS]), "half a chain");
    }
}
