//! AVX-512 with byte and word operations: `vpmaddubsw` adds two products of code and activation to a 16-bit lane, which
//! is widened once a block.

use super::Output;
use super::avx512::{
    self, COLS, PanelBlock, VECTORS, codes, load, load_again, load_half, load_half_plane, load_pair, load_plane,
};
use super::dots::{DOT_AHEAD, Dots, Packed, Sums, by_rows, cut, each, packed_rows, prefetch, tiles};
use super::output::Rect;
use super::panel::{Ahead, Level, Pass, STEPS, Scaled, Step, dword, each_tile, write_tile};
use crate::isa::Avx512Bw;
use crate::layout::BLOCK;
use std::arch::x86_64::*;

/// Weight rows whose dot products are formed together.
const DOTS: usize = 4;

/// A panel block with a byte for each code: step `k` holds codes `4 * k ..` of the block.
type UnpackedBlock = [[Step; VECTORS]; 4 * STEPS];

/// The fewest activation rows for which a panel is unpacked once instead of in every pass.
const UNPACK_FROM: usize = 24;

impl Level for Avx512Bw {
    const PANEL_COLS: usize = COLS;
    // 5 x 4 accumulators, 4 vectors of codes, a mask, a broadcast and a product are 27 of 32 registers; the totals, used
    // once a block, live in memory.
    const PANEL_ROWS: usize = 5;

    fn panel_steps(rows: usize, blocks: usize) -> usize {
        blocks * STEPS * VECTORS * if rows < UNPACK_FROM { 1 } else { 4 }
    }

    fn pass<T: Output>(self, pass: Pass<'_, T>, panel: &mut [Step]) {
        let packed = pass.blocks * STEPS * VECTORS;
        // SAFETY: `self` proves what the functions are compiled for.
        unsafe { if panel.len() == packed { pass_over(pass, panel) } else { pass_over_unpacked(pass, panel) } }
    }
}

/// All tiles of a pass in one function, so that one tile's end and the next one's start overlap.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn pass_over<T: Output>(mut pass: Pass<'_, T>, panel: &mut [Step]) {
    let panel = avx512::blocks(panel);
    avx512::stage(pass.weights, pass.out.cols(), pass.blocks, panel);
    each_tile!(pass, [1, 2, 3, 4, 5], |ROWS, x, row_sums, ahead, scaled| {
        tile::<ROWS, T>(x, row_sums, panel, ahead, scaled)
    });
}

/// [`pass_over`] a panel whose codes are a byte each.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn pass_over_unpacked<T: Output>(mut pass: Pass<'_, T>, panel: &mut [Step]) {
    let packed = avx512::blocks(&mut panel[..pass.blocks * STEPS * VECTORS]);
    avx512::stage(pass.weights, pass.out.cols(), pass.blocks, packed);
    let panel = panel.as_chunks_mut().0.as_chunks_mut().0;
    unpack(panel);
    each_tile!(pass, [1, 2, 3, 4, 5], |ROWS, x, row_sums, ahead, scaled| {
        tile_unpacked::<ROWS, T>(x, row_sums, panel, ahead, scaled)
    });
}

impl Dots for Avx512Bw {
    const DOT_ROWS: usize = 5;

    fn dot(self, x: &[&[[i8; BLOCK]]], row_sums: &[i32], weights: Packed<'_>, cols: usize, sums: &mut Sums) {
        // SAFETY: `self` proves AVX-512 with byte and word operations.
        by_rows!(x, row_sums, [1, 2, 3, 4, 5], |ROWS, x, row_sums| unsafe {
            dots::<ROWS>(x, row_sums, weights, cols, sums)
        })
    }

    fn finish<T: Output>(self, sums: &Sums, weight_scale: f32, scales: &[f32], out: Rect<'_, T>) {
        // SAFETY: `self` proves AVX-512.
        unsafe { avx512::finish(sums, weight_scale, scales, out) }
    }
}

