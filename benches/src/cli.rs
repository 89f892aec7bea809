//! The command line: what can be asked for, and which exit code answers.

use crate::clock::Clock;
use crate::error::BenchError;
use crate::limits::{self, Measure};
use crate::model::BenchModel;
use crate::run::{self, Tests};
use crate::table::{self, Format};
use crate::texts::{self, TextTests};
use crate::{tune, verify};
use bitnet_embed::embedder::BackendKind;
use burn_i2s::isa::Isa;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const AFTER_HELP: &str = "\
Lists are separated by commas: -p 128,256,512. A range is FIRST-LAST with a step: -p 128-2048*2, -t 1-8+1.

Exit codes:
  0  measured
  2  the command line is wrong
  3  a file was refused, or a result was wrong
  5  the result could not be written";

/// The environment variable that stands for `--isa`.
const ISA_VARIABLE: &str = "BITNET_ISA";

/// Forwards of GGUF models in tokens a second, as llama-bench prints them.
#[derive(Debug, Parser)]
#[command(name = "benches", version, after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    bench: BenchArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What this CPU can do at best, and which part of it the kernels reach
    Limits(LimitsArguments),
    /// Other tile sizes and splits than the built-in ones, and which are best on this CPU
    Tune(TuneArguments),
    /// Many short texts through the embedder, beside a long one and a query
    Texts(TextsArguments),
}

#[derive(Args, Debug)]
struct BenchArguments {
    /// GGUF file; may be repeated
    #[arg(short, long = "model", value_name = "FILE")]
    models: Vec<PathBuf>,
    /// Prompt lengths, in tokens
    #[arg(short = 'p', long, value_name = "LIST", default_value = "512", value_parser = parse_lengths)]
    n_prompt: List,
    /// Numbers of threads; what the process may use by default
    #[arg(short, long, value_name = "LIST", value_parser = parse_threads)]
    threads: Option<List>,
    /// Samples of each test
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Texts of that length in one forward
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    texts: u32,
    /// How the rows are printed
    #[arg(short, long, value_enum, default_value_t = Format::Md)]
    output: Format,
    /// Linear layers in integers (i2_s) or f32 (f16); by default i2_s for I2_S files and f16 for others
    #[arg(long, value_enum)]
    backend: Option<BackendArgument>,
    /// Instruction-set level; the best one by default
    #[arg(long, value_name = "LEVEL", env = ISA_VARIABLE, value_parser = parse_isa)]
    isa: Option<Isa>,
    /// Measure CPU time rather than the time that passes: for machines that others use, too
    #[arg(long)]
    cpu_time: bool,
    /// Do not run each test once untimed
    #[arg(long)]
    no_warmup: bool,
    /// Accepted for llama-bench's sake and skipped: these models do not generate
    #[arg(short = 'n', long, value_name = "LIST")]
    n_gen: Option<String>,
    /// Accepted for llama-bench's sake and skipped: there is nothing to offload
    #[arg(long, value_name = "LIST")]
    n_gpu_layers: Option<String>,
    /// Accepted for llama-bench's sake and skipped: embeddings are all there is
    #[arg(long, value_name = "LIST")]
    embeddings: Option<String>,
}

#[derive(Args, Debug)]
struct LimitsArguments {
    /// GGUF file whose forwards are compared with the limit, too; may be repeated
    #[arg(short, long = "model", value_name = "FILE")]
    models: Vec<PathBuf>,
    /// Prompt lengths of those forwards
    #[arg(short = 'p', long, value_name = "LIST", default_value = "128", value_parser = parse_lengths)]
    n_prompt: List,
    /// Threads; the limit is that of one, times so many
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Instruction-set level; the best one by default
    #[arg(long, value_name = "LEVEL", env = ISA_VARIABLE, value_parser = parse_isa)]
    isa: Option<Isa>,
    /// Measure CPU time rather than the time that passes: for machines that others use, too
    #[arg(long)]
    cpu_time: bool,
    /// Milliseconds for each figure
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    time: u64,
}

#[derive(Args, Debug)]
struct TuneArguments {
    /// Threads for the comparison of splits; what the process may use by default
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Instruction-set level; the best one by default
    #[arg(long, value_name = "LEVEL", env = ISA_VARIABLE, value_parser = parse_isa)]
    isa: Option<Isa>,
    /// Milliseconds for each comparison
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    time: u64,
}

