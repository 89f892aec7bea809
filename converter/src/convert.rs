//! A checkpoint -> a file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bitnet_embed::config::{ModelConfig, Pooling};
use bitnet_embed::gguf::{GgufFile, GgufWriter};
use bitnet_embed::names::{GgufName, TOKEN_TABLE, gguf_tensor_name};
use bitnet_embed::tokenizer::Tokenizer;
use burn_i2s::ggml::GgmlType;

use crate::ConvertError;
use crate::checkpoint::{Checkpoint, CheckpointError, read_json_bytes_if_there};
use crate::config::SourceConfig;
use crate::encode::{self, EncodeError, Encoded, type_name};
use crate::loader;
use crate::metadata::{self, Entries};
use crate::outfile;
use crate::plan::{self, Outtype, Plan, PlannedTensor, TensorHead, Types};
use crate::report::{Progress, Report};
use crate::source::CheckpointTensor;
use crate::split::{self, PartsWriter};
use crate::ternary_fit::MAX_RELATIVE_ERROR;
use crate::vocab::{Vocab, VocabError};

/// What to convert, and into what.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// Folder of the checkpoint.
    pub dir: PathBuf,
    /// Type of the weights in the file.
    pub outtype: Outtype,
    /// Type of the token table; `None` is that of `outtype`.
    pub embedding_type: Option<GgmlType>,
    /// Type of the norms; `None` is that of `outtype`.
    pub norm_type: Option<GgmlType>,
    /// The file to write; `None` is `<dir>/<name of dir>-<type>.gguf`.
    pub outfile: Option<PathBuf>,
    /// The name in the file; `None` is that of the folder.
    pub name: Option<String>,
    /// Replaces the pooling that `modules.json` states.
    pub pooling: Option<Pooling>,
    /// Store the whole `tokenizer.json`.
    pub embed_tokenizer: bool,
    /// Split the model into files of at most this many bytes of tensors each, a tensor never being split.
    pub split_max_size: Option<u64>,
    /// Keep a tensor in F32 whose values are too large for its type.
    pub auto_widen: bool,
    /// Write I2_S even if the model is no BitNet.
    pub force: bool,
}

impl ConvertOptions {
    /// The published settings.
    pub fn new(dir: impl Into<PathBuf>, outtype: Outtype) -> Self {
        Self {
            dir: dir.into(),
            outtype,
            embedding_type: None,
            norm_type: None,
            outfile: None,
            name: None,
            pooling: None,
            embed_tokenizer: false,
            split_max_size: None,
            auto_widen: false,
            force: false,
        }
    }

    fn types(&self) -> Types {
        Types { outtype: self.outtype, embedding: self.embedding_type, norm: self.norm_type }
    }
}

/// A checkpoint, read and planned.
pub(crate) struct Prepared {
    pub(crate) config: SourceConfig,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) plan: Plan,
    pub(crate) vocab: Vocab,
    /// `tokenizer.json` as it is.
    pub(crate) tokenizer: Vec<u8>,
    inputs: Inputs,
}

impl Prepared {
    /// Reads a folder and decides what becomes of its tensors.
    pub(crate) fn read(dir: &Path, types: Types, pooling: Option<Pooling>, force: bool) -> Result<Self, ConvertError> {
        check_folder(dir, CHECKPOINT)?;
        let inputs = Inputs::in_folder(dir);
        let config = SourceConfig::read(dir, pooling)?;
        let checkpoint = Checkpoint::open(dir)?;
        check_vocab_sizes(dir, &config, &checkpoint, &inputs)?;
        let heads: Vec<TensorHead<'_>> = checkpoint
            .tensors()
            .iter()
            .map(|tensor| TensorHead { name: &tensor.name, dtype: &tensor.dtype, shape: &tensor.shape })
            .collect();
        let plan = plan::plan(&config.model, &heads, types, force)
            .map_err(|source| ConvertError::Plan { dir: dir.to_owned(), source })?;
        // Only now: the plan has found a token table of this many rows.
        let (vocab, tokenizer) = read_vocab(&inputs, config.model.vocab_size)?;
        Ok(Self { config, checkpoint, plan, vocab, tokenizer, inputs })
    }

