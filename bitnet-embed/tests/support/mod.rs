//! What several test files share: where the fixtures are, and random texts.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::path::{Path, PathBuf};

pub(crate) fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata")
}

/// Fixtures made from published vocabularies, which are not part of the project. `None`, with a line that says so, where
/// they are absent.
pub(crate) fn extra_fixtures() -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("shared/fixtures/visible"));
    let found = found.into_iter().find(|dir| dir.is_dir());
    if found.is_none() {
        eprintln!("skipped: no folder shared/fixtures/visible beside the workspace");
    }
    found
}

pub(crate) fn json(path: impl AsRef<Path>) -> serde_json::Value {
    let path = path.as_ref();
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Largest `RssAnon` of the process, in KiB, looked at from outside every half millisecond.
#[cfg(target_os = "linux")]
pub(crate) fn peak_anonymous(command: &mut std::process::Command) -> u64 {
    let mut child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let (mut peak, mut samples) = (0, 0);
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        if let Some(kib) = line.and_then(|line| line.trim().strip_suffix(" kB")) {
            peak = peak.max(kib.parse().unwrap());
            samples += 1;
        }
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            assert!(samples > 10, "only {samples} samples");
            return peak;
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
}

/// A small generator with a fixed sequence (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn char_in(&mut self, (low, high): (u32, u32)) -> char {
        loop {
            if let Some(c) = char::from_u32(low + self.below((high - low) as usize) as u32) {
                return c;
            }
        }
    }
}

const BLOCKS: [(u32, u32); 28] = [
    (0x20, 0x7F),
    (0, 0x20),
    (0x80, 0x250),
    (0x300, 0x370),
    (0x370, 0x530),
    (0x590, 0x700),
    (0x900, 0xE00),
    (0xE00, 0x1100),
    (0x1100, 0x1200),
    (0x1780, 0x1800),
    (0x1AB0, 0x1B00),
    (0x1DC0, 0x1E00),
    (0x1E00, 0x2000),
    (0x2000, 0x2100),
    (0x2100, 0x2C00),
    (0x3000, 0x3100),
    (0x3400, 0x3500),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A4),
    (0xE000, 0xE100),
    (0xF900, 0xFB00),
    (0xFB00, 0xFE00),
    (0xFE00, 0x1_0000),
    (0x1_0000, 0x1_2000),
    (0x1_6D00, 0x1_6E00),
    (0x1_D100, 0x1_D500),
    (0x1_F300, 0x1_FA00),
    (0, 0x11_0000),
];

const SPACES: [&str; 15] = [
    " ", "  ", "\n", "\t", "\r", "\r\n", "\u{a0}", "\u{3000}", "\u{2003}", "\u{85}", "\u{2028}", "\u{b}", "\u{c}",
    "\u{1c}", "\u{200b}",
];

/// Hard texts for a tokenizer whose tokens read as `words` and whose added tokens are `added`.
pub(crate) struct Texts<'a> {
    pub(crate) random: Random,
    pub(crate) words: &'a [&'a str],
    pub(crate) added: &'a [&'a str],
}

impl Texts<'_> {
    pub(crate) fn next(&mut self) -> String {
        let Self { random, words, added } = self;
        let mut text = String::new();
        match random.below(20) {
            0..=4 => (0..=random.below(25)).for_each(|_| text += random.pick(words)),
            5..=7 => (0..=random.below(40)).for_each(|_| {
                let block = random.pick(&BLOCKS);
                text.push(random.char_in(block));
            }),
            8..=9 => {
                let block = random.pick(&BLOCKS);
                for _ in 0..=random.below(60) {
                    text.push(if random.below(8) == 0 { ' ' } else { random.char_in(block) });
                }
            }
            10..=12 => (0..=random.below(8)).for_each(|_| {
                text += &random.pick(&SPACES).repeat(random.pick(&[1, 1, 2, 3, 5, 16, 31, 32, 33, 70]));
                text += random.pick(&["", "a", "the", "中", ".", "1", "x y", "'s", "'LL"]);
            }),
            13 => {
                let word = random.pick(words);
                let unit = random.pick(&["=", "-", "ha", "na ", "哈", "한", "\u{301}", "a\u{301}", "👍", "...", word]);
                text = unit.repeat(2 + random.below(80));
            }
            14..=15 => (0..=random.below(12)).for_each(|_| {
                let token = random.pick(added);
                let mut cut = random.below(token.len() + 1);
                while !token.is_char_boundary(cut) {
                    cut -= 1;
                }
                text += random.pick(&[token, token, &token[cut..], &token[..cut], " ", "<", ">", "\n", "'s"]);
                text += random.pick(words);
            }),
            16 => {
                // Decomposed characters and marks in any order.
                let marks = ["\u{301}", "\u{323}", "\u{308}", "\u{5b0}", "\u{94d}", "\u{1161}", "\u{11a8}", "\u{327}"];
                for _ in 0..=random.below(20) {
                    text += random.pick(&["a", "e", "o", "ễ", "Å", "\u{1100}", "क", "\u{212b}", "s", " "]);
                    (0..random.below(4)).for_each(|_| text += random.pick(&marks));
                }
            }
            17 => {
                let (left, right) = (random.pick(words), random.pick(words));
                text.extend(left.chars().rev());
                text += right;
                text.extend(right.chars().rev());
            }
            _ => (0..=random.below(30)).for_each(|_| {
                text +=
                    random.pick(&["The", "quick", "fn main()", "x1", "don't", "I'M", "3.14", "naïve", "東京", "été"]);
                text += random.pick(&[" ", " ", " ", ", ", "\n", "\n    ", ". "]);
            }),
        }
        text
    }
}
