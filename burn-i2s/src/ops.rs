//! The Burn operations: an extension trait that Flex and NdArray implement, and the functions on [`Tensor`] above it.
//!
//! Weights are lent, not passed: [`with_bytes`] and [`with_floats`] give a parameter's memory (usually a window of a
//! mapped file) for the length of a closure, and the operations take checked views of it as ordinary arguments.
//! Activations are `[tokens, features]` f32 tensors, taken by value: where nothing else holds them they are written in
//! place, or their buffers kept for later results.
//!
//! Every operation reads [`Isa::current`](crate::isa::Isa::current) once and runs on rayon's current thread pool. None
//! calls a Burn built-in, so the bits of a result depend on neither the Burn backend, nor the instruction set, nor the
//! number of threads.

#![cfg_attr(
    feature = "ndarray",
    allow(deprecated, reason = "upstream deprecates NdArray, which the trait below must name")
)]

mod body;

use crate::attention::AttentionShape;
use crate::backend::CpuBackend;
use crate::dense::DenseMatrix;
use crate::elementwise::Activation;
use crate::matrix::TernaryMatrix;
use crate::pooling::Pooling;
use crate::rope::RopeTable;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, TensorMetadata, backend_extension};
use burn::tensor::{Int, Tensor};
use std::ops::Range;

/// One ternary layer as an operation reads it.
#[derive(Clone, Copy, Debug)]
pub struct TernaryLayer<'a> {
    /// The packed weights, `[out_features, in_features]`.
    pub weight: TernaryMatrix<'a>,
    /// The weight of the RMSNorm on the layer's input, `[in_features]`; `None` quantises the input as it comes.
    pub norm: Option<&'a [f32]>,
}

/// How the exact integer product of a ternary layer is computed. Both give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TernaryProduct {
    /// Int8 activations times 2-bit codes in integer arithmetic.
    Integer,
    /// The same integers held as f32, multiplied on the dense path. Exact while `127 * in_features < 2^24`.
    Float,
}

