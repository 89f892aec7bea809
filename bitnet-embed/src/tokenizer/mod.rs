//! Text to token ids, with the special tokens around it.
//!
//! A GGUF file holds a vocabulary in one of two ways. `tokenizer.huggingface.json` is a whole `tokenizer.json`, which
//! the `tokenizers` library runs. Otherwise there are arrays, and the tokenizer is rebuilt from them:
//!
//! | `tokenizer.ggml.model` | added tokens | then | merges |
//! |---|---|---|---|
//! | `gpt2` (Qwen3) | cut out of the raw text | NFC, Qwen2 pattern, bytes | `tokenizer.ggml.merges` |
//! | `llama` (Gemma 3) | cut out of the raw text | space to U+2581, unknown characters to bytes | recovered from the scores |
//!
//! Both give the ids of the library for the `tokenizer.json` they were made from, take time linear in the text (up
//! to the logarithm of a heap), and load without building anything larger than an index of the tokens.

mod byte_level;
mod error;
mod from_gguf;
mod merge;
mod rebuilt;
mod scored;
mod split;
mod vocab;

use std::fmt;
use std::path::Path;

pub use error::TokenizerError;

use crate::config::keys::tokenizer as keys;
use rebuilt::Rebuilt;

/// What a token of a GGUF vocabulary is for; the discriminants are those of `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum TokenType {
    /// An ordinary word piece.
    Normal = 1,
    /// The unknown token.
    Unknown = 2,
    /// A special token such as `<eos>`.
    Control = 3,
    /// An added token that is not special.
    UserDefined = 4,
    /// A row of the token table that no text reaches.
    Unused = 5,
    /// `<0xHH>`, one byte of a character that is no token.
    Byte = 6,
}

impl TokenType {
    /// The type with this number, if there is one.
    pub fn from_i32(value: i32) -> Option<Self> {
        [Self::Normal, Self::Unknown, Self::Control, Self::UserDefined, Self::Unused, Self::Byte]
            .into_iter()
            .find(|kind| *kind as i32 == value)
    }
}

/// Where a vocabulary's merges come from.
#[derive(Clone, Debug)]
pub enum MergeSource<'a> {
    /// Model `gpt2`: the merges, best first, each two strings of the byte alphabet with a space between.
    Merges(Vec<&'a str>),
    /// Model `llama`: one score per token.
    Scores(Vec<f32>),
}

/// A vocabulary as the arrays of a GGUF file: everything a rebuilt [`Tokenizer`] is made of.
#[derive(Clone, Debug)]
pub struct VocabArrays<'a> {
    /// Token strings by id.
    pub tokens: Vec<&'a str>,
    /// Token types by id, see [`TokenType`].
    pub token_types: Vec<i32>,
    /// Merges or scores; decides which kind of tokenizer this is.
    pub source: MergeSource<'a>,
    /// Id of the token before every text.
    pub bos: Option<u32>,
    /// Id of the token after every text.
    pub eos: Option<u32>,
    /// Whether `bos` is added.
    pub add_bos: bool,
    /// Whether `eos` is added.
    pub add_eos: bool,
}

/// The longest run of whitespace given to the `tokenizers` library, in characters. Its regex engine backtracks over the
/// run for the look-ahead of the Qwen2 pattern, stops silently after a million steps, and the ids would be wrong.
const MAX_LIBRARY_WHITESPACE: usize = 1 << 18;

enum Kind {
    Library {
        tokenizer: Box<tokenizers::Tokenizer>,
        ids: usize,
        special: usize,
        /// Whether it splits by a regular expression.
        regex: bool,
    },
    Rebuilt(Box<Rebuilt>),
}

