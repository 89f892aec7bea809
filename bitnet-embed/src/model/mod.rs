//! The model as Burn modules: one set for both architectures and both compute backends.
//!
//! What differs between Qwen3 and Gemma 3 is data in [`ModelConfig`](crate::config::ModelConfig): an embedding scale,
//! an activation, two more norms a block, a window and a RoPE base a layer.

mod attention;
mod block;
mod mlp;
mod plan;
mod rotary;

pub use attention::SelfAttention;
pub use block::Block;
pub use mlp::Mlp;
pub use plan::{LayerPlan, ModelPlan, PlanError};
pub(crate) use plan::{Load, TensorUse};
pub use rotary::Rotary;

use crate::batch::RaggedBatch;
use crate::store::{GgufStore, StoreError};
use burn::module::Module;
use burn::store::ModuleSnapshot;
use burn::tensor::{Device, Int, Tensor};
use burn_i2s::linear::{ComputeBackend, LinearError};
use burn_i2s::norm::RmsNorm;
use burn_i2s::ops;
use burn_i2s::pooling::Pooling;
use burn_i2s::table::RowTable;
use std::path::Path;

/// A BitNet embedding model: token ids to one vector a text.
#[derive(Module, Debug)]
pub struct BitNetEmbedding<B: ComputeBackend> {
    /// The token table, `[vocab_size, hidden_size]`, in the file's type.
    pub embed_tokens: RowTable,
    /// The transformer blocks.
    pub layers: Vec<Block<B>>,
    /// The final norm.
    pub norm: RmsNorm,
    embedding_scale: f32,
    #[module(skip)]
    pooling: Pooling,
}

impl<B: ComputeBackend> BitNetEmbedding<B> {
    /// A model without weights, as a file describes it; `load_from` fills it.
    ///
    /// # Errors
    /// When `B` cannot compute a layer of the file: [`I2sBackend`](burn_i2s::linear::I2sBackend) takes BitNet files alone.
    pub fn init(plan: &ModelPlan, device: &Device) -> Result<Self, LinearError> {
        let config = &plan.config;
        let mut rotaries: Vec<Rotary> = Vec::new();
        let mut layers = Vec::with_capacity(plan.layers.len());
        for layer in &plan.layers {
            let known = rotaries.iter().find(|rotary| rotary.theta() == layer.rope_theta).cloned();
            let rotary = known.unwrap_or_else(|| {
                rotaries.push(Rotary::new(config.head_dim, layer.rope_theta));
                rotaries[rotaries.len() - 1].clone()
            });
            layers.push(Block::init(plan, layer, rotary, device)?);
        }
        Ok(Self {
            embed_tokens: RowTable::init(config.vocab_size, config.hidden_size, plan.token_table, device)?,
            layers,
            norm: RmsNorm::init(config.hidden_size, config.rms_norm_eps, device),
            embedding_scale: config.embedding_scale,
            pooling: config.pooling,
        })
    }

    /// Opens a GGUF file and loads it, the weights staying in the mapped file.
    ///
    /// # Errors
    /// When the file is not a model this crate computes, or `B` cannot compute it; the error names file and tensor.
    pub fn from_gguf(path: impl AsRef<Path>, device: &Device) -> Result<Self, StoreError> {
        let mut store = GgufStore::open(path)?;
        Self::from_store(&mut store, device)
    }

    /// Builds the model that an open store describes and loads it.
    ///
    /// # Errors
    /// As [`from_gguf`](Self::from_gguf).
    pub fn from_store(store: &mut GgufStore, device: &Device) -> Result<Self, StoreError> {
        let mut model = Self::init(store.plan(), device).map_err(|problem| store.error(problem))?;
        model.load_from(store)?;
        Ok(model)
    }

    /// One vector a text, pooled as the file says and not normalised: token ids `[tokens]` to `[texts, hidden_size]`.
    ///
    /// Where one token's state makes a text's vector, the last layer computes the others no further than their keys and
    /// values. The vectors are those of [`hidden_states`](Self::hidden_states), bit for bit.
    ///
    /// # Panics
    /// When an id is not below `vocab_size`, the batch is not of `input_ids`' length, or no weights were loaded.
    pub fn forward(&self, input_ids: Tensor<1, Int>, batch: &RaggedBatch) -> Tensor<2> {
        match (self.layers.split_last(), batch.pooled_tokens(self.pooling)) {
            (Some((last, others)), Some(asked)) => {
                let hidden = self.through(others, input_ids, batch);
                self.norm.forward(last.forward_of(hidden, batch, &asked))
            }
            _ => ops::pool(self.hidden_states(input_ids, batch), batch.offsets(), self.pooling),
        }
    }

    /// The states after the final norm: token ids `[tokens]` to `[tokens, hidden_size]`.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn hidden_states(&self, input_ids: Tensor<1, Int>, batch: &RaggedBatch) -> Tensor<2> {
        self.norm.forward(self.through(&self.layers, input_ids, batch))
    }

    fn through(&self, layers: &[Block<B>], input_ids: Tensor<1, Int>, batch: &RaggedBatch) -> Tensor<2> {
        Block::forward_all(layers, self.embed_tokens.forward(input_ids, self.embedding_scale), batch)
    }

    /// How [`forward`](Self::forward) makes one vector of a text's states.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// The same model with another pooling.
    pub fn with_pooling(mut self, pooling: Pooling) -> Self {
        self.pooling = pooling;
        self
    }
}
