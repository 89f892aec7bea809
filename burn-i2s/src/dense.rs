//! Products with float weights that stay in their file's format: rows are decoded when they are used.
//!
//! `out[m][n]` is one fused chain over ascending `k` from 0, at every shape, thread count and level. The weights of 64
//! outputs are decoded once per call into scratch and transposed piece by piece into a panel, so that lanes run over
//! outputs, and each piece is used for all rows of `x`:
//!
//! ```text
//!            panel: [128, 64]               x: 6 rows             registers: 6 x 64 outputs
//!     k=0  | w0 w1 w2 ...... w63 |     row 0 | x00 x01 x02 ..      += x00 * (w0 .. w63), then k=1, ..
//!     k=1  | w0 w1 w2 ...... w63 |     row 1 | x10 x11 x12 ..
//! ```

use rayon::prelude::*;

use crate::ggml::GgmlType;
use crate::half_float::{decode_bf16, decode_f16};
use crate::isa::Isa;
use crate::kernel::float::multiversion;
use crate::kernel::float_grid::{RectMut, split_grid};
use crate::kernel::float_transpose::{Rows, transpose};
use crate::lanes::{LANES, Panel, tile};
use crate::threads::{units_per_job, with_scratch};

/// Outputs per panel.
const WIDTH: usize = 64;

/// Groups of lanes per panel row.
const GROUPS: usize = WIDTH / LANES;

/// Values of `k` per panel: 32 KiB, which stay in the L1 cache for a pass over the rows of `x`.
const DEPTH: usize = 256;

/// Floats between two decoded rows beyond their values: rows a power of two apart would compete for cache lines.
const ROW_GAP: usize = 16;

/// The rows of a weight matrix, `[rows, cols]`, decoded on demand.
pub trait WeightRows: Sync {
    /// Number of rows, the outputs of a product.
    fn rows(&self) -> usize;

    /// Values per row, the inputs of a product.
    fn cols(&self) -> usize;

    /// Decodes row `row` into `out`, which has [`cols`](Self::cols) values.
    ///
    /// # Panics
    /// May panic when `row` is not below [`rows`](Self::rows) or `out` has another length.
    fn decode(&self, isa: Isa, row: usize, out: &mut [f32]);
}

/// Why bytes are not a dense matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DenseError {
    /// The type has no rows that can be decoded on their own.
    #[error("rows of {found} values cannot be stored as {}", ty.name())]
    Row {
        /// The type asked for.
        ty: GgmlType,
        /// Values per row asked for.
        found: usize,
    },
    /// The byte length is not that of the shape; `expected` is `None` when the shape's length overflows.
    #[error("a {rows}x{cols} matrix has {found} bytes, expected {expected:?}")]
    Length {
        /// Rows asked for.
        rows: usize,
        /// Values per row asked for.
        cols: usize,
        /// Bytes that the shape takes.
        expected: Option<usize>,
        /// Bytes that there are.
        found: usize,
    },
}

/// A borrowed row-major matrix in one of the GGML types that are decoded row by row (all but I2_S).
#[derive(Clone, Copy, Debug)]
pub struct DenseMatrix<'a> {
    bytes: &'a [u8],
    ty: GgmlType,
    rows: usize,
    cols: usize,
    row_bytes: usize,
}

impl<'a> DenseMatrix<'a> {
    /// Takes `bytes` as `[rows, cols]` values of type `ty`; checks lengths only, so it takes constant time.
    ///
    /// # Errors
    /// When the type has no such rows, or `bytes` is not exactly that many.
    pub fn new(bytes: &'a [u8], ty: GgmlType, rows: usize, cols: usize) -> Result<Self, DenseError> {
        let row_bytes = ty.row_bytes(cols).ok_or(DenseError::Row { ty, found: cols })?;
        let expected = row_bytes.checked_mul(rows);
        if expected != Some(bytes.len()) {
            return Err(DenseError::Length { rows, cols, expected, found: bytes.len() });
        }
        Ok(Self { bytes, ty, rows, cols, row_bytes })
    }
}

