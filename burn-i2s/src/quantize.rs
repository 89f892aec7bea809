//! Rows of f32 to int8: the (optional) gate and RMSNorm in front of a ternary product, and the quantization, in one pass.
//!
//! Per row, with `x' = (x * inverse_rms) * weight` or `x` itself: `scale = 127 / max(max |x'|, 1e-5)`, and each code is
//! `x' * scale` rounded half to even, which is in -127..=127. `x'` is never stored: recomputing it is cheaper.

use rayon::prelude::*;

use crate::elementwise::{Activation, gate_values};
use crate::gemm::Activations;
use crate::isa::Isa;
use crate::kernel::float::multiversion;
use crate::lanes::larger;
use crate::layout::BLOCK;
use crate::math::ROUND;
use crate::rms::{TOGETHER, inverse_rms_together};
use crate::threads::{units_per_job, with_scratch};

/// Quantized rows, ready for a ternary product. The buffers keep their capacity when reused.
#[derive(Clone, Debug, Default)]
pub struct QuantizedRows {
    /// `[rows, stride]` codes; those from `cols` on are 0.
    pub codes: Vec<i8>,
    /// `[rows]`: `x' = code / scale`. NaN for a row that held a NaN or an infinity; its codes are 0.
    pub scales: Vec<f32>,
    /// `[rows]`: sum of the row's codes.
    pub sums: Vec<i32>,
    /// Number of rows.
    pub rows: usize,
    /// Values per row.
    pub cols: usize,
    /// Distance between rows in `codes`: `cols` rounded up to a multiple of 128.
    pub stride: usize,
}

impl QuantizedRows {
    /// The rows as a ternary product reads them.
    ///
    /// # Panics
    /// When there are no columns: before the first [`quantize_rows`].
    pub fn activations(&self) -> Activations<'_> {
        Activations::new(&self.codes, &self.sums, &self.scales, self.cols).expect("the buffers hold whole rows")
    }

    fn reshape(&mut self, rows: usize, cols: usize) {
        let stride = cols.next_multiple_of(BLOCK);
        self.codes.resize(rows * stride, 0);
        self.scales.resize(rows, 0.0);
        self.sums.resize(rows, 0);
        (self.rows, self.cols, self.stride) = (rows, cols, stride);
    }
}

/// The rows that are quantized, `[rows, cols]`.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Rows in memory.
    Rows(&'a [f32]),
    /// `activation(gate) * up`, computed a few rows at a time: of a wide feed-forward layer the whole does not fit the
    /// caches that one row does.
    Gated {
        /// Through the activation.
        gate: &'a [f32],
        /// As many values.
        up: &'a [f32],
        /// The activation.
        activation: Activation,
    },
}

impl<'a> Source<'a> {
    fn len(&self) -> usize {
        match self {
            Self::Rows(x) => x.len(),
            Self::Gated { gate, .. } => gate.len(),
        }
    }

    /// `count` values from `start` on, or as many as there are.
    fn part(&self, start: usize, count: usize) -> Self {
        let part = |x: &'a [f32]| &x[start..x.len().min(start + count)];
        match *self {
            Self::Rows(x) => Self::Rows(part(x)),
            Self::Gated { gate, up, activation } => Self::Gated { gate: part(gate), up: part(up), activation },
        }
    }

    /// The values, in `scratch` if they must be computed.
    fn values<'b>(&self, isa: Isa, scratch: &'b mut [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        match *self {
            Self::Rows(x) => x,
            Self::Gated { gate, up, activation } => {
                let values = &mut scratch[..gate.len()];
                gate_values(isa, activation, gate, up, values);
                values
            }
        }
    }
}

