//! One attention tile: some query rows against blocks of 64 keys, with an online softmax.

use std::ops::Range;

use crate::isa::Isa;
use crate::kernel::float::multiversion;
#[cfg(target_arch = "x86_64")]
use crate::kernel::score as kernel;
use crate::lanes::{LANES, Panel, larger, smaller, tile, tree_max, tree_sum};
use crate::math::exp_nonpositive;

/// Keys per block.
pub(crate) const BLOCK: usize = 64;

/// Dimensions whose products are summed in one chain; the chains' sums are then added in order. One chain over a whole
/// head rounds each step to the size of the growing score, and an exponential turns that into the largest rounding
/// error of a layer; short chains halve it.
const CHAIN: usize = 16;

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
    queries: &'a mut [f32],
    /// `[rows, dim rounded up to 16]`, unnormalised.
    outputs: &'a mut [f32],
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

    /// A tile that has seen no key, for the queries that [`fill_queries`] copies in.
    pub(crate) fn new(scratch: &'a mut [f32], visible: &'a [Visible], dim: usize) -> Self {
        let rows = visible.len();
        // The queries, which need not be whole vectors, come last.
        let (outputs, rest) = scratch.split_at_mut(rows * dim.next_multiple_of(LANES));
        let (scores, rest) = rest.split_at_mut(rows * BLOCK);
        let (sums, rest) = rest.split_at_mut(rows * LANES);
        let (maxima, rest) = rest.split_at_mut(rows.next_multiple_of(LANES));
        let (rescale, queries) = rest.split_at_mut(rows.next_multiple_of(LANES));
        sums.fill(0.0);
        maxima.fill(LOWEST);
        rescale.fill(LOWEST);
        Self { visible, dim, queries, outputs, scores, sums, maxima, rescale }
    }
}

/// Runs `body` over the columns of a range, `N` (at most 4) at a time and the rest in one piece. (A closure could not take
/// their number as a constant.)
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

/// Floats of one packed block of up to 64 keys: keys transposed into `[dim, keys rounded up to 16]`, then values in
/// `[keys, dim rounded up to 16]`.
pub(crate) fn packed_len(keys: usize, dim: usize) -> usize {
    dim * keys.next_multiple_of(LANES) + keys * dim.next_multiple_of(LANES)
}

/// Runs the tile over `blocks` of one head's keys and values of a text of `length` tokens, `packed` block after block.
/// The number of rows must be a multiple of 6.
pub(crate) fn run_tile(isa: Isa, t: &mut Tile<'_>, packed: &[f32], length: usize, blocks: Range<usize>) {
    let first = blocks.start;
    if blocks.is_empty() {
        t.outputs.fill(0.0);
    }
    for block in blocks {
        let base = block * BLOCK;
        let count = BLOCK.min(length - base);
        let packed = &packed[block * packed_len(BLOCK, t.dim)..][..packed_len(count, t.dim)];
        let (keys, values) = packed.split_at(t.dim * count.next_multiple_of(LANES));
        // Separate functions, not one: each needs the registers for itself.
        score(isa, t, keys, base);
        mask_and_find_maxima(isa, t, base);
        exponentiate(isa, t, base);
        if block > first {
            rescale(isa, t);
        }
        weigh(isa, t, values, base, block == first);
    }
}

/// The keys that `M` rows see between them, relative to `base`: what a query sees moves forward with its position.
#[inline(always)]
fn seen<const M: usize>(visible: &[Visible], first: usize, base: usize) -> Range<usize> {
    Visible { start: visible[first].start, end: visible[first + M - 1].end }.within(base)
}

/// Scores of a block's keys for all rows.
fn score(isa: Isa, t: &mut Tile<'_>, keys: &[f32], base: usize) {
    #[cfg(target_arch = "x86_64")]
    if score_in_registers(isa, t, keys, base) {
        return;
    }
    score_portably(isa, t, keys, base);
}

/// [`score`] where the level has a kernel for it: the same bits.
#[cfg(target_arch = "x86_64")]
fn score_in_registers(isa: Isa, t: &mut Tile<'_>, keys: &[f32], base: usize) -> bool {
    const { assert!(kernel::CHAIN == CHAIN && kernel::KEYS == BLOCK) };
    let keys = keys.as_chunks().0;
    let queries = t.queries.chunks_exact(kernel::ROWS * t.dim);
    let scores = t.scores.as_chunks_mut().0.as_chunks_mut().0;
    queries.zip(scores).zip(0..).all(|((queries, scores), tile)| {
        let seen = seen::<{ kernel::ROWS }>(t.visible, tile * kernel::ROWS, base);
        kernel::score(isa, queries, keys, seen.start / LANES..seen.end.div_ceil(LANES), scores)
    })
}

