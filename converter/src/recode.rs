//! A GGUF file -> the same model with its tensors in other types.
//!
//! What a tensor is follows from its name and shape alone, so that files of any architecture and of any converter will do.
//! The metadata are copied as they are, but for `general.file_type` and a name that was asked for.

use std::path::{Path, PathBuf};

use bitnet_embed::config::keys;
use bitnet_embed::gguf::{GgufError, GgufFile, GgufWriter, ModelBytes, TensorInfo, split_path};
use bitnet_embed::names::{TOKEN_TABLE, TensorRole};
use burn_i2s::ggml::GgmlType;

use crate::ConvertError;
use crate::convert::{ConvertOptions, Tally};
use crate::data_file::{self, DataFile};
use crate::encode::{self, type_name};
use crate::interrupt;
use crate::loader;
use crate::outfile;
use crate::plan::{Outtype, PlanError, check_blocks, plain_note};
use crate::report::{Progress, Report};
use crate::source::GgufTensor;

/// What becomes of one tensor.
struct Recoded<'a> {
    tensor: &'a TensorInfo,
    /// `None`: copied as it is.
    target: Option<GgmlType>,
}

/// Writes the GGUF file `options.dir` with other types.
///
/// Projections take `outtype`, the token table `embedding_type` or else what `outtype` means for it, and norms and other
/// vectors `norm_type`, or else stay as they are unless `outtype` is F32. Whatever already has its type is copied byte for
/// byte. Pooling and tokenizer are those of the file, and so is the name unless `options` has one.
///
/// # Errors
/// When the file is refused, a tensor cannot be stored as asked, or the output cannot be written.
pub fn recode(options: &ConvertOptions, progress: &mut dyn Progress) -> Result<Report, ConvertError> {
    let path = options.dir.as_path();
    let outfile = options.outfile.clone().unwrap_or_else(|| {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        path.with_file_name(format!("{stem}-{}.gguf", options.outtype.name()))
    });
    outfile::refuse_part_name(&outfile)?;
    outfile::resolve(&outfile)?;
    let inputs = [path.to_owned()].into_iter().chain(part_files(path)).collect::<Vec<_>>();
    outfile::refuse_input(&outfile, None, inputs.iter().map(PathBuf::as_path))?;
    let open = || GgufFile::open_model(path);
    let (input, data) = DataFile::beside(path, open).map_err(|source| match source.kind() {
        GgufError::Magic { .. } => ConvertError::NoGguf { source },
        _ => ConvertError::Input(source),
    })?;
    // The parts of a split model are joined in memory: one of them is not the model.
    let data = data.filter(|_| matches!(input.owner(), ModelBytes::Mapped(_)));
    let data = data.as_ref();
    input.check_data().map_err(|error| ConvertError::Input(error.in_file(path)))?;
    let mut notes = Vec::new();
    let mut tensors = plan(options, &input, path)?;
    let mut plain = tensors
        .iter()
        .filter(|recoded| recoded.target == Some(GgmlType::I2_S) && input.tensor(&norm_of(recoded.tensor)).is_none());
    if let Some(first) = plain.next() {
        notes.push(plain_note(1 + plain.count(), first.tensor.name()));
    }
    if options.auto_widen {
        widen(&input, data, &mut tensors, &mut notes, path)?;
    }

    let writer = declare(options, &input, &tensors, path)?;
    let (mut file, _registered) = interrupt::create(writer, &outfile)?;
    let mut tally = Tally::default();
    let count = tensors.len();
    for (position, Recoded { tensor, target }) in tensors.iter().enumerate() {
        let name = tensor.name();
        progress.tensor(name, position, count);
        match target.and_then(|target| Some((target, GgufTensor::new(&input, tensor)?.read_from(data)))) {
            None => {
                check_finite(&input, data, tensor, path)?;
                data_file::copy(&input, data, tensor, &mut |bytes| Ok(file.write(name, bytes)?))?;
            }
            Some((target, source)) => {
                let encoded = encode::encode(&source, target, &mut |bytes| file.write(name, bytes))
                    .map_err(|source| ConvertError::of_tensor(path, source))?;
                tally.add(name, target, &encoded, options.force, || path.to_owned(), &mut notes)?;
            }
        }
    }
    file.finish()?;
    progress.finish();
    notes.extend(tally.note());
    let types = tensors.iter().map(|recoded| recoded.target.or(recoded.tensor.ggml_type()).unwrap_or(GgmlType::F32));
    let types: Vec<GgmlType> = types.collect();
    // Before the other file is mapped to be loaded.
    drop(input);
    notes.extend(loader::note(&outfile));
    Ok(Report::of_file(outfile, types.into_iter(), Vec::new(), notes))
}

/// Refuses a value that is not finite in a tensor of floats that is copied as it is.
fn check_finite<B: AsRef<[u8]>>(
    input: &GgufFile<B>,
    data: Option<&DataFile>,
    tensor: &TensorInfo,
    path: &Path,
) -> Result<(), ConvertError> {
    let Some(ty @ (GgmlType::F32 | GgmlType::F16 | GgmlType::BF16)) = tensor.ggml_type() else { return Ok(()) };
    let Some(source) = GgufTensor::new(input, tensor) else { return Ok(()) };
    let source = source.read_from(data);
    let encoded = encode::encode(&source, ty, &mut |_| Ok(()));
    encoded.map(drop).map_err(|source| ConvertError::of_tensor(path, source))
}

