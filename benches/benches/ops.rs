//! Everything around the ternary product: float layers, attention, norms, rotation, activations, sums.
//!
//! Sizes are those of the 0.6B and 270M models. Rates are multiply-adds for products and attention, values otherwise.
//! One thread.

use benches::shapes::Random;
use benches::verify::same_bits;
use burn_i2s::attention::{AttentionShape, attention};
use burn_i2s::dense::{DenseMatrix, dense_gemm};
use burn_i2s::elementwise::{Activation, gated_activation, residual_add, residual_add_norm, rms_norm};
use burn_i2s::ggml::GgmlType;
use burn_i2s::isa::Isa;
use burn_i2s::rope::{RopeTable, head_norm_rope};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use half::f16;
use std::time::Duration;

/// Times `run` on every level but scalar, after its output was compared with the scalar level's.
fn on_every_level(
    criterion: &mut Criterion,
    name: &str,
    elements: usize,
    start: &[f32],
    mut run: impl FnMut(Isa, &mut [f32]),
) {
    let mut exact = start.to_vec();
    run(Isa::Scalar, &mut exact);
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(elements as u64));
    for &isa in Isa::available().iter().filter(|&&isa| isa != Isa::Scalar) {
        let mut out = start.to_vec();
        run(isa, &mut out);
        assert!(same_bits(&exact, &out), "{name}: {isa} differs from scalar");
        group.bench_function(BenchmarkId::from_parameter(isa), |bencher| {
            // In place, some of these grow what they are given; a fresh start keeps the numbers in range.
            bencher.iter(|| {
                out.copy_from_slice(start);
                run(isa, &mut out);
            });
        });
    }
    group.finish();
}

fn float_layers(criterion: &mut Criterion) {
    let (n, k) = (256, 1024);
    let mut random = Random(1);
    let weights: Vec<u8> = random.floats(n * k).iter().flat_map(|&w| f16::from_f32(w).to_le_bytes()).collect();
    let matrix = DenseMatrix::new(&weights, GgmlType::F16, n, k).expect("whole rows");
    for rows in [1, 8, 64, 256] {
        let x = random.floats(rows * k);
        on_every_level(criterion, &format!("f16 layer {n}x{k}/{rows} rows"), rows * n * k, &vec![0.0; rows * n], {
            |isa, out| dense_gemm(isa, &x, &matrix, out)
        });
    }
}

fn attentions(criterion: &mut Criterion) {
    for (model, num_heads, num_kv_heads, head_dim, window) in
        [("0.6B", 16, 8, 128, None), ("270M", 4, 1, 256, None), ("270M window", 4, 1, 256, Some(512))]
    {
        let scale = 1.0 / (head_dim as f32).sqrt();
        let shape = AttentionShape { num_heads, num_kv_heads, head_dim, scale, causal: true, window };
        for tokens in [128, 512, 1024] {
            if window.is_some_and(|window| tokens <= window) {
                continue;
            }
            let mut random = Random(2);
            let [q, k, v] =
                [num_heads, num_kv_heads, num_kv_heads].map(|heads| random.floats(tokens * heads * head_dim));
            // A query is multiplied with the keys it sees and weighs as many values.
            let seen: usize = (0..tokens).map(|at| (at + 1).min(window.unwrap_or(tokens))).sum();
            let products = 2 * num_heads * head_dim * seen;
            let name = format!("attention/{model}/{tokens} tokens");
            on_every_level(criterion, &name, products, &vec![0.0; q.len()], |isa, out| {
                attention(isa, &q, &k, &v, &shape, &[0, tokens], out);
            });
        }
    }
}

fn rows(criterion: &mut Criterion) {
    const TOKENS: usize = 128;
    for (model, hidden, ffn, heads, head_dim, activation) in
        [("0.6B", 1024, 3072, 16 + 8, 128, Activation::Silu), ("270M", 640, 2048, 4 + 1, 256, Activation::GeluTanh)]
    {
        let mut random = Random(3);
        let (x, delta, weight) =
            (random.floats(TOKENS * hidden), random.floats(TOKENS * hidden), random.floats(hidden));
        let name = |op: &str| format!("{op}/{model}/{TOKENS} tokens");
        on_every_level(criterion, &name("rms_norm"), x.len(), &x, |isa, out| rms_norm(isa, &x, &weight, 1e-6, out));
        on_every_level(criterion, &name("residual_add"), x.len(), &x, |isa, out| residual_add(isa, out, &delta));
        on_every_level(criterion, &name("residual_add_norm"), x.len(), &x, |isa, out| {
            residual_add_norm(isa, out, &delta, &weight, 1e-6);
        });
        let (gate, up) = (random.floats(TOKENS * ffn), random.floats(TOKENS * ffn));
        on_every_level(criterion, &name("gated_activation"), gate.len(), &gate, |isa, out| {
            gated_activation(isa, activation, &gate, &up, out);
        });
        let (table, positions) = (RopeTable::new(head_dim, 1e6, TOKENS), (0..TOKENS as u32).collect::<Vec<_>>());
        let (states, norm) = (random.floats(TOKENS * heads * head_dim), random.floats(head_dim));
        on_every_level(criterion, &name("head_norm_rope"), states.len(), &states, |isa, out| {
            head_norm_rope(isa, out, head_dim, &norm, 1e-6, &table, &positions);
        });
    }
}

fn config() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(300))
        .sample_size(10)
}

criterion_group! {
    name = ops;
    config = config();
    targets = float_layers, attentions, rows
}
criterion_main!(ops);
