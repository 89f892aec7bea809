//! A `tokenizer.json`, run by the `tokenizers` library.

use tokenizers::models::bpe::BPE;
use tokenizers::{AddedToken, Tokenizer};

use super::byte_level::missing_byte;
use super::document::{Added, Document, Model};
use super::pipeline::{self, Node, Template};
use super::scored::SPACE;
use super::vocab::{MAX_ADDED_BYTES, MAX_TOKENS};
use super::{Encoded, TokenizerError};

/// The longest run of whitespace given to the `tokenizers` library, in characters. Its regex engine backtracks over the
/// run for the look-ahead of the Qwen2 pattern, stops silently after a million steps, and the ids would be wrong.
const MAX_WHITESPACE: usize = 1 << 18;

pub(super) struct Library {
    tokenizer: Tokenizer,
    template: Template,
    /// One more than the largest id of a token.
    ids: usize,
    /// Whether it splits by a regular expression.
    regex: bool,
}

impl Library {
    pub(super) fn new(json: &[u8], rows: usize) -> Result<Self, TokenizerError> {
        let mut document = Document::parse(json)?;
        drop_beyond(&mut document, rows);
        let normalizer = pipeline::normalizer(&document.normalizer)?;
        let pre_tokenizer = pipeline::pre_tokenizer(&document.pre_tokenizer)?;
        let (model, model_ids) = bpe(document.model, pre_tokenizer.bytes)?;
        let mut tokenizer = Tokenizer::new(model);
        tokenizer.with_normalizer(normalizer).map_err(library)?;
        tokenizer.with_pre_tokenizer(pre_tokenizer.steps);
        let added = document.added_tokens.unwrap_or_default();
        let ids = add_tokens(&mut tokenizer, &added, model_ids)?;
        let template = pipeline::template(&document.post_processor, ids)?;
        Ok(Self { tokenizer, template, ids, regex: pre_tokenizer.regex })
    }

    pub(super) fn len(&self) -> usize {
        self.ids
    }

    pub(super) fn special(&self) -> usize {
        self.template.before.len() + self.template.after.len()
    }

    /// Compares with the tokens of a GGUF file: where both have a token for an id, it must be the same one.
    ///
    /// Ids without a token here are rows that only fill the token table. llama.cpp's converter writes U+2581 in
    /// user-defined tokens as a space.
    pub(super) fn check_tokens<'a, E>(
        &self,
        tokens: impl Iterator<Item = Result<&'a str, E>>,
    ) -> Result<(), TokenizerError>
    where
        TokenizerError: From<E>,
    {
        for (id, token) in (0..).zip(tokens) {
            let token = token?;
            // By its string first: the library answers an id with a copy of the string.
            if self.tokenizer.token_to_id(token) == Some(id) {
                continue;
            }
            if let Some(json) = self.tokenizer.id_to_token(id)
                && !same_but_for_spaces(&json, token)
            {
                return Err(TokenizerError::OtherTokens { id, json, tokens: token.to_owned() });
            }
        }
        Ok(())
    }

    /// Ids of `text` with at most `limit` of them between the special ones.
    pub(super) fn encode(&self, text: &str, limit: usize) -> Result<Encoded, TokenizerError> {
        if self.regex {
            check_whitespace(text)?;
        }
        let encoding = self.tokenizer.encode_fast(text, false).map_err(library)?;
        let found = encoding.get_ids();
        let kept = &found[..found.len().min(limit)];
        let Template { before, after } = &self.template;
        Ok(Encoded { ids: [before, kept, after].concat(), truncated: found.len() > limit })
    }
}

fn same_but_for_spaces(a: &str, b: &str) -> bool {
    let space = |c| if c == SPACE { ' ' } else { c };
    a.chars().map(space).eq(b.chars().map(space))
}

fn library(source: Box<dyn std::error::Error + Send + Sync>) -> TokenizerError {
    TokenizerError::Library { source }
}

/// Leaves out the added tokens that have no row, from the model's vocabulary as well, which may repeat them there. Any
/// other token without a row stays, for the caller to refuse: merges could give it.
fn drop_beyond(document: &mut Document, rows: usize) {
    let Some(added) = &mut document.added_tokens else { return };
    for token in added.extract_if(.., |token| token.id as usize >= rows) {
        if let Some(vocab) = &mut document.model.vocab
            && vocab.get(&token.content) == Some(&token.id)
        {
            vocab.remove(&token.content);
        }
    }
}

