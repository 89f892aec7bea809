//! AVX-512 with the int8 dot product: `vpdpbusd` adds four products of code and activation to each 32-bit lane.

use super::Output;
use super::avx512::{
    self, COLS, PanelBlock, Source, VECTORS, codes, load, load_again, load_half, load_half_plane, load_pair, load_plane,
};
use super::dots::{DOT_AHEAD, Dots, Packed, Sums, by_rows, cut, each, packed_rows, prefetch, tiles};
use super::output::Rect;
use super::panel::{Ahead, Level, Pass, STEPS, Scaled, Step, dword, each_tile, one_tile, write_tile};
use crate::isa::Avx512Vnni;
use crate::layout::BLOCK;
use std::arch::x86_64::*;

impl Level for Avx512Vnni {
    const PANEL_COLS: usize = COLS;
    // 6 x 4 accumulators, 4 vectors of codes, a mask and a broadcast are 30 of 32 registers.
    const PANEL_ROWS: usize = 6;

    fn panel_steps(_rows: usize, blocks: usize) -> usize {
        blocks * STEPS * VECTORS
    }

    fn pass<T: Output>(self, pass: Pass<'_, T>, panel: &mut [Step]) {
        let panel = avx512::blocks(panel);
        let blocks = pass.blocks;
        let own = Source::new(pass.weights, pass.out.cols(), blocks);
        // With a single block there is nothing to stage the next panel beside.
        let overlaps = blocks > 1;
        let next = (overlaps && pass.next.rows > 0).then(|| Source::new(pass.next.packed, pass.next.rows, blocks));
        let is_begun = overlaps && pass.follows;
        let [first, between, last] = pass.split_tiles();
        // SAFETY: `self` proves AVX-512 with VNNI.
        unsafe {
            if !is_begun {
                own.stage_block(0, panel);
            }
            if last.out.rows() == 0 {
                first_tile(first, own, next, panel);
            } else {
                first_tile(first, own, None, panel);
                tiles_of(between, panel);
                last_tile(last, next, panel);
            }
        }
    }
}

/// The first tile over a panel, which stages it.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn first_tile<T: Output>(mut pass: Pass<'_, T>, own: Source<'_>, next: Option<Source<'_>>, panel: &mut [PanelBlock]) {
    one_tile!(pass, 0, 0, pass.out.rows(), [1, 2, 3, 4, 5, 6], |ROWS, x, row_sums, ahead, scaled| {
        staging_tile::<ROWS, true, T>(x, row_sums, Some(own), next, panel, ahead, scaled)
    });
}

/// The last tile over a panel, which begins the next one.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn last_tile<T: Output>(mut pass: Pass<'_, T>, next: Option<Source<'_>>, panel: &mut [PanelBlock]) {
    one_tile!(pass, 0, 0, pass.out.rows(), [1, 2, 3, 4, 5, 6], |ROWS, x, row_sums, ahead, scaled| {
        staging_tile::<ROWS, false, T>(x, row_sums, None, next, panel, ahead, scaled)
    });
}

/// Tiles over a panel that is there, all in one function, so that one tile's end and the next one's start overlap.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tiles_of<T: Output>(mut pass: Pass<'_, T>, panel: &[PanelBlock]) {
    each_tile!(pass, [1, 2, 3, 4, 5, 6], |ROWS, x, row_sums, ahead, scaled| {
        tile::<ROWS, T>(x, row_sums, panel, ahead, scaled)
    });
}

impl Dots for Avx512Vnni {
    const DOT_ROWS: usize = 5;

    fn dot(self, x: &[&[[i8; BLOCK]]], row_sums: &[i32], weights: Packed<'_>, cols: usize, sums: &mut Sums) {
        // SAFETY: `self` proves AVX-512 with VNNI.
        by_rows!(x, row_sums, [1, 2, 3, 4, 5], |ROWS, x, row_sums| unsafe {
            // Enough sums at once to keep the multipliers busy: an addition takes four cycles, two start in each.
            if ROWS == 1 {
                dots::<ROWS, 8>(x, row_sums, weights, cols, sums)
            } else {
                dots::<ROWS, 4>(x, row_sums, weights, cols, sums)
            }
        })
    }

    fn finish<T: Output>(self, sums: &Sums, weight_scale: f32, scales: &[f32], out: Rect<'_, T>) {
        // SAFETY: `self` proves AVX-512.
        unsafe { avx512::finish(sums, weight_scale, scales, out) }
    }
}

/// `ROWS` activation rows by 64 weight rows. The accumulators start at the negated row sums, which turns the codes'
/// offset of one into nothing to do at the end.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn tile<const ROWS: usize, T: Output>(
    x: &[&[[i8; BLOCK]]; ROWS],
    row_sums: &[i32; ROWS],
    panel: &[PanelBlock],
    ahead: Ahead<'_>,
    scaled: Scaled<'_, T>,
) {
    let x = cut(x, panel.len());
    let mut acc = [[_mm512_setzero_si512(); VECTORS]; ROWS];
    for (acc, &row_sum) in acc.iter_mut().zip(row_sums) {
        *acc = [_mm512_set1_epi32(row_sum.wrapping_neg()); VECTORS];
    }
    for (b, block) in panel.iter().enumerate() {
        let x = each(&x, b);
        for (t, step) in block.iter().enumerate() {
            ahead.fetch(b * STEPS + t);
            planes(&x, t, step, &mut acc);
        }
    }
    write_tile!(avx512::write_row, acc, scaled);
}

