//! RMSNorm as a module.

use crate::ops::{self, with_floats};
use burn::module::{Module, Param, ParamId};
use burn::tensor::{Device, Shape, Tensor};

/// `y = x / sqrt(mean(x^2) + eps) * weight` over the last dimension (Zhang and Sennrich, 2019).
///
/// The weight multiplies as it is: a model whose files store `weight - 1` adds the one when it is loaded.
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// `[features]`, f32.
    pub weight: Param<Tensor<1>>,
    eps: f32,
}

impl RmsNorm {
    /// A norm without weights; a store fills them.
    pub fn init(features: usize, eps: f32, device: &Device) -> Self {
        let weight = Param::uninitialized(
            ParamId::new(),
            move |device, _| Tensor::ones([features], device),
            device.clone(),
            false,
            Shape::from([features]),
        );
        Self { weight, eps }
    }

    /// `[tokens, features]` to the same.
    ///
    /// # Panics
    /// When the input's width is not the weight's length.
    pub fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        self.with_weight(|weight| ops::rms_norm(input, weight, self.eps))
    }

    /// Lends the weight, for the operations that fuse a norm with what comes next.
    pub fn with_weight<R>(&self, read: impl FnOnce(&[f32]) -> R) -> R {
        with_floats(&[self.weight.val()], |weights| read(weights[0]))
    }

    /// The epsilon.
    pub fn eps(&self) -> f32 {
        self.eps
    }
}