/// Scores of the groups in which a row sees a key; the others are left alone, nothing reads them. `M` rows are processed
/// together; they must divide the number of rows.
#[inline(always)]
fn score_body<const M: usize, const N: usize>(t: &mut Tile<'_>, keys: &[f32], base: usize) {
    assert!(t.visible.len().is_multiple_of(M));
    for first in (0..t.visible.len()).step_by(M) {
        score_rows::<M, N>(t, keys, first, base);
    }
}

#[inline(always)]
fn score_rows<const M: usize, const N: usize>(t: &mut Tile<'_>, keys: &[f32], first: usize, base: usize) {
    let seen = seen::<M>(t.visible, first, base);
    if seen.is_empty() {
        return;
    }
    let left: [&[f32]; M] = std::array::from_fn(|i| &t.queries[(first + i) * t.dim..][..t.dim]);
    let groups = keys.as_chunks::<LANES>().0;
    let panel = Panel { groups, stride: groups.len() / t.dim };
    let scores = &mut t.scores.as_chunks_mut::<BLOCK>().0[first..first + M];
    for_columns!(N, seen.start / LANES..seen.end.div_ceil(LANES), |COLUMNS, column| {
        for start in (0..t.dim).step_by(CHAIN) {
            let end = t.dim.min(start + CHAIN);
            let left: [&[f32]; M] = std::array::from_fn(|i| &left[i][start..end]);
            let panel = Panel { groups: &panel.groups[start * panel.stride..end * panel.stride], stride: panel.stride };
            let sums = tile::<M, COLUMNS>([[[0.0; LANES]; COLUMNS]; M], &left, panel, column);
            for i in 0..M {
                let scores = &mut scores[i][column * LANES..][..COLUMNS * LANES];
                if start == 0 {
                    scores.copy_from_slice(sums[i].as_flattened());
                } else {
                    for (score, sum) in scores.iter_mut().zip(sums[i].as_flattened()) {
                        *score += sum;
                    }
                }
            }
        }
    });
}

/// Masks the scores of keys that a row does not see, in the groups in which it sees others, and writes the row's largest,
/// [`LOWEST`] at least, to `rescale`.
fn mask_and_find_maxima(isa: Isa, t: &mut Tile<'_>, base: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let scores = t.scores.as_chunks_mut().0;
        if kernel::mask_and_find_maxima(isa, scores, |row| t.visible[row].within(base), LOWEST, t.rescale) {
            return;
        }
    }
    mask_and_find_maxima_portably(isa, t, base);
}

#[inline(always)]
fn mask_and_find_maxima_body(t: &mut Tile<'_>, base: usize) {
    let scores = t.scores.as_chunks_mut::<LANES>().0.as_chunks_mut::<{ BLOCK / LANES }>().0;
    for ((visible, scores), maximum) in t.visible.iter().zip(scores).zip(t.rescale.iter_mut()) {
        let keys = visible.within(base);
        let mut lanes = [LOWEST; LANES];
        for group in groups_of(&keys) {
            let scores = &mut scores[group];
            mask(scores, &keys, group * LANES);
            for lane in 0..LANES {
                lanes[lane] = larger(scores[lane], lanes[lane]);
            }
        }
        *maximum = tree_max(lanes);
    }
}

/// The groups of 16 keys that hold one of `keys`.
#[inline(always)]
fn groups_of(keys: &Range<usize>) -> Range<usize> {
    keys.start / LANES..keys.end.div_ceil(LANES)
}

/// Windows of it limit the 16 scores of a group: those before or after a key to minus infinity, others not at all.
const LIMITS: [f32; 3 * LANES] = {
    let mut limits = [f32::NEG_INFINITY; 3 * LANES];
    let mut at = LANES;
    while at < 2 * LANES {
        limits[at] = f32::INFINITY;
        at += 1;
    }
    limits
};

/// Sets the scores of the 16 keys from `base` on that are outside `keys` to minus infinity.
#[inline(always)]
fn mask(scores: &mut [f32; LANES], keys: &Range<usize>, base: usize) {
    if keys.start > base || keys.end < base + LANES {
        // Limits from memory, since the compiler makes a branch a lane of a comparison with its number.
        let before = &LIMITS[LANES - keys.start.saturating_sub(base).min(LANES)..][..LANES];
        let behind = &LIMITS[2 * LANES - keys.end.saturating_sub(base).min(LANES)..][..LANES];
        for lane in 0..LANES {
            // The limit last: a score beyond the last key is of what the scratch held, which may have been NaN. That of a
            // key which is seen becomes infinite, and NaN again as the difference to the largest.
            scores[lane] = smaller(smaller(scores[lane], behind[lane]), before[lane]);
        }
    }
}

