//! How the vector levels walk a product; the loops inside are theirs ([`Level`]).
//!
//! With few activation rows the packed weight rows are read where they lie and each output is a dot product across
//! vector lanes. With more, a *panel* of weight rows is staged in scratch first, still packed but transposed, so that a
//! lane is a weight row: four activations are broadcast to all lanes, no lane is ever summed across, and all activation
//! rows pass over the panel while it is in cache.

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

/// Exact sums of a tile, a row for each activation row.
pub(super) type Sums = [[i32; MAX_COLS]; MAX_ROWS];

/// Packed rows that lie ahead of the ones in use, for the prefetcher; may be shorter than what is asked for.
pub(super) type Ahead<'a> = &'a [[u8; BLOCK_BYTES]];

/// The loops of one instruction set and the shapes they are best at.
pub(super) trait Level: Copy {
    /// Weight rows of a panel: a multiple of 16, at most [`MAX_COLS`].
    const PANEL_COLS: usize;
    /// Activation rows of a tile over a panel.
    const PANEL_ROWS: usize;
    /// Activation rows of a tile of dot products.
    const DOT_ROWS: usize;
    /// The fewest activation rows that are worth staging a panel for.
    const PANEL_FROM: usize;

    /// Steps of scratch for a panel of `blocks` blocks when `rows` activation rows will pass over it.
    fn panel_steps(rows: usize, blocks: usize) -> usize;

    /// Stages the first [`Level::PANEL_COLS`] rows of `packed`. A panel is always full: from `cols` on, rows repeat
    /// the last one, and nobody reads their sums.
    fn stage(self, rows: usize, packed: Ahead<'_>, cols: usize, blocks: usize, panel: &mut [Step]);

    /// Sums over a staged panel, one activation row each. Rows `ahead` are prefetched unless empty. `rows` is what
    /// [`Level::stage`] was told.
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
    fn dot(self, x: &[&[[i8; BLOCK]]], row_sums: &[i32], weights: Ahead<'_>, cols: usize, sums: &mut Sums);

    /// Turns sums into outputs.
    fn finish<T: Output>(self, sums: &[i32], weight_scale: f32, scale: f32, out: &mut [T]);
}

/// Four activations, to be broadcast: codes `at ..` of a block.
#[inline(always)]
pub(super) fn dword(block: &[i8; BLOCK], at: usize) -> i32 {
    let codes: [i8; 4] = block.as_chunks::<4>().0[at / 4];
    i32::from_ne_bytes(codes.map(i8::cast_unsigned))
}

/// Asks for the cache line `bytes` bytes into `ahead`, whether there is such a line or not.
#[inline(always)]
pub(super) fn prefetch(ahead: Ahead<'_>, bytes: usize) {
    let line = ahead.as_ptr().cast::<i8>().wrapping_add(bytes);
    // SAFETY: a prefetch reads no value and cannot fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line) }
}

// The closures of `from_fn` must be inlined into the kernels, which only happens if they were not written there: a
// closure has the target features of the function around it, and `from_fn` does not.

/// The rows cut to `len`, so that one bound serves all.
#[inline(always)]
pub(super) fn cut<'a, T, const N: usize>(rows: &[&'a [T]; N], len: usize) -> [&'a [T]; N] {
    std::array::from_fn(|i| &rows[i][..len])
}

/// Item `index` of each row.
#[inline(always)]
pub(super) fn each<'a, T, const N: usize>(rows: &[&'a [T]; N], index: usize) -> [&'a T; N] {
    std::array::from_fn(|i| &rows[i][index])
}

/// The rows in whole pairs.
#[inline(always)]
pub(super) fn pairs<'a, T, const N: usize>(rows: &[&'a [T]; N]) -> [&'a [[T; 2]]; N] {
    std::array::from_fn(|i| rows[i].as_chunks().0)
}

/// `N` packed rows from row `first` on, of which `rows` are there to be read; others repeat the last one, and nobody
/// reads their sums.
#[inline(always)]
pub(super) fn packed_rows<const N: usize>(
    packed: Ahead<'_>,
    first: usize,
    rows: usize,
    blocks: usize,
) -> [Ahead<'_>; N] {
    std::array::from_fn(|i| &packed[(first + i).min(rows - 1) * blocks..][..blocks])
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
    if job.out.rows() < L::PANEL_FROM { dots(level, job) } else { panels(level, job) }
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
            write(level, &mut job, &sums, first, count, start, width);
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
            let end = (start + width) * job.blocks;
            for (first, count) in tiles(rows, L::PANEL_ROWS) {
                // The first pass over a panel fetches the next one: each panel is a new page to the hardware.
                let ahead = if first == 0 { &job.weights[end..] } else { &[] };
                let x = activations(&job, first, count);
                level.tile(rows, &x[..count], &job.x.sums[first..][..count], panel, ahead, &mut sums);
                write(level, &mut job, &sums, first, count, start, width);
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

fn write<L: Level, T: Output>(
    level: L,
    job: &mut Job<'_, T>,
    sums: &Sums,
    first: usize,
    count: usize,
    start: usize,
    width: usize,
) {
    for (row, sums) in (first..).zip(&sums[..count]) {
        let out = &mut job.out.row(row)[start..][..width];
        level.finish(&sums[..width], job.weight_scale, job.x.scales[row], out);
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
