//! Chains of operations on each token by itself, a piece of the tokens at a time.
//!
//! An operation alone shares its work over threads and waits for all of them. In a chain of ten such operations that
//! waiting costs a second thread a third of its worth when the model is small. Here each thread takes a piece of the
//! tokens through the whole chain; and of a long text, one thread too takes a piece at a time, whose intermediate results
//! stay in its caches and need no memory for all tokens. Every row has the bits that it has among all rows.

use crate::isa::Isa;
use crate::{buffers, ops, threads};
use burn::tensor::{DType, Tensor, TensorData};
use rayon::prelude::*;
use std::ops::Range;

/// Rows of a piece when there are many: enough that staging weights is a small part of a product, and few enough for a
/// cache; more pieces than threads, so that a thread that is held up leaves some to others.
const ROWS: usize = 128;

/// The rows of a tensor, `[tokens, features]`, in pieces that stay apart from one [`step`](Self::step) to the next, and are
/// not put together only to be divided again. Any thread may take any piece; mostly each takes its own again.
#[derive(Debug)]
pub struct Pieces {
    rows: usize,
    pieces: Vec<Tensor<2>>,
}

impl Pieces {
    /// Divides a tensor for the threads of rayon's current pool, in pieces of `fewest` rows or more. With fewer than that a
    /// thread it stays whole.
    pub fn of(tensor: Tensor<2>, fewest: usize) -> Self {
        let [rows, _] = tensor.dims();
        let threads = threads::available();
        let count = match rows / threads {
            each if each < fewest.max(1) => 1,
            each => threads * (each / ROWS.max(fewest.saturating_mul(2))).max(1),
        };
        if count == 1 {
            return Self { rows, pieces: vec![tensor] };
        }
        Self { rows, pieces: (0..count).map(|piece| tensor.clone().slice(range(rows, piece, count))).collect() }
    }

    /// Calls `f` with each piece, the same rows of `inputs`, and which rows they are. The piece becomes the first of what
    /// `f` returns; the others, as wide as `widths` says, are put together over all pieces.
    ///
    /// Several pieces run on the threads of rayon's current pool, and the operations inside `f` stay on the thread that
    /// calls them. The operations on a tensor that is whole use the threads.
    ///
    /// # Panics
    /// When an input has other rows than the tensor, or what `f` returns has not the rows of its piece, or an output another
    /// width than its own.
    pub fn step<const M: usize, const N: usize>(
        &mut self,
        inputs: [Tensor<2>; M],
        widths: [usize; N],
        f: impl Fn(Tensor<2>, [Tensor<2>; M], Range<usize>) -> (Tensor<2>, [Tensor<2>; N]) + Sync,
    ) -> [Tensor<2>; N] {
        let rows = self.rows;
        assert!(inputs.iter().all(|input| input.dims()[0] == rows), "tensors of {rows} rows");
        let f = |piece, inputs, range: Range<usize>| {
            let rows = range.len();
            let (piece, outputs) = f(piece, inputs, range);
            assert_eq!(piece.dims()[0], rows, "rows of a piece");
            for (output, width) in outputs.iter().zip(widths) {
                assert_eq!(output.dims(), [rows, width], "rows and width of an output");
            }
            (piece, outputs)
        };
        let count = self.pieces.len();
        if count == 1 {
            let (piece, outputs) = f(self.pieces.swap_remove(0), inputs, 0..rows);
            self.pieces.push(piece);
            return outputs;
        }
        let isa = Isa::current();
        let device = self.pieces[0].device();
        let mut outputs = widths.map(|width| buffers::take(rows * width));
        // Views and parts, made here: each thread is given its own.
        let mut rest = outputs.each_mut().map(Vec::as_mut_slice);
        let parts: Vec<_> = (0..count)
            .map(|piece| {
                let range = range(rows, piece, count);
                let views = inputs.each_ref().map(|input| input.clone().slice(range.clone()));
                let mut part =
                    rest.each_mut().into_iter().zip(widths).map(|(rest, width)| {
                        rest.split_off_mut(..range.len() * width).expect("the outputs have all rows")
                    });
                let part: [&mut [f32]; N] = std::array::from_fn(|_| part.next().expect("one part an output"));
                (views, part, range)
            })
            .collect();
        let run = |(piece, (views, part, range))| {
            let run = || {
                let (piece, outputs) = f(piece, views, range);
                // Here, while they are in this thread's cache.
                for (output, part) in outputs.into_iter().zip::<[&mut [f32]; N]>(part) {
                    ops::read_last(output, |values| part.copy_from_slice(values));
                }
                piece
            };
            isa.scope(|| threads::serially(run))
        };
        let pieces = std::mem::take(&mut self.pieces);
        self.pieces = if threads::available() == 1 {
            pieces.into_iter().zip(parts).map(run).collect()
        } else {
            pieces.into_par_iter().zip(parts).with_max_len(1).map(run).collect()
        };
        inputs.into_iter().for_each(|input| ops::read_last(input, |_| ()));
        let mut outputs = outputs
            .into_iter()
            .zip(widths)
            .map(|(values, width)| Tensor::from_data(TensorData::new(values, [rows, width]), (&device, DType::F32)));
        std::array::from_fn(|_| outputs.next().expect("one tensor an output"))
    }

    /// The tensor.
    pub fn join(mut self) -> Tensor<2> {
        if self.pieces.len() == 1 { self.pieces.swap_remove(0) } else { Tensor::cat(self.pieces, 0) }
    }
}

/// The rows of piece `piece` of `count`.
fn range(rows: usize, piece: usize, count: usize) -> Range<usize> {
    rows * piece / count..rows * (piece + 1) / count
}
