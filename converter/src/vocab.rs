//! `tokenizer.json` -> the vocabulary as GGUF stores it.
//!
//! GGUF knows two kinds that matter here: `gpt2` (byte-level BPE with its merges; Qwen3) and `llama` (characters and
//! byte fallback, merges implied by scores; Gemma 3). A tokenizer is recognised by what it does, field by field, never
//! by a hash of what it says: anything that neither kind can express is refused by name.

use std::collections::{HashMap, HashSet};

use bitnet_embed::json;
use bitnet_embed::tokenizer::TokenType;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::rebuild;
use crate::recognise::{Template, TemplateToken, expect, recognise};
use crate::tokenizer_json::{AddedToken, ModelSpec, TokenizerConfig, TokenizerJson};
pub use crate::vocab_error::VocabError;

/// Score of an added token, which no merge makes.
const ADDED_SCORE: f32 = -1000.0;
/// Score of a row of the table without a token.
const UNUSED_SCORE: f32 = -10000.0;

/// GGUF's kinds of vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VocabKind {
    /// Byte-level BPE with the Qwen2 pattern; `tokenizer.ggml.model` = `gpt2`.
    Gpt2,
    /// Character BPE with byte fallback; `tokenizer.ggml.model` = `llama`.
    Llama,
}

impl VocabKind {
    /// Value of `tokenizer.ggml.model`.
    pub fn model(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
        }
    }

    /// Value of `tokenizer.ggml.pre`.
    pub fn pre(self) -> &'static str {
        match self {
            Self::Gpt2 => "qwen2",
            Self::Llama => "default",
        }
    }
}

/// A vocabulary as GGUF stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Vocab {
    /// Which kind.
    pub kind: VocabKind,
    /// Text of every row of the token table; `[PAD<id>]` where there is no token.
    pub tokens: Vec<String>,
    /// Type of every row.
    pub types: Vec<TokenType>,
    /// Score of every row (`Llama`; empty otherwise): minus the rank of the first merge that makes the token.
    pub scores: Vec<f32>,
    /// `left right` of every merge in order (`Gpt2`; empty otherwise).
    pub merges: Vec<String>,
    /// Token put before a text.
    pub bos: Option<u32>,
    /// Token put after a text.
    pub eos: Option<u32>,
    /// Stand-in for what cannot be encoded.
    pub unknown: Option<u32>,
    /// Padding.
    pub padding: Option<u32>,
    /// End of a chat turn.
    pub eot: Option<u32>,
    /// Whether `bos` is put before every text.
    pub add_bos: bool,
    /// Whether `eos` is put after every text.
    pub add_eos: bool,
    /// The whole `tokenizer.json`, where the rest does not say it all.
    pub whole: Option<String>,
    /// What the user should know: tokens left out, settings that contradict each other.
    pub notes: Vec<String>,
}

impl Vocab {
    /// Reads `tokenizer.json` and, for the names of special tokens, `tokenizer_config.json`.
    ///
    /// `vocab_size` is the number of rows of the token table.
    ///
    /// # Errors
    /// When the files are damaged, contradict each other, or describe a tokenizer that GGUF cannot express.
    pub fn from_json(tokenizer: &[u8], tokenizer_config: Option<&[u8]>, vocab_size: usize) -> Result<Self, VocabError> {
        let kind_of_model: ModelType = parse(tokenizer)?;
        let stated = kind_of_model.model.r#type;
        expect(stated == "BPE", "model.type", "BPE", if stated.is_empty() { &"none" } else { &stated })?;
        let json = tokenizer;
        let tokenizer: TokenizerJson = parse(json)?;
        let config = match tokenizer_config {
            None => TokenizerConfig::default(),
            Some(json) => TokenizerConfig::read(json)?,
        };

        let kind = recognise(&tokenizer)?;
        let template = Template::read(&tokenizer.post_processor)?;
        let ids = Ids { vocab: &tokenizer.model.vocab, added: &tokenizer.added_tokens };
        let mut vocab = Self {
            kind,
            tokens: Vec::new(),
            types: Vec::new(),
            scores: Vec::new(),
            merges: Vec::new(),
            bos: None,
            eos: None,
            unknown: None,
            padding: ids.named("pad_token", config.pad_token.as_ref())?,
            eot: None,
            add_bos: template.before.is_some(),
            add_eos: template.after.is_some(),
            whole: None,
            notes: Vec::new(),
        };
        // What ends a text is what the template appends, not what a chat model calls its end of text.
        vocab.bos = match &template.before {
            Some(token) => Some(ids.of_template(token)?),
            None => ids.named("bos_token", config.bos_token.as_ref())?,
        };
        vocab.eos = match &template.after {
            Some(token) => Some(ids.of_template(token)?),
            None => ids.named("eos_token", config.eos_token.as_ref())?,
        };
        match kind {
            VocabKind::Gpt2 => vocab.eot = ids.find("<|im_end|>"),
            VocabKind::Llama => {
                vocab.unknown = match &config.unk_token {
                    None => ids.named("model.unk_token", tokenizer.model.unk_token.as_ref())?,
                    stated => ids.named("unk_token", stated.as_ref())?,
                };
            }
        }
        vocab.apply_flags(&config);
        vocab.fill(&tokenizer, vocab_size)?;
        if kind == VocabKind::Llama
            && let Some(obstacle) = rebuild::obstacle(&vocab, &tokenizer.model.merges)
        {
            vocab.whole = Some(String::from_utf8_lossy(json).into_owned());
            vocab.notes.push(format!(
                "all of tokenizer.json is stored, because scores do not give back its merges: {obstacle}"
            ));
        }
        Ok(vocab)
    }

