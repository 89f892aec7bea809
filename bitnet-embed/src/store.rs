//! GGUF records: a file's tensors as the parameters of [`BitNetEmbedding`](crate::model::BitNetEmbedding).
//!
//! Opening a store reads and checks the structure of the file, so what can be wrong with it is reported by name before a
//! module is built. Loading checks the data, then lends windows of the mapped file to the module: a weight is copied
//! only where its rows are not whole blocks or it must be ternarised first.

use crate::config::{ConfigError, ModelConfig, Overrides, keys};
use crate::gguf::{GgufError, GgufFile, ModelBytes, TensorInfo};
use crate::model::{Load, ModelPlan, PlanError, TensorUse};
use crate::suspects::Suspects;
use burn::store::burn_pack::Tensor as PackTensor;
use burn::store::{ApplyResult, ModuleSnapshot, ModuleStore};
use burn::tensor::{AllocationProperty, Bytes, DType, Shape};
use burn_i2s::error::PackError;
use burn_i2s::ggml::GgmlType;
use burn_i2s::linear::LinearError;
use burn_i2s::pack;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A GGUF file as a source of Burn parameters.
///
/// ```no_run
/// use bitnet_embed::{BitNetEmbedding, GgufStore, I2sBackend};
/// use burn::store::ModuleSnapshot;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = burn::tensor::Device::default();
/// let mut store = GgufStore::open("model.gguf")?;
/// let mut model = BitNetEmbedding::<I2sBackend>::init(store.plan(), &device)?;
/// model.load_from(&mut store)?;
/// # Ok(())
/// # }
/// ```
pub struct GgufStore {
    file: GgufFile<bytes::Bytes>,
    path: Option<PathBuf>,
    plan: ModelPlan,
    tensors: BTreeMap<String, PackTensor>,
}

/// Why a file was not loaded.
#[derive(Debug, Error)]
#[error("{}{problem}", path.as_ref().map_or_else(String::new, |path| format!("{}: ", path.display())))]
pub struct StoreError {
    /// The file, where there is one.
    pub path: Option<PathBuf>,
    /// What is wrong with it.
    #[source]
    pub problem: Box<StoreProblem>,
}

impl StoreError {
    /// An error of opening a file, which names the file itself.
    fn of_named_file(error: GgufError) -> Self {
        Self { path: None, problem: Box::new(error.into()) }
    }
}

/// What is wrong with a file that a [`GgufStore`] reads.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// It is not a well-formed GGUF file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Its metadata describe no model this crate computes.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its tensors are not those of the model it describes.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The chosen backend computes no such layer.
    #[error(transparent)]
    Linear(#[from] LinearError),
    /// A weight cannot be made ternary.
    #[error("tensor {tensor:?}: {source}")]
    Ternary {
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        source: PackError,
    },
    /// A vector or table holds a value that is not a number.
    #[error("tensor {tensor:?}: value {index} is {value}, expected a finite number")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// Which value, in the order of the file.
        index: usize,
        /// The value.
        value: f32,
    },
    /// The module was not built for this file.
    #[error("the module does not fit the file: {}", reasons.join("; "))]
    Module {
        /// What did not fit, one entry a parameter.
        reasons: Vec<String>,
    },
    /// A store only reads.
    #[error("a GgufStore only reads; write GGUF files with the converter")]
    ReadOnly,
}

