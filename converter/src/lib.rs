//! Turns a Hugging Face checkpoint of a BitNet embedding model into a GGUF file.
//!
//! ```text
//! config.json, modules.json -> ModelConfig ----+
//! *.safetensors headers -----> Checkpoint --> Plan --> GgufWriter <-- encode (tensor by tensor)
//! tokenizer.json ------------> Vocab ----------+
//! ```
//!
//! [`plan`] is pure and decides everything; [`encode`] only carries it out. Nothing appears at the output's path before
//! the file is complete.

pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod dummy;
mod dummy_vocab;
pub mod encode;
mod error;
mod header;
pub mod metadata;
pub mod plan;
mod rebuild;
mod recognise;
pub mod report;
mod tokenizer_json;
pub mod vocab;

use std::path::{Path, PathBuf};

use bitnet_embed::config::Pooling;
use bitnet_embed::gguf::GgufWriter;

pub use error::{ConvertError, EXIT_NOT_WRITTEN, EXIT_REFUSED, EXIT_UNSUPPORTED};
pub use plan::Outtype;

use checkpoint::{Checkpoint, CheckpointError, read_json_bytes_if_there};
use config::SourceConfig;
use plan::TensorHead;
use report::{Progress, Report};
use vocab::Vocab;

/// What to convert, and into what.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// Folder of the checkpoint.
    pub dir: PathBuf,
    /// Type of the weights in the file.
    pub outtype: Outtype,
    /// The file to write; `None` is `<dir>/<name of dir>-<type>.gguf`.
    pub outfile: Option<PathBuf>,
    /// Replaces the pooling that `modules.json` states.
    pub pooling: Option<Pooling>,
    /// Write I2_S even if the model is no BitNet.
    pub force: bool,
}

/// Converts a checkpoint.
///
/// Memory stays below the largest projection plus some tens of megabytes and the tokenizer.
///
/// # Errors
/// When the checkpoint is refused or the file cannot be written; then nothing has changed at the output's path.
pub fn convert(options: &ConvertOptions, progress: &mut dyn Progress) -> Result<Report, ConvertError> {
    let dir = options.dir.as_path();
    if !dir.is_dir() {
        return Err(ConvertError::NoFolder { dir: dir.to_owned() });
    }
    let name = folder_name(dir);
    let outfile =
        options.outfile.clone().unwrap_or_else(|| dir.join(format!("{name}-{}.gguf", options.outtype.name())));

    let inputs = Inputs::in_folder(dir);
    let config = SourceConfig::read(dir, options.pooling)?;
    let checkpoint = Checkpoint::open(dir)?;
    refuse_input_as_output(&outfile, inputs.all().into_iter().chain(checkpoint.files()))?;
    let heads: Vec<TensorHead<'_>> = checkpoint
        .tensors()
        .iter()
        .map(|tensor| TensorHead { name: &tensor.name, dtype: &tensor.dtype, shape: &tensor.shape })
        .collect();
    let plan = plan::plan(&config.model, &heads, options.outtype, options.force)
        .map_err(|source| ConvertError::Plan { dir: dir.to_owned(), source })?;
    // Only now: the plan has found a token table of this many rows.
    let vocab = read_vocab(&inputs, config.model.vocab_size)?;

    let mut writer = GgufWriter::new();
    for (key, value) in metadata::entries(&name, &config, options.outtype, &vocab) {
        writer.metadata(&key, value)?;
    }
    for tensor in &plan.tensors {
        writer.tensor(&tensor.name, tensor.target, heads[tensor.source].shape)?;
    }
    let mut notes = vocab.notes;
    notes.extend(plan.plain_projection.filter(|_| options.outtype == Outtype::I2S).map(|tensor| {
        format!(
            "{tensor} has no input norm: its input will be quantized as it comes, which the model was not trained for"
        )
    }));

    let mut file = writer.create(&outfile)?;
    let count = plan.tensors.len();
    for (position, planned) in plan.tensors.iter().enumerate() {
        progress.tensor(&planned.name, position, count);
        let tensor = &checkpoint.tensors()[planned.source];
        let mut sink = |bytes: &[u8]| file.write(&planned.name, bytes);
        encode::encode(&checkpoint, tensor, planned.target, planned.add_one, &mut sink)
            .map_err(|source| ConvertError::Encode { path: checkpoint.file_of(tensor).to_owned(), source })?;
    }
    file.finish()?;
    progress.finish();
    Ok(Report::of_file(outfile, &plan.tensors, plan.skipped, notes))
}

/// The small files of a checkpoint.
struct Inputs {
    config: PathBuf,
    modules: PathBuf,
    tokenizer: PathBuf,
    tokenizer_config: PathBuf,
}

impl Inputs {
    fn in_folder(dir: &Path) -> Self {
        Self {
            config: dir.join("config.json"),
            modules: dir.join("modules.json"),
            tokenizer: dir.join("tokenizer.json"),
            tokenizer_config: dir.join("tokenizer_config.json"),
        }
    }

    fn all(&self) -> [&Path; 4] {
        [&self.config, &self.modules, &self.tokenizer, &self.tokenizer_config]
    }
}

fn read_vocab(inputs: &Inputs, vocab_size: usize) -> Result<Vocab, ConvertError> {
    let hint = "save the tokenizer as transformers does for fast tokenizers";
    let tokenizer = read_json_bytes_if_there(&inputs.tokenizer)?
        .ok_or_else(|| CheckpointError::NoFile { path: inputs.tokenizer.clone(), hint })?;
    let config = read_json_bytes_if_there(&inputs.tokenizer_config)?;
    Vocab::from_json(&tokenizer, config.as_deref(), vocab_size)
        .map_err(|source| ConvertError::Vocab { path: inputs.tokenizer.clone(), source })
}

/// The folder's own name, also for `.` and `..`.
fn folder_name(dir: &Path) -> String {
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Replacing a file that is being read would destroy the only copy of a checkpoint.
fn refuse_input_as_output<'a>(outfile: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<(), ConvertError> {
    let Ok(output) = outfile.canonicalize() else { return Ok(()) };
    for input in inputs {
        if input.canonicalize().is_ok_and(|input| input == output) {
            return Err(ConvertError::OutputIsInput { path: outfile.to_owned() });
        }
    }
    Ok(())
}