    /// One more than the largest id of a `tokenizer.json`, of whatever kind it is.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn id_count(tokenizer: &[u8]) -> Result<usize, VocabError> {
        let tokenizer: TokenizerJson = parse(tokenizer)?;
        let ids = tokenizer.model.vocab.values().copied().chain(tokenizer.added_tokens.iter().map(|token| token.id));
        Ok(ids.max().map_or(0, |id| id as usize + 1))
    }

    /// The Gemma and Llama classes rebuild the template from two flags, so there the flags decide.
    fn apply_flags(&mut self, config: &TokenizerConfig) {
        let class = config.tokenizer_class.as_deref().unwrap_or_default();
        let rebuilds = class.starts_with("Gemma") || class.starts_with("Llama");
        for (name, flag, template, token) in [
            ("add_bos_token", config.add_bos_token, &mut self.add_bos, self.bos),
            ("add_eos_token", config.add_eos_token, &mut self.add_eos, self.eos),
        ] {
            let Some(flag) = flag.filter(|flag| flag != template) else { continue };
            if rebuilds && (token.is_some() || !flag) {
                *template = flag;
                self.notes.push(format!("{name} = {flag} of tokenizer_config.json replaces tokenizer.json's template"));
            } else {
                self.notes
                    .push(format!("{name} = {flag} of tokenizer_config.json ignored: tokenizer.json says {template}"));
            }
        }
    }

    fn fill(&mut self, tokenizer: &TokenizerJson, vocab_size: usize) -> Result<(), VocabError> {
        let ModelSpec { vocab, merges, .. } = &tokenizer.model;
        let mut rows: Vec<Option<&str>> = vec![None; vocab_size];
        let mut added_rows = HashSet::new();
        let special: HashSet<u32> =
            [self.bos, self.eos, self.unknown, self.padding, self.eot].into_iter().flatten().collect();
        let mut left_out = Vec::new();
        for token in &tokenizer.added_tokens {
            check_added(token)?;
            added_rows.insert(token.id);
            match rows.get_mut(token.id as usize) {
                Some(slot) => place(slot, token.id, &token.content)?,
                // Gemma 3's text models carry a token of the image models, one past the table.
                None if !special.contains(&token.id) => left_out.push(token.content.as_str()),
                None => return Err(out_of_range(&token.content, token.id, vocab_size)),
            }
        }
        for (token, &id) in vocab {
            match rows.get_mut(id as usize) {
                Some(slot) => place(slot, id, token)?,
                None if added_rows.contains(&id) => {}
                None => return Err(out_of_range(token, id, vocab_size)),
            }
        }
        if !left_out.is_empty() {
            self.notes.push(format!(
                "added tokens without a row in the token table left out: {} ({} in all)",
                left_out[..left_out.len().min(3)].join(", "),
                left_out.len()
            ));
        }

        for (index, merge) in merges.iter().enumerate() {
            for part in [merge.left(), merge.right(), merge.both()] {
                if !vocab.contains_key(part) {
                    return Err(VocabError::UnknownMerge { index, part: part.to_owned() });
                }
            }
        }
        let mut rank = HashMap::new();
        if self.kind == VocabKind::Llama {
            for (index, merge) in merges.iter().enumerate() {
                rank.entry(merge.both()).or_insert(index);
            }
        } else {
            self.merges = merges.iter().map(|merge| format!("{} {}", merge.left(), merge.right())).collect();
        }

        let special: HashSet<u32> = tokenizer.added_tokens.iter().filter(|t| t.special).map(|t| t.id).collect();
        for (id, row) in (0_u32..).zip(rows) {
            let Some(token) = row else {
                self.push(format!("[PAD{id}]"), TokenType::Unused, UNUSED_SCORE);
                continue;
            };
            let (kind, score) = if added_rows.contains(&id) {
                let is_text = self.kind == VocabKind::Llama && !special.contains(&id) && is_whitespace(token);
                (if is_text { TokenType::UserDefined } else { TokenType::Control }, ADDED_SCORE)
            } else if self.kind == VocabKind::Llama && is_byte_token(token) {
                (TokenType::Byte, 0.0)
            } else {
                // The first merge has rank 0 and so the score -0.0.
                (TokenType::Normal, rank.get(token).map_or(0.0, |&rank| -(rank as f32)))
            };
            self.push(token.to_owned(), kind, score);
        }
        Ok(())
    }

    fn push(&mut self, token: String, kind: TokenType, score: f32) {
        self.tokens.push(token);
        self.types.push(kind);
        if self.kind == VocabKind::Llama {
            self.scores.push(score);
        }
    }
}