impl GgufStore {
    /// Maps a file and checks its structure, configuration and tensor list. Of a model split into several files any will
    /// do; they are joined in memory.
    ///
    /// # Errors
    /// When the file cannot be read, is malformed, or is not a model this crate computes.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, &Overrides::default())
    }

    /// Like [`open`](Self::open), some metadata keys replaced by those values.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, overrides: &Overrides) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let file = GgufFile::open_model(path).map_err(StoreError::of_named_file)?;
        Self::build(bytes::Bytes::from_owner(file.into_owner()), overrides, Some(path.to_owned()))
    }

    /// Like [`open_with`](Self::open_with), the file read into memory rather than mapped: what happens to it afterwards
    /// does not matter. Costs its size in memory, and the time to read all of it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read_with(path: impl AsRef<Path>, overrides: &Overrides) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let bytes = match GgufFile::open_model(path).map_err(StoreError::of_named_file)?.into_owner() {
            ModelBytes::Joined(bytes) => bytes,
            ModelBytes::Mapped(_) => GgufFile::read(path).map_err(StoreError::of_named_file)?.into_owner(),
        };
        Self::build(bytes.into(), overrides, Some(path.to_owned()))
    }

    /// Reads a file from memory: a `Vec`, a static slice, or any other owner of bytes.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(bytes: impl Into<bytes::Bytes>, overrides: &Overrides) -> Result<Self, StoreError> {
        Self::build(bytes.into(), overrides, None)
    }

    fn build(bytes: bytes::Bytes, overrides: &Overrides, path: Option<PathBuf>) -> Result<Self, StoreError> {
        let parse = || {
            let file = GgufFile::from_owner(bytes)?;
            let config = ModelConfig::from_gguf(file.metadata().with_overrides(overrides.as_slice()))?;
            if let Some(key) = overrides.keys().find(|key| !keys::is_read(config.architecture, key)) {
                return Err(ConfigError::OverrideUnread { key: key.into(), architecture: config.architecture }.into());
            }
            let plan = ModelPlan::new(&file, config)?;
            Ok((file, plan))
        };
        match parse() {
            Ok((file, plan)) => Ok(Self { file, path, plan, tensors: BTreeMap::new() }),
            Err(problem) => Err(StoreError { path, problem: Box::new(problem) }),
        }
    }

    /// What the file says the model is.
    pub fn plan(&self) -> &ModelPlan {
        &self.plan
    }

    /// The file itself.
    pub fn file(&self) -> &GgufFile<bytes::Bytes> {
        &self.file
    }

    /// What was not checked when a model was loaded from this store.
    pub(crate) fn into_suspects(self) -> Suspects {
        Suspects::new(self.file, self.plan.uses)
    }

    /// An error of this store's file.
    pub(crate) fn error(&self, problem: impl Into<StoreProblem>) -> StoreError {
        StoreError { path: self.path.clone(), problem: Box::new(problem.into()) }
    }

    /// Checks the data once and makes every parameter, windows of the file where possible.
    fn load(&self) -> Result<BTreeMap<String, PackTensor>, StoreProblem> {
        self.file.check_data()?;
        let mut tensors = BTreeMap::new();
        for used in &self.plan.uses {
            let tensor = self.file.tensor(&used.name).expect("the plan lists tensors of this file");
            tensors.insert(used.path.clone(), self.parameter(used, tensor)?);
        }
        Ok(tensors)
    }

    fn parameter(&self, used: &TensorUse, tensor: &TensorInfo) -> Result<PackTensor, StoreProblem> {
        let ty = tensor.ggml_type().expect("the plan checked the type");
        let data = self.window(tensor)?;
        let shape = tensor.shape();
        let pack = |dtype, shape: Vec<usize>, bytes: bytes::Bytes| {
            // Anything but `Native` tells the NdArray backend to borrow the memory rather than copy it.
            let bytes = Bytes::from_shared(bytes, AllocationProperty::Other);
            PackTensor::new(used.path.clone(), dtype, Shape::from(shape), None, bytes)
        };
        match used.load {
            Load::Norm => {
                let values = decode(ty, &data, shape[0]);
                if let Some(index) = values.iter().position(|value| !value.is_finite()) {
                    return Err(StoreProblem::NotFinite { tensor: used.name.clone(), index, value: values[index] });
                }
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
                Ok(PackTensor::new(
                    used.path.clone(),
                    DType::F32,
                    Shape::from(shape),
                    None,
                    Bytes::from_bytes_vec(bytes),
                ))
            }
            Load::Table => {
                let row_bytes = data.len() / shape[0].max(1);
                Ok(pack(DType::U8, vec![shape[0], row_bytes], data))
            }
            Load::Dense => Ok(pack(DType::U8, vec![data.len()], data)),
            Load::Ternary => {
                let (rows, cols) = (shape[0], shape[1]);
                let ternary = |source| StoreProblem::Ternary { tensor: used.name.clone(), source };
                let bytes = if ty != GgmlType::I2_S {
                    // A row of whole blocks, as the reader checked; its bytes are whole as well.
                    let row_bytes = data.len() / rows;
                    let decode =
                        |row: usize, out: &mut [f32]| ty.decode_row(&data[row * row_bytes..][..row_bytes], out);
                    pack::ternarize_and_pack_decoded(rows, cols, decode).map_err(ternary)?.into()
                } else if cols.is_multiple_of(burn_i2s::layout::BLOCK) {
                    data
                } else {
                    pack::repack_rows(&data, rows, cols).map_err(ternary)?.into()
                };
                Ok(pack(DType::U8, vec![bytes.len()], bytes))
            }
        }
    }

    /// A tensor's bytes, without a copy.
    fn window(&self, tensor: &TensorInfo) -> Result<bytes::Bytes, StoreProblem> {
        Ok(self.file.owner().slice(tensor.file_range()?))
    }
}

/// A whole tensor as f32.
fn decode(ty: GgmlType, data: &[u8], values: usize) -> Vec<f32> {
    let mut out = vec![0.0; values];
    ty.decode_row(data, &mut out);
    out
}

impl ModuleStore for GgufStore {
    type Error = StoreError;

    fn collect_from<M: ModuleSnapshot>(&mut self, _module: &M) -> Result<(), StoreError> {
        Err(self.error(StoreProblem::ReadOnly))
    }

    fn apply_to<M: ModuleSnapshot>(&mut self, module: &mut M) -> Result<ApplyResult, StoreError> {
        let tensors = self.load().map_err(|problem| self.error(problem))?;
        let result = module.apply(tensors.into_values().collect(), None, None, false);
        let mut reasons: Vec<String> = result.errors.iter().map(ToString::to_string).collect();
        reasons.extend(result.missing.iter().map(|(path, _)| format!("the file has nothing for parameter {path}")));
        reasons.extend(result.unused.iter().map(|path| format!("the module has no parameter {path}")));
        if reasons.is_empty() { Ok(result) } else { Err(self.error(StoreProblem::Module { reasons })) }
    }

    fn get_tensor(&mut self, name: &str) -> Result<Option<&PackTensor>, StoreError> {
        Ok(self.get_all_tensors()?.get(name))
    }

    fn get_all_tensors(&mut self) -> Result<&BTreeMap<String, PackTensor>, StoreError> {
        if self.tensors.is_empty() {
            self.tensors = self.load().map_err(|problem| self.error(problem))?;
        }
        Ok(&self.tensors)
    }

    fn keys(&mut self) -> Result<Vec<String>, StoreError> {
        Ok(self.plan.uses.iter().map(|used| used.path.clone()).collect())
    }
}

impl fmt::Debug for GgufStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufStore").field("path", &self.path).field("parameters", &self.plan.uses.len()).finish()
    }
}
