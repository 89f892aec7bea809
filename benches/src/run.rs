//! Forwards of random tokens, timed: one row for every model, number of threads and prompt length.

use crate::clock::Clock;
use crate::error::BenchError;
use crate::model::BenchModel;
use crate::shapes::Random;
use bitnet_embed::batch::RaggedBatch;
use burn_i2s::isa::Isa;
use std::time::{SystemTime, UNIX_EPOCH};

/// What to time.
#[derive(Clone, Debug)]
pub struct Tests {
    /// Prompt lengths, in tokens.
    pub n_prompt: Vec<usize>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Samples of each.
    pub repetitions: usize,
    /// Texts of that length in one forward.
    pub texts: usize,
    /// The instruction-set level.
    pub isa: Isa,
    /// Whether CPU time is measured, rather than the time that passes.
    pub cpu_time: bool,
    /// Whether an untimed forward comes before the samples.
    pub warmup: bool,
}

/// The samples of one model, number of threads and prompt length.
#[derive(Clone, Debug)]
pub struct Row {
    /// Index of the model.
    pub model: usize,
    /// Threads.
    pub threads: usize,
    /// Tokens of a text.
    pub n_prompt: usize,
    /// Texts of a forward.
    pub texts: usize,
    /// When the first sample was taken, in seconds since 1970.
    pub started: u64,
    /// What was measured.
    pub clock: Clock,
    /// Nanoseconds of each forward.
    pub samples_ns: Vec<u64>,
}

impl Row {
    /// Tokens a second of each sample.
    pub fn rates(&self) -> Vec<f64> {
        let tokens = (self.n_prompt * self.texts) as f64;
        self.samples_ns.iter().map(|&ns| tokens * 1e9 / ns as f64).collect()
    }
}

/// Mean and sample standard deviation; the latter is 0 for a single value.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (mean, if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 })
}

/// Times every test. The models take turns sample by sample, so that a slow moment of the machine hits them alike and
/// their ratios stay fair. Rows are ordered by model, threads and prompt length.
///
/// # Errors
/// When threads cannot be started, or a vector is not finite.
pub fn run(models: &[BenchModel], tests: &Tests, progress: &mut dyn FnMut(&str)) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for &threads in &tests.threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|source| BenchError::Threads { threads, source })?;
        for &n_prompt in &tests.n_prompt {
            let plural = if threads == 1 { "" } else { "s" };
            progress(&format!("{threads} thread{plural}, pp{n_prompt}"));
            rows.extend(pool.install(|| tests.isa.scope(|| test(models, tests, threads, n_prompt)))?);
        }
    }
    rows.sort_by_key(|row| row.model);
    Ok(rows)
}

/// One prompt length on the current pool, for all models.
fn test(models: &[BenchModel], tests: &Tests, threads: usize, n_prompt: usize) -> Result<Vec<Row>, BenchError> {
    let batch = RaggedBatch::new(&vec![n_prompt; tests.texts]);
    let clock = if tests.cpu_time { Clock::Cpu { threads: threads as u32 } } else { Clock::Wall };
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let row = |model| Row { model, threads, n_prompt, texts: tests.texts, started, clock, samples_ns: Vec::new() };
    let mut rows: Vec<Row> = (0..models.len()).map(row).collect();
    let mut random = Random(n_prompt as u64);
    for repetition in 0..tests.repetitions + usize::from(tests.warmup) {
        for (model, row) in models.iter().zip(&mut rows) {
            let ids = model.random_ids(&mut random, n_prompt, tests.texts);
            let timer = clock.start();
            let vectors = model.forward(&ids, &batch);
            let elapsed = timer.elapsed().as_nanos() as u64;
            if !vectors.iter().all(|value| value.is_finite()) {
                return Err(BenchError::NotFinite { path: model.path.clone(), n_prompt });
            }
            if repetition >= usize::from(tests.warmup) {
                row.samples_ns.push(elapsed);
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(mean_and_deviation(&[2.0, 4.0, 6.0]), (4.0, 2.0));
        assert_eq!(mean_and_deviation(&[5.0]), (5.0, 0.0));
    }

    #[test]
    fn a_rate_counts_the_tokens_of_all_texts() {
        let row = Row {
            model: 0,
            threads: 1,
            n_prompt: 20,
            texts: 5,
            started: 0,
            clock: Clock::Wall,
            samples_ns: vec![1_000_000_000],
        };
        assert_eq!(row.rates(), [100.0]);
    }
}
