//! Every metadata key this project reads or writes.

use super::Architecture;

/// `general.architecture`: `qwen3` or `gemma3`.
pub const ARCHITECTURE: &str = "general.architecture";
/// `general.name`: a name for people.
pub const NAME: &str = "general.name";
/// `general.file_type`: a number that sums up the tensor types.
pub const FILE_TYPE: &str = "general.file_type";

/// Number of layers.
pub const BLOCK_COUNT: &str = "block_count";
/// Longest input the model was made for, in tokens.
pub const CONTEXT_LENGTH: &str = "context_length";
/// Width of the residual stream.
pub const EMBEDDING_LENGTH: &str = "embedding_length";
/// Width of the feed-forward layer.
pub const FEED_FORWARD_LENGTH: &str = "feed_forward_length";
/// Query heads.
pub const HEAD_COUNT: &str = "attention.head_count";
/// Key and value heads.
pub const HEAD_COUNT_KV: &str = "attention.head_count_kv";
/// Rows of the token table.
pub const VOCAB_SIZE: &str = "vocab_size";
/// Dimensions of a head that are rotated: all of them here.
pub const ROPE_DIMENSION_COUNT: &str = "rope.dimension_count";
/// Width of a query or key head.
pub const KEY_LENGTH: &str = "attention.key_length";
/// Width of a value head.
pub const VALUE_LENGTH: &str = "attention.value_length";
/// RoPE base of full-attention layers.
pub const ROPE_FREQ_BASE: &str = "rope.freq_base";
/// RoPE base of sliding-window layers.
pub const ROPE_FREQ_BASE_SWA: &str = "rope.freq_base_swa";
/// Epsilon of every RMSNorm.
pub const RMS_EPSILON: &str = "attention.layer_norm_rms_epsilon";
/// Factor on the attention scores.
pub const ATTENTION_SCALE: &str = "attention.scale";
/// Whether a token sees only itself and what is before it.
pub const CAUSAL: &str = "attention.causal";
/// Window of the sliding layers as `config.json` has it, not halved for bidirectional models.
pub const SLIDING_WINDOW: &str = "attention.sliding_window";
/// Which layers slide: one boolean a layer, or a period whose last layer does not.
pub const SLIDING_WINDOW_PATTERN: &str = "attention.sliding_window_pattern";
/// How token vectors become one: 1 mean, 2 first, 3 last.
pub const POOLING_TYPE: &str = "pooling_type";

pub(super) const ROPE_SCALING_TYPE: &str = "rope.scaling.type";
/// Keys of features that are not implemented, with the one number that leaves the feature off.
pub(super) const MUST_BE: [(&str, f32); 5] = [
    ("attn_logit_softcapping", 0.0),
    ("final_logit_softcapping", 0.0),
    ("rope.scaling.factor", 1.0),
    ("rope.scale_linear", 1.0),
    ("expert_count", 0.0),
];

/// The architecture's own keys that a model's configuration is read from.
const READ: [&str; 19] = [
    BLOCK_COUNT,
    CONTEXT_LENGTH,
    EMBEDDING_LENGTH,
    FEED_FORWARD_LENGTH,
    HEAD_COUNT,
    HEAD_COUNT_KV,
    VOCAB_SIZE,
    ROPE_DIMENSION_COUNT,
    KEY_LENGTH,
    VALUE_LENGTH,
    ROPE_FREQ_BASE,
    ROPE_FREQ_BASE_SWA,
    RMS_EPSILON,
    ATTENTION_SCALE,
    CAUSAL,
    SLIDING_WINDOW,
    SLIDING_WINDOW_PATTERN,
    POOLING_TYPE,
    ROPE_SCALING_TYPE,
];

/// Whether anything is read from a key, so that stating it can change something.
pub fn is_read(architecture: Architecture, key: &str) -> bool {
    let own = key.strip_prefix(architecture.gguf_name()).and_then(|key| key.strip_prefix('.'));
    match own {
        Some(own) => READ.contains(&own) || MUST_BE.iter().any(|(key, _)| *key == own),
        None => key == ARCHITECTURE || key.starts_with("tokenizer."),
    }
}

/// The full key of one of the architecture's own keys: `qwen3.block_count`.
pub fn of(architecture: Architecture, key: &str) -> String {
    format!("{}.{key}", architecture.gguf_name())
}

/// Keys of the vocabulary.
pub mod tokenizer {
    /// A whole `tokenizer.json`, read before all the others.
    pub const HUGGINGFACE_JSON: &str = "tokenizer.huggingface.json";
    /// The kind of vocabulary: `gpt2` or `llama`.
    pub const MODEL: &str = "tokenizer.ggml.model";
    /// The pre-tokenizer: `qwen2` or `default`.
    pub const PRE: &str = "tokenizer.ggml.pre";
    /// Token strings by id.
    pub const TOKENS: &str = "tokenizer.ggml.tokens";
    /// Token types by id.
    pub const TOKEN_TYPES: &str = "tokenizer.ggml.token_type";
    /// Scores by id (`llama`).
    pub const SCORES: &str = "tokenizer.ggml.scores";
    /// Merges, best first (`gpt2`).
    pub const MERGES: &str = "tokenizer.ggml.merges";
    /// Id of the token before a text.
    pub const BOS_ID: &str = "tokenizer.ggml.bos_token_id";
    /// Id of the token after a text.
    pub const EOS_ID: &str = "tokenizer.ggml.eos_token_id";
    /// Id of the token that ends a turn; not used here.
    pub const EOT_ID: &str = "tokenizer.ggml.eot_token_id";
    /// Id of the unknown token; not used here.
    pub const UNKNOWN_ID: &str = "tokenizer.ggml.unknown_token_id";
    /// Id of the padding token; not used here.
    pub const PADDING_ID: &str = "tokenizer.ggml.padding_token_id";
    /// Whether the token before a text is added. Absent: no.
    pub const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
    /// Whether the token after a text is added. Absent: no.
    pub const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
    /// Whether a separator is added; must not be true.
    pub const ADD_SEP: &str = "tokenizer.ggml.add_sep_token";
    /// Whether a text gets a space in front; must not be true.
    pub const ADD_SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
}