impl WeightRows for DenseMatrix<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn cols(&self) -> usize {
        self.cols
    }

    fn decode(&self, isa: Isa, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(out.len(), self.cols, "a decoded row");
        let bytes = &self.bytes[row * self.row_bytes..][..self.row_bytes];
        match self.ty {
            GgmlType::F16 => decode_f16(isa, bytes, out),
            GgmlType::BF16 => decode_bf16(isa, bytes, out),
            ty => ty.decode_row(bytes, out),
        }
    }
}

/// `out = x * weights^T`: `x` is `[m, k]`, `weights` `[n, k]`, `out` `[m, n]`.
///
/// # Panics
/// When the shapes do not fit together.
pub fn dense_gemm<W: WeightRows + ?Sized>(isa: Isa, x: &[f32], weights: &W, out: &mut [f32]) {
    dense_gemm_many(isa, x, &[weights], &mut [out]);
}

/// [`dense_gemm`] of one `x` with several matrices, in one parallel region. An `x` without rows is `m` = 0.
///
/// # Panics
/// When the shapes do not fit together, or `weights` and `outs` differ in length.
pub fn dense_gemm_many<W: WeightRows + ?Sized>(isa: Isa, x: &[f32], weights: &[&W], outs: &mut [&mut [f32]]) {
    assert_eq!(weights.len(), outs.len(), "one output per matrix");
    let Some(first) = weights.first() else { return };
    let cols = first.cols();
    assert!(weights.iter().all(|w| w.cols() == cols), "the matrices take inputs of different sizes");
    if cols == 0 {
        assert!(x.is_empty(), "inputs for matrices without columns");
        // Sums of nothing.
        outs.iter_mut().for_each(|out| out.fill(0.0));
        return;
    }
    assert!(x.len().is_multiple_of(cols), "{} values are not rows of {cols}", x.len());
    let rows = x.len() / cols;
    let mut panels = Vec::new();
    for (&weights, out) in weights.iter().zip(outs) {
        assert_eq!(Some(out.len()), rows.checked_mul(weights.rows()), "an output of {rows} rows");
        let cuts: Vec<usize> = (0..weights.rows()).step_by(WIDTH).chain([weights.rows()]).collect();
        let rects = split_grid(out, weights.rows(), &[0, rows], &cuts);
        panels.extend(cuts.into_iter().zip(rects).map(|(first, out)| (weights, first, out)));
    }
    // A decoded value costs about as much as four rows' products; 8 products are one streaming element.
    let job = units_per_job(panels.len(), WIDTH * cols * (rows + 4) / 8);
    let run = |(weights, first, out): (&W, usize, RectMut<'_>)| multiply_panel(isa, x, weights, first, out);
    if job >= panels.len() {
        panels.into_iter().for_each(run);
    } else {
        panels.into_par_iter().with_min_len(job).for_each(run);
    }
}

/// All rows of `x` with the weight rows from `first` on, as many as `out` has columns.
fn multiply_panel<W: WeightRows + ?Sized>(isa: Isa, x: &[f32], weights: &W, first: usize, mut out: RectMut<'_>) {
    let cols = weights.cols();
    if out.rows() == 0 {
        return;
    }
    let width = out.row_mut(0).len();
    let stride = cols + ROW_GAP;
    with_scratch(DEPTH * WIDTH + WIDTH * stride, |scratch| {
        let (panel, decoded) = scratch.split_at_mut(DEPTH * WIDTH);
        for (i, row) in decoded.chunks_exact_mut(stride).take(width).enumerate() {
            weights.decode(isa, first + i, &mut row[..cols]);
        }
        if width < WIDTH {
            // The columns beyond the last output are computed too; zeros keep stale values from slowing that down.
            panel.fill(0.0);
        }
        for depth in (0..cols).step_by(DEPTH) {
            let end = cols.min(depth + DEPTH);
            let source = Rows { values: &decoded[depth..], rows: width, cols: end - depth, stride };
            transpose(isa, source, panel, WIDTH);
            multiply(isa, x, cols, (depth, end), &panel[..(end - depth) * WIDTH], &mut out);
        }
    });
}

/// Adds the products of `x[..][depth.0..depth.1]` and the panel's rows for them to `out`; starts `out` at depth 0.
#[inline(always)]
fn multiply_body<const M: usize, const N: usize>(
    x: &[f32],
    cols: usize,
    depth: (usize, usize),
    panel: &[f32],
    out: &mut RectMut<'_>,
) {
    let panel = Panel { groups: panel.as_chunks::<LANES>().0, stride: GROUPS };
    let rows = out.rows();
    let mut row = 0;
    while row + M <= rows {
        multiply_rows::<M, N>(x, cols, depth, panel, row, out);
        row += M;
    }
    match rows - row {
        0 => {}
        1 => multiply_rows::<1, N>(x, cols, depth, panel, row, out),
        2 => multiply_rows::<2, N>(x, cols, depth, panel, row, out),
        3 => multiply_rows::<3, N>(x, cols, depth, panel, row, out),
        4 => multiply_rows::<4, N>(x, cols, depth, panel, row, out),
        _ => multiply_rows::<5, N>(x, cols, depth, panel, row, out),
    }
}

/// `M` rows from `row` on.
#[inline(always)]
fn multiply_rows<const M: usize, const N: usize>(
    x: &[f32],
    cols: usize,
    depth: (usize, usize),
    panel: Panel<'_>,
    row: usize,
    out: &mut RectMut<'_>,
) {
    let left: [&[f32]; M] = std::array::from_fn(|i| &x[(row + i) * cols..][depth.0..depth.1]);
    for column in (0..GROUPS).step_by(N) {
        let mut sums = [[[0.0; LANES]; N]; M];
        if depth.0 > 0 {
            for (i, sums) in sums.iter_mut().enumerate() {
                match groups_mut::<N>(out.row_mut(row + i), column) {
                    Ok(groups) => *sums = *groups,
                    Err(rest) => sums.as_flattened_mut()[..rest.len()].copy_from_slice(rest),
                }
            }
        }
        let sums = tile::<M, N>(sums, &left, panel, column);
        for i in 0..M {
            match groups_mut::<N>(out.row_mut(row + i), column) {
                Ok(groups) => *groups = sums[i],
                Err(rest) => {
                    // A copy, so that only this rare case needs the sums in memory.
                    let sums = sums;
                    rest.copy_from_slice(&sums[i].as_flattened()[..rest.len()]);
                }
            }
        }
    }
}

/// The `N` groups of an output row from group `column` on, or what there is of them.
#[inline(always)]
fn groups_mut<const N: usize>(row: &mut [f32], column: usize) -> Result<&mut [[f32; LANES]; N], &mut [f32]> {
    let rest = row.get_mut(column * LANES..).unwrap_or_default();
    if rest.len() < N * LANES {
        return Err(rest);
    }
    Ok(rest.as_chunks_mut::<LANES>().0.first_chunk_mut::<N>().expect("there are N groups"))
}

multiversion!(
    fn multiply(x: &[f32], cols: usize, depth: (usize, usize), panel: &[f32], out: &mut RectMut<'_>) {
        avx512: multiply_body::<6, 4>,
        avx2: multiply_body::<6, 1>,
        scalar: multiply_body::<2, 1>,
    }
);

/// `out[i] = weights[ids[i]] * scale`: the embedding lookup; `out` is `[ids.len(), weights.cols()]`.
///
/// # Panics
/// When an id is not below the number of rows, or `out` has another length.
pub fn gather_rows<W: WeightRows + ?Sized>(isa: Isa, weights: &W, ids: &[u32], scale: f32, out: &mut [f32]) {
    let cols = weights.cols();
    assert_eq!(Some(out.len()), ids.len().checked_mul(cols), "rows gathered");
    assert!(ids.iter().all(|&id| (id as usize) < weights.rows()), "an id is outside the {} rows", weights.rows());
    if out.is_empty() {
        return;
    }
    let gather = |(out, &id): (&mut [f32], &u32)| {
        weights.decode(isa, id as usize, out);
        if scale != 1.0 {
            multiply_by(isa, out, scale);
        }
    };
    let job = units_per_job(ids.len(), cols);
    if job >= ids.len() {
        out.chunks_exact_mut(cols).zip(ids).for_each(gather);
    } else {
        out.par_chunks_exact_mut(cols).zip(ids).with_min_len(job).for_each(gather);
    }
}

#[inline(always)]
fn multiply_by_body(row: &mut [f32], factor: f32) {
    row.iter_mut().for_each(|x| *x *= factor);
}

multiversion!(fn multiply_by(row: &mut [f32], factor: f32) = multiply_by_body);
