//! `bitnet-embed tokenize`.

use super::args::TokenizeArguments;
use super::{CliError, DEMO_MODEL, note_demo};
use bitnet_embed::config::ModelConfig;
use bitnet_embed::config::keys::tokenizer as keys;
use bitnet_embed::gguf::{GgufFile, Metadata};
use bitnet_embed::tokenizer::Tokenizer;
use std::io::{self, Write};

pub(crate) fn run(arguments: &TokenizeArguments) -> Result<(), CliError> {
    let overrides = arguments.model.overrides()?;
    match (&arguments.model.tokenizer, &arguments.model.model) {
        (Some(json), None) => print(arguments, &Tokenizer::from_file(json)?, None),
        (Some(json), Some(path)) => {
            // The ids that `embed` would take.
            let file = GgufFile::open_model(path)?;
            let metadata = file.metadata().with_overrides(overrides.as_slice());
            let config = ModelConfig::from_gguf(metadata);
            let config = config.map_err(|source| CliError::ConfigOf { path: path.clone(), source })?;
            print(arguments, &Tokenizer::from_file_for_gguf(json, config.vocab_size, metadata)?, None)
        }
        (None, Some(path)) => {
            let file = GgufFile::open_model(path)?;
            let metadata = file.metadata().with_overrides(overrides.as_slice());
            let tokenizer = Tokenizer::from_gguf(metadata);
            let tokenizer = tokenizer.map_err(|source| CliError::TokenizerOf { path: path.clone(), source })?;
            print(arguments, &tokenizer, Some(metadata))
        }
        (None, None) => {
            note_demo();
            let file = GgufFile::from_owner(DEMO_MODEL)?;
            let metadata = file.metadata().with_overrides(overrides.as_slice());
            print(arguments, &Tokenizer::from_gguf(metadata)?, Some(metadata))
        }
    }
}

/// One id a line with the token's own string, where the file has it; a JSON array of the ids where asked for.
fn print(arguments: &TokenizeArguments, tokenizer: &Tokenizer, metadata: Option<Metadata<'_>>) -> Result<(), CliError> {
    let ids = tokenizer.encode(&arguments.prompt)?;
    let mut stdout = io::stdout().lock();
    if arguments.json {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        writeln!(stdout, "[{}]", ids.join(","))?;
        return Ok(());
    }
    let tokens = match metadata.map(|metadata| metadata.array(keys::TOKENS)).transpose()?.flatten() {
        Some(tokens) => tokens.strings()?.collect::<Result<Vec<&str>, _>>()?,
        None => Vec::new(),
    };
    for id in ids {
        match tokens.get(id as usize) {
            Some(token) => writeln!(stdout, "{id:6} -> '{}'", token.escape_debug())?,
            None => writeln!(stdout, "{id:6}")?,
        }
    }
    Ok(())
}
