//! Rates of the ternary product on each level of this CPU as a part of one thread's register-only limit.
//!
//! `cargo run --release --no-default-features -p burn-i2s --example ternary_rate [IN_FEATURES OUT_FEATURES [LEVEL [ROWS [THREADS]]]]`
//!
//! `hot` multiplies one matrix again and again, `cold` walks through matrices that together exceed the caches. At one
//! activation row the cold rate is also given as bytes of weights a second, beside the rate of only reading them. Sums
//! are compared with the scalar level's before anything is timed.

use burn_i2s::gemm::{Activations, spin_multiply_add, ternary_accumulate, ternary_gemm};
use burn_i2s::isa::Isa;
use burn_i2s::layout;
use burn_i2s::matrix::TernaryMatrix;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of the matrices that are walked through: more than a last-level cache.
const COLD_BYTES: usize = 160 << 20;

/// How long each measurement is repeated; the best counts.
const REPEAT_FOR: Duration = Duration::from_millis(120);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let size = |index: usize, default: usize, most: usize| match arguments.get(index).map(|text| text.parse()) {
        None => default,
        Some(Ok(number)) if (1..=most).contains(&number) => number,
        Some(_) => refuse(&format!("{:?} is not a number from 1 to {most}", arguments[index])),
    };
    let (k, n) = (size(0, 1024, 1 << 16), size(1, 3072, 1 << 16));
    let level = arguments.get(2);
    if let Some(name) = level.filter(|name| Isa::from_name(name).is_none()) {
        let known: Vec<&str> = Isa::available().iter().map(|isa| isa.name()).collect();
        refuse(&format!("{name:?} is no level of this CPU, which has {}", known.join(", ")));
    }
    let rows = if arguments.len() > 3 { vec![size(3, 1, 4096)] } else { vec![1, 2, 4, 6, 8, 16, 32, 128, 512] };
    let threads = size(4, 1, 1024);
    let bytes = matrix(n, k);
    let copies: Vec<_> = (0..COLD_BYTES.div_ceil(bytes.len())).map(|_| bytes.clone()).collect();
    let matrices: Vec<_> = copies.iter().map(|bytes| TernaryMatrix::new(bytes, n, k).unwrap()).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    println!("K={k} N={n}, billions of products a second (part of one thread's limit), {threads} threads");
    for &isa in Isa::available() {
        if isa != Isa::Scalar && level.is_none_or(|level| level == isa.name()) {
            pool.install(|| measure(isa, k, n, &rows, &matrices));
        }
    }
}

fn refuse(problem: &str) -> ! {
    eprintln!("error: {problem}\nusage: ternary_rate [IN_FEATURES OUT_FEATURES [LEVEL [ROWS [THREADS]]]]");
    std::process::exit(2)
}

fn measure(isa: Isa, k: usize, n: usize, rows: &[usize], matrices: &[TernaryMatrix<'_>]) {
    let stride = layout::blocks_per_row(k) * layout::BLOCK;
    for &m in rows {
        let codes: Vec<i8> =
            (0..m * stride).map(|i| if i % stride < k { ((i * 7919) >> 3) as i8 } else { 0 }).collect();
        let sums: Vec<i32> = codes.chunks(stride).map(|row| row.iter().map(|&x| i32::from(x)).sum()).collect();
        let scales = vec![1.0; m];
        let x = Activations::new(&codes, &sums, &scales, k).unwrap();

        let mut out = vec![0.0; m * n];
        let (mut exact, mut found) = (vec![0; m.min(9) * n], vec![0; m.min(9) * n]);
        let few = Activations::new(&codes[..m.min(9) * stride], &sums[..m.min(9)], &scales[..m.min(9)], k).unwrap();
        ternary_accumulate(Isa::Scalar, &few, &matrices[0], &mut exact).unwrap();
        ternary_accumulate(isa, &few, &matrices[0], &mut found).unwrap();
        assert!(exact == found, "{isa} differs from scalar");

        // Limit and rates are taken in turns, so that a slow moment of the machine hits them alike.
        let (mut limit, mut hot, mut cold, mut read, mut next) = (f64::MIN_POSITIVE, 0.0f64, 0.0f64, 0.0f64, 0);
        let products = (m * n * k) as f64;
        let start = Instant::now();
        while start.elapsed() < REPEAT_FOR {
            let timer = Instant::now();
            let spun = spin_multiply_add(isa, 20_000).unwrap_or(0) as f64;
            limit = limit.max(spun / timer.elapsed().as_nanos() as f64);
            for _ in 0..4 {
                let timer = Instant::now();
                ternary_gemm(isa, &x, &matrices[0], &mut out).unwrap();
                hot = hot.max(products / timer.elapsed().as_nanos() as f64);
            }
            let walk = (64 / m).clamp(1, 8);
            let timer = Instant::now();
            for _ in 0..walk {
                next = (next + 1) % matrices.len();
                ternary_gemm(isa, &x, &matrices[next], &mut out).unwrap();
            }
            cold = cold.max(walk as f64 * products / timer.elapsed().as_nanos() as f64);
            if m == 1 {
                let timer = Instant::now();
                for _ in 0..walk {
                    next = (next + 1) % matrices.len();
                    black_box(xor(matrices[next].blocks()));
                }
                let bytes = walk * matrices[0].blocks().as_flattened().len();
                read = read.max(bytes as f64 / timer.elapsed().as_nanos() as f64);
            }
        }
        let part = |rate: f64| 100.0 * rate / limit;
        print!(
            "{isa:<12} M={m:<4} limit {limit:6.1}  hot {hot:6.1} ({:4.1} %)  cold {cold:6.1} ({:4.1} %)",
            part(hot),
            part(cold)
        );
        println!(
            "{}",
            if m == 1 { format!("  {:.1} GB/s of weights, {read:.1} read only", cold / 4.0) } else { String::new() }
        );
    }
}

/// Reads everything and does as little with it as the compiler allows.
fn xor(blocks: &[[u8; layout::BLOCK_BYTES]]) -> [u8; layout::BLOCK_BYTES] {
    // Four streams a page apart, as one does not get the most out of the hardware prefetcher.
    let mut sum = [[0; layout::BLOCK_BYTES]; 4];
    for page in blocks.chunks_exact(512) {
        let streams: [_; 4] = std::array::from_fn(|stream| &page[128 * stream..][..128]);
        for block in 0..128 {
            for (sum, stream) in sum.iter_mut().zip(streams) {
                for (sum, byte) in sum.iter_mut().zip(stream[block]) {
                    *sum ^= byte;
                }
            }
        }
    }
    std::array::from_fn(|byte| sum[0][byte] ^ sum[1][byte] ^ sum[2][byte] ^ sum[3][byte])
}

fn matrix(rows: usize, cols: usize) -> Vec<u8> {
    let len = layout::padded_byte_len(rows, cols).expect("a size that fits") - layout::TAIL_BYTES;
    (0..len).map(|i| [0x55, 0x99, 0x06, 0xa4][((i * 2654435761) >> 7) % 4]).chain(layout::tail(1.0)).collect()
}
