//! I2_S ternary linear layers for Burn, exact on every CPU.
//!
//! A 1.58-bit BitNet layer multiplies int8 activations by weights that are -1, 0 or +1. An I2_S tensor holds 128 such
//! weights in 32 bytes, as four planes of 32:
//!
//! ```text
//! bit       7 6     5 4     3 2     1 0
//! byte j   w[j]  w[32+j] w[64+j] w[96+j]      a code is the weight plus one: 0, 1 or 2
//! ```
//!
//! and one f32 scale at its end ([`layout`]). From bytes to a Burn tensor, in reading order: [`layout`] and [`pack`]
//! define the format, [`matrix`] checks borrowed bytes, [`quantize`] makes int8 rows, [`gemm`] multiplies them on the
//! kernels that [`isa`] finds at run time, `ops` is the Burn backend extension for Flex and NdArray, and `linear` the
//! modules. [`dense`], [`attention`], [`rope`], [`elementwise`] and [`pooling`] are the rest of a transformer's forward.
//!
//! Every result has the same bits on every instruction set, backend and number of threads: integer sums are exact, and
//! each float sum has one order of operations.
//!
//! ```
//! use burn_i2s::{gemm, isa::Isa, layout, matrix::TernaryMatrix, pack, quantize};
//!
//! // Two rows of 128 weights, made ternary: scale = mean |w|, weight = round(w / scale) within -1..=1.
//! let weights: Vec<f32> = (0..256).map(|i| [0.5, -0.7, 0.01][i % 3]).collect();
//! let packed = pack::ternarize_and_pack(&weights)?;
//! assert_eq!(Some(packed.len()), layout::byte_len(2, 128));
//! let matrix = TernaryMatrix::new(&packed, 2, 128)?;
//!
//! // One row of activations to int8, then the product.
//! let x: Vec<f32> = (0..128).map(|i| i as f32 - 64.0).collect();
//! let mut rows = [quantize::QuantizedRows::default()];
//! quantize::quantize_rows(Isa::best(), quantize::Source::Rows(&x), 128, &[None], 1e-6, &mut rows);
//! let mut y = [0.0; 2];
//! gemm::ternary_gemm(Isa::best(), &rows[0].activations(), &matrix, &mut y)?;
//! # let mut scalar = [0.0; 2];
//! # gemm::ternary_gemm(Isa::Scalar, &rows[0].activations(), &matrix, &mut scalar)?;
//! # assert_eq!(y, scalar);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! - `flex` (default): the modules and operations on Burn's pure-Rust CPU backend.
//! - `ndarray`: on Burn's ndarray backend.
//! - without either: layout, packing, kernels and row decoding alone, without Burn.

pub mod attention;
pub mod dense;
pub mod elementwise;
pub mod error;
pub mod gemm;
pub mod ggml;
mod half_float;
pub mod isa;
mod kernel;
mod lanes;
pub mod layout;
pub mod math;
pub mod matrix;
pub mod pack;
pub mod peak;
pub mod pooling;
pub mod quantize;
pub(crate) mod rms;
pub mod rope;
mod softmax_tile;
pub mod ternary_floats;
mod threads;
pub mod tiling;

#[cfg(feature = "burn")]
pub mod backend;
#[cfg(feature = "burn")]
mod buffers;
#[cfg(feature = "burn")]
pub mod linear;
#[cfg(feature = "burn")]
pub mod norm;
#[cfg(feature = "burn")]
pub mod ops;
#[cfg(feature = "burn")]
pub mod pieces;
#[cfg(feature = "burn")]
pub mod table;
