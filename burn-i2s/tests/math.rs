//! exp, SiLU and GELU against f64, in ulp: the distance between neighbouring f32 at the exact result, in every binade.

use burn_i2s::math::{exp_nonpositive, gelu_tanh, silu};

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
    every(509).chain((-5_500_000..=5_500_000).map(|i| i as f32 * 2e-5))
}

fn every(step: usize) -> impl Iterator<Item = f32> {
    (0..=u32::MAX).step_by(step).map(f32::from_bits).filter(|x| x.is_finite())
}

/// The logarithm of the smallest normal number.
const LOWEST_NORMAL: f32 = -87.336_54;

/// A function of this crate, and what it should be.
type Pair = (&'static str, fn(f32) -> f32, fn(f64) -> f64);

fn pairs() -> [Pair; 3] {
    [
        // Above 0 it promises nothing; below, what would be subnormal has a test of its own.
        (
            "exp",
            |x| if x <= 0.0 && x > LOWEST_NORMAL { exp_nonpositive(x) } else { 1.0 },
            |x| {
                if x <= 0.0 && x > f64::from(LOWEST_NORMAL) { libm::exp(x) } else { 1.0 }
            },
        ),
        ("silu", silu, |x| x / (1.0 + libm::exp(-x))),
        // The same function as 0.5 x (1 + tanh(u)), whose f64 evaluation cancels for negative x.
        ("gelu_tanh", gelu_tanh, |x| {
            let t = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x / (1.0 + libm::exp(-t))
        }),
    ]
}

/// Holds a function to 2 ulp on `arguments`.
fn within_2_ulp((name, function, exact): Pair, arguments: impl Iterator<Item = f32>) {
    let worse = |worst: (f64, f32), this: (f64, f32)| if this.0 > worst.0 || this.0.is_nan() { this } else { worst };
    let (error, at) = arguments.map(|x| (ulps(function(x), exact(f64::from(x))), x)).fold((0.0, 0.0), worse);
    println!("{name}: {error:.3} ulp at {at:e}");
    assert!(error <= 2.0, "{name}: {error} ulp at {at:e}");
}

#[test]
fn each_is_within_2_ulp() {
    pairs().into_iter().for_each(|pair| within_2_ulp(pair, arguments()));
}

#[test]
#[ignore = "minutes; cargo test --release -p burn-i2s --no-default-features --test math -- --ignored --nocapture"]
fn each_is_within_2_ulp_everywhere() {
    std::thread::scope(|scope| {
        for pair in pairs() {
            scope.spawn(move || within_2_ulp(pair, every(1)));
        }
    });
}

#[test]
fn exp_falls_to_zero_among_the_subnormals() {
    let mut last = f32::INFINITY;
    for i in 0..400_000 {
        let x = LOWEST_NORMAL - i as f32 * 1e-4;
        let (value, exact) = (exp_nonpositive(x), libm::exp(f64::from(x)));
        assert!(value == 0.0 || ulps(value, exact) <= 2.0, "{value:e} at {x}");
        assert!(value <= last && (value > 0.0 || exact < 0.75 * f64::from(f32::MIN_POSITIVE)), "{value:e} at {x}");
        last = value;
    }
    assert_eq!(last, 0.0);
}

#[test]
fn exact_points_and_limits() {
    assert_eq!(exp_nonpositive(0.0), 1.0);
    assert_eq!(exp_nonpositive(-0.0), 1.0);
    assert_eq!(exp_nonpositive(f32::NEG_INFINITY), 0.0);
    assert_eq!(exp_nonpositive(f32::MIN), 0.0);
    assert!(exp_nonpositive(f32::NAN).is_nan());
    for f in [silu, gelu_tanh] {
        assert_eq!(f(0.0).to_bits(), 0);
        assert_eq!(f(-0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(f(f32::NEG_INFINITY), 0.0);
        assert_eq!(f(f32::INFINITY), f32::INFINITY);
        assert_eq!(f(f32::MAX), f32::MAX);
        assert_eq!(f(f32::MIN), 0.0);
        assert_eq!(f(1e-44), 5e-45, "half of a subnormal");
        assert!(f(f32::NAN).is_nan());
    }
}
