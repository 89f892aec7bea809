//! What a file says the model is, checked in full before any module is built.

use crate::config::{Architecture, ModelConfig};
use crate::gguf::{GgufFile, TensorInfo};
use crate::names::{ExpectedTensor, IGNORED, TensorRole, expected_tensors};
use burn_i2s::ggml::GgmlType;
use burn_i2s::linear::{LinearConfig, LinearWeight};
use burn_i2s::ternary_floats::MAX_EXACT_COLUMNS;
use std::collections::HashSet;
use thiserror::Error;

/// A model's configuration and how each of its weights is stored.
#[derive(Clone, Debug)]
pub struct ModelPlan {
    /// Shapes, norms, windows, pooling.
    pub config: ModelConfig,
    /// The token table's type.
    pub token_table: GgmlType,
    /// The transformer blocks.
    pub layers: Vec<LayerPlan>,
    pub(crate) uses: Vec<TensorUse>,
    without_norm: Vec<String>,
}

/// The linear layers of one block.
#[derive(Clone, Debug)]
pub struct LayerPlan {
    /// Queries.
    pub q_proj: LinearConfig,
    /// Keys.
    pub k_proj: LinearConfig,
    /// Values.
    pub v_proj: LinearConfig,
    /// Attention's output.
    pub o_proj: LinearConfig,
    /// The gate of the feed-forward network.
    pub gate_proj: LinearConfig,
    /// Its other input.
    pub up_proj: LinearConfig,
    /// Its output.
    pub down_proj: LinearConfig,
    /// The RoPE base.
    pub rope_theta: f64,
    /// How far back (or to either side, where attention is not causal) a token sees; `None` is without limit.
    pub window: Option<usize>,
}

/// One tensor of the file and the parameter it fills.
#[derive(Clone, Debug)]
pub(crate) struct TensorUse {
    /// Its name in the file.
    pub(crate) name: String,
    /// The parameter's path in the module.
    pub(crate) path: String,
    /// What is made of its bytes.
    pub(crate) load: Load,
}

/// How a tensor's bytes become a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// A vector, widened to f32.
    Norm,
    /// The token table: the file's bytes, row by row.
    Table,
    /// A weight: the file's bytes as they are.
    Dense,
    /// A ternary weight: the file's bytes where rows are whole blocks, else repacked; a float weight is ternarised.
    Ternary,
}

/// Why a file is not a model this crate computes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// Tensors that the model needs are absent.
    #[error("{} tensor(s) the model needs are not in the file: {}", tensors.len(), listed(tensors))]
    Missing {
        /// Their names.
        tensors: Vec<String>,
    },
    /// Tensors that the model has no place for.
    #[error("{} tensor(s) of the file have no place in a {architecture} model: {}", tensors.len(), listed(tensors))]
    Unused {
        /// Their names.
        tensors: Vec<String>,
        /// The architecture.
        architecture: Architecture,
    },
    /// A tensor has another shape than the metadata asks for.
    #[error("tensor {tensor:?}: expected shape {expected:?}, found {found:?} (rows first)")]
    Shape {
        /// The tensor.
        tensor: String,
        /// The shape the metadata asks for.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// A tensor is stored in a type that cannot serve in its place.
    #[error("tensor {tensor:?}: expected {expected}, found type {found}")]
    Type {
        /// The tensor.
        tensor: String,
        /// What could serve.
        expected: &'static str,
        /// GGML's name or number of its type.
        found: String,
    },
    /// A ternary product of this width could overflow.
    #[error("tensor {tensor:?}: {in_features} input features are too many, at most {limit} keep the sum exact")]
    TooWide {
        /// The tensor.
        tensor: String,
        /// Its columns.
        in_features: usize,
        /// The bound.
        limit: usize,
    },
}

/// A few names, then how many more.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