/// Turns masked scores into exponentials, zero where masked, and adds them to the rescaled sums, given their maxima.
#[inline(always)]
fn exponentiate_body(t: &mut Tile<'_>, base: usize) {
    let maxima = t.maxima.as_chunks_mut::<LANES>().0;
    for (rescale, maxima) in t.rescale.as_chunks_mut::<LANES>().0.iter_mut().zip(maxima) {
        for lane in 0..LANES {
            let new = larger(rescale[lane], maxima[lane]);
            rescale[lane] = exp_nonpositive(maxima[lane] - new);
            maxima[lane] = new;
        }
    }
    for row in 0..t.visible.len() {
        exponentiate_row(t, row, base);
    }
}

#[inline(always)]
fn exponentiate_row(t: &mut Tile<'_>, row: usize, base: usize) {
    let (maximum, rescale) = (t.maxima[row], t.rescale[row]);
    let keys = t.visible[row].within(base);
    let sums = &mut t.sums.as_chunks_mut::<LANES>().0[row];
    let scores = &mut t.scores.as_chunks_mut::<BLOCK>().0[row];
    let mut running = *sums;
    for sum in &mut running {
        *sum *= rescale;
    }
    let seen = groups_of(&keys);
    let groups = scores.as_chunks_mut::<LANES>().0;
    // The rows that are weighed with this one may see them.
    groups[..seen.start].as_flattened_mut().fill(0.0);
    groups[seen.end..].as_flattened_mut().fill(0.0);
    for scores in &mut groups[seen] {
        for lane in 0..LANES {
            // A masked key's is that of minus infinity, exactly 0: the maximum is never that low.
            scores[lane] = exp_nonpositive(scores[lane] - maximum);
            running[lane] += scores[lane];
        }
    }
    *sums = running;
}

/// Rescales the outputs of earlier blocks.
#[inline(always)]
fn rescale_body(t: &mut Tile<'_>) {
    let padded = t.dim.next_multiple_of(LANES);
    for (outputs, &rescale) in t.outputs.chunks_exact_mut(padded).zip(t.rescale.iter()) {
        for x in outputs {
            // Adding zero turns -0 into +0, which a masked key's +-0 leaves alone: so the result does not depend on how
            // many masked keys the rows processed together make this row pass.
            *x = *x * rescale + 0.0;
        }
    }
}

/// `outputs += exponentials * values`, one fused chain over the block's keys; `M` as in [`score_body`]. In the first block
/// the outputs are taken as 0, whatever the scratch held.
#[inline(always)]
fn weigh_body<const M: usize, const N: usize>(t: &mut Tile<'_>, values: &[f32], base: usize, first_block: bool) {
    assert!(t.visible.len().is_multiple_of(M));
    for first in (0..t.visible.len()).step_by(M) {
        weigh_rows::<M, N>(t, values, first, base, first_block);
    }
}

#[inline(always)]
fn weigh_rows<const M: usize, const N: usize>(
    t: &mut Tile<'_>,
    values: &[f32],
    first: usize,
    base: usize,
    first_block: bool,
) {
    let seen = seen::<M>(t.visible, first, base);
    let stride = t.dim.div_ceil(LANES);
    if seen.is_empty() {
        if first_block {
            t.outputs.as_chunks_mut::<LANES>().0[first * stride..][..M * stride].as_flattened_mut().fill(0.0);
        }
        return;
    }
    let left: [&[f32]; M] = std::array::from_fn(|i| &t.scores[(first + i) * BLOCK..][seen.clone()]);
    let groups = &values.as_chunks::<LANES>().0[seen.start * stride..seen.end * stride];
    let panel = Panel { groups, stride };
    let outputs = &mut t.outputs.as_chunks_mut::<LANES>().0[first * stride..][..M * stride];
    for_columns!(N, 0..stride, |COLUMNS, column| {
        let mut sums = [[[0.0; LANES]; COLUMNS]; M];
        if !first_block {
            for i in 0..M {
                sums[i].copy_from_slice(&outputs[i * stride + column..][..COLUMNS]);
            }
        }
        let sums = tile::<M, COLUMNS>(sums, &left, panel, column);
        for i in 0..M {
            outputs[i * stride + column..][..COLUMNS].copy_from_slice(&sums[i]);
        }
    });
}

/// A row's outputs divided by their sum; 0 if it saw nothing.
#[inline(always)]
fn finish_row_body(t: &Tile<'_>, row: usize, out: &mut [f32]) {
    let outputs = &t.outputs[row * t.dim.next_multiple_of(LANES)..];
    let sum = tree_sum(t.sums.as_chunks::<LANES>().0[row]);
    let inverse = if sum == 0.0 { 0.0 } else { 1.0 / sum };
    for (out, x) in out.iter_mut().zip(outputs) {
        // See `rescale_body` for the zero.
        *out = x * inverse + 0.0;
    }
}

