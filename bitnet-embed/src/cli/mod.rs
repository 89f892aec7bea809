//! Command line: arguments -> command -> exit code.

mod args;
mod embed;
mod format;
mod info;
mod tokenize;

use args::{Arguments, Command};
use bitnet_embed::config::ModelConfig;
use bitnet_embed::embedder::EmbedError;
use bitnet_embed::gguf::GgufError;
use bitnet_embed::store::{StoreError, StoreProblem};
use bitnet_embed::tokenizer::TokenizerError;
use clap::Parser;
use std::ffi::OsString;
use std::io;
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
    #[error("cannot read {}: {source}", path.display())]
    Input { path: PathBuf, source: io::Error },
    #[error("{}: line {line} is not UTF-8 text", path.display())]
    NotText { path: PathBuf, line: usize },
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

impl CliError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Embed(EmbedError::MaxTokens { .. } | EmbedError::Threads { .. }) => 2,
            Self::Embed(EmbedError::Store(StoreError { problem, .. })) => match &**problem {
                StoreProblem::Config(error) if error.is_unsupported() => 4,
                StoreProblem::Linear(_) => 4,
                _ => 3,
            },
            Self::Output(_) => 5,
            _ => 3,
        }
    }
}

/// Parses the arguments, runs the command and reports its failure in one line.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = Arguments::parse_from(args::long_spellings(arguments));
    let result = match arguments.command {
        Command::Embed(arguments) => embed::run(&arguments),
        Command::Tokenize(arguments) => tokenize::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has what it wanted.
        Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Says on stderr, in one line, which metadata keys a file does not have and what was assumed for them.
pub(crate) fn note_assumed(config: &ModelConfig) {
    if config.assumed.is_empty() {
        return;
    }
    let assumed: Vec<String> = config.assumed.iter().map(ToString::to_string).collect();
    eprintln!("note: {}; state another value with --override-kv KEY=TYPE:VALUE", assumed.join("; "));
}

/// Says on stderr that the built-in model's vectors mean nothing.
pub(crate) fn note_demo() {
    eprintln!(
        "note: no -m given, so this is the built-in demo model. Its weights are random and its vectors mean nothing. \
         Download bitnet-embeddings-0.6b-bf16-i2_s.gguf or bitnet-embeddings-270m-bf16-i2_s.gguf from Hugging Face \
         (microsoft/bitnet-embeddings-0.6b, microsoft/bitnet-embeddings-270m) and pass it with -m."
    );
}