#[derive(Args, Debug)]
struct TextsArguments {
    /// GGUF file; may be repeated
    #[arg(short, long = "model", value_name = "FILE")]
    models: Vec<PathBuf>,
    /// How many texts
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    count: u32,
    /// About how many tokens each
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    tokens: u32,
    /// Threads
    #[arg(short, long, value_name = "LIST", default_value = "1", value_parser = parse_threads)]
    threads: List,
    /// Measure CPU time rather than the time that passes: for machines that others use, too
    #[arg(long)]
    cpu_time: bool,
    /// Samples of each figure
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Linear layers in integers (i2_s) or f32 (f16)
    #[arg(long, value_enum)]
    backend: Option<BackendArgument>,
    /// Instruction-set level; the best one by default
    #[arg(long, value_name = "LEVEL", env = ISA_VARIABLE, value_parser = parse_isa)]
    isa: Option<Isa>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BackendArgument {
    #[value(name = "i2_s", alias = "i2s")]
    I2s,
    F16,
}

impl From<BackendArgument> for BackendKind {
    fn from(argument: BackendArgument) -> Self {
        match argument {
            BackendArgument::I2s => Self::I2s,
            BackendArgument::F16 => Self::F16,
        }
    }
}

/// Numbers as llama-bench takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct List(Vec<usize>);

/// The longest text and the most threads: more are a slip of the finger.
const MAX_TOKENS: usize = 1 << 20;
const MAX_THREADS: usize = 1 << 10;

/// The most tokens of one forward, which takes some 20 to 40 KiB of memory for each.
const MAX_FORWARD_TOKENS: usize = 1 << 17;

/// The most tokens of all texts, which are held in memory.
const MAX_TEXT_TOKENS: usize = 1 << 26;

fn parse_lengths(text: &str) -> Result<List, String> {
    parse_list(text, MAX_TOKENS)
}

fn parse_threads(text: &str) -> Result<List, String> {
    parse_list(text, MAX_THREADS)
}

/// Parses `1,2,4`, `1-8`, `1-8+2` and `1-8*2`, and any of them separated by commas.
fn parse_list(text: &str, max: usize) -> Result<List, String> {
    let number = |text: &str| match text.parse() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(format!("{text:?} is not a number from 1 to {max}")),
    };
    let mut numbers = Vec::new();
    for item in text.split(',') {
        let Some((first, rest)) = item.split_once('-') else {
            numbers.push(number(item)?);
            continue;
        };
        let (last, factor, step) = match (rest.split_once('*'), rest.split_once('+')) {
            (Some((last, factor)), _) => (last, number(factor)?, 0),
            (None, Some((last, step))) => (last, 1, number(step)?),
            (None, None) => (rest, 1, 1),
        };
        if factor == 1 && step == 0 {
            return Err(format!("{item:?} never ends"));
        }
        let (mut at, last) = (number(first)?, number(last)?);
        while at <= last {
            numbers.push(at);
            at = at * factor + step;
        }
    }
    if numbers.is_empty() { Err(format!("{text:?} holds no number")) } else { Ok(List(numbers)) }
}

fn parse_isa(name: &str) -> Result<Isa, String> {
    Isa::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Isa::available().iter().map(|isa| isa.name()).collect();
        format!("this CPU has the levels {}", known.join(", "))
    })
}

/// llama-bench spells some options with several letters after one dash; clap wants two dashes.
fn long_spelling(argument: OsString) -> OsString {
    match argument.to_str() {
        Some("-ngl") => "--n-gpu-layers".into(),
        Some("-embd") => "--embeddings".into(),
        _ => argument,
    }
}

/// The program's options. A `BITNET_ISA` that is set to nothing is as good as not set.
fn command() -> clap::Command {
    let command = Arguments::command();
    if std::env::var_os(ISA_VARIABLE).is_some_and(|level| level.is_empty()) {
        let unset = |arg: Arg| if arg.get_id() == "isa" { arg.env(None) } else { arg };
        return command.mut_args(unset).mut_subcommands(|command| command.mut_args(unset));
    }
    command
}

/// Parses the arguments, measures, and reports a failure in one line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = command().get_matches_from(arguments.into_iter().map(long_spelling));
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match arguments.command {
        None => bench(&arguments.bench),
        Some(Command::Limits(arguments)) => limits(&arguments),
        Some(Command::Tune(arguments)) => tune(&arguments),
        Some(Command::Texts(arguments)) => texts(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has what it wanted.
        Err(BenchError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(match error {
                BenchError::NoModel
                | BenchError::NoCpuTime
                | BenchError::Threads { .. }
                | BenchError::Forward { .. }
                | BenchError::Texts { .. }
                | BenchError::Context { .. } => 2,
                BenchError::Output(_) => 5,
                _ => 3,
            })
        }
    }
}

fn bench(arguments: &BenchArguments) -> Result<(), BenchError> {
    if arguments.models.is_empty() {
        return Err(BenchError::NoModel);
    }
    for (given, note) in [
        (&arguments.n_gen, "-n is skipped: embedding models do not generate"),
        (&arguments.n_gpu_layers, "-ngl is skipped: there is nothing to offload"),
        (&arguments.embeddings, "-embd is skipped: embeddings are all there is"),
    ] {
        if given.is_some() {
            eprintln!("note: {note}");
        }
    }
    let texts = arguments.texts as usize;
    let too_many = |n_prompt: usize| n_prompt.saturating_mul(texts) > MAX_FORWARD_TOKENS;
    if let Some(&n_prompt) = arguments.n_prompt.0.iter().find(|&&n_prompt| too_many(n_prompt)) {
        return Err(BenchError::Forward { n_prompt, texts, limit: MAX_FORWARD_TOKENS });
    }
    let isa = arguments.isa.unwrap_or_else(Isa::best);
    let models = open(&arguments.models, arguments.backend, isa, &arguments.n_prompt)?;
    let tests = Tests {
        n_prompt: arguments.n_prompt.0.clone(),
        threads: arguments.threads.clone().map_or_else(|| vec![rayon::current_num_threads()], |list| list.0),
        repetitions: arguments.repetitions as usize,
        texts,
        isa,
        cpu_time: checked(arguments.cpu_time)?,
        warmup: !arguments.no_warmup,
    };
    let rows = run::run(&models, &tests, &mut |test| eprintln!("{test}"))?;
    table::write(arguments.output, isa, &models, &rows, &mut io::stdout().lock(), &mut io::stderr())?;
    Ok(io::stdout().flush()?)
}

