//! The speed limit: multiply-adds on registers alone, for rates to be stated as a part of.

use crate::isa::Isa;

/// Runs `rounds` rounds of the level's int8 multiply-add on registers and returns how many products that were.
///
/// `None` for levels without a vector multiply-add of their own.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(unused_variables, reason = "there is nothing to run")
)]
pub(crate) fn spin(isa: Isa, rounds: u64) -> Option<u64> {
    match isa {
        Isa::Scalar => None,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni(_) => {
            // SAFETY: the witness proves AVX-512 with VNNI.
            Some(unsafe { x86::avx512_vnni(rounds) })
        }
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni(_) => {
            // SAFETY: the witness proves AVX2 with AVX-VNNI.
            Some(unsafe { x86::avx_vnni(rounds) })
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bw(_) => {
            // SAFETY: the witness proves AVX-512 with byte and word operations.
            Some(unsafe { x86::avx512bw(rounds) })
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => {
            // SAFETY: the witness proves AVX2.
            Some(unsafe { x86::avx2(rounds) })
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon(_) => {
            // SAFETY: the witness proves NEON.
            Some(unsafe { arm::neon(rounds) })
        }
        #[cfg(target_arch = "aarch64")]
        Isa::NeonDotprod(_) => {
            // SAFETY: the witness proves NEON with the dot product.
            Some(unsafe { arm::neon_dotprod(rounds) })
        }
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
/// Chains that do not depend on each other: more than latency times throughput of any of the instructions.
const CHAINS: usize = 12;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! spin {
    ($name:ident, $features:literal, $zero:expr, $set:ident, $lanes:literal, |$acc:ident, $a:ident, $b:ident| $step:expr) => {
        #[target_feature(enable = $features)]
        pub(super) fn $name(rounds: u64) -> u64 {
            let ($a, $b) = ($set(black_box(2)), $set(black_box(1)));
            let mut acc = [$zero; CHAINS];
            for _ in 0..rounds {
                for acc in &mut acc {
                    let $acc = *acc;
                    *acc = $step;
                }
            }
            black_box(acc);
            rounds * CHAINS as u64 * $lanes
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::CHAINS;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    spin!(avx512_vnni, "avx512f,avx512vnni", _mm512_setzero_si512(), _mm512_set1_epi8, 64, |acc, a, b| {
        _mm512_dpbusd_epi32(acc, a, b)
    });
    spin!(avx_vnni, "avx2,avxvnni", _mm256_setzero_si256(), _mm256_set1_epi8, 32, |acc, a, b| {
        _mm256_dpbusd_avx_epi32(acc, a, b)
    });
    spin!(avx512bw, "avx512f,avx512bw", _mm512_setzero_si512(), _mm512_set1_epi8, 64, |acc, a, b| {
        _mm512_add_epi16(_mm512_maddubs_epi16(acc, a), b)
    });
    spin!(avx2, "avx2", _mm256_setzero_si256(), _mm256_set1_epi8, 32, |acc, a, b| {
        _mm256_add_epi16(_mm256_maddubs_epi16(acc, a), b)
    });
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::super::neon_dotprod::sdot;
    use super::CHAINS;
    use std::arch::aarch64::*;
    use std::hint::black_box;

    spin!(neon, "neon", vdupq_n_s16(0), vdupq_n_s8, 8, |acc, a, b| vmlal_high_s8(acc, a, b));
    spin!(neon_dotprod, "neon,dotprod", vdupq_n_s32(0), vdupq_n_s8, 16, |acc, a, b| sdot(acc, a, b));
}
