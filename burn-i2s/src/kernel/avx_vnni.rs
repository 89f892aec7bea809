//! AVX2 with the int8 dot product: `vpdpbusd` adds four products of code and activation to each 32-bit lane.

use super::Output;
use super::avx::{self, COLS, PanelBlock, codes, load, load_halves_again, load_plane};
use super::dots::{DOT_AHEAD, Dots, Packed, Sums, by_rows, cut, each, packed_rows, prefetch, tiles};
use super::output::Rect;
use super::panel::{Ahead, Level, Pass, STEPS, Scaled, Step, dword, each_tile, write_tile};
use crate::isa::AvxVnni;
use crate::layout::{BLOCK, BLOCK_BYTES};
use std::arch::x86_64::*;

impl Level for AvxVnni {
    const PANEL_COLS: usize = COLS;
    // 6 x 2 accumulators, 2 vectors of codes, a mask and a broadcast are all 16 registers. An addition takes
    // four cycles and two start in each: 4 x 2 are no more than are under way at once, so that every delay is lost.
    const PANEL_ROWS: usize = 6;

    fn panel_steps(_rows: usize, blocks: usize) -> usize {
        blocks * STEPS
    }

    fn pass<T: Output>(self, pass: Pass<'_, T>, panel: &mut [Step]) {
        // SAFETY: `self` proves what the function is compiled for.
        unsafe { pass_over(pass, panel.as_chunks_mut().0) }
    }
}

/// All tiles of a pass in one function, so that one tile's end and the next one's start overlap.
#[target_feature(enable = "avx2,avxvnni")]
fn pass_over<T: Output>(mut pass: Pass<'_, T>, panel: &mut [PanelBlock]) {
    avx::stage(pass.weights, pass.out.cols(), pass.blocks, panel);
    each_tile!(pass, [1, 2, 3, 4, 5, 6], |ROWS, x, row_sums, ahead, scaled| {
        tile::<ROWS, T>(x, row_sums, panel, ahead, scaled)
    });
}

impl Dots for AvxVnni {
    const DOT_ROWS: usize = 2;

    fn dot(self, x: &[&[[i8; BLOCK]]], row_sums: &[i32], weights: Packed<'_>, cols: usize, sums: &mut Sums) {
        // SAFETY: `self` proves AVX2 with AVX-VNNI.
        by_rows!(x, row_sums, [1, 2], |ROWS, x, row_sums| unsafe {
            // Enough sums at once to keep the multipliers busy: an addition takes four cycles, two start in each.
            if ROWS == 1 {
                dots::<ROWS, 8>(x, row_sums, weights, cols, sums)
            } else {
                dots::<ROWS, 4>(x, row_sums, weights, cols, sums)
            }
        })
    }

    fn finish<T: Output>(self, sums: &Sums, weight_scale: f32, scales: &[f32], out: Rect<'_, T>) {
        // SAFETY: `self` proves AVX2.
        unsafe { avx::finish(sums, weight_scale, scales, out) }
    }
}

/// `ROWS` activation rows by 16 weight rows. The accumulators start at the negated row sums, which turns the codes'
/// offset of one into nothing to do at the end.
#[target_feature(enable = "avx2,avxvnni")]
#[inline]
fn tile<const ROWS: usize, T: Output>(
    x: &[&[[i8; BLOCK]]; ROWS],
    row_sums: &[i32; ROWS],
    panel: &[PanelBlock],
    ahead: Ahead<'_>,
    scaled: Scaled<'_, T>,
) {
    let x = cut(x, panel.len());
    let mut acc = [[_mm256_setzero_si256(); 2]; ROWS];
    for (acc, &row_sum) in acc.iter_mut().zip(row_sums) {
        *acc = [_mm256_set1_epi32(row_sum.wrapping_neg()); 2];
    }
    for (b, block) in panel.iter().enumerate() {
        let x = each(&x, b);
        for (t, step) in block.iter().enumerate() {
            ahead.fetch(b * STEPS + t);
            plane::<0, ROWS>(&x, t, step, &mut acc);
            plane::<1, ROWS>(&x, t, step, &mut acc);
            plane::<2, ROWS>(&x, t, step, &mut acc);
            plane::<3, ROWS>(&x, t, step, &mut acc);
        }
    }
    write_tile!(avx::write_row, acc, scaled);
}

/// Adds one plane of a step: weights `32 * PLANE + 4 * t ..` of the block.
#[target_feature(enable = "avx2,avxvnni")]
#[inline]
fn plane<const PLANE: usize, const ROWS: usize>(
    x: &[&[i8; BLOCK]; ROWS],
    t: usize,
    step: &Step,
    acc: &mut [[__m256i; 2]; ROWS],
) {
    let [low, high] = load_halves_again(step);
    let weights = [codes::<PLANE>(low), codes::<PLANE>(high)];
    for row in 0..ROWS {
        let x = _mm256_set1_epi32(dword(x[row], 32 * PLANE + 4 * t));
        for j in 0..2 {
            acc[row][j] = _mm256_dpbusd_avx_epi32(acc[row][j], weights[j], x);
        }
    }
}

/// Dot products of `ROWS` activation rows with `cols` packed rows, `DOTS` of them together.
#[target_feature(enable = "avx2,avxvnni")]
fn dots<const ROWS: usize, const DOTS: usize>(
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
        let mut acc = [[_mm256_setzero_si256(); DOTS]; ROWS];
        for b in 0..blocks {
            let (x, block) = (each(&x, b), each(&packed, b));
            let mut w = [_mm256_setzero_si256(); DOTS];
            for j in 0..DOTS {
                prefetch(packed[j], DOT_AHEAD + b * BLOCK_BYTES);
                w[j] = load(block[j]);
            }
            dot_plane::<0, ROWS, DOTS>(x, w, &mut acc);
            dot_plane::<1, ROWS, DOTS>(x, w, &mut acc);
            dot_plane::<2, ROWS, DOTS>(x, w, &mut acc);
            dot_plane::<3, ROWS, DOTS>(x, w, &mut acc);
        }
        for row in 0..ROWS {
            let sums = &mut sums[row][column..];
            for four in 0..DOTS / 4 {
                // By index: an iterator over the accumulators would keep them in memory.
                let acc = &acc[row];
                let acc = [acc[4 * four], acc[4 * four + 1], acc[4 * four + 2], acc[4 * four + 3]];
                avx::store_lane_sums(acc, row_sums[row], &mut sums.as_chunks_mut().0[four]);
            }
        }
    }
}

/// Adds one plane of a block.
#[target_feature(enable = "avx2,avxvnni")]
#[inline]
fn dot_plane<const PLANE: usize, const ROWS: usize, const DOTS: usize>(
    x: [&[i8; BLOCK]; ROWS],
    packed: [__m256i; DOTS],
    acc: &mut [[__m256i; DOTS]; ROWS],
) {
    for j in 0..DOTS {
        let weights = codes::<PLANE>(packed[j]);
        for row in 0..ROWS {
            acc[row][j] = _mm256_dpbusd_avx_epi32(acc[row][j], weights, load_plane(x[row], PLANE));
        }
    }
}
