//! A GGUF file -> the same file with other metadata. Tensors are copied byte for byte, of whatever type they are.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bitnet_embed::gguf::{GgufFile, GgufWriter, MappedFile, OwnedValue, SPLIT_COUNT, Value, ValueType};
use burn_i2s::ggml::GgmlType;

use crate::ConvertError;
use crate::data_file::{self, DataFile};
use crate::interrupt;
use crate::loader;
use crate::outfile;
use crate::report::{Progress, Report};

/// Why a change cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// Not of the form of a change.
    #[error("--set {text:?}: expected KEY=VALUE, or KEY=TYPE:VALUE with TYPE one of {TYPES}")]
    Form {
        /// What was given.
        text: String,
    },
    /// A value that its type does not have.
    #[error("--set {key:?}: {value:?} is no {ty}")]
    Value {
        /// The key.
        key: String,
        /// The text of the value.
        value: String,
        /// The type it should have.
        ty: ValueType,
    },
    /// A key that the file does not have, given without a type.
    #[error(
        "--set {key:?}: the file has no such key, so its type must be given: {key}=TYPE:VALUE with TYPE one of {TYPES}"
    )]
    NewKey {
        /// The key.
        key: String,
    },
    /// A value that is no scalar.
    #[error("--set {key:?}: it is an array, and arrays cannot be set; delete it, or convert the checkpoint again")]
    Array {
        /// The key.
        key: String,
    },
    /// A key to delete that is not there.
    #[error("--delete {key:?}: the file has no such key")]
    Absent {
        /// The key.
        key: String,
    },
    /// A value that no file can have.
    #[error("--set {key:?}: {reason}")]
    Impossible {
        /// The key.
        key: String,
        /// Why.
        reason: String,
    },
    /// A key that makes a file one of several.
    #[error(
        "--set {key:?}: it would say that the file is a part of a model; parts are written with `--split-max-size`"
    )]
    MakesPart {
        /// The key.
        key: String,
    },
    /// A file that is one of several.
    #[error(
        "the file is one of the {count} parts of a split model; convert the checkpoint again without --split-max-size to edit it"
    )]
    Split {
        /// Parts.
        count: u64,
    },
    /// A key that is set or deleted twice.
    #[error("{key:?} is changed twice")]
    Twice {
        /// The key.
        key: String,
    },
}

const TYPES: &str = "u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, bool, str";

/// A key and the value it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    key: String,
    /// `None`: that of the key in the file.
    ty: Option<ValueType>,
    value: String,
    /// What follows `=`, for a string whose value looks like a type.
    whole: String,
}

/// `KEY=VALUE`, the type being that of the key in the file, or `KEY=TYPE:VALUE`.
impl FromStr for Setting {
    type Err = EditError;

    fn from_str(text: &str) -> Result<Self, EditError> {
        let form = || EditError::Form { text: text.to_owned() };
        let (key, whole) = text.split_once('=').ok_or_else(form)?;
        if key.is_empty() {
            return Err(form());
        }
        let typed = whole.split_once(':').and_then(|(ty, value)| {
            let ty = ValueType::ALL.into_iter().find(|known| known.name() == ty && *known != ValueType::Array)?;
            Some((ty, value))
        });
        let (ty, value) = typed.map_or((None, whole), |(ty, value)| (Some(ty), value));
        Ok(Self { key: key.to_owned(), ty, value: value.to_owned(), whole: whole.to_owned() })
    }
}

impl Setting {
    /// The value, given what the file has under the key.
    fn resolve(&self, present: Option<Value<'_>>) -> Result<OwnedValue, EditError> {
        let key = || self.key.clone();
        let (ty, text) = match (self.ty, present.map(|value| value.kind().value)) {
            (_, Some(ValueType::Array)) => return Err(EditError::Array { key: key() }),
            (Some(ty), _) => (ty, &self.value),
            (None, Some(ty)) => (ty, &self.whole),
            (None, None) => return Err(EditError::NewKey { key: key() }),
        };
        parse(ty, text).ok_or_else(|| EditError::Value { key: key(), value: text.clone(), ty })
    }
}

fn parse(ty: ValueType, text: &str) -> Option<OwnedValue> {
    Some(match ty {
        ValueType::U8 => OwnedValue::U8(text.parse().ok()?),
        ValueType::I8 => OwnedValue::I8(text.parse().ok()?),
        ValueType::U16 => OwnedValue::U16(text.parse().ok()?),
        ValueType::I16 => OwnedValue::I16(text.parse().ok()?),
        ValueType::U32 => OwnedValue::U32(text.parse().ok()?),
        ValueType::I32 => OwnedValue::I32(text.parse().ok()?),
        ValueType::U64 => OwnedValue::U64(text.parse().ok()?),
        ValueType::I64 => OwnedValue::I64(text.parse().ok()?),
        ValueType::F32 => OwnedValue::F32(text.parse().ok().filter(|value: &f32| value.is_finite())?),
        ValueType::F64 => OwnedValue::F64(text.parse().ok().filter(|value: &f64| value.is_finite())?),
        ValueType::Bool => OwnedValue::Bool(text.parse().ok()?),
        ValueType::Str => OwnedValue::Str(text.to_owned()),
        ValueType::Array => return None,
    })
}

