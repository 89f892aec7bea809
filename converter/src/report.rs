//! What the user sees while a file is written, and after.

use std::fmt;
use std::path::PathBuf;

use burn_i2s::ggml::GgmlType;
use indicatif::{ProgressBar, ProgressStyle};

/// The longest word that is shown whole, in characters.
const LONGEST_WORD: usize = 200;
/// The longest message that is shown whole, in characters.
const LONGEST_LINE: usize = 2000;

/// Names come from files: line breaks and terminal escapes in them are shown, not obeyed, and of a very long path or token
/// only both ends.
pub(crate) fn one_line(text: &str) -> String {
    shortened(text).chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// The text with only both ends of what is very long in it.
pub(crate) fn shortened(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(|word| ends(word, LONGEST_WORD)).collect();
    ends(&words.join(" "), LONGEST_LINE)
}

/// A text of at most `longest` characters, or its two ends.
fn ends(text: &str, longest: usize) -> String {
    let count = text.chars().count();
    if count <= longest {
        return text.to_owned();
    }
    let (first, last) = (longest / 2, longest / 4);
    let boundary = |index| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    format!("{}[... {} more ...]{}", &text[..boundary(first)], count - first - last, &text[boundary(count - last)..])
}

/// What was written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The file, or the first one of a split model.
    pub outfile: PathBuf,
    /// How many files the model is in.
    pub files: usize,
    /// Number of tensors in them.
    pub tensors: usize,
    /// Number of those that are I2_S.
    pub ternary_tensors: usize,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Tensors of the checkpoint that the file does not have, by name.
    pub skipped: Vec<String>,
    /// What else the user should know, one sentence each.
    pub notes: Vec<String>,
}

impl Report {
    pub(crate) fn of_file(
        outfile: PathBuf,
        tensors: impl ExactSizeIterator<Item = GgmlType>,
        skipped: Vec<String>,
        notes: Vec<String>,
    ) -> Self {
        Self::of_files(vec![outfile], tensors, skipped, notes)
    }

    /// Of a model in these files, at least one.
    pub(crate) fn of_files(
        outfiles: Vec<PathBuf>,
        tensors: impl ExactSizeIterator<Item = GgmlType>,
        skipped: Vec<String>,
        notes: Vec<String>,
    ) -> Self {
        let count = tensors.len();
        let ternary_tensors = tensors.filter(|target| *target == GgmlType::I2_S).count();
        // Only a figure to show: a file that vanished since it was written is no error of the conversion.
        let bytes = outfiles.iter().map(|file| std::fs::metadata(file).map_or(0, |file| file.len())).sum();
        let files = outfiles.len();
        let outfile = outfiles.into_iter().next().unwrap_or_default();
        Self { outfile, files, tensors: count, ternary_tensors, bytes, skipped, notes }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "note: {}", one_line(note))?;
        }
        if !self.skipped.is_empty() {
            writeln!(f, "note: not part of an embedding model, left out: {}", one_line(&self.skipped.join(", ")))?;
        }
        write!(f, "{} tensors, ", self.tensors)?;
        if self.ternary_tensors > 0 {
            write!(f, "{} of them ternary, ", self.ternary_tensors)?;
        }
        write!(f, "{:.1} MB", self.bytes as f64 / 1e6)
    }
}

/// Is told how far a conversion is.
pub trait Progress {
    /// A tensor is begun: its name, its position, and how many there are.
    fn tensor(&mut self, name: &str, position: usize, count: usize);
    /// Everything is written, or nothing more will be.
    fn finish(&mut self);
}

/// Says nothing.
impl Progress for () {
    fn tensor(&mut self, _: &str, _: usize, _: usize) {}
    fn finish(&mut self) {}
}

/// A bar on standard error, where that is a terminal.
#[derive(Default)]
pub struct TerminalProgress {
    bar: Option<ProgressBar>,
}

impl Progress for TerminalProgress {
    fn tensor(&mut self, name: &str, position: usize, count: usize) {
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
            ProgressBar::new(count as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_position(position as u64);
        bar.set_message(name.to_owned());
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for TerminalProgress {
    fn drop(&mut self) {
        self.finish();
    }
}