#[inline(always)]
fn fill_queries_body(t: &mut Tile<'_>, row: usize, queries: &[f32], scale: f32) {
    for (x, &q) in t.queries[row * t.dim..][..queries.len()].iter_mut().zip(queries) {
        *x = q * scale;
    }
}

multiversion!(
    /// Sets the rows from `row` on to `queries * scale`, as many as there are.
    pub(crate) fn fill_queries(tile: &mut Tile<'_>, row: usize, queries: &[f32], scale: f32) = fill_queries_body
);
multiversion!(
    fn score_portably(tile: &mut Tile<'_>, keys: &[f32], base: usize) {
        avx512: score_body::<6, 4>,
        avx2: score_body::<6, 1>,
        scalar: score_body::<6, 1>,
    }
);
multiversion!(fn mask_and_find_maxima_portably(tile: &mut Tile<'_>, base: usize) = mask_and_find_maxima_body);
multiversion!(fn exponentiate(tile: &mut Tile<'_>, base: usize) = exponentiate_body);
multiversion!(fn rescale(tile: &mut Tile<'_>) = rescale_body);
multiversion!(
    fn weigh(tile: &mut Tile<'_>, values: &[f32], base: usize, first_block: bool) {
        avx512: weigh_body::<6, 4>,
        avx2: weigh_body::<6, 1>,
        scalar: weigh_body::<6, 1>,
    }
);
multiversion!(
    /// Writes the result of row `row`, its outputs divided by their sum, to `out`; 0 if the row saw no key.
    pub(crate) fn finish_row(tile: &Tile<'_>, row: usize, out: &mut [f32]) = finish_row_body
);

#[cfg(test)]
mod tests {
    use super::*;

    /// A score of any kind.
    fn score(i: usize) -> f32 {
        match i.wrapping_mul(2_654_435_761) >> 5 & 63 {
            0 => f32::NAN,
            1 => f32::INFINITY,
            2 => f32::NEG_INFINITY,
            3 => -0.0,
            4 => 0.0,
            n => (n as f32 - 40.0) / 8.0,
        }
    }

    /// What masking makes of a row's scores, and its largest, as [`mask_and_find_maxima`] says it.
    fn masked(row: &[f32], keys: &Range<usize>) -> (Vec<f32>, f32) {
        let groups = groups_of(keys);
        let seen = |key: usize| groups.contains(&(key / LANES));
        let is_whole = |group: usize| keys.start <= group * LANES && (group + 1) * LANES <= keys.end;
        let mask = |(key, &score): (usize, &f32)| match (seen(key), keys.contains(&key)) {
            (false, _) => score,
            (true, false) => f32::NEG_INFINITY,
            (true, true) if score.is_nan() && !is_whole(key / LANES) => f32::INFINITY,
            (true, true) => score,
        };
        let scores: Vec<f32> = row.iter().enumerate().map(mask).collect();
        let largest = (0..BLOCK).filter(|&key| seen(key)).map(|key| scores[key]).fold(LOWEST, f32::max);
        (scores, largest)
    }

    #[test]
    fn what_is_not_seen_is_masked_and_the_largest_of_the_others_found() {
        const BASE: usize = 2 * BLOCK;
        type Find = fn(Isa, &mut Tile<'_>, usize);
        for (&isa, find) in Isa::available()
            .iter()
            .flat_map(|isa| [mask_and_find_maxima as Find, mask_and_find_maxima_portably].map(|find| (isa, find)))
        {
            for start in 0..=BLOCK {
                // A row for each end.
                let visible: Vec<Visible> =
                    (start..=BLOCK).map(|end| Visible { start: BASE + start, end: BASE + end }).collect();
                let mut scratch = vec![0.0; Tile::scratch_len(visible.len(), 1)];
                let mut tile = Tile::new(&mut scratch, &visible, 1);
                let scores: Vec<f32> = (0..tile.scores.len()).map(|i| score(1000 * start + i)).collect();
                tile.scores.copy_from_slice(&scores);
                find(isa, &mut tile, BASE);
                for (row, visible) in visible.iter().enumerate() {
                    let at = row * BLOCK..(row + 1) * BLOCK;
                    let keys = visible.within(BASE);
                    let (expected, largest) = masked(&scores[at.clone()], &keys);
                    let bits = |scores: &[f32]| scores.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&tile.scores[at]), bits(&expected), "{isa}: {keys:?}");
                    assert_eq!(tile.rescale[row], largest, "{isa}: {keys:?}");
                }
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_512_bit_levels_have_kernels() {
        for &isa in Isa::available() {
            let has = kernel::mask_and_find_maxima(isa, &mut [[0.0; BLOCK]], |_| 0..BLOCK, LOWEST, &mut [0.0]);
            assert_eq!(has, isa.name().starts_with("avx512"), "{isa}");
        }
    }
}
