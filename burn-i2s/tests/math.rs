//! exp, SiLU and GELU against f64.

use burn_i2s::math::{exp, gelu_tanh, silu};

/// Distance of `value` from `exact` in units of the last place of an f32 of that size (subnormals included).
fn ulps(value: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if rounded.is_infinite() {
        return if value == rounded { 0.0 } else { f64::INFINITY };
    }
    let magnitude = rounded.abs().max(f32::MIN_POSITIVE);
    let ulp = f64::from(f32::from_bits(magnitude.to_bits() + 1)) - f64::from(magnitude);
    (f64::from(value) - exact).abs() / ulp
}

/// Every 509th f32 of both signs and a dense sweep of -110..110.
fn arguments() -> impl Iterator<Item = f32> {
    let every = (0..=u32::MAX).step_by(509).map(f32::from_bits).filter(|x| x.is_finite());
    every.chain((-5_500_000..=5_500_000).map(|i| i as f32 * 2e-5))
}

/// The worst of `error` over those arguments, and where.
fn worst(arguments: impl Iterator<Item = f32>, error: impl Fn(f32) -> f64) -> (f64, f32) {
    let worse = |worst: (f64, f32), this: (f64, f32)| if this.0 > worst.0 || this.0.is_nan() { this } else { worst };
    arguments.map(|x| (error(x), x)).fold((0.0, 0.0), worse)
}

#[test]
fn exp_is_within_2_ulp() {
    let (error, at) = worst(arguments(), |x| ulps(exp(x), libm::exp(f64::from(x))));
    println!("exp: {error:.3} ulp at {at}");
    assert!(error <= 2.0, "{error} ulp at {at}");
}

#[test]
fn silu_is_within_3_ulp_and_0_where_it_is_next_to_nothing() {
    fn exact(x: f32) -> f64 {
        f64::from(x) / (1.0 + libm::exp(-f64::from(x)))
    }
    let (error, at) = worst(arguments().filter(|&x| x >= -86.0), |x| ulps(silu(x), exact(x)));
    println!("silu: {error:.3} ulp at {at}");
    assert!(error <= 3.0, "{error} ulp at {at}");
    let (error, at) = worst(arguments().filter(|&x| x < -86.0), |x| (f64::from(silu(x)) - exact(x)).abs());
    assert!(error <= 4e-36, "{error} at {at}");
}

#[test]
fn gelu_is_within_4_ulp_above_0_and_6e_8_below() {
    // The same function as 0.5 x (1 + tanh(u)), whose f64 evaluation cancels for negative x.
    fn exact(x: f32) -> f64 {
        let x = f64::from(x);
        let t = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        x / (1.0 + libm::exp(-t))
    }
    let (error, at) = worst(arguments().filter(|&x| x >= 0.0), |x| ulps(gelu_tanh(x), exact(x)));
    println!("gelu: {error:.3} ulp at {at}");
    assert!(error <= 4.0, "{error} ulp at {at}");
    let (error, at) = worst(arguments().filter(|&x| x < 0.0), |x| (f64::from(gelu_tanh(x)) - exact(x)).abs());
    println!("gelu: {error:e} at {at}");
    assert!(error <= 6e-8, "{error} at {at}");
    // Near 0, where most activations are, negative ones are as close as positive ones.
    let (error, at) = worst(arguments().filter(|&x| (-0.5..0.0).contains(&x)), |x| ulps(gelu_tanh(x), exact(x)));
    assert!(error <= 4.0, "{error} ulp at {at}");
}

#[test]
fn exact_points_and_limits() {
    assert_eq!(exp(0.0), 1.0);
    assert_eq!(exp(-0.0), 1.0);
    assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    assert_eq!(exp(f32::MIN), 0.0);
    assert_eq!(exp(f32::INFINITY), f32::INFINITY);
    assert_eq!(exp(89.0), f32::INFINITY);
    assert_eq!(exp(-103.0).to_bits(), 1, "the smallest subnormal");
    for f in [silu, gelu_tanh] {
        assert_eq!(f(0.0).to_bits(), 0);
        assert_eq!(f(-0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(f(f32::NEG_INFINITY), 0.0);
        assert_eq!(f(f32::INFINITY), f32::INFINITY);
        assert_eq!(f(f32::MAX), f32::MAX);
        assert_eq!(f(f32::MIN), 0.0);
        assert!(f(f32::NAN).is_nan());
    }
    assert!(exp(f32::NAN).is_nan());
}
