//! A ternary product on the dense path: -1, 0 and +1 held as f32, int8 activations as f32.
//!
//! Every term and every partial sum is an integer below 2^24, so the f32 sum is the exact integer in any order, and the
//! result has the same bits as [`crate::gemm`]'s. This is how a backend without integer kernels computes a BitNet
//! layer, and what the integer kernels are measured against.

use crate::dense::{WeightRows, dense_gemm};
use crate::gemm::Activations;
use crate::isa::Isa;
use crate::kernel::float::multiversion;
use crate::layout::{BLOCK, BLOCK_BYTES, PLANE_SHIFTS};
use crate::matrix::TernaryMatrix;
use crate::threads;
use rayon::prelude::*;

/// Columns up to which the sum of int8 codes times weights is exact in f32: `128 * MAX_EXACT_COLUMNS <= 2^24`.
pub const MAX_EXACT_COLUMNS: usize = (1 << 24) / 128;

/// Values below which a loop over the activations or outputs stays on one thread.
const MIN_PARALLEL: usize = 1 << 16;

impl WeightRows for TernaryMatrix<'_> {
    fn rows(&self) -> usize {
        self.out_features()
    }

    fn cols(&self) -> usize {
        self.in_features()
    }

    fn decode(&self, isa: Isa, row: usize, out: &mut [f32]) {
        let blocks = &self.blocks()[row * self.blocks_per_row()..][..self.blocks_per_row()];
        decode_blocks(isa, blocks, out);
    }
}

/// The product of [`crate::gemm::ternary_gemm`], computed in f32: `[rows, in_features]` codes to `[rows, out_features]`.
///
/// # Panics
/// When the shapes differ, or there are more than [`MAX_EXACT_COLUMNS`] columns.
pub fn ternary_gemm_as_floats(isa: Isa, x: &Activations<'_>, w: &TernaryMatrix<'_>, out: &mut [f32]) {
    let (cols, out_features) = (w.in_features(), w.out_features());
    assert_eq!(x.cols(), cols, "activations of another width than the matrix");
    assert!(cols <= MAX_EXACT_COLUMNS, "{cols} columns are too many for an exact f32 sum");
    let mut values = vec![0.0; x.rows() * cols];
    let widen_row = |(row, values): (usize, &mut [f32])| widen(isa, x.row(row), values);
    let weight_scale = w.weight_scale();
    let scale_row = |(row, out): (usize, &mut [f32])| scale(isa, out, weight_scale, x.scales()[row]);
    let alone = threads::available() == 1;
    if values.len() >= MIN_PARALLEL && !alone {
        values.par_chunks_mut(cols).enumerate().for_each(widen_row);
    } else {
        values.chunks_mut(cols).enumerate().for_each(widen_row);
    }
    dense_gemm(isa, &values, w, out);
    if out.len() >= MIN_PARALLEL && !alone {
        out.par_chunks_mut(out_features).enumerate().for_each(scale_row);
    } else {
        out.chunks_mut(out_features).enumerate().for_each(scale_row);
    }
}

#[inline(always)]
fn widen_body(codes: &[i8], values: &mut [f32]) {
    for (value, &code) in values.iter_mut().zip(codes) {
        *value = f32::from(code);
    }
}

#[inline(always)]
fn scale_body(sums: &mut [f32], weight_scale: f32, scale: f32) {
    for sum in sums {
        *sum = *sum * weight_scale / scale;
    }
}

#[inline(always)]
fn decode_block(block: &[u8; BLOCK_BYTES], values: &mut [f32; BLOCK]) {
    for (shift, values) in PLANE_SHIFTS.into_iter().zip(values.as_chunks_mut::<BLOCK_BYTES>().0) {
        for (value, byte) in values.iter_mut().zip(block) {
            *value = f32::from(((byte >> shift) & 3) as i8 - 1);
        }
    }
}

#[inline(always)]
fn decode_body(blocks: &[[u8; BLOCK_BYTES]], out: &mut [f32]) {
    let (whole, tail) = out.as_chunks_mut::<BLOCK>();
    blocks.iter().zip(whole.iter_mut()).for_each(|(block, values)| decode_block(block, values));
    if let Some(block) = blocks.get(whole.len()) {
        let mut values = [0.0; BLOCK];
        decode_block(block, &mut values);
        tail.copy_from_slice(&values[..tail.len()]);
    }
}

multiversion!(
    fn widen(codes: &[i8], values: &mut [f32]) = widen_body
);
multiversion!(
    fn scale(sums: &mut [f32], weight_scale: f32, scale: f32) = scale_body
);
multiversion!(
    fn decode_blocks(blocks: &[[u8; BLOCK_BYTES]], out: &mut [f32]) = decode_body
);
