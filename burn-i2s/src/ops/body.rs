//! The bodies of the operations, once for every backend.

use super::{TernaryLayer, TernaryProduct};
use crate::attention::{self, AttentionShape};
use crate::backend::CpuBackend;
use crate::buffers;
use crate::dense::{self, DenseMatrix, WeightRows};
use crate::elementwise::{self, Activation};
use crate::gemm::{self, Product};
use crate::isa::Isa;
use crate::pooling::{self, Pooling};
use crate::quantize::{QuantizedRows, Source, quantize_rows};
use crate::rope::{self, RopeTable};
use crate::ternary_floats::ternary_gemm_as_floats;
use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::Shape;
use std::cell::RefCell;
use std::ops::Range;

thread_local! {
    /// Int8 rows, kept between calls: a forward quantises hundreds of times.
    static QUANTIZED: RefCell<Vec<QuantizedRows>> = const { RefCell::new(Vec::new()) };
}

/// Sets of int8 rows that a thread keeps: those of a block's inputs.
const MAX_QUANTIZED: usize = 8;

/// Int8 rows for `cols` values, taken out of those kept: rayon may run another forward on this thread while this one
/// waits. Rows of another width would have to be filled up with zeros.
fn take_quantized(cols: usize) -> QuantizedRows {
    QUANTIZED.with_borrow_mut(|kept| {
        let same_width = kept.iter().position(|rows| rows.cols == cols);
        same_width.map_or_else(QuantizedRows::default, |index| kept.remove(index))
    })
}

fn give_quantized(rows: impl IntoIterator<Item = QuantizedRows>) {
    QUANTIZED.with_borrow_mut(|kept| {
        kept.extend(rows);
        let surplus = kept.len().saturating_sub(MAX_QUANTIZED);
        kept.drain(..surplus);
    });
}

fn matrix_shape<B: CpuBackend>(tensor: &FloatTensor<B>) -> (usize, usize) {
    let shape = tensor.shape();
    assert_eq!(shape.num_dims(), 2, "expected a [tokens, features] tensor, found {shape:?}");
    (shape[0], shape[1])
}

/// Keeps the buffer of a tensor that an operation was given and is done with.
fn finish<B: CpuBackend>(tensor: FloatTensor<B>) {
    if let Some(buffer) = B::reclaim(tensor) {
        buffers::give(buffer);
    }
}

pub(super) fn lend_floats<B: CpuBackend>(tensor: FloatTensor<B>, read: &mut dyn FnMut(&[f32])) -> usize {
    let count = tensor.shape().num_elements();
    B::with_floats(&tensor, read);
    finish::<B>(tensor);
    count
}

pub(super) fn gather_rows<B: CpuBackend>(
    indices: &IntTensor<B>,
    table: &DenseMatrix<'_>,
    scale: f32,
) -> FloatTensor<B> {
    let indices = B::to_indices(indices);
    let mut out = buffers::take(indices.len() * table.cols());
    dense::gather_rows(Isa::current(), table, &indices, scale, &mut out);
    B::from_floats(out, Shape::from([indices.len(), table.cols()]))
}

pub(super) fn ternary_linear<B: CpuBackend>(
    input: FloatTensor<B>,
    layers: &[TernaryLayer<'_>],
    rms_norm_eps: f32,
    product: TernaryProduct,
) -> Vec<FloatTensor<B>> {
    let (_, features) = matrix_shape::<B>(&input);
    let mut quantized = Vec::new();
    B::with_floats(&input, |x| quantized = quantize(Source::Rows(x), features, layers, rms_norm_eps));
    finish::<B>(input);
    multiply::<B>(quantized, layers, product)
}

pub(super) fn gated_ternary_linear<B: CpuBackend>(
    gate: FloatTensor<B>,
    up: FloatTensor<B>,
    activation: Activation,
    layer: &TernaryLayer<'_>,
    rms_norm_eps: f32,
    product: TernaryProduct,
) -> FloatTensor<B> {
    let (_, features) = matrix_shape::<B>(&gate);
    let layers = std::slice::from_ref(layer);
    let mut quantized = Vec::new();
    B::with_floats(&gate, |gate| {
        B::with_floats(&up, |up| {
            quantized = quantize(Source::Gated { gate, up, activation }, features, layers, rms_norm_eps);
        });
    });
    [gate, up].into_iter().for_each(finish::<B>);
    multiply::<B>(quantized, layers, product).remove(0)
}

/// The int8 rows of each layer.
fn quantize(source: Source<'_>, features: usize, layers: &[TernaryLayer<'_>], rms_norm_eps: f32) -> Vec<QuantizedRows> {
    let mut quantized: Vec<QuantizedRows> = layers.iter().map(|_| take_quantized(features)).collect();
    let norms: Vec<Option<&[f32]>> = layers.iter().map(|layer| layer.norm).collect();
    quantize_rows(Isa::current(), source, features, &norms, rms_norm_eps, &mut quantized);
    quantized
}

