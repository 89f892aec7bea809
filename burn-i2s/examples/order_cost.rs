//! What the fixed order of float operations costs: every loop that it binds, as it is, as a program free of that order
//! would be, and as one that is less accurate too; in turns, the best time of each. Then weighted by their part of a
//! forward (`docs/performance.md`).
//!
//! `RUSTFLAGS='-C target-cpu=native' cargo run --release -p burn-i2s --no-default-features --example order_cost`
//!
//! The loops stand here twice from one generic source, since the crate's own are compiled for each level behind a
//! detection; for the comparison the compiler is told the CPU. The fixed ones must give the bits of the crate first.

use std::hint::black_box;
use std::time::Instant;

use burn_i2s::attention::{AttentionShape, attention};
use burn_i2s::elementwise::{Activation, gated_activation, rms_norm};
use burn_i2s::isa::Isa;
use burn_i2s::math::{exp_nonpositive, gelu_tanh, silu};

/// The crate's own loop; sums in any order; also one chain of products a score, and a shorter exponential.
const FIXED: u8 = 0;
const FREE: u8 = 1;
const COARSE: u8 = 2;

const LANES: usize = 16;
const ROWS: usize = 6;
const KEYS: usize = 64;

/// Sum of the squares of a row in 64 lanes instead of 16.
fn squares(row: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 4 * LANES];
    for chunk in row.as_chunks::<{ 4 * LANES }>().0 {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = x.mul_add(x, *lane);
        }
    }
    black_box(lanes).as_chunks::<LANES>().0.iter().map(tree).sum()
}

fn tree(lanes: &[f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// RMSNorm of four rows: one chain a lane and row, the rows together; or four chains a lane, row by row.
fn norm<const KIND: u8>(x: &[f32], weight: &[f32], out: &mut [f32]) {
    let cols = weight.len();
    for (x, out) in x.chunks_exact(4 * cols).zip(out.chunks_exact_mut(4 * cols)) {
        let mut sums = [0.0; 4];
        if KIND != FIXED {
            for (sum, row) in sums.iter_mut().zip(x.chunks_exact(cols)) {
                *sum = squares(row);
            }
        } else {
            let mut lanes = [[0.0f32; LANES]; 4];
            for at in (0..cols).step_by(LANES) {
                for (row, lanes) in lanes.iter_mut().enumerate() {
                    let chunk = x[row * cols + at..].first_chunk::<LANES>().expect("whole lanes");
                    for (lane, &x) in lanes.iter_mut().zip(chunk) {
                        *lane = x.mul_add(x, *lane);
                    }
                }
            }
            // Through memory, as the crate's own: else the loop is arranged for the final addition.
            sums = black_box(lanes).each_ref().map(tree);
        }
        for ((x, out), sum) in x.chunks_exact(cols).zip(out.chunks_exact_mut(cols)).zip(sums) {
            let factor = 1.0 / (sum / cols as f32 + 1e-6).sqrt();
            for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
                *out = x * factor * w;
            }
        }
    }
}

/// `e^x` to 1e-7 of 1, with a polynomial of two degrees less and no result below 2^-126.
fn cheap_exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let x = (if x > -87.0 { x } else { -87.0 }) * std::f32::consts::LOG2_E;
    let shifted = x + ROUND;
    let f = x - (shifted - ROUND);
    let mut p = 9.618_129e-3f32;
    p = p.mul_add(f, 5.550_332e-2);
    p = p.mul_add(f, 2.402_265e-1);
    p = p.mul_add(f, std::f32::consts::LN_2).mul_add(f, 1.0);
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
}

fn gated<const KIND: u8>(activation: Activation, gate: &mut [f32], up: &[f32]) {
    fn run(gate: &mut [f32], up: &[f32], f: impl Fn(f32) -> f32) {
        gate.iter_mut().zip(up).for_each(|(gate, &up)| *gate = f(*gate) * up);
    }
    let sigmoid = |t: f32| 1.0 / (1.0 + cheap_exp(-t));
    match (activation, KIND) {
        (Activation::Silu, COARSE) => run(gate, up, |x| x * sigmoid(x)),
        (Activation::Silu, _) => run(gate, up, silu),
        (_, COARSE) => run(gate, up, |x| x * sigmoid(x * (x * x).mul_add(0.071_354_82, 1.595_769))),
        _ => run(gate, up, gelu_tanh),
    }
}

/// Columns of a register tile, in vectors of 16.
const COLUMNS: usize = if cfg!(target_feature = "avx512f") { 4 } else { 1 };
type Sums = [[[f32; LANES]; COLUMNS]; ROWS];

