//! How the vector levels walk a product; the loops inside are theirs ([`Level`]).
//!
//! With few activation rows the packed weight rows are read where they lie and each output is a dot product across
//! vector lanes. With more, a *panel* of weight rows is staged in scratch first, still packed but transposed, so that a
//! lane is a weight row: four activations are broadcast to all lanes, no lane is ever summed across, and all activation
//! rows pass over the panel while it is in cache.

use super::output::Rect;
use super::{Job, Output};
use crate::layout::{BLOCK, BLOCK_BYTES};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::cell::Cell;

/// The same four bytes of 16 weight rows: 16 weights a row in four planes, one dword a row.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Step(pub(super) [u8; 64]);

/// Steps in a block: `32 bytes / 4`.
pub(super) const STEPS: usize = 8;

/// The most activation rows and weight rows of a tile, over all levels.
const MAX_ROWS: usize = 8;
pub(super) const MAX_COLS: usize = 64;

/// How many bytes on dot products prefetch the packed rows, which follow each other: some 300 ns at the speed of memory.
pub(super) const DOT_AHEAD: usize = 12 << 10;

/// Exact sums of a tile, a row for each activation row.
pub(super) type Sums = [[i32; MAX_COLS]; MAX_ROWS];

/// Packed rows, one after the other.
pub(super) type Packed<'a> = &'a [[u8; BLOCK_BYTES]];

/// What a pass over a panel prefetches of the panels after it.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    /// Where it begins; may end before what is asked for.
    pub(super) packed: Packed<'a>,
    /// Cache lines to ask for in each step, one after the other: that many times 16 rows in a pass. Zero to ask for
    /// nothing, at most 2.
    pub(super) lines: usize,
}

/// The loops of one instruction set and the shapes they are best at.
pub(super) trait Level: Copy {
    /// Weight rows of a panel: a multiple of 16, at most [`MAX_COLS`].
    const PANEL_COLS: usize;
    /// Activation rows of a tile over a panel.
    const PANEL_ROWS: usize;
    /// Activation rows of a tile of dot products.
    const DOT_ROWS: usize;

    /// The fewest activation rows that are worth staging a panel of `blocks` blocks for. A dot product has a cost of
    /// its own for each output, the sum across lanes, and a panel one for each weight.
    fn panel_from(blocks: usize) -> usize;

    /// Steps of scratch for a panel of `blocks` blocks when `rows` activation rows will pass over it.
    fn panel_steps(rows: usize, blocks: usize) -> usize;

    /// Stages the first [`Level::PANEL_COLS`] rows of `packed`. A panel is always full: from `cols` on, rows repeat
    /// the last one, and nobody reads their sums.
    fn stage(self, rows: usize, packed: Packed<'_>, cols: usize, blocks: usize, panel: &mut [Step]);

    /// Sums over a staged panel, a row of them for each activation row. `rows` is what [`Level::stage`] was told.
    fn tile(
        self,
        rows: usize,
        x: &[&[[i8; BLOCK]]],
        row_sums: &[i32],
        panel: &[Step],
        ahead: Ahead<'_>,
        sums: &mut Sums,
    );

    /// Sums of dot products with `cols` packed rows of `weights`, which may go on after them.
    fn dot(self, x: &[&[[i8; BLOCK]]], row_sums: &[i32], weights: Packed<'_>, cols: usize, sums: &mut Sums);

    /// Turns the sums of a tile into its outputs; `scales` are those of its activation rows.
    fn finish<T: Output>(self, sums: &Sums, weight_scale: f32, scales: &[f32], out: Rect<'_, T>);
}

/// Four activations, to be broadcast: codes `at ..` of a block.
#[inline(always)]
pub(super) fn dword(block: &[i8; BLOCK], at: usize) -> i32 {
    let codes: [i8; 4] = block.as_chunks::<4>().0[at / 4];
    i32::from_ne_bytes(codes.map(i8::cast_unsigned))
}

/// Asks for the cache line `bytes` into `packed`, whether there is such a line or not.
#[inline(always)]
pub(super) fn prefetch(packed: Packed<'_>, bytes: usize) {
    let line = packed.as_ptr().cast::<i8>().wrapping_add(bytes);
    // SAFETY: a prefetch reads no value and cannot fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line) }
}

// The helpers below are loops and not `array::from_fn`: that is a call when the array is long or the closure was written
// inside a kernel (it then has target features that `from_fn` lacks), and lengths are not known to be equal across it.

/// The rows cut to `len`, so that one bound serves all.
#[inline(always)]
pub(super) fn cut<'a, T, const N: usize>(rows: &[&'a [T]; N], len: usize) -> [&'a [T]; N] {
    let mut cut = *rows;
    for row in &mut cut {
        *row = &row[..len];
    }
    cut
}

/// Item `index` of each row.
#[inline(always)]
pub(super) fn each<'a, T, const N: usize>(rows: &[&'a [T]; N], index: usize) -> [&'a T; N] {
    let mut each = [&rows[0][index]; N];
    for (item, row) in each.iter_mut().zip(rows) {
        *item = &row[index];
    }
    each
}

