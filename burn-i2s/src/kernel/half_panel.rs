//! Rows of 16-bit floats straight into the transposed f32 panel of a dense product, or into the product, on the 512-bit
//! levels.
//!
//! Transposed as pairs of halves, which are 32-bit words, and widened after that: half of the shuffles, and no decoded
//! copy. With few rows of activations this is most of the work.

use crate::isa::Isa;
use std::ops::Range;

/// The formats there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    F16,
    Bf16,
}

/// Rows of halves that follow each other.
#[derive(Clone, Copy)]
pub(crate) struct HalfRows<'a> {
    /// Whole rows, at least one.
    pub(crate) bytes: &'a [u8],
    /// Bytes of one.
    pub(crate) row_bytes: usize,
    pub(crate) half: Half,
}

/// Columns of a panel.
pub(crate) const COLS: usize = 64;

/// Writes `panel[k][i] = rows[i][columns.start + k]` and returns true; or returns false, where the level has no such
/// kernel, rows are empty or `columns` are not whole groups of 32. Columns of the panel beyond the last row are written too.
///
/// # Panics
/// When there is no row or more than [`COLS`], the columns are not those of a row, or the panel has another length.
pub(crate) fn transpose_halves(
    isa: Isa,
    rows: HalfRows<'_>,
    columns: &Range<usize>,
    panel: &mut [[f32; COLS]],
) -> bool {
    match isa {
        Isa::Avx512Bw(_) | Isa::Avx512Vnni(_) if rows.row_bytes > 0 && columns.len().is_multiple_of(x86::GROUP) => {
            let panel = panel.as_chunks_mut::<{ x86::GROUP }>().0;
            // SAFETY: both witnesses are built only where avx512f and avx512bw were detected.
            unsafe { x86::transpose_halves(rows, columns, panel) };
            true
        }
        _ => false,
    }
}

/// The most rows of activations of [`multiply_halves`].
pub(crate) const FEW: usize = 8;

/// The other way to a product, for a few rows of activations: no panel is stored, each value is used where it is widened.
///
/// Writes `sums[m][i]`, the product of row `m` of `x` and row `i` of `rows` as one fused chain over ascending columns from
/// 0, and returns true; or returns false, where the level has no such kernel or the rows are not whole groups of 32. Sums
/// beyond the last row of `rows` are written too.
///
/// # Panics
/// When there is no row in `rows` or more than [`COLS`], or `x` is not as many rows of their length as `sums` has, which is
/// at most [`FEW`].
pub(crate) fn multiply_halves(isa: Isa, rows: HalfRows<'_>, x: &[f32], sums: &mut [[f32; COLS]]) -> bool {
    match isa {
        Isa::Avx512Bw(_) | Isa::Avx512Vnni(_)
            if rows.row_bytes > 0 && rows.row_bytes.is_multiple_of(2 * x86::GROUP) =>
        {
            // SAFETY: both witnesses are built only where avx512f and avx512bw were detected.
            unsafe { x86::multiply_halves(rows, x, sums) };
            true
        }
        _ => false,
    }
}

mod x86 {
    use super::super::avx512::transpose_in_lanes;
    use super::{COLS, Half, HalfRows};
    use std::arch::x86_64::*;
    use std::ops::Range;

    /// Columns of a row that are read at once: 64 bytes.
    pub(super) const GROUP: usize = 32;

    /// How many bytes of a row on are prefetched.
    const AHEAD: usize = 256;

