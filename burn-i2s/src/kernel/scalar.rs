//! Portable code, and the definition of the product: every other level gives these bits.

use super::{Job, Output};
use crate::layout::{BLOCK, BLOCK_BYTES};
use crate::pack::unpack_block;

pub(super) fn run<T: Output>(mut job: Job<'_, T>) {
    let mut weights = vec![[0; BLOCK]; job.blocks];
    for (column, packed) in (0..job.out.cols()).zip(job.weights.chunks_exact(job.blocks)) {
        unpack_row(packed, &mut weights);
        for (row, codes) in job.x.codes.chunks_exact(job.blocks).enumerate() {
            // `dot(code + 1, x) - sum(x)`, as the vector levels form it: they agree even when a caller's `sums` are
            // not the sums of the codes.
            let sum = dot(codes, &weights).wrapping_sub(job.x.sums[row]);
            job.out.row(row)[column] = T::of(sum, job.weight_scale, job.x.scales[row]);
        }
    }
}

fn unpack_row(packed: &[[u8; BLOCK_BYTES]], weights: &mut [[i8; BLOCK]]) {
    for (packed, weights) in packed.iter().zip(weights) {
        unpack_block(packed, weights);
    }
}

/// The sum of code times activation over a row. At most `3 * 128` for each column in magnitude, which
/// [`MAX_COLUMNS`](crate::matrix::MAX_COLUMNS) keeps far inside an i32.
fn dot(codes: &[[i8; BLOCK]], weights: &[[i8; BLOCK]]) -> i32 {
    let terms = codes.as_flattened().iter().zip(weights.as_flattened());
    terms.map(|(&x, &weight)| i32::from(x) * (i32::from(weight) + 1)).sum()
}