    /// The values of a planned tensor.
    pub(crate) fn source(&self, planned: &PlannedTensor) -> CheckpointTensor<'_> {
        let tensor = &self.checkpoint.tensors()[planned.source];
        CheckpointTensor { checkpoint: &self.checkpoint, tensor, add_one: planned.add_one }
    }

    /// An error of one tensor, with the file it is in.
    pub(crate) fn encode_error(&self, planned: &PlannedTensor, source: EncodeError) -> ConvertError {
        let tensor = &self.checkpoint.tensors()[planned.source];
        ConvertError::of_tensor(self.checkpoint.file_of(tensor), source)
    }

    /// Whether a reader gets the model and its tokenizer back from these metadata: what it would refuse is not written.
    fn check_readable(&self, entries: &Entries) -> Result<(), ConvertError> {
        let mut writer = GgufWriter::new();
        for (key, value) in entries {
            writer.metadata(key, value.clone())?;
        }
        let file = GgufFile::from_owner(writer.write_to(Vec::new())?.finish()?)?;
        ModelConfig::from_gguf(file.metadata())
            .map_err(|source| ConvertError::Config { path: self.inputs.config.clone(), source })?;
        let fail = |source| ConvertError::Vocab { path: self.inputs.tokenizer.clone(), source };
        let tokenizer = Tokenizer::from_gguf(file.metadata()).map_err(|source| fail(VocabError::Library { source }))?;
        let (found, vocab_size) = (tokenizer.id_count(), self.config.model.vocab_size);
        if found > vocab_size {
            return Err(fail(VocabError::WholeTooLarge { found, vocab_size }));
        }
        Ok(())
    }

    /// Every file that is read.
    fn files(&self) -> impl Iterator<Item = &Path> {
        self.inputs.all().into_iter().chain(self.checkpoint.files()).chain(self.config.pooling_config.as_deref())
    }
}

/// Converts a checkpoint, and loads the file that was written: a note says so if `bitnet-embed` would refuse it.
///
/// Memory stays below the largest projection plus some tens of megabytes and the tokenizer. For that a model in several
/// files is not loaded, which would take all of it in memory at once.
///
/// # Errors
/// When the checkpoint is refused or the file cannot be written; then nothing has changed at the output's path.
pub fn convert(options: &ConvertOptions, progress: &mut dyn Progress) -> Result<Report, ConvertError> {
    // By now nothing of the conversion is in memory any more.
    let mut report = convert_only(options, progress)?;
    if report.files == 1 {
        report.notes.extend(loader::note(&report.outfile));
    }
    Ok(report)
}

