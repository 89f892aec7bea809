//! Decoding of GGML's block formats to f32, one block at a time.
//!
//! The values are those of the `gguf` Python package, bit for bit: the same operations in the same order, each rounded
//! once (a product and a difference are never fused). Every function is inlined into its caller, so that a caller compiled
//! for more instructions has it compiled for them too; the loops are written to vectorise and hold no branch.

/// IEEE half precision to f32, exactly; NaNs become quiet, as conversion instructions make them.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    const MAGNITUDE: u32 = 0x7fff;
    const INFINITY: u32 = 0x7c00;
    const SMALLEST_NORMAL: u32 = 0x0400;
    let sign = (u32::from(bits) & !MAGNITUDE) << 16;
    let magnitude = u32::from(bits) & MAGNITUDE;
    // Exponent and fraction moved to where f32 has them; the exponent still lacks the difference of the biases, 112.
    let moved = magnitude << 13;
    let normal = moved + (112 << 23);
    // A subnormal has no leading one: add one by taking the exponent of the smallest normal, then take it away again.
    let subnormal = (f32::from_bits(moved + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let quiet = if magnitude > INFINITY { 0x0040_0000 } else { 0 };
    let special = moved | 0x7f80_0000 | quiet;
    let value = if magnitude < SMALLEST_NORMAL { subnormal } else { normal };
    f32::from_bits(sign | if magnitude >= INFINITY { special } else { value })
}

/// bfloat16 to f32, exactly.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The f16 at a place in a block.
#[inline(always)]
fn half_at(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// One f32.
#[inline(always)]
pub(super) fn f32(block: &[u8; 4], [value]: &mut [f32; 1]) {
    *value = f32::from_le_bytes(*block);
}

/// One f16.
#[inline(always)]
pub(super) fn f16(block: &[u8; 2], [value]: &mut [f32; 1]) {
    *value = f16_to_f32(u16::from_le_bytes(*block));
}

/// One bfloat16.
#[inline(always)]
pub(super) fn bf16(block: &[u8; 2], [value]: &mut [f32; 1]) {
    *value = bf16_to_f32(u16::from_le_bytes(*block));
}

/// `d: f16 | 32 x i8`: `d * q`.
#[inline(always)]
pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = half_at(block, 0);
    for (value, q) in out.iter_mut().zip(&block[2..]) {
        *value = f32::from(*q as i8) * d;
    }
}

/// `d: f16 | 16 bytes`: `d * (q - 8)`, low nibbles first.
#[inline(always)]
pub(super) fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = half_at(block, 0);
    // One loop over 32 bytes vectorises; two of 16 are unrolled first and do not.
    let mut twice = [0; 32];
    twice[..16].copy_from_slice(&block[2..]);
    twice[16..].copy_from_slice(&block[2..]);
    for (j, (value, byte)) in out.iter_mut().zip(twice).enumerate() {
        let q = if j < 16 { byte & 15 } else { byte >> 4 };
        *value = d * f32::from(q as i8 - 8);
    }
}

/// `d: f16 | 32 fifth bits | 16 bytes`: `d * (q - 16)`, low nibbles first.
#[inline(always)]
pub(super) fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let d = half_at(block, 0);
    let fifth = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    let (low, high) = out.split_at_mut(16);
    for (j, ((low, high), byte)) in low.iter_mut().zip(high).zip(&block[6..]).enumerate() {
        let q = |nibble: u8, bit: usize| f32::from((nibble | ((((fifth >> bit) & 1) as u8) << 4)) as i8 - 16);
        *low = d * q(byte & 15, j);
        *high = d * q(byte >> 4, j + 16);
    }
}

/// The six-bit scales and minima of the eight sub-blocks of Q4_K and Q5_K.
///
/// ```text
/// bytes 0..4   the scales 0..4 in the low six bits, bits 4-5 of the scales 4..8 above
/// bytes 4..8   the minima, likewise
/// bytes 8..12  bits 0-3 of the scales 4..8 in the low nibble, of the minima 4..8 in the high one
/// ```
#[inline(always)]
fn scales_and_minima(packed: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut minima) = ([0; 8], [0; 8]);
    for j in 0..4 {
        let (scale, minimum, both) = (packed[j], packed[j + 4], packed[j + 8]);
        scales[j] = scale & 0x3f;
        minima[j] = minimum & 0x3f;
        scales[j + 4] = (both & 15) | ((scale >> 2) & 0x30);
        minima[j + 4] = (both >> 4) | ((minimum >> 2) & 0x30);
    }
    (scales, minima)
}

