//! The Qwen2 pre-tokenizer pattern as a hand-written scanner.
//!
//! ```text
//! (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
//! ```
//! The first alternative that matches wins, and every character starts a match of some alternative. A regex engine
//! backtracks on the look-ahead; the scanner reads each character a bounded number of times.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex_syntax::hir::{Class as HirClass, HirKind};

/// What the pattern distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Class {
    Other,
    Letter,
    Number,
    Space,
}

const PAGE: usize = 256;
const PAGES: usize = 0x11_0000 / PAGE;

/// Class of every code point: a page number for each 256 of them, equal pages shared.
struct Classes {
    index: Vec<u16>,
    pages: Vec<[Class; PAGE]>,
}

/// The tables come from `regex-syntax`, which every Rust regex engine uses, so that they cannot differ from those a
/// `tokenizer.json` is run with.
static CLASSES: LazyLock<Classes> = LazyLock::new(|| {
    let mut flat = vec![Class::Other; PAGES * PAGE];
    for (pattern, class) in [(r"\p{L}", Class::Letter), (r"\p{N}", Class::Number), (r"\s", Class::Space)] {
        let hir = regex_syntax::parse(pattern).expect("a constant, valid pattern");
        if let HirKind::Class(HirClass::Unicode(ranges)) = hir.kind() {
            for range in ranges.iter() {
                flat[range.start() as usize..=range.end() as usize].fill(class);
            }
        }
    }
    let mut pages: Vec<[Class; PAGE]> = Vec::new();
    let mut known = HashMap::new();
    let index = flat.as_chunks::<PAGE>().0.iter().map(|page| {
        *known.entry(*page).or_insert_with(|| {
            pages.push(*page);
            (pages.len() - 1) as u16
        })
    });
    let index = index.collect();
    Classes { index, pages }
});

impl Classes {
    fn of(&self, c: char) -> Class {
        self.pages[usize::from(self.index[c as usize / PAGE])][c as usize % PAGE]
    }
}

/// Iterator over the words of a text: consecutive, never empty, together the whole text.
pub(super) struct Words<'t> {
    rest: &'t str,
    classes: &'static Classes,
}

/// Splits `text` as the Qwen2 pattern does.
pub(super) fn words(text: &str) -> Words<'_> {
    Words { rest: text, classes: &CLASSES }
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let first = self.rest.chars().next()?;
        let (word, rest) = self.rest.split_at(self.word_len(first));
        self.rest = rest;
        Some(word)
    }
}

impl Words<'_> {
    /// Length in bytes of the match at the start of the text, whose first character is `first`.
    fn word_len(&self, first: char) -> usize {
        let class = self.classes.of(first);
        let head = first.len_utf8();
        if class == Class::Letter {
            return head + self.run(&self.rest[head..], Class::Letter);
        }
        if first == '\''
            && let Some(len) = contraction(self.rest)
        {
            return len;
        }
        if class == Class::Number {
            return head;
        }
        let second = self.rest[head..].chars().next().map(|c| self.classes.of(c));
        if second == Some(Class::Letter) && first != '\r' && first != '\n' {
            return head + self.run(&self.rest[head..], Class::Letter);
        }
        if class == Class::Other || (first == ' ' && second == Some(Class::Other)) {
            let others = head + self.run(&self.rest[head..], Class::Other);
            let newlines = self.rest[others..].bytes().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            return others + newlines;
        }
        self.space_len()
    }

    /// The last three alternatives, at a whitespace character.
    fn space_len(&self) -> usize {
        let run = self.run(self.rest, Class::Space);
        // `\s*[\r\n]+`: up to and with the last line break of the run.
        if let Some(last) = self.rest.as_bytes()[..run].iter().rposition(|byte| matches!(byte, b'\r' | b'\n')) {
            return last + 1;
        }
        // `\s+(?!\S)`: the last one is left to what follows, if something follows and something remains.
        let last = self.rest[..run].chars().next_back().map_or(0, char::len_utf8);
        if run == self.rest.len() || run == last { run } else { run - last }
    }

    /// Length in bytes of the longest prefix of `text` that has this class throughout.
    fn run(&self, text: &str, class: Class) -> usize {
        text.char_indices().find(|(_, c)| self.classes.of(*c) != class).map_or(text.len(), |(at, _)| at)
    }
}

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)` at the start of `text`, which begins with an apostrophe.
fn contraction(text: &str) -> Option<usize> {
    let mut chars = text.chars().skip(1);
    let second = chars.next()?;
    match second {
        // The long s folds to s.
        's' | 'S' | 't' | 'T' | 'm' | 'M' | 'd' | 'D' | 'ſ' => Some(1 + second.len_utf8()),
        'r' | 'R' | 'v' | 'V' => matches!(chars.next(), Some('e' | 'E')).then_some(3),
        'l' | 'L' => matches!(chars.next(), Some('l' | 'L')).then_some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<&str> {
        words(text).collect()
    }

    #[test]
    fn words_take_one_character_before_their_letters() {
        assert_eq!(split("Hello, wörld\tx\nya"), ["Hello", ",", " wörld", "\tx", "\n", "ya"]);
        assert_eq!(split("(abc) #!\r\n\n x"), ["(abc", ")", " #!\r\n\n", " x"]);
    }

    #[test]
    fn digits_stand_alone_and_a_space_does_not_join_them() {
        assert_eq!(split("a 12Ⅷ½"), ["a", " ", "1", "2", "Ⅷ", "½"]);
    }

    #[test]
    fn contractions_ignore_case_and_know_the_long_s() {
        assert_eq!(
            split("it's I'LL 'ſx they'vx 're"),
            ["it", "'s", " I", "'LL", " '", "ſx", " they", "'vx", " '", "re"]
        );
        assert_eq!(split("a'ſb"), ["a", "'ſ", "b"]);
    }

    #[test]
    fn whitespace_runs_leave_their_last_character_to_the_next_word() {
        assert_eq!(split("a   b"), ["a", "  ", " b"]);
        assert_eq!(split("a \u{3000}1"), ["a", " ", "\u{3000}", "1"]);
        assert_eq!(split("a \n \r  b  "), ["a", " \n \r", " ", " b", "  "]);
    }

    #[test]
    fn every_class_has_its_characters() {
        for (text, count) in [("aé中\u{1D400}", 1), ("1२Ⅷ", 3), (" \u{85}\u{2003}", 1), ("!\u{301}\u{200B}👍", 1)]
        {
            assert_eq!(split(text).len(), count, "{text:?}");
        }
    }
}
