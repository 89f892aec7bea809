//! How close the float operations come to what one core can do, per instruction set.
//!
//! Products and attention are shown as a share of the fused-multiply-add peak taken in the same round; row operations in
//! nanoseconds per 1024 values. Before anything is timed, its result is checked against the scalar level's bits.
//!
//! `cargo run --release -p burn-i2s --no-default-features --example float_rate`

use std::time::Instant;

use burn_i2s::attention::{AttentionShape, attention};
use burn_i2s::dense::{DenseMatrix, dense_gemm};
use burn_i2s::elementwise::{Activation, gated_activation, residual_add, rms_norm};
use burn_i2s::ggml::GgmlType;
use burn_i2s::isa::Isa;
use burn_i2s::peak::fma_peak;
use burn_i2s::quantize::{QuantizedRows, Source, quantize_rows};
use burn_i2s::rope::{RopeTable, head_norm_rope};

/// The types that are decoded a row at a time.
const QUANTIZED: [GgmlType; 7] =
    [GgmlType::Q8_0, GgmlType::Q6_K, GgmlType::Q5_K, GgmlType::Q5_0, GgmlType::Q4_K, GgmlType::Q4_0, GgmlType::TQ2_0];

fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// The best seconds of one call, over about a tenth of a second of calls.
fn best(mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed().as_secs_f64() < 0.1 {
        let call = Instant::now();
        f();
        best = best.min(call.elapsed().as_secs_f64());
    }
    best
}

/// Prints a product's rate as a share of the peak measured right before and after it.
fn share(isa: Isa, name: &str, fmas: f64, f: impl FnMut()) {
    let before = fma_peak(isa, 200_000);
    let rate = fmas / best(f);
    let peak = before.max(fma_peak(isa, 200_000));
    println!(
        "{:13} {name:34} {:6.1} GFMA/s  {:5.1} % of {:.0}",
        isa.name(),
        rate / 1e9,
        100.0 * rate / peak,
        peak / 1e9
    );
}

fn nanoseconds(isa: Isa, name: &str, values: usize, f: impl FnMut()) {
    println!("{:13} {name:34} {:8.1} ns per 1024 values", isa.name(), best(f) * 1e9 * 1024.0 / values as f64);
}

/// Runs `f` on the scalar level and on `isa` and insists on equal bits.
fn check(isa: Isa, name: &str, mut f: impl FnMut(Isa) -> Vec<f32>) {
    let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert!(bits(f(isa)) == bits(f(Isa::Scalar)), "{name}: {isa} differs from scalar");
}

/// Rows of blocks whose factors, halves anywhere in them, are no infinities or NaNs: no exponent has its highest bit.
fn quantized(ty: GgmlType, rows: usize, cols: usize) -> Vec<u8> {
    let bytes = rows * ty.row_bytes(cols).expect("whole blocks");
    values(bytes, 2).iter().map(|x| x.to_bits() as u8 & 0xBF).collect()
}

fn dense(isa: Isa, m: usize, n: usize, k: usize, ty: GgmlType) {
    let x = values(m * k, 1);
    let bytes: Vec<u8> = match ty {
        GgmlType::F16 => values(n * k, 2).iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect(),
        GgmlType::BF16 => values(n * k, 2).iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect(),
        GgmlType::F32 => values(n * k, 2).iter().flat_map(|x| x.to_le_bytes()).collect(),
        _ => quantized(ty, n, k),
    };
    let weights = DenseMatrix::new(&bytes, ty, n, k).expect("bytes of that shape");
    let mut out = vec![0.0; m * n];
    let name = format!("dense {} {m}x{n}x{k}", ty.name());
    check(isa, &name, |isa| {
        let rows = m.min(16);
        let mut out = vec![0.0; rows * n];
        dense_gemm(isa, &x[..rows * k], &weights, &mut out);
        out
    });
    share(isa, &name, (m * n * k) as f64, || dense_gemm(isa, &x, &weights, &mut out));
}

/// Prints how fast a few rows of activations read weights that no cache holds, beside only reading them.
fn dense_from_memory(isa: Isa, ty: GgmlType, n: usize, k: usize) {
    const BYTES: usize = 160 << 20;
    let bytes: Vec<u8> = values(n * k, 2).iter().flat_map(|&x| half::f16::from_f32(x * 0.01).to_le_bytes()).collect();
    let copies: Vec<_> = (0..BYTES.div_ceil(bytes.len())).map(|_| bytes.clone()).collect();
    let all = (copies.len() * bytes.len()) as f64 / 1e9;
    let read = all / best(|| copies.iter().for_each(|bytes| assert!(std::hint::black_box(xor(bytes)) != 1)));
    print!("{:13} {} {n}x{k} from memory, GB/s of weights:", isa.name(), ty.name());
    for m in [1, 2, 4, 8] {
        let (x, mut out) = (values(m * k, 1), vec![0.0; m * n]);
        let seconds = best(|| {
            for bytes in &copies {
                let weights = DenseMatrix::new(bytes, ty, n, k).expect("bytes of that shape");
                dense_gemm(isa, &x, &weights, &mut out);
            }
        });
        print!(" {m} rows {:.1},", all / seconds);
    }
    println!(" only read {read:.1}");
}

