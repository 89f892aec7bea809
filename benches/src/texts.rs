//! Whole texts through the `Embedder`: many short ones, and one query at a time.

use crate::clock::Clock;
use crate::error::BenchError;
use crate::run::mean_and_deviation;
use crate::shapes::Random;
use bitnet_embed::embedder::{BackendKind, Embedder};
use burn_i2s::isa::Isa;
use std::io::Write;
use std::path::Path;

/// Tokens of the long text that short ones are compared with.
const PREFILL: usize = 512;

/// Tokens of a query.
const QUERY: usize = 16;

/// What to time.
#[derive(Clone, Debug)]
pub struct TextTests {
    /// How many texts.
    pub count: usize,
    /// About how many tokens each.
    pub tokens: usize,
    /// Threads.
    pub threads: usize,
    /// Samples of each.
    pub repetitions: usize,
    /// The instruction-set level.
    pub isa: Isa,
    /// Whether CPU time is measured, rather than the time that passes.
    pub cpu_time: bool,
    /// The linear layers, if not the file's default.
    pub backend: Option<BackendKind>,
}

/// Times short texts, their tokenization alone, a 512-token prefill and a 16-token query, all in turns, and prints
/// tokens a second and milliseconds.
///
/// # Errors
/// When the file is refused, or the result cannot be written.
pub fn run(path: &Path, tests: &TextTests, out: &mut dyn Write) -> Result<(), BenchError> {
    let clock = if tests.cpu_time { Clock::Cpu { threads: tests.threads as u32 } } else { Clock::Wall };
    let mut builder = Embedder::builder().threads(tests.threads).isa(tests.isa);
    if let Some(backend) = tests.backend {
        builder = builder.backend(backend);
    }
    let embedder = builder.open(path)?;
    // Texts are up to half as long again as what was asked for.
    let (n_prompt, context) = (tests.tokens + tests.tokens / 2, embedder.max_tokens());
    if n_prompt > context {
        return Err(BenchError::Context { path: path.to_path_buf(), n_prompt, context });
    }
    let mut random = Random(1);
    let texts = make_texts(&embedder, &mut random, tests)?;
    let vocab_size = embedder.config().vocab_size;
    let mut ids = |len: usize| vec![(0..len).map(|_| random.below(vocab_size) as u32).collect::<Vec<u32>>()];
    let (prefill, query) = (ids(PREFILL), ids(QUERY));
    embedder.embed_ids(&prefill)?;

    let (mut short, mut tokenized, mut long, mut queries) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut report = Default::default();
    for _ in 0..tests.repetitions.max(1) {
        let timer = clock.start();
        (_, report) = embedder.embed_with_report(&texts)?;
        short.push(report.tokens as f64 / timer.elapsed().as_secs_f64());
        // On this thread alone, so its CPU time is not divided.
        let timer = if tests.cpu_time { Clock::Cpu { threads: 1 } } else { Clock::Wall }.start();
        for text in &texts {
            embedder.tokenize(text)?;
        }
        tokenized.push(timer.elapsed().as_secs_f64());
        for _ in 0..3 {
            let timer = clock.start();
            embedder.embed_ids(&prefill)?;
            long.push(PREFILL as f64 / timer.elapsed().as_secs_f64());
            let timer = clock.start();
            embedder.embed_ids(&query)?;
            queries.push(timer.elapsed().as_secs_f64() * 1e3);
        }
    }
    let [short, tokenized, long, queries] = [short, tokenized, long, queries].map(|values| mean_and_deviation(&values));
    let (count, tokens, threads) = (tests.count, report.tokens as f64, tests.threads);
    writeln!(out, "{} on {}, threads: {threads}", path.display(), tests.isa)?;
    let forwards = report.forwards;
    writeln!(
        out,
        "  {count} texts of {:.1} tokens in {forwards} forwards: {:.1} ± {:.1} t/s, {:.1} % of a {PREFILL}-token text",
        tokens / count as f64,
        short.0,
        short.1,
        100.0 * short.0 / long.0
    )?;
    writeln!(out, "  one text of {PREFILL} tokens: {:.1} ± {:.1} t/s", long.0, long.1)?;
    writeln!(
        out,
        "  tokenization on one thread: {:.3} s, {:.1} % of the time of all texts",
        tokenized.0,
        100.0 * tokenized.0 * short.0 / tokens
    )?;
    writeln!(out, "  one query of {QUERY} tokens: {:.2} ± {:.2} ms", queries.0, queries.1)?;
    Ok(())
}

/// Texts of made-up words, so that a tokenizer's memory of words does not answer for it. Their lengths vary by half of
/// what was asked for either way; a text is taken to have the tokens of its words.
fn make_texts(embedder: &Embedder, random: &mut Random, tests: &TextTests) -> Result<Vec<String>, BenchError> {
    const SYLLABLES: [&str; 24] = [
        "ba", "con", "der", "el", "fi", "gra", "hu", "ing", "jo", "ka", "li", "mon", "ne", "or", "pre", "qui", "ra",
        "sta", "ter", "un", "ver", "wil", "yo", "ze",
    ];
    let special = embedder.tokenize("")?.len();
    let mut texts = Vec::with_capacity(tests.count);
    for _ in 0..tests.count {
        let wanted = tests.tokens / 2 + random.below(tests.tokens + 1);
        let (mut text, mut tokens) = (String::new(), special);
        while text.is_empty() || tokens < wanted {
            let start = text.len();
            if !text.is_empty() {
                text.push(' ');
            }
            for _ in 0..1 + random.below(4) {
                text.push_str(SYLLABLES[random.below(SYLLABLES.len())]);
            }
            tokens += embedder.tokenize(&text[start..])?.len().saturating_sub(special).max(1);
        }
        texts.push(text);
    }
    Ok(texts)
}
