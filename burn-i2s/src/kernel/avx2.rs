//! AVX2: `vpmaddubsw` adds two products of code and activation to a 16-bit lane, which is widened once a block.

use super::Output;
use super::avx::{self, COLS, PanelBlock, codes, load, load_halves_again, load_plane};
use super::dots::{DOT_AHEAD, Dots, Packed, Sums, by_rows, cut, each, packed_rows, prefetch, tiles};
use super::output::Rect;
use super::panel::{Ahead, Level, Pass, STEPS, Scaled, Step, dword, each_tile, write_tile};
use crate::isa::Avx2;
use crate::layout::{BLOCK, BLOCK_BYTES};
use std::arch::x86_64::*;

/// Weight rows whose dot products are formed together.
const DOTS: usize = 4;

/// A panel block with a byte for each code: step `k` holds codes `4 * k ..` of the block.
type UnpackedBlock = [Step; 4 * STEPS];

/// The fewest activation rows for which a panel is unpacked once instead of in every pass.
const UNPACK_FROM: usize = 16;

impl Level for Avx2 {
    const PANEL_COLS: usize = COLS;
    // 4 x 2 accumulators, 2 vectors of codes, a mask, a broadcast and a product are 13 of 16 registers.
    const PANEL_ROWS: usize = 4;

    fn panel_steps(rows: usize, blocks: usize) -> usize {
        blocks * STEPS * if rows < UNPACK_FROM { 1 } else { 4 }
    }

    fn pass<T: Output>(self, pass: Pass<'_, T>, panel: &mut [Step]) {
        let packed = pass.blocks * STEPS;
        // SAFETY: `self` proves AVX2.
        unsafe { if panel.len() == packed { pass_over(pass, panel) } else { pass_over_unpacked(pass, panel) } }
    }
}

/// All tiles of a pass in one function, so that one tile's end and the next one's start overlap.
#[target_feature(enable = "avx2")]
fn pass_over<T: Output>(mut pass: Pass<'_, T>, panel: &mut [Step]) {
    let panel = panel.as_chunks_mut().0;
    avx::stage(pass.weights, pass.out.cols(), pass.blocks, panel);
    each_tile!(pass, [1, 2, 3, 4], |ROWS, x, row_sums, ahead, scaled| {
        tile::<ROWS, T>(x, row_sums, panel, ahead, scaled)
    });
}

/// [`pass_over`] a panel whose codes are a byte each.
#[target_feature(enable = "avx2")]
fn pass_over_unpacked<T: Output>(mut pass: Pass<'_, T>, panel: &mut [Step]) {
    avx::stage(pass.weights, pass.out.cols(), pass.blocks, panel[..pass.blocks * STEPS].as_chunks_mut().0);
    let panel = panel.as_chunks_mut().0;
    unpack(panel);
    each_tile!(pass, [1, 2, 3, 4], |ROWS, x, row_sums, ahead, scaled| {
        tile_unpacked::<ROWS, T>(x, row_sums, panel, ahead, scaled)
    });
}

impl Dots for Avx2 {
    const DOT_ROWS: usize = 2;

    fn dot(self, x: &[&[[i8; BLOCK]]], row_sums: &[i32], weights: Packed<'_>, cols: usize, sums: &mut Sums) {
        // SAFETY: `self` proves AVX2.
        by_rows!(x, row_sums, [1, 2], |ROWS, x, row_sums| unsafe { dots::<ROWS>(x, row_sums, weights, cols, sums) })
    }

    fn finish<T: Output>(self, sums: &Sums, weight_scale: f32, scales: &[f32], out: Rect<'_, T>) {
        // SAFETY: `self` proves AVX2.
        unsafe { avx::finish(sums, weight_scale, scales, out) }
    }
}

/// `ROWS` activation rows by 16 weight rows. The totals start at the negated row sums, which turns the codes' offset of
/// one into nothing to do at the end.
#[target_feature(enable = "avx2")]
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
        let mut acc = [[_mm256_setzero_si256(); 2]; ROWS];
        for (t, step) in block.iter().enumerate() {
            ahead.fetch(b * STEPS + t);
            let [low, high] = halves(step);
            add(&x, 4 * t, [codes::<0>(low), codes::<0>(high)], &mut acc);
            add(&x, 32 + 4 * t, [codes::<1>(low), codes::<1>(high)], &mut acc);
            add(&x, 64 + 4 * t, [codes::<2>(low), codes::<2>(high)], &mut acc);
            add(&x, 96 + 4 * t, [codes::<3>(low), codes::<3>(high)], &mut acc);
        }
        widen(&acc, &mut total);
    }
    write_tile!(write_totals, total, scaled);
}

/// [`tile`] over a panel whose codes are a byte each.
#[target_feature(enable = "avx2")]
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
        let mut acc = [[_mm256_setzero_si256(); 2]; ROWS];
        if ahead.lines > 0 {
            for t in 0..STEPS {
                prefetch(ahead.packed, (b * STEPS + t) * 64);
            }
        }
        for (k, step) in block.iter().enumerate() {
            add(&x, 4 * k, halves(step), &mut acc);
        }
        widen(&acc, &mut total);
    }
    write_tile!(write_totals, total, scaled);
}

