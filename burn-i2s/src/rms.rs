//! The statistics of RMSNorm, for a few rows at once.

use crate::isa::Isa;
use crate::kernel::float::multiversion;
use crate::lanes::{LANES, add_squares, inverse_root, tree_sum};

/// Rows whose sums are computed together. A row's sum of squares is one chain per lane and waits for each addition;
/// four rows fill the wait.
pub(crate) const TOGETHER: usize = 4;

/// `1 / sqrt(mean of squares + eps)` of each row of `x`, at most [`TOGETHER`] rows of `cols` values.
pub(crate) fn inverse_rms_together(isa: Isa, x: &[f32], cols: usize, eps: f32) -> [f32; TOGETHER] {
    // The lanes pass through memory between two functions: in one, the compiler would arrange the accumulators for
    // their final addition and not for the loop.
    let mut lanes = [[0.0; LANES]; TOGETHER];
    if x.len() == TOGETHER * cols {
        squares_of_all(isa, x, &mut lanes);
    } else {
        for (row, lanes) in x.chunks_exact(cols).zip(&mut lanes) {
            squares(isa, row, lanes);
        }
    }
    lanes.map(|lanes| inverse_root(tree_sum(lanes), cols, eps))
}

#[inline(always)]
fn squares_body(row: &[f32], lanes: &mut [f32; LANES]) {
    *lanes = add_squares(row);
}

/// The same for [`TOGETHER`] rows.
#[inline(always)]
fn squares_of_all_body(x: &[f32], lanes: &mut [[f32; LANES]; TOGETHER]) {
    let cols = x.len() / TOGETHER;
    let rows: [&[f32]; TOGETHER] = std::array::from_fn(|i| &x[i * cols..(i + 1) * cols]);
    let chunks = rows.map(|row| row.as_chunks::<LANES>());
    let mut sums = [[0.0f32; LANES]; TOGETHER];
    for at in 0..cols / LANES {
        for row in 0..TOGETHER {
            let chunk = &chunks[row].0[at];
            for lane in 0..LANES {
                sums[row][lane] = chunk[lane].mul_add(chunk[lane], sums[row][lane]);
            }
        }
    }
    *lanes = sums;
    for (lanes, (_, tail)) in lanes.iter_mut().zip(chunks) {
        for (lane, &x) in lanes.iter_mut().zip(tail) {
            *lane = x.mul_add(x, *lane);
        }
    }
}

multiversion!(fn squares(row: &[f32], lanes: &mut [f32; LANES]) = squares_body);
multiversion!(fn squares_of_all(x: &[f32], lanes: &mut [[f32; LANES]; TOGETHER]) = squares_of_all_body);
