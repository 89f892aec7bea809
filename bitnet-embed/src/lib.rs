//! Under construction.

pub mod gguf;
