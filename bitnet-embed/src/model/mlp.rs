//! The gated feed-forward network.

use super::plan::{LayerPlan, ModelPlan};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_i2s::elementwise::Activation;
use burn_i2s::linear::{ComputeBackend, LinearError, LinearLayer};

/// `down(activation(gate(x)) * up(x))`.
#[derive(Module, Debug)]
pub struct Mlp<B: ComputeBackend> {
    /// `[hidden_size, intermediate_size]`, through the activation.
    pub gate_proj: B::Linear,
    /// `[hidden_size, intermediate_size]`.
    pub up_proj: B::Linear,
    /// `[intermediate_size, hidden_size]`.
    pub down_proj: B::Linear,
    #[module(skip)]
    activation: Activation,
}

impl<B: ComputeBackend> Mlp<B> {
    pub(super) fn init(plan: &ModelPlan, layer: &LayerPlan, device: &Device) -> Result<Self, LinearError> {
        Ok(Self {
            gate_proj: B::Linear::init(&layer.gate_proj, device)?,
            up_proj: B::Linear::init(&layer.up_proj, device)?,
            down_proj: B::Linear::init(&layer.down_proj, device)?,
            activation: plan.config.activation,
        })
    }

    /// `[tokens, hidden_size]` to `[tokens, hidden_size]`.
    pub fn forward(&self, hidden_states: Tensor<2>) -> Tensor<2> {
        let [gate, up] = LinearLayer::project([&self.gate_proj, &self.up_proj], hidden_states);
        self.down_proj.forward_gated(gate, up, self.activation)
    }
}
