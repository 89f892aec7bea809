//! The ternary product: int8 activations times packed ternary weights, exact in the integers.
//!
//! An output is `(sum as f32 * weight_scale) / scale`, where `sum` is the exact sum of activation code times weight,
//! `weight_scale` the matrix's and `scale` the activation row's. The order of the two float operations is part of the
//! definition, so every [`Isa`] level and every number of threads gives the same bits.

use crate::error::TernaryError;
use crate::isa::Isa;
use crate::kernel::output::Rect;
use crate::kernel::{self, Job, Output, Rows};
use crate::layout::{self, BLOCK};
use crate::matrix::{MAX_COLUMNS, TernaryMatrix};
use crate::threads;
use crate::tiling::{Split, Tiling};
use rayon::prelude::*;

/// Products of one weight and one activation that are worth a thread of their own: some 10 us of work for one core,
/// several times what waking a sleeping thread costs.
const PRODUCTS_PER_THREAD: usize = 1 << 22;

/// Activation rows below which a weight costs as much as with this many: unpacking and memory then set the pace.
const ROWS_THAT_PAY: usize = 4;

/// Borrowed rows of int8 activations.
///
/// Row `m` stands for the values `code / scales[m]`: it was multiplied with `scales[m]`, 127 over its largest
/// magnitude, and rounded.
#[derive(Clone, Copy, Debug)]
pub struct Activations<'a> {
    codes: &'a [[i8; BLOCK]],
    sums: &'a [i32],
    scales: &'a [f32],
    cols: usize,
}

impl<'a> Activations<'a> {
    /// Views `codes` as `sums.len()` rows of `cols` codes, each padded with zeros to [`Activations::stride`] codes.
    ///
    /// `sums` must be the sums of each row's codes and `scales` what each row was multiplied with. They are taken at
    /// their word: other values give other outputs, the same on every level.
    ///
    /// # Errors
    /// When `cols` is zero or above [`MAX_COLUMNS`], or `codes` or `scales` do not have the length that goes with it.
    pub fn new(codes: &'a [i8], sums: &'a [i32], scales: &'a [f32], cols: usize) -> Result<Self, TernaryError> {
        let rows = sums.len();
        if cols == 0 {
            return Err(TernaryError::Empty { out_features: rows, in_features: 0 });
        }
        if cols > MAX_COLUMNS {
            return Err(TernaryError::TooManyColumns { limit: MAX_COLUMNS, found: cols });
        }
        let stride = layout::blocks_per_row(cols) * BLOCK;
        for (what, expected, found) in
            [("codes", rows.saturating_mul(stride), codes.len()), ("scales", rows, scales.len())]
        {
            if found != expected {
                return Err(TernaryError::ActivationLength { what, rows, stride, expected, found });
            }
        }
        Ok(Self { codes: codes.as_chunks().0, sums, scales, cols })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.sums.len()
    }

    /// Columns, without padding.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Codes of a row with its padding: `cols` rounded up to whole blocks.
    pub fn stride(&self) -> usize {
        self.blocks_per_row() * BLOCK
    }

    /// The codes of one row, without padding.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> &'a [i8] {
        let blocks = self.blocks_per_row();
        &self.codes[row * blocks..][..blocks].as_flattened()[..self.cols]
    }

    /// What each row was multiplied with.
    pub fn scales(&self) -> &'a [f32] {
        self.scales
    }

    fn blocks_per_row(&self) -> usize {
        layout::blocks_per_row(self.cols)
    }
}

/// One product of [`ternary_gemm_many`].
#[derive(Debug)]
pub struct Product<'a> {
    /// `[rows, in_features]`.
    pub x: Activations<'a>,
    /// `[out_features, in_features]`.
    pub w: TernaryMatrix<'a>,
    /// `[rows, out_features]`, row-major; every value is written.
    pub out: &'a mut [f32],
}

/// Writes `x` times the transpose of `w` to `out`, `[rows, out_features]` row-major.
///
/// Runs on rayon's current pool when there is enough work.
///
/// # Errors
/// When the columns of `x` and `w` differ or `out` has another length; `out` is then untouched.
pub fn ternary_gemm(isa: Isa, x: &Activations<'_>, w: &TernaryMatrix<'_>, out: &mut [f32]) -> Result<(), TernaryError> {
    run(isa, None, [(*x, *w, out)])
}

/// [`ternary_gemm`] divided by other sizes than the level's own: the same bits at another speed.
///
/// # Errors
/// As [`ternary_gemm`].
pub fn ternary_gemm_tiled(
    isa: Isa,
    tiling: &Tiling,
    x: &Activations<'_>,
    w: &TernaryMatrix<'_>,
    out: &mut [f32],
) -> Result<(), TernaryError> {
    run(isa, Some(*tiling), [(*x, *w, out)])
}

