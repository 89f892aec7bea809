//! Transposition of f32 blocks: the one data movement that the compiler does not vectorise by itself.

use crate::isa::Isa;

/// A borrowed row-major source: `rows` rows of `cols` values, `stride` values apart.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) stride: usize,
}

/// Writes `out[c * out_stride + r] = source[r][c]` and leaves the rest of `out` alone.
///
/// # Panics
/// When the source or `out` is shorter than its shape says.
pub(crate) fn transpose(isa: Isa, source: Rows<'_>, out: &mut [f32], out_stride: usize) {
    let Rows { values, rows, cols, stride } = source;
    if rows == 0 || cols == 0 {
        return;
    }
    assert!(cols <= stride && (rows - 1) * stride + cols <= values.len(), "transpose source too short");
    assert!(rows <= out_stride && (cols - 1) * out_stride + rows <= out.len(), "transpose output too short");
    match isa {
        Isa::Scalar => block(source, (0, 0), out, out_stride),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) | Isa::AvxVnni(_) | Isa::Avx512Bw(_) | Isa::Avx512Vnni(_) => {
            let (full_rows, full_cols) = (rows / 8 * 8, cols / 8 * 8);
            for r in (0..full_rows).step_by(8) {
                for c in (0..full_cols).step_by(8) {
                    // SAFETY: every vector witness includes avx2. The 8x8 block at (r, c) lies inside both shapes,
                    // since r + 8 <= rows and c + 8 <= cols, and both shapes were checked against the slices.
                    unsafe {
                        x86::transpose_8x8(
                            values.as_ptr().add(r * stride + c),
                            stride,
                            out.as_mut_ptr().add(c * out_stride + r),
                            out_stride,
                        );
                    }
                }
            }
            block(source, (full_rows, 0), out, out_stride);
            block(Rows { rows: full_rows, ..source }, (0, full_cols), out, out_stride);
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon(_) | Isa::NeonDotprod(_) => block(source, (0, 0), out, out_stride),
    }
}

/// The part of the source from `first` = (row, column) on.
fn block(source: Rows<'_>, first: (usize, usize), out: &mut [f32], out_stride: usize) {
    for r in first.0..source.rows {
        for c in first.1..source.cols {
            out[c * out_stride + r] = source.values[r * source.stride + c];
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Transposes one 8x8 block.
    ///
    /// # Safety
    /// - For each `i` in 0..8, `from + i * from_stride` is valid for reading 8 values.
    /// - For each `i` in 0..8, `to + i * to_stride` is valid for writing 8 values.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(super) unsafe fn transpose_8x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        // halves[4 * h + i]: columns 4 * h .. 4 * h + 4 of row i, and in the upper half of row 4 + i. Inserting a half
        // from memory costs no shuffle, and shuffles are what limits a transposition.
        let mut halves = [_mm256_setzero_ps(); 8];
        for h in 0..2 {
            for i in 0..4 {
                // SAFETY: the caller vouches for 8 readable values at each row.
                let (low, high) = unsafe {
                    (
                        _mm_loadu_ps(from.add(i * from_stride + 4 * h)),
                        _mm_loadu_ps(from.add((4 + i) * from_stride + 4 * h)),
                    )
                };
                halves[4 * h + i] = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high);
            }
        }
        for h in 0..2 {
            let [a, b, c, d] = [halves[4 * h], halves[4 * h + 1], halves[4 * h + 2], halves[4 * h + 3]];
            let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
            let columns = [
                _mm256_shuffle_ps::<0x44>(ab_low, cd_low),
                _mm256_shuffle_ps::<0xEE>(ab_low, cd_low),
                _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
                _mm256_shuffle_ps::<0xEE>(ab_high, cd_high),
            ];
            for (j, column) in columns.into_iter().enumerate() {
                // SAFETY: the caller vouches for 8 writable values at each row.
                unsafe { _mm256_storeu_ps(to.add((4 * h + j) * to_stride), column) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_moves_every_value_and_nothing_else() {
        for (rows, cols) in [(1, 1), (8, 8), (7, 9), (16, 24), (17, 5), (64, 80)] {
            let (stride, out_stride) = (cols + 3, rows + 2);
            let values: Vec<f32> = (0..rows * stride).map(|i| i as f32).collect();
            for &isa in Isa::available() {
                let mut out = vec![-1.0; cols * out_stride];
                transpose(isa, Rows { values: &values, rows, cols, stride }, &mut out, out_stride);
                for c in 0..cols {
                    for r in 0..out_stride {
                        let expected = if r < rows { values[r * stride + c] } else { -1.0 };
                        assert_eq!(out[c * out_stride + r], expected, "{isa} {rows}x{cols} at {r},{c}");
                    }
                }
            }
        }
    }
}
