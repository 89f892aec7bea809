//! One attention tile: some query rows against blocks of 64 keys, with an online softmax.

use std::ops::Range;

use crate::kernel::float::multiversion;
use crate::lanes::{LANES, Panel, larger, tile, tree_max, tree_sum};
use crate::math::exp;

/// Keys per block.
pub(crate) const BLOCK: usize = 64;

/// Groups of lanes per block.
const GROUPS: usize = BLOCK / LANES;

/// Below every score. Finite, so that a row that has seen no key yet is rescaled by `exp(0) = 1`, never by a NaN.
const LOWEST: f32 = f32::MIN;

/// The keys `start..end` of a text that a query sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visible {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Visible {
    /// The visible keys within the block that starts at `base`, relative to it; empty as `0..0`.
    #[inline(always)]
    fn within(self, base: usize) -> Range<usize> {
        let start = self.start.saturating_sub(base).min(BLOCK);
        let end = self.end.saturating_sub(base).min(BLOCK);
        if start < end { start..end } else { 0..0 }
    }
}

/// The state of a tile, in borrowed scratch.
pub(crate) struct Tile<'a> {
    /// What each row sees, `[rows]`.
    visible: &'a [Visible],
    dim: usize,
    /// `[rows, dim]`, scaled.
    pub(crate) queries: &'a mut [f32],
    /// `[rows, dim rounded up to 16]`: unnormalised while running, then the result.
    pub(crate) outputs: &'a mut [f32],
    /// `[rows, 64]`: scores of the current block, then their exponentials.
    scores: &'a mut [f32],
    /// `[rows, 16]`: running sums of exponentials.
    sums: &'a mut [f32],
    /// `[rows rounded up to 16]`: running maxima.
    maxima: &'a mut [f32],
    /// `[rows rounded up to 16]`: the current block's maxima, then what it rescales earlier blocks by.
    rescale: &'a mut [f32],
}

impl<'a> Tile<'a> {
    /// Floats of scratch for a tile.
    pub(crate) fn scratch_len(rows: usize, dim: usize) -> usize {
        rows * (dim + dim.next_multiple_of(LANES) + BLOCK + LANES) + 2 * rows.next_multiple_of(LANES)
    }

    /// A tile that has seen no key; the queries are for the caller to fill in.
    pub(crate) fn new(scratch: &'a mut [f32], visible: &'a [Visible], dim: usize) -> Self {
        let rows = visible.len();
        // The queries, which need not be whole vectors, come last.
        let (outputs, rest) = scratch.split_at_mut(rows * dim.next_multiple_of(LANES));
        let (scores, rest) = rest.split_at_mut(rows * BLOCK);
        let (sums, rest) = rest.split_at_mut(rows * LANES);
        let (maxima, rest) = rest.split_at_mut(rows.next_multiple_of(LANES));
        let (rescale, queries) = rest.split_at_mut(rows.next_multiple_of(LANES));
        outputs.fill(0.0);
        sums.fill(0.0);
        maxima.fill(LOWEST);
        rescale.fill(LOWEST);
        Self { visible, dim, queries, outputs, scores, sums, maxima, rescale }
    }
}

/// Runs `body` over the columns of a range, `N` (at most 4) at a time and the rest in one piece.
macro_rules! for_columns {
    ($n:ident, $range:expr, |$columns:ident, $column:ident| $body:block) => {{
        let range: Range<usize> = $range;
        let mut $column = range.start;
        while $column < range.end {
            let count = (range.end - $column).min($n);
            match count {
                4 => {
                    const $columns: usize = 4;
                    $body
                }
                3 => {
                    const $columns: usize = 3;
                    $body
                }
                2 => {
                    const $columns: usize = 2;
                    $body
                }
                _ => {
                    const $columns: usize = 1;
                    $body
                }
            }
            $column += count;
        }
    }};
}

/// Runs the tile over `blocks` of `packed`, each `[dim, 64]` keys followed by `[64, dim rounded up]` values, and divides
/// its outputs by their sums. `M` rows are processed together; they must divide the number of rows.
#[inline(always)]
fn run_tile_body<const M: usize, const N: usize>(t: &mut Tile<'_>, packed: &[f32], blocks: Range<usize>) {
    let rows = t.visible.len();
    let padded = t.dim.next_multiple_of(LANES);
    let block_len = BLOCK * (t.dim + padded);
    assert!(rows.is_multiple_of(M));
    for block in blocks {
        let base = block * BLOCK;
        let (keys, values) = packed[block * block_len..][..block_len].split_at(BLOCK * t.dim);
        for first in (0..rows).step_by(M) {
            score_rows::<M, N>(t, keys, first, base);
        }
        let maxima = t.maxima.as_chunks_mut::<LANES>().0;
        for (rescale, maxima) in t.rescale.as_chunks_mut::<LANES>().0.iter_mut().zip(maxima) {
            for lane in 0..LANES {
                let new = larger(rescale[lane], maxima[lane]);
                rescale[lane] = exp(maxima[lane] - new);
                maxima[lane] = new;
            }
        }
        for row in 0..rows {
            exponentiate(t, row, base);
        }
        for first in (0..rows).step_by(M) {
            weigh_values::<M, N>(t, values, padded, first, base);
        }
    }
    for row in 0..rows {
        let sums: &[f32; LANES] = &t.sums.as_chunks::<LANES>().0[row];
        let sum = tree_sum(*sums);
        let inverse = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        for x in &mut t.outputs[row * padded..][..padded] {
            // See `exponentiate` for the zero.
            *x = *x * inverse + 0.0;
        }
    }
}

