//! `bitnet-embed info`.

use super::args::InfoArguments;
use super::{CliError, note};
use bitnet_embed::config::ModelConfig;
use bitnet_embed::embedder::Embedder;
use bitnet_embed::gguf::{GgufFile, MappedFile};
use bitnet_embed::model::ModelPlan;
use burn_i2s::isa::Isa;
use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Describes the file first: what is found wrong after that is easier to read beside the description.
pub(crate) fn run(arguments: &InfoArguments) -> Result<(), CliError> {
    let file = GgufFile::<MappedFile>::open(&arguments.file)?;
    file.check_data().map_err(|error| error.in_file(&arguments.file))?;
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "{}", file.describe())?;
    if let Err(error) = describe_model(&arguments.file, &mut out)? {
        writeln!(out, "model: `embed` would refuse this file: {error}")?;
    }
    let levels: Vec<&str> = Isa::available().iter().map(|isa| isa.name()).collect();
    writeln!(out, "cpu: has {}; uses {}", levels.join(", "), arguments.isa.unwrap_or_else(Isa::best))?;
    out.flush()?;
    Ok(())
}

/// Describes the model that the file is, or is one of the parts of; the inner error is why it would not be loaded.
fn describe_model(path: &Path, out: &mut impl Write) -> io::Result<Result<(), Box<dyn Error>>> {
    let plan = || -> Result<ModelPlan, Box<dyn Error>> {
        let file = GgufFile::open_model(path)?;
        Ok(ModelPlan::new(&file, ModelConfig::from_gguf(file.metadata())?)?)
    };
    let plan = match plan() {
        Ok(plan) => plan,
        Err(error) => return Ok(Err(error)),
    };
    note(&plan.notes());
    let layers = if plan.is_ternary() { "BitNet (ternary weights, int8 activations)" } else { "plain" };
    let config = &plan.config;
    writeln!(
        out,
        "model: {} with {layers} linear layers, {} layers of {} (feed-forward {}), {} heads and {} key-value heads of {}, \
         {:?} pooling",
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
    Ok(Embedder::open(path).map(drop).map_err(Into::into))
}
