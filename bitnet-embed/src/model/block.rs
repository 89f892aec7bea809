//! One transformer block.

use super::attention::SelfAttention;
use super::mlp::Mlp;
use super::plan::{LayerPlan, ModelPlan};
use super::rotary::Rotary;
use crate::batch::{RaggedBatch, TokenRows};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_i2s::linear::{ComputeBackend, LinearError, LinearLayer};
use burn_i2s::norm::RmsNorm;
use burn_i2s::ops;
use burn_i2s::pieces::Pieces;
use std::ops::Range;

/// Attention and feed-forward, each normalised before and, in Gemma 3, after.
///
/// The norms are named by what they do. Qwen3 calls its feed-forward norm `post_attention_layernorm`; here it is
/// `pre_feedforward_layernorm`, as in Gemma 3.
#[derive(Module, Debug)]
pub struct Block<B: ComputeBackend> {
    /// Before attention.
    pub input_layernorm: RmsNorm,
    /// Attention.
    pub self_attn: SelfAttention<B>,
    /// After attention, before the residual sum (Gemma 3).
    pub post_attention_layernorm: Option<RmsNorm>,
    /// Before the feed-forward network.
    pub pre_feedforward_layernorm: RmsNorm,
    /// The feed-forward network.
    pub mlp: Mlp<B>,
    /// After the feed-forward network, before the residual sum (Gemma 3).
    pub post_feedforward_layernorm: Option<RmsNorm>,
}

impl<B: ComputeBackend> Block<B> {
    pub(super) fn init(
        plan: &ModelPlan,
        layer: &LayerPlan,
        rotary: Rotary,
        device: &Device,
    ) -> Result<Self, LinearError> {
        let config = &plan.config;
        let norm = || RmsNorm::init(config.hidden_size, config.rms_norm_eps, device);
        let post_norms = config.architecture.has_post_norms();
        Ok(Self {
            input_layernorm: norm(),
            self_attn: SelfAttention::init(plan, layer, rotary, device)?,
            post_attention_layernorm: post_norms.then(norm),
            pre_feedforward_layernorm: norm(),
            mlp: Mlp::init(plan, layer, device)?,
            post_feedforward_layernorm: post_norms.then(norm),
        })
    }

    /// `[tokens, hidden_size]` to `[tokens, hidden_size]`.
    pub fn forward(&self, hidden_states: Tensor<2>, batch: &RaggedBatch) -> Tensor<2> {
        let tokens = 0..hidden_states.dims()[0];
        let attended = self.self_attn.attend(self.before_attention(hidden_states.clone(), batch, tokens), batch);
        self.after_attention(hidden_states, attended)
    }

    /// `blocks` one after the other, `[tokens, hidden_size]` to `[tokens, hidden_size]`. Tokens meet in attention alone:
    /// from the attention of a block to that of the next a thread takes some of them by itself.
    pub(super) fn forward_all(blocks: &[Self], hidden_states: Tensor<2>, batch: &RaggedBatch) -> Tensor<2> {
        let Some((first, others)) = blocks.split_first() else { return hidden_states };
        let mut pieces = Pieces::of(hidden_states, B::ROWS_PER_PASS);
        let widths = first.self_attn.widths();
        let mut heads = pieces.step([], widths, |hidden_states, [], tokens| {
            (hidden_states.clone(), first.before_attention(hidden_states, batch, tokens))
        });
        let mut block = first;
        for next in others {
            let attended = block.self_attn.attend(heads, batch);
            heads = pieces.step([attended], widths, |hidden_states, [attended], tokens| {
                let hidden_states = block.after_attention(hidden_states, attended);
                (hidden_states.clone(), next.before_attention(hidden_states, batch, tokens))
            });
            block = next;
        }
        let attended = block.self_attn.attend(heads, batch);
        let [] = pieces
            .step([attended], [], |hidden_states, [attended], _| (block.after_attention(hidden_states, attended), []));
        pieces.join()
    }

    /// [`forward`](Self::forward) of some tokens alone: `[tokens, hidden_size]` to `[asked, hidden_size]`. Each row has
    /// the bits it has among all; of the others, keys and values alone are computed.
    pub fn forward_of(&self, hidden_states: Tensor<2>, batch: &RaggedBatch, asked: &TokenRows) -> Tensor<2> {
        let attended = self.self_attn.attend_of(self.input_layernorm.forward(hidden_states.clone()), batch, asked);
        self.after_attention(ops::select_rows(hidden_states, asked.rows()), attended)
    }

    /// What is done to each token by itself before it attends to others: queries, keys and values of the tokens `tokens`.
    fn before_attention(&self, hidden_states: Tensor<2>, batch: &RaggedBatch, tokens: Range<usize>) -> [Tensor<2>; 3] {
        self.self_attn.project(self.input_layernorm.forward(hidden_states), batch, tokens)
    }

    /// What is done to each token by itself, given what it attends to.
    fn after_attention(&self, hidden_states: Tensor<2>, attended: Tensor<2>) -> Tensor<2> {
        let attended = self.self_attn.o_proj.forward(attended);
        let hidden_states = add(hidden_states, attended, self.post_attention_layernorm.as_ref());
        let fed = self.mlp.forward(self.pre_feedforward_layernorm.forward(hidden_states.clone()));
        add(hidden_states, fed, self.post_feedforward_layernorm.as_ref())
    }
}

fn add(hidden_states: Tensor<2>, delta: Tensor<2>, post_norm: Option<&RmsNorm>) -> Tensor<2> {
    match post_norm {
        Some(norm) => norm.with_weight(|weight| ops::residual_add(hidden_states, delta, Some(weight), norm.eps())),
        None => ops::residual_add(hidden_states, delta, None, 0.0),
    }
}