/// The operations of a BitNet forward on a CPU backend.
///
/// Implemented for Burn's `Flex` and `NdArray`, and through them for `Dispatch`; applications call the functions of
/// this module instead.
#[backend_extension(Flex: cfg(feature = "flex"), NdArray: cfg(feature = "ndarray"))]
pub trait I2sOps: Backend {
    /// Lends the bytes of a U8 tensor; returns how many there are (an operation must return something).
    fn lend_bytes(tensor: IntTensor<Self>, read: &mut dyn FnMut(&[u8])) -> usize;
    /// Lends the values of an f32 tensor, and keeps the buffer for later results if nothing else holds it; returns how many
    /// there are.
    fn lend_floats(tensor: FloatTensor<Self>, read: &mut dyn FnMut(&[f32])) -> usize;
    /// See [`gather_rows`].
    fn gather_rows(indices: IntTensor<Self>, table: &DenseMatrix<'_>, scale: f32) -> FloatTensor<Self>;
    /// See [`ternary_linear`].
    fn ternary_linear(
        input: FloatTensor<Self>,
        layers: &[TernaryLayer<'_>],
        rms_norm_eps: f32,
        product: TernaryProduct,
    ) -> Vec<FloatTensor<Self>>;
    /// See [`gated_ternary_linear`].
    fn gated_ternary_linear(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        activation: Activation,
        layer: &TernaryLayer<'_>,
        rms_norm_eps: f32,
        product: TernaryProduct,
    ) -> FloatTensor<Self>;
    /// See [`dense_linear`].
    fn dense_linear(input: FloatTensor<Self>, weights: &[DenseMatrix<'_>]) -> Vec<FloatTensor<Self>>;
    /// See [`rms_norm`].
    fn rms_norm(input: FloatTensor<Self>, weight: &[f32], eps: f32) -> FloatTensor<Self>;
    /// See [`residual_add`].
    fn residual_add(
        hidden: FloatTensor<Self>,
        delta: FloatTensor<Self>,
        post_norm: Option<&[f32]>,
        eps: f32,
    ) -> FloatTensor<Self>;
    /// See [`head_norm_rope`].
    fn head_norm_rope(
        heads: FloatTensor<Self>,
        weight: &[f32],
        eps: f32,
        table: &RopeTable,
        positions: &[u32],
    ) -> FloatTensor<Self>;
    /// See [`attention()`] and [`attention_of`].
    fn attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        shape: &AttentionShape,
        offsets: &[usize],
        queries: Option<&[Range<usize>]>,
    ) -> FloatTensor<Self>;
    /// See [`select_rows`].
    fn select_rows(input: FloatTensor<Self>, rows: &[usize]) -> FloatTensor<Self>;
    /// See [`gated_activation`].
    fn gated_activation(gate: FloatTensor<Self>, up: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self>;
    /// See [`pool`].
    fn pool(hidden: FloatTensor<Self>, offsets: &[usize], pooling: Pooling) -> FloatTensor<Self>;
}

/// Calls `read` with the bytes of U8 tensors, in order.
pub fn with_bytes<const D: usize, R>(tensors: &[Tensor<D, Int>], read: impl FnOnce(&[&[u8]]) -> R) -> R {
    lend_all(tensors, &|tensor, each| Dispatch::lend_bytes(tensor.clone().into_dispatch(), each), read)
}

/// Calls `read` with the values of f32 tensors, in order.
pub fn with_floats<R>(tensors: &[Tensor<1>], read: impl FnOnce(&[&[f32]]) -> R) -> R {
    lend_all(tensors, &|tensor, each| Dispatch::lend_floats(tensor.clone().into_dispatch(), each), read)
}

/// Calls `read` with the values of a tensor that is not needed any more: its buffer is kept for later results.
pub(crate) fn read_last(tensor: Tensor<2>, read: impl FnOnce(&[f32])) {
    let mut read = Some(read);
    Dispatch::lend_floats(tensor.into_dispatch(), &mut |values| {
        if let Some(read) = read.take() {
            read(values);
        }
    });
}

/// Lends one tensor's values to a closure.
type LendOne<'a, T, E> = &'a dyn Fn(&T, &mut dyn FnMut(&[E])) -> usize;

/// Lends several tensors at once, each inside the closure of the one before.
fn lend_all<T, E, R>(tensors: &[T], lend_one: LendOne<'_, T, E>, read: impl FnOnce(&[&[E]]) -> R) -> R {
    fn nest<T, E>(tensors: &[T], lend_one: LendOne<'_, T, E>, lent: &[&[E]], read: &mut dyn FnMut(&[&[E]])) {
        match tensors.split_first() {
            None => read(lent),
            Some((first, rest)) => {
                lend_one(first, &mut |slice| {
                    let mut lent = lent.to_vec();
                    lent.push(slice);
                    nest(rest, lend_one, &lent, read);
                });
            }
        }
    }
    let mut read = Some(read);
    let mut result = None;
    nest(tensors, lend_one, &[], &mut |slices| result = read.take().map(|read| read(slices)));
    result.expect("a backend calls the closure it lends to exactly once")
}

/// Rows of a table, decoded and scaled: `out[i] = scale * table[indices[i]]`, `[indices, table columns]`.
///
/// # Panics
/// When an index is not a row of the table.
pub fn gather_rows(indices: Tensor<1, Int>, table: &DenseMatrix<'_>, scale: f32) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::gather_rows(indices.into_dispatch(), table, scale))
}

/// BitLinear layers that read the same input: `[tokens, in_features]` to one `[tokens, out_features]` each.
///
/// Per layer and token: `x' = rms_norm(x)`, `s = 127 / max(max|x'|, 1e-5)`, `code = round_half_even(x' * s)`, and
/// `y = (sum(code * weight) * weight_scale) / s` with an exact integer sum.
///
/// # Panics
/// When the input's width is not every layer's `in_features`.
pub fn ternary_linear(
    input: Tensor<2>,
    layers: &[TernaryLayer<'_>],
    rms_norm_eps: f32,
    product: TernaryProduct,
) -> Vec<Tensor<2>> {
    wrap_all(Dispatch::ternary_linear(input.into_dispatch(), layers, rms_norm_eps, product))
}

/// [`ternary_linear`] of [`gated_activation`], whose result is never stored: the same bits.
///
/// # Panics
/// When the shapes of `gate` and `up` differ, or their width is not the layer's `in_features`.
pub fn gated_ternary_linear(
    gate: Tensor<2>,
    up: Tensor<2>,
    activation: Activation,
    layer: &TernaryLayer<'_>,
    rms_norm_eps: f32,
    product: TernaryProduct,
) -> Tensor<2> {
    let [gate, up] = [gate, up].map(Tensor::into_dispatch);
    Tensor::from_dispatch(Dispatch::gated_ternary_linear(gate, up, activation, layer, rms_norm_eps, product))
}

/// Plain linear layers without bias that read the same input: `y = x * weight^T`, `[tokens, in_features]` to one
/// `[tokens, out_features]` each.
///
/// # Panics
/// When the input's width is not every weight's number of columns.
pub fn dense_linear(input: Tensor<2>, weights: &[DenseMatrix<'_>]) -> Vec<Tensor<2>> {
    wrap_all(Dispatch::dense_linear(input.into_dispatch(), weights))
}

/// `y = x / sqrt(mean(x^2) + eps) * weight` for each row of `[tokens, features]`.
///
/// # Panics
/// When the input's width is not the weight's length.
pub fn rms_norm(input: Tensor<2>, weight: &[f32], eps: f32) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::rms_norm(input.into_dispatch(), weight, eps))
}

/// `hidden + delta`, or `hidden + rms_norm(delta)` where the architecture normalises a sub-layer's output.
///
/// # Panics
/// When the shapes differ, or the width is not the norm's length.
pub fn residual_add(hidden: Tensor<2>, delta: Tensor<2>, post_norm: Option<&[f32]>, eps: f32) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::residual_add(hidden.into_dispatch(), delta.into_dispatch(), post_norm, eps))
}

/// RMSNorm of each head, then its rotation by the token's position; `[tokens, heads * head_dim]`.
///
/// # Panics
/// When the width is not whole heads, there is not one position a token, or a position is beyond the table.
pub fn head_norm_rope(heads: Tensor<2>, weight: &[f32], eps: f32, table: &RopeTable, positions: &[u32]) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::head_norm_rope(heads.into_dispatch(), weight, eps, table, positions))
}