#[target_feature(enable = "avx2")]
#[inline]
fn halves(step: &Step) -> [__m256i; 2] {
    let halves = step.0.as_chunks::<32>().0;
    [load(&halves[0]), load(&halves[1])]
}

/// Adds the products of four activations of each row, from `at` in the block, to the 16-bit sums.
///
/// A 16-bit lane takes the products of two codes and activations at a time, at most `2 * 3 * 128 = 768` in magnitude
/// for any codes and activations, 32 times in a block: at most 24576, which is below `2^15`. (Valid codes alone would
/// allow 64 times, but then a code 3 could wrap here and not elsewhere.)
#[target_feature(enable = "avx2")]
#[inline]
fn add<const ROWS: usize>(x: &[&[i8; BLOCK]; ROWS], at: usize, weights: [__m256i; 2], acc: &mut [[__m256i; 2]; ROWS]) {
    for row in 0..ROWS {
        let x = _mm256_set1_epi32(dword(x[row], at));
        for j in 0..2 {
            acc[row][j] = _mm256_add_epi16(acc[row][j], _mm256_maddubs_epi16(weights[j], x));
        }
    }
}

/// The 32-bit sums of a row, in two halves. They are used once a block and live in memory: the compiler would keep some of
/// them in registers, and 16-bit sums in memory.
type Totals = Step;

/// Totals that start at the negated row sums.
#[target_feature(enable = "avx2")]
#[inline]
fn totals<const ROWS: usize>(row_sums: &[i32; ROWS]) -> [Totals; ROWS] {
    let mut total = [Step([0; 64]); ROWS];
    for (total, &row_sum) in total.iter_mut().zip(row_sums) {
        for half in total.0.as_chunks_mut().0 {
            avx::store_bytes(_mm256_set1_epi32(row_sum.wrapping_neg()), half);
        }
    }
    total
}

/// Adds the 16-bit sums of a block to the totals.
#[target_feature(enable = "avx2")]
#[inline]
fn widen<const ROWS: usize>(acc: &[[__m256i; 2]; ROWS], total: &mut [Totals; ROWS]) {
    for row in 0..ROWS {
        let before = load_halves_again(&total[row]);
        for j in 0..2 {
            let pairs = _mm256_madd_epi16(acc[row][j], _mm256_set1_epi16(1));
            avx::store_bytes(_mm256_add_epi32(before[j], pairs), &mut total[row].0.as_chunks_mut().0[j]);
        }
    }
}

/// Writes the outputs of a row.
#[target_feature(enable = "avx2")]
#[inline]
fn write_totals<T: Output>(total: Totals, weight_scale: f32, scale: f32, out: &mut [T]) {
    avx::write_row(halves(&total), weight_scale, scale, out);
}

/// Rewrites a packed panel, at the front of `panel`, as one byte for each code.
#[target_feature(enable = "avx2")]
fn unpack(panel: &mut [UnpackedBlock]) {
    // Backwards, since a block is unpacked to where later packed blocks were.
    for b in (0..panel.len()).rev() {
        let packed: PanelBlock = panel.as_flattened().as_chunks().0[b];
        for (t, step) in packed.iter().enumerate() {
            for (half, packed) in halves(step).into_iter().enumerate() {
                let planes = [codes::<0>(packed), codes::<1>(packed), codes::<2>(packed), codes::<3>(packed)];
                for (plane, codes) in planes.into_iter().enumerate() {
                    avx::store_bytes(codes, &mut panel[b][plane * STEPS + t].0.as_chunks_mut().0[half]);
                }
            }
        }
    }
}

/// Dot products of `ROWS` activation rows with `cols` packed rows.
#[target_feature(enable = "avx2")]
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
        let mut acc = [[_mm256_setzero_si256(); DOTS]; ROWS];
        for b in 0..blocks {
            let (x, block) = (each(&x, b), each(&packed, b));
            for j in 0..DOTS {
                prefetch(packed[j], DOT_AHEAD + b * BLOCK_BYTES);
                let w = load(block[j]);
                for row in 0..ROWS {
                    let (x, acc) = (x[row], &mut acc[row][j]);
                    // Four pair sums in a 16-bit lane: at most 4 * 768 (see `add`).
                    let low = _mm256_add_epi16(
                        _mm256_maddubs_epi16(codes::<0>(w), load_plane(x, 0)),
                        _mm256_maddubs_epi16(codes::<1>(w), load_plane(x, 1)),
                    );
                    let high = _mm256_add_epi16(
                        _mm256_maddubs_epi16(codes::<2>(w), load_plane(x, 2)),
                        _mm256_maddubs_epi16(codes::<3>(w), load_plane(x, 3)),
                    );
                    let pairs = _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1));
                    *acc = _mm256_add_epi32(*acc, pairs);
                }
            }
        }
        for row in 0..ROWS {
            avx::store_lane_sums(acc[row], row_sums[row], &mut sums[row].as_chunks_mut().0[column / DOTS]);
        }
    }
}
