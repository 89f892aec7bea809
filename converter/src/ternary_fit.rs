//! How well ternary weights describe a matrix: whether it was trained to be ternary, and whether it already is.

use burn_i2s::layout::{self, BLOCK};
use rayon::prelude::*;

/// The relative error above which a matrix was not trained to be ternary.
///
/// The error of absmean weights is `|w - s q|^2 / |w|^2`. For normally distributed weights, which is what training starts
/// with, it is 0.26, and training with ternary weights lowers it; for weights that decay as `exp(-|w|)` it is 0.39. A few
/// outliers that carry most of the norm, as models trained in full precision have them, go beyond a half.
pub const MAX_RELATIVE_ERROR: f64 = 0.5;

/// Blocks per task of the thread pool.
const TASK_BLOCKS: usize = 1 << 9;

/// How well a matrix is described by its ternary form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TernaryFit {
    /// `|w - s q|^2 / |w|^2`: 0 if nothing is lost, 1 if everything is.
    pub relative_error: f64,
    /// The magnitude of all weights that are not zero, if they have but one: the matrix was ternary already.
    pub magnitude: Option<f32>,
    /// The scale in the file.
    pub scale: f32,
}

impl TernaryFit {
    /// Compares values with their packed form; `None` for a matrix of zeros, which says nothing.
    pub fn of(values: &[f32], packed: &[u8]) -> Option<Self> {
        let (blocks, scale) = layout::split(packed)?;
        let largest = values.par_iter().map(|value| value.abs()).reduce(|| 0.0, f32::max);
        if largest == 0.0 {
            return None;
        }
        // Summed per task and then in order, so that the figure does not depend on the number of threads.
        let sums: Vec<(f64, f64, bool)> = blocks
            .par_chunks(TASK_BLOCKS)
            .zip(values.par_chunks(TASK_BLOCKS * BLOCK))
            .map(|(blocks, values)| {
                let weights = burn_i2s::pack::unpack(blocks);
                let (mut lost, mut all, mut ternary) = (0.0, 0.0, true);
                for (&value, weight) in values.iter().zip(weights) {
                    lost += f64::from(value - scale * f32::from(weight)).powi(2);
                    all += f64::from(value).powi(2);
                    ternary &= value == 0.0 || value.abs() == largest;
                }
                (lost, all, ternary)
            })
            .collect();
        let lost: f64 = sums.iter().map(|sum| sum.0).sum();
        let all: f64 = sums.iter().map(|sum| sum.1).sum();
        let ternary = sums.iter().all(|sum| sum.2);
        Some(Self { relative_error: lost / all, magnitude: ternary.then_some(largest), scale })
    }

    /// Whether a model trained to be ternary can have such a matrix.
    pub fn is_plausible(&self) -> bool {
        self.magnitude.is_some() || self.relative_error <= MAX_RELATIVE_ERROR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(values: &[f32]) -> TernaryFit {
        TernaryFit::of(values, &burn_i2s::pack::ternarize_and_pack(values).expect("whole blocks")).expect("not zero")
    }

    /// Nearly normal numbers: sums of twelve uniform ones.
    fn normal(count: usize) -> Vec<f32> {
        let mut state = 1_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        (0..count).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
    }

    #[test]
    fn normal_weights_are_plausible_and_a_few_outliers_are_not() {
        let mut values = normal(1 << 14);
        let plain = fit(&values);
        assert!((plain.relative_error - 0.26).abs() < 0.01 && plain.is_plausible(), "{plain:?}");
        for value in values.iter_mut().step_by(997) {
            *value *= 60.0;
        }
        assert!(!fit(&values).is_plausible(), "{:?}", fit(&values));
    }

    #[test]
    fn ternary_weights_are_recognised_whatever_their_density() {
        let values: Vec<f32> = (0..BLOCK * 4).map(|i| [0.25, -0.25, 0.0, -0.0][i % 4]).collect();
        let found = fit(&values);
        assert_eq!((found.magnitude, found.scale), (Some(0.25), 0.125));
        let sparse: Vec<f32> = (0..BLOCK * 4).map(|i| if i % 64 == 0 { 0.5 } else { 0.0 }).collect();
        assert!(fit(&sparse).is_plausible() && fit(&sparse).relative_error > MAX_RELATIVE_ERROR);
        assert_eq!(
            TernaryFit::of(&[0.0; BLOCK], &burn_i2s::pack::ternarize_and_pack(&[0.0; BLOCK]).expect("one")),
            None
        );
    }
}