/// Grouped-query attention of each text with itself: `[tokens, heads * head_dim]` and twice
/// `[tokens, kv heads * head_dim]` to `[tokens, heads * head_dim]`. Text `i` is the tokens `offsets[i]..offsets[i + 1]`.
///
/// # Panics
/// When the shapes or offsets do not fit together.
pub fn attention(
    query: Tensor<2>,
    key: Tensor<2>,
    value: Tensor<2>,
    shape: &AttentionShape,
    offsets: &[usize],
) -> Tensor<2> {
    let [query, key, value] = [query, key, value].map(Tensor::into_dispatch);
    Tensor::from_dispatch(Dispatch::attention(query, key, value, shape, offsets, None))
}

/// [`attention()`] of some tokens alone: in text `i` those at the positions `queries[i]`. `query` and the result hold the
/// rows of those tokens, text after text; each has the bits it has among all.
///
/// # Panics
/// As [`attention()`]; and when there is not one range a text, or one leaves its text.
pub fn attention_of(
    query: Tensor<2>,
    key: Tensor<2>,
    value: Tensor<2>,
    shape: &AttentionShape,
    offsets: &[usize],
    queries: &[Range<usize>],
) -> Tensor<2> {
    let [query, key, value] = [query, key, value].map(Tensor::into_dispatch);
    Tensor::from_dispatch(Dispatch::attention(query, key, value, shape, offsets, Some(queries)))
}

/// Some rows of a tensor, in the order given: `[tokens, features]` to `[rows, features]`.
///
/// # Panics
/// When there is no such row.
pub fn select_rows(input: Tensor<2>, rows: &[usize]) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::select_rows(input.into_dispatch(), rows))
}

/// `activation(gate) * up`, element by element.
///
/// # Panics
/// When the shapes differ.
pub fn gated_activation(gate: Tensor<2>, up: Tensor<2>, activation: Activation) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::gated_activation(gate.into_dispatch(), up.into_dispatch(), activation))
}

