//! AVX-512 with the int8 dot product: `vpdpbusd` adds four products of code and activation to each 32-bit lane.

use super::Output;
use super::avx512::{self, COLS, PanelBlock, VECTORS, codes, load, load_half, load_half_plane, load_pair, load_plane};
use super::panel::{self, Ahead, Level, STEPS, Step, Sums, by_rows, cut, dword, each, packed_rows, prefetch};
use crate::isa::Avx512Vnni;
use crate::layout::{BLOCK, BLOCK_BYTES};
use std::arch::x86_64::*;

/// Weight rows whose dot products are formed together.
const DOTS: usize = 4;

/// Dot products ask for the packed row that lies this many rows on.
const DOT_AHEAD: usize = 16;

impl Level for Avx512Vnni {
    const PANEL_COLS: usize = COLS;
    // 5 x 4 accumulators, 4 vectors of codes, a mask and a broadcast are 26 of 32 registers; 6 x 4 spill.
    const PANEL_ROWS: usize = 5;
    const DOT_ROWS: usize = 5;
    const PANEL_FROM: usize = 8;

    fn panel_steps(_rows: usize, blocks: usize) -> usize {
        blocks * STEPS * VECTORS
    }

    fn stage(self, _rows: usize, packed: Ahead<'_>, cols: usize, blocks: usize, panel: &mut [Step]) {
        // SAFETY: `self` proves AVX-512.
        unsafe { avx512::stage(packed, cols, blocks, avx512::blocks_mut(panel)) }
    }

    fn tile(
        self,
        _rows: usize,
        x: &[&[[i8; BLOCK]]],
        row_sums: &[i32],
        panel: &[Step],
        ahead: Ahead<'_>,
        sums: &mut Sums,
    ) {
        let panel = avx512::blocks(panel);
        // SAFETY: `self` proves AVX-512 with VNNI.
        by_rows!(x, row_sums, [1, 2, 3, 4, 5], |ROWS, x, row_sums| unsafe {
            if ahead.is_empty() {
                tile::<ROWS, false>(x, row_sums, panel, ahead, sums)
            } else {
                tile::<ROWS, true>(x, row_sums, panel, ahead, sums)
            }
        })
    }

    fn dot(self, x: &[&[[i8; BLOCK]]], row_sums: &[i32], weights: Ahead<'_>, cols: usize, sums: &mut Sums) {
        // SAFETY: `self` proves AVX-512 with VNNI.
        by_rows!(x, row_sums, [1, 2, 3, 4, 5], |ROWS, x, row_sums| unsafe {
            dots::<ROWS>(x, row_sums, weights, cols, sums)
        })
    }

    fn finish<T: Output>(self, sums: &[i32], weight_scale: f32, scale: f32, out: &mut [T]) {
        // SAFETY: `self` proves AVX-512.
        unsafe { avx512::finish(sums, weight_scale, scale, out) }
    }
}

/// `ROWS` activation rows by 64 weight rows. The accumulators start at the negated row sums, which turns the codes'
/// offset of one into nothing to do at the end.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tile<const ROWS: usize, const AHEAD: bool>(
    x: &[&[[i8; BLOCK]]; ROWS],
    row_sums: &[i32; ROWS],
    panel: &[PanelBlock],
    ahead: Ahead<'_>,
    sums: &mut Sums,
) {
    let x = cut(x, panel.len());
    let mut acc = [[_mm512_setzero_si512(); VECTORS]; ROWS];
    for (acc, &row_sum) in acc.iter_mut().zip(row_sums) {
        *acc = [_mm512_set1_epi32(row_sum.wrapping_neg()); VECTORS];
    }
    for (b, block) in panel.iter().enumerate() {
        let x = each(&x, b);
        for (t, step) in block.iter().enumerate() {
            if AHEAD {
                for j in 0..VECTORS {
                    prefetch(ahead, ((b * STEPS + t) * VECTORS + j) * 64);
                }
            }
            plane::<0, ROWS>(&x, t, step, &mut acc);
            plane::<1, ROWS>(&x, t, step, &mut acc);
            plane::<2, ROWS>(&x, t, step, &mut acc);
            plane::<3, ROWS>(&x, t, step, &mut acc);
        }
    }
    for (acc, sums) in acc.iter().zip(sums) {
        for (&acc, sums) in acc.iter().zip(sums.as_chunks_mut().0) {
            avx512::store(acc, sums);
        }
    }
}

