//! NEON, which every 64-bit ARM CPU has: `smlal` adds a product of code and activation to each 16-bit lane, which is
//! widened once a block. Also the loads and stores that the dot-product level shares.

use super::Output;
use super::dots::{self, DOT_AHEAD, Dots, MAX_COLS, Packed, Sums, by_rows, cut, each, packed_rows, prefetch};
use super::output::Rect;
use crate::isa::Neon;
use crate::layout::{BLOCK, BLOCK_BYTES};
use std::arch::aarch64::*;

/// Weight rows whose dot products are formed together.
pub(super) const DOTS: usize = 4;

impl Dots for Neon {
    // 2 x 4 sums of 16 bits and as many of 32, 4 vectors of packed codes, 4 of codes, a mask and 2 of activations are
    // 27 of 32 registers.
    const DOT_ROWS: usize = 2;

    fn dot(self, x: &[&[[i8; BLOCK]]], row_sums: &[i32], weights: Packed<'_>, cols: usize, sums: &mut Sums) {
        // SAFETY: `self` proves NEON.
        by_rows!(x, row_sums, [1, 2], |ROWS, x, row_sums| unsafe { dots::<ROWS>(x, row_sums, weights, cols, sums) })
    }

    fn finish<T: Output>(self, sums: &Sums, weight_scale: f32, scales: &[f32], out: Rect<'_, T>) {
        dots::finish::<MAX_COLS, T>(sums, weight_scale, scales, out);
    }
}

/// Loads one half of a packed block.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn load_half(block: &[u8; BLOCK_BYTES], half: usize) -> uint8x16_t {
    let bytes = &block.as_chunks::<16>().0[half];
    // SAFETY: `bytes` is 16 readable bytes, and the load takes any alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// Loads the activations that go with one plane of one half of a packed block.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn load_activations(block: &[i8; BLOCK], plane: usize, half: usize) -> int8x16_t {
    let codes = &block.as_chunks::<16>().0[2 * plane + half];
    // SAFETY: `codes` is 16 readable bytes, and the load takes any alignment.
    unsafe { vld1q_s8(codes.as_ptr()) }
}

/// The codes of one plane; plane `p` is shifted down by `6 - 2 * p`. At most 3, so signed bytes hold them.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn codes<const PLANE: usize>(packed: uint8x16_t) -> int8x16_t {
    let low = vdupq_n_u8(3);
    vreinterpretq_s8_u8(match PLANE {
        0 => vshrq_n_u8::<6>(packed),
        1 => vandq_u8(vshrq_n_u8::<4>(packed), low),
        2 => vandq_u8(vshrq_n_u8::<2>(packed), low),
        _ => vandq_u8(packed, low),
    })
}

/// Stores the sums over all lanes of four vectors, less `row_sum`.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn store_lane_sums([a, b, c, d]: [int32x4_t; 4], row_sum: i32, sums: &mut [i32; 4]) {
    let abcd = vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
    let result = vsubq_s32(abcd, vdupq_n_s32(row_sum));
    // SAFETY: `sums` is 16 writable bytes, and the store takes any alignment.
    unsafe { vst1q_s32(sums.as_mut_ptr(), result) }
}

/// Dot products of `ROWS` activation rows with `cols` packed rows.
#[target_feature(enable = "neon")]
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
        let mut total = [[vdupq_n_s32(0); DOTS]; ROWS];
        for b in 0..blocks {
            let (x, block) = (each(&x, b), each(&packed, b));
            let mut acc = [[vdupq_n_s16(0); DOTS]; ROWS];
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
            for j in 0..DOTS {
                prefetch(packed[j], DOT_AHEAD + b * BLOCK_BYTES);
                for row in 0..ROWS {
                    total[row][j] = vpadalq_s16(total[row][j], acc[row][j]);
                }
            }
        }
        for row in 0..ROWS {
            store_lane_sums(total[row], row_sums[row], &mut sums[row].as_chunks_mut().0[column / DOTS]);
        }
    }
}

/// Adds one plane of one half of a block to the 16-bit sums.
///
/// A 16-bit lane takes one product of a code and an activation at a time, at most `3 * 128 = 384` in magnitude for any
/// code and activation, 16 times in a block: at most 6144, far below `2^15`.
#[target_feature(enable = "neon")]
#[inline]
fn plane<const PLANE: usize, const ROWS: usize>(
    x: [&[i8; BLOCK]; ROWS],
    half: usize,
    packed: [uint8x16_t; DOTS],
    acc: &mut [[int16x8_t; DOTS]; ROWS],
) {
    for j in 0..DOTS {
        let weights = codes::<PLANE>(packed[j]);
        for row in 0..ROWS {
            let x = load_activations(x[row], PLANE, half);
            let low = vmlal_s8(acc[row][j], vget_low_s8(weights), vget_low_s8(x));
            acc[row][j] = vmlal_high_s8(low, weights, x);
        }
    }
}
