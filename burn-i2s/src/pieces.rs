//! A chain of operations on each token by itself, shared out over threads by tokens.
//!
//! An operation alone shares its work over threads and waits for all of them. In a chain of ten such operations that
//! waiting costs a second thread a third of its worth when the model is small. Here each thread takes a piece of the
//! tokens through the whole chain. Every row has the bits that it has among all rows.

use crate::isa::Isa;
use crate::threads;
use burn::tensor::Tensor;
use rayon::prelude::*;
use std::ops::Range;

/// Rows of a piece when there are many: more pieces than threads, so that one that is held up leaves some to others.
const ROWS: usize = 128;

/// The most pieces for each thread.
const PIECES_PER_THREAD: usize = 4;

/// Calls `f` with pieces of the rows of `inputs` on the threads of rayon's current pool, and puts what it returns, the
/// same rows of each of `N` tensors, together in order. `f` is also told which rows they are. The operations inside `f`
/// stay on the thread that calls them.
///
/// With fewer than `fewest` rows a thread `f` is called once for all rows, and its operations use the threads.
///
/// # Panics
/// When there are no inputs or they differ in rows.
pub fn in_pieces<const M: usize, const N: usize>(
    inputs: [Tensor<2>; M],
    fewest: usize,
    f: impl Fn([Tensor<2>; M], Range<usize>) -> [Tensor<2>; N] + Sync,
) -> [Tensor<2>; N] {
    let rows = inputs[0].dims()[0];
    assert!(inputs.iter().all(|input| input.dims()[0] == rows), "tensors of {rows} rows");
    let threads = threads::available();
    if threads == 1 || rows / threads < fewest {
        return f(inputs, 0..rows);
    }
    let isa = Isa::current();
    let pieces = threads * (rows / (threads * ROWS)).clamp(1, PIECES_PER_THREAD);
    let range = |piece: usize| rows * piece / pieces..rows * (piece + 1) / pieces;
    // Views, made here: each thread is given its own.
    let views: Vec<_> =
        (0..pieces).map(|piece| inputs.each_ref().map(|input| input.clone().slice(range(piece)))).collect();
    drop(inputs);
    let parts: Vec<[Tensor<2>; N]> = views
        .into_par_iter()
        .enumerate()
        .with_max_len(1)
        .map(|(piece, views)| isa.scope(|| threads::serially(|| f(views, range(piece)))))
        .collect();
    let mut columns: [Vec<Tensor<2>>; N] = std::array::from_fn(|_| Vec::with_capacity(pieces));
    for part in parts {
        for (column, tensor) in columns.iter_mut().zip(part) {
            column.push(tensor);
        }
    }
    columns.map(|parts| Tensor::cat(parts, 0))
}
