//! The inner loops, one file per instruction set, and the match that chooses between them.
//!
//! The only `unsafe` code of the crate is in this directory: vector loads and stores of fixed-size arrays, calls of
//! `target_feature` functions with a witness in hand, and [`output::Rect`]. Everything a kernel reads is a slice of
//! whole blocks, so no loop has a tail in k.

#[cfg(target_arch = "x86_64")]
mod avx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_vnni;
#[cfg(target_arch = "x86_64")]
mod avx512bw;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod dots;
pub(crate) mod float;
pub(crate) mod float_grid;
pub(crate) mod float_half;
pub(crate) mod float_transpose;
#[cfg(target_arch = "x86_64")]
pub(crate) mod half_panel;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_dotprod;
pub(crate) mod output;
#[cfg(target_arch = "x86_64")]
mod panel;
pub(crate) mod peak;
mod scalar;
#[cfg(target_arch = "x86_64")]
pub(crate) mod score;

use crate::isa::Isa;
use crate::layout::{BLOCK, BLOCK_BYTES};
use crate::tiling::Tiling;
use output::Rect;

/// Rows of int8 activations in whole blocks.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// `[rows, blocks]` blocks of codes.
    pub(crate) codes: &'a [[i8; BLOCK]],
    /// The sum of each row's codes.
    pub(crate) sums: &'a [i32],
    /// What each row was multiplied with before it was rounded.
    pub(crate) scales: &'a [f32],
}

/// A rectangle of a ternary product: all of `x` times as many weight rows as `out` has columns.
pub(crate) struct Job<'a, T> {
    pub(crate) x: Rows<'a>,
    /// Blocks per row, of activations and weights.
    pub(crate) blocks: usize,
    /// The weight rows of `out`, and after them what is left of the matrix, which a kernel may prefetch.
    pub(crate) weights: &'a [[u8; BLOCK_BYTES]],
    pub(crate) weight_scale: f32,
    pub(crate) tiling: Tiling,
    pub(crate) out: Rect<'a, T>,
}

/// What a product writes: the exact sum, or the sum scaled to the value it stands for.
pub(crate) trait Output: Copy + Send {
    /// Whether the sum is scaled: then `Self` is f32, else i32.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for panels, which the x86 levels have"))]
    const SCALED: bool;

    /// The output of the exact sum `sum`, given the matrix's scale and the activation row's.
    fn of(sum: i32, weight_scale: f32, scale: f32) -> Self;
}

impl Output for i32 {
    const SCALED: bool = false;

    #[inline(always)]
    fn of(sum: i32, _weight_scale: f32, _scale: f32) -> Self {
        sum
    }
}

impl Output for f32 {
    const SCALED: bool = true;

    #[inline(always)]
    fn of(sum: i32, weight_scale: f32, scale: f32) -> Self {
        sum as f32 * weight_scale / scale
    }
}

/// Does the job with the kernels of `isa`.
pub(crate) fn run<T: Output>(isa: Isa, job: Job<'_, T>) {
    match isa {
        Isa::Scalar => scalar::run(job),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(proof) => panel::run(proof, job),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni(proof) => panel::run(proof, job),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bw(proof) => panel::run(proof, job),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni(proof) => panel::run(proof, job),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon(proof) => dots::run(proof, job),
        #[cfg(target_arch = "aarch64")]
        Isa::NeonDotprod(proof) => dots::run(proof, job),
    }
}

/// Weight rows that the kernels of `isa` handle together; work is best divided at multiples of it.
pub(crate) fn column_unit(isa: Isa) -> usize {
    match isa {
        Isa::Scalar => 1,
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        _ => 64,
    }
}
