//! Why a benchmark did not run.

use bitnet_embed::EmbedError;
use bitnet_embed::gguf::GgufError;
use bitnet_embed::store::StoreError;
use burn_i2s::error::PackError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a benchmark did not run, or its figures are not printed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// No model was named.
    #[error(
        "no model given: pass one or more GGUF files with -m, or make some of full size with random weights first:\n  \
         cargo run --release --bin converter -- dummy --arch qwen3-0.6b --outtype i2_s --outfile A.gguf\n  \
         cargo run --release --bin converter -- dummy --arch qwen3-0.6b --outtype f16 --outfile B.gguf"
    )]
    NoModel,
    /// A file was refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tensor of a file could not be read.
    #[error("{}: {source}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: GgufError,
    },
    /// A weight could not be made ternary.
    #[error("{}: tensor {tensor:?}: {source}", path.display())]
    Pack {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        source: PackError,
    },
    /// The embedder refused the file or a text.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// A prompt is longer than what the model was made for.
    #[error(
        "{}: a text of {n_prompt} tokens is longer than the model's context of {context}; give at most {context}",
        path.display()
    )]
    Context {
        /// The file.
        path: PathBuf,
        /// Tokens asked for.
        n_prompt: usize,
        /// Tokens the model was made for.
        context: usize,
    },
    /// Texts of one forward have too many tokens together.
    #[error(
        "{texts} texts of {n_prompt} tokens are more than the {limit} that one forward may have; give fewer or shorter ones"
    )]
    Forward {
        /// Tokens of a text.
        n_prompt: usize,
        /// Texts.
        texts: usize,
        /// The most tokens.
        limit: usize,
    },
    /// All texts have too many tokens together.
    #[error("{count} texts of {tokens} tokens are more than {limit} tokens in all; give a smaller --count or --tokens")]
    Texts {
        /// Texts.
        count: usize,
        /// Tokens of a text.
        tokens: usize,
        /// The most tokens.
        limit: usize,
    },
    /// Threads could not be started.
    #[error("cannot start {threads} threads: {source}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// Why.
        source: rayon::ThreadPoolBuildError,
    },
    /// A kernel gives other results than the scalar level.
    #[error("{}: tensor {tensor:?}, {rows} rows: {isa} differs from scalar; nothing was timed", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Activation rows.
        rows: usize,
        /// The level.
        isa: &'static str,
    },
    /// A forward gave something that is not a number.
    #[error("{}: the vector of {n_prompt} random tokens is not finite", path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// Tokens of the text.
        n_prompt: usize,
    },
    /// The system does not tell a process its CPU time.
    #[error("this system tells no process its CPU time; leave out --cpu-time")]
    NoCpuTime,
    /// The table could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}
