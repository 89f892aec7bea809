//! What a file says the model is, checked in full before any module is built.

use crate::config::{Architecture, ModelConfig};
use crate::gguf::{GgufFile, TensorInfo};
use burn_i2s::ggml::GgmlType;
use burn_i2s::linear::{LinearConfig, LinearWeight};
use burn_i2s::ternary_floats::MAX_EXACT_COLUMNS;
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
    /// `output.weight` and `rope_freqs.weight`, which some converters add, are ignored.
    ///
    /// # Errors
    /// Names every missing or unused tensor, or the first one of a wrong shape or type.
    pub fn new<B: AsRef<[u8]>>(file: &GgufFile<B>, config: ModelConfig) -> Result<Self, PlanError> {
        let mut builder = Builder { file, config: &config, uses: Vec::new(), missing: Vec::new() };
        let token_table = builder.token_table()?;
        builder.norm("output_norm.weight".into(), "norm.weight".into(), config.hidden_size)?;
        let mut layers = Vec::with_capacity(config.layers.len());
        for index in 0..config.layers.len() {
            layers.push(builder.layer(index)?);
        }
        let Builder { uses, missing, .. } = builder;
        if !missing.is_empty() {
            return Err(PlanError::Missing { tensors: missing });
        }
        let used: std::collections::HashSet<&str> = uses.iter().map(|used| used.name.as_str()).collect();
        let unused: Vec<String> = file
            .tensors()
            .iter()
            .map(|tensor| tensor.name())
            .filter(|name| !used.contains(name) && !matches!(*name, "output.weight" | "rope_freqs.weight"))
            .map(str::to_owned)
            .collect();
        if !unused.is_empty() {
            return Err(PlanError::Unused { tensors: unused, architecture: config.architecture });
        }
        Ok(Self { token_table, layers, uses, config })
    }

    /// Whether every linear layer is a BitLinear, which is what the integer backend needs.
    pub fn is_ternary(&self) -> bool {
        self.linears().all(|linear| linear.weight == LinearWeight::Ternary)
    }

    /// Whether a BitLinear has no norm on its input: a file that another converter made of a model not trained for it.
    pub fn has_ternary_without_norm(&self) -> bool {
        self.linears().any(|linear| linear.weight == LinearWeight::Ternary && !linear.norm)
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

/// Walks the tensors that a config asks for and notes what each becomes.
struct Builder<'a, B> {
    file: &'a GgufFile<B>,
    config: &'a ModelConfig,
    uses: Vec<TensorUse>,
    missing: Vec<String>,
}

impl<'a, B: AsRef<[u8]>> Builder<'a, B> {
    fn token_table(&mut self) -> Result<GgmlType, PlanError> {
        let shape = [self.config.vocab_size, self.config.hidden_size];
        let ty = self.dense("token_embd.weight", &shape)?;
        self.used("token_embd.weight".into(), "embed_tokens.weight".into(), Load::Table);
        Ok(ty)
    }

    fn norm(&mut self, name: String, path: String, features: usize) -> Result<(), PlanError> {
        self.dense(&name, &[features])?;
        self.used(name, path, Load::Norm);
        Ok(())
    }

