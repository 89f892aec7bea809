//! What the two 512-bit levels share: loads and stores, the transposition of weight rows, sums across lanes.

use super::Output;
use super::dots::{self, Packed, Sums, cut, packed_rows};
use super::output::Rect;
use super::panel::{STEPS, Scaled, Step};
use crate::layout::{BLOCK, BLOCK_BYTES};
use std::arch::x86_64::*;

/// Weight rows of a panel: four vectors of 16.
pub(super) const COLS: usize = 64;

/// Vectors of weight rows in a panel.
pub(super) const VECTORS: usize = COLS / 16;

/// A block of a panel: step `t` of vector `j` holds bytes `4 * t ..` of rows `16 * j ..`.
pub(super) type PanelBlock = [[Step; VECTORS]; STEPS];

/// The blocks of a panel.
pub(super) fn blocks(panel: &[Step]) -> &[PanelBlock] {
    panel.as_chunks().0.as_chunks().0
}

/// The blocks of a panel, to be written.
pub(super) fn blocks_mut(panel: &mut [Step]) -> &mut [PanelBlock] {
    panel.as_chunks_mut().0.as_chunks_mut().0
}

/// The rows in whole pairs.
#[inline(always)]
pub(super) fn pairs<'a, T, const N: usize>(rows: &[&'a [T]; N]) -> [&'a [[T; 2]]; N] {
    let mut pairs: [&[[T; 2]]; N] = [&[]; N];
    for (pairs, row) in pairs.iter_mut().zip(rows) {
        *pairs = row.as_chunks().0;
    }
    pairs
}

/// Loads 64 bytes.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: `bytes` is 64 readable bytes, and the load takes any alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Loads two blocks.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn load_pair(blocks: &[[u8; BLOCK_BYTES]; 2]) -> __m512i {
    // SAFETY: two arrays of 32 bytes are 64 readable bytes, and the load takes any alignment.
    unsafe { _mm512_loadu_si512(blocks.as_ptr().cast()) }
}

/// Loads 32 bytes below 32 zeros.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn load_half(bytes: &[u8; 32]) -> __m512i {
    // SAFETY: `bytes` is 32 readable bytes, and the load takes any alignment.
    _mm512_zextsi256_si512(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
}

/// Loads one plane of the activations of two blocks: 32 codes of each.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn load_plane(blocks: &[[i8; BLOCK]; 2], plane: usize) -> __m512i {
    let [low, high] = blocks.each_ref().map(|block| &block.as_chunks::<32>().0[plane]);
    // SAFETY: both are 32 readable bytes, and the loads take any alignment.
    let [low, high] = unsafe { [_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())] };
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// Loads one plane of the activations of a block, below zeros.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn load_half_plane(block: &[i8; BLOCK], plane: usize) -> __m512i {
    let codes = &block.as_chunks::<32>().0[plane];
    // SAFETY: `codes` is 32 readable bytes, and the load takes any alignment.
    _mm512_zextsi256_si512(unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) })
}

/// Stores 16 sums.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn store(vector: __m512i, sums: &mut [i32; 16]) {
    // SAFETY: `sums` is 64 writable bytes, and the store takes any alignment.
    unsafe { _mm512_storeu_si512(sums.as_mut_ptr().cast(), vector) }
}

/// Stores a step.
#[target_feature(enable = "avx512f")]
#[inline]
fn store_step(vector: __m512i, step: &mut Step) {
    // SAFETY: a step is 64 writable bytes, and aligned to 64.
    unsafe { _mm512_store_si512(step.0.as_mut_ptr().cast(), vector) }
}

/// The codes of one plane, in the low bits of each byte; plane `p` is shifted down by `6 - 2 * p`.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
pub(super) fn codes<const PLANE: usize>(packed: __m512i) -> __m512i {
    // A shift of words moves bits between bytes, but only into the six bits that the mask clears.
    let low = _mm512_set1_epi8(3);
    match PLANE {
        0 => _mm512_and_si512(_mm512_srli_epi16::<6>(packed), low),
        1 => _mm512_and_si512(_mm512_srli_epi16::<4>(packed), low),
        2 => _mm512_and_si512(_mm512_srli_epi16::<2>(packed), low),
        _ => _mm512_and_si512(packed, low),
    }
}

/// Transposes 64 packed rows into a panel.
#[target_feature(enable = "avx512f")]
pub(super) fn stage(packed: Packed<'_>, cols: usize, blocks: usize, panel: &mut [PanelBlock]) {
    for vector in 0..VECTORS {
        let rows = packed_rows::<16>(packed, 16 * vector, cols, blocks);
        let row_pairs = cut(&pairs(&rows), panel.len() / 2);
        let mut a = [_mm512_setzero_si512(); 16];
        let (panel_pairs, last) = panel.as_chunks_mut::<2>();
        for (pair, blocks) in panel_pairs.iter_mut().enumerate() {
            for (a, row) in a.iter_mut().zip(&row_pairs) {
                *a = load_pair(&row[pair]);
            }
            let steps = transpose(a);
            for (&step, blocks) in steps.iter().zip(blocks.as_flattened_mut()) {
                store_step(step, &mut blocks[vector]);
            }
        }
        if let Some(last) = last.first_mut() {
            for (a, row) in a.iter_mut().zip(&rows) {
                *a = load_half(&row[blocks - 1]);
            }
            let steps = transpose(a);
            for (step, last) in steps.iter().zip(last) {
                store_step(*step, &mut last[vector]);
            }
        }
    }
}