/// As [`convert`], for a file that is loaded anyway.
pub(crate) fn convert_only(options: &ConvertOptions, progress: &mut dyn Progress) -> Result<Report, ConvertError> {
    let dir = options.dir.as_path();
    let folder = folder_name(dir);
    let outfile =
        options.outfile.clone().unwrap_or_else(|| dir.join(format!("{folder}-{}.gguf", options.outtype.name())));
    // Before the work: of several files only the folder is known yet.
    check_folder(dir, CHECKPOINT_OR_FILE)?;
    outfile::refuse_part_name(&outfile)?;
    if options.split_max_size.is_some() {
        outfile::check_folder(&outfile)?;
    } else {
        outfile::resolve(&outfile)?;
        outfile::refuse_input(&outfile, Some(dir), [])?;
    }
    let mut prepared = Prepared::read(dir, options.types(), options.pooling, options.force)?;
    let mut notes = std::mem::take(&mut prepared.vocab.notes);
    if options.embed_tokenizer && prepared.vocab.whole.is_none() {
        prepared.vocab.whole = Some(String::from_utf8_lossy(&prepared.tokenizer).into_owned());
    }
    let name = options.name.as_deref().unwrap_or(&folder);
    let entries = metadata::entries(name, &prepared.config, options.outtype, &prepared.vocab);
    prepared.check_readable(&entries)?;
    if let Some(replaced) = prepared.config.replaced_pooling {
        notes.push(format!("--pooling replaces the pooling of the checkpoint, {}", replaced.name()));
    }
    if options.auto_widen {
        widen(&mut prepared, &mut notes)?;
    }

    notes
        .extend(prepared.checkpoint.ignored().iter().map(|path| format!("{}: not the model, ignored", path.display())));
    let plain = &prepared.plan.plain_projections;
    if let Some(first) = plain.first().filter(|_| options.outtype == Outtype::I2S) {
        notes.push(plan::plain_note(plain.len(), first));
    }

    let tensors: Vec<(&str, GgmlType, &[usize])> = prepared
        .plan
        .tensors
        .iter()
        .map(|planned| (&*planned.name, planned.target, &*prepared.checkpoint.tensors()[planned.source].shape))
        .collect();
    notes.extend(options.split_max_size.and_then(|max| split::oversize_note(max, &tensors)));
    let parts = split::plan(&outfile, options.split_max_size, entries, &tensors)?;
    for part in &parts {
        outfile::refuse_input(&part.path, Some(dir), prepared.files())?;
    }
    let mut file = PartsWriter::create(parts)?;
    let mut tally = Tally::default();
    let count = prepared.plan.tensors.len();
    for (position, planned) in prepared.plan.tensors.iter().enumerate() {
        progress.tensor(&planned.name, position, count);
        let source = prepared.source(planned);
        let encoded = encode::encode(&source, planned.target, &mut |bytes| file.write(&planned.name, bytes))
            .map_err(|source| prepared.encode_error(planned, source))?;
        let path = || prepared.checkpoint.file_of(source.tensor).to_owned();
        tally.add(&source.tensor.name, planned.target, &encoded, options.force, path, &mut notes)?;
    }
    let outfiles = file.finish()?;
    progress.finish();
    notes.extend(tally.note());
    Ok(Report::of_files(outfiles, prepared.plan.tensors.iter().map(|t| t.target), prepared.plan.skipped, notes))
}

/// What is said about tensors once they are converted.
#[derive(Default)]
pub(crate) struct Tally {
    already_ternary: usize,
    density: (f64, f64),
}

impl Tally {
    /// Notes what happened to one tensor, or refuses it.
    pub(crate) fn add(
        &mut self,
        name: &str,
        target: GgmlType,
        encoded: &Encoded,
        force: bool,
        path: impl FnOnce() -> PathBuf,
        notes: &mut Vec<String>,
    ) -> Result<(), ConvertError> {
        if encoded.flushed > 0 {
            notes.push(format!(
                "{name}: {} value(s) too small for {} became 0, as in the published converter",
                encoded.flushed,
                type_name(target)
            ));
        }
        let Some(fit) = encoded.fit else { return Ok(()) };
        if !fit.is_plausible() && !force {
            let (tensor, found, limit) = (name.to_owned(), fit.relative_error, MAX_RELATIVE_ERROR);
            return Err(ConvertError::NotTernary { path: path(), tensor, found, limit });
        }
        if let Some(magnitude) = fit.magnitude {
            let density = f64::from(fit.scale) / f64::from(magnitude);
            self.density = if self.already_ternary == 0 {
                (density, density)
            } else {
                (self.density.0.min(density), self.density.1.max(density))
            };
            self.already_ternary += 1;
        }
        Ok(())
    }