/// What to change.
#[derive(Clone, Debug)]
pub struct EditOptions {
    /// The file.
    pub file: PathBuf,
    /// Keys to set; new ones come last, in this order.
    pub set: Vec<Setting>,
    /// Keys to delete.
    pub delete: Vec<String>,
    /// The file to write.
    pub outfile: PathBuf,
}

/// Writes a file with other metadata.
///
/// Editing may take several steps, so one that leaves a file that no loader takes is no error: the report has a note.
///
/// # Errors
/// When the file is refused, a change cannot be made, or the output cannot be written.
pub fn edit(options: &EditOptions, progress: &mut dyn Progress) -> Result<Report, ConvertError> {
    let path: &Path = &options.file;
    outfile::refuse_part_name(&options.outfile)?;
    outfile::resolve(&options.outfile)?;
    outfile::refuse_input(&options.outfile, None, [path])?;
    let (input, data) = DataFile::beside(path, || GgufFile::<MappedFile>::open(path)).map_err(ConvertError::Input)?;
    let mut writer = GgufWriter::new();
    for (key, value) in entries(&input, options).map_err(|source| ConvertError::Edit { source })? {
        writer.metadata(&key, value).map_err(|error| ConvertError::Edit {
            source: EditError::Impossible { key: key.clone(), reason: error.to_string() },
        })?;
    }
    for tensor in input.tensors() {
        writer.copy_of(tensor).map_err(|error| ConvertError::Input(error.in_file(path)))?;
    }
    let (mut file, _registered) = interrupt::create(writer, &options.outfile)?;
    let count = input.tensors().len();
    for (position, tensor) in input.tensors().iter().enumerate() {
        progress.tensor(tensor.name(), position, count);
        data_file::copy(&input, data.as_ref(), tensor, &mut |bytes| Ok(file.write(tensor.name(), bytes)?))?;
    }
    file.finish()?;
    progress.finish();
    let types = input.tensors().iter().map(|tensor| tensor.ggml_type().unwrap_or(GgmlType::F32));
    let types: Vec<GgmlType> = types.collect();
    // Before the other file is mapped to be loaded.
    drop(input);
    let notes = loader::note(&options.outfile).into_iter().collect();
    Ok(Report::of_file(options.outfile.clone(), types.into_iter(), Vec::new(), notes))
}

/// How many files the model has, where the file says so.
pub(crate) fn part_count<B: AsRef<[u8]>>(input: &GgufFile<B>) -> Option<u64> {
    input.metadata().u64(SPLIT_COUNT).ok().flatten()
}

/// The metadata as they are to be.
fn entries<B: AsRef<[u8]>>(input: &GgufFile<B>, options: &EditOptions) -> Result<Vec<(String, OwnedValue)>, EditError> {
    let metadata = input.metadata();
    if let Some(count) = part_count(input).filter(|count| *count > 1) {
        return Err(EditError::Split { count });
    }
    if let Some(setting) = options.set.iter().find(|setting| setting.key.starts_with("split.")) {
        return Err(EditError::MakesPart { key: setting.key.clone() });
    }
    let mut changed: Vec<&str> = options.set.iter().map(|setting| setting.key.as_str()).collect();
    changed.extend(options.delete.iter().map(String::as_str));
    changed.sort_unstable();
    if let Some(pair) = changed.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(EditError::Twice { key: pair[0].to_owned() });
    }
    if let Some(key) = options.delete.iter().find(|key| metadata.value(key).is_none()) {
        return Err(EditError::Absent { key: key.clone() });
    }
    let mut entries = Vec::new();
    for key in metadata.keys().filter(|key| !options.delete.iter().any(|deleted| deleted == key)) {
        let Some(value) = metadata.value(key) else { continue };
        let value = match options.set.iter().find(|setting| setting.key == key) {
            Some(setting) => setting.resolve(Some(value))?,
            None => value.into_owned(),
        };
        entries.push((key.to_owned(), value));
    }
    for setting in options.set.iter().filter(|setting| metadata.value(&setting.key).is_none()) {
        entries.push((setting.key.clone(), setting.resolve(None)?));
    }
    Ok(entries)
}
