//! exp (of what a softmax gives it), SiLU and GELU: the one implementation that every level and backend uses.
//!
//! The platform's libm differs between systems and is not vectorised. These are straight-line code of exactly rounded
//! operations (no table, no branch), so loops over them become vector code, and every CPU gives the same bits. How close
//! each is to the real function its documentation says, and the tests hold it to that.

use crate::lanes::larger;

/// 1.5 * 2^23: adding it to a small value rounds that to an integer, half to even, in the low bits of the sum.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// log2(e) as a sum of two floats.
const LOG2_E: [f32; 2] = [std::f32::consts::LOG2_E, 1.925_963e-8];

/// `n + f`, the product `x * factor`, with an integer `n` and `f` in -0.5..=0.5; `n` is given as itself and as the low bits
/// of an integer whose other bits are those of [`ROUND`]. `factor` is a sum of two floats, the product lies in
/// -2^21..2^21, and `f` is as exact as f32 can hold it: the large part of the product is taken away inside of a fused
/// multiply-add.
#[inline(always)]
fn split(x: f32, factor: [f32; 2]) -> (f32, u32) {
    let shifted = x.mul_add(factor[0], ROUND);
    let n = shifted - ROUND;
    (x.mul_add(factor[1], x.mul_add(factor[0], -n)), shifted.to_bits())
}

/// `p` in `2^f = 1 + f p`, for `f` in -0.5..=0.5. Left apart, so that the product is fused with what it is added to.
#[inline(always)]
fn slope(f: f32) -> f32 {
    let mut p = 1.532_786_4e-4f32;
    p = p.mul_add(f, 1.339_099_8e-3);
    p = p.mul_add(f, 9.618_503e-3);
    p = p.mul_add(f, 5.550_359_6e-2);
    p = p.mul_add(f, 0.240_226_48);
    p.mul_add(f, std::f32::consts::LN_2)
}

/// `2^n` of a normal float's `n`, which may carry the offset of [`split`]: it is shifted out.
#[inline(always)]
fn power_of_two(n: u32) -> f32 {
    f32::from_bits(n.wrapping_add(127) << 23)
}

/// `e^x` of what is not above 0 (a score less the largest) within 2 ulp: exactly 1 at 0. Results that would be subnormal
/// may be 0; those below half of the smallest normal number are.
#[inline(always)]
pub fn exp_nonpositive(x: f32) -> f32 {
    // From here down n is -127, whose power of two comes out as the bits of 0.
    let (f, n) = split(larger(-88.0, x), LOG2_E);
    slope(f).mul_add(f, 1.0) * power_of_two(n)
}

/// `x / (1 + 2^(x * factor))`, for a `factor` below 0 (a sum of two floats) and a product in -80..=165.
///
/// The denominator is rounded once, in its last addition.
#[inline(always)]
fn divide_by_one_and_power(x: f32, factor: [f32; 2]) -> f32 {
    // Everything is scaled by 2^-40, so that no denominator overflows before its quotient is 0.
    const DOWN: u32 = 40;
    const ONE: f32 = 1.0 / (1u64 << DOWN) as f32;
    // Near the inverse of `slope`, which turns what the sum lost into a part of `f` in 0.84..1.2 of its size.
    const INVERSE_SLOPE: f32 = 1.4375;
    let (f, n) = split(x, factor);
    let power = power_of_two(n.wrapping_sub(DOWN));
    let sum = power + ONE;
    // 0 unless the power is 2^24 or more and the sum lost the one; without it that would be the larger half of the error.
    let lost = (sum - power).mul_add(-INVERSE_SLOPE, ONE * INVERSE_SLOPE);
    let denominator = slope(f).mul_add(f.mul_add(power, lost), sum);
    x / denominator * ONE
}

/// SiLU: `x / (1 + e^-x)`, within 2 ulp, subnormal results included.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    // Below -110 the result is 0; above 40 it is x.
    let quotient = divide_by_one_and_power(larger(-110.0, x), LOG2_E.map(|part| -part));
    if x > 40.0 { x } else { quotient }
}

/// GELU in its tanh form: `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`, within 2 ulp, subnormal results included.
///
/// Computed as `x / (1 + 2^-t)` with `t = x (A + B x^2)`, `A = 2 log2(e) sqrt(2 / pi)`, `B = 0.044715 A`, which is the same
/// function without its cancellation. An error of `t`, which reaches 150, is a relative error of the result; so the
/// factor of `x` is a sum of two floats.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    // A has 22 bits in its first part: then its difference to the sum below, whose last bit is 2^-20 or more, is exact.
    const A: [f32; 2] = [2.302_208, 2.513_67e-7];
    const B: [f32; 2] = [0.102_943_24, -2.016_198_5e-9];
    // Below -10.8 the result is 0; above 5.5 it is x.
    let low = larger(-10.8, x);
    let square = low * low;
    let square_rest = low.mul_add(low, -square);
    let sum = square.mul_add(B[0], A[0]);
    let rest = square.mul_add(B[0], A[0] - sum) + square_rest.mul_add(B[0], square.mul_add(B[1], A[1]));
    let quotient = divide_by_one_and_power(low, [-sum, -rest]);
    if x > 5.5 { x } else { quotient }
}
