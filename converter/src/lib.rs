//! Turns a Hugging Face checkpoint of a BitNet embedding model into a GGUF file.
//!
//! ```text
//! config.json, modules.json -> ModelConfig ----+
//! *.safetensors headers -----> Checkpoint --> Plan --> GgufWriter <-- encode (tensor by tensor)
//! tokenizer.json ------------> Vocab ----------+
//! ```
//!
//! [`plan`] is pure and decides everything; [`encode`] only carries it out. Nothing appears at the output's path before
//! the file is complete. [`verify`] computes all of it once more and compares; [`recode`] and [`edit`] start from a GGUF
//! file; [`inspect`] shows one.

pub mod checkpoint;
mod checkpoint_error;
pub mod cli;
pub mod config;
mod convert;
mod data_file;
pub mod dummy;
mod dummy_vocab;
pub mod edit;
pub mod encode;
mod error;
mod header;
pub mod inspect;
mod interrupt;
pub mod loader;
pub mod metadata;
mod outfile;
pub mod plan;
mod rebuild;
mod recode;
mod recognise;
pub mod report;
pub mod source;
mod split;
pub mod ternary_fit;
mod tokenizer_json;
pub mod verify;
pub mod vocab;
mod vocab_error;

pub use convert::{ConvertOptions, convert};
pub use error::{ConvertError, EXIT_DIFFERS, EXIT_NOT_WRITTEN, EXIT_REFUSED, EXIT_UNSUPPORTED};
pub use plan::{Outtype, Types};
pub use recode::recode;
