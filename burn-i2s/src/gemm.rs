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
    run_one(isa, None, x, w, out)
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
    run_one(isa, Some(*tiling), x, w, out)
}

/// [`ternary_gemm`] of several products in one parallel region.
///
/// # Errors
/// As [`ternary_gemm`], before any output is written.
pub fn ternary_gemm_many(isa: Isa, products: &mut [Product<'_>]) -> Result<(), TernaryError> {
    let work = Work::of(products.iter().map(|product| (product.x, product.w, product.out.len())))?;
    work.run(isa, None, products.iter_mut().map(|product| (product.x, product.w, &mut *product.out)));
    Ok(())
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
    run_one(isa, None, x, w, out)
}

/// Runs the int8 multiply-add of `isa` for `rounds` rounds on registers alone and returns how many products of two
/// int8 values that made: timed, it is the limit that the rate of a product can be stated as a part of.
///
/// `None` for [`Isa::Scalar`], which has no such instruction.
pub fn spin_multiply_add(isa: Isa, rounds: u64) -> Option<u64> {
    kernel::peak::spin(isa, rounds)
}

fn run_one<T: Output>(
    isa: Isa,
    tiling: Option<Tiling>,
    x: &Activations<'_>,
    w: &TernaryMatrix<'_>,
    out: &mut [T],
) -> Result<(), TernaryError> {
    Work::of([(*x, *w, out.len())])?.run(isa, tiling, [(*x, *w, out)]);
    Ok(())
}

/// How much work some products are, known before any of them is begun.
struct Work {
    total: usize,
    threads: usize,
}

impl Work {
    /// Checks shapes, each with its output's length. Makes no list of them: allocating it would cost a product of a few rows
    /// a percent.
    fn of<'a>(
        shapes: impl IntoIterator<Item = (Activations<'a>, TernaryMatrix<'a>, usize)>,
    ) -> Result<Self, TernaryError> {
        let mut total = 0usize;
        for (x, w, found) in shapes {
            check(&x, &w, found)?;
            total = total.saturating_add(cost(w.blocks().len(), x.rows()));
        }
        // The order matters: small work must not be what starts rayon's threads.
        let most_threads = total / PRODUCTS_PER_THREAD;
        Ok(Self { total, threads: if most_threads > 1 { threads::available().min(most_threads) } else { 1 } })
    }

    /// Does it.
    fn run<'a, T: Output + 'a>(
        self,
        isa: Isa,
        tiling: Option<Tiling>,
        products: impl IntoIterator<Item = (Activations<'a>, TernaryMatrix<'a>, &'a mut [T])>,
    ) {
        let whole = products
            .into_iter()
            .filter(|(x, ..)| x.rows() > 0)
            .map(|(x, w, out)| whole(tiling.unwrap_or_else(|| Tiling::of(isa, w.in_features())), x, w, out));
        if self.threads == 1 {
            return whole.for_each(|job| kernel::run(isa, job));
        }
        let mut jobs = Vec::new();
        for product in whole {
            // Each product has its part of the pieces.
            let all_pieces = self.threads.saturating_mul(product.tiling.jobs_per_thread).clamp(1, self.total);
            let cost = cost(product.weights.len(), product.out.rows());
            divide(isa, product, cost.div_ceil(self.total / all_pieces), &mut jobs);
        }
        jobs.into_par_iter().with_max_len(1).for_each(|job| kernel::run(isa, job));
    }
}

/// What `blocks` blocks of weights times so many rows cost, in products of a code and an activation.
fn cost(blocks: usize, rows: usize) -> usize {
    if rows == 0 { 0 } else { blocks.saturating_mul(BLOCK).saturating_mul(rows.max(ROWS_THAT_PAY)) }
}

/// A product as one job.
fn whole<'a, T>(tiling: Tiling, x: Activations<'a>, w: TernaryMatrix<'a>, out: &'a mut [T]) -> Job<'a, T> {
    let rows = Rows { codes: x.codes, sums: x.sums, scales: x.scales };
    let out = Rect::new(out, x.rows(), w.out_features());
    Job { x: rows, blocks: w.blocks_per_row(), weights: w.blocks(), weight_scale: w.weight_scale(), tiling, out }
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

/// Divides a product into about `pieces` jobs, as its tiling says.
fn divide<'a, T: Output>(isa: Isa, product: Job<'a, T>, pieces: usize, jobs: &mut Vec<Job<'a, T>>) {
    let Job { x, blocks, weights, weight_scale, tiling, out } = product;
    let (rows, cols) = (out.rows(), out.cols());
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
    let mut right = out;
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
            let weights = &weights[col_cut(col) * blocks..];
            jobs.push(Job { x, blocks, weights, weight_scale, tiling, out });
        }
    }
}
