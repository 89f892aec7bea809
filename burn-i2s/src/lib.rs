//! Under construction.

pub mod attention;
pub mod dense;
pub mod elementwise;
pub mod ggml;
pub(crate) mod half_float;
pub mod isa;
pub(crate) mod kernel;
pub(crate) mod lanes;
pub mod math;
pub mod peak;
pub mod pooling;
pub mod quantize;
pub(crate) mod rms;
pub mod rope;
pub(crate) mod softmax_tile;
pub(crate) mod threads;