/// [`tile`] while a panel is staged: each step of a block is multiplied beside the transposition of one piece of another
/// block. Multiplication and transposition keep different parts of the CPU busy.
///
/// The first tile over a panel stages that from the second block on, each block beside the one before it. The last tile
/// has no further use for the panel's first block when it comes to its last, and puts the first block of the next panel
/// there.
///
/// `FIRST` makes a function for each of the two, called once and therefore inlined: a call costs 3 % at 8 rows. The sums
/// start as [`tile`]'s do, in place: a function that returned them would keep them in memory, which costs 2 %.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn staging_tile<const ROWS: usize, const FIRST: bool, T: Output>(
    x: &[&[[i8; BLOCK]]; ROWS],
    row_sums: &[i32; ROWS],
    own: Option<Source<'_>>,
    next: Option<Source<'_>>,
    panel: &mut [PanelBlock],
    ahead: Ahead<'_>,
    scaled: Scaled<'_, T>,
) {
    let x = cut(x, panel.len());
    let mut acc = [[_mm512_setzero_si512(); VECTORS]; ROWS];
    for (acc, &row_sum) in acc.iter_mut().zip(row_sums) {
        *acc = [_mm512_set1_epi32(row_sum.wrapping_neg()); VECTORS];
    }
    for b in 0..panel.len() {
        let (before, rest) = panel.split_at_mut(b);
        let (now, after) = rest.split_at_mut(1);
        let mut staged = match after.first_mut() {
            Some(block) => own.map(|source| (source, b + 1, block)),
            None => next.zip(before.first_mut()).map(|(source, block)| (source, 0, block)),
        };
        let x = each(&x, b);
        for (t, step) in now[0].iter().enumerate() {
            if let Some((source, from, block)) = &mut staged {
                source.stage_piece(*from, t, block);
            }
            ahead.fetch(b * STEPS + t);
            planes(&x, t, step, &mut acc);
        }
    }
    write_tile!(avx512::write_row, acc, scaled);
}

/// Adds the four planes of a step.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn planes<const ROWS: usize>(
    x: &[&[i8; BLOCK]; ROWS],
    t: usize,
    step: &[Step; VECTORS],
    acc: &mut [[__m512i; VECTORS]; ROWS],
) {
    plane::<0, ROWS>(x, t, step, acc);
    plane::<1, ROWS>(x, t, step, acc);
    plane::<2, ROWS>(x, t, step, acc);
    plane::<3, ROWS>(x, t, step, acc);
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
        // Six rows leave no registers for four vectors to wait in until their next plane's turn.
        weights[j] = codes::<PLANE>(if ROWS > 5 { load_again(&step[j]) } else { load(&step[j].0) });
    }
    for row in 0..ROWS {
        let x = _mm512_set1_epi32(dword(x[row], 32 * PLANE + 4 * t));
        for j in 0..VECTORS {
            acc[row][j] = _mm512_dpbusd_epi32(acc[row][j], weights[j], x);
        }
    }
}

/// Dot products of `ROWS` activation rows with `cols` packed rows, `DOTS` of them together, two blocks at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn dots<const ROWS: usize, const DOTS: usize>(
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
            dot_plane::<0, ROWS, DOTS>(x, w, &mut acc);
            dot_plane::<1, ROWS, DOTS>(x, w, &mut acc);
            dot_plane::<2, ROWS, DOTS>(x, w, &mut acc);
            dot_plane::<3, ROWS, DOTS>(x, w, &mut acc);
        }
        if blocks % 2 == 1 {
            let x = each(x, blocks - 1);
            let mut w = [_mm512_setzero_si512(); DOTS];
            for j in 0..DOTS {
                w[j] = load_half(&packed[j][blocks - 1]);
            }
            dot_half_plane::<0, ROWS, DOTS>(x, w, &mut acc);
            dot_half_plane::<1, ROWS, DOTS>(x, w, &mut acc);
            dot_half_plane::<2, ROWS, DOTS>(x, w, &mut acc);
            dot_half_plane::<3, ROWS, DOTS>(x, w, &mut acc);
        }
        for row in 0..ROWS {
            let sums = &mut sums[row][column..];
            for four in 0..DOTS / 4 {
                // By index: an iterator over the accumulators would keep them in memory.
                let acc = &acc[row];
                let acc = [acc[4 * four], acc[4 * four + 1], acc[4 * four + 2], acc[4 * four + 3]];
                avx512::store_lane_sums(acc, row_sums[row], &mut sums.as_chunks_mut().0[four]);
            }
        }
    }
}

/// Adds one plane of two blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn dot_plane<const PLANE: usize, const ROWS: usize, const DOTS: usize>(
    x: [&[[i8; BLOCK]; 2]; ROWS],
    packed: [__m512i; DOTS],
    acc: &mut [[__m512i; DOTS]; ROWS],
) {
    let mut weights = [_mm512_setzero_si512(); DOTS];
    for j in 0..DOTS {
        weights[j] = codes::<PLANE>(packed[j]);
    }
    for row in 0..ROWS {
        let x = load_plane(x[row], PLANE);
        for j in 0..DOTS {
            acc[row][j] = _mm512_dpbusd_epi32(acc[row][j], weights[j], x);
        }
    }
}

/// Adds one plane of a block in the lower half; the activations of the upper half are zero.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn dot_half_plane<const PLANE: usize, const ROWS: usize, const DOTS: usize>(
    x: [&[i8; BLOCK]; ROWS],
    packed: [__m512i; DOTS],
    acc: &mut [[__m512i; DOTS]; ROWS],
) {
    for row in 0..ROWS {
        let x = load_half_plane(x[row], PLANE);
        for j in 0..DOTS {
            acc[row][j] = _mm512_dpbusd_epi32(acc[row][j], codes::<PLANE>(packed[j]), x);
        }
    }
}
