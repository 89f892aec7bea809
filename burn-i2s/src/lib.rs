//! Under construction.

pub mod ggml;
pub mod isa;
