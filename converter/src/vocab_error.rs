//! Why the vocabulary of a checkpoint is not stored, and which of its two files is at fault.

use bitnet_embed::json::JsonError;
use bitnet_embed::tokenizer::TokenizerError;

/// Why a tokenizer cannot be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VocabError {
    /// Not JSON, or a field of an unexpected type.
    #[error("{source}")]
    Json {
        /// Where and why.
        source: JsonError,
    },
    /// Whoever reads the tokenizer, from here or from the file to be written, refuses it.
    #[error("{source}")]
    Library {
        /// Why.
        source: TokenizerError,
    },
    /// `tokenizer_config.json` is not JSON, or has a field of an unexpected type.
    #[error("{source}")]
    ConfigJson {
        /// Where and why.
        source: JsonError,
    },
    /// A field of `tokenizer_config.json` of another type.
    #[error("{field} is {found}, not {expected}")]
    ConfigField {
        /// The field.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// The template's own table gives a token another id.
    #[error("post_processor.special_tokens: {token:?} has the ids {found}, the vocabulary says [{expected}]")]
    TemplateId {
        /// The token.
        token: String,
        /// Its id in the vocabulary.
        expected: u32,
        /// Its ids in the template.
        found: String,
    },
    /// All of `tokenizer.json` would be stored, which has more ids than the token table has rows.
    #[error(
        "stored whole, it needs {found} ids and the token table has {vocab_size} rows, which readers refuse; leave out --embed-tokenizer, or remove the tokens beyond the table"
    )]
    WholeTooLarge {
        /// One more than its largest id.
        found: usize,
        /// Rows of the token table.
        vocab_size: usize,
    },
    /// A part of the tokenizer that neither of GGUF's two kinds expresses.
    #[error("{field}: expected {expected}, found {found}; this tokenizer is not supported")]
    Unsupported {
        /// Path of the field.
        field: String,
        /// What is supported.
        expected: &'static str,
        /// What the file says.
        found: String,
    },
    /// Two tokens share an id.
    #[error("tokens {first:?} and {second:?} have the same id {id}")]
    SameId {
        /// The id.
        id: u32,
        /// One token.
        first: String,
        /// The other.
        second: String,
    },
    /// A token's id has no row in the token table.
    #[error(
        "token {token:?} has id {id}, but vocab_size of config.json and the rows of the token table are {vocab_size}; tokenizer and model do not belong together"
    )]
    IdOutOfRange {
        /// The token.
        token: String,
        /// Its id.
        id: u32,
        /// Rows of the token table.
        vocab_size: usize,
    },
    /// A merge names something that is no token.
    #[error("model.merges[{index}]: {part:?} is not in model.vocab")]
    UnknownMerge {
        /// Position in the list.
        index: usize,
        /// The left part, the right part or what they make.
        part: String,
    },
    /// A special token that the tokenizer does not have.
    #[error("{field}: {token:?} is not a token of the vocabulary")]
    UnknownToken {
        /// Which field names it.
        field: &'static str,
        /// What it names.
        token: String,
    },
}

impl VocabError {
    /// Whether the tokenizer is of a kind that is not implemented, rather than damaged.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Unsupported { .. } => true,
            Self::Library { source } => source.is_unsupported(),
            _ => false,
        }
    }

    /// Whether `tokenizer_config.json` is at fault and not `tokenizer.json`.
    pub(crate) fn is_of_config(&self) -> bool {
        match self {
            Self::ConfigJson { .. } | Self::ConfigField { .. } => true,
            Self::UnknownToken { field, .. } => !["post_processor", "model.unk_token"].contains(field),
            _ => false,
        }
    }
}
