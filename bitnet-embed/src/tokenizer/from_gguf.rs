//! A tokenizer from the metadata of a GGUF file.

use super::{Kind, MergeSource, Tokenizer, TokenizerError, VocabArrays, keys};
use crate::config::keys::{ARCHITECTURE, VOCAB_SIZE};
use crate::gguf::{Array, Metadata};
use std::path::Path;

impl Tokenizer {
    /// Reads `tokenizer.huggingface.json` if the file has it, otherwise rebuilds the tokenizer from the arrays. Either
    /// way added tokens for which the token table has no row are not known; see [`Self::from_json_for_rows`].
    ///
    /// # Errors
    /// Missing keys, vocabularies of other kinds, arrays that do not fit together, and
    /// [`TokenizerError::OtherTokens`].
    pub fn from_gguf(metadata: Metadata<'_>) -> Result<Self, TokenizerError> {
        match metadata.str(keys::HUGGINGFACE_JSON)? {
            Some(json) => Self::from_json_for_rows(json.as_bytes(), rows(metadata).unwrap_or(usize::MAX))
                .and_then(|tokenizer| tokenizer.with_tokens_of(metadata))
                .map_err(|source| TokenizerError::InKey { key: keys::HUGGINGFACE_JSON, source: Box::new(source) }),
            None => Self::from_arrays(&VocabArrays::from_gguf(metadata)?),
        }
    }

    /// Reads the `tokenizer.json` at `path` to be used with the model of a GGUF file, whose token table has `rows` rows.
    ///
    /// # Errors
    /// Those of [`Self::from_file_for_rows`], and [`TokenizerError::OtherTokens`] where the file lists other tokens.
    pub fn from_file_for_gguf(
        path: impl AsRef<Path>,
        rows: usize,
        metadata: Metadata<'_>,
    ) -> Result<Self, TokenizerError> {
        let path = path.as_ref();
        Self::from_file_for_rows(path, rows)?
            .with_tokens_of(metadata)
            .map_err(|source| TokenizerError::InFile { path: path.into(), source: Box::new(source) })
    }

    /// This tokenizer, if its tokens are those that the file lists. A file may do without a list.
    fn with_tokens_of(self, metadata: Metadata<'_>) -> Result<Self, TokenizerError> {
        if let (Kind::Library(library), Some(tokens)) = (&self.kind, metadata.array(keys::TOKENS)?) {
            library.check_tokens(tokens.strings()?)?;
        }
        Ok(self)
    }
}

/// Rows of the token table by the metadata, found as [`crate::config::ModelConfig`] finds them; `None` where nothing
/// usable says it, which that refuses.
fn rows(metadata: Metadata<'_>) -> Option<usize> {
    let architecture = metadata.str(ARCHITECTURE).ok().flatten()?;
    match metadata.value(&format!("{architecture}.{VOCAB_SIZE}")) {
        Some(size) => usize::try_from(size.as_integer()?).ok(),
        None => metadata.array(keys::TOKENS).ok().flatten().map(|tokens| tokens.len()),
    }
}

impl<'a> VocabArrays<'a> {
    /// The arrays of a GGUF file; strings stay in the file.
    ///
    /// # Errors
    /// Missing keys, and values that ask for what a rebuilt tokenizer cannot do.
    pub fn from_gguf(metadata: Metadata<'a>) -> Result<Self, TokenizerError> {
        let model = metadata.str(keys::MODEL)?.ok_or(TokenizerError::MissingKey { key: keys::MODEL })?;
        let source = match model {
            "gpt2" => {
                if metadata.value(keys::PRE).is_none() {
                    return Err(TokenizerError::MissingKey { key: keys::PRE });
                }
                expect_pre(metadata, "qwen2")?;
                let merges = array(metadata, keys::MERGES)?.strings()?;
                MergeSource::Merges(merges.collect::<Result<_, _>>()?)
            }
            "llama" => {
                expect_pre(metadata, "default")?;
                MergeSource::Scores(array(metadata, keys::SCORES)?.f32s()?.collect())
            }
            _ => return Err(unsupported(keys::MODEL, format!("{model:?}"), "gpt2, llama")),
        };
        for key in [keys::ADD_SPACE_PREFIX, keys::ADD_SEP] {
            if metadata.bool(key)? == Some(true) {
                return Err(unsupported(key, "true".into(), "false"));
            }
        }
        Ok(Self {
            tokens: array(metadata, keys::TOKENS)?.strings()?.collect::<Result<_, _>>()?,
            token_types: array(metadata, keys::TOKEN_TYPES)?.i32s()?.collect(),
            source,
            bos: metadata.u32(keys::BOS_ID)?,
            eos: metadata.u32(keys::EOS_ID)?,
            add_bos: metadata.bool(keys::ADD_BOS)?.unwrap_or(false),
            add_eos: metadata.bool(keys::ADD_EOS)?.unwrap_or(false),
        })
    }
}

/// Checks the pre-tokenizer, if the file names one. Of the `llama` kind there is only one.
fn expect_pre(metadata: Metadata<'_>, supported: &'static str) -> Result<(), TokenizerError> {
    match metadata.str(keys::PRE)? {
        Some(other) if other != supported => Err(unsupported(keys::PRE, format!("{other:?}"), supported)),
        _ => Ok(()),
    }
}

fn array<'a>(metadata: Metadata<'a>, key: &'static str) -> Result<Array<'a>, TokenizerError> {
    metadata.array(key)?.ok_or(TokenizerError::MissingKey { key })
}

fn unsupported(key: &'static str, found: String, supported: &'static str) -> TokenizerError {
    TokenizerError::Unsupported { key, found, supported }
}
