//! What is done to a vector after pooling, and measures between vectors.

use burn_i2s::isa::Isa;
use burn_i2s::pooling::l2_normalize;

/// How a vector is scaled. The names and meanings are those of llama.cpp's `--embd-normalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Normalization {
    /// As the model gives it (`-1`).
    None,
    /// The largest magnitude becomes 32760, so that values round to int16 (`0`).
    MaxAbs,
    /// Divided by the sum of magnitudes (`1`).
    Taxicab,
    /// Unit length (`2`).
    #[default]
    Euclidean,
    /// Divided by the p-norm, `p` above 2.
    PNorm(u32),
}

impl Normalization {
    /// The normalisation with that llama.cpp number; `None` below -1.
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            -1 => Self::None,
            0 => Self::MaxAbs,
            1 => Self::Taxicab,
            2 => Self::Euclidean,
            p => Self::PNorm(u32::try_from(p).ok()?),
        })
    }

    /// Scales a vector in place. A vector of zeros stays as it is.
    ///
    /// The sums other than the Euclidean one run over the vector in order in f64.
    pub fn apply(self, vector: &mut [f32]) {
        let magnitudes = || vector.iter().map(|&value| f64::from(value.abs()));
        let norm = match self {
            Self::None => return,
            Self::Euclidean => return l2_normalize(Isa::current(), vector),
            Self::MaxAbs => magnitudes().fold(0.0, f64::max) / 32760.0,
            Self::Taxicab => magnitudes().sum(),
            Self::PNorm(p) => {
                // The pure-Rust `pow`: the platform's differs in the last bit from machine to machine. Relative to the
                // largest, so that a high power neither overflows nor vanishes.
                let largest = magnitudes().fold(0.0, f64::max);
                let p = f64::from(p);
                let sum: f64 = magnitudes().map(|value| libm::pow(value / largest, p)).sum();
                largest * libm::pow(sum, 1.0 / p)
            }
        };
        if norm > 0.0 {
            vector.iter_mut().for_each(|value| *value = (f64::from(*value) / norm) as f32);
        }
    }
}

/// The cosine of the angle between two vectors of one length, in f64; 1 for two zero vectors, 0 for one.
pub fn cosine_similarity(a: &[f32], b: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| -> f64 { x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum() };
    let (aa, bb) = (dot(a, a), dot(b, b));
    if aa == 0.0 || bb == 0.0 {
        return if aa == bb { 1.0 } else { 0.0 };
    }
    // One root of the product, which squares of f32 cannot overflow: equal vectors then have exactly 1.
    dot(a, b) / (aa * bb).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(number: i32) -> Vec<f32> {
        let mut vector = vec![3.0, -4.0, 0.0];
        Normalization::from_number(number).unwrap().apply(&mut vector);
        vector
    }

    #[test]
    fn each_number_scales_as_llama_cpp_does() {
        assert_eq!(normalized(-1), [3.0, -4.0, 0.0]);
        assert_eq!(normalized(0), [24570.0, -32760.0, 0.0]);
        assert_eq!(normalized(1), [3.0 / 7.0, -4.0 / 7.0, 0.0]);
        assert_eq!(normalized(2), [0.6, -0.8, 0.0]);
        let cubic = normalized(3);
        let norm = (27.0f64 + 64.0).cbrt();
        assert!((f64::from(cubic[0]) - 3.0 / norm).abs() < 1e-6 && (f64::from(cubic[1]) + 4.0 / norm).abs() < 1e-6);
        assert_eq!(Normalization::from_number(-2), None);
    }

    #[test]
    fn zeros_stay_zeros_and_high_powers_stay_finite() {
        for number in [-1, 0, 1, 2, 3, i32::MAX] {
            let mut zeros = [0.0; 4];
            Normalization::from_number(number).unwrap().apply(&mut zeros);
            assert_eq!(zeros, [0.0; 4], "{number}");
            let mut huge = [1e30, -2e30];
            Normalization::from_number(number).unwrap().apply(&mut huge);
            assert!(huge.iter().all(|value| value.is_finite()), "{number}: {huge:?}");
        }
    }

    #[test]
    fn cosine_of_parallel_opposite_and_zero_vectors() {
        assert!((cosine_similarity(&[1.0, 2.0], &[2.0, 4.0]) - 1.0).abs() < 1e-15);
        assert!((cosine_similarity(&[1.0, 2.0], &[-1.0, -2.0]) + 1.0).abs() < 1e-15);
        assert_eq!(cosine_similarity(&[0.0], &[1.0]), 0.0);
        assert_eq!(cosine_similarity(&[0.0], &[0.0]), 1.0);
    }
}
