//! `bitnet-embed info`.

use super::args::InfoArguments;
use super::{CliError, note};
use bitnet_embed::config::ModelConfig;
use bitnet_embed::embedder::Embedder;
use bitnet_embed::gguf::GgufFile;
use bitnet_embed::model::ModelPlan;
use burn_i2s::isa::Isa;
use std::io::{self, BufWriter, Write};

/// Describes the file first: what is found wrong after that is easier to read beside the description.
pub(crate) fn run(arguments: &InfoArguments) -> Result<(), CliError> {
    let file = GgufFile::open_model(&arguments.file)?;
    file.check_data().map_err(|error| error.in_file(&arguments.file))?;
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "{}", file.describe())?;
    let config = ModelConfig::from_gguf(file.metadata());
    match config {
        Ok(config) => match ModelPlan::new(&file, config) {
            Ok(plan) => {
                note(&plan.notes());
                let layers = if plan.is_ternary() { "BitNet (ternary weights, int8 activations)" } else { "plain" };
                let config = &plan.config;
                writeln!(
                    out,
                    "model: {} with {layers} linear layers, {} layers of {} (feed-forward {}), {} heads and {} \
                         key-value heads of {}, {:?} pooling",
                    config.architecture,
                    config.num_layers,
                    config.hidden_size,
                    config.intermediate_size,
                    config.num_heads,
                    config.num_kv_heads,
                    config.head_dim,
                    config.pooling
                )?;
                // What is left to be wrong: the tokenizer, and values of the weights.
                if let Err(error) = Embedder::open(&arguments.file) {
                    writeln!(out, "model: `embed` would refuse this file: {error}")?;
                }
            }
            Err(error) => writeln!(out, "model: `embed` would refuse this file: {error}")?,
        },
        Err(error) => writeln!(out, "model: `embed` would refuse this file: {error}")?,
    }
    let levels: Vec<&str> = Isa::available().iter().map(|isa| isa.name()).collect();
    writeln!(out, "cpu: has {}; uses {}", levels.join(", "), arguments.isa.unwrap_or_else(Isa::best))?;
    out.flush()?;
    Ok(())
}