/// Transposes a 16 by 16 matrix of dwords.
#[target_feature(enable = "avx512f")]
#[inline]
fn transpose(a: [__m512i; 16]) -> [__m512i; 16] {
    // Pairs, then fours: lane q of c[4 * i + j] holds column 4 * q + j of rows 4 * i ..
    let mut b = a;
    for i in 0..8 {
        b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
    let mut c = b;
    for i in 0..4 {
        c[4 * i] = _mm512_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
        c[4 * i + 1] = _mm512_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
        c[4 * i + 2] = _mm512_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
        c[4 * i + 3] = _mm512_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
    }
    // Then the 128-bit lanes: 0x88 takes lanes 0 and 2 of both, 0xdd lanes 1 and 3.
    let mut d = c;
    for j in 0..4 {
        let even = [_mm512_shuffle_i32x4::<0x88>(c[j], c[4 + j]), _mm512_shuffle_i32x4::<0x88>(c[8 + j], c[12 + j])];
        let odd = [_mm512_shuffle_i32x4::<0xdd>(c[j], c[4 + j]), _mm512_shuffle_i32x4::<0xdd>(c[8 + j], c[12 + j])];
        d[j] = _mm512_shuffle_i32x4::<0x88>(even[0], even[1]);
        d[4 + j] = _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]);
        d[8 + j] = _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]);
        d[12 + j] = _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]);
    }
    d
}

/// Stores the sums over all lanes of four vectors, less `row_sum`.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
pub(super) fn store_lane_sums([a, b, c, d]: [__m512i; 4], row_sum: i32, sums: &mut [i32; 4]) {
    let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    let abcd = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    let half = _mm256_add_epi32(_mm512_castsi512_si256(abcd), _mm512_extracti64x4_epi64::<1>(abcd));
    let quarter = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
    let result = _mm_sub_epi32(quarter, _mm_set1_epi32(row_sum));
    // SAFETY: `sums` is 16 writable bytes, and the store takes any alignment.
    unsafe { _mm_storeu_si128(sums.as_mut_ptr().cast(), result) }
}

/// Writes the outputs of a tile from its sums, `ROWS` rows of 64.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(super) fn write_tile<const ROWS: usize, T: Output>(sums: [[__m512i; VECTORS]; ROWS], scaled: Scaled<'_, T>) {
    let Scaled { weight_scale, scales, mut out } = scaled;
    // By constant indices, not in a loop: that is too long for the compiler to unroll, and the sums would be kept in
    // memory for it.
    const { assert!(ROWS <= 5) };
    if ROWS > 0 {
        write_row(sums[0], weight_scale, scales[0], out.row(0));
    }
    if ROWS > 1 {
        write_row(sums[1], weight_scale, scales[1], out.row(1));
    }
    if ROWS > 2 {
        write_row(sums[2], weight_scale, scales[2], out.row(2));
    }
    if ROWS > 3 {
        write_row(sums[3], weight_scale, scales[3], out.row(3));
    }
    if ROWS > 4 {
        write_row(sums[4], weight_scale, scales[4], out.row(4));
    }
}

/// Writes the outputs of one row of a tile.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn write_row<T: Output>(sums: [__m512i; VECTORS], weight_scale: f32, scale: f32, out: &mut [T]) {
    if let Ok(out) = <&mut [T; COLS]>::try_from(&mut *out) {
        let out = out.as_chunks_mut().0;
        for j in 0..VECTORS {
            write(sums[j], weight_scale, scale, &mut out[j]);
        }
    } else {
        write_narrow_row(sums, weight_scale, scale, out);
    }
}

/// [`write_row`] for the last columns of a matrix whose rows are no multiple of 64. A call, so that the loop over rows
/// is short enough for the compiler to unroll, without which the sums would live in memory.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[cold]
#[inline(never)]
fn write_narrow_row<T: Output>(sums: [__m512i; VECTORS], weight_scale: f32, scale: f32, out: &mut [T]) {
    let mut lanes = [0; COLS];
    for (&sums, lanes) in sums.iter().zip(lanes.as_chunks_mut().0) {
        store(sums, lanes);
    }
    dots::scale_row(&lanes, weight_scale, scale, out);
}

/// Writes 16 outputs: [`Output::of`] in each lane.
#[target_feature(enable = "avx512f")]
#[inline]
fn write<T: Output>(sums: __m512i, weight_scale: f32, scale: f32, out: &mut [T; 16]) {
    const { assert!(size_of::<T>() == size_of::<i32>()) };
    let lanes = if T::SCALED {
        let values = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(weight_scale));
        _mm512_castps_si512(_mm512_div_ps(values, _mm512_set1_ps(scale)))
    } else {
        sums
    };
    // SAFETY: `out` is 64 writable bytes, checked above; the store takes any alignment; and `Output` is i32 or f32,
    // of which every bit pattern is a value.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), lanes) }
}

/// Turns the sums of a tile into its outputs.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn finish<T: Output>(sums: &Sums, weight_scale: f32, scales: &[f32], out: Rect<'_, T>) {
    dots::finish::<COLS, T>(sums, weight_scale, scales, out);
}