    fn layer(&mut self, index: usize) -> Result<LayerPlan, PlanError> {
        let config = self.config;
        let hidden = config.hidden_size;
        let ffn = config.intermediate_size;
        let heads = config.num_heads * config.head_dim;
        let kv_heads = config.num_kv_heads * config.head_dim;
        let mut norms = vec![
            ("attn_norm", "input_layernorm", hidden),
            ("ffn_norm", "pre_feedforward_layernorm", hidden),
            ("attn_q_norm", "self_attn.q_norm", config.head_dim),
            ("attn_k_norm", "self_attn.k_norm", config.head_dim),
        ];
        if config.architecture.has_post_norms() {
            norms.push(("post_attention_norm", "post_attention_layernorm", hidden));
            norms.push(("post_ffw_norm", "post_feedforward_layernorm", hidden));
        }
        for (name, path, features) in norms {
            self.norm(format!("blk.{index}.{name}.weight"), format!("layers.{index}.{path}.weight"), features)?;
        }
        let mut linear = |name: &str, path: &str, out_features, in_features| {
            self.linear(&format!("blk.{index}.{name}"), &format!("layers.{index}.{path}"), out_features, in_features)
        };
        Ok(LayerPlan {
            q_proj: linear("attn_q", "self_attn.q_proj", heads, hidden)?,
            k_proj: linear("attn_k", "self_attn.k_proj", kv_heads, hidden)?,
            v_proj: linear("attn_v", "self_attn.v_proj", kv_heads, hidden)?,
            o_proj: linear("attn_output", "self_attn.o_proj", hidden, heads)?,
            gate_proj: linear("ffn_gate", "mlp.gate_proj", ffn, hidden)?,
            up_proj: linear("ffn_up", "mlp.up_proj", ffn, hidden)?,
            down_proj: linear("ffn_down", "mlp.down_proj", hidden, ffn)?,
            rope_theta: config.layers[index].rope_theta,
            window: config.layers[index].window,
        })
    }

    fn linear(
        &mut self,
        name: &str,
        path: &str,
        out_features: usize,
        in_features: usize,
    ) -> Result<LinearConfig, PlanError> {
        let norm_name = format!("{name}_norm_in.weight");
        let norm = self.file.tensor(&norm_name).is_some();
        if norm {
            self.norm(norm_name, format!("{path}.norm.weight"), in_features)?;
        }
        let weight_name = format!("{name}.weight");
        let ty = self.find(&weight_name, &[out_features, in_features], "a readable type")?;
        // The file decides what is computed: a norm on the input, or packed ternary codes, make it a BitLinear.
        let weight = if norm || ty == GgmlType::I2_S { LinearWeight::Ternary } else { LinearWeight::Dense(ty) };
        if weight == LinearWeight::Ternary && in_features > MAX_EXACT_COLUMNS {
            return Err(PlanError::TooWide { tensor: weight_name, in_features, limit: MAX_EXACT_COLUMNS });
        }
        let load = if weight == LinearWeight::Ternary { Load::Ternary } else { Load::Dense };
        self.used(weight_name, format!("{path}.weight"), load);
        Ok(LinearConfig { in_features, out_features, weight, norm, rms_norm_eps: self.config.rms_norm_eps })
    }

    /// The type of a tensor that must not be ternary.
    fn dense(&mut self, name: &str, shape: &[usize]) -> Result<GgmlType, PlanError> {
        let expected = "a float or row-quantised type";
        match self.find(name, shape, expected)? {
            GgmlType::I2_S => {
                Err(PlanError::Type { tensor: name.into(), expected, found: GgmlType::I2_S.name().into() })
            }
            ty => Ok(ty),
        }
    }

    /// The type of a tensor of that shape; an absent one is noted and counts as F32 until the end.
    fn find(&mut self, name: &str, shape: &[usize], expected: &'static str) -> Result<GgmlType, PlanError> {
        let Some(tensor) = self.file.tensor(name) else {
            self.missing.push(name.into());
            return Ok(GgmlType::F32);
        };
        let found = rows_first(tensor);
        if found != shape {
            return Err(PlanError::Shape { tensor: name.into(), expected: shape.into(), found });
        }
        tensor.ggml_type().ok_or_else(|| PlanError::Type {
            tensor: name.into(),
            expected,
            found: tensor.type_name().to_owned(),
        })
    }

    fn used(&mut self, name: String, path: String, load: Load) {
        self.uses.push(TensorUse { name, path, load });
    }
}

/// The shape as this crate writes it: slowest dimension first, trailing ones of GGUF's order dropped.
fn rows_first(tensor: &TensorInfo) -> Vec<usize> {
    tensor.shape()
}
