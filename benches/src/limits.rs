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
use burn_i2s::peak::spin_fma;
use std::hint;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Activation rows that are measured.
const ROWS: [usize; 5] = [1, 8, 32, 128, 512];

/// Rounds of one reading of a limit: about half a millisecond.
const ROUNDS: u64 = 200_000;

/// How limits and rates are measured.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// The instruction-set level.
    pub isa: Isa,
    /// Threads of the products and forwards; limits are of one, times so many.
    pub threads: usize,
    /// Whether CPU time is measured, rather than the time that passes.
    pub cpu_time: bool,
    /// What each figure takes at least.
    pub time: Duration,
}

impl Measure {
    /// The clock of work on so many threads.
    fn clock(self, threads: usize) -> Clock {
        if self.cpu_time { Clock::Cpu { threads: threads as u32 } } else { Clock::Wall }
    }

    /// Billions of int8 products a second that all threads could do.
    fn limit(self) -> f64 {
        multiply_add_limit(self.isa, self.clock(1)).map_or(f64::INFINITY, |limit| limit * self.threads as f64)
    }

    fn on_threads(self) -> String {
        if self.threads == 1 { "one thread".into() } else { format!("{} threads", self.threads) }
    }
}

/// Billions of int8 products a second of one thread on registers; `None` where the level has no instruction for them.
pub fn multiply_add_limit(isa: Isa, clock: Clock) -> Option<f64> {
    let timer = clock.start();
    let products = spin_multiply_add(isa, ROUNDS)?;
    Some(products as f64 / timer.elapsed().as_nanos() as f64)
}

/// The fewest readings of a figure, however long they take.
const READINGS: usize = 3;

/// Repeats `reading` for `time` and keeps the best of each of its figures.
fn best<const N: usize>(time: Duration, mut reading: impl FnMut() -> [f64; N]) -> [f64; N] {
    let mut best = [0.0; N];
    let timer = Instant::now();
    let mut readings = 0;
    while readings < READINGS || timer.elapsed() < time {
        readings += 1;
        for (best, new) in best.iter_mut().zip(reading()) {
            *best = f64::max(*best, new);
        }
    }
    best
}

/// A value with nothing else in its cache line, nor in the one that is fetched with it.
#[repr(align(128))]
struct CacheLine(AtomicU64);

/// Nanoseconds that a cache line takes to another thread and back: what threads pay for memory that they share. It says
/// how far apart their CPUs are, which in a virtual machine may change by itself. By the time that passes, whatever the
/// clock of the others.
///
/// # Errors
/// When no thread can be started.
fn round_trip(time: Duration) -> io::Result<f64> {
    /// Trips between two looks at the clock.
    const TRIPS: u64 = 100;
    /// Ends the other thread. Even numbers are its answers, odd ones this thread's questions.
    const END: u64 = u64::MAX - 1;
    let CacheLine(line) = &CacheLine(AtomicU64::new(0));
    thread::scope(|scope| {
        thread::Builder::new().spawn_scoped(scope, || {
            loop {
                match line.load(Ordering::Acquire) {
                    END => return,
                    question if question % 2 == 1 => line.store(question + 1, Ordering::Release),
                    _ => hint::spin_loop(),
                }
            }
        })?;
        let [trips] = best(time, || {
            let timer = Instant::now();
            for trip in 0..TRIPS {
                line.store(2 * trip + 1, Ordering::Release);
                while line.load(Ordering::Acquire) % 2 == 1 {
                    hint::spin_loop();
                }
            }
            [TRIPS as f64 / timer.elapsed().as_nanos() as f64]
        });
        line.store(END, Ordering::Release);
        Ok(1.0 / trips)
    })
}

/// Prints the limits of every level, and the ternary product as a part of its own at the shapes of the real models. To be
/// called in a pool of as many threads as `measure` says.
///
/// # Errors
/// When `out` cannot be written.
///
/// # Panics
/// When a kernel differs from the scalar level.
pub fn kernels(measure: Measure, out: &mut dyn Write) -> io::Result<()> {
    let Measure { isa, time, .. } = measure;
    let clock = measure.clock(1);
    writeln!(out, "Register-only limits of one thread, billions a second (int8 products; f32 multiply-adds):\n")?;
    for &level in Isa::available() {
        let [int8, fma] = best(time, || {
            let int8 = multiply_add_limit(level, clock).unwrap_or(0.0);
            let timer = clock.start();
            let fma = spin_fma(level, ROUNDS as usize / 2) as f64 / timer.elapsed().as_nanos() as f64;
            [int8, fma]
        });
        writeln!(out, "  {:<12} {int8:8.1} {fma:8.1}", level.name())?;
    }
    if measure.threads > 1 {
        writeln!(out, "\nA cache line from one thread to another and back: {:.0} ns", round_trip(time)?)?;
    }
    if multiply_add_limit(isa, clock).is_none() {
        return writeln!(out, "\n{isa} has no int8 multiply-add to measure the ternary product against.");
    }
    writeln!(
        out,
        "\nTernary product on {isa}, {}, weights in cache, percent of the limit, by activation rows:\n",
        measure.on_threads()
    )?;
    let columns: String = ROWS.iter().map(|rows| format!(" {rows:>6}")).collect();
    writeln!(out, "  {:<5} {:<10} {:>5} x {:<5}{columns}", "model", "layers", "out", "in")?;
    for shape in LAYER_SHAPES {
        let mut line =
            format!("  {:<5} {:<10} {:>5} x {:<5}", shape.model, shape.layers, shape.out_features, shape.in_features);
        for rows in ROWS {
            let part = ternary_part(measure, rows, shape);
            line.push_str(&format!(" {:>6.1}", 100.0 * part));
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn ternary_part(measure: Measure, rows: usize, shape: LayerShape) -> f64 {
    let Measure { isa, time, .. } = measure;
    let clock = measure.clock(measure.threads);
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
        let limit = measure.limit();
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

/// Prints each model's forwards as a part of the int8 limit, in a pool as for [`kernels`]: tokens a second times the
/// weights a token is multiplied with.
///
/// # Errors
/// When `out` cannot be written.
pub fn forwards(
    models: &[BenchModel],
    n_prompt: &[usize],
    measure: Measure,
    out: &mut dyn Write,
) -> Result<(), BenchError> {
    let (isa, clock) = (measure.isa, measure.clock(measure.threads));
    let threads = measure.on_threads();
    writeln!(out, "\nWhole forwards on {isa}, {threads}: tokens a second times projection weights, of the limit:\n")?;
    for model in models {
        for &tokens in n_prompt {
            let batch = RaggedBatch::new(&[tokens]);
            let ids = model.random_ids(&mut Random(1), tokens, 1);
            model.forward(&ids, &batch);
            let [limit, rate] = best(measure.time * 10, || {
                let limit = measure.limit();
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
