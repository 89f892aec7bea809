//! Under construction.

pub mod config;
pub mod gguf;
pub mod names;
pub mod tokenizer;
