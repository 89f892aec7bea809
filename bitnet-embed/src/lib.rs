//! Text embeddings from 1.58-bit BitNet models on ordinary CPUs, as Burn modules.
//!
//! The path of one text, in reading order:
//!
//! 1. [`gguf`]: a file's bytes, checked; metadata and tensor infos.
//! 2. [`config`]: what the metadata say the model is.
//! 3. [`store`]: the file's tensors as Burn parameters, windows of the mapped file.
//! 4. [`model`]: the Burn modules; their operations and kernels are the `burn-i2s` crate.
//! 5. [`tokenizer`] and [`batch`]: text to ids to a ragged batch.
//! 6. [`embedder`]: all of it behind two calls, and [`output`] for what is done to the vectors.
//!
//! ```no_run
//! # #[cfg(feature = "burn")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let embedder = bitnet_embed::Embedder::open("bitnet-embeddings-270m-bf16-i2_s.gguf")?;
//! let vectors = embedder.embed(&["How do plants make sugar?"])?;
//! println!("{:?}", &vectors[0][..4]);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "burn"))]
//! # fn main() {}
//! ```
//!
//! # Features
//!
//! - `flex` (default): Burn's pure-Rust CPU backend.
//! - `ndarray`: Burn's ndarray backend.
//! - `cli` (default): the `bitnet-embed` program.
//! - without any: [`gguf`], [`config`] and [`tokenizer`] alone, without Burn.

pub mod config;
mod file;
pub mod gguf;
pub mod json;
pub mod names;
pub mod tokenizer;

#[cfg(feature = "burn")]
mod ahead;
#[cfg(feature = "burn")]
pub mod batch;
#[cfg(feature = "burn")]
mod embed_error;
#[cfg(feature = "burn")]
pub mod embedder;
#[cfg(feature = "burn")]
pub mod model;
#[cfg(feature = "burn")]
pub mod output;
#[cfg(feature = "burn")]
pub mod store;
#[cfg(feature = "burn")]
mod suspects;

#[cfg(feature = "burn")]
pub use burn_i2s::linear::{F16Backend, I2sBackend};
#[cfg(feature = "burn")]
pub use embedder::{BackendKind, EmbedError, Embedder, EmbedderBuilder};
#[cfg(feature = "burn")]
pub use model::BitNetEmbedding;
#[cfg(feature = "burn")]
pub use store::GgufStore;

/// The README's Rust examples compile.
#[cfg(all(doctest, feature = "burn"))]
#[doc = include_str!("../../README.md")]
struct Readme;
