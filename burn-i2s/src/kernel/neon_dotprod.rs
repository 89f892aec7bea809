//! NEON with the int8 dot product: `sdot` adds four products of code and activation to each 32-bit lane.

use super::Output;
use super::dots::{self, DOT_AHEAD, Dots, MAX_COLS, Packed, Sums, by_rows, cut, each, packed_rows, prefetch};
use super::neon::{DOTS, codes, load_activations, load_half, store_lane_sums};
use super::output::Rect;
use crate::isa::NeonDotprod;
use crate::layout::{BLOCK, BLOCK_BYTES};
use std::arch::aarch64::*;
use std::arch::asm;

impl Dots for NeonDotprod {
    // 4 x 4 accumulators, 4 vectors of packed codes, a vector of codes, a mask and 4 of activations are 26 of 32
    // registers.
    const DOT_ROWS: usize = 4;

    fn dot(self, x: &[&[[i8; BLOCK]]], row_sums: &[i32], weights: Packed<'_>, cols: usize, sums: &mut Sums) {
        // SAFETY: `self` proves NEON with the dot product.
        by_rows!(x, row_sums, [1, 2, 3, 4], |ROWS, x, row_sums| unsafe {
            dots::<ROWS>(x, row_sums, weights, cols, sums)
        })
    }

    fn finish<T: Output>(self, sums: &Sums, weight_scale: f32, scales: &[f32], out: Rect<'_, T>) {
        dots::finish::<MAX_COLS, T>(sums, weight_scale, scales, out);
    }
}

/// Adds the products of each four bytes of `a` and `b` to the lane of `acc`. The intrinsic is not stable.
#[target_feature(enable = "neon,dotprod")]
#[inline]
pub(super) fn sdot(mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the instruction reads and writes the three registers alone, and this function's features include it.
    unsafe {
        asm!(
            "sdot {acc:v}.4s, {a:v}.16b, {b:v}.16b",
            acc = inout(vreg) acc,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    acc
}

/// Dot products of `ROWS` activation rows with `cols` packed rows.
#[target_feature(enable = "neon,dotprod")]
fn dots<const ROWS: usize>(
    x: &[&[[i8; BLOCK]]; ROWS],
    row_sums: &[i32; ROWS],
    weights: Packed<'_>,
    cols: usize,
    sums: &mut Sums,
) {
    let blocks = x[0].len();
    let x = cut(x, blocks);
    for column in (0..cols).step_by(DOTS) {
        let packed = packed_rows::<DOTS>(weights, column, cols, blocks);
        let packed = cut(&packed, blocks);
        let mut acc = [[vdupq_n_s32(0); DOTS]; ROWS];
        for b in 0..blocks {
            let (x, block) = (each(&x, b), each(&packed, b));
            for packed in packed {
                prefetch(packed, DOT_AHEAD + b * BLOCK_BYTES);
            }
            for half in 0..2 {
                let mut w = [vdupq_n_u8(0); DOTS];
                for j in 0..DOTS {
                    w[j] = load_half(block[j], half);
                }
                plane::<0, ROWS>(x, half, w, &mut acc);
                plane::<1, ROWS>(x, half, w, &mut acc);
                plane::<2, ROWS>(x, half, w, &mut acc);
                plane::<3, ROWS>(x, half, w, &mut acc);
            }
        }
        for row in 0..ROWS {
            store_lane_sums(acc[row], row_sums[row], &mut sums[row].as_chunks_mut().0[column / DOTS]);
        }
    }
}

/// Adds one plane of one half of a block.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn plane<const PLANE: usize, const ROWS: usize>(
    x: [&[i8; BLOCK]; ROWS],
    half: usize,
    packed: [uint8x16_t; DOTS],
    acc: &mut [[int32x4_t; DOTS]; ROWS],
) {
    for j in 0..DOTS {
        let weights = codes::<PLANE>(packed[j]);
        for row in 0..ROWS {
            acc[row][j] = sdot(acc[row][j], weights, load_activations(x[row], PLANE, half));
        }
    }
}