/// [`ternary_gemm`] of several products in one parallel region.
///
/// # Errors
/// As [`ternary_gemm`], before any output is written.
pub fn ternary_gemm_many(isa: Isa, products: &mut [Product<'_>]) -> Result<(), TernaryError> {
    run(isa, None, products.iter_mut().map(|product| (product.x, product.w, &mut *product.out)))
}

/// Writes the exact sums of code times weight, without either scale, to `out`, `[rows, out_features]` row-major.
///
/// # Errors
/// As [`ternary_gemm`].
pub fn ternary_accumulate(
    isa: Isa,
    x: &Activations<'_>,
    w: &TernaryMatrix<'_>,
    out: &mut [i32],
) -> Result<(), TernaryError> {
    run(isa, None, [(*x, *w, out)])
}

/// Runs the int8 multiply-add of `isa` for `rounds` rounds on registers alone and returns how many products of two
/// int8 values that made: timed, it is the limit that the rate of a product can be stated as a part of.
///
/// `None` for [`Isa::Scalar`], which has no such instruction.
pub fn spin_multiply_add(isa: Isa, rounds: u64) -> Option<u64> {
    kernel::peak::spin(isa, rounds)
}

fn run<'a, T: Output + 'a>(
    isa: Isa,
    tiling: Option<Tiling>,
    products: impl IntoIterator<Item = (Activations<'a>, TernaryMatrix<'a>, &'a mut [T])>,
) -> Result<(), TernaryError> {
    let products: Vec<_> = products.into_iter().collect();
    for (x, w, out) in &products {
        check(x, w, out.len())?;
    }
    let cost = |x: &Activations<'_>, w: &TernaryMatrix<'_>| {
        let products = w.blocks().len().saturating_mul(BLOCK);
        if x.rows() == 0 { 0 } else { products.saturating_mul(x.rows().max(ROWS_THAT_PAY)) }
    };
    let total = products.iter().fold(0, |total: usize, (x, w, _)| total.saturating_add(cost(x, w)));
    let threads = threads::available().min(total / PRODUCTS_PER_THREAD);
    let mut jobs = Vec::new();
    for (x, w, out) in products {
        let tiling = tiling.unwrap_or_else(|| Tiling::of(isa, w.in_features()));
        // Each product has its part of the pieces.
        let all_pieces = threads.saturating_mul(tiling.jobs_per_thread).clamp(1, total.max(1));
        let pieces = if threads > 1 { cost(&x, &w).div_ceil(total / all_pieces) } else { 1 };
        divide(isa, tiling, x, w, out, pieces, &mut jobs);
    }
    if threads > 1 {
        jobs.into_par_iter().with_max_len(1).for_each(|job| kernel::run(isa, job));
    } else {
        jobs.into_iter().for_each(|job| kernel::run(isa, job));
    }
    Ok(())
}

fn check(x: &Activations<'_>, w: &TernaryMatrix<'_>, found: usize) -> Result<(), TernaryError> {
    if x.cols() != w.in_features() {
        return Err(TernaryError::Columns { expected: w.in_features(), found: x.cols() });
    }
    let (rows, out_features) = (x.rows(), w.out_features());
    let expected = rows.checked_mul(out_features);
    if expected != Some(found) {
        return Err(TernaryError::OutputLength { rows, out_features, expected, found });
    }
    Ok(())
}

/// Divides a product into about `pieces` jobs, as `tiling` says.
fn divide<'a, T: Output>(
    isa: Isa,
    tiling: Tiling,
    x: Activations<'a>,
    w: TernaryMatrix<'a>,
    out: &'a mut [T],
    pieces: usize,
    jobs: &mut Vec<Job<'a, T>>,
) {
    let (rows, cols, blocks) = (x.rows(), w.out_features(), w.blocks_per_row());
    if rows == 0 {
        return;
    }
    let unit = kernel::column_unit(isa);
    let units = cols.div_ceil(unit);
    let most_row_pieces = rows.div_ceil(tiling.rows_per_job.max(1));
    let (col_pieces, row_pieces) = match tiling.split {
        Split::WeightRows => {
            let col_pieces = pieces.clamp(1, units);
            (col_pieces, pieces.div_ceil(col_pieces).clamp(1, most_row_pieces))
        }
        Split::ActivationRows => {
            let row_pieces = pieces.clamp(1, most_row_pieces);
            (pieces.div_ceil(row_pieces).clamp(1, units), row_pieces)
        }
    };
    // Pieces that differ by at most one unit: a last one of what is left over would leave its thread idle.
    let col_cut = |piece: usize| cols.min(units * piece / col_pieces * unit);
    let row_cut = |piece: usize| rows * piece / row_pieces;
    let mut right = Rect::new(out, rows, cols);
    for col in 0..col_pieces {
        let (column, rest) = right.split_columns(col_cut(col + 1) - col_cut(col));
        right = rest;
        let mut below = column;
        for row in 0..row_pieces {
            let (start, count) = (row_cut(row), row_cut(row + 1) - row_cut(row));
            let (out, rest) = below.split_rows(count);
            below = rest;
            let x = Rows {
                codes: &x.codes[start * blocks..][..count * blocks],
                sums: &x.sums[start..][..count],
                scales: &x.scales[start..][..count],
            };
            let weights = &w.blocks()[col_cut(col) * blocks..];
            jobs.push(Job { x, blocks, weights, weight_scale: w.weight_scale(), tiling, out });
        }
    }
}
