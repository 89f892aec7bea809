//! The ternary product and the quantization in front of it: every level, the real layer shapes, 1 to 512 rows.
//!
//! `cargo bench -p benches --bench ternary -- 'avx512-vnni/0.6B'` runs a part. Rates are multiply-adds (weights times
//! rows) or values a second. One thread, weights in cache; `benches limits` gives the same as parts of the CPU's limit.

use benches::shapes::{LAYER_SHAPES, LayerShape, Random};
use burn_i2s::gemm::{ternary_accumulate, ternary_gemm};
use burn_i2s::isa::Isa;
use burn_i2s::matrix::TernaryMatrix;
use burn_i2s::quantize::{QuantizedRows, Source, quantize_rows};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;

const ROWS: [usize; 6] = [1, 4, 8, 32, 128, 512];

/// Rows up to which a product is compared with the scalar level's.
const COMPARED_ROWS: usize = 8;

fn product(criterion: &mut Criterion) {
    for &isa in Isa::available() {
        for shape in LAYER_SHAPES {
            let LayerShape { model, in_features, out_features, .. } = shape;
            let mut random = Random(1);
            let packed = random.ternary(out_features, in_features);
            let matrix = TernaryMatrix::new(&packed, out_features, in_features).expect("a matrix of whole blocks");
            assert_exact(isa, &matrix);
            let mut group = criterion.benchmark_group(format!("ternary/{isa}/{model}/{out_features}x{in_features}"));
            // The scalar level is the definition, not a competitor: minutes would pass at more rows.
            for rows in ROWS.into_iter().filter(|&rows| isa != Isa::Scalar || rows == 1) {
                let x = random.quantized(rows, in_features);
                let mut out = vec![0.0; rows * out_features];
                group.throughput(Throughput::Elements((rows * in_features * out_features) as u64));
                group.bench_function(BenchmarkId::from_parameter(rows), |bencher| {
                    bencher.iter(|| ternary_gemm(isa, &x.activations(), &matrix, &mut out).expect("shapes that fit"));
                });
            }
            group.finish();
        }
    }
}

fn assert_exact(isa: Isa, matrix: &TernaryMatrix<'_>) {
    for rows in 1..=COMPARED_ROWS {
        let x = Random(rows as u64).quantized(rows, matrix.in_features());
        let [exact, found] = [Isa::Scalar, isa].map(|isa| {
            let mut out = vec![0; rows * matrix.out_features()];
            ternary_accumulate(isa, &x.activations(), matrix, &mut out).expect("shapes that fit");
            out
        });
        assert!(exact == found, "{isa} differs from scalar at {rows} rows");
    }
}

fn quantization(criterion: &mut Criterion) {
    const TOKENS: usize = 128;
    for &isa in Isa::available() {
        let mut group = criterion.benchmark_group(format!("quantize/{isa}/{TOKENS} tokens"));
        // Width, and how many layers with norms of their own read it.
        for (cols, norms) in [(640, 3), (1024, 3), (1024, 2), (2048, 1), (3072, 1)] {
            let mut random = Random(3);
            let x = random.floats(TOKENS * cols);
            let weights: Vec<Vec<f32>> = (0..norms).map(|_| random.floats(cols)).collect();
            let weights: Vec<Option<&[f32]>> = weights.iter().map(|weight| Some(weight.as_slice())).collect();
            let quantized = |isa| {
                let mut out = vec![QuantizedRows::default(); norms];
                quantize_rows(isa, Source::Rows(&x), cols, &weights, 1e-6, &mut out);
                out
            };
            for (a, b) in quantized(Isa::Scalar).iter().zip(&quantized(isa)) {
                assert!(a.codes == b.codes && a.scales == b.scales && a.sums == b.sums, "{isa} differs from scalar");
            }
            let mut out = quantized(isa);
            group.throughput(Throughput::Elements((TOKENS * cols * norms) as u64));
            group.bench_function(format!("{norms} norms of {cols}"), |bencher| {
                bencher.iter(|| quantize_rows(isa, Source::Rows(&x), cols, &weights, 1e-6, &mut out));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = kernels;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(300))
        .sample_size(10);
    targets = product, quantization
}
criterion_main!(kernels);
