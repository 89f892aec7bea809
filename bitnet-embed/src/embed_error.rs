//! What keeps an embedder from being opened, or a text from being embedded.

use crate::store::{StoreError, StoreProblem};
use crate::tokenizer::TokenizerError;
use std::path::PathBuf;
use thiserror::Error;

/// Why an [`Embedder`](crate::Embedder) was not opened or a text not embedded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The file was refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The tokenizer refused a text of a list.
    #[error("text {text}: {source}")]
    Text {
        /// Which text.
        text: usize,
        /// What is wrong.
        source: TokenizerError,
    },
    /// The tokenizer could not be built, or refused a single text.
    #[error("{}{source}", named(path))]
    Tokenizer {
        /// The file it comes from, where the source does not name it.
        path: Option<PathBuf>,
        /// What is wrong.
        source: TokenizerError,
    },
    /// The tokenizer can give ids that the token table does not have.
    #[error(
        "{}the tokenizer{} has {tokens} token ids, but the token table only {vocab_size} rows",
        named(path),
        tokenizer.as_ref().map_or_else(String::new, |path| format!(" {}", path.display()))
    )]
    Vocabulary {
        /// The model's file, where there is one.
        path: Option<PathBuf>,
        /// The tokenizer's own file, where it has one.
        tokenizer: Option<PathBuf>,
        /// One more than the largest id.
        tokens: usize,
        /// Rows of the table.
        vocab_size: usize,
    },
    /// An id is no row of the token table.
    #[error("text {text}: token id {id} is not below the vocabulary size {vocab_size}")]
    TokenId {
        /// Which text.
        text: usize,
        /// The id.
        id: u32,
        /// Rows of the table.
        vocab_size: usize,
    },
    /// A text has no tokens at all.
    #[error("text {text} has no tokens; this tokenizer adds none to an empty text")]
    NoTokens {
        /// Which text.
        text: usize,
    },
    /// The model computed a value that is not a finite number: its weights are not, or overflow.
    #[error(
        "{}text {text}: the vector has a value that is not a finite number: {}",
        named(path),
        weight.as_ref().map_or_else(|| "the weights are so large that sums overflow".to_owned(), ToString::to_string)
    )]
    NotFinite {
        /// The model's file, where there is one.
        path: Option<PathBuf>,
        /// Which text.
        text: usize,
        /// The weight that is not a finite number; `None` where all are, and their sums overflow.
        weight: Option<Box<StoreProblem>>,
    },
    /// The thread pool could not be started.
    #[error("cannot start {threads} threads")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// Why.
        source: rayon::ThreadPoolBuildError,
    },
    /// A limit that leaves no room for a text.
    #[error("a limit of {max_tokens} tokens leaves no room for a text, at least {at_least} are needed")]
    MaxTokens {
        /// The limit asked for.
        max_tokens: usize,
        /// The special tokens and one more.
        at_least: usize,
    },
    /// The model's context leaves no room for a text.
    #[error(
        "{}the model's context of {context} tokens leaves no room for a text, at least {at_least} are needed",
        named(path)
    )]
    Context {
        /// The model's file, where there is one.
        path: Option<PathBuf>,
        /// Tokens the model was made for.
        context: usize,
        /// The special tokens and one more.
        at_least: usize,
    },
}

/// The file at the head of an error.
fn named(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(String::new, |path| format!("{}: ", path.display()))
}
