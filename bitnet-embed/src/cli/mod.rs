//! Command line: arguments -> command -> exit code.

mod args;
mod embed;
mod format;
mod info;
mod tokenize;

use args::{Arguments, Command};
use bitnet_embed::config::ConfigError;
use bitnet_embed::embedder::EmbedError;
use bitnet_embed::gguf::GgufError;
use bitnet_embed::store::{StoreError, StoreProblem};
use bitnet_embed::tokenizer::TokenizerError;
use clap::FromArgMatches;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use thiserror::Error;

/// The model of the first command a newcomer runs: random weights, built into the program.
pub(crate) const DEMO_MODEL: &[u8] = include_bytes!("../../assets/demo.gguf");

/// Why a command failed; the exit code follows from it.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Embed(#[from] EmbedError),
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error("{}: {source}", path.display())]
    TokenizerOf { path: PathBuf, source: TokenizerError },
    #[error("{}: {source}", path.display())]
    ConfigOf { path: PathBuf, source: ConfigError },
    #[error("cannot read {}: {source}", path.display())]
    Input { path: PathBuf, source: io::Error },
    #[error("{}: line {line} is not UTF-8 text", path.display())]
    NotText { path: PathBuf, line: usize },
    #[error("{}: there is no text in it", path.display())]
    NoText { path: PathBuf },
    #[error("{}: line {line} is longer than {limit} bytes", path.display())]
    LongLine { path: PathBuf, line: usize, limit: u64 },
    #[error("cannot start {threads} threads: {source}")]
    Threads { threads: usize, source: rayon::ThreadPoolBuildError },
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

impl CliError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Embed(EmbedError::MaxTokens { .. }) => 2,
            Self::Embed(EmbedError::Store(StoreError { problem, .. })) => match &**problem {
                StoreProblem::Config(ConfigError::OverrideUnread { .. }) => 2,
                StoreProblem::Config(error) if error.is_unsupported() => 4,
                StoreProblem::Linear(_) => 4,
                _ => 3,
            },
            Self::Embed(EmbedError::Tokenizer { source, .. })
            | Self::Tokenizer(source)
            | Self::TokenizerOf { source, .. }
                if source.is_unsupported() =>
            {
                4
            }
            Self::ConfigOf { source, .. } if source.is_unsupported() => 4,
            Self::Output(_) => 5,
            _ => 3,
        }
    }
}

/// Parses the arguments, runs the command and reports its failure in one line.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = args::command().get_matches_from(args::long_spellings(arguments));
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match arguments.command {
        Command::Embed(arguments) => start_threads(arguments.threads).and_then(|()| embed::run(&arguments)),
        Command::Tokenize(arguments) => tokenize::run(&arguments),
        Command::Info(arguments) => start_threads(None).and_then(|()| info::run(&arguments)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has what it wanted.
        Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Starts the threads that all work of this process runs on.
fn start_threads(threads: Option<u16>) -> Result<(), CliError> {
    // What the process may use: cgroup quotas and CPU affinity are honoured.
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let most = MOST_THREADS.max(4 * available);
    let threads = threads.map_or(available, usize::from);
    if threads > most {
        return Err(CliError::Usage(format!(
            "{threads} threads are more than this machine has use for, at most {most}"
        )));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build_global().map_err(|source| CliError::Threads { threads, source })
}

/// Threads that may be asked for on any machine.
const MOST_THREADS: usize = 64;

/// Writes a line to stderr. One that cannot be written is lost: there is nobody to tell.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says on stderr what should be known of a file.
pub(crate) fn note(notes: &[String]) {
    notes.iter().for_each(|note| say(&format!("note: {note}")));
}

/// Says on stderr that the built-in model's vectors mean nothing.
pub(crate) fn note_demo() {
    say("note: no -m given, so this is the built-in demo model. Its weights are random and its vectors mean nothing. \
         Download bitnet-embeddings-0.6b-bf16-i2_s.gguf or bitnet-embeddings-270m-bf16-i2_s.gguf from Hugging Face \
         (microsoft/bitnet-embeddings-0.6b, microsoft/bitnet-embeddings-270m) and pass it with -m.");
}
