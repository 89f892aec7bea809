//! Text to token ids, with the special tokens around it.
//!
//! A GGUF file holds a vocabulary in one of two ways. `tokenizer.huggingface.json` is a whole `tokenizer.json`, which
//! the `tokenizers` library runs if its steps are those of the two families. Otherwise there are arrays, and the tokenizer is rebuilt from them:
//!
//! | `tokenizer.ggml.model` | added tokens | then | merges |
//! |---|---|---|---|
//! | `gpt2` (Qwen3) | cut out of the raw text | NFC, Qwen2 pattern, bytes | `tokenizer.ggml.merges` |
//! | `llama` (Gemma 3) | cut out of the raw text | space to U+2581, unknown characters to bytes | recovered from the scores |
//!
//! Both give the ids of the library for the `tokenizer.json` they were made from, take time linear in the text (up
//! to the logarithm of a heap), and load without building anything larger than an index of the tokens.

mod byte_level;
mod document;
mod error;
mod from_gguf;
mod library;
mod merge;
mod pipeline;
mod rebuilt;
mod scored;
mod split;
mod vocab;

use std::fmt;
use std::path::Path;

pub use error::TokenizerError;

use crate::config::keys::tokenizer as keys;
use crate::file::read_regular;
use library::Library;
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

/// The longest `tokenizer.json` read from a file: eight times that of Gemma 3.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// The longest text accepted, in bytes: after normalization, which can triple it, offsets must fit in 32 bits.
const MAX_TEXT_BYTES: usize = 1 << 30;

enum Kind {
    Library(Box<Library>),
    Rebuilt(Box<Rebuilt>),
}

/// Turns text into token ids. `&self` throughout: one tokenizer serves any number of threads.
pub struct Tokenizer {
    kind: Kind,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            Kind::Library(_) => "tokenizer.json",
            Kind::Rebuilt(_) => "rebuilt from arrays",
        };
        f.debug_struct("Tokenizer").field("kind", &kind).field("ids", &self.id_count()).finish_non_exhaustive()
    }
}

/// The ids of a text under a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The ids, special tokens included.
    pub ids: Vec<u32>,
    /// Whether the text was cut.
    pub truncated: bool,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Its decoder, padding and truncation are ignored.
    ///
    /// # Errors
    /// [`TokenizerError::Json`], [`TokenizerError::Component`] for a step or a setting that the two families do not use,
    /// and those for parts that do not fit together.
    pub fn from_json_bytes(json: &[u8]) -> Result<Self, TokenizerError> {
        Self::from_json_for_rows(json, usize::MAX)
    }

    /// Reads a `tokenizer.json` for a token table of `rows` rows: added tokens with higher ids are left out, and their
    /// strings are ordinary text. Gemma 3's has one, `<image_soft_token>`, for which its text models have no row.
    ///
    /// # Errors
    /// Those of [`Self::from_json_bytes`].
    pub fn from_json_for_rows(json: &[u8], rows: usize) -> Result<Self, TokenizerError> {
        Ok(Self { kind: Kind::Library(Box::new(Library::new(json, rows)?)) })
    }

    /// Reads the `tokenizer.json` at `path`, see [`Self::from_json_bytes`].
    ///
    /// # Errors
    /// [`TokenizerError::Io`] for what cannot be read, is no regular file or longer than 256 MiB; those of
    /// [`Self::from_json_bytes`] in [`TokenizerError::InFile`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        Self::from_file_for_rows(path, usize::MAX)
    }

    /// Reads the `tokenizer.json` at `path` for a token table of `rows` rows, see [`Self::from_json_for_rows`].
    ///
    /// # Errors
    /// Those of [`Self::from_file`].
    pub fn from_file_for_rows(path: impl AsRef<Path>, rows: usize) -> Result<Self, TokenizerError> {
        let path = path.as_ref();
        let json =
            read_regular(path, MAX_JSON_BYTES).map_err(|source| TokenizerError::Io { path: path.into(), source })?;
        Self::from_json_for_rows(&json, rows)
            .map_err(|source| TokenizerError::InFile { path: path.into(), source: Box::new(source) })
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
        check_length(text)?;
        match &self.kind {
            Kind::Library(library) => library.encode(text, usize::MAX).map(|encoded| encoded.ids),
            Kind::Rebuilt(rebuilt) => Ok(rebuilt.encode(text, usize::MAX)),
        }
    }

    /// Ids of `text` cut to at most `max_tokens`: the text loses its end, the special tokens around it stay.
    ///
    /// # Errors
    /// Those of [`Self::encode`], and [`TokenizerError::LimitTooSmall`] if the special tokens alone are more.
    pub fn encode_truncated(&self, text: &str, max_tokens: usize) -> Result<Encoded, TokenizerError> {
        check_length(text)?;
        let special = self.special_count();
        let limit = max_tokens.checked_sub(special).ok_or(TokenizerError::LimitTooSmall { max_tokens, special })?;
        match &self.kind {
            Kind::Library(library) => library.encode(text, limit),
            Kind::Rebuilt(rebuilt) => {
                // One token beyond the limit tells a text that is cut from one that just fits.
                let mut ids = rebuilt.encode(text, limit.saturating_add(1));
                let truncated = ids.len() > max_tokens;
                if truncated {
                    ids = rebuilt.encode(text, limit);
                }
                Ok(Encoded { ids, truncated })
            }
        }
    }

    /// One more than the largest id that [`Self::encode`] can give: the token table needs this many rows.
    pub fn id_count(&self) -> usize {
        match &self.kind {
            Kind::Library(library) => library.len(),
            Kind::Rebuilt(rebuilt) => rebuilt.len(),
        }
    }

    /// Number of special tokens around every text.
    pub fn special_count(&self) -> usize {
        match &self.kind {
            Kind::Library(library) => library.special(),
            Kind::Rebuilt(rebuilt) => rebuilt.special(),
        }
    }
}

fn check_length(text: &str) -> Result<(), TokenizerError> {
    match text.len() {
        bytes if bytes > MAX_TEXT_BYTES => Err(TokenizerError::TextTooLong { bytes, limit: MAX_TEXT_BYTES }),
        _ => Ok(()),
    }
}
