//! Per-head RMSNorm of queries and keys, and their rotary position embedding.

use rayon::prelude::*;

use crate::isa::Isa;
use crate::kernel::float::multiversion;
use crate::lanes::LANES;
use crate::rms::{TOGETHER, inverse_rms_together};
use crate::threads::units_per_job;

/// Sines and cosines of the rotary angles `position * base^(-2 i / head_dim)`.
///
/// Angles are f64, and each sine and cosine is rounded once: f32 angles are off by milliradians at long positions.
#[derive(Clone, Debug)]
pub struct RopeTable {
    half: usize,
    frequencies: Vec<f64>,
    /// `[positions, half]`.
    cos: Vec<f32>,
    /// `[positions, half]`.
    sin: Vec<f32>,
}

impl RopeTable {
    /// A table for `positions` positions, from 0 on; it takes `4 * head_dim` bytes per position.
    ///
    /// # Panics
    /// When `head_dim` is odd or zero.
    pub fn new(head_dim: usize, base: f64, positions: usize) -> Self {
        assert!(head_dim > 0 && head_dim.is_multiple_of(2), "head_dim {head_dim} cannot be rotated in halves");
        let half = head_dim / 2;
        let frequencies = (0..half).map(|i| libm::pow(base, -2.0 * i as f64 / head_dim as f64)).collect();
        let mut table = Self { half, frequencies, cos: Vec::new(), sin: Vec::new() };
        table.extend_to(positions);
        table
    }

    /// Makes the table cover at least `positions` positions. Whoever lets a file or a request choose that number bounds
    /// it first.
    pub fn extend_to(&mut self, positions: usize) {
        let have = self.positions();
        if positions <= have {
            return;
        }
        self.cos.reserve_exact((positions - have) * self.half);
        self.sin.reserve_exact((positions - have) * self.half);
        for position in have..positions {
            for &frequency in &self.frequencies {
                let (sin, cos) = libm::sincos(position as f64 * frequency);
                self.cos.push(cos as f32);
                self.sin.push(sin as f32);
            }
        }
    }

    /// Number of positions covered.
    pub fn positions(&self) -> usize {
        self.cos.len() / self.half
    }

    /// The cosines and sines of a position, which the table covers.
    fn at(&self, position: u32) -> (&[f32], &[f32]) {
        let at = position as usize * self.half;
        (&self.cos[at..at + self.half], &self.sin[at..at + self.half])
    }

    /// The head dimension the table is for.
    pub fn head_dim(&self) -> usize {
        2 * self.half
    }
}

/// Normalises each head and rotates its halves by the token's position, in place.
///
/// `x` is `[tokens, heads * head_dim]`, `norm_weight` `[head_dim]`, `positions` `[tokens]`. With `a`, `b` the halves of
/// a normalised head: `a' = a cos - b sin`, `b' = b cos + a sin`; the sine products are rounded, the rest is fused.
///
/// # Panics
/// When the shapes do not fit together, or a position is outside the table.
pub fn head_norm_rope(
    isa: Isa,
    x: &mut [f32],
    head_dim: usize,
    norm_weight: &[f32],
    eps: f32,
    table: &RopeTable,
    positions: &[u32],
) {
    assert_eq!(head_dim, table.head_dim(), "head_dim of the table");
    assert_eq!(head_dim, norm_weight.len(), "head_dim of the norm weight");
    if positions.is_empty() {
        assert!(x.is_empty(), "{} values of no token", x.len());
        return;
    }
    let width = x.len() / positions.len();
    assert!(
        width.is_multiple_of(head_dim) && width * positions.len() == x.len(),
        "{} values are not {} tokens of whole heads",
        x.len(),
        positions.len()
    );
    let covered = table.positions();
    assert!(positions.iter().all(|&p| (p as usize) < covered), "a position is outside the table's {covered}");
    if width == 0 {
        return;
    }
    let job = units_per_job(positions.len(), 2 * width);
    let run = |x: &mut [f32], positions: &[u32]| {
        for (x, &position) in x.chunks_exact_mut(width).zip(positions) {
            let angles = table.at(position);
            for heads in x.chunks_mut(TOGETHER * head_dim) {
                let factors = inverse_rms_together(isa, heads, head_dim, eps);
                for (head, factor) in heads.chunks_exact_mut(head_dim).zip(factors) {
                    rotate(isa, head, factor, norm_weight, angles);
                }
            }
        }
    };
    if job >= positions.len() {
        return run(x, positions);
    }
    x.par_chunks_mut(job * width).zip(positions.par_chunks(job)).for_each(|(x, positions)| run(x, positions));
}

/// Scales a head by its factor and the weight, and rotates it by the angles' `(cos, sin)`.
#[inline(always)]
fn rotate_body(head: &mut [f32], factor: f32, norm_weight: &[f32], (cos, sin): (&[f32], &[f32])) {
    let (weight_a, weight_b) = norm_weight.split_at(cos.len());
    let (a, b) = head.split_at_mut(cos.len());
    let (a, a_tail) = a.as_chunks_mut::<LANES>();
    let (b, b_tail) = b.as_chunks_mut::<LANES>();
    let [wa, wb, c, s] = [weight_a, weight_b, cos, sin].map(|x| x.as_chunks::<LANES>());
    // Equal lengths, seen by the compiler: one index and no checks.
    let groups = a.len();
    let (b, wa_groups, wb_groups) = (&mut b[..groups], &wa.0[..groups], &wb.0[..groups]);
    let (c_groups, s_groups) = (&c.0[..groups], &s.0[..groups]);
    for group in 0..groups {
        let (a, b) = (&mut a[group], &mut b[group]);
        let (wa, wb, c, s) = (&wa_groups[group], &wb_groups[group], &c_groups[group], &s_groups[group]);
        for i in 0..LANES {
            (a[i], b[i]) = rotate_pair((a[i] * factor * wa[i], b[i] * factor * wb[i]), (c[i], s[i]));
        }
    }
    for (i, (a, b)) in a_tail.iter_mut().zip(b_tail).enumerate() {
        (*a, *b) = rotate_pair((*a * factor * wa.1[i], *b * factor * wb.1[i]), (c.1[i], s.1[i]));
    }
}

#[inline(always)]
fn rotate_pair((a, b): (f32, f32), (cos, sin): (f32, f32)) -> (f32, f32) {
    (a.mul_add(cos, -(b * sin)), b.mul_add(cos, a * sin))
}

multiversion!(fn rotate(head: &mut [f32], factor: f32, norm_weight: &[f32], angles: (&[f32], &[f32])) = rotate_body);
