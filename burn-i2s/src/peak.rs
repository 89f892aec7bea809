//! What the CPU could do at best: the yardstick of the benchmarks.

use std::hint::black_box;
use std::time::Instant;

use crate::isa::Isa;
use crate::kernel::float::multiversion;
use crate::lanes::LANES;

/// Fused multiply-adds per second of one thread when nothing but registers is used, over `rounds` rounds (about 400
/// of them each; a million rounds take some milliseconds).
pub fn fma_peak(isa: Isa, rounds: usize) -> f64 {
    let start = Instant::now();
    spin_fma(isa, rounds) as f64 / start.elapsed().as_secs_f64()
}

/// Does the multiply-adds of [`fma_peak`] and returns how many there were, to be timed by another clock.
pub fn spin_fma(isa: Isa, rounds: usize) -> u64 {
    chains(isa, black_box(0.5), black_box(1e-3), rounds) as u64
}

/// `M * N` independent groups of chains, enough to cover the latency of the instruction and few enough for the registers.
/// Nested as in [`tile`](crate::lanes::tile), which the compiler is known to keep in registers.
#[expect(clippy::needless_range_loop, reason = "the shape of `tile`")]
#[inline(always)]
fn chains_body<const M: usize, const N: usize>(factor: f32, term: f32, rounds: usize) -> usize {
    let mut sums = [[[0.0f32; LANES]; N]; M];
    for _ in 0..rounds {
        for i in 0..M {
            for j in 0..N {
                for lane in 0..LANES {
                    sums[i][j][lane] = sums[i][j][lane].mul_add(factor, term);
                }
            }
        }
    }
    black_box(sums);
    rounds * M * N * LANES
}

multiversion!(
    fn chains(factor: f32, term: f32, rounds: usize) -> usize {
        avx512: chains_body::<6, 4>,
        avx2: chains_body::<6, 1>,
        scalar: chains_body::<6, 1>,
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_a_plausible_rate_on_every_level() {
        for &isa in Isa::available() {
            let peak = fma_peak(isa, 10_000);
            assert!(peak > 1e6 && peak < 1e13, "{isa}: {peak}");
        }
    }
}
