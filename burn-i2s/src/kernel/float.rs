//! One portable loop, compiled once per instruction set.
//!
//! The float operations are written as ordinary Rust over slices and `[f32; 16]` lanes, in `#[inline(always)]` functions.
//! [`multiversion!`] wraps such a body in functions that enable more target features; the compiler inlines the body
//! into each and vectorises it there. Every level therefore runs the same source, in which each operation is exactly
//! rounded and explicitly ordered, and gives the same bits.

/// Declares `fn name(isa: Isa, args..)` that runs a body compiled for the given level.
///
/// A body is an `#[inline(always)]` function. Levels may use different instances of one generic body (register tiles
/// of another size), as long as the order of operations of each output stays the same.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:expr) => {
        $crate::kernel::float::multiversion! {
            $(#[$meta])* $vis fn $name($($arg: $ty),*) $(-> $ret)? { avx512: $body, avx2: $body, scalar: $body }
        }
    };
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? {
        avx512: $avx512:expr, avx2: $avx2:expr, scalar: $scalar:expr $(,)?
    }) => {
        $(#[$meta])*
        #[inline]
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                $avx512($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                $avx2($($arg),*)
            }

            match isa {
                $crate::isa::Isa::Scalar => $scalar($($arg),*),
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2(_) | $crate::isa::Isa::AvxVnni(_) => {
                    // SAFETY: both witnesses are built only where avx2, fma and f16c were detected.
                    unsafe { avx2($($arg),*) }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx512Bw(_) | $crate::isa::Isa::Avx512Vnni(_) => {
                    // SAFETY: both witnesses are built only where every feature that `avx512` enables was detected.
                    unsafe { avx512($($arg),*) }
                }
                // NEON and its fused multiply-add are what every function is compiled for on this architecture.
                #[cfg(target_arch = "aarch64")]
                $crate::isa::Isa::Neon(_) | $crate::isa::Isa::NeonDotprod(_) => $scalar($($arg),*),
            }
        }
    };
}
pub(crate) use multiversion;
