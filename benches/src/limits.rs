//! What this CPU can do at best, and which part of it the ternary product and whole forwards reach.
//!
//! Limits are instructions on registers alone. Limit and rate are taken in turns, and the best of each counts, so that
//! a slow moment of the machine hits both alike.

use crate::clock::Clock;
use crate::error::BenchError;
use crate::model::BenchModel;
use crate::shapes::{LAYER_SHAPES, LayerShape, Random};
use crate::verify::same_bits;
use bitnet_embed::batch::RaggedBatch;
use burn_i2s::gemm::{spin_multiply_add, ternary_gemm};
use burn_i2s::isa::Isa;
use burn_i2s::matrix::TernaryMatrix;
use burn_i2s::peak::fma_peak;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Activation rows that are measured.
const ROWS: [usize; 5] = [1, 8, 32, 128, 512];

/// Rounds of one reading of a limit: about half a millisecond.
const ROUNDS: u64 = 200_000;

/// Billions of int8 products a second of one thread on registers; `None` where the level has no instruction for them.
pub fn multiply_add_limit(isa: Isa, clock: Clock) -> Option<f64> {
    let timer = clock.start();
    let products = spin_multiply_add(isa, ROUNDS)?;
    Some(products as f64 / timer.elapsed().as_nanos() as f64)
}

/// Repeats `reading` for `time` and keeps the best of each of its figures.
fn best<const N: usize>(time: Duration, mut reading: impl FnMut() -> [f64; N]) -> [f64; N] {
    let mut best = [0.0; N];
    let timer = Instant::now();
    while timer.elapsed() < time {
        for (best, new) in best.iter_mut().zip(reading()) {
            *best = f64::max(*best, new);
        }
    }
    best
}

/// Prints the limits of every level, and `isa`'s ternary product as a part of its own at the shapes of the real models.
///
/// # Errors
/// When `out` cannot be written.
///
/// # Panics
/// When a kernel differs from the scalar level.
pub fn kernels(isa: Isa, clock: Clock, time: Duration, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Register-only limits of one thread, billions a second (int8 products; f32 multiply-adds):\n")?;
    for &level in Isa::available() {
        let [int8, fma] =
            best(time, || [multiply_add_limit(level, clock).unwrap_or(0.0), fma_peak(level, 100_000) / 1e9]);
        writeln!(out, "  {:<12} {int8:8.1} {fma:8.1}", level.name())?;
    }
    if multiply_add_limit(isa, clock).is_none() {
        return writeln!(out, "\n{isa} has no int8 multiply-add to measure the ternary product against.");
    }
    writeln!(
        out,
        "\nTernary product on {isa}, one thread, weights in cache, percent of its limit, by activation rows:\n"
    )?;
    let columns: String = ROWS.iter().map(|rows| format!(" {rows:>6}")).collect();
    writeln!(out, "  {:<5} {:<10} {:>5} x {:<5}{columns}", "model", "layers", "out", "in")?;
    for shape in LAYER_SHAPES {
        let mut line =
            format!("  {:<5} {:<10} {:>5} x {:<5}", shape.model, shape.layers, shape.out_features, shape.in_features);
        for rows in ROWS {
            let part = ternary_part(isa, clock, time, rows, shape);
            line.push_str(&format!(" {:>6.1}", 100.0 * part));
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn ternary_part(isa: Isa, clock: Clock, time: Duration, rows: usize, shape: LayerShape) -> f64 {
    let LayerShape { in_features, out_features, .. } = shape;
    let mut random = Random(rows as u64);
    let packed = random.ternary(out_features, in_features);
    let matrix = TernaryMatrix::new(&packed, out_features, in_features).expect("a matrix of whole blocks");
    let x = random.quantized(rows, in_features);
    let mut y = vec![0.0; rows * out_features];
    let mut product = |isa| {
        ternary_gemm(isa, &x.activations(), &matrix, &mut y).expect("shapes that fit");
        y.clone()
    };
    if rows <= 8 {
        assert!(same_bits(&product(Isa::Scalar), &product(isa)), "{isa} differs from scalar");
    }
    let products = (rows * in_features * out_features) as f64;
    let [limit, rate] = best(time, || {
        let limit = multiply_add_limit(isa, clock).unwrap_or(f64::INFINITY);
        // About as long as a reading of the limit.
        let times = ((1e8 / products) as usize).clamp(1, 1000);
        let timer = clock.start();
        for _ in 0..times {
            ternary_gemm(isa, &x.activations(), &matrix, &mut y).expect("shapes that fit");
        }
        [limit, times as f64 * products / timer.elapsed().as_nanos() as f64]
    });
    rate / limit
}

/// Prints each model's forwards on one thread as a part of the int8 limit: tokens a second times the weights a token
/// is multiplied with.
///
/// # Errors
/// When `out` cannot be written.
pub fn forwards(
    models: &[BenchModel],
    n_prompt: &[usize],
    isa: Isa,
    clock: Clock,
    time: Duration,
    out: &mut dyn Write,
) -> Result<(), BenchError> {
    writeln!(out, "\nWhole forwards on {isa}, one thread: tokens a second times projection weights, of the limit:\n")?;
    for model in models {
        for &tokens in n_prompt {
            let batch = RaggedBatch::new(&[tokens]);
            let ids = model.random_ids(&mut Random(1), tokens, 1);
            model.forward(&ids, &batch);
            let [limit, rate] = best(time * 10, || {
                let limit = multiply_add_limit(isa, clock).unwrap_or(f64::INFINITY);
                let timer = clock.start();
                model.forward(&ids, &batch);
                [limit, tokens as f64 / timer.elapsed().as_secs_f64()]
            });
            let weights = model.projection_weights() as f64;
            let name = format!("pp{tokens}");
            writeln!(
                out,
                "  {:<20} {name:<7} {rate:9.1} t/s x {:6.1} M = {:5.1} %",
                model.description,
                weights / 1e6,
                rate * weights / 1e9 / limit * 100.0
            )?;
        }
    }
    Ok(())
}