/// Just the model's type: other kinds of model have other fields, and would fail with a message about those.
#[derive(Deserialize)]
struct ModelType {
    model: Typed,
}

#[derive(Deserialize)]
struct Typed {
    #[serde(default)]
    r#type: String,
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, VocabError> {
    json::parse(json).map_err(|source| VocabError::Json { source })
}

fn out_of_range(token: &str, id: u32, vocab_size: usize) -> VocabError {
    VocabError::IdOutOfRange { token: token.to_owned(), id, vocab_size }
}

fn place<'a>(slot: &mut Option<&'a str>, id: u32, token: &'a str) -> Result<(), VocabError> {
    match *slot {
        Some(first) if first != token => {
            Err(VocabError::SameId { id, first: first.to_owned(), second: token.to_owned() })
        }
        _ => {
            *slot = Some(token);
            Ok(())
        }
    }
}

fn is_whitespace(token: &str) -> bool {
    token.chars().all(|c| c == '\u{2581}' || c.is_whitespace())
}

fn is_byte_token(token: &str) -> bool {
    token
        .strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'))
        .is_some_and(|hex| hex.len() == 2 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F')))
}

fn check_added(token: &AddedToken) -> Result<(), VocabError> {
    let plain = !token.lstrip && !token.rstrip && !token.single_word;
    let found = format!("lstrip {}, rstrip {}, single_word {}", token.lstrip, token.rstrip, token.single_word);
    expect(plain, &format!("added token {:?}", token.content), "no lstrip, rstrip or single_word", &found)
}

/// Looks ids up by token.
struct Ids<'a> {
    vocab: &'a HashMap<String, u32>,
    added: &'a [AddedToken],
}

impl Ids<'_> {
    fn find(&self, token: &str) -> Option<u32> {
        let added = self.added.iter().find(|added| added.content == token).map(|added| added.id);
        added.or_else(|| self.vocab.get(token).copied())
    }

    fn get(&self, field: &'static str, token: &str) -> Result<u32, VocabError> {
        self.find(token).ok_or_else(|| VocabError::UnknownToken { field, token: token.to_owned() })
    }

    /// The id of a token of the template, which has a table of its own.
    fn of_template(&self, token: &TemplateToken) -> Result<u32, VocabError> {
        let expected = self.get("post_processor", &token.content)?;
        if token.ids == serde_json::json!([expected]) {
            return Ok(expected);
        }
        Err(VocabError::TemplateId { token: token.content.clone(), expected, found: token.ids.to_string() })
    }

    fn named(&self, field: &'static str, token: Option<&String>) -> Result<Option<u32>, VocabError> {
        token.map(|token| self.get(field, token)).transpose()
    }
}