    pub(crate) fn note(&self) -> Option<String> {
        (self.already_ternary > 0).then(|| {
            format!(
                "{} projection(s) were ternary already (0 and one magnitude): no code changed; the scale is the mean \
                 magnitude, {:.2} to {:.2} of that magnitude, as BitNet's own quantizer takes it",
                self.already_ternary, self.density.0, self.density.1
            )
        })
    }
}

/// Keeps tensors in F32 that do not fit their type.
fn widen(prepared: &mut Prepared, notes: &mut Vec<String>) -> Result<(), ConvertError> {
    for position in 0..prepared.plan.tensors.len() {
        let planned = &prepared.plan.tensors[position];
        let fits = encode::fits(&prepared.source(planned), planned.target);
        if !fits.map_err(|source| prepared.encode_error(planned, source))? {
            notes.push(format!("{} has values beyond {} and stays f32", planned.name, type_name(planned.target)));
            prepared.plan.tensors[position].target = GgmlType::F32;
        }
    }
    Ok(())
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

    /// The file that an error is about.
    fn file_of(&self, error: &VocabError) -> &Path {
        if error.is_of_config() { &self.tokenizer_config } else { &self.tokenizer }
    }

    fn read_tokenizer(&self) -> Result<Vec<u8>, ConvertError> {
        let hint = "save the tokenizer as transformers does for fast tokenizers";
        let no_file = || CheckpointError::NoFile { path: self.tokenizer.clone(), hint };
        Ok(read_json_bytes_if_there(&self.tokenizer)?.ok_or_else(no_file)?)
    }
}

fn read_vocab(inputs: &Inputs, vocab_size: usize) -> Result<(Vocab, Vec<u8>), ConvertError> {
    let tokenizer = inputs.read_tokenizer()?;
    let config = read_json_bytes_if_there(&inputs.tokenizer_config)?;
    let vocab = Vocab::from_json(&tokenizer, config.as_deref(), vocab_size)
        .map_err(|source| ConvertError::Vocab { path: inputs.file_of(&source).to_owned(), source })?;
    Ok((vocab, tokenizer))
}

/// Explains a table that has other rows than the config says with all three numbers, since it takes all of them to see
/// which one is wrong.
fn check_vocab_sizes(
    dir: &Path,
    config: &SourceConfig,
    checkpoint: &Checkpoint,
    inputs: &Inputs,
) -> Result<(), ConvertError> {
    let table = checkpoint.tensors().iter().find(|tensor| {
        gguf_tensor_name(config.model.architecture, &tensor.name) == Some(GgufName::Tensor(TOKEN_TABLE.into()))
    });
    let Some(&[table_rows, _]) = table.map(|tensor| &tensor.shape[..]) else { return Ok(()) };
    let vocab_size = config.model.vocab_size;
    if table_rows == vocab_size {
        return Ok(());
    }
    let tokenizer = inputs.read_tokenizer()?;
    let tokenizer_ids =
        Vocab::id_count(&tokenizer).map_err(|source| ConvertError::Vocab { path: inputs.tokenizer.clone(), source })?;
    Err(ConvertError::VocabSizes { dir: dir.to_owned(), vocab_size, table_rows, tokenizer_ids })
}

const CHECKPOINT: &str = "the folder of a Hugging Face checkpoint, with config.json in it";
const CHECKPOINT_OR_FILE: &str = "the folder of a Hugging Face checkpoint, with config.json in it, or a GGUF file";

/// Refuses what is no folder, where `expected` was to be given.
fn check_folder(dir: &Path, expected: &'static str) -> Result<(), ConvertError> {
    let found = match std::fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(metadata) if metadata.is_file() => "a file, not a folder",
        Ok(_) => "a device or pipe, not a folder",
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => "there is nothing",
        Err(source) => return Err(CheckpointError::Read { path: dir.to_owned(), source }.into()),
    };
    Err(ConvertError::NoFolder { dir: dir.to_owned(), found, expected })
}

/// The folder's own name, also for `.` and `..`.
pub(crate) fn folder_name(dir: &Path) -> String {
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}