/// The files of a split model, by the name of one of them; none, if it is not named as one.
pub(crate) fn part_files(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let parts = name.strip_suffix(".gguf").and_then(|name| {
        let (rest, count) = name.rsplit_once("-of-")?;
        let (stem, _) = rest.rsplit_once('-')?;
        Some((path.with_file_name(stem), count.parse::<u16>().ok()?))
    });
    let Some((stem, count)) = parts else { return Vec::new() };
    (0..count).map(|index| split_path(&stem, index.into(), count.into())).collect()
}

fn plan<'a, B: AsRef<[u8]>>(
    options: &ConvertOptions,
    input: &'a GgufFile<B>,
    path: &Path,
) -> Result<Vec<Recoded<'a>>, ConvertError> {
    let mut tensors = Vec::new();
    for tensor in input.tensors() {
        let target = target_of(options, tensor).filter(|target| tensor.ggml_type() != Some(*target));
        if let Some(target) = target {
            let fail = |source| ConvertError::Recode { path: path.to_owned(), source };
            if tensor.ggml_type() == Some(GgmlType::I2_S) {
                return Err(ConvertError::FromTernary { path: path.to_owned(), tensor: tensor.name().to_owned() });
            }
            tensor.require_type().map_err(|error| ConvertError::Input(error.in_file(path)))?;
            check_blocks(tensor.name(), target, &tensor.shape()).map_err(fail)?;
            if target == GgmlType::I2_S && !options.force {
                let norm = norm_of(tensor);
                if input.tensor(&norm).is_none() {
                    return Err(fail(PlanError::NotBitNet { tensor: tensor.name().to_owned(), norm }));
                }
            }
        }
        tensors.push(Recoded { tensor, target });
    }
    Ok(tensors)
}

/// The name of a projection's input norm.
fn norm_of(projection: &TensorInfo) -> String {
    projection.name().replace(".weight", "_norm_in.weight")
}

/// The type a tensor is to have; `None` for one that stays as it is.
fn target_of(options: &ConvertOptions, tensor: &TensorInfo) -> Option<GgmlType> {
    match role_of(tensor) {
        TensorRole::Projection => Some(options.outtype.of(TensorRole::Projection)),
        TensorRole::TokenTable => {
            Some(options.embedding_type.unwrap_or_else(|| options.outtype.of(TensorRole::TokenTable)))
        }
        // A norm in F32 costs nothing and is exact; only F32 promises that everything is F32.
        role => options.norm_type.or_else(|| (options.outtype == Outtype::F32).then(|| options.outtype.of(role))),
    }
}

/// What a tensor is, by its name and shape.
fn role_of(tensor: &TensorInfo) -> TensorRole {
    let is_matrix = tensor.rows() > 1 && tensor.dims().len() == 2;
    match tensor.name() {
        TOKEN_TABLE | "output.weight" => TensorRole::TokenTable,
        name if is_matrix && name.starts_with("blk.") && name.ends_with(".weight") => TensorRole::Projection,
        _ => TensorRole::Norm,
    }
}

/// Keeps tensors in F32 that do not fit their type.
fn widen<B: AsRef<[u8]>>(
    input: &GgufFile<B>,
    data: Option<&DataFile>,
    tensors: &mut [Recoded<'_>],
    notes: &mut Vec<String>,
    path: &Path,
) -> Result<(), ConvertError> {
    for recoded in tensors {
        let Some((target, source)) = recoded.target.zip(GgufTensor::new(input, recoded.tensor)) else { continue };
        let fits = encode::fits(&source.read_from(data), target);
        if !fits.map_err(|source| ConvertError::of_tensor(path, source))? {
            notes.push(format!("{} has values beyond {} and becomes f32", recoded.tensor.name(), type_name(target)));
            recoded.target = Some(GgmlType::F32);
        }
    }
    Ok(())
}

fn declare<B: AsRef<[u8]>>(
    options: &ConvertOptions,
    input: &GgufFile<B>,
    tensors: &[Recoded<'_>],
    path: &Path,
) -> Result<GgufWriter, ConvertError> {
    let mut writer = GgufWriter::new();
    let metadata = input.metadata();
    let mut states_type = false;
    for key in metadata.keys() {
        let Some(value) = metadata.value(key) else { continue };
        match (key, &options.name) {
            (keys::FILE_TYPE, _) => {
                states_type = true;
                writer.metadata(key, options.outtype.file_type())?;
            }
            (keys::NAME, Some(name)) => {
                writer.metadata(key, name.as_str())?;
            }
            _ => {
                writer.metadata(key, value.into_owned())?;
            }
        }
    }
    if !states_type {
        writer.metadata(keys::FILE_TYPE, options.outtype.file_type())?;
    }
    for Recoded { tensor, target } in tensors {
        match target {
            Some(target) => writer.tensor(tensor.name(), *target, &tensor.shape())?,
            None => writer.copy_of(tensor).map_err(|error| ConvertError::Input(error.in_file(path)))?,
        };
    }
    Ok(writer)
}
