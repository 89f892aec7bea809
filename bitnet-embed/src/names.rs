//! The tensors of a model: their names in a checkpoint and in a GGUF file, and which ones a model must have.

use crate::config::{Architecture, ModelConfig};

/// The seven projections of a layer: GGUF stem, then name in a checkpoint's layer.
const PROJECTIONS: [(&str, &str); 7] = [
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

const QWEN3_NORMS: [(&str, &str); 4] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
];

/// `post_attention_layernorm` is another norm than in Qwen3: it is applied to the attention's output.
const GEMMA3_NORMS: [(&str, &str); 6] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// The token table in a GGUF file.
pub const TOKEN_TABLE: &str = "token_embd.weight";
/// The last norm in a GGUF file.
pub const OUTPUT_NORM: &str = "output_norm.weight";
/// Tensors of a GGUF file that may be there and are not read: a tied output projection, and factors of a RoPE that is
/// not scaled.
pub const IGNORED: [&str; 2] = ["output.weight", "rope_freqs.weight"];

fn norms(architecture: Architecture) -> &'static [(&'static str, &'static str)] {
    match architecture {
        Architecture::Qwen3 => &QWEN3_NORMS,
        Architecture::Gemma3 => &GEMMA3_NORMS,
    }
}

/// What becomes of a checkpoint's tensor in a GGUF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GgufName {
    /// It is stored under this name.
    Tensor(String),
    /// It is left out: nothing in an embedding depends on it.
    Skipped,
}

/// The GGUF name of a checkpoint's tensor, whose `model.` prefix may be there or not; `None` for an unknown tensor.
///
/// ```
/// use bitnet_embed::{config::Architecture, names::{GgufName, gguf_tensor_name}};
/// let name = |hf| gguf_tensor_name(Architecture::Gemma3, hf);
/// let stored = |name: &str| Some(GgufName::Tensor(name.into()));
/// assert_eq!(name("model.layers.3.mlp.down_proj.norm.weight"), stored("blk.3.ffn_down_norm_in.weight"));
/// assert_eq!(name("layers.0.post_attention_layernorm.weight"), stored("blk.0.post_attention_norm.weight"));
/// assert_eq!(name("lm_head.weight"), Some(GgufName::Skipped));
/// assert_eq!(name("layers.0.self_attn.q_proj.bias"), None);
/// ```
pub fn gguf_tensor_name(architecture: Architecture, hf_name: &str) -> Option<GgufName> {
    let name = hf_name.strip_prefix("model.").unwrap_or(hf_name);
    let stored = match name {
        "embed_tokens.weight" => TOKEN_TABLE.into(),
        "norm.weight" => OUTPUT_NORM.into(),
        "lm_head.weight" => return Some(GgufName::Skipped),
        _ => {
            if name.ends_with("rotary_emb.inv_freq") || name.ends_with("attn.masked_bias") {
                return Some(GgufName::Skipped);
            }
            let (layer, rest) = name.strip_prefix("layers.")?.split_once('.')?;
            // Only the canonical spelling: `07` and `+7` would be other tensors.
            let index: usize = layer.parse().ok().filter(|index: &usize| index.to_string() == layer)?;
            let module = rest.strip_suffix(".weight")?;
            let of = |list: &[(&'static str, &str)], wanted| {
                list.iter().find(|(_, hf)| *hf == wanted).map(|(stem, _)| *stem)
            };
            if let Some(projection) = module.strip_suffix(".norm") {
                format!("blk.{index}.{}_norm_in.weight", of(&PROJECTIONS, projection)?)
            } else {
                let stem = of(&PROJECTIONS, module).or_else(|| of(norms(architecture), module))?;
                format!("blk.{index}.{stem}.weight")
            }
        }
    };
    Some(GgufName::Tensor(stored))
}

/// What a tensor does, which decides how it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorRole {
    /// The token table.
    TokenTable,
    /// A norm of the model; Gemma's checkpoints store it minus 1.
    Norm,
    /// A projection.
    Projection,
    /// The norm of a BitLinear's input: optional, and its presence makes the projection a BitLinear. Never minus 1.
    InputNorm,
}

