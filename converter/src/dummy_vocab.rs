//! Vocabularies of any size for models without a trained one.
//!
//! They are valid in every respect: each token that is no single character or byte comes from a merge of two tokens
//! that exist. A word of English takes about one token per three letters, so lengths are realistic if a little high.

use bitnet_embed::tokenizer::TokenType;

use crate::vocab::{Vocab, VocabKind};

/// Smallest vocabulary: bytes, characters, special tokens and some merges.
pub(crate) const MIN_TOKENS: usize = 384;

/// A vocabulary of that kind with exactly `size` tokens, at least [`MIN_TOKENS`].
pub(crate) fn vocab(kind: VocabKind, size: usize) -> Vocab {
    let mut builder = Builder {
        vocab: Vocab {
            kind,
            tokens: Vec::with_capacity(size),
            types: Vec::with_capacity(size),
            scores: Vec::new(),
            merges: Vec::new(),
            bos: None,
            eos: None,
            unknown: None,
            padding: None,
            eot: None,
            add_bos: kind == VocabKind::Llama,
            add_eos: true,
            whole: None,
            notes: Vec::new(),
        },
    };
    match kind {
        VocabKind::Gpt2 => builder.gpt2(size),
        VocabKind::Llama => builder.llama(size),
    }
    builder.vocab
}

struct Builder {
    vocab: Vocab,
}

impl Builder {
    fn gpt2(&mut self, size: usize) {
        const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
        for symbol in byte_alphabet() {
            self.push(symbol.to_string(), TokenType::Normal, 0.0);
        }
        self.merged("\u{120}", size.saturating_sub(self.vocab.tokens.len() + SPECIAL.len()));
        for token in SPECIAL {
            self.push(token.to_owned(), TokenType::Control, 0.0);
        }
        let first = (self.vocab.tokens.len() - SPECIAL.len()) as u32;
        self.vocab.eos = Some(first);
        self.vocab.padding = Some(first);
        self.vocab.eot = Some(first + 2);
    }

    fn llama(&mut self, size: usize) {
        for token in ["<pad>", "<eos>", "<bos>", "<unk>"] {
            self.push(token.to_owned(), TokenType::Control, -1000.0);
        }
        for byte in 0..=255_u8 {
            self.push(format!("<0x{byte:02X}>"), TokenType::Byte, 0.0);
        }
        for symbol in ('!'..='~').chain(['\u{2581}', '\n']) {
            self.push(symbol.to_string(), TokenType::Normal, 0.0);
        }
        self.merged("\u{2581}", size.saturating_sub(self.vocab.tokens.len()));
        self.vocab.padding = Some(0);
        self.vocab.eos = Some(1);
        self.vocab.bos = Some(2);
        self.vocab.unknown = Some(3);
    }

    /// Adds `count` tokens: a space before a letter, then every token so far (by length) with every letter appended.
    fn merged(&mut self, space: &str, count: usize) {
        let mut stems: Vec<String> = ('a'..='z').map(String::from).collect();
        let mut left = count;
        for letter in 'a'..='z' {
            if !self.merge(space, letter, &mut left) {
                return;
            }
            stems.push(format!("{space}{letter}"));
        }
        loop {
            let mut longer = Vec::new();
            for stem in &stems {
                for letter in 'a'..='z' {
                    if !self.merge(stem, letter, &mut left) {
                        return;
                    }
                    longer.push(format!("{stem}{letter}"));
                }
            }
            stems = longer;
        }
    }

    /// Adds one token, unless none is left to be added.
    fn merge(&mut self, stem: &str, letter: char, left: &mut usize) -> bool {
        let Some(rest) = left.checked_sub(1) else { return false };
        let rank = self.vocab.merges.len();
        self.push(format!("{stem}{letter}"), TokenType::Normal, -(rank as f32));
        self.vocab.merges.push(format!("{stem} {letter}"));
        *left = rest;
        true
    }

    fn push(&mut self, token: String, kind: TokenType, score: f32) {
        self.vocab.tokens.push(token);
        self.vocab.types.push(kind);
        if self.vocab.kind == VocabKind::Llama {
            self.vocab.scores.push(score);
        }
    }
}

/// GPT-2's printable stand-ins for the 256 bytes: printable bytes are themselves, the others follow from U+0100 on.
fn byte_alphabet() -> impl Iterator<Item = char> {
    let printable = |byte: &u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..256).filter(move |byte| !printable(byte)).count() as u32;
    (0..256).filter(printable).chain(256..256 + others).filter_map(char::from_u32)
}
