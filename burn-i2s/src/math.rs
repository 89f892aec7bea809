//! exp, SiLU and GELU: the one implementation that every level and backend uses.
//!
//! The platform's libm differs between systems and is not vectorised. These are straight-line code of exactly rounded
//! operations (no table, no branch), so loops over them become vector code, and every CPU gives the same bits. How close
//! each is to the real function its documentation says, and the tests hold it to that.

use crate::lanes::{larger, smaller};

/// 1.5 * 2^23: adding it to a small value rounds that to an integer, half to even, in the low bits of the sum.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// `exp(x) = (1 + m) * 2^n`, with `m` in -0.3..0.42; `n` is an integer in the low bits, offset by those of [`ROUND`].
/// `x` must lie in -120..=89.
#[inline(always)]
fn exp_parts(x: f32) -> (f32, u32) {
    // ln 2 split so that n * LN2_HI is exact for |n| < 2^9.
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = (-n).mul_add(LN2_LO, (-n).mul_add(LN2_HI, x));
    // exp(r) = 1 + r + r^2 q(r) on |r| <= ln(2) / 2.
    let mut q = 1.987_569_1e-4f32;
    q = q.mul_add(r, 1.398_199_9e-3);
    q = q.mul_add(r, 8.333_452e-3);
    q = q.mul_add(r, 4.166_579_6e-2);
    q = q.mul_add(r, 1.666_666_5e-1);
    q = q.mul_add(r, 0.5);
    (q.mul_add(r * r, r), shifted.to_bits())
}

/// `2^n` of a normal float's `n`, which may carry the offset of [`exp_parts`]: it is shifted out.
#[inline(always)]
fn power_of_two(n: u32) -> f32 {
    f32::from_bits(n.wrapping_add(127) << 23)
}

/// `x` limited to `low..=high`; NaN stays NaN.
#[inline(always)]
fn limit(x: f32, low: f32, high: f32) -> f32 {
    smaller(high, larger(low, x))
}

/// `e^x` within 2 ulp: exactly 1 at 0, 0 at minus infinity, subnormal results included.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (m, n) = exp_parts(limit(x, -120.0, 89.0));
    // Two factors, because the power of two of a valid argument may not be representable.
    let n = n.wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    (m + 1.0) * power_of_two(half as u32) * power_of_two(n.wrapping_sub(half) as u32)
}

/// `x / (1 + exp(-t))` where `t` has the sign of `x`.
///
/// Written with `exp(-|t|)`, which cannot overflow. Below a `t` of -86 the result, some 1e-36, counts as 0: so the power
/// of two is one normal number.
#[inline(always)]
fn times_sigmoid(x: f32, t: f32) -> f32 {
    const LOWEST: f32 = -86.0;
    let (m, n) = exp_parts(larger(LOWEST, -t.abs()));
    let power = power_of_two(n);
    let e = m.mul_add(power, power);
    let numerator = if x < 0.0 { x * e } else { x };
    let quotient = numerator / (e + 1.0);
    if t < LOWEST { 0.0 } else { quotient }
}

/// SiLU: `x / (1 + e^-x)`, within 3 ulp; below -86, where it is some 1e-36, 0.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    times_sigmoid(x, x)
}

/// GELU in its tanh form: `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`, within 4 ulp for positive `x` and within
/// 6e-8, half of f32's step at 1, for negative.
///
/// Computed as `x / (1 + e^-t)` with `t = x (A + B x^2)`, `A = 2 sqrt(2 / pi)`, `B = 0.044715 A`, which is the same
/// function without its cancellation.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    const A: f32 = 1.595_769;
    const B: f32 = 0.071_354_82;
    times_sigmoid(x, x * (x * x).mul_add(B, A))
}