/// `ROWS` activation rows by 64 weight rows. The totals start at the negated row sums, which turns the codes' offset of
/// one into nothing to do at the end.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn tile<const ROWS: usize, T: Output>(
    x: &[&[[i8; BLOCK]]; ROWS],
    row_sums: &[i32; ROWS],
    panel: &[PanelBlock],
    ahead: Ahead<'_>,
    scaled: Scaled<'_, T>,
) {
    let x = cut(x, panel.len());
    let mut total = totals(row_sums);
    for (b, block) in panel.iter().enumerate() {
        let x = each(&x, b);
        let mut acc = [[_mm512_setzero_si512(); VECTORS]; ROWS];
        for (t, step) in block.iter().enumerate() {
            ahead.fetch(b * STEPS + t);
            add(&x, 4 * t, plane::<0>(step), &mut acc);
            add(&x, 32 + 4 * t, plane::<1>(step), &mut acc);
            add(&x, 64 + 4 * t, plane::<2>(step), &mut acc);
            add(&x, 96 + 4 * t, plane::<3>(step), &mut acc);
        }
        widen(&acc, &mut total);
    }
    write_tile!(write_totals, total, scaled);
}

/// [`tile`] over a panel whose codes are a byte each.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn tile_unpacked<const ROWS: usize, T: Output>(
    x: &[&[[i8; BLOCK]]; ROWS],
    row_sums: &[i32; ROWS],
    panel: &[UnpackedBlock],
    ahead: Ahead<'_>,
    scaled: Scaled<'_, T>,
) {
    let x = cut(x, panel.len());
    let mut total = totals(row_sums);
    for (b, block) in panel.iter().enumerate() {
        let x = each(&x, b);
        let mut acc = [[_mm512_setzero_si512(); VECTORS]; ROWS];
        for t in 0..STEPS {
            ahead.fetch(b * STEPS + t);
        }
        for (k, step) in block.iter().enumerate() {
            add(&x, 4 * k, [load(&step[0].0), load(&step[1].0), load(&step[2].0), load(&step[3].0)], &mut acc);
        }
        widen(&acc, &mut total);
    }
    write_tile!(write_totals, total, scaled);
}

/// Rewrites a packed panel, at the front of `panel`, as one byte for each code.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn unpack(panel: &mut [UnpackedBlock]) {
    // Backwards, since a block is unpacked to where later packed blocks were.
    for b in (0..panel.len()).rev() {
        let packed: PanelBlock = panel.as_flattened().as_chunks().0[b];
        for (t, step) in packed.iter().enumerate() {
            for (j, packed) in step.iter().enumerate() {
                let packed = load(&packed.0);
                avx512::store_step(codes::<0>(packed), &mut panel[b][t][j]);
                avx512::store_step(codes::<1>(packed), &mut panel[b][STEPS + t][j]);
                avx512::store_step(codes::<2>(packed), &mut panel[b][2 * STEPS + t][j]);
                avx512::store_step(codes::<3>(packed), &mut panel[b][3 * STEPS + t][j]);
            }
        }
    }
}

/// The codes of one plane of a step.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn plane<const PLANE: usize>(step: &[Step; VECTORS]) -> [__m512i; VECTORS] {
    let mut weights = [_mm512_setzero_si512(); VECTORS];
    for (weights, step) in weights.iter_mut().zip(step) {
        *weights = codes::<PLANE>(load(&step.0));
    }
    weights
}

/// Adds the products of four activations of each row, from `at` in the block, to the 16-bit sums.
///
/// A 16-bit lane takes the products of two codes and activations at a time, at most `2 * 3 * 128 = 768` in magnitude
/// for any codes and activations, 32 times in a block: at most 24576, which is below `2^15`. (Valid codes alone would
/// allow 64 times, but then a code 3 could wrap here and not elsewhere.)
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn add<const ROWS: usize>(
    x: &[&[i8; BLOCK]; ROWS],
    at: usize,
    weights: [__m512i; VECTORS],
    acc: &mut [[__m512i; VECTORS]; ROWS],
) {
    for row in 0..ROWS {
        let x = _mm512_set1_epi32(dword(x[row], at));
        for j in 0..VECTORS {
            acc[row][j] = _mm512_add_epi16(acc[row][j], _mm512_maddubs_epi16(weights[j], x));
        }
    }
}

/// The 32-bit sums of a row. They are used once a block and live in memory: the compiler would keep them in registers, and
/// the 16-bit sums in memory.
type Totals = [Step; VECTORS];