/// Reads everything and does as little with it as the compiler allows; never 1.
fn xor(bytes: &[u8]) -> u8 {
    let mut sums = [[0u8; 64]; 4];
    for page in bytes.chunks_exact(16 << 10) {
        let streams: [&[[u8; 64]]; 4] = std::array::from_fn(|stream| page[4096 * stream..][..4096].as_chunks().0);
        for at in 0..64 {
            for (sum, stream) in sums.iter_mut().zip(streams) {
                for (sum, byte) in sum.iter_mut().zip(stream[at]) {
                    *sum ^= byte;
                }
            }
        }
    }
    sums.as_flattened().iter().fold(0, |all, byte| all ^ byte) & !1
}

fn attend(isa: Isa, heads: (usize, usize), head_dim: usize, tokens: usize, window: Option<usize>) {
    let scale = 1.0 / (head_dim as f32).sqrt();
    let shape = AttentionShape { num_heads: heads.0, num_kv_heads: heads.1, head_dim, scale, causal: true, window };
    let (q_width, kv_width) = (heads.0 * head_dim, heads.1 * head_dim);
    let (q, k, v) = (values(tokens * q_width, 3), values(tokens * kv_width, 4), values(tokens * kv_width, 5));
    let run = |isa, tokens: usize, out: &mut [f32]| {
        let (q, kv) = (&q[..tokens * q_width], tokens * kv_width);
        attention(isa, q, &k[..kv], &v[..kv], &shape, &[0, tokens], out);
    };
    let name = format!(
        "attention {}/{} x {head_dim}, {tokens} tokens{}",
        heads.0,
        heads.1,
        if window.is_some() { ", window" } else { "" }
    );
    check(isa, &name, |isa| {
        let tokens = tokens.min(90);
        let mut out = vec![0.0; tokens * q_width];
        run(isa, tokens, &mut out);
        out
    });
    let seen: usize = (0..tokens).map(|q| (q + 1).min(window.unwrap_or(tokens))).sum();
    let mut out = vec![0.0; tokens * q_width];
    share(isa, &name, (2 * seen * q_width) as f64, || run(isa, tokens, &mut out));
}

fn rows(isa: Isa) {
    let (rows, cols) = (8, 1024);
    let (x, weight) = (values(rows * cols, 6), values(cols, 7));
    let len = x.len();
    let mut out = x.clone();
    check(isa, "rms_norm", |isa| {
        let mut out = x.clone();
        rms_norm(isa, &x, &weight, 1e-6, &mut out);
        out
    });
    nanoseconds(isa, "rms_norm", len, || rms_norm(isa, &x, &weight, 1e-6, &mut out));
    nanoseconds(isa, "residual_add", len, || residual_add(isa, &mut out, &x));
    for (name, activation) in [("silu * up", Activation::Silu), ("gelu * up", Activation::GeluTanh)] {
        check(isa, name, |isa| {
            let mut out = vec![0.0; len];
            gated_activation(isa, activation, &x, &x, &mut out);
            out
        });
        nanoseconds(isa, name, len, || gated_activation(isa, activation, &x, &x, &mut out));
    }
    let mut quantized = [QuantizedRows::default()];
    let mut quantize = |isa| {
        quantize_rows(isa, Source::Rows(&x), cols, &[Some(&weight)], 1e-6, &mut quantized);
        quantized[0].codes.iter().map(|&c| f32::from(c)).collect()
    };
    check(isa, "quantize", &mut quantize);
    let mut quantized = [QuantizedRows::default()];
    nanoseconds(isa, "rms_norm + quantize", len, || {
        quantize_rows(isa, Source::Rows(&x), cols, &[Some(&weight)], 1e-6, &mut quantized);
    });
    let mut quantized = vec![QuantizedRows::default(); 3];
    nanoseconds(isa, "the same for three norms", len, || {
        quantize_rows(isa, Source::Rows(&x), cols, &[Some(&weight[..]); 3], 1e-6, &mut quantized);
    });
    let table = RopeTable::new(128, 1e6, rows);
    let positions: Vec<u32> = (0..rows as u32).collect();
    let rope = |isa, out: &mut [f32]| head_norm_rope(isa, out, 128, &weight[..128], 1e-6, &table, &positions);
    check(isa, "rope", |isa| {
        let mut out = x.clone();
        rope(isa, &mut out);
        out
    });
    nanoseconds(isa, "head norm + rope", len, || rope(isa, &mut out));
}

fn main() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    pool.install(|| {
        for &isa in Isa::available() {
            if matches!(isa.name(), "avx512bw" | "avx-vnni") {
                continue; // The same float code as the level before or after.
            }
            if isa != Isa::Scalar {
                for m in [1, 16, 64, 512] {
                    dense(isa, m, 1024, 1024, GgmlType::F16);
                }
                dense(isa, 64, 1024, 3072, GgmlType::F16);
                dense(isa, 64, 1024, 1024, GgmlType::BF16);
                dense(isa, 64, 1024, 1024, GgmlType::F32);
                for ty in QUANTIZED {
                    for m in [1, 16, 64, 512] {
                        dense(isa, m, 1024, 1024, ty);
                    }
                }
                for (n, k) in [(3072, 1024), (1024, 3072), (2048, 640)] {
                    dense_from_memory(isa, GgmlType::F16, n, k);
                }
                for tokens in [16, 128, 512, 2048] {
                    attend(isa, (16, 8), 128, tokens, None);
                }
                for tokens in [128, 512, 2048] {
                    attend(isa, (4, 1), 256, tokens, None);
                }
                attend(isa, (4, 1), 256, 2048, Some(512));
            }
            rows(isa);
        }
    });
}
