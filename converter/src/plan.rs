//! Decides, without touching a file, what becomes of every tensor of a checkpoint.
//!
//! The tensors of a model follow from its config: each of them must be there, with the shape that the config implies,
//! and nothing else may be there. What would be dropped silently or read as something else is an error instead.

use std::collections::BTreeMap;

use bitnet_embed::config::{Architecture, ModelConfig};
use bitnet_embed::names::{ExpectedTensor, GgufName, TensorRole, expected_tensors, gguf_tensor_name};
use burn_i2s::ggml::GgmlType;

use crate::checkpoint::Dtype;
use crate::encode::type_name;

/// Weights of one I2_S block; a ternary tensor must be whole blocks.
const BLOCK: usize = burn_i2s::layout::BLOCK;

/// The types of weights that a file can be written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outtype {
    /// Everything F32.
    F32,
    /// Everything F16.
    F16,
    /// Projections and token table BF16, norms F32.
    BF16,
    /// Projections I2_S, everything else F16.
    I2S,
}

impl Outtype {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::BF16, Self::I2S];

    /// The name, as in `--outtype` and in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I2S => "i2_s",
        }
    }

    /// Value of `general.file_type`.
    pub fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::BF16 => 32,
            Self::I2S => 40,
        }
    }

    /// The type with that value of `general.file_type`.
    pub fn from_file_type(file_type: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|outtype| outtype.file_type() == file_type)
    }

    /// How a tensor of that role is stored.
    pub fn of(self, role: TensorRole) -> GgmlType {
        match (self, role) {
            (Self::F32, _) => GgmlType::F32,
            (Self::BF16, TensorRole::Norm | TensorRole::InputNorm) => GgmlType::F32,
            (Self::BF16, _) => GgmlType::BF16,
            (Self::I2S, TensorRole::Projection) => GgmlType::I2_S,
            (Self::F16 | Self::I2S, _) => GgmlType::F16,
        }
    }
}

/// How each kind of tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types {
    /// What holds where nothing else is said.
    pub outtype: Outtype,
    /// The token table: F32, F16, BF16, Q8_0 or Q6_K.
    pub embedding: Option<GgmlType>,
    /// Norms, those of projections included: F16 or F32.
    pub norm: Option<GgmlType>,
}

impl From<Outtype> for Types {
    fn from(outtype: Outtype) -> Self {
        Self { outtype, embedding: None, norm: None }
    }
}

impl Types {
    /// How a tensor of that role is stored.
    pub fn of(self, role: TensorRole) -> GgmlType {
        let chosen = match role {
            TensorRole::TokenTable => self.embedding,
            TensorRole::Norm | TensorRole::InputNorm => self.norm,
            TensorRole::Projection => None,
        };
        chosen.unwrap_or_else(|| self.outtype.of(role))
    }
}

/// Why a checkpoint's tensors are not those of a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A tensor that no supported model has.
    #[error(
        "tensor {tensor} ({dtype} {shape:?}) has no place in a {arch} embedding model of {num_layers} layers; it is not dropped silently: remove it, or correct config.json"
    )]
    Unknown {
        /// The tensor, by the checkpoint's name.
        tensor: String,
        /// How it is stored.
        dtype: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The architecture.
        arch: &'static str,
        /// Layers by config.json.
        num_layers: usize,
    },
    /// Two tensors that go by the same name in GGUF.
    #[error("tensors {first} and {second} are both {name}")]
    Twice {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// GGUF name of both.
        name: String,
    },
    /// A tensor that is not there.
    #[error(
        "tensor {name} ({expected:?}) is missing from the checkpoint ({missing} missing in all); is a file missing, or num_hidden_layers of config.json wrong?"
    )]
    Missing {
        /// GGUF name of the first one.
        name: String,
        /// Its shape.
        expected: Vec<usize>,
        /// How many are missing.
        missing: usize,
    },
    /// A tensor of another shape than config.json implies.
    #[error("tensor {tensor}: expected shape {expected:?} by config.json, found {found:?}")]
    Shape {
        /// The tensor, by the checkpoint's name.
        tensor: String,
        /// Shape by config.json.
        expected: Vec<usize>,
        /// Shape in the checkpoint.
        found: Vec<usize>,
    },
    /// A tensor whose values are no floats.
    #[error("tensor {tensor}: expected F64, F32, F16 or BF16, found {found}; convert the unquantized checkpoint")]
    Dtype {
        /// The tensor.
        tensor: String,
        /// How it is stored.
        found: String,
    },
    /// A projection that does not split into I2_S blocks.
    #[error(
        "tensor {tensor}: {rows} x {cols} weights are not whole I2_S blocks of {BLOCK}; convert with --outtype f16"
    )]
    NotWholeBlocks {
        /// The tensor.
        tensor: String,
        /// Its rows.
        rows: usize,
        /// Its columns.
        cols: usize,
    },
    /// A row of the token table does not split into the blocks of its type.
    #[error(
        "tensor {tensor}: rows of {cols} values are not whole blocks of {block}, which {ty} needs; use --embedding-type {hint}"
    )]
    TableBlocks {
        /// The tensor.
        tensor: String,
        /// Values in a row.
        cols: usize,
        /// Values in a block.
        block: usize,
        /// The type asked for.
        ty: &'static str,
        /// A type that does.
        hint: &'static str,
    },
    /// I2_S was asked for, but the model is not a BitNet.
    #[error(
        "tensor {tensor} has no input norm ({norm}), so this model was not trained as a BitNet and i2_s would ruin it; convert with --outtype f16, or insist with --force"
    )]
    NotBitNet {
        /// The first projection without one.
        tensor: String,
        /// GGUF name of the missing norm.
        norm: String,
    },
}