/// The keys that `M` rows see between them, relative to `base`: what a query sees moves forward with its position.
#[inline(always)]
fn seen<const M: usize>(visible: &[Visible], first: usize, base: usize) -> Range<usize> {
    Visible { start: visible[first].start, end: visible[first + M - 1].end }.within(base)
}

/// Scores of `M` rows, minus infinity where masked, and the block's maximum of each row in `rescale`.
#[inline(always)]
fn score_rows<const M: usize, const N: usize>(t: &mut Tile<'_>, keys: &[f32], first: usize, base: usize) {
    let seen = seen::<M>(t.visible, first, base);
    if seen.is_empty() {
        t.rescale[first..first + M].fill(LOWEST);
        return;
    }
    let left: [&[f32]; M] = std::array::from_fn(|i| &t.queries[(first + i) * t.dim..][..t.dim]);
    let panel = Panel { groups: keys.as_chunks::<LANES>().0, stride: GROUPS };
    let scores = &mut t.scores.as_chunks_mut::<BLOCK>().0[first..first + M];
    for_columns!(N, seen.start / LANES..seen.end.div_ceil(LANES), |COLUMNS, column| {
        let sums = tile::<M, COLUMNS>([[[0.0; LANES]; COLUMNS]; M], &left, panel, column);
        for i in 0..M {
            scores[i][column * LANES..][..COLUMNS * LANES].copy_from_slice(sums[i].as_flattened());
        }
    });
    for (i, scores) in scores.iter_mut().enumerate() {
        let keys = t.visible[first + i].within(base);
        if keys.len() < BLOCK {
            scores[..keys.start].fill(f32::NEG_INFINITY);
            scores[keys.end..].fill(f32::NEG_INFINITY);
        }
        let mut lanes = [LOWEST; LANES];
        for scores in scores.as_chunks::<LANES>().0 {
            for lane in 0..LANES {
                lanes[lane] = larger(scores[lane], lanes[lane]);
            }
        }
        t.rescale[first + i] = tree_max(lanes);
    }
}

/// Turns a row's scores into exponentials, zero where masked, and adds them to its sums; rescales sums and outputs.
#[inline(always)]
fn exponentiate(t: &mut Tile<'_>, row: usize, base: usize) {
    let (maximum, rescale) = (t.maxima[row], t.rescale[row]);
    let keys = t.visible[row].within(base);
    let sums = &mut t.sums.as_chunks_mut::<LANES>().0[row];
    let scores = &mut t.scores.as_chunks_mut::<BLOCK>().0[row];
    let mut running = *sums;
    for sum in &mut running {
        *sum *= rescale;
    }
    for (group, scores) in scores.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        if group * LANES >= keys.end || (group + 1) * LANES <= keys.start {
            scores.fill(0.0);
            continue;
        }
        for lane in 0..LANES {
            // A masked key's is exp(-infinity), exactly 0: the maximum is never that low.
            scores[lane] = exp(scores[lane] - maximum);
            running[lane] += scores[lane];
        }
    }
    *sums = running;
    let padded = t.outputs.len() / t.visible.len();
    for x in &mut t.outputs[row * padded..][..padded] {
        // Adding zero turns -0 into +0, which a masked key's +-0 leaves alone: so the result does not depend on how many
        // masked keys the rows processed together make this row pass.
        *x = *x * rescale + 0.0;
    }
}

/// `outputs += exponentials * values` for `M` rows, one fused chain over the keys.
#[inline(always)]
fn weigh_values<const M: usize, const N: usize>(
    t: &mut Tile<'_>,
    values: &[f32],
    padded: usize,
    first: usize,
    base: usize,
) {
    let seen = seen::<M>(t.visible, first, base);
    if seen.is_empty() {
        return;
    }
    let stride = padded / LANES;
    let left: [&[f32]; M] = std::array::from_fn(|i| &t.scores[(first + i) * BLOCK..][seen.clone()]);
    let groups = &values.as_chunks::<LANES>().0[seen.start * stride..seen.end * stride];
    let panel = Panel { groups, stride };
    let outputs = &mut t.outputs.as_chunks_mut::<LANES>().0[first * stride..][..M * stride];
    for_columns!(N, 0..stride, |COLUMNS, column| {
        let mut sums = [[[0.0; LANES]; COLUMNS]; M];
        for i in 0..M {
            sums[i].copy_from_slice(&outputs[i * stride + column..][..COLUMNS]);
        }
        let sums = tile::<M, COLUMNS>(sums, &left, panel, column);
        for i in 0..M {
            outputs[i * stride + column..][..COLUMNS].copy_from_slice(&sums[i]);
        }
    });
}

multiversion!(
    /// Runs a tile; see the module.
    pub(crate) fn run_tile(tile: &mut Tile<'_>, packed: &[f32], blocks: Range<usize>) {
        avx512: run_tile_body::<6, 4>,
        avx2: run_tile_body::<6, 1>,
        scalar: run_tile_body::<2, 1>,
    }
);
