//! Products with float weights that stay in their file's format: rows are decoded when they are used.
//!
//! `out[m][n]` is one fused chain over ascending `k` from 0, at every shape, thread count and level. The weights of 64
//! outputs are decoded once per call into scratch and transposed piece by piece into a panel (or both at once, see
//! [`WeightRows::decode_transposed`]), so that lanes run over outputs, and each piece is used for all rows of `x`; for a
//! few rows, halves need no panel ([`WeightRows::multiply`]):
//!
//! ```text
//!            panel: [128, 64]               x: 6 rows             registers: 6 x 64 outputs
//!     k=0  | w0 w1 w2 ...... w63 |     row 0 | x00 x01 x02 ..      += x00 * (w0 .. w63), then k=1, ..
//!     k=1  | w0 w1 w2 ...... w63 |     row 1 | x10 x11 x12 ..
//! ```

use std::ops::Range;

use rayon::prelude::*;

use crate::ggml::{self, GgmlType};
use crate::half_float::{decode_bf16, decode_f16};
use crate::isa::Isa;
use crate::kernel::float::multiversion;
use crate::kernel::float_grid::{RectMut, split_grid};
use crate::kernel::float_transpose::{Rows, transpose};
#[cfg(target_arch = "x86_64")]
use crate::kernel::half_panel::{FEW, Half, HalfRows, multiply_halves, transpose_halves};
use crate::lanes::{LANES, Panel, tile};
use crate::threads::{units_per_job, with_scratch};

/// Outputs per panel.
const WIDTH: usize = 64;

/// Groups of lanes per panel row.
const GROUPS: usize = WIDTH / LANES;

/// Values of `k` per panel for a few rows of `x`: 32 KiB, which stay in the L1 cache. For many rows it is twice that: a
/// panel from the L2 cache is fast enough, and sums are loaded and stored half as often.
const DEPTH: usize = 128;

