//! The hardware's f16 conversion, where there is one; a tenth of the work of the portable one.

use crate::half_float::f16_value;
use crate::isa::Isa;

/// Decodes little-endian f16 values, as many as both slices hold.
pub(crate) fn decode_f16(isa: Isa, bytes: &[u8], out: &mut [f32]) {
    let values = bytes.as_chunks::<2>().0;
    let len = values.len().min(out.len());
    let (values, out) = (&values[..len], &mut out[..len]);
    match isa {
        Isa::Scalar => decode_rest(values, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) | Isa::AvxVnni(_) => {
            let (chunks, rest) = values.as_chunks::<8>();
            let (out_chunks, out_rest) = out.as_chunks_mut::<8>();
            // SAFETY: both witnesses are built only where f16c was detected, which includes avx.
            unsafe { x86::decode_8(chunks, out_chunks) };
            decode_rest(rest, out_rest);
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bw(_) | Isa::Avx512Vnni(_) => {
            let (chunks, rest) = values.as_chunks::<16>();
            let (out_chunks, out_rest) = out.as_chunks_mut::<16>();
            // SAFETY: both witnesses are built only where avx512f was detected.
            unsafe { x86::decode_16(chunks, out_chunks) };
            decode_rest(rest, out_rest);
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon(_) | Isa::NeonDotprod(_) => decode_rest(values, out),
    }
}

fn decode_rest(values: &[[u8; 2]], out: &mut [f32]) {
    for (out, &value) in out.iter_mut().zip(values) {
        *out = f16_value(u16::from_le_bytes(value));
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx,f16c")]
    pub(super) fn decode_8(values: &[[[u8; 2]; 8]], out: &mut [[f32; 8]]) {
        for (values, out) in values.iter().zip(out) {
            // SAFETY: `values` is 16 readable bytes; the load needs no alignment.
            let values = unsafe { _mm_loadu_si128(values.as_ptr().cast()) };
            // SAFETY: `out` is 8 writable floats; the store needs no alignment.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(values)) };
        }
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn decode_16(values: &[[[u8; 2]; 16]], out: &mut [[f32; 16]]) {
        for (values, out) in values.iter().zip(out) {
            // SAFETY: `values` is 32 readable bytes; the load needs no alignment.
            let values = unsafe { _mm256_loadu_si256(values.as_ptr().cast()) };
            // SAFETY: `out` is 16 writable floats; the store needs no alignment.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), _mm512_cvtph_ps(values)) };
        }
    }
}
