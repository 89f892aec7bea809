//! The only files with `unsafe`: what a safe caller hands in is checked before anything here relies on it.

pub(crate) mod float;
pub(crate) mod float_grid;
pub(crate) mod float_half;
pub(crate) mod float_transpose;
