//! What the two 256-bit levels share: loads and stores, the transposition of weight rows, sums across lanes.

use super::Output;
use super::dots::{self, Packed, Sums, cut, each, packed_rows};
use super::output::Rect;
use super::panel::{STEPS, Step};
use crate::layout::{BLOCK, BLOCK_BYTES};
use std::arch::x86_64::*;

/// Weight rows of a panel: two vectors of 8, the halves of a step.
pub(super) const COLS: usize = 16;

/// A block of a panel.
pub(super) type PanelBlock = [Step; STEPS];

/// Loads 32 bytes.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: `bytes` is 32 readable bytes, and the load takes any alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// The halves of a step. Each call loads them, whatever was loaded before: of 16 registers none is left to keep them in
/// while their four planes are used, and the compiler would rather keep a sum in memory.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn load_halves_again(step: &Step) -> [__m256i; 2] {
    let halves = (&raw const step.0).cast::<__m256i>();
    // SAFETY: a step is 64 readable bytes aligned to 64, so both halves are readable and aligned to 32.
    unsafe { [halves.read_volatile(), halves.add(1).read_volatile()] }
}

/// Loads one plane of the activations of a block.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn load_plane(block: &[i8; BLOCK], plane: usize) -> __m256i {
    let codes = &block.as_chunks::<32>().0[plane];
    // SAFETY: `codes` is 32 readable bytes, and the load takes any alignment.
    unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
}

/// Stores 32 bytes.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn store_bytes(vector: __m256i, bytes: &mut [u8; 32]) {
    // SAFETY: `bytes` is 32 writable bytes, and the store takes any alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
}

/// Stores 8 sums.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn store(vector: __m256i, sums: &mut [i32; 8]) {
    // SAFETY: `sums` is 32 writable bytes, and the store takes any alignment.
    unsafe { _mm256_storeu_si256(sums.as_mut_ptr().cast(), vector) }
}

/// The codes of one plane, in the low bits of each byte; plane `p` is shifted down by `6 - 2 * p`.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn codes<const PLANE: usize>(packed: __m256i) -> __m256i {
    // A shift of words moves bits between bytes, but only into the six bits that the mask clears.
    let low = _mm256_set1_epi8(3);
    match PLANE {
        0 => _mm256_and_si256(_mm256_srli_epi16::<6>(packed), low),
        1 => _mm256_and_si256(_mm256_srli_epi16::<4>(packed), low),
        2 => _mm256_and_si256(_mm256_srli_epi16::<2>(packed), low),
        _ => _mm256_and_si256(packed, low),
    }
}

/// Transposes 16 packed rows into a panel.
#[target_feature(enable = "avx2")]
pub(super) fn stage(packed: Packed<'_>, cols: usize, blocks: usize, panel: &mut [PanelBlock]) {
    for vector in 0..2 {
        let rows = cut(&packed_rows::<8>(packed, 8 * vector, cols, blocks), panel.len());
        for (b, block) in panel.iter_mut().enumerate() {
            let row = each(&rows, b);
            for half in 0..2 {
                // Two rows a vector, so that transposing inside the 128-bit lanes puts row `r` in lane `r`.
                let steps = transpose([
                    load_halves([row[0], row[4]], half),
                    load_halves([row[1], row[5]], half),
                    load_halves([row[2], row[6]], half),
                    load_halves([row[3], row[7]], half),
                ]);
                for (&vector_of_rows, step) in steps.iter().zip(&mut block[4 * half..]) {
                    store_bytes(vector_of_rows, &mut step.0.as_chunks_mut().0[vector]);
                }
            }
        }
    }
}

/// Loads one half of each of two blocks.
#[target_feature(enable = "avx2")]
#[inline]
fn load_halves(blocks: [&[u8; BLOCK_BYTES]; 2], half: usize) -> __m256i {
    let [a, b] = blocks.map(|block| &block.as_chunks::<16>().0[half]);
    // SAFETY: both are 16 readable bytes, and the loads take any alignment.
    let [a, b] = unsafe { [_mm_loadu_si128(a.as_ptr().cast()), _mm_loadu_si128(b.as_ptr().cast())] };
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b)
}

/// Transposes 4 by 4 dwords in each 128-bit lane.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab_low, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab_low, cd_low),
        _mm256_unpackhi_epi64(ab_low, cd_low),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// Stores the sums over all lanes of four vectors, less `row_sum`.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn store_lane_sums([a, b, c, d]: [__m256i; 4], row_sum: i32, sums: &mut [i32; 4]) {
    let ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    let abcd = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    let half = _mm_add_epi32(_mm256_castsi256_si128(abcd), _mm256_extracti128_si256::<1>(abcd));
    let result = _mm_sub_epi32(half, _mm_set1_epi32(row_sum));
    // SAFETY: `sums` is 16 writable bytes, and the store takes any alignment.
    unsafe { _mm_storeu_si128(sums.as_mut_ptr().cast(), result) }
}

/// Writes the outputs of one row of a tile.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn write_row<T: Output>(sums: [__m256i; 2], weight_scale: f32, scale: f32, out: &mut [T]) {
    if let Ok(out) = <&mut [T; COLS]>::try_from(&mut *out) {
        let out = out.as_chunks_mut().0;
        for j in 0..2 {
            write(sums[j], weight_scale, scale, &mut out[j]);
        }
    } else {
        // Stored here: sums that are handed over would be kept in memory for both branches.
        let mut lanes = [0; COLS];
        let vectors = lanes.as_chunks_mut().0;
        for j in 0..2 {
            store(sums[j], &mut vectors[j]);
        }
        write_narrow_row(&lanes, weight_scale, scale, out);
    }
}

/// [`write_row`] for the last columns of a matrix whose rows are no multiple of 16. A call, as it is rare and would be
/// compiled into every tile.
#[cold]
#[inline(never)]
fn write_narrow_row<T: Output>(lanes: &[i32; COLS], weight_scale: f32, scale: f32, out: &mut [T]) {
    dots::scale_row(lanes, weight_scale, scale, out);
}

/// Writes 8 outputs: [`Output::of`] in each lane.
#[target_feature(enable = "avx2")]
#[inline]
fn write<T: Output>(sums: __m256i, weight_scale: f32, scale: f32, out: &mut [T; 8]) {
    const { assert!(size_of::<T>() == size_of::<i32>()) };
    let lanes = if T::SCALED {
        let values = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_set1_ps(weight_scale));
        _mm256_castps_si256(_mm256_div_ps(values, _mm256_set1_ps(scale)))
    } else {
        sums
    };
    // SAFETY: `out` is 32 writable bytes, checked above; the store takes any alignment; and `Output` is i32 or f32,
    // of which every bit pattern is a value.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), lanes) }
}

/// Turns the sums of a tile into its outputs.
#[target_feature(enable = "avx2")]
pub(super) fn finish<T: Output>(sums: &Sums, weight_scale: f32, scales: &[f32], out: Rect<'_, T>) {
    dots::finish::<COLS, T>(sums, weight_scale, scales, out);
}
