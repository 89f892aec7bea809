//! What the two 256-bit levels share: loads and stores, the transposition of weight rows, sums across lanes.

use super::Output;
use super::panel::{Ahead, STEPS, Step, cut, packed_rows};
use crate::layout::BLOCK;
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
#[inline]
pub(super) fn stage(packed: Ahead<'_>, cols: usize, blocks: usize, panel: &mut [PanelBlock]) {
    for half in 0..2 {
        let rows = cut(&packed_rows::<8>(packed, 8 * half, cols, blocks), panel.len());
        for (b, block) in panel.iter_mut().enumerate() {
            let mut a = [_mm256_setzero_si256(); 8];
            for (a, row) in a.iter_mut().zip(&rows) {
                *a = load(&row[b]);
            }
            let steps = transpose(a);
            for (&vector, step) in steps.iter().zip(block) {
                store_bytes(vector, &mut step.0.as_chunks_mut().0[half]);
            }
        }
    }
}

/// Transposes an 8 by 8 matrix of dwords.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose(a: [__m256i; 8]) -> [__m256i; 8] {
    // Pairs, then fours: 128-bit lane q of c[4 * i + j] holds column 4 * q + j of rows 4 * i ..
    let mut b = a;
    for i in 0..4 {
        b[2 * i] = _mm256_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm256_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
    let mut c = b;
    for i in 0..2 {
        c[4 * i] = _mm256_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
        c[4 * i + 1] = _mm256_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
        c[4 * i + 2] = _mm256_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
        c[4 * i + 3] = _mm256_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
    }
    let mut d = c;
    for j in 0..4 {
        d[j] = _mm256_permute2x128_si256::<0x20>(c[j], c[4 + j]);
        d[4 + j] = _mm256_permute2x128_si256::<0x31>(c[j], c[4 + j]);
    }
    d
}

/// The sum of all lanes of each of four vectors.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn sum_lanes([a, b, c, d]: [__m256i; 4]) -> [i32; 4] {
    let ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    let abcd = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    let sums = _mm_add_epi32(_mm256_castsi256_si128(abcd), _mm256_extracti128_si256::<1>(abcd));
    [
        _mm_extract_epi32::<0>(sums),
        _mm_extract_epi32::<1>(sums),
        _mm_extract_epi32::<2>(sums),
        _mm_extract_epi32::<3>(sums),
    ]
}

/// Turns sums into outputs.
#[target_feature(enable = "avx2")]
pub(super) fn finish<T: Output>(sums: &[i32], weight_scale: f32, scale: f32, out: &mut [T]) {
    for (out, &sum) in out.iter_mut().zip(sums) {
        *out = T::of(sum, weight_scale, scale);
    }
}
