//! Which instructions this CPU has, and the proof that a kernel may use them.
//!
//! An [`Isa`] is a level: a set of instruction-set extensions that one family of kernels is compiled for. Its vector
//! variants carry a witness (a private unit value) that only the detection in this file can build, so holding
//! `Isa::Avx2(_)` proves that the running CPU and its operating system support AVX2. Kernels take the witness as an
//! argument instead of a promise in a comment.

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;

/// Declares a witness type, the features it stands for and their detection, in one place.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! witness {
    ($(#[$doc:meta])* $name:ident, $detected:ident, $($feature:tt),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(());

        impl $name {
            /// The `target_feature` names this witness proves.
            pub const FEATURES: &'static [&'static str] = &[$($feature),+];

            fn detect() -> Option<Self> {
                ($(std::arch::$detected!($feature))&&+).then_some(Self(()))
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
witness!(
    /// Proof of AVX2 and FMA (Haswell, Zen, and later).
    Avx2,
    is_x86_feature_detected,
    "avx2",
    "fma",
    "f16c"
);
#[cfg(target_arch = "x86_64")]
witness!(
    /// Proof of AVX2 with the VEX-coded dot product (Alder Lake, Sierra Forest, Zen 5, and later).
    AvxVnni,
    is_x86_feature_detected,
    "avx2",
    "fma",
    "f16c",
    "avxvnni"
);
#[cfg(target_arch = "x86_64")]
witness!(
    /// Proof of AVX-512 with byte and word operations (Skylake-X and later).
    Avx512Bw,
    is_x86_feature_detected,
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl"
);
#[cfg(target_arch = "x86_64")]
witness!(
    /// Proof of AVX-512 with the int8 dot product (Cascade Lake, Ice Lake, Zen 4, and later).
    Avx512Vnni,
    is_x86_feature_detected,
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512vnni"
);

#[cfg(target_arch = "aarch64")]
witness!(
    /// Proof of NEON (every 64-bit ARM CPU with an operating system). Fused multiply-add is part of it.
    Neon,
    is_aarch64_feature_detected,
    "neon"
);
#[cfg(target_arch = "aarch64")]
witness!(
    /// Proof of NEON with the int8 dot product (Cortex-A55 and A76, Neoverse, Apple A11 and M1, and later).
    NeonDotprod,
    is_aarch64_feature_detected,
    "neon",
    "dotprod"
);

/// A level of instruction-set support. Every level gives the same bits; they differ in speed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Portable code, and the definition that every other level is judged by.
    Scalar,
    /// 256-bit integer multiply-add (`vpmaddubsw`).
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 256-bit int8 dot product (`vpdpbusd`).
    #[cfg(target_arch = "x86_64")]
    AvxVnni(AvxVnni),
    /// 512-bit integer multiply-add (`vpmaddubsw`).
    #[cfg(target_arch = "x86_64")]
    Avx512Bw(Avx512Bw),
    /// 512-bit int8 dot product (`vpdpbusd`).
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Avx512Vnni),
    /// 128-bit integer multiply-add (`smlal`).
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    /// 128-bit int8 dot product (`sdot`).
    #[cfg(target_arch = "aarch64")]
    NeonDotprod(NeonDotprod),
}

thread_local! {
    static OVERRIDE: Cell<Option<Isa>> = const { Cell::new(None) };
}

impl Isa {
    /// Every level this CPU supports, best first; the last is always [`Isa::Scalar`].
    pub fn available() -> &'static [Isa] {
        static AVAILABLE: OnceLock<Vec<Isa>> = OnceLock::new();
        AVAILABLE.get_or_init(|| {
            let mut levels = Vec::new();
            #[cfg(target_arch = "x86_64")]
            {
                levels.extend(Avx512Vnni::detect().map(Isa::Avx512Vnni));
                levels.extend(Avx512Bw::detect().map(Isa::Avx512Bw));
                levels.extend(AvxVnni::detect().map(Isa::AvxVnni));
                levels.extend(Avx2::detect().map(Isa::Avx2));
            }
            #[cfg(target_arch = "aarch64")]
            {
                levels.extend(NeonDotprod::detect().map(Isa::NeonDotprod));
                levels.extend(Neon::detect().map(Isa::Neon));
            }
            levels.push(Isa::Scalar);
            levels
        })
    }

    /// The best level of this CPU.
    pub fn best() -> Isa {
        Self::available()[0]
    }

    /// The level that operations started on this thread use: the one set by [`Isa::scope`], else [`Isa::best`].
    pub fn current() -> Isa {
        OVERRIDE.get().unwrap_or_else(Self::best)
    }

    /// Runs `f` with `self` as this thread's [`Isa::current`].
    ///
    /// An operation reads the level once, on the thread that starts it, and hands it to its workers; so inside a
    /// thread pool call this within `install`, not around it.
    pub fn scope<R>(self, f: impl FnOnce() -> R) -> R {
        /// Restores the previous level when dropped, so that a panic in `f` does not leave the override behind.
        struct Restore(Option<Isa>);
        impl Drop for Restore {
            fn drop(&mut self) {
                OVERRIDE.set(self.0);
            }
        }
        let _restore = Restore(OVERRIDE.replace(Some(self)));
        f()
    }

    /// The level's name: `scalar`; on x86 also `avx2`, `avx-vnni`, `avx512bw` and `avx512-vnni`; on ARM also `neon` and
    /// `neon-dotprod`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni(_) => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bw(_) => "avx512bw",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni(_) => "avx512-vnni",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDotprod(_) => "neon-dotprod",
        }
    }

    /// The level of that [name](Isa::name), if this CPU supports it.
    pub fn from_name(name: &str) -> Option<Isa> {
        Self::available().iter().copied().find(|isa| isa.name() == name)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_ordered_ends_in_scalar_and_names_round_trip() {
        let levels = Isa::available();
        assert_eq!(levels.last(), Some(&Isa::Scalar));
        assert_eq!(levels[0], Isa::best());
        for &isa in levels {
            assert_eq!(Isa::from_name(isa.name()), Some(isa));
        }
        assert_eq!(Isa::from_name("sse9"), None);
    }

    #[test]
    fn a_scope_ends_with_its_closure_even_when_it_panics() {
        let outside = Isa::current();
        assert_eq!(Isa::Scalar.scope(Isa::current), Isa::Scalar);
        let panicked = std::panic::catch_unwind(|| Isa::Scalar.scope(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(Isa::current(), outside);
    }
}