/// `sums + left * right`, over ascending inner index, `right` in rows of `stride` groups.
#[inline(always)]
fn tile(mut sums: Sums, left: [&[f32]; ROWS], right: &[[f32; LANES]], stride: usize, column: usize) -> Sums {
    let depth = left[0].len();
    assert!(column + COLUMNS <= stride && left.iter().all(|row| row.len() == depth));
    for (p, right) in right.chunks_exact(stride).take(depth).enumerate() {
        let right = &right[column..column + COLUMNS];
        for i in 0..ROWS {
            let x = left[i][p];
            for j in 0..COLUMNS {
                for lane in 0..LANES {
                    sums[i][j][lane] = x.mul_add(right[j][lane], sums[i][j][lane]);
                }
            }
        }
    }
    sums
}

/// One head's attention of some queries over all keys: scores in chains of 16 products, or in one over the head.
struct Attention {
    dim: usize,
    queries: Vec<f32>,
    /// Block by block, `[dim, 64]`.
    keys: Vec<f32>,
    /// `[keys, dim]`.
    values: Vec<f32>,
    scores: Vec<f32>,
    out: Vec<f32>,
}

impl Attention {
    fn run<const KIND: u8>(&mut self) {
        let chain = if KIND == COARSE { self.dim } else { 16 };
        let exp = |x: f32| if KIND == COARSE { cheap_exp(x) } else { exp_nonpositive(x) };
        // A masked key adds +-0 to an output; what turns it into +0 is not needed where bits may differ.
        let zero = if KIND != FIXED { -0.0 } else { 0.0 };
        let rows = self.queries.len() / self.dim;
        let (mut maxima, mut sums) = (vec![f32::MIN; rows], vec![[[0.0f32; LANES]; KEYS / LANES]; rows]);
        self.out.fill(0.0);
        let blocks = self.keys.chunks_exact(KEYS * self.dim).zip(self.values.chunks_exact(KEYS * self.dim));
        for (block, (keys, values)) in blocks.enumerate() {
            score(&self.queries, self.dim, keys, chain, &mut self.scores);
            for (row, scores) in self.scores.as_chunks_mut::<KEYS>().0.iter_mut().enumerate() {
                let lanes = scores.as_chunks::<LANES>().0;
                let peaks: [f32; LANES] =
                    std::array::from_fn(|i| lanes.iter().fold(f32::MIN, |m, x| if x[i] > m { x[i] } else { m }));
                let new = peaks.iter().fold(maxima[row], |m, &x| if x > m { x } else { m });
                let rescale = exp(maxima[row] - new);
                maxima[row] = new;
                let mut running = sums[row];
                running.as_flattened_mut().iter_mut().for_each(|sum| *sum *= rescale);
                for (group, scores) in scores.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                    let running = &mut running[if KIND == FIXED { 0 } else { group }];
                    for (score, sum) in scores.iter_mut().zip(running) {
                        *score = exp(*score - new);
                        *sum += *score;
                    }
                }
                sums[row] = running;
                if block > 0 {
                    self.out[row * self.dim..][..self.dim].iter_mut().for_each(|x| *x = *x * rescale + zero);
                }
            }
            weigh(&self.scores, values, self.dim, &mut self.out);
        }
        for (sums, out) in sums.iter().zip(self.out.chunks_exact_mut(self.dim)) {
            let used = if KIND == FIXED { &sums[..1] } else { &sums[..] };
            let inverse = 1.0 / used.iter().map(tree).sum::<f32>();
            out.iter_mut().for_each(|x| *x = *x * inverse + zero);
        }
    }
}

