//! The one order of every row reduction, and the register tile of every product.
//!
//! A row is summed in 16 lanes: lane `i` takes the elements `16 * j + i` in order, a short tail reaches fewer lanes,
//! and the lanes are added 8 + 8, 4 + 4, 2 + 2, 1 + 1. The number of lanes is part of the result, not of the CPU:
//! a level with 8-wide registers uses two.

/// Number of lanes of a reduction.
pub(crate) const LANES: usize = 16;

/// Adds the lanes: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
#[inline(always)]
pub(crate) fn tree_sum(mut lanes: [f32; LANES]) -> f32 {
    for i in 0..8 {
        lanes[i] += lanes[i + 8];
    }
    for i in 0..4 {
        lanes[i] += lanes[i + 4];
    }
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
}

/// The largest lane; a NaN counts only in lane 0.
#[inline(always)]
pub(crate) fn tree_max(lanes: [f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|i| larger(lanes[i + 8], lanes[i]));
    let four: [f32; 4] = std::array::from_fn(|i| larger(eight[i + 4], eight[i]));
    larger(larger(four[3], four[1]), larger(four[2], four[0]))
}

/// `a` if it is greater than `b`, else `b` (also when `a` is NaN): one instruction on x86, unlike `f32::max`.
#[inline(always)]
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// `a` if it is less than `b`, else `b` (also when `a` is NaN).
#[inline(always)]
pub(crate) fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// The squares of a row added up in lanes, each step fused.
#[inline(always)]
pub(crate) fn add_squares(row: &[f32]) -> [f32; LANES] {
    let (chunks, tail) = row.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = x.mul_add(x, *lane);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(tail) {
        *lane = x.mul_add(x, *lane);
    }
    lanes
}

/// Sum of squares of a row, in the order of this module.
#[inline(always)]
pub(crate) fn sum_of_squares(row: &[f32]) -> f32 {
    tree_sum(add_squares(row))
}

/// `1 / sqrt(mean of squares + eps)` of a row, the factor of its RMSNorm. NaN where the sum overflowed: a factor of 0 would
/// make a plausible row of zeros of it.
#[inline(always)]
pub(crate) fn inverse_root(sum_of_squares: f32, count: usize, eps: f32) -> f32 {
    let mean = sum_of_squares / count as f32 + eps;
    if mean < f32::INFINITY { 1.0 / mean.sqrt() } else { f32::NAN }
}

/// The right-hand side of a product: `depth` rows of `stride` groups of 16 values.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    /// `depth * stride` groups.
    pub(crate) groups: &'a [[f32; LANES]],
    /// Groups per row.
    pub(crate) stride: usize,
}

/// The values of one register tile: `M` rows by `N` groups of lanes.
pub(crate) type Sums<const M: usize, const N: usize> = [[[f32; LANES]; N]; M];

/// One register tile: `sums[i][j] + sum over p of left[i][p] * panel[p][column + j]`, one fused chain over ascending `p`
/// per value.
///
/// `M` and `N` are what fits the registers; neither changes any value's order of operations. By value, and stored by
/// single groups afterwards: so the tile lives in registers only.
#[inline(always)]
pub(crate) fn tile<const M: usize, const N: usize>(
    mut sums: Sums<M, N>,
    left: &[&[f32]; M],
    panel: Panel<'_>,
    column: usize,
) -> Sums<M, N> {
    let depth = panel.groups.len() / panel.stride;
    assert!(column + N <= panel.stride && left.iter().all(|row| row.len() == depth));
    for (p, row) in panel.groups.chunks_exact(panel.stride).enumerate() {
        let row: &[[f32; LANES]] = &row[column..column + N];
        for i in 0..M {
            let x = left[i][p];
            for j in 0..N {
                for lane in 0..LANES {
                    sums[i][j][lane] = x.mul_add(row[j][lane], sums[i][j][lane]);
                }
            }
        }
    }
    sums
}