/// Turns text into token ids. `&self` throughout: one tokenizer serves any number of threads.
pub struct Tokenizer {
    kind: Kind,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            Kind::Library { .. } => "tokenizer.json",
            Kind::Rebuilt(_) => "rebuilt from arrays",
        };
        f.debug_struct("Tokenizer").field("kind", &kind).field("ids", &self.id_count()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Padding and truncation that it may ask for are switched off.
    ///
    /// # Errors
    /// [`TokenizerError::Library`] if the `tokenizers` library refuses it.
    pub fn from_json_bytes(json: &[u8]) -> Result<Self, TokenizerError> {
        let library = |source| TokenizerError::Library { source };
        let mut tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(library)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(library)?;
        let ids = tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1);
        let special = tokenizer.get_post_processor().map_or(0, |p| tokenizers::PostProcessor::added_tokens(p, false));
        // Its own form of the pre-tokenizer names every pattern as a string or as a regex.
        let regex = serde_json::to_string(&tokenizer.get_pre_tokenizer()).is_ok_and(|form| form.contains("\"Regex\""));
        Ok(Self { kind: Kind::Library { tokenizer: Box::new(tokenizer), ids, special, regex } })
    }

    /// Reads the `tokenizer.json` at `path`, see [`Self::from_json_bytes`].
    ///
    /// # Errors
    /// [`TokenizerError::Io`] if the file cannot be read, and those of [`Self::from_json_bytes`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let path = path.as_ref();
        let json = std::fs::read(path).map_err(|source| TokenizerError::Io { path: path.into(), source })?;
        Self::from_json_bytes(&json)
    }

    /// Rebuilds a tokenizer from a vocabulary's arrays. They are copied into a compact form; `arrays` may be dropped.
    ///
    /// # Errors
    /// Arrays that do not fit together, each by its own variant of [`TokenizerError`].
    pub fn from_arrays(arrays: &VocabArrays<'_>) -> Result<Self, TokenizerError> {
        Ok(Self { kind: Kind::Rebuilt(Box::new(Rebuilt::new(arrays)?)) })
    }

    /// Ids of `text`, with the special tokens around it.
    ///
    /// # Errors
    /// [`TokenizerError::TextTooLong`] beyond 1 GiB; with a `tokenizer.json`, [`TokenizerError::Library`], and, if
    /// that splits by a regular expression, [`TokenizerError::LongWhitespace`] for more than 262,144 whitespace
    /// characters in a row.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match &self.kind {
            Kind::Library { tokenizer, regex, .. } => {
                if *regex {
                    check_whitespace(text)?;
                }
                let encoding =
                    tokenizer.encode_fast(text, true).map_err(|source| TokenizerError::Library { source })?;
                Ok(encoding.get_ids().to_vec())
            }
            Kind::Rebuilt(rebuilt) => rebuilt.encode(text, usize::MAX),
        }
    }

    /// Ids of `text` cut to at most `max_tokens`: the text loses its end, the special tokens around it stay.
    ///
    /// # Errors
    /// Those of [`Self::encode`], and [`TokenizerError::LimitTooSmall`] if the special tokens alone are more.
    pub fn encode_truncated(&self, text: &str, max_tokens: usize) -> Result<Vec<u32>, TokenizerError> {
        let special = self.special_count();
        let limit = max_tokens.checked_sub(special).ok_or(TokenizerError::LimitTooSmall { max_tokens, special })?;
        match &self.kind {
            Kind::Library { tokenizer, regex, .. } => {
                if *regex {
                    check_whitespace(text)?;
                }
                let library = |source| TokenizerError::Library { source };
                let mut encoding = tokenizer.encode_fast(text, false).map_err(library)?;
                encoding.truncate(limit, 0, tokenizers::TruncationDirection::Right);
                let encoding = tokenizer.post_process(encoding, None, true).map_err(library)?;
                Ok(encoding.get_ids().to_vec())
            }
            Kind::Rebuilt(rebuilt) => rebuilt.encode(text, limit),
        }
    }

    /// One more than the largest id that [`Self::encode`] can give: the token table needs this many rows.
    pub fn id_count(&self) -> usize {
        match &self.kind {
            Kind::Library { ids, .. } => *ids,
            Kind::Rebuilt(rebuilt) => rebuilt.len(),
        }
    }

    /// Number of special tokens around every text.
    pub fn special_count(&self) -> usize {
        match &self.kind {
            Kind::Library { special, .. } => *special,
            Kind::Rebuilt(rebuilt) => rebuilt.special(),
        }
    }
}

fn check_whitespace(text: &str) -> Result<(), TokenizerError> {
    if text.len() <= MAX_LIBRARY_WHITESPACE {
        return Ok(());
    }
    let mut chars = 0;
    for c in text.chars() {
        chars = if c.is_whitespace() { chars + 1 } else { 0 };
        if chars > MAX_LIBRARY_WHITESPACE {
            return Err(TokenizerError::LongWhitespace { chars, limit: MAX_LIBRARY_WHITESPACE });
        }
    }
    Ok(())
}