/// Totals that start at the negated row sums.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn totals<const ROWS: usize>(row_sums: &[i32; ROWS]) -> [Totals; ROWS] {
    let mut total = [[Step([0; 64]); VECTORS]; ROWS];
    for (total, &row_sum) in total.iter_mut().zip(row_sums) {
        for total in total {
            avx512::store_step(_mm512_set1_epi32(row_sum.wrapping_neg()), total);
        }
    }
    total
}

/// Adds the 16-bit sums of a block to the totals.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn widen<const ROWS: usize>(acc: &[[__m512i; VECTORS]; ROWS], total: &mut [Totals; ROWS]) {
    for row in 0..ROWS {
        for j in 0..VECTORS {
            let pairs = _mm512_madd_epi16(acc[row][j], _mm512_set1_epi16(1));
            let total = &mut total[row][j];
            avx512::store_step(_mm512_add_epi32(load_again(total), pairs), total);
        }
    }
}

/// Writes the outputs of a row.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn write_totals<T: Output>([a, b, c, d]: Totals, weight_scale: f32, scale: f32, out: &mut [T]) {
    avx512::write_row([load(&a.0), load(&b.0), load(&c.0), load(&d.0)], weight_scale, scale, out);
}

/// Dot products of `ROWS` activation rows with `cols` packed rows, two blocks at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn dots<const ROWS: usize>(
    x: &[&[[i8; BLOCK]]; ROWS],
    row_sums: &[i32; ROWS],
    weights: Packed<'_>,
    cols: usize,
    sums: &mut Sums,
) {
    let blocks = x[0].len();
    let pairs = blocks / 2;
    let x_pairs = cut(&avx512::pairs(x), pairs);
    for column in (0..cols).step_by(DOTS) {
        let packed = packed_rows::<DOTS>(weights, column, cols, blocks);
        let packed_pairs = cut(&avx512::pairs(&packed), pairs);
        let mut acc = [[_mm512_setzero_si512(); DOTS]; ROWS];
        for pair in 0..pairs {
            let (x, w_pair) = (each(&x_pairs, pair), each(&packed_pairs, pair));
            let mut w = [_mm512_setzero_si512(); DOTS];
            for j in 0..DOTS {
                prefetch(packed[j], DOT_AHEAD + 64 * pair);
                w[j] = load_pair(w_pair[j]);
            }
            for row in 0..ROWS {
                let x = [load_plane(x[row], 0), load_plane(x[row], 1), load_plane(x[row], 2), load_plane(x[row], 3)];
                for j in 0..DOTS {
                    acc[row][j] = _mm512_add_epi32(acc[row][j], dot_block(w[j], x));
                }
            }
        }
        if blocks % 2 == 1 {
            let x = each(x, blocks - 1);
            for row in 0..ROWS {
                // The upper halves of the activations are zero, so nothing is added there.
                let x = x[row];
                let x = [load_half_plane(x, 0), load_half_plane(x, 1), load_half_plane(x, 2), load_half_plane(x, 3)];
                for j in 0..DOTS {
                    acc[row][j] = _mm512_add_epi32(acc[row][j], dot_block(load_half(&packed[j][blocks - 1]), x));
                }
            }
        }
        for row in 0..ROWS {
            avx512::store_lane_sums(acc[row], row_sums[row], &mut sums[row].as_chunks_mut().0[column / DOTS]);
        }
    }
}

/// The products of one vector of packed weights with its four planes of activations, in 32-bit lanes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn dot_block(packed: __m512i, x: [__m512i; 4]) -> __m512i {
    // Four pair sums in a 16-bit lane: at most 4 * 768 (see `add`).
    let low = _mm512_add_epi16(
        _mm512_maddubs_epi16(codes::<0>(packed), x[0]),
        _mm512_maddubs_epi16(codes::<1>(packed), x[1]),
    );
    let high = _mm512_add_epi16(
        _mm512_maddubs_epi16(codes::<2>(packed), x[2]),
        _mm512_maddubs_epi16(codes::<3>(packed), x[3]),
    );
    _mm512_madd_epi16(_mm512_add_epi16(low, high), _mm512_set1_epi16(1))
}
