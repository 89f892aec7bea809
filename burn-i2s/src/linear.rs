//! The linear layers of a model and the markers that choose between them.
//!
//! `BitNetEmbedding::<I2sBackend>` and `::<F16Backend>` are one model with two linear layers. What a layer *computes*
//! follows the file: a weight with its own input norm, or stored as I2_S, is a BitLinear (ternary weights, int8
//! activations) in either; anything else is a plain linear layer. The marker decides *how*: [`BitLinear`] works in
//! integers and takes ternary weights alone, [`DenseLinear`] works in f32 and takes every type.

use crate::dense::DenseMatrix;
use crate::elementwise::Activation;
use crate::ggml::GgmlType;
use crate::matrix::TernaryMatrix;
use crate::norm::RmsNorm;
use crate::ops::{self, TernaryLayer, TernaryProduct, with_bytes, with_floats};
use burn::module::{Module, ModuleDisplay, Param, ParamId};
use burn::tensor::{DType, Device, Int, Shape, Tensor};
use thiserror::Error;

/// How the weights of one linear layer are stored in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinearWeight {
    /// I2_S rows of whole blocks, then the scale: the layer is a BitLinear.
    Ternary,
    /// Rows in a GGML type: a plain linear layer.
    Dense(GgmlType),
}

/// Everything that is fixed about a linear layer before its weights are loaded.
#[derive(Clone, Debug)]
pub struct LinearConfig {
    /// Width of the input.
    pub in_features: usize,
    /// Width of the output.
    pub out_features: usize,
    /// How the weights are stored.
    pub weight: LinearWeight,
    /// Whether the layer normalises its input (`*_norm_in` in a GGUF file).
    pub norm: bool,
    /// The epsilon of that norm.
    pub rms_norm_eps: f32,
}

impl LinearConfig {
    /// Bytes of the layer's weight parameter; `None` on overflow or a row that is not whole blocks.
    pub fn weight_bytes(&self) -> Option<usize> {
        match self.weight {
            LinearWeight::Ternary => crate::layout::padded_byte_len(self.out_features, self.in_features),
            LinearWeight::Dense(ty) => ty.row_bytes(self.in_features)?.checked_mul(self.out_features),
        }
    }
}

/// Why a layer cannot be built.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinearError {
    /// A plain float weight was given to a backend that computes ternary layers alone.
    #[error(
        "a {} weight without a norm on its input is no BitNet layer, and the {backend} backend computes nothing else; \
         use F16Backend (`--backend f16`)",
        found.name()
    )]
    NotTernary {
        /// The marker's name.
        backend: &'static str,
        /// The weight's type.
        found: GgmlType,
    },
    /// A row of the weight is not whole blocks of its type, or its size overflows.
    #[error("{out_features} rows of {in_features} values cannot be stored as {weight:?}")]
    Shape {
        /// Rows.
        out_features: usize,
        /// Columns.
        in_features: usize,
        /// The storage asked for.
        weight: LinearWeight,
    },
}

/// A linear layer that a [`ComputeBackend`] supplies.
pub trait LinearLayer: Module + ModuleDisplay + Send + Sync {
    /// A layer without weights; a store fills them.
    ///
    /// # Errors
    /// When the backend does not compute such a layer, or its size is impossible.
    fn init(config: &LinearConfig, device: &Device) -> Result<Self, LinearError>;

    /// Layers that read the same input, in one pass over it: `[tokens, in_features]` to `[tokens, out_features]` each.
    ///
    /// # Panics
    /// When the input's width is not the layers' `in_features`.
    fn project<const N: usize>(layers: [&Self; N], input: Tensor<2>) -> [Tensor<2>; N];

    /// One layer: `[tokens, in_features]` to `[tokens, out_features]`.
    ///
    /// # Panics
    /// When the input's width is not the layer's `in_features`.
    fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        let [output] = Self::project([self], input);
        output
    }

    /// The layer behind a gate: [`forward`](Self::forward) of `activation(gate) * up`, both `[tokens, in_features]`.
    ///
    /// # Panics
    /// When their shapes differ, or their width is not the layer's `in_features`.
    fn forward_gated(&self, gate: Tensor<2>, up: Tensor<2>, activation: Activation) -> Tensor<2> {
        self.forward(ops::gated_activation(gate, up, activation))
    }
}