/// Quantizes the rows of `source`, of `cols` values, once per entry of `norms`, each `[cols]` or `None` for no norm, into
/// `outs`.
///
/// The statistics of a row (its sum of squares) are shared by all norms. A row of `x'` that holds a NaN or an infinity
/// gets the scale NaN and codes 0, so that a product with it is NaN instead of a plausible number.
///
/// # Panics
/// When `cols` is 0, `source` is not whole rows, a norm has another length, or `norms` and `outs` differ in length.
pub fn quantize_rows(
    isa: Isa,
    source: Source<'_>,
    cols: usize,
    norms: &[Option<&[f32]>],
    eps: f32,
    outs: &mut [QuantizedRows],
) {
    assert!(cols > 0 && source.len().is_multiple_of(cols), "{} values are not rows of {cols}", source.len());
    if let Source::Gated { gate, up, .. } = source {
        assert_eq!(gate.len(), up.len(), "a gate for each value");
    }
    assert_eq!(norms.len(), outs.len(), "one output per norm");
    assert!(norms.iter().flatten().all(|weight| weight.len() == cols), "a norm is not of {cols} values");
    let rows = source.len() / cols;
    if rows == 0 {
        outs.iter_mut().for_each(|out| out.reshape(0, cols));
        return;
    }
    let stride = cols.next_multiple_of(BLOCK);
    let job_rows = units_per_job(rows, 2 * cols * norms.len());
    let mut pieces: Vec<_> = outs
        .iter_mut()
        .map(|out| {
            out.reshape(rows, cols);
            let scales = out.scales.chunks_mut(job_rows);
            out.codes.chunks_mut(job_rows * stride).zip(scales).zip(out.sums.chunks_mut(job_rows))
        })
        .collect();
    let jobs = (0..rows).step_by(job_rows).map(|row| Job {
        source: source.part(row * cols, job_rows * cols),
        cols,
        norms,
        eps,
        outs: pieces
            .iter_mut()
            .filter_map(Iterator::next)
            .map(|((codes, scales), sums)| Rows { codes, scales, sums })
            .collect(),
    });
    if job_rows >= rows {
        jobs.for_each(|job| run(isa, job));
    } else {
        jobs.collect::<Vec<_>>().into_par_iter().for_each(|job| run(isa, job));
    }
}

/// Some rows of one call, all norms.
struct Job<'a> {
    source: Source<'a>,
    cols: usize,
    norms: &'a [Option<&'a [f32]>],
    eps: f32,
    outs: Vec<Rows<'a>>,
}

struct Rows<'a> {
    codes: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [i32],
}

fn run(isa: Isa, job: Job<'_>) {
    let Job { source, cols, norms, eps, mut outs } = job;
    let stride = cols.next_multiple_of(BLOCK);
    let normed = norms.iter().any(Option::is_some);
    let group = TOGETHER * cols;
    let scratch_len = if matches!(source, Source::Gated { .. }) { group } else { 0 };
    with_scratch(scratch_len, |scratch| {
        for start in (0..source.len()).step_by(group) {
            let x = source.part(start, group).values(isa, scratch);
            let factors = if normed { inverse_rms_together(isa, x, cols, eps) } else { [1.0; TOGETHER] };
            for (i, (x, factor)) in x.chunks_exact(cols).zip(factors).enumerate() {
                let row = start / cols + i;
                for (norm, out) in norms.iter().zip(&mut outs) {
                    let (codes, padding) = out.codes[row * stride..][..stride].split_at_mut(cols);
                    padding.fill(0);
                    (out.scales[row], out.sums[row]) = match norm {
                        Some(weight) => quantize_normed(isa, x, factor, weight, codes),
                        None => quantize_plain(isa, x, codes),
                    };
                }
            }
        }
    });
}

#[inline(always)]
fn quantize_normed_body(x: &[f32], factor: f32, weight: &[f32], codes: &mut [i8]) -> (f32, i32) {
    quantize_row(x, weight, codes, |x, w| x * factor * w)
}

#[inline(always)]
fn quantize_plain_body(x: &[f32], codes: &mut [i8]) -> (f32, i32) {
    quantize_row(x, x, codes, |x, _| x)
}

multiversion!(
    fn quantize_normed(x: &[f32], factor: f32, weight: &[f32], codes: &mut [i8]) -> (f32, i32) = quantize_normed_body
);
multiversion!(fn quantize_plain(x: &[f32], codes: &mut [i8]) -> (f32, i32) = quantize_plain_body);

/// The largest magnitude, as bits: the order of the magnitudes' bits is that of the magnitudes, with infinity and then
/// NaN above all numbers, and integer maxima do not depend on order.
#[inline(always)]
fn max_abs(x: &[f32], w: &[f32], normed: &impl Fn(f32, f32) -> f32) -> u32 {
    x.iter().zip(w).fold(0, |max, (&x, &w)| max.max(normed(x, w).to_bits() & 0x7FFF_FFFF))
}

/// Scale and sum of a row, and its codes.
#[inline(always)]
fn quantize_row(x: &[f32], w: &[f32], codes: &mut [i8], normed: impl Fn(f32, f32) -> f32) -> (f32, i32) {
    let max = max_abs(x, w, &normed);
    if max >= f32::INFINITY.to_bits() {
        codes.fill(0);
        return (f32::NAN, 0);
    }
    let scale = 127.0 / larger(f32::from_bits(max), 1e-5);
    let mut sum = 0i32;
    for ((code, &x), &w) in codes.iter_mut().zip(x).zip(w) {
        // No limit is needed: `x'` is at most the maximum, whose own product is 127 within two roundings. The addition
        // rounds half to even and leaves the integer in the low bits.
        let value = (normed(x, w) * scale + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i32;
        *code = value as i8;
        sum += value;
    }
    (scale, sum)
}