/// `d, dmin: f16 | 12 bytes of scales and minima | 128 bytes`: `d * scale * q - dmin * minimum` per 32 values; a pair of
/// sub-blocks shares 32 bytes, the low nibbles first.
#[inline(always)]
pub(super) fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, minima) = scales_and_minima(&block[4..16]);
    let (pairs, _) = block[16..].as_chunks::<32>();
    let (subs, _) = out.as_chunks_mut::<32>();
    for (pair, bytes) in pairs.iter().enumerate() {
        let (low, high) = (2 * pair, 2 * pair + 1);
        let (scale, minimum) = (d * f32::from(scales[low]), dmin * f32::from(minima[low]));
        for (value, byte) in subs[low].iter_mut().zip(bytes) {
            *value = scale * i32::from(byte & 15) as f32 - minimum;
        }
        let (scale, minimum) = (d * f32::from(scales[high]), dmin * f32::from(minima[high]));
        for (value, byte) in subs[high].iter_mut().zip(bytes) {
            *value = scale * i32::from(byte >> 4) as f32 - minimum;
        }
    }
}

/// As [`q4_k`], with 32 bytes of fifth bits before the nibbles: bit `s` of byte `j` belongs to value `j` of sub-block `s`.
#[inline(always)]
pub(super) fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, minima) = scales_and_minima(&block[4..16]);
    let fifth = &block[16..48];
    let (pairs, _) = block[48..].as_chunks::<32>();
    for (sub, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, minimum) = (d * f32::from(scales[sub]), dmin * f32::from(minima[sub]));
        let shift = 4 * (sub % 2);
        for ((value, byte), fifth) in out.iter_mut().zip(&pairs[sub / 2]).zip(fifth) {
            let q = ((byte >> shift) & 15) | (((fifth >> sub) & 1) << 4);
            *value = scale * f32::from(q) - minimum;
        }
    }
}

/// `128 bytes of low nibbles | 64 bytes of bits 4-5 | 16 x i8 scales | d: f16`: `d * scale * (q - 32)` per 16 values.
///
/// Each half of the block has four runs of 32 values: runs 0 and 1 take the low nibbles of 64 bytes, runs 2 and 3 the high
/// ones; all four take two bits each of 32 bytes.
#[inline(always)]
pub(super) fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (nibbles, _) = block[..128].as_chunks::<32>();
    let (uppers, _) = block[128..192].as_chunks::<32>();
    let scales = &block[192..208];
    let d = half_at(block, 208);
    for (run, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (half, run_of_half) = (run / 4, run % 4);
        let nibbles = &nibbles[2 * half + run_of_half % 2];
        let (shift, upper_shift) = (4 * (run_of_half / 2), 2 * run_of_half);
        let scale = [d * f32::from(scales[2 * run] as i8), d * f32::from(scales[2 * run + 1] as i8)];
        for (j, (value, (byte, upper))) in out.iter_mut().zip(nibbles.iter().zip(&uppers[half])).enumerate() {
            let q = ((byte >> shift) & 15) | (((upper >> upper_shift) & 3) << 4);
            *value = scale[j / 16] * f32::from(q as i8 - 32);
        }
    }
}

/// `64 bytes | d: f16`: `d * (q - 1)`, two bits each; every 32 bytes hold four runs of 32 values, the lowest bits first.
#[inline(always)]
pub(super) fn tq2_0(block: &[u8; 66], out: &mut [f32; 256]) {
    let d = half_at(block, 64);
    let (bytes, _) = block[..64].as_chunks::<32>();
    for (run, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let shift = 2 * (run % 4);
        for (value, byte) in out.iter_mut().zip(&bytes[run / 4]) {
            *value = d * f32::from(((byte >> shift) & 3) as i8 - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn every_half_and_bfloat_converts_exactly() {
        for bits in 0..=u16::MAX {
            for (found, expected) in [
                (f16_to_f32(bits), f16::from_bits(bits).to_f32_const()),
                (bf16_to_f32(bits), bf16::from_bits(bits).to_f32_const()),
            ] {
                let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
                assert!(same, "{bits:#06x}: {found} is not {expected}");
            }
        }
    }
}