/// The rows in whole pairs.
#[inline(always)]
pub(super) fn pairs<'a, T, const N: usize>(rows: &[&'a [T]; N]) -> [&'a [[T; 2]]; N] {
    let mut pairs: [&[[T; 2]]; N] = [&[]; N];
    for (pairs, row) in pairs.iter_mut().zip(rows) {
        *pairs = row.as_chunks().0;
    }
    pairs
}

/// `N` packed rows from row `first` on, of which `rows` are there to be read; others repeat the last one, and nobody
/// reads their sums.
#[inline(always)]
pub(super) fn packed_rows<const N: usize>(
    packed: Packed<'_>,
    first: usize,
    rows: usize,
    blocks: usize,
) -> [Packed<'_>; N] {
    let mut result: [Packed<'_>; N] = [&[]; N];
    for (i, row) in result.iter_mut().enumerate() {
        *row = &packed[(first + i).min(rows - 1) * blocks..][..blocks];
    }
    result
}

/// Calls a kernel whose number of activation rows is a constant, `x.len()`, which must be one of those listed:
/// `by_rows!(x, row_sums, [1, 2, 3], |ROWS, x, row_sums| kernel::<ROWS>(x, row_sums, ..))`.
macro_rules! by_rows {
    ($x:ident, $row_sums:ident, [$($rows:literal),+], |$ROWS:ident, $xs:ident, $sums:ident| $call:expr) => {
        match ($x.len(), $x, $row_sums) {
            $(($rows, x, row_sums) => {
                const $ROWS: usize = $rows;
                if let (Some($xs), Some($sums)) = (x.first_chunk::<$rows>(), row_sums.first_chunk::<$rows>()) {
                    $call
                }
            })+
            (rows, ..) => unreachable!("a tile of {rows} rows"),
        }
    };
}
pub(super) use by_rows;

/// Does the job with the loops of `level`.
pub(super) fn run<L: Level, T: Output>(level: L, job: Job<'_, T>) {
    if job.out.rows() < L::panel_from(job.blocks) { dots(level, job) } else { panels(level, job) }
}

fn dots<L: Level, T: Output>(level: L, mut job: Job<'_, T>) {
    let cols = job.out.cols();
    let mut sums = [[0; MAX_COLS]; MAX_ROWS];
    for start in (0..cols).step_by(MAX_COLS) {
        let width = MAX_COLS.min(cols - start);
        let weights = &job.weights[start * job.blocks..];
        for (first, count) in tiles(job.out.rows(), L::DOT_ROWS) {
            let x = activations(&job, first, count);
            level.dot(&x[..count], &job.x.sums[first..][..count], weights, width, &mut sums);
            let out = job.out.part(first..first + count, start..start + width);
            level.finish(&sums, job.weight_scale, &job.x.scales[first..], out);
        }
    }
}

fn panels<L: Level, T: Output>(level: L, mut job: Job<'_, T>) {
    let (rows, cols) = (job.out.rows(), job.out.cols());
    let mut sums = [[0; MAX_COLS]; MAX_ROWS];
    with_scratch(L::panel_steps(rows, job.blocks), |panel| {
        for start in (0..cols).step_by(L::PANEL_COLS) {
            let width = L::PANEL_COLS.min(cols - start);
            level.stage(rows, &job.weights[start * job.blocks..], width, job.blocks, panel);
            // The passes over a panel fetch the next one, or memory would have to deliver it all at once: the rows of a
            // panel are too many streams for the hardware to follow. The first few share it.
            let vectors = L::PANEL_COLS / 16;
            let lines = if rows.div_ceil(L::PANEL_ROWS) >= vectors { 1 } else { 2 };
            for (pass, (first, count)) in tiles(rows, L::PANEL_ROWS).enumerate() {
                let next = (start + width + pass * lines * 16) * job.blocks;
                let ahead = match job.weights.get(next..) {
                    Some(packed) if pass * lines < vectors => Ahead { packed, lines },
                    _ => Ahead { packed: &[], lines: 0 },
                };
                let x = activations(&job, first, count);
                level.tile(rows, &x[..count], &job.x.sums[first..][..count], panel, ahead, &mut sums);
                let out = job.out.part(first..first + count, start..start + width);
                level.finish(&sums, job.weight_scale, &job.x.scales[first..], out);
            }
        }
    });
}

/// The activation rows of a tile; entries from `count` on are empty.
fn activations<'a, T>(job: &Job<'a, T>, first: usize, count: usize) -> [&'a [[i8; BLOCK]]; MAX_ROWS] {
    let mut x: [&[[i8; BLOCK]]; MAX_ROWS] = [&[]; MAX_ROWS];
    for (row, x) in x[..count].iter_mut().enumerate() {
        *x = &job.x.codes[(first + row) * job.blocks..][..job.blocks];
    }
    x
}

