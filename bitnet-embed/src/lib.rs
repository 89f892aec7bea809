//! Under construction.

pub mod gguf;

pub mod config;
pub mod names;
pub mod tokenizer;
