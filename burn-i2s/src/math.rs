//! exp, SiLU and GELU: the one implementation that every level and backend uses.
//!
//! The platform's libm differs between systems and is not vectorised. These are straight-line code of exactly rounded
//! operations (no table, no branch), so loops over them become vector code, and every CPU gives the same bits. Each is
//! within 2 ulp of the real function; the tests hold them to it.

use crate::lanes::{larger, smaller};

/// 1.5 * 2^23: adding it to a small value rounds that to an integer, half to even, in the low bits of the sum.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// `exp(hi + lo) = (1 + m) * s1 * s2`, with `m` in -0.3..0.42 and powers of two `s1`, `s2`.
///
/// Two factors, because `exp` of a valid argument may be subnormal while its power of two is not representable; a
/// caller can multiply something in before the last, rounding, factor. `hi` must lie in -120..=89, `lo` is a correction
/// of `hi` below its last place.
#[inline(always)]
fn exp_parts(hi: f32, lo: Option<f32>) -> (f32, f32, f32) {
    // ln 2 split so that n * LN2_HI is exact for |n| < 2^9.
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    let shifted = hi.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = (-n).mul_add(LN2_HI, hi);
    let r = (-n).mul_add(LN2_LO, lo.map_or(r, |lo| r + lo));
    // exp(r) = 1 + r + r^2 q(r) on |r| <= ln(2) / 2.
    let mut q = 1.987_569_1e-4f32;
    q = q.mul_add(r, 1.398_199_9e-3);
    q = q.mul_add(r, 8.333_452e-3);
    q = q.mul_add(r, 4.166_579_6e-2);
    q = q.mul_add(r, 1.666_666_5e-1);
    q = q.mul_add(r, 0.5);
    let m = q.mul_add(r * r, r);
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    (m, power(half), power(n.wrapping_sub(half)))
}

/// `x` limited to `low..=high`; NaN stays NaN.
#[inline(always)]
fn limit(x: f32, low: f32, high: f32) -> f32 {
    smaller(high, larger(low, x))
}

/// `e^x`: exactly 1 at 0, 0 at minus infinity, subnormal results included.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (m, s1, s2) = exp_parts(limit(x, -120.0, 89.0), None);
    (m + 1.0) * s1 * s2
}

/// `x / (1 + exp(-(t + correction)))` where `t` has the sign of `x`.
///
/// Written with `exp(-|t|)`, which cannot overflow, and with its last factor applied after `x`, so that the far
/// negative tail keeps its precision until the result itself is subnormal. The quotient is corrected once by its
/// remainder: without that the roundings add up to 3 ulp.
#[inline(always)]
fn times_sigmoid(x: f32, t: f32, correction: Option<f32>) -> f32 {
    let negative = x < 0.0;
    let hi = if negative { t } else { -t };
    let lo = correction.map(|lo| if negative { lo } else { -lo });
    let (m, s1, s2) = exp_parts(larger(-120.0, hi), lo);
    let e = (m + 1.0) * s1 * s2;
    let denominator = e + 1.0;
    let denominator_lo = e - (denominator - 1.0);
    let numerator = if negative { x.mul_add(m, x) * s1 } else { x };
    let scale = if negative { s2 } else { 1.0 };
    let inverse = 1.0 / denominator;
    let quotient = numerator * inverse;
    let remainder = (-quotient).mul_add(denominator_lo, (-quotient).mul_add(denominator, numerator));
    let result = remainder.mul_add(inverse, quotient) * scale;
    // Above 60 the sigmoid is 1, and the remainder of an infinite quotient would not be a number; the correction turns
    // -0 into +0.
    if x > 60.0 { x } else { result.copysign(x) }
}

/// SiLU: `x / (1 + e^-x)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    // Below the lower limit the result is 0; the limit also keeps minus infinity out of the product.
    let x = larger(-120.0, x);
    times_sigmoid(x, x, None)
}

/// GELU in its tanh form: `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
///
/// Computed as `x / (1 + e^-t)` with `t = x (A + B x^2)`, `A = 2 sqrt(2 / pi)`, `B = 0.044715 A`, which is the same
/// function. `t` reaches 100 while an error of `t` is a relative error of the result, so `t` is kept as a sum of two
/// floats.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    const A: f64 = 1.595_769_121_605_730_7;
    const B: f64 = A * 0.044_715;
    const A_HI: f32 = A as f32;
    const A_LO: f32 = (A - A_HI as f64) as f32;
    const B_HI: f32 = B as f32;
    const B_LO: f32 = (B - B_HI as f64) as f32;
    // Below -12 the result is 0; above 12 it is x.
    let low = larger(-12.0, x);
    let x1 = smaller(12.0, low);
    let square = x1 * x1;
    let square_lo = x1.mul_add(x1, -square);
    let term = B_HI * square;
    let term_lo = B_HI.mul_add(square, -term) + B_HI.mul_add(square_lo, B_LO * square);
    let sum = A_HI + term;
    let part = sum - A_HI;
    let sum_lo = (A_HI - (sum - part)) + (term - part) + (term_lo + A_LO);
    let t = x1 * sum;
    let t_lo = x1.mul_add(sum, -t) + x1 * sum_lo;
    times_sigmoid(low, t, Some(t_lo))
}