/// One row per text: `[tokens, features]` to `[texts, features]`, with the offsets of [`attention()`].
///
/// # Panics
/// When the offsets do not cover the tokens, or a text is empty.
pub fn pool(hidden: Tensor<2>, offsets: &[usize], pooling: Pooling) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::pool(hidden.into_dispatch(), offsets, pooling))
}

fn wrap_all(outputs: Vec<FloatTensor<Dispatch>>) -> Vec<Tensor<2>> {
    outputs.into_iter().map(Tensor::from_dispatch).collect()
}

/// The same implementation for each backend; what differs is in [`crate::backend`].
macro_rules! implement {
    ($backend:ty) => {
        impl I2sOps for $backend {
            fn lend_bytes(tensor: IntTensor<Self>, read: &mut dyn FnMut(&[u8])) -> usize {
                <Self as CpuBackend>::with_bytes(&tensor, read);
                tensor.shape().num_elements()
            }
            fn lend_floats(tensor: FloatTensor<Self>, read: &mut dyn FnMut(&[f32])) -> usize {
                body::lend_floats::<Self>(tensor, read)
            }
            fn gather_rows(indices: IntTensor<Self>, table: &DenseMatrix<'_>, scale: f32) -> FloatTensor<Self> {
                body::gather_rows::<Self>(&indices, table, scale)
            }
            fn ternary_linear(
                input: FloatTensor<Self>,
                layers: &[TernaryLayer<'_>],
                rms_norm_eps: f32,
                product: TernaryProduct,
            ) -> Vec<FloatTensor<Self>> {
                body::ternary_linear::<Self>(input, layers, rms_norm_eps, product)
            }
            fn gated_ternary_linear(
                gate: FloatTensor<Self>,
                up: FloatTensor<Self>,
                activation: Activation,
                layer: &TernaryLayer<'_>,
                rms_norm_eps: f32,
                product: TernaryProduct,
            ) -> FloatTensor<Self> {
                body::gated_ternary_linear::<Self>(gate, up, activation, layer, rms_norm_eps, product)
            }
            fn dense_linear(input: FloatTensor<Self>, weights: &[DenseMatrix<'_>]) -> Vec<FloatTensor<Self>> {
                body::dense_linear::<Self>(input, weights)
            }
            fn rms_norm(input: FloatTensor<Self>, weight: &[f32], eps: f32) -> FloatTensor<Self> {
                body::rms_norm::<Self>(input, weight, eps)
            }
            fn residual_add(
                hidden: FloatTensor<Self>,
                delta: FloatTensor<Self>,
                post_norm: Option<&[f32]>,
                eps: f32,
            ) -> FloatTensor<Self> {
                body::residual_add::<Self>(hidden, delta, post_norm, eps)
            }
            fn head_norm_rope(
                heads: FloatTensor<Self>,
                weight: &[f32],
                eps: f32,
                table: &RopeTable,
                positions: &[u32],
            ) -> FloatTensor<Self> {
                body::head_norm_rope::<Self>(heads, weight, eps, table, positions)
            }
            fn attention(
                query: FloatTensor<Self>,
                key: FloatTensor<Self>,
                value: FloatTensor<Self>,
                shape: &AttentionShape,
                offsets: &[usize],
                queries: Option<&[Range<usize>]>,
            ) -> FloatTensor<Self> {
                body::attention::<Self>(query, key, value, shape, offsets, queries)
            }
            fn select_rows(input: FloatTensor<Self>, rows: &[usize]) -> FloatTensor<Self> {
                body::select_rows::<Self>(input, rows)
            }
            fn gated_activation(
                gate: FloatTensor<Self>,
                up: FloatTensor<Self>,
                activation: Activation,
            ) -> FloatTensor<Self> {
                body::gated_activation::<Self>(gate, up, activation)
            }
            fn pool(hidden: FloatTensor<Self>, offsets: &[usize], pooling: Pooling) -> FloatTensor<Self> {
                body::pool::<Self>(hidden, offsets, pooling)
            }
        }
    };
}

#[cfg(feature = "flex")]
implement!(burn::backend::Flex);
#[cfg(feature = "ndarray")]
mod ndarray {
    use super::*;
    implement!(burn::backend::NdArray);
}