/// A tensor that a model has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedTensor {
    /// Its name in a GGUF file.
    pub name: String,
    /// Its shape, slowest-varying dimension first: `[out_features, in_features]`, `[rows, hidden_size]`, or `[len]`.
    pub shape: Vec<usize>,
    /// What it does.
    pub role: TensorRole,
    /// The path of the parameter it fills in a `BitNetEmbedding` module.
    pub path: String,
}

impl ExpectedTensor {
    /// Whether a model may do without it.
    pub fn is_optional(&self) -> bool {
        self.role == TensorRole::InputNorm
    }
}

/// Every tensor of a model with this configuration, in the order in which a forward pass needs them; a projection comes
/// after its input norm.
pub fn expected_tensors(config: &ModelConfig) -> Vec<ExpectedTensor> {
    let tensor = |name: String, shape: &[usize], role, path: String| {
        let path = format!("{path}.weight");
        ExpectedTensor { name, shape: shape.to_vec(), role, path }
    };
    let hidden = config.hidden_size;
    let table = [config.vocab_size, hidden];
    let mut tensors = vec![tensor(TOKEN_TABLE.into(), &table, TensorRole::TokenTable, "embed_tokens".into())];
    for layer in 0..config.num_layers {
        let name = |stem: &str, end: &str| format!("blk.{layer}.{stem}{end}.weight");
        let path = |module: &str, end: &str| format!("layers.{layer}.{module}{end}");
        for (stem, _) in norms(config.architecture) {
            let len = if matches!(*stem, "attn_q_norm" | "attn_k_norm") { config.head_dim } else { hidden };
            tensors.push(tensor(name(stem, ""), &[len], TensorRole::Norm, path(norm_module(stem), "")));
        }
        for (stem, module) in PROJECTIONS {
            let shape = projection_shape(config, stem);
            tensors.push(tensor(name(stem, "_norm_in"), &shape[1..], TensorRole::InputNorm, path(module, ".norm")));
            tensors.push(tensor(name(stem, ""), &shape, TensorRole::Projection, path(module, "")));
        }
    }
    tensors.push(tensor(OUTPUT_NORM.into(), &[hidden], TensorRole::Norm, "norm".into()));
    tensors
}

/// The module of a norm. Modules are named by what they do, as Gemma 3 names them, in both architectures.
fn norm_module(stem: &str) -> &'static str {
    GEMMA3_NORMS.iter().find(|(other, _)| *other == stem).map_or("", |(_, module)| module)
}

fn projection_shape(config: &ModelConfig, stem: &str) -> [usize; 2] {
    let (hidden, ffn) = (config.hidden_size, config.intermediate_size);
    // Bounded when the configuration was read, so these products fit.
    let (queries, keys) = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
    match stem {
        "attn_q" => [queries, hidden],
        "attn_k" | "attn_v" => [keys, hidden],
        "attn_output" => [hidden, queries],
        "ffn_down" => [hidden, ffn],
        _ => [ffn, hidden],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_that_nothing_depends_on_are_skipped() {
        for name in ["lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq", "layers.1.attn.masked_bias"] {
            assert_eq!(gguf_tensor_name(Architecture::Qwen3, name), Some(GgufName::Skipped), "{name}");
        }
    }

    #[test]
    fn unknown_tensors_have_no_name() {
        let unknown = [
            "",
            "model.",
            "layers.0.mlp.gate_proj.bias",
            "layers.0.mlp.gate_proj",
            "layers.x.input_layernorm.weight",
            "layers.00.input_layernorm.weight",
            "layers.+1.input_layernorm.weight",
            "layers.0.input_layernorm.norm.weight",
            "layers.0.pre_feedforward_layernorm.weight",
            "layers.99999999999999999999.input_layernorm.weight",
        ];
        for name in unknown {
            assert_eq!(gguf_tensor_name(Architecture::Qwen3, name), None, "{name}");
        }
    }
}