/// Adds one plane of a step: weights `32 * PLANE + 4 * t ..` of the block.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn plane<const PLANE: usize, const ROWS: usize>(
    x: &[&[i8; BLOCK]; ROWS],
    t: usize,
    step: &[Step; VECTORS],
    acc: &mut [[__m512i; VECTORS]; ROWS],
) {
    let mut weights = [_mm512_setzero_si512(); VECTORS];
    for j in 0..VECTORS {
        weights[j] = codes::<PLANE>(load(&step[j].0));
    }
    for row in 0..ROWS {
        let x = _mm512_set1_epi32(dword(x[row], 32 * PLANE + 4 * t));
        for j in 0..VECTORS {
            acc[row][j] = _mm512_dpbusd_epi32(acc[row][j], weights[j], x);
        }
    }
}

/// Dot products of `ROWS` activation rows with `cols` packed rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn dots<const ROWS: usize>(
    x: &[&[[i8; BLOCK]]; ROWS],
    row_sums: &[i32; ROWS],
    weights: Ahead<'_>,
    cols: usize,
    sums: &mut Sums,
) {
    let blocks = x[0].len();
    for column in (0..cols).step_by(DOTS) {
        let packed = packed_rows::<DOTS>(weights, column, cols, blocks);
        let dots = dot::<ROWS>(x, &packed);
        for row in 0..ROWS {
            for (sum, dot) in sums[row][column..].iter_mut().zip(dots[row]) {
                *sum = dot.wrapping_sub(row_sums[row]);
            }
        }
    }
}

/// Sums of code times activation of `ROWS` activation rows with four packed rows, two blocks at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn dot<const ROWS: usize>(x: &[&[[i8; BLOCK]]; ROWS], packed: &[&[[u8; BLOCK_BYTES]]; DOTS]) -> [[i32; DOTS]; ROWS] {
    let blocks = packed[0].len();
    let pairs = blocks / 2;
    let x_pairs = cut(&panel::pairs(x), pairs);
    let w_pairs = cut(&panel::pairs(packed), pairs);
    let mut acc = [[_mm512_setzero_si512(); DOTS]; ROWS];
    for pair in 0..pairs {
        let mut w = [_mm512_setzero_si512(); DOTS];
        for j in 0..DOTS {
            prefetch(packed[j], (DOT_AHEAD * blocks + 2 * pair) * BLOCK_BYTES);
            w[j] = load_pair(&w_pairs[j][pair]);
        }
        for row in 0..ROWS {
            let x = &x_pairs[row][pair];
            for j in 0..DOTS {
                let acc = &mut acc[row][j];
                *acc = _mm512_dpbusd_epi32(*acc, codes::<0>(w[j]), load_plane(x, 0));
                *acc = _mm512_dpbusd_epi32(*acc, codes::<1>(w[j]), load_plane(x, 1));
                *acc = _mm512_dpbusd_epi32(*acc, codes::<2>(w[j]), load_plane(x, 2));
                *acc = _mm512_dpbusd_epi32(*acc, codes::<3>(w[j]), load_plane(x, 3));
            }
        }
    }
    if blocks % 2 == 1 {
        for row in 0..ROWS {
            let x = &x[row][blocks - 1];
            for j in 0..DOTS {
                // The upper halves are zero, so their codes add nothing.
                let w = load_half(&packed[j][blocks - 1]);
                let acc = &mut acc[row][j];
                *acc = _mm512_dpbusd_epi32(*acc, codes::<0>(w), load_half_plane(x, 0));
                *acc = _mm512_dpbusd_epi32(*acc, codes::<1>(w), load_half_plane(x, 1));
                *acc = _mm512_dpbusd_epi32(*acc, codes::<2>(w), load_half_plane(x, 2));
                *acc = _mm512_dpbusd_epi32(*acc, codes::<3>(w), load_half_plane(x, 3));
            }
        }
    }
    let mut dots = [[0; DOTS]; ROWS];
    for row in 0..ROWS {
        dots[row] = avx512::sum_lanes(acc[row]);
    }
    dots
}