/// A tensor of the checkpoint, as far as planning looks at it.
#[derive(Clone, Copy, Debug)]
pub struct TensorHead<'a> {
    /// Name in the checkpoint.
    pub name: &'a str,
    /// How it is stored.
    pub dtype: &'a Dtype,
    /// Dimensions, slowest first.
    pub shape: &'a [usize],
}

/// One tensor of the file to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTensor {
    /// Position among the checkpoint's tensors.
    pub source: usize,
    /// Name in the file.
    pub name: String,
    /// Type in the file.
    pub target: GgmlType,
    /// Whether 1 is added to every value.
    pub add_one: bool,
}

/// What becomes of a checkpoint's tensors.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The tensors of the file, in order.
    pub tensors: Vec<PlannedTensor>,
    /// Tensors left out because an embedding model has no use for them.
    pub skipped: Vec<String>,
    /// Projections without an input norm, by name.
    pub plain_projections: Vec<String>,
}

/// Plans the conversion; the file's tensors keep the order of `tensors`.
///
/// # Errors
/// When tensors are missing, unknown, misshapen or of a type that is not converted, or, unless `force` is set, when
/// ternary weights are asked of a model that is no BitNet.
pub fn plan(config: &ModelConfig, tensors: &[TensorHead<'_>], types: Types, force: bool) -> Result<Plan, PlanError> {
    // Layers that cannot be there are not worth listing, however many of them a damaged config asks for.
    if config.num_layers > tensors.len() {
        let (name, expected) = (format!("blk.{}.attn_norm.weight", tensors.len()), vec![config.hidden_size]);
        return Err(PlanError::Missing { name, expected, missing: config.num_layers - tensors.len() });
    }
    let slots: BTreeMap<String, ExpectedTensor> =
        expected_tensors(config).into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
    let mut filled = BTreeMap::<String, usize>::new();
    let mut plan = Plan::default();
    for (source, tensor) in tensors.iter().enumerate() {
        let name = match gguf_tensor_name(config.architecture, tensor.name) {
            Some(GgufName::Tensor(name)) => name,
            Some(GgufName::Skipped) => {
                plan.skipped.push(tensor.name.to_owned());
                continue;
            }
            None => return Err(unknown(config, tensor)),
        };
        let slot = slots.get(&name).ok_or_else(|| unknown(config, tensor))?;
        check(tensor, slot, types)?;
        if let Some(first) = filled.insert(name.clone(), source) {
            let (first, second) = (tensors[first].name.to_owned(), tensor.name.to_owned());
            return Err(PlanError::Twice { first, second, name });
        }
        // Gemma's norms multiply by 1 + w and GGUF holds the factor; the norms inside of projections are plain.
        let add_one = config.architecture == Architecture::Gemma3 && slot.role == TensorRole::Norm;
        plan.tensors.push(PlannedTensor { source, name, target: types.of(slot.role), add_one });
    }

    let mut missing = slots.iter().filter(|(name, slot)| !slot.is_optional() && !filled.contains_key(*name));
    if let Some((name, slot)) = missing.next() {
        let (name, expected) = (name.clone(), slot.shape.clone());
        return Err(PlanError::Missing { name, expected, missing: 1 + missing.count() });
    }
    for (norm, _) in slots.iter().filter(|(name, slot)| slot.is_optional() && !filled.contains_key(*name)) {
        let tensor = norm.replace("_norm_in", "");
        if types.outtype == Outtype::I2S && !force {
            return Err(PlanError::NotBitNet { tensor, norm: norm.clone() });
        }
        plan.plain_projections.push(tensor);
    }
    Ok(plan)
}

fn unknown(config: &ModelConfig, tensor: &TensorHead<'_>) -> PlanError {
    PlanError::Unknown {
        tensor: tensor.name.to_owned(),
        dtype: tensor.dtype.name().to_owned(),
        shape: tensor.shape.to_vec(),
        arch: config.architecture.gguf_name(),
        num_layers: config.num_layers,
    }
}

fn check(tensor: &TensorHead<'_>, slot: &ExpectedTensor, types: Types) -> Result<(), PlanError> {
    let name = || tensor.name.to_owned();
    if tensor.shape != slot.shape {
        let (expected, found) = (slot.shape.clone(), tensor.shape.to_vec());
        return Err(PlanError::Shape { tensor: name(), expected, found });
    }
    if tensor.dtype.size().is_none() {
        return Err(PlanError::Dtype { tensor: name(), found: tensor.dtype.name().to_owned() });
    }
    check_blocks(tensor.name, types.of(slot.role), &slot.shape)
}

/// What is said of projections that are made ternary by force, one of them by name.
pub(crate) fn plain_note(count: usize, first: &str) -> String {
    format!(
        "{count} projection(s) have no input norm, {first} for instance: their inputs will be quantized as they come, which \
         the model was not trained for"
    )
}

/// Whether a matrix splits into the blocks of its type.
pub(crate) fn check_blocks(tensor: &str, ty: GgmlType, shape: &[usize]) -> Result<(), PlanError> {
    let (Some(&cols), tensor) = (shape.last(), tensor.to_owned()) else { return Ok(()) };
    // A product of the dimensions of data that exists.
    let elements: usize = shape.iter().product();
    match ty.block() {
        None if !elements.is_multiple_of(BLOCK) => {
            Err(PlanError::NotWholeBlocks { tensor, rows: elements / cols.max(1), cols })
        }
        Some((block, _)) if !cols.is_multiple_of(block) => {
            let hint = if ty == GgmlType::Q6_K && cols.is_multiple_of(32) { "q8_0" } else { "f16" };
            Err(PlanError::TableBlocks { tensor, cols, block, ty: type_name(ty), hint })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitnet_embed::config::Pooling;
    use serde_json::json;

    fn config(model_type: &str) -> ModelConfig {
        let config = json!({
            "model_type": model_type, "vocab_size": 10, "hidden_size": 128, "intermediate_size": 256, "head_dim": 32,
            "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 1e6,
        });
        ModelConfig::from_json(&config, Pooling::Last).expect("a valid config")
    }

    /// Plans a whole checkpoint of that type, less the tensors that contain `without`.
    fn plan_model(model_type: &str, without: &str, outtype: Outtype) -> Result<Plan, PlanError> {
        let config = config(model_type);
        let names = [
            ("model.norm.weight", vec![128]),
            ("model.embed_tokens.weight", vec![10, 128]),
            ("model.layers.0.input_layernorm.weight", vec![128]),
            ("model.layers.0.post_attention_layernorm.weight", vec![128]),
            ("model.layers.0.pre_feedforward_layernorm.weight", vec![128]),
            ("model.layers.0.post_feedforward_layernorm.weight", vec![128]),
            ("model.layers.0.self_attn.q_norm.weight", vec![32]),
            ("model.layers.0.self_attn.k_norm.weight", vec![32]),
            ("model.layers.0.self_attn.q_proj.weight", vec![128, 128]),
            ("model.layers.0.self_attn.q_proj.norm.weight", vec![128]),
            ("model.layers.0.self_attn.k_proj.weight", vec![64, 128]),
            ("model.layers.0.self_attn.k_proj.norm.weight", vec![128]),
            ("model.layers.0.self_attn.v_proj.weight", vec![64, 128]),
            ("model.layers.0.self_attn.v_proj.norm.weight", vec![128]),
            ("model.layers.0.self_attn.o_proj.weight", vec![128, 128]),
            ("model.layers.0.self_attn.o_proj.norm.weight", vec![128]),
            ("model.layers.0.mlp.gate_proj.weight", vec![256, 128]),
            ("model.layers.0.mlp.gate_proj.norm.weight", vec![128]),
            ("model.layers.0.mlp.up_proj.weight", vec![256, 128]),
            ("model.layers.0.mlp.up_proj.norm.weight", vec![128]),
            ("model.layers.0.mlp.down_proj.weight", vec![128, 256]),
            ("model.layers.0.mlp.down_proj.norm.weight", vec![256]),
        ];
        let heads: Vec<TensorHead<'_>> = names
            .iter()
            .filter(|(name, _)| without.is_empty() || !name.contains(without))
            .map(|(name, shape)| TensorHead { name, dtype: &Dtype::BF16, shape })
            .collect();
        plan(&config, &heads, outtype.into(), false)
    }

    #[test]
    fn projections_alone_become_ternary_and_gemmas_own_norms_alone_get_one() {
        let plan = plan_model("gemma3_text", "", Outtype::I2S).expect("a whole model");
        let find = |name: &str| {
            let tensor = plan.tensors.iter().find(|tensor| tensor.name == name).expect(name);
            (tensor.target, tensor.add_one)
        };
        assert_eq!(find("token_embd.weight"), (GgmlType::F16, false));
        assert_eq!(find("output_norm.weight"), (GgmlType::F16, true));
        assert_eq!(find("blk.0.attn_q_norm.weight"), (GgmlType::F16, true));
        assert_eq!(find("blk.0.post_ffw_norm.weight"), (GgmlType::F16, true));
        assert_eq!(find("blk.0.attn_q_norm_in.weight"), (GgmlType::F16, false));
        assert_eq!(find("blk.0.attn_q.weight"), (GgmlType::I2_S, false));
        let order: Vec<usize> = plan.tensors.iter().map(|tensor| tensor.source).collect();
        assert!(order.is_sorted(), "the checkpoint's order is kept");
    }

    #[test]
    fn qwens_norms_are_stored_as_they_are() {
        let plan = plan_model("qwen3", "_feedforward_", Outtype::F16).expect("a whole model");
        assert!(plan.tensors.iter().all(|tensor| !tensor.add_one && tensor.target == GgmlType::F16));
    }

    #[test]
    fn table_and_norms_have_types_of_their_own() {
        let config = config("qwen3");
        let shape = [10, 128];
        let table = [TensorHead { name: "embed_tokens.weight", dtype: &Dtype::F32, shape: &shape }];
        let plan =
            |embedding| plan(&config, &table, Types { embedding: Some(embedding), ..Outtype::I2S.into() }, false);
        let error = plan(GgmlType::Q6_K).expect_err("128 values are half a block");
        assert!(matches!(error, PlanError::TableBlocks { cols: 128, block: 256, hint: "q8_0", .. }), "{error}");
        let error = plan(GgmlType::Q8_0).expect_err("the rest is missing");
        assert!(matches!(error, PlanError::Missing { .. }), "{error}");
        let types = Types { outtype: Outtype::I2S, embedding: Some(GgmlType::Q8_0), norm: Some(GgmlType::F32) };
        assert_eq!(types.of(TensorRole::TokenTable), GgmlType::Q8_0);
        assert_eq!(types.of(TensorRole::InputNorm), GgmlType::F32);
        assert_eq!(types.of(TensorRole::Projection), GgmlType::I2_S);
        assert_eq!(Outtype::BF16.of(TensorRole::Norm), GgmlType::F32);
    }

    #[test]
    fn a_norm_of_the_other_architecture_has_no_place() {
        let error = plan_model("qwen3", "", Outtype::F16).expect_err("Gemma's norms are among them");
        assert!(matches!(error, PlanError::Unknown { tensor, .. } if tensor.contains("pre_feedforward")));
        let error = plan_model("gemma3_text", "pre_feedforward", Outtype::F16).expect_err("a norm is missing");
        assert!(matches!(error, PlanError::Missing { name, missing: 1, .. } if name == "blk.0.ffn_norm.weight"));
    }

    #[test]
    fn one_projection_without_its_norm_makes_the_model_no_bitnet() {
        let error = plan_model("gemma3_text", "down_proj.norm", Outtype::I2S).expect_err("a norm is missing");
        assert!(matches!(error, PlanError::NotBitNet { tensor, .. } if tensor == "blk.0.ffn_down.weight"));
        assert!(plan_model("gemma3_text", "down_proj.norm", Outtype::F16).is_ok());
    }
}
