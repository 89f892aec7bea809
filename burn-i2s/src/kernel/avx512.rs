//! What the two 512-bit levels share: loads and stores, the transposition of weight rows, sums across lanes.

use super::Output;
use super::dots::{self, Packed, Sums};
use super::output::Rect;
use super::panel::{STEPS, Step};
use crate::layout::{BLOCK, BLOCK_BYTES};
use std::arch::x86_64::*;

/// Weight rows of a panel: four vectors of 16.
pub(super) const COLS: usize = 64;

/// Vectors of weight rows in a panel.
pub(super) const VECTORS: usize = COLS / 16;

/// A block of a panel: step `t` of vector `j` holds bytes `4 * t ..` of rows `16 * j ..`.
pub(super) type PanelBlock = [[Step; VECTORS]; STEPS];

/// The blocks of a panel.
pub(super) fn blocks(panel: &mut [Step]) -> &mut [PanelBlock] {
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

/// Loads a step, whatever was loaded before: where no register is left to keep it in, the compiler would rather keep a sum
/// in memory.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn load_again(step: &Step) -> __m512i {
    // SAFETY: a step is 64 readable bytes aligned to 64.
    unsafe { (&raw const step.0).cast::<__m512i>().read_volatile() }
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
pub(super) fn store_step(vector: __m512i, step: &mut Step) {
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

/// The packed rows of a panel, to be transposed into it piece by piece.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    /// `cols * blocks` blocks.
    packed: Packed<'a>,
    cols: usize,
    blocks: usize,
}

impl<'a> Source<'a> {
    /// The first 64 of `packed`'s rows of `blocks` blocks; from `cols` on, the last of them is repeated.
    pub(super) fn new(packed: Packed<'a>, cols: usize, blocks: usize) -> Self {
        assert!(cols > 0 && blocks > 0);
        Self { packed: &packed[..cols * blocks], cols, blocks }
    }

    /// Transposes a whole block.
    #[target_feature(enable = "avx512f")]
    pub(super) fn stage_block(self, block: usize, panel: &mut [PanelBlock]) {
        for piece in 0..PIECES {
            self.stage_piece(block, piece, &mut panel[block]);
        }
    }

    /// Transposes one of the [`PIECES`] pieces of a block: 16 bytes of 16 rows, which are four steps of a vector. Rows
    /// are put together by lanes as they are loaded, since the multiplications beside it leave more room for loads than
    /// for shuffles.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn stage_piece(self, block: usize, piece: usize, panel: &mut PanelBlock) {
        // One check for all 16 loads.
        assert!(block < self.blocks);
        let (vector, half) = (piece / 2, piece % 2);
        let load = |row: usize| {
            let at = row.min(self.cols - 1) * self.blocks + block;
            let bytes = self.packed.as_ptr().wrapping_add(at).cast::<__m128i>().wrapping_add(half);
            // SAFETY: `packed` has `cols * blocks` blocks (see `new`) and `row.min(cols - 1) < cols`, `block < blocks`,
            // so block `at` is one of them; `half < 2` picks one of its two 16 bytes. The load takes any alignment.
            unsafe { _mm_loadu_si128(bytes) }
        };
        let mut rows = [_mm512_setzero_si512(); 4];
        for (i, rows) in rows.iter_mut().enumerate() {
            let row = 16 * vector + i;
            let lanes = _mm512_castsi128_si512(load(row));
            let lanes = _mm512_inserti32x4::<1>(lanes, load(row + 4));
            let lanes = _mm512_inserti32x4::<2>(lanes, load(row + 8));
            *rows = _mm512_inserti32x4::<3>(lanes, load(row + 12));
        }
        let steps = transpose_in_lanes(rows);
        for i in 0..4 {
            store_step(steps[i], &mut panel[4 * half + i][vector]);
        }
    }
}

/// Pieces of a block of a panel.
const PIECES: usize = 2 * VECTORS;

/// Transposes 4 by 4 dwords in each 128-bit lane.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn transpose_in_lanes([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab_low, cd_low),
        _mm512_unpackhi_epi64(ab_low, cd_low),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// Transposes 64 packed rows into a panel.
#[target_feature(enable = "avx512f")]
pub(super) fn stage(packed: Packed<'_>, cols: usize, blocks: usize, panel: &mut [PanelBlock]) {
    let source = Source::new(packed, cols, blocks);
    for block in 0..blocks {
        source.stage_block(block, panel);
    }
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

/// Writes the outputs of one row of a tile.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(super) fn write_row<T: Output>(sums: [__m512i; VECTORS], weight_scale: f32, scale: f32, out: &mut [T]) {
    if let Ok(out) = <&mut [T; COLS]>::try_from(&mut *out) {
        let out = out.as_chunks_mut().0;
        for j in 0..VECTORS {
            write(sums[j], weight_scale, scale, &mut out[j]);
        }
    } else {
        // Stored here: sums that are handed over would be kept in memory for both branches.
        let mut lanes = [0; COLS];
        let vectors = lanes.as_chunks_mut().0;
        for j in 0..VECTORS {
            store(sums[j], &mut vectors[j]);
        }
        write_narrow_row(&lanes, weight_scale, scale, out);
    }
}

/// [`write_row`] for the last columns of a matrix whose rows are no multiple of 64. A call, as it is rare and would be
/// compiled into every tile.
#[cold]
#[inline(never)]
fn write_narrow_row<T: Output>(lanes: &[i32; COLS], weight_scale: f32, scale: f32, out: &mut [T]) {
    dots::scale_row(lanes, weight_scale, scale, out);
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