/// [`Level::finish`] of a whole tile, in vectors of the level's own width once inlined there.
#[inline(always)]
pub(super) fn finish<const COLS: usize, T: Output>(
    sums: &Sums,
    weight_scale: f32,
    scales: &[f32],
    mut out: Rect<'_, T>,
) {
    for (row, (sums, &scale)) in sums.iter().zip(scales).enumerate().take(out.rows()) {
        let out = out.row(row);
        if let (Some(sums), Ok(out)) = (sums.first_chunk::<COLS>(), <&mut [T; COLS]>::try_from(&mut *out)) {
            // The usual width as a constant: no loop is left.
            scale_row(sums, weight_scale, scale, out);
        } else {
            scale_row(sums, weight_scale, scale, out);
        }
    }
}

#[inline(always)]
fn scale_row<T: Output>(sums: &[i32], weight_scale: f32, scale: f32, out: &mut [T]) {
    for (out, &sum) in out.iter_mut().zip(sums) {
        *out = T::of(sum, weight_scale, scale);
    }
}

/// Divides `rows` into tiles of at most `most` rows whose sizes differ by at most one, as (first row, rows).
fn tiles(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = rows.div_ceil(most);
    (0..count).map(move |tile| {
        let (size, larger) = (rows / count, rows % count);
        (tile * size + tile.min(larger), size + usize::from(tile < larger))
    })
}

/// Lends `steps` steps of this thread's scratch, which keeps its size between jobs. The contents are arbitrary.
fn with_scratch<R>(steps: usize, f: impl FnOnce(&mut [Step]) -> R) -> R {
    thread_local! {
        static SCRATCH: Cell<Vec<Step>> = const { Cell::new(Vec::new()) };
    }
    // Taken out while in use, so that a nested call would get scratch of its own.
    let mut scratch = SCRATCH.take();
    if scratch.len() < steps {
        scratch.resize(steps, Step([0; 64]));
    }
    let result = f(&mut scratch[..steps]);
    SCRATCH.set(scratch);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_the_rows_and_differ_by_at_most_one() {
        for rows in 0..40 {
            let mut next = 0;
            for (first, count) in tiles(rows, 5) {
                assert_eq!(first, next);
                let least = rows / rows.div_ceil(5);
                assert!(count <= 5 && (count == least || count == least + 1));
                next += count;
            }
            assert_eq!(next, rows);
        }
    }

    #[test]
    fn scratch_is_kept_and_a_nested_user_gets_other_scratch() {
        let outer = with_scratch(4, |outer| {
            let inner = with_scratch(2, |inner| inner.as_ptr());
            assert_ne!(outer.as_ptr(), inner);
            outer.as_ptr()
        });
        assert_eq!(with_scratch(3, |again| again.as_ptr()), outer);
    }
}