    /// The same where 16 rows are read and not 64, which leaves room in the L1 cache for more of each.
    const FEW_AHEAD: usize = 512;

    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn transpose_halves(rows: HalfRows<'_>, columns: &Range<usize>, panel: &mut [[[f32; COLS]; GROUP]]) {
        let HalfRows { bytes, row_bytes, half } = rows;
        let count = bytes.len() / row_bytes;
        assert!((1..=COLS).contains(&count) && columns.start <= columns.end && 2 * columns.end <= row_bytes);
        assert_eq!(columns.len(), GROUP * panel.len(), "a panel of the columns");
        for first in (0..count).step_by(16) {
            let mut starts = [bytes.as_ptr(); 16];
            for (i, start) in starts.iter_mut().enumerate() {
                *start = start.wrapping_add((first + i).min(count - 1) * row_bytes);
            }
            for (group, panel) in panel.iter_mut().enumerate() {
                let at = 2 * (columns.start + GROUP * group);
                // Behind the end of a row, that far into the row of the next panel.
                let ahead = AHEAD + if at + AHEAD < row_bytes { at } else { at + (COLS - 1) * row_bytes };
                let mut words = [_mm512_setzero_si512(); 16];
                for (words, start) in words.iter_mut().zip(starts) {
                    _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(ahead).cast());
                    // SAFETY: `start` is that of one of the rows, and `group` one of the panel's, so that the 64 bytes
                    // from `at` on end at `2 * columns.end` in the row or before, which is not behind the row's end
                    // (both checked above). The load takes any alignment.
                    *words = unsafe { _mm512_loadu_si512(start.wrapping_add(at).cast()) };
                }
                let words = transpose_words(words);
                for (word, panel) in words.into_iter().zip(panel.as_chunks_mut::<2>().0) {
                    let [even, odd] = widen(word, half);
                    for (values, panel) in [even, odd].into_iter().zip(panel) {
                        let panel = &mut panel.as_chunks_mut::<16>().0[first / 16];
                        // SAFETY: `panel` is 64 writable bytes, and the store takes any alignment.
                        unsafe { _mm512_storeu_ps(panel.as_mut_ptr(), values) };
                    }
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn multiply_halves(rows: HalfRows<'_>, x: &[f32], sums: &mut [[f32; COLS]]) {
        match sums.len() {
            0 => assert!(x.is_empty(), "activations without a row"),
            1 => multiply_rows::<1>(rows, x, sums),
            2 => multiply_rows::<2>(rows, x, sums),
            3 => multiply_rows::<3>(rows, x, sums),
            4 => multiply_rows::<4>(rows, x, sums),
            5 => multiply_rows::<5>(rows, x, sums),
            6 => multiply_rows::<6>(rows, x, sums),
            7 => multiply_rows::<7>(rows, x, sums),
            8 => multiply_rows::<8>(rows, x, sums),
            count => panic!("{count} rows of activations"),
        }
    }

    /// [`multiply_halves`] of `M` rows of activations. Rows of weights are taken by 16: as many as are a power of two
    /// apart can be read together without competing for the lines of the L1 cache.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn multiply_rows<const M: usize>(rows: HalfRows<'_>, x: &[f32], sums: &mut [[f32; COLS]]) {
        let HalfRows { bytes, row_bytes, half } = rows;
        let (count, groups) = (bytes.len() / row_bytes, row_bytes / (2 * GROUP));
        assert!((1..=COLS).contains(&count) && row_bytes == groups * 2 * GROUP, "rows of whole groups");
        let (x, rest) = x.as_chunks::<GROUP>();
        assert!(rest.is_empty() && x.len() == M * groups && sums.len() == M, "activations of the weights' columns");
        for first in (0..count).step_by(16) {
            let mut starts = [bytes.as_ptr(); 16];
            for (i, start) in starts.iter_mut().enumerate() {
                *start = start.wrapping_add((first + i).min(count - 1) * row_bytes);
            }
            let mut acc = [_mm512_setzero_ps(); M];
            for group in 0..groups {
                let at = 2 * GROUP * group;
                // Behind the end of a row, that far into the row after these 16.
                let ahead = FEW_AHEAD + if at + FEW_AHEAD < row_bytes { at } else { at + 15 * row_bytes };
                let mut words = [_mm512_setzero_si512(); 16];
                for (words, start) in words.iter_mut().zip(starts) {
                    _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(ahead).cast());
                    // SAFETY: `start` is that of one of the `count` rows in `bytes`, and each has `groups` groups of 64
                    // bytes, of which this is one. The load takes any alignment.
                    *words = unsafe { _mm512_loadu_si512(start.wrapping_add(at).cast()) };
                }
                for (i, word) in transpose_words(words).into_iter().enumerate() {
                    for (odd, values) in widen(word, half).into_iter().enumerate() {
                        for (m, acc) in acc.iter_mut().enumerate() {
                            let x = x[m * groups + group][2 * i + odd];
                            *acc = _mm512_fmadd_ps(_mm512_set1_ps(x), values, *acc);
                        }
                    }
                }
            }
            for (acc, sums) in acc.into_iter().zip(&mut *sums) {
                let sums = &mut sums.as_chunks_mut::<16>().0[first / 16];
                // SAFETY: `sums` is 64 writable bytes, and the store takes any alignment.
                unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), acc) };
            }
        }
    }

    /// Transposes 16 rows of 16 words.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn transpose_words(rows: [__m512i; 16]) -> [__m512i; 16] {
        let rows = rows.as_chunks::<4>().0;
        // Word `c` of each lane, of four rows. (Not a closure, which the compiler may leave a call.)
        let (a, b) = (transpose_in_lanes(rows[0]), transpose_in_lanes(rows[1]));
        let (c, d) = (transpose_in_lanes(rows[2]), transpose_in_lanes(rows[3]));
        let mut words = [_mm512_setzero_si512(); 16];
        for i in 0..4 {
            let low = [_mm512_shuffle_i32x4::<0x44>(a[i], b[i]), _mm512_shuffle_i32x4::<0x44>(c[i], d[i])];
            let high = [_mm512_shuffle_i32x4::<0xEE>(a[i], b[i]), _mm512_shuffle_i32x4::<0xEE>(c[i], d[i])];
            words[i] = _mm512_shuffle_i32x4::<0x88>(low[0], low[1]);
            words[4 + i] = _mm512_shuffle_i32x4::<0xDD>(low[0], low[1]);
            words[8 + i] = _mm512_shuffle_i32x4::<0x88>(high[0], high[1]);
            words[12 + i] = _mm512_shuffle_i32x4::<0xDD>(high[0], high[1]);
        }
        words
    }

    /// Numbers of the even halves, then those of the odd ones.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn even_then_odd() -> __m512i {
        const ORDER: [u16; 32] = {
            let mut order = [0; 32];
            let mut i = 0;
            while i < 16 {
                order[i] = 2 * i as u16;
                order[16 + i] = 2 * i as u16 + 1;
                i += 1;
            }
            order
        };
        // SAFETY: `ORDER` is 64 readable bytes, and the load takes any alignment.
        unsafe { _mm512_loadu_si512(ORDER.as_ptr().cast()) }
    }

    /// The low and the high half of each word, as f32.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn widen(words: __m512i, half: Half) -> [__m512; 2] {
        match half {
            Half::F16 => {
                // The even halves below the odd ones.
                let sorted = _mm512_permutexvar_epi16(even_then_odd(), words);
                [
                    _mm512_cvtph_ps(_mm512_castsi512_si256(sorted)),
                    _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(sorted)),
                ]
            }
            Half::Bf16 => [
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)),
                _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(0xFFFF_0000_u32 as i32))),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_of_every_row_and_column_arrives() {
        // All bit patterns, in rows of 96 halves; 1 to 64 rows of them, some of their columns.
        let halves: Vec<u16> = (0..=u16::MAX).cycle().take(96 * 720).collect();
        let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        for &isa in Isa::available() {
            for half in [Half::F16, Half::Bf16] {
                let value = |bits: u16| match half {
                    Half::F16 => half::f16::from_bits(bits).to_f32(),
                    Half::Bf16 => half::bf16::from_bits(bits).to_f32(),
                };
                let mut first = 0;
                for count in (0..).map(|i| [64, 1, 15, 16, 17, 47, 63][i % 7]) {
                    if first + count > 720 {
                        break;
                    }
                    for columns in [0..96, 32..64, 7..71] {
                        let rows = HalfRows { bytes: &bytes[first * 192..(first + count) * 192], row_bytes: 192, half };
                        let mut panel = vec![[-7.0f32; COLS]; columns.len()];
                        if !transpose_halves(isa, rows, &columns, &mut panel) {
                            continue;
                        }
                        for (k, column) in columns.enumerate() {
                            for row in 0..count {
                                let (found, bits) = (panel[k][row], halves[(first + row) * 96 + column]);
                                let equal = found == value(bits) || found.is_nan() && value(bits).is_nan();
                                assert!(equal, "{isa} {half:?}: row {row} of {count}, column {column}: {found}");
                            }
                        }
                    }
                    first += count;
                }
            }
        }
    }

    #[test]
    fn the_512_bit_levels_have_it() {
        for &isa in Isa::available() {
            let rows = HalfRows { bytes: &[0; 64], row_bytes: 64, half: Half::F16 };
            let has = transpose_halves(isa, rows, &(0..32), &mut [[1.0; COLS]; 32]);
            assert_eq!(has, isa.name().starts_with("avx512"), "{isa}");
            assert!(!transpose_halves(isa, rows, &(0..31), &mut [[1.0; COLS]; 31]), "{isa}: no whole group");
            assert_eq!(multiply_halves(isa, rows, &[1.0; 32], &mut [[1.0; COLS]]), has, "{isa}");
            let rows = HalfRows { bytes: &[0; 62], row_bytes: 62, half: Half::F16 };
            assert!(!multiply_halves(isa, rows, &[1.0; 31], &mut [[1.0; COLS]]), "{isa}: no whole group");
            let rows = HalfRows { bytes: &[], row_bytes: 0, half: Half::F16 };
            assert!(!multiply_halves(isa, rows, &[], &mut [[1.0; COLS]]), "{isa}: empty rows");
            assert!(!transpose_halves(isa, rows, &(0..0), &mut []), "{isa}: empty rows");
        }
    }

    #[test]
    fn a_product_of_few_rows_is_a_chain_over_the_columns() {
        // Finite halves of all magnitudes and signs in rows of 32 or 96.
        let halves: Vec<u16> = (0..64 * 96_usize).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 9) as u16 & 0xbbff).collect();
        let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        for (&isa, half) in Isa::available().iter().flat_map(|isa| [(isa, Half::F16), (isa, Half::Bf16)]) {
            let value = |bits: u16| match half {
                Half::F16 => half::f16::from_bits(bits).to_f32(),
                Half::Bf16 => half::bf16::from_bits(bits).to_f32(),
            };
            for (cols, count, m) in [32, 96].into_iter().flat_map(|cols| {
                [1, 15, 16, 17, 64].into_iter().flat_map(move |count| (1..=FEW).map(move |m| (cols, count, m)))
            }) {
                let x: Vec<f32> = (0..m * cols).map(|i| ((i * 7919) % 255) as f32 / 128.0 - 1.0).collect();
                let rows = HalfRows { bytes: &bytes[..count * 2 * cols], row_bytes: 2 * cols, half };
                let mut sums = vec![[f32::NAN; COLS]; m];
                if !multiply_halves(isa, rows, &x, &mut sums) {
                    continue;
                }
                for (x, sums) in x.chunks_exact(cols).zip(&sums) {
                    for (row, sum) in halves.chunks_exact(cols).zip(sums).take(count) {
                        let chain = x.iter().zip(row).fold(0.0f32, |sum, (&x, &bits)| x.mul_add(value(bits), sum));
                        assert_eq!(sum.to_bits(), chain.to_bits(), "{isa} {half:?}: {m} by {count} of {cols}");
                    }
                }
            }
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let Some(&isa) = Isa::available().iter().find(|isa| isa.name().starts_with("avx512")) else { return };
        let bytes = vec![0; 65 * 64];
        let refused = |bytes: &[u8], columns: Range<usize>, depth: usize| {
            let rows = HalfRows { bytes, row_bytes: 64, half: Half::F16 };
            let mut panel = vec![[0.0; COLS]; depth];
            let run = std::panic::AssertUnwindSafe(|| transpose_halves(isa, rows, &columns, &mut panel));
            std::panic::catch_unwind(run).is_err()
        };
        assert!(!refused(&bytes[..64], 0..32, 32));
        assert!(refused(&bytes[..0], 0..32, 32), "no row");
        assert!(refused(&bytes, 0..32, 32), "65 rows");
        assert!(refused(&bytes[..64], 1..33, 32), "beyond the row");
        assert!(refused(&bytes[..64], 0..32, 64), "a deeper panel");

        let refused = |bytes: &[u8], x: usize, m: usize| {
            let rows = HalfRows { bytes, row_bytes: 64, half: Half::F16 };
            let run = || multiply_halves(isa, rows, &vec![0.0; x], &mut vec![[0.0; COLS]; m]);
            std::panic::catch_unwind(run).is_err()
        };
        assert!(!refused(&bytes[..64], 64, 2));
        assert!(refused(&bytes[..0], 64, 2), "no row");
        assert!(refused(&bytes, 64, 2), "65 rows");
        assert!(refused(&bytes[..64], 96, 2), "a third row");
        assert!(refused(&bytes[..64], 63, 2), "a row that is short");
        assert!(refused(&bytes[..64], 1, 0), "a value of no row");
        assert!(!refused(&bytes[..64], 0, 0), "no row is nothing to do");
        assert!(refused(&bytes[..64], 32 * (FEW + 1), FEW + 1), "many");
    }
}
