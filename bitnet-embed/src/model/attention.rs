//! Self-attention: projections, per-head norms, rotation, grouped-query attention.

use super::plan::{LayerPlan, ModelPlan};
use super::rotary::Rotary;
use crate::batch::{RaggedBatch, TokenRows};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_i2s::attention::AttentionShape;
use burn_i2s::linear::{ComputeBackend, LinearError, LinearLayer};
use burn_i2s::norm::RmsNorm;
use burn_i2s::ops;
use burn_i2s::rope::RopeTable;
use std::ops::Range;

/// The attention half of a transformer block.
#[derive(Module, Debug)]
pub struct SelfAttention<B: ComputeBackend> {
    /// Hidden states to queries, `[hidden_size, num_heads * head_dim]`.
    pub q_proj: B::Linear,
    /// Hidden states to keys, `[hidden_size, num_kv_heads * head_dim]`.
    pub k_proj: B::Linear,
    /// Hidden states to values, `[hidden_size, num_kv_heads * head_dim]`.
    pub v_proj: B::Linear,
    /// Heads to hidden states, `[num_heads * head_dim, hidden_size]`.
    pub o_proj: B::Linear,
    /// The norm of each query head.
    pub q_norm: RmsNorm,
    /// The norm of each key head.
    pub k_norm: RmsNorm,
    #[module(skip)]
    shape: AttentionShape,
    #[module(skip)]
    rotary: Rotary,
}

impl<B: ComputeBackend> SelfAttention<B> {
    pub(super) fn init(
        plan: &ModelPlan,
        layer: &LayerPlan,
        rotary: Rotary,
        device: &Device,
    ) -> Result<Self, LinearError> {
        let config = &plan.config;
        Ok(Self {
            q_proj: B::Linear::init(&layer.q_proj, device)?,
            k_proj: B::Linear::init(&layer.k_proj, device)?,
            v_proj: B::Linear::init(&layer.v_proj, device)?,
            o_proj: B::Linear::init(&layer.o_proj, device)?,
            q_norm: RmsNorm::init(config.head_dim, config.rms_norm_eps, device),
            k_norm: RmsNorm::init(config.head_dim, config.rms_norm_eps, device),
            shape: AttentionShape {
                num_heads: config.num_heads,
                num_kv_heads: config.num_kv_heads,
                head_dim: config.head_dim,
                scale: config.attention_scale,
                causal: config.causal,
                window: layer.window,
            },
            rotary,
        })
    }

    /// Normalised and rotated queries and keys, and values, of the tokens `tokens` of the batch:
    /// `[tokens, hidden_size]` to `[tokens, heads * head_dim]` each.
    pub fn project(&self, hidden_states: Tensor<2>, batch: &RaggedBatch, tokens: Range<usize>) -> [Tensor<2>; 3] {
        let [query, key, value] = LinearLayer::project([&self.q_proj, &self.k_proj, &self.v_proj], hidden_states);
        let rope = self.rotary.table(batch.max_positions());
        let positions = &batch.positions()[tokens];
        [rotate(query, &self.q_norm, &rope, positions), rotate(key, &self.k_norm, &rope, positions), value]
    }

    /// The widths of what [`project`](Self::project) makes.
    pub(super) fn widths(&self) -> [usize; 3] {
        let AttentionShape { num_heads, num_kv_heads, head_dim, .. } = self.shape;
        [num_heads, num_kv_heads, num_kv_heads].map(|heads| heads * head_dim)
    }

    /// What the tokens attend to, before `o_proj`: [`project`](Self::project)ed tensors of the whole batch to
    /// `[tokens, num_heads * head_dim]`.
    pub fn attend(&self, [query, key, value]: [Tensor<2>; 3], batch: &RaggedBatch) -> Tensor<2> {
        ops::attention(query, key, value, &self.shape, batch.offsets())
    }

    /// [`attend`](Self::attend) of some tokens alone, which see all others: hidden states, `[tokens, hidden_size]`, to
    /// `[asked, num_heads * head_dim]`. Each row has the bits it has among all.
    pub fn attend_of(&self, hidden_states: Tensor<2>, batch: &RaggedBatch, asked: &TokenRows) -> Tensor<2> {
        let asking = ops::select_rows(hidden_states.clone(), asked.rows());
        let query = self.q_proj.forward(asking);
        let [key, value] = LinearLayer::project([&self.k_proj, &self.v_proj], hidden_states);
        let rope = self.rotary.table(batch.max_positions());
        let query = rotate(query, &self.q_norm, &rope, asked.positions());
        let key = rotate(key, &self.k_norm, &rope, batch.positions());
        ops::attention_of(query, key, value, &self.shape, batch.offsets(), asked.within())
    }
}

fn rotate(heads: Tensor<2>, norm: &RmsNorm, rope: &RopeTable, positions: &[u32]) -> Tensor<2> {
    norm.with_weight(|weight| ops::head_norm_rope(heads, weight, norm.eps(), rope, positions))
}
