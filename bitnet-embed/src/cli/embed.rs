//! `bitnet-embed embed`.

use super::args::{BackendArgument, EmbedArguments, OutputFormat};
use super::{CliError, DEMO_MODEL, format, note, note_demo, say};
use bitnet_embed::embedder::{BackendKind, Embedder, EmbedderBuilder, Receiver};
use bitnet_embed::output::Normalization;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Stdout, Write};
use std::path::Path;

pub(crate) fn run(arguments: &EmbedArguments) -> Result<(), CliError> {
    let texts = texts(arguments)?;
    if arguments.n_gpu_layers.is_some() {
        say("note: -ngl is ignored; this program computes on the CPU alone");
    }
    let embedder = open(arguments)?;
    note(embedder.notes());
    let mut output = Output::new(arguments, texts.len());
    let report = embedder.embed_into(&texts, &mut output)?;
    output.bar.finish_and_clear();
    if let Some(first) = report.truncated.first() {
        let (cut, limit) = (report.truncated.len(), embedder.max_tokens());
        say(&format!(
            "note: {cut} text(s) cut to the limit of {limit} tokens, the first is text {first}; special tokens are kept"
        ));
    }
    output.finish(&texts)
}

/// Where the vectors go: out as they come in the one format where a text's line is its vector alone, else kept.
struct Output {
    format: OutputFormat,
    integers: bool,
    // Not locked: the threads that compute write, too.
    stdout: BufWriter<Stdout>,
    kept: Vec<Vec<f32>>,
    bar: ProgressBar,
}

impl Output {
    fn new(arguments: &EmbedArguments, texts: usize) -> Self {
        let format = arguments.embd_output_format;
        // Lines on the same terminal would tear a bar apart, and they tell as much.
        let lines = format == OutputFormat::Raw && io::stdout().is_terminal();
        let bar = if lines || texts < 2 { ProgressBar::hidden() } else { bar(texts) };
        let stdout = BufWriter::new(io::stdout());
        Self { format, integers: arguments.embd_normalize == 0, stdout, kept: Vec::new(), bar }
    }

    fn finish(self, texts: &[String]) -> Result<(), CliError> {
        let Self { format, integers, mut stdout, kept, .. } = self;
        match format {
            OutputFormat::Text => format::text(&mut stdout, texts, &kept, integers)?,
            OutputFormat::Array => format::array(&mut stdout, &kept, integers)?,
            OutputFormat::Json => format::json(&mut stdout, &kept, integers, false)?,
            OutputFormat::JsonPlus => format::json(&mut stdout, &kept, integers, true)?,
            OutputFormat::Raw => {}
        }
        Ok(stdout.flush()?)
    }
}

impl Receiver for Output {
    type Error = CliError;

    fn computed(&mut self, texts: usize) {
        self.bar.inc(texts as u64);
    }

    fn receive(&mut self, vectors: Vec<Vec<f32>>) -> Result<(), CliError> {
        if self.format == OutputFormat::Raw {
            format::raw(&mut self.stdout, &vectors, self.integers)?;
            self.stdout.flush()?;
        } else {
            self.kept.extend(vectors);
        }
        Ok(())
    }
}

/// A bar on standard error, where that is a terminal; gone when the work ends, however it does.
fn bar(texts: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} texts, {per_sec}");
    let bar = ProgressBar::new(texts as u64).with_finish(ProgressFinish::AndClear);
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    // At once: the first forward of a large model takes a while.
    bar.tick();
    bar
}

fn open(arguments: &EmbedArguments) -> Result<Embedder, CliError> {
    let mut builder: EmbedderBuilder =
        Embedder::builder().overrides(arguments.model.overrides()?).mmap(!arguments.no_mmap);
    if let Some(normalization) = Normalization::from_number(arguments.embd_normalize) {
        builder = builder.normalization(normalization);
    }
    if let Some(pooling) = arguments.pooling {
        builder = builder.pooling(pooling.into());
    }
    if let Some(max_tokens) = arguments.max_tokens {
        builder = builder.max_tokens(max_tokens);
    }
    if let Some(isa) = arguments.isa {
        builder = builder.isa(isa);
    }
    if let Some(path) = &arguments.model.tokenizer {
        builder = builder.tokenizer(path);
    }
    if let Some(backend) = arguments.backend {
        builder = builder.backend(match backend {
            BackendArgument::I2s => BackendKind::I2s,
            BackendArgument::F16 => BackendKind::F16,
        });
    }
    match &arguments.model.model {
        Some(path) => Ok(builder.open(path)?),
        None => {
            note_demo();
            Ok(builder.from_bytes(DEMO_MODEL)?)
        }
    }
}

/// The texts of `-p`, then those of `-f`.
fn texts(arguments: &EmbedArguments) -> Result<Vec<String>, CliError> {
    let mut texts = arguments.prompt.clone();
    if let Some(path) = &arguments.file {
        let before = texts.len();
        let input = |source| CliError::Input { path: path.clone(), source };
        if path == Path::new("-") {
            read_lines(io::stdin().lock(), path, &mut texts)?;
        } else {
            if path.is_dir() {
                let problem = "it is a folder; give a text file with one text a line";
                return Err(input(io::Error::new(io::ErrorKind::IsADirectory, problem)));
            }
            read_lines(BufReader::new(File::open(path).map_err(input)?), path, &mut texts)?;
        }
        if texts.len() == before {
            return Err(CliError::NoText { path: path.clone() });
        }
    }
    if texts.is_empty() {
        return Err(CliError::Usage("nothing to embed: give a text with -p, or a file of texts with -f".into()));
    }
    Ok(texts)
}

/// The longest line of a file of texts. A model's context is a small part of it; a file without line breaks that never
/// ends must end somewhere.
const MAX_LINE: u64 = 64 << 20;

/// U+FEFF, with which some editors begin a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Adds each line, without its line break, to the texts.
fn read_lines(mut reader: impl BufRead, path: &Path, texts: &mut Vec<String>) -> Result<(), CliError> {
    for line in 1.. {
        let mut bytes = Vec::new();
        let read = reader.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut bytes);
        let read = read.map_err(|source| CliError::Input { path: path.into(), source })?;
        if read == 0 {
            break;
        }
        if read as u64 > MAX_LINE {
            return Err(CliError::LongLine { path: path.into(), line, limit: MAX_LINE });
        }
        let text = if line == 1 { bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes) } else { &bytes };
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let text = std::str::from_utf8(text).map_err(|_| CliError::NotText { path: path.into(), line })?;
        texts.push(text.to_owned());
    }
    Ok(())
}
