//! `bitnet-embed embed`.

use super::args::{BackendArgument, EmbedArguments, OutputFormat};
use super::{CliError, DEMO_MODEL, format, note_assumed, note_demo};
use bitnet_embed::embedder::{BackendKind, Embedder, EmbedderBuilder};
use bitnet_embed::output::Normalization;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

pub(crate) fn run(arguments: &EmbedArguments) -> Result<(), CliError> {
    let texts = texts(arguments)?;
    if arguments.n_gpu_layers.is_some() {
        eprintln!("note: -ngl is ignored; this program computes on the CPU alone");
    }
    let embedder = open(arguments)?;
    note_assumed(embedder.config());
    let (vectors, report) = embedder.embed_with_report(&texts)?;
    if let Some(first) = report.truncated.first() {
        eprintln!(
            "note: {} text(s) cut to the token limit, the first is number {}; their special tokens are kept",
            report.truncated.len(),
            first
        );
    }
    let mut stdout = BufWriter::new(io::stdout().lock());
    let integers = arguments.embd_normalize == 0;
    match arguments.embd_output_format {
        OutputFormat::Text => format::text(&mut stdout, &texts, &vectors, integers)?,
        OutputFormat::Array => format::array(&mut stdout, &vectors, integers)?,
        OutputFormat::Json => format::json(&mut stdout, &vectors, integers, false)?,
        OutputFormat::JsonPlus => format::json(&mut stdout, &vectors, integers, true)?,
        OutputFormat::Raw => format::raw(&mut stdout, &vectors, integers)?,
    }
    stdout.flush()?;
    Ok(())
}

fn open(arguments: &EmbedArguments) -> Result<Embedder, CliError> {
    let mut builder: EmbedderBuilder =
        Embedder::builder().overrides(arguments.model.overrides()?).mmap(!arguments.no_mmap);
    if let Some(normalization) = Normalization::from_number(arguments.embd_normalize) {
        builder = builder.normalization(normalization);
    }
    if let Some(threads) = arguments.threads {
        builder = builder.threads(threads.into());
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
        let input = |source| CliError::Input { path: path.clone(), source };
        let mut bytes = Vec::new();
        if path == Path::new("-") {
            io::stdin().lock().read_to_end(&mut bytes).map_err(input)?;
        } else {
            bytes = std::fs::read(path).map_err(input)?;
        }
        let body = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if !body.is_empty() || !bytes.is_empty() {
            for (index, line) in body.split(|&byte| byte == b'\n').enumerate() {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                let text = std::str::from_utf8(line);
                let text = text.map_err(|_| CliError::NotText { path: path.clone(), line: index + 1 })?;
                texts.push(text.to_owned());
            }
        }
    }
    if texts.is_empty() {
        return Err(CliError::Usage("nothing to embed: give a text with -p, or a file of texts with -f".into()));
    }
    Ok(texts)
}