/// The outputs of each layer, given its int8 rows.
fn multiply<B: CpuBackend>(
    quantized: Vec<QuantizedRows>,
    layers: &[TernaryLayer<'_>],
    product: TernaryProduct,
) -> Vec<FloatTensor<B>> {
    let isa = Isa::current();
    let tokens = quantized.first().map_or(0, |rows| rows.rows);
    let mut outputs: Vec<Vec<f32>> =
        layers.iter().map(|layer| buffers::take(tokens * layer.weight.out_features())).collect();
    match product {
        TernaryProduct::Integer => {
            let mut products: Vec<Product<'_>> = layers
                .iter()
                .zip(&quantized)
                .zip(&mut outputs)
                .map(|((layer, rows), out)| Product { x: rows.activations(), w: layer.weight, out })
                .collect();
            gemm::ternary_gemm_many(isa, &mut products).expect("the rows were quantised to the weights' width");
        }
        TernaryProduct::Float => {
            for ((layer, rows), out) in layers.iter().zip(&quantized).zip(&mut outputs) {
                ternary_gemm_as_floats(isa, &rows.activations(), &layer.weight, out);
            }
        }
    }
    give_quantized(quantized);
    outputs
        .into_iter()
        .zip(layers)
        .map(|(out, layer)| B::from_floats(out, Shape::from([tokens, layer.weight.out_features()])))
        .collect()
}

pub(super) fn dense_linear<B: CpuBackend>(input: FloatTensor<B>, weights: &[DenseMatrix<'_>]) -> Vec<FloatTensor<B>> {
    let (tokens, _) = matrix_shape::<B>(&input);
    let mut outputs: Vec<Vec<f32>> = weights.iter().map(|weight| buffers::take(tokens * weight.rows())).collect();
    B::with_floats(&input, |x| {
        let weights: Vec<&DenseMatrix<'_>> = weights.iter().collect();
        let mut outputs: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        dense::dense_gemm_many(Isa::current(), x, &weights, &mut outputs);
    });
    finish::<B>(input);
    outputs
        .into_iter()
        .zip(weights)
        .map(|(out, weight)| B::from_floats(out, Shape::from([tokens, weight.rows()])))
        .collect()
}

pub(super) fn rms_norm<B: CpuBackend>(input: FloatTensor<B>, weight: &[f32], eps: f32) -> FloatTensor<B> {
    let shape = input.shape();
    let mut out = buffers::take(shape.num_elements());
    B::with_floats(&input, |x| elementwise::rms_norm(Isa::current(), x, weight, eps, &mut out));
    finish::<B>(input);
    B::from_floats(out, shape)
}

pub(super) fn residual_add<B: CpuBackend>(
    hidden: FloatTensor<B>,
    delta: FloatTensor<B>,
    post_norm: Option<&[f32]>,
    eps: f32,
) -> FloatTensor<B> {
    let shape = hidden.shape();
    let mut hidden = B::into_floats(hidden);
    B::with_floats(&delta, |delta| match post_norm {
        Some(weight) => elementwise::residual_add_norm(Isa::current(), &mut hidden, delta, weight, eps),
        None => elementwise::residual_add(Isa::current(), &mut hidden, delta),
    });
    finish::<B>(delta);
    B::from_floats(hidden, shape)
}

pub(super) fn head_norm_rope<B: CpuBackend>(
    heads: FloatTensor<B>,
    weight: &[f32],
    eps: f32,
    table: &RopeTable,
    positions: &[u32],
) -> FloatTensor<B> {
    let shape = heads.shape();
    let mut heads = B::into_floats(heads);
    rope::head_norm_rope(Isa::current(), &mut heads, weight.len(), weight, eps, table, positions);
    B::from_floats(heads, shape)
}

pub(super) fn attention<B: CpuBackend>(
    query: FloatTensor<B>,
    key: FloatTensor<B>,
    value: FloatTensor<B>,
    shape: &AttentionShape,
    offsets: &[usize],
    queries: Option<&[Range<usize>]>,
) -> FloatTensor<B> {
    let shape_of_out = query.shape();
    let mut out = buffers::take(shape_of_out.num_elements());
    let isa = Isa::current();
    let mut run = |q: &[f32], k: &[f32], v: &[f32]| match queries {
        None => attention::attention(isa, q, k, v, shape, offsets, &mut out),
        Some(queries) => attention::attention_of(isa, q, k, v, shape, offsets, queries, &mut out),
    };
    B::with_floats(&query, |q| B::with_floats(&key, |k| B::with_floats(&value, |v| run(q, k, v))));
    [query, key, value].into_iter().for_each(finish::<B>);
    B::from_floats(out, shape_of_out)
}

pub(super) fn select_rows<B: CpuBackend>(input: FloatTensor<B>, rows: &[usize]) -> FloatTensor<B> {
    let (_, features) = matrix_shape::<B>(&input);
    let mut out = Vec::with_capacity(rows.len() * features);
    B::with_floats(&input, |x| {
        for &row in rows {
            out.extend_from_slice(&x[row * features..][..features]);
        }
    });
    finish::<B>(input);
    B::from_floats(out, Shape::from([rows.len(), features]))
}

pub(super) fn gated_activation<B: CpuBackend>(
    gate: FloatTensor<B>,
    up: FloatTensor<B>,
    activation: Activation,
) -> FloatTensor<B> {
    let shape = gate.shape();
    let mut out = buffers::take(shape.num_elements());
    let isa = Isa::current();
    B::with_floats(&gate, |gate| {
        B::with_floats(&up, |up| elementwise::gated_activation(isa, activation, gate, up, &mut out));
    });
    [gate, up].into_iter().for_each(finish::<B>);
    B::from_floats(out, shape)
}

pub(super) fn pool<B: CpuBackend>(hidden: FloatTensor<B>, offsets: &[usize], pooling: Pooling) -> FloatTensor<B> {
    let (_, features) = matrix_shape::<B>(&hidden);
    let texts = offsets.len().saturating_sub(1);
    let mut out = vec![0.0; texts * features];
    B::with_floats(&hidden, |hidden| pooling::pool(Isa::current(), hidden, offsets, pooling, &mut out));
    finish::<B>(hidden);
    B::from_floats(out, Shape::from([texts, features]))
}