/// Chooses a model's linear layer. Implemented by two zero-sized markers, [`I2sBackend`] and [`F16Backend`]; neither is
/// a `burn::backend::Backend`, that choice is the `Device`'s.
pub trait ComputeBackend: Module + ModuleDisplay + Default + Copy + 'static {
    /// The layer.
    type Linear: LinearLayer;
    /// The name that the command line and the benchmarks print.
    const NAME: &'static str;
    /// The fewest activation rows that are worth a pass of their own over a layer's weights.
    const ROWS_PER_PASS: usize;
}

/// Ternary layers in integer arithmetic, straight from the packed bytes.
#[derive(Module, Debug, Default, Copy)]
pub struct I2sBackend;

/// Every layer in f32 arithmetic, weights decoded panel by panel from their file type.
#[derive(Module, Debug, Default, Copy)]
pub struct F16Backend;

impl ComputeBackend for I2sBackend {
    type Linear = BitLinear;
    const NAME: &'static str = "I2_S";
    const ROWS_PER_PASS: usize = 2;
}

impl ComputeBackend for F16Backend {
    type Linear = DenseLinear;
    const NAME: &'static str = "F16";
    // A pass decodes all weights.
    const ROWS_PER_PASS: usize = 256;
}

/// A ternary layer on int8 activations, computed in integers.
#[derive(Module, Debug)]
pub struct BitLinear {
    /// The packed bytes with the scale at their end (U8); the layout is [`crate::layout`]'s.
    pub weight: Param<Tensor<1, Int>>,
    /// The norm on the input.
    pub norm: Option<RmsNorm>,
    in_features: usize,
    out_features: usize,
    rms_norm_eps: f32,
}

impl LinearLayer for BitLinear {
    fn init(config: &LinearConfig, device: &Device) -> Result<Self, LinearError> {
        if let LinearWeight::Dense(found) = config.weight {
            return Err(LinearError::NotTernary { backend: I2sBackend::NAME, found });
        }
        Ok(Self {
            weight: weight_param(config, device)?,
            norm: config.norm.then(|| RmsNorm::init(config.in_features, config.rms_norm_eps, device)),
            in_features: config.in_features,
            out_features: config.out_features,
            rms_norm_eps: config.rms_norm_eps,
        })
    }

    fn project<const N: usize>(layers: [&Self; N], input: Tensor<2>) -> [Tensor<2>; N] {
        project_ternary(&layers.map(Self::ternary), input, layers[0].rms_norm_eps, TernaryProduct::Integer)
    }

    fn forward_gated(&self, gate: Tensor<2>, up: Tensor<2>, activation: Activation) -> Tensor<2> {
        project_gated(self.ternary(), [gate, up], activation, self.rms_norm_eps, TernaryProduct::Integer)
    }
}

impl BitLinear {
    fn ternary(&self) -> Ternary<'_> {
        Ternary::new(&self.weight, self.norm.as_ref(), self.in_features, self.out_features)
    }
}

/// A linear layer of any weight type, computed in f32.
///
/// A BitLinear weight is held as -1, 0 and +1 (in 2 bits each), multiplied as such and scaled after the sum, so its
/// output has the same bits as [`BitLinear`]'s.
#[derive(Module, Debug)]
pub struct DenseLinear {
    /// The weight's bytes in their file type (U8).
    pub weight: Param<Tensor<1, Int>>,
    /// The norm on the input of a BitLinear.
    pub norm: Option<RmsNorm>,
    #[module(skip)]
    storage: LinearWeight,
    in_features: usize,
    out_features: usize,
    rms_norm_eps: f32,
}

impl LinearLayer for DenseLinear {
    fn init(config: &LinearConfig, device: &Device) -> Result<Self, LinearError> {
        Ok(Self {
            weight: weight_param(config, device)?,
            norm: config.norm.then(|| RmsNorm::init(config.in_features, config.rms_norm_eps, device)),
            storage: config.weight,
            in_features: config.in_features,
            out_features: config.out_features,
            rms_norm_eps: config.rms_norm_eps,
        })
    }