/// Whether CPU time is wanted, if it can be had.
fn checked(cpu_time: bool) -> Result<bool, BenchError> {
    if cpu_time && !Clock::has_cpu_time() { Err(BenchError::NoCpuTime) } else { Ok(cpu_time) }
}

/// Opens the files and compares their layers with the scalar level. Refuses prompts that a model is not made for: memory
/// and time grow with them, and nothing would stop them.
fn open(
    paths: &[PathBuf],
    backend: Option<BackendArgument>,
    isa: Isa,
    n_prompt: &List,
) -> Result<Vec<BenchModel>, BenchError> {
    let mut models = Vec::new();
    for path in paths {
        let model = BenchModel::open(path, backend.map(BackendKind::from))?;
        let context = model.config.max_position;
        if let Some(&n_prompt) = n_prompt.0.iter().find(|&&tokens| tokens > context) {
            return Err(BenchError::Context { path: path.clone(), n_prompt, context });
        }
        let shapes = verify::verify(&model, isa)?;
        eprintln!("{}: {shapes} layer shapes give the scalar level's results on {isa}", path.display());
        models.push(model);
    }
    Ok(models)
}

fn limits(arguments: &LimitsArguments) -> Result<(), BenchError> {
    let isa = arguments.isa.unwrap_or_else(Isa::best);
    let measure = Measure {
        isa,
        threads: usize::from(arguments.threads),
        cpu_time: checked(arguments.cpu_time)?,
        time: Duration::from_millis(arguments.time),
    };
    let models = open(&arguments.models, None, isa, &arguments.n_prompt)?;
    on_threads(measure.threads, || {
        isa.scope(|| {
            limits::kernels(measure, &mut io::stdout())?;
            if models.is_empty() {
                return Ok(());
            }
            limits::forwards(&models, &arguments.n_prompt.0, measure, &mut io::stdout())
        })
    })
}

fn tune(arguments: &TuneArguments) -> Result<(), BenchError> {
    let isa = arguments.isa.unwrap_or_else(Isa::best);
    let time = Duration::from_millis(arguments.time);
    let threads = arguments.threads.map_or_else(rayon::current_num_threads, usize::from);
    on_threads(1, || Ok(tune::sizes(isa, time, &mut io::stdout())?))?;
    if threads == 1 || isa == Isa::Scalar {
        return Ok(());
    }
    on_threads(threads, || Ok(tune::splits(isa, time, &mut io::stdout())?))
}

fn texts(arguments: &TextsArguments) -> Result<(), BenchError> {
    if arguments.models.is_empty() {
        return Err(BenchError::NoModel);
    }
    let (count, tokens) = (arguments.count as usize, arguments.tokens as usize);
    if count.saturating_mul(tokens) > MAX_TEXT_TOKENS {
        return Err(BenchError::Texts { count, tokens, limit: MAX_TEXT_TOKENS });
    }
    for path in &arguments.models {
        for &threads in &arguments.threads.0 {
            let tests = TextTests {
                count,
                tokens,
                threads,
                repetitions: arguments.repetitions as usize,
                isa: arguments.isa.unwrap_or_else(Isa::best),
                cpu_time: checked(arguments.cpu_time)?,
                backend: arguments.backend.map(BackendKind::from),
            };
            texts::run(path, &tests, &mut io::stdout())?;
        }
    }
    Ok(())
}

/// Runs `work` on a pool of so many threads.
fn on_threads<R: Send>(threads: usize, work: impl FnOnce() -> Result<R, BenchError> + Send) -> Result<R, BenchError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|source| BenchError::Threads { threads, source })?.install(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_llama_benchs() {
        assert_eq!(parse_lengths("128,256,512"), Ok(List(vec![128, 256, 512])));
        assert_eq!(parse_lengths("1-3"), Ok(List(vec![1, 2, 3])));
        assert_eq!(parse_lengths("128-1024*2,7"), Ok(List(vec![128, 256, 512, 1024, 7])));
        assert_eq!(parse_lengths("1-8+3"), Ok(List(vec![1, 4, 7])));
        for wrong in ["", "0", "1,", "x", "4-1", "1-4*1", "1-4*0", "1-4+0", "99999999999"] {
            assert!(parse_lengths(wrong).is_err(), "{wrong}");
        }
        assert!(parse_lengths("8000").is_ok() && parse_threads("8000").is_err());
    }
}
