//! What can be wrong with a tokenizer, or with a text given to one.

use std::io;
use std::path::PathBuf;

use super::TokenType;

/// Why a tokenizer was refused, or could not encode a text.
///
/// Strings that come from a file are shown quoted and escaped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file as the caller named it.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A `tokenizer.json` was refused.
    #[error("{}: {source}", path.display())]
    InFile {
        /// The file as the caller named it.
        path: PathBuf,
        /// Why.
        source: Box<TokenizerError>,
    },
    /// The `tokenizer.json` inside a GGUF file was refused.
    #[error("{key:?}: {source}")]
    InKey {
        /// The metadata key that holds it.
        key: &'static str,
        /// Why.
        source: Box<TokenizerError>,
    },
    /// A `tokenizer.json` is not JSON, or not of this form.
    #[error("not a tokenizer.json: {source}")]
    Json {
        /// Where and why.
        source: crate::json::JsonError,
    },
    /// A step or a setting of a `tokenizer.json` that is not implemented.
    #[error("{component} is {found}, which is not supported (supported: {supported})")]
    Component {
        /// The path that leads to it.
        component: String,
        /// What it is, as JSON, cut when long.
        found: String,
        /// What it may be.
        supported: &'static str,
    },
    /// A template of a `tokenizer.json` adds what is not the id of a token.
    #[error("{component} adds the id {found}, the ids of the tokens are below {tokens}")]
    TemplateId {
        /// The path to the piece of the template.
        component: String,
        /// The id, as JSON.
        found: String,
        /// One more than the largest id.
        tokens: usize,
    },
    /// An added token of a `tokenizer.json` does not get the id that it is listed with.
    #[error(
        "added_tokens gives {token:?} the id {expected}, vocabulary and order give it {}",
        found.map_or_else(|| "none".to_owned(), |id| id.to_string())
    )]
    AddedTokenId {
        /// The token.
        token: String,
        /// The id it is listed with.
        expected: u32,
        /// The id it gets: that of the vocabulary, or the next one after it.
        found: Option<u32>,
    },
    /// A `tokenizer.json` and the token list of the GGUF file that it is used with are of different models.
    #[error(
        "its token {id} is {json:?}, but {:?} of the model has {tokens:?} there: one of the two is another model's; \
         take the tokenizer.json of the checkpoint that the model was made from, or convert that checkpoint again",
        super::keys::TOKENS
    )]
    OtherTokens {
        /// The first id whose tokens differ.
        id: u32,
        /// The token of the `tokenizer.json`.
        json: String,
        /// The token of the GGUF file.
        tokens: String,
    },
    /// The `tokenizers` library refused the parts of a `tokenizer.json`, or failed on a text.
    #[error("the tokenizers library: {source}")]
    Library {
        /// What the `tokenizers` library says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The GGUF metadata could not be read.
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
    /// A key that the vocabulary cannot do without is absent.
    #[error("{key:?} is missing")]
    MissingKey {
        /// The metadata key.
        key: &'static str,
    },
    /// A key has a value that would need something that is not implemented.
    #[error("{key:?} = {found} is not supported (supported: {supported})")]
    Unsupported {
        /// The metadata key.
        key: &'static str,
        /// Its value.
        found: String,
        /// The values that are.
        supported: &'static str,
    },
    /// Two arrays that run in parallel differ in length.
    #[error("{key:?} has {found} entries, there are {expected} tokens")]
    Length {
        /// The metadata key.
        key: &'static str,
        /// The number of tokens.
        expected: usize,
        /// The length of the array.
        found: usize,
    },
    /// A special token's id is not the id of a token.
    #[error("{key:?} = {id}, there are {tokens} tokens")]
    IdOutOfRange {
        /// The metadata key.
        key: &'static str,
        /// Its value.
        id: u32,
        /// The number of tokens.
        tokens: usize,
    },
    /// A token type that has no meaning.
    #[error("token {id} has type {found}, not 1 to {}", TokenType::Byte as i32)]
    TokenType {
        /// The token.
        id: usize,
        /// Its type.
        found: i32,
    },
    /// A score that cannot be ordered.
    #[error("token {id} has score {found}, which is not finite")]
    Score {
        /// The token.
        id: usize,
        /// Its score.
        found: f32,
    },
    /// Too many tokens, or too many bytes of them.
    #[error("the vocabulary has {tokens} or more tokens or more than 4 GiB of text, the limit is {limit} tokens")]
    VocabularyTooLarge {
        /// Tokens read until then.
        tokens: usize,
        /// The limit.
        limit: usize,
    },
    /// A token string is too long.
    #[error("token {id} is {bytes} bytes long, the limit is {limit}")]
    TokenTooLong {
        /// The token.
        id: usize,
        /// Its length in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The added tokens together are too long.
    #[error("the added tokens (control and user-defined) are {bytes} bytes long together, the limit is {limit}")]
    AddedTokensTooLarge {
        /// Their length in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// No token stands for this byte, so that some texts could not be encoded.
    #[error("the vocabulary has no token for byte {byte:#04x}")]
    MissingByte {
        /// The byte.
        byte: u8,
    },
    /// A merge is not two strings of the byte alphabet with one space between.
    #[error("merge {rank} is {merge:?}, not two token strings with a space between")]
    MergeForm {
        /// Position in the list.
        rank: usize,
        /// The merge.
        merge: String,
    },
    /// A part of a merge, or its result, is not a token.
    #[error("merge {rank} is {merge:?}: {part:?} is not a token")]
    MergeToken {
        /// Position in the list.
        rank: usize,
        /// The merge.
        merge: String,
        /// The string that is no token.
        part: String,
    },
    /// A text is too long to be encoded.
    #[error("the text is {bytes} bytes long, the limit is {limit}")]
    TextTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A run of whitespace is so long that the regex engine behind a `tokenizer.json` would give up without saying so.
    #[error("the text has {chars} or more whitespace characters in a row, the limit with a tokenizer.json is {limit}")]
    LongWhitespace {
        /// Length of the run when it was noticed.
        chars: usize,
        /// The limit.
        limit: usize,
    },
    /// A truncation limit leaves no room for the tokens around every text.
    #[error("a limit of {max_tokens} tokens leaves no room for the {special} tokens around every text")]
    LimitTooSmall {
        /// The limit asked for.
        max_tokens: usize,
        /// Tokens around every text.
        special: usize,
    },
}

impl TokenizerError {
    /// Whether the tokenizer is of a kind that is not implemented, rather than damaged.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Component { .. } | Self::Unsupported { .. } => true,
            Self::InFile { source, .. } | Self::InKey { source, .. } => source.is_unsupported(),
            _ => false,
        }
    }
}
