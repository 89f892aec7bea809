//! Under construction.

pub mod error;
pub mod gemm;
pub mod ggml;
pub mod isa;
mod kernel;
pub mod layout;
pub mod matrix;
pub mod pack;
