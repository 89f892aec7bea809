//! `bitnet-embed tokenize`.

use super::args::TokenizeArguments;
use super::{CliError, DEMO_MODEL, note_demo};
use bitnet_embed::gguf::{GgufFile, MappedFile};
use bitnet_embed::tokenizer::Tokenizer;
use std::io::{self, Write};

pub(crate) fn run(arguments: &TokenizeArguments) -> Result<(), CliError> {
    let overrides = arguments.model.overrides()?;
    let tokenizer = match (&arguments.model.tokenizer, &arguments.model.model) {
        (Some(json), _) => Tokenizer::from_file(json)?,
        (None, Some(path)) => {
            let file = GgufFile::<MappedFile>::open(path)?;
            Tokenizer::from_metadata(&file.metadata().with_overrides(&overrides))?
        }
        (None, None) => {
            note_demo();
            Tokenizer::from_metadata(&GgufFile::from_owner(DEMO_MODEL)?.metadata().with_overrides(&overrides))?
        }
    };
    let ids = tokenizer.encode(&arguments.prompt)?;
    let mut stdout = io::stdout().lock();
    if arguments.json {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        writeln!(stdout, "[{}]", ids.join(","))?;
    } else {
        for id in ids {
            let piece = tokenizer.piece(id).unwrap_or_default();
            writeln!(stdout, "{id:6} -> '{}'", piece.escape_debug())?;
        }
    }
    Ok(())
}