    fn project<const N: usize>(layers: [&Self; N], input: Tensor<2>) -> [Tensor<2>; N] {
        if layers.iter().all(|layer| layer.storage == LinearWeight::Ternary) {
            return project_ternary(&layers.map(Self::ternary), input, layers[0].rms_norm_eps, TernaryProduct::Float);
        }
        if layers.iter().any(|layer| layer.storage == LinearWeight::Ternary) {
            // A file may mix both kinds among the layers of one input: each then goes its own way.
            return layers.map(|layer| {
                let [output] = Self::project([layer], input.clone());
                output
            });
        }
        let weights = layers.map(|layer| layer.weight.val());
        let outputs = with_bytes(&weights, |bytes| {
            let matrices: Vec<DenseMatrix<'_>> = layers
                .iter()
                .zip(bytes)
                .map(|(layer, bytes)| {
                    let LinearWeight::Dense(ty) = layer.storage else { unreachable!("ternary layers went above") };
                    DenseMatrix::new(bytes, ty, layer.out_features, layer.in_features)
                        .expect("the parameter's length was checked when it was loaded")
                })
                .collect();
            ops::dense_linear(input, &matrices)
        });
        outputs.try_into().expect("one output a layer")
    }

    fn forward_gated(&self, gate: Tensor<2>, up: Tensor<2>, activation: Activation) -> Tensor<2> {
        match self.storage {
            LinearWeight::Ternary => {
                project_gated(self.ternary(), [gate, up], activation, self.rms_norm_eps, TernaryProduct::Float)
            }
            LinearWeight::Dense(_) => self.forward(ops::gated_activation(gate, up, activation)),
        }
    }
}

impl DenseLinear {
    fn ternary(&self) -> Ternary<'_> {
        Ternary::new(&self.weight, self.norm.as_ref(), self.in_features, self.out_features)
    }
}

/// What a ternary projection needs of a layer of either kind.
struct Ternary<'a> {
    weight: Tensor<1, Int>,
    norm: Option<&'a RmsNorm>,
    in_features: usize,
    out_features: usize,
}

impl<'a> Ternary<'a> {
    fn new(weight: &Param<Tensor<1, Int>>, norm: Option<&'a RmsNorm>, in_features: usize, out_features: usize) -> Self {
        Self { weight: weight.val(), norm, in_features, out_features }
    }
}

fn project_ternary<const N: usize>(
    layers: &[Ternary<'_>; N],
    input: Tensor<2>,
    rms_norm_eps: f32,
    product: TernaryProduct,
) -> [Tensor<2>; N] {
    let outputs = with_layers(layers, |layers| ops::ternary_linear(input, layers, rms_norm_eps, product));
    outputs.try_into().expect("one output a layer")
}

fn project_gated(
    layer: Ternary<'_>,
    [gate, up]: [Tensor<2>; 2],
    activation: Activation,
    rms_norm_eps: f32,
    product: TernaryProduct,
) -> Tensor<2> {
    with_layers(&[layer], |layers| ops::gated_ternary_linear(gate, up, activation, &layers[0], rms_norm_eps, product))
}

/// Lends the layers' weights and norms.
fn with_layers<const N: usize, R>(layers: &[Ternary<'_>; N], run: impl FnOnce(&[TernaryLayer<'_>]) -> R) -> R {
    let weights = layers.each_ref().map(|layer| layer.weight.clone());
    let norms: Vec<Tensor<1>> = layers.iter().filter_map(|layer| layer.norm).map(|norm| norm.weight.val()).collect();
    with_bytes(&weights, |bytes| {
        with_floats(&norms, |norms| {
            let mut norms = norms.iter().copied();
            let views: Vec<TernaryLayer<'_>> = layers
                .iter()
                .zip(bytes)
                .map(|(layer, bytes)| TernaryLayer {
                    weight: TernaryMatrix::new(bytes, layer.out_features, layer.in_features)
                        .expect("the parameter was checked when it was loaded"),
                    norm: layer.norm.and_then(|_| norms.next()),
                })
                .collect();
            run(&views)
        })
    })
}

fn weight_param(config: &LinearConfig, device: &Device) -> Result<Param<Tensor<1, Int>>, LinearError> {
    let len = config.weight_bytes().ok_or(LinearError::Shape {
        out_features: config.out_features,
        in_features: config.in_features,
        weight: config.weight,
    })?;
    Ok(byte_param([len], device))
}

/// A U8 parameter of that shape that allocates nothing until it is loaded (or read before it is).
pub(crate) fn byte_param<const D: usize>(shape: [usize; D], device: &Device) -> Param<Tensor<D, Int>> {
    Param::uninitialized(
        ParamId::new(),
        move |device, _| Tensor::zeros(shape, (device, DType::U8)),
        device.clone(),
        false,
        Shape::from(shape),
    )
}
