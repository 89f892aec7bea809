//! 16-bit floats to f32.
//!
//! The values are those of the hardware's f16 conversion, which the vector levels use: NaN payloads are kept, made quiet.

use crate::kernel::float::multiversion;
pub(crate) use crate::kernel::float_half::decode_f16;

/// The f32 of an f16's bits.
#[inline]
pub(crate) fn f16_value(bits: u16) -> f32 {
    const EXPONENT: u32 = 0x0F80_0000;
    // A subnormal f16 is its mantissa times 2^-24: attach it to 2^-14 and subtract that again.
    const SMALLEST_NORMAL: f32 = 6.103_515_6e-5;
    let magnitude = (u32::from(bits) & 0x7FFF) << 13;
    let exponent = magnitude & EXPONENT;
    let rebased = magnitude + (112 << 23);
    let subnormal = (f32::from_bits(rebased + (1 << 23)) - SMALLEST_NORMAL).to_bits();
    let quiet = if magnitude > EXPONENT { 1 << 22 } else { 0 };
    let special = magnitude | 0x7F80_0000 | quiet;
    let value = if exponent == 0 { subnormal } else { rebased };
    let value = if exponent == EXPONENT { special } else { value };
    f32::from_bits(value | (u32::from(bits) & 0x8000) << 16)
}

/// The f32 of a bfloat16's bits.
#[inline(always)]
fn bf16_value(bits: u16) -> f32 {
    let bits = u32::from(bits) << 16;
    let quiet = if bits & 0x7FFF_FFFF > 0x7F80_0000 { 1 << 22 } else { 0 };
    f32::from_bits(bits | quiet)
}

#[inline(always)]
fn decode_bf16_body(bytes: &[u8], out: &mut [f32]) {
    for (out, &pair) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *out = bf16_value(u16::from_le_bytes(pair));
    }
}

multiversion!(
    /// Decodes little-endian bfloat16 values, as many as both slices hold.
    pub(crate) fn decode_bf16(bytes: &[u8], out: &mut [f32]) = decode_bf16_body
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    fn every_bit_pattern() -> Vec<u8> {
        (0..=u16::MAX).flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn every_f16_and_bf16_decodes_to_its_value_on_every_level() {
        let bytes = every_bit_pattern();
        let mut out = vec![0.0; 1 << 16];
        for &isa in Isa::available() {
            for (decode, reference) in [
                (decode_f16 as fn(Isa, &[u8], &mut [f32]), (|b| half::f16::from_bits(b).to_f32()) as fn(u16) -> f32),
                (decode_bf16, |b| half::bf16::from_bits(b).to_f32()),
            ] {
                decode(isa, &bytes, &mut out);
                for (bits, value) in out.iter().enumerate() {
                    let expected = reference(bits as u16);
                    assert_eq!(value.to_bits(), expected.to_bits(), "{isa}: {bits:#06x} is {value}, not {expected}");
                }
            }
        }
    }
}