#[inline(always)]
fn score(queries: &[f32], dim: usize, keys: &[f32], chain: usize, scores: &mut [f32]) {
    let keys = keys.as_chunks::<LANES>().0;
    let scores = scores.chunks_exact_mut(ROWS * KEYS);
    for (queries, scores) in queries.chunks_exact(ROWS * dim).zip(scores) {
        for column in (0..KEYS / LANES).step_by(COLUMNS) {
            for start in (0..dim).step_by(chain) {
                let left = std::array::from_fn(|i| &queries[i * dim + start..][..chain]);
                let keys = &keys[start * KEYS / LANES..];
                let sums = tile([[[0.0; LANES]; COLUMNS]; ROWS], left, keys, KEYS / LANES, column);
                for (sums, scores) in sums.iter().zip(scores.chunks_exact_mut(KEYS)) {
                    let scores = &mut scores[column * LANES..][..COLUMNS * LANES];
                    if start == 0 {
                        scores.copy_from_slice(sums.as_flattened());
                    } else {
                        scores.iter_mut().zip(sums.as_flattened()).for_each(|(score, sum)| *score += sum);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn weigh(scores: &[f32], values: &[f32], dim: usize, out: &mut [f32]) {
    let (values, stride) = (values.as_chunks::<LANES>().0, dim / LANES);
    let out = out.as_chunks_mut::<LANES>().0.chunks_exact_mut(ROWS * stride);
    for (scores, out) in scores.chunks_exact(ROWS * KEYS).zip(out) {
        let left = std::array::from_fn(|i| &scores[i * KEYS..][..KEYS]);
        for column in (0..stride).step_by(COLUMNS) {
            let at = |i: usize| i * stride + column;
            let sums = std::array::from_fn(|i| *out[at(i)..].first_chunk().expect("whole tiles"));
            let sums = tile(sums, left, values, stride, column);
            (0..ROWS).for_each(|i| out[at(i)..][..COLUMNS].copy_from_slice(&sums[i]));
        }
    }
}

fn values(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// The best time of each kind, in turns; prints them, and returns what parts of the first the others save.
fn compare<T>(name: &str, state: &mut T, mut kinds: [impl FnMut(&mut T); 3]) -> [f64; 2] {
    let mut best = [f64::INFINITY; 3];
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 4.0 {
        for (best, f) in best.iter_mut().zip(&mut kinds) {
            let call = Instant::now();
            f(black_box(state));
            *best = best.min(call.elapsed().as_secs_f64());
        }
    }
    let saved = [FREE, COARSE].map(|kind| 1.0 - best[kind as usize] / best[0]);
    let [fixed, free, coarse] = best.map(|seconds| seconds * 1e6);
    println!(
        "{name:17} {fixed:7.2} us; free order {free:7.2}, {:4.1} % less; less accurate too {coarse:7.2}, {:4.1} % less",
        100.0 * saved[0],
        100.0 * saved[1]
    );
    saved
}

fn same(name: &str, own: &[f32], crates: &[f32]) {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert!(bits(own) == bits(crates), "{name}: the loop here is not that of the crate");
}

/// A model's sizes and the parts of its forwards of 128 and 512 tokens, in percent: norms of every kind together, gated
/// activation, attention.
type Model = (&'static str, usize, usize, usize, Activation, [[f64; 3]; 2]);

fn model((name, hidden, ffn, dim, activation, shares): Model) {
    println!("{name}");
    let (x, weight) = (values(16 * hidden, 1), values(hidden, 2));
    let mut out = (x.clone(), x.clone());
    norm::<FIXED>(&x, &weight, &mut out.0);
    rms_norm(Isa::best(), &x, &weight, 1e-6, &mut out.1);
    same("norm", &out.0, &out.1);
    let kinds = [norm::<FIXED>, norm::<FREE>, norm::<COARSE>];
    let norms = compare(
        "norm",
        &mut out.0,
        kinds.map(|run| {
            let (x, weight) = (&x, &weight);
            move |out: &mut Vec<f32>| run(x, weight, out)
        }),
    );

    let (start, up) = (values(4 * ffn, 3), values(4 * ffn, 4));
    let mut gate = (start.clone(), start.clone());
    gated::<FIXED>(activation, &mut gate.0, &up);
    gated_activation(Isa::best(), activation, &start, &up, &mut gate.1);
    same("activation", &gate.0, &gate.1);
    let kinds = [gated::<FIXED>, gated::<FREE>, gated::<COARSE>];
    // In place: from the same start each time.
    let restart = |run: fn(Activation, &mut [f32], &[f32])| {
        let (start, up) = (&start, &up);
        move |gate: &mut Vec<f32>| {
            gate.copy_from_slice(start);
            run(activation, gate, up);
        }
    };
    let gates = compare("gated activation", &mut gate.0, kinds.map(restart));

    let tokens = 8 * KEYS;
    let [q, k, v] = [5, 6, 7].map(|seed| values(tokens * dim, seed));
    let keys = k.chunks_exact(KEYS * dim).flat_map(|block| (0..KEYS * dim).map(|i| block[i % KEYS * dim + i / KEYS]));
    let mut own = Attention {
        dim,
        queries: q[..60 * dim].to_vec(),
        keys: keys.collect(),
        values: v.clone(),
        scores: vec![0.0; 60 * KEYS],
        out: vec![0.0; 60 * dim],
    };
    let mut whole = vec![0.0; tokens * dim];
    let shape =
        AttentionShape { num_heads: 1, num_kv_heads: 1, head_dim: dim, scale: 1.0, causal: false, window: None };
    attention(Isa::best(), &q, &k, &v, &shape, &[0, tokens], &mut whole);
    own.run::<FIXED>();
    same("attention", &own.out, &whole[..60 * dim]);
    let kinds = [Attention::run::<FIXED>, Attention::run::<FREE>, Attention::run::<COARSE>];
    let attends = compare("attention", &mut own, kinds);

    for (tokens, [norm, gate, attend]) in [128, 512].into_iter().zip(shares) {
        let [order, all] = [0, 1].map(|kind| norm * norms[kind] + gate * gates[kind] + attend * attends[kind]);
        println!("of a forward of {tokens} tokens: the order {order:.2} %, with the accuracy {all:.2} %");
    }
}

fn main() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    pool.install(|| {
        model(("0.6B", 1024, 3072, 128, Activation::Silu, [[5.5, 1.4, 10.6], [5.4, 1.2, 25.3]]));
        model(("270M", 640, 2048, 256, Activation::GeluTanh, [[7.8, 3.1, 11.0], [7.4, 2.4, 27.1]]));
    });
}
