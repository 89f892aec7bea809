//! What all vector levels share: the walk over a product as dot products, and the parts of their loops that are not
//! instructions of one CPU.
//!
//! The packed weight rows are read where they lie, and each output is a dot product across vector lanes, which are added
//! at the end. A tile of activation rows and weight rows shares what is loaded and unpacked.

use super::output::Rect;
use super::{Job, Output};
use crate::layout::{BLOCK, BLOCK_BYTES};

/// The most activation rows and weight rows of a tile, over all levels.
pub(super) const MAX_ROWS: usize = 8;
pub(super) const MAX_COLS: usize = 64;

/// How many bytes on dot products prefetch the packed rows, which follow each other: some 300 ns at the speed of memory.
pub(super) const DOT_AHEAD: usize = 12 << 10;

/// Exact sums of a tile, a row for each activation row.
pub(super) type Sums = [[i32; MAX_COLS]; MAX_ROWS];

/// Packed rows, one after the other.
pub(super) type Packed<'a> = &'a [[u8; BLOCK_BYTES]];

/// The dot products of one instruction set and the shape they are best at.
pub(super) trait Dots: Copy {
    /// Activation rows of a tile of dot products, at most [`MAX_ROWS`].
    const DOT_ROWS: usize;

    /// Sums of dot products with `cols` packed rows of `weights`, which may go on after them.
    fn dot(self, x: &[&[[i8; BLOCK]]], row_sums: &[i32], weights: Packed<'_>, cols: usize, sums: &mut Sums);

    /// Turns the sums of a tile into its outputs; `scales` are those of its activation rows.
    fn finish<T: Output>(self, sums: &Sums, weight_scale: f32, scales: &[f32], out: Rect<'_, T>);
}

/// Asks for the cache line `bytes` into `packed`, whether there is such a line or not.
#[inline(always)]
pub(super) fn prefetch(packed: Packed<'_>, bytes: usize) {
    let line = packed.as_ptr().cast::<i8>().wrapping_add(bytes);
    // SAFETY: a prefetch reads no value and cannot fault, whatever the address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line);
    }
    // The intrinsic is not stable for this architecture.
    // SAFETY: a prefetch reads no value and cannot fault, whatever the address; it changes no register and no flag.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(readonly, nostack, preserves_flags));
    }
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

/// Does the job with the dot products of `level`.
pub(super) fn run<L: Dots, T: Output>(level: L, mut job: Job<'_, T>) {
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

/// The activation rows of a tile; entries from `count` on are empty.
pub(super) fn activations<'a, T>(job: &Job<'a, T>, first: usize, count: usize) -> [&'a [[i8; BLOCK]]; MAX_ROWS] {
    let mut x: [&[[i8; BLOCK]]; MAX_ROWS] = [&[]; MAX_ROWS];
    for (row, x) in x[..count].iter_mut().enumerate() {
        *x = &job.x.codes[(first + row) * job.blocks..][..job.blocks];
    }
    x
}

/// [`Dots::finish`] of a whole tile, in vectors of the level's own width once inlined there.
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

/// Turns the sums of a row into its outputs.
#[inline(always)]
pub(super) fn scale_row<T: Output>(sums: &[i32], weight_scale: f32, scale: f32, out: &mut [T]) {
    for (out, &sum) in out.iter_mut().zip(sums) {
        *out = T::of(sum, weight_scale, scale);
    }
}

/// Divides `rows` into tiles of at most `most` rows whose sizes differ by at most one, as (first row, rows).
pub(super) fn tiles(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = rows.div_ceil(most);
    (0..count).map(move |tile| {
        let (size, larger) = (rows / count, rows % count);
        (tile * size + tile.min(larger), size + usize::from(tile < larger))
    })
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
}