/// From so many rows of `x` on, panels are twice as deep.
const MANY_ROWS: usize = 256;

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

    /// Decodes columns of up to 64 rows into `panel`, transposed: `panel[k][i]` is value `columns.start + k` of row
    /// `rows.start + i`. Returns false, and may leave `panel` as it is, where decoding row by row is as good.
    ///
    /// # Panics
    /// May panic when there are no such rows or columns, or `panel` is not of as many.
    fn decode_transposed(&self, isa: Isa, rows: Range<usize>, columns: Range<usize>, panel: &mut [[f32; 64]]) -> bool {
        let _ = (isa, rows, columns, panel);
        false
    }

    /// Writes `sums[m][i]`, the product of row `m` of `x` and row `rows.start + i` as one fused chain over ascending
    /// columns from 0. Returns false, and may leave `sums` as it is, where panels are better.
    ///
    /// # Panics
    /// May panic when there are no such rows or more than 64, or `x` is not as many rows as `sums` has.
    fn multiply(&self, isa: Isa, rows: Range<usize>, x: &[f32], sums: &mut [[f32; 64]]) -> bool {
        let _ = (isa, rows, x, sums);
        false
    }
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

    /// Rows as halves, if they are.
    #[cfg(target_arch = "x86_64")]
    fn halves(&self, rows: &Range<usize>) -> Option<HalfRows<'a>> {
        let half = match self.ty {
            GgmlType::F16 => Half::F16,
            GgmlType::BF16 => Half::Bf16,
            _ => return None,
        };
        let bytes = &self.bytes[rows.start * self.row_bytes..rows.end * self.row_bytes];
        Some(HalfRows { bytes, row_bytes: self.row_bytes, half })
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
            ty => ggml::decode_row(isa, ty, bytes, out),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn decode_transposed(&self, isa: Isa, rows: Range<usize>, columns: Range<usize>, panel: &mut [[f32; 64]]) -> bool {
        self.halves(&rows).is_some_and(|rows| transpose_halves(isa, rows, &columns, panel))
    }

    #[cfg(target_arch = "x86_64")]
    fn multiply(&self, isa: Isa, rows: Range<usize>, x: &[f32], sums: &mut [[f32; 64]]) -> bool {
        sums.len() <= FEW && self.halves(&rows).is_some_and(|rows| multiply_halves(isa, rows, x, sums))
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
    let job = units_per_job(panels.len(), cols.saturating_mul(WIDTH * (rows + 4) / 8));
    let run = |(weights, first, out): (&W, usize, RectMut<'_>)| multiply_panel(isa, x, weights, first, out);
    if job >= panels.len() {
        panels.into_iter().for_each(run);
    } else {
        panels.into_par_iter().with_min_len(job).for_each(run);
    }
}

/// All rows of `x` with the weight rows from `first` on, as many as `out` has columns.
fn multiply_panel<W: WeightRows + ?Sized>(isa: Isa, x: &[f32], weights: &W, first: usize, mut out: RectMut<'_>) {
    if out.rows() == 0 {
        return;
    }
    let (rows, width) = (out.rows(), out.row_mut(0).len());
    let max_depth = if rows < MANY_ROWS { DEPTH } else { 2 * DEPTH };
    with_scratch(WIDTH * (rows + max_depth + weights.cols() + ROW_GAP), |scratch| {
        // Sums are collected here, not in `out`, whose rows are often a power of two apart.
        let (sums, scratch) = scratch.split_at_mut(rows * WIDTH);
        if !weights.multiply(isa, first..first + width, x, sums.as_chunks_mut().0) {
            let (panel, decoded) = scratch.split_at_mut(max_depth * WIDTH);
            multiply_by_panels(isa, x, weights, first..first + width, sums, panel, decoded);
        }
        for (row, sums) in sums.chunks_exact(WIDTH).enumerate() {
            out.row_mut(row).copy_from_slice(&sums[..width]);
        }
    });
}

/// Writes the products of all rows of `x` with the weight rows `outputs` to `sums`, `[rows of x, 64]`, in panels as deep
/// as the scratch `panel`; `decoded` is scratch for 64 rows.
fn multiply_by_panels<W: WeightRows + ?Sized>(
    isa: Isa,
    x: &[f32],
    weights: &W,
    outputs: Range<usize>,
    sums: &mut [f32],
    panel: &mut [f32],
    decoded: &mut [f32],
) {
    let (cols, width) = (weights.cols(), outputs.len());
    let stride = cols + ROW_GAP;
    sums.fill(0.0);
    let mut is_decoded = false;
    if width < WIDTH {
        // The columns beyond the last output are computed too; zeros keep stale values from slowing that down.
        panel.fill(0.0);
    }
    let max_depth = panel.len() / WIDTH;
    for start in (0..cols).step_by(max_depth) {
        let end = cols.min(start + max_depth);
        let panel = &mut panel[..(end - start) * WIDTH];
        if !weights.decode_transposed(isa, outputs.clone(), start..end, panel.as_chunks_mut().0) {
            if !is_decoded {
                for (row, decoded) in outputs.clone().zip(decoded.chunks_exact_mut(stride)) {
                    weights.decode(isa, row, &mut decoded[..cols]);
                }
                is_decoded = true;
            }
            let source = Rows { values: &decoded[start..], rows: width, cols: end - start, stride };
            transpose(isa, source, panel, WIDTH);
        }
        multiply(isa, x, cols, start..end, panel, sums);
    }
}

/// Adds the products of columns `depth` of `x` and the panel's rows for them to `sums`, `[rows of x, 64]`.
#[inline(always)]
fn multiply_body<const M: usize, const N: usize>(
    x: &[f32],
    cols: usize,
    depth: Range<usize>,
    panel: &[f32],
    sums: &mut [f32],
) {
    let panel = Panel { groups: panel.as_chunks::<LANES>().0, stride: GROUPS };
    let mut x = x.chunks_exact(cols).map(|row| &row[depth.clone()]);
    let (tiles, rest) = sums.as_chunks_mut::<LANES>().0.as_chunks_mut::<GROUPS>().0.as_chunks_mut::<M>();
    for sums in tiles {
        multiply_rows::<M, N>(&mut x, panel, sums);
    }
    // At most M - 1 more, in one tile of their number: fewer rows hide less of an addition's latency.
    if let Ok(sums) = <&mut [_; 5]>::try_from(&mut *rest) {
        multiply_rows::<5, N>(&mut x, panel, sums);
    } else if let Ok(sums) = <&mut [_; 4]>::try_from(&mut *rest) {
        multiply_rows::<4, N>(&mut x, panel, sums);
    } else if let Ok(sums) = <&mut [_; 3]>::try_from(&mut *rest) {
        multiply_rows::<3, N>(&mut x, panel, sums);
    } else if let Ok(sums) = <&mut [_; 2]>::try_from(&mut *rest) {
        multiply_rows::<2, N>(&mut x, panel, sums);
    } else if let Ok(sums) = <&mut [_; 1]>::try_from(rest) {
        multiply_rows::<1, N>(&mut x, panel, sums);
    }
}

/// The next `M` rows of `x`.
#[inline(always)]
fn multiply_rows<'a, const M: usize, const N: usize>(
    x: &mut impl Iterator<Item = &'a [f32]>,
    panel: Panel<'_>,
    sums: &mut [[[f32; LANES]; GROUPS]; M],
) {
    let left: [&[f32]; M] = std::array::from_fn(|_| x.next().expect("one row of x per row of sums"));
    for column in (0..GROUPS).step_by(N) {
        let mut tile_sums = [[[0.0; LANES]; N]; M];
        for i in 0..M {
            for j in 0..N {
                tile_sums[i][j] = sums[i][column + j];
            }
        }
        let tile_sums = tile::<M, N>(tile_sums, &left, panel, column);
        for i in 0..M {
            for j in 0..N {
                sums[i][column + j] = tile_sums[i][j];
            }
        }
    }
}

multiversion!(
    fn multiply(x: &[f32], cols: usize, depth: Range<usize>, panel: &[f32], sums: &mut [f32]) {
        avx512: multiply_body::<6, 4>,
        avx2: multiply_body::<6, 1>,
        scalar: multiply_body::<6, 1>,
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