impl ModelPlan {
    /// Checks that `file` holds exactly the tensors that `config` asks for, in shapes and types that can be computed.
    ///
    /// The tensors of [`IGNORED`], which some converters add, are not read.
    ///
    /// # Errors
    /// Names every missing or unused tensor, or the first one of a wrong shape or type.
    pub fn new<B: AsRef<[u8]>>(file: &GgufFile<B>, config: ModelConfig) -> Result<Self, PlanError> {
        let expected = expected_tensors(&config);
        let mut uses = Vec::with_capacity(expected.len());
        let mut missing = Vec::new();
        let mut token_table = GgmlType::F32;
        let mut linears = Vec::with_capacity(7 * config.num_layers);
        // An input norm comes just before its projection and makes it a BitLinear.
        let mut norm = false;
        let mut without_norm = Vec::new();
        for wanted in expected {
            let Some(tensor) = file.tensor(&wanted.name) else {
                if wanted.is_optional() {
                    norm = false;
                } else {
                    missing.push(wanted.name);
                }
                continue;
            };
            let ty = check(tensor, &wanted)?;
            let load = match wanted.role {
                TensorRole::TokenTable => {
                    token_table = ty;
                    Load::Table
                }
                TensorRole::Norm => Load::Norm,
                TensorRole::InputNorm => {
                    norm = true;
                    Load::Norm
                }
                TensorRole::Projection => {
                    let linear = linear(&config, &wanted, ty, norm)?;
                    let load = if linear.weight == LinearWeight::Ternary { Load::Ternary } else { Load::Dense };
                    if !norm {
                        without_norm.push(wanted.name.clone());
                    }
                    linears.push(linear);
                    load
                }
            };
            uses.push(TensorUse { name: wanted.name, path: wanted.path, load });
        }
        if !missing.is_empty() {
            return Err(PlanError::Missing { tensors: missing });
        }
        let used: HashSet<&str> = uses.iter().map(|used| used.name.as_str()).chain(IGNORED).collect();
        let names = file.tensors().iter().map(TensorInfo::name);
        let unused: Vec<String> = names.filter(|name| !used.contains(name)).map(str::to_owned).collect();
        if !unused.is_empty() {
            return Err(PlanError::Unused { tensors: unused, architecture: config.architecture });
        }
        // In a plain model no projection has a norm, and none should.
        if linears.iter().all(|linear: &LinearConfig| linear.weight != LinearWeight::Ternary) {
            without_norm.clear();
        }
        let mut linears = linears.into_iter();
        let mut next = || linears.next().expect("no projection is missing");
        let layers = config.layers.iter().map(|layer| LayerPlan {
            q_proj: next(),
            k_proj: next(),
            v_proj: next(),
            o_proj: next(),
            gate_proj: next(),
            up_proj: next(),
            down_proj: next(),
            rope_theta: layer.rope_theta,
            window: layer.window,
        });
        Ok(Self { token_table, layers: layers.collect(), uses, without_norm, config })
    }

    /// Whether every linear layer is a BitLinear, which is what the integer backend needs.
    pub fn is_ternary(&self) -> bool {
        self.linears().all(|linear| linear.weight == LinearWeight::Ternary)
    }

    /// The projections of a BitNet model that have no norm on their input. A file of a trained BitNet model lists none:
    /// one that lists some was made of another kind of model, or has lost tensors.
    pub fn projections_without_norm(&self) -> &[String] {
        &self.without_norm
    }

    /// What a reader of the vectors should know of the file, one line each: keys whose absence was given a meaning, and
    /// projections that other BitNet files have norms for.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.config.assumed.is_empty() {
            let assumed: Vec<String> = self.config.assumed.iter().map(ToString::to_string).collect();
            notes.push(format!("{}; state another value with --override-kv KEY=TYPE:VALUE", assumed.join("; ")));
        }
        if !self.without_norm.is_empty() {
            notes.push(format!(
                "{} projection(s) of this BitNet model have no norm on their input, which a trained one has: {}; they are \
                 computed without",
                self.without_norm.len(),
                listed(&self.without_norm)
            ));
        }
        notes
    }

    fn linears(&self) -> impl Iterator<Item = &LinearConfig> {
        self.layers.iter().flat_map(|layer| {
            [
                &layer.q_proj,
                &layer.k_proj,
                &layer.v_proj,
                &layer.o_proj,
                &layer.gate_proj,
                &layer.up_proj,
                &layer.down_proj,
            ]
        })
    }
}

/// The type of a tensor that has the shape and a type to serve as what is wanted.
fn check(tensor: &TensorInfo, wanted: &ExpectedTensor) -> Result<GgmlType, PlanError> {
    let found = tensor.shape();
    if found != wanted.shape {
        return Err(PlanError::Shape { tensor: wanted.name.clone(), expected: wanted.shape.clone(), found });
    }
    let projection = wanted.role == TensorRole::Projection;
    let wrong_type = || PlanError::Type {
        tensor: wanted.name.clone(),
        expected: if projection { "a type that can be decoded" } else { "a float or row-quantised type" },
        found: tensor.type_name().to_owned(),
    };
    let ty = tensor.ggml_type().ok_or_else(wrong_type)?;
    if ty == GgmlType::I2_S && !projection { Err(wrong_type()) } else { Ok(ty) }
}

/// The file decides what is computed: a norm on the input, or packed ternary codes, make a projection a BitLinear.
fn linear(config: &ModelConfig, wanted: &ExpectedTensor, ty: GgmlType, norm: bool) -> Result<LinearConfig, PlanError> {
    let weight = if norm || ty == GgmlType::I2_S { LinearWeight::Ternary } else { LinearWeight::Dense(ty) };
    let (out_features, in_features) = (wanted.shape[0], wanted.shape[1]);
    if weight == LinearWeight::Ternary && in_features > MAX_EXACT_COLUMNS {
        return Err(PlanError::TooWide { tensor: wanted.name.clone(), in_features, limit: MAX_EXACT_COLUMNS });
    }
    Ok(LinearConfig { in_features, out_features, weight, norm, rms_norm_eps: config.rms_norm_eps })
}
