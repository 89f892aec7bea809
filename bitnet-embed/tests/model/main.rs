//! The model from file to vector, held against references, and what users of the library rely on.
#![cfg(feature = "burn")]

mod common;
mod embedder;
mod endurance;
mod goldens;
mod hashes;
mod layers;
mod mutations;
mod store;
#[path = "../support/mod.rs"]
mod support;