/// The model, and one more than its largest id.
fn bpe(model: Model, bytes: bool) -> Result<(BPE, usize), TokenizerError> {
    Node::new(&model.dropout, "model.dropout").no_rate()?;
    Node::new(&model.continuing_subword_prefix, "model.continuing_subword_prefix").no_affix()?;
    Node::new(&model.end_of_word_suffix, "model.end_of_word_suffix").no_affix()?;
    let byte_fallback = Node::new(&model.byte_fallback, "model.byte_fallback").flag()?;
    let fuse_unk = Node::new(&model.fuse_unk, "model.fuse_unk").flag()?;
    let ignore_merges = Node::new(&model.ignore_merges, "model.ignore_merges").flag()?;
    let vocab = model.vocab.ok_or(TokenizerError::MissingKey { key: "model.vocab" })?;
    let merges = model.merges.ok_or(TokenizerError::MissingKey { key: "model.merges" })?;

    let ids = vocab.values().max().map_or(0, |id| *id as usize + 1);
    let tokens = ids.max(vocab.len());
    if tokens > MAX_TOKENS {
        return Err(TokenizerError::VocabularyTooLarge { tokens, limit: MAX_TOKENS });
    }
    let unknown = Node::new(&model.unk_token, "model.unk_token");
    let unk_token = unknown.text().map(str::to_owned);
    if !model.unk_token.is_null() && !unk_token.as_ref().is_some_and(|token| vocab.contains_key(token)) {
        return Err(unknown.unsupported("null, a token of the vocabulary"));
    }
    // The library would drop a byte without a token in silence.
    if bytes
        && unk_token.is_none()
        && let Some(byte) = missing_byte(|token| vocab.contains_key(token))
    {
        return Err(TokenizerError::MissingByte { byte });
    }
    // It joins the parts in a buffer as long as the longest token, before it looks whether the whole is one.
    let longest = vocab.keys().map(String::len).max().unwrap_or(0);
    let too_long = merges.iter().position(|merge| merge.0.len() + merge.1.len() > longest);
    if let Some(rank) = too_long {
        let (left, right) = (&merges[rank].0, &merges[rank].1);
        let part = format!("{left}{right}");
        return Err(TokenizerError::MergeToken { rank, merge: format!("{left} {right}"), part });
    }
    let merges = merges.into_iter().map(|merge| (merge.0, merge.1)).collect();
    let mut builder = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .byte_fallback(byte_fallback)
        .fuse_unk(fuse_unk)
        .ignore_merges(ignore_merges);
    if let Some(token) = unk_token {
        builder = builder.unk_token(token);
    }
    Ok((builder.build().map_err(library)?, ids))
}

/// Adds the tokens and checks that each has the id the file says; one more than the largest id of all.
fn add_tokens(tokenizer: &mut Tokenizer, added: &[Added], model_ids: usize) -> Result<usize, TokenizerError> {
    let bytes = added.iter().map(|token| token.content.len()).sum();
    if bytes > MAX_ADDED_BYTES {
        return Err(TokenizerError::AddedTokensTooLarge { bytes, limit: MAX_ADDED_BYTES });
    }
    for token in added {
        // To strip, the library searches the whole text before or after each of them: quadratic time.
        for (flag, set) in [("single_word", token.single_word), ("lstrip", token.lstrip), ("rstrip", token.rstrip)] {
            if set {
                let component = format!("added_tokens {:?} {flag}", token.content);
                return Err(TokenizerError::Component { component, found: "true".into(), supported: "false" });
            }
        }
    }
    let tokens =
        added.iter().map(|token| AddedToken::from(token.content.as_str(), token.special).normalized(token.normalized));
    tokenizer.add_tokens(tokens).map_err(library)?;
    let mut ids = model_ids;
    for token in added {
        let found = tokenizer.token_to_id(&token.content);
        if found != Some(token.id) {
            return Err(TokenizerError::AddedTokenId { token: token.content.clone(), expected: token.id, found });
        }
        ids = ids.max(token.id as usize + 1);
    }
    Ok(ids)
}

fn check_whitespace(text: &str) -> Result<(), TokenizerError> {
    if text.len() <= MAX_WHITESPACE {
        return Ok(());
    }
    let mut chars = 0;
    for c in text.chars() {
        chars = if c.is_whitespace() { chars + 1 } else { 0 };
        if chars > MAX_WHITESPACE {
            return Err(TokenizerError::LongWhitespace { chars, limit: MAX_WHITESPACE });
        }
    }
    Ok(())
}
