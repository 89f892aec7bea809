//! f32 to GGML's formats, one row at a time: the other direction of [`quant`](super::quant).
//!
//! F16, BF16 and Q8_0 give the bytes of the `gguf` Python package's `quantize`, bit for bit. That package has no Q6_K
//! quantiser; Q6_K follows the reference algorithm of ggml: for every 16 values the scale with the least error weighted
//! by `x^2` among nineteen candidates, then the sixteen scales in units of the largest. Every operation is rounded once,
//! in one order, so the bytes are the same on every machine.

use half::{bf16, f16};

use super::GgmlType;

/// Values below this are zero to Q6_K.
const TINY: f32 = 1e-15;
/// Values of Q6_K that share a scale.
const Q6_K_RUN: usize = 16;

impl GgmlType {
    /// Whether [`encode_row`](Self::encode_row) writes the type.
    pub fn can_encode(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::Q8_0 | Self::Q6_K)
    }

    /// Encodes whole blocks of a row, each value rounded to nearest (even on a tie, but away from zero for Q8_0).
    ///
    /// Values that are too large become infinite (F16, BF16) or make their block infinite; the caller checks that if it
    /// matters.
    ///
    /// # Panics
    /// When `bytes` is not exactly the bytes of `values.len()` values, or the type is not one that
    /// [`can_encode`](Self::can_encode).
    pub fn encode_row(self, values: &[f32], bytes: &mut [u8]) {
        assert_eq!(Some(bytes.len()), self.row_bytes(values.len()), "a {} row of {} values", self.name(), values.len());
        match self {
            Self::F32 => each(values, bytes, |[value]: &[f32; 1]| value.to_le_bytes()),
            Self::F16 => each(values, bytes, |[value]: &[f32; 1]| f16::from_f32(*value).to_le_bytes()),
            Self::BF16 => each(values, bytes, |[value]: &[f32; 1]| bf16::from_f32(*value).to_le_bytes()),
            Self::Q8_0 => each(values, bytes, q8_0),
            Self::Q6_K => each(values, bytes, q6_k),
            other => panic!("{} is not encoded", other.name()),
        }
    }
}

fn each<const VALUES: usize, const BYTES: usize>(
    values: &[f32],
    bytes: &mut [u8],
    encode: impl Fn(&[f32; VALUES]) -> [u8; BYTES],
) {
    for (bytes, values) in bytes.as_chunks_mut().0.iter_mut().zip(values.as_chunks().0) {
        *bytes = encode(values);
    }
}

/// `d: f16 | 32 x i8`, where `d` is the largest magnitude / 127.
fn q8_0(values: &[f32; 32]) -> [u8; 34] {
    let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let d = largest / 127.0;
    // The reciprocal of the scale before it is rounded to f16, as the package has it.
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut block = [0; 34];
    block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
    for (byte, value) in block[2..].iter_mut().zip(values) {
        // A scale so small that its reciprocal is infinite gives 0 * inf; the cast makes that 0.
        *byte = ((value * inverse).round() as i8).cast_unsigned();
    }
    block
}

/// The layout is that of [`quant::q6_k`](super::quant::q6_k).
fn q6_k(values: &[f32; 256]) -> [u8; 210] {
    let (runs, _) = values.as_chunks::<Q6_K_RUN>();
    let mut codes = [0_u8; 256];
    let mut scales = [0.0_f32; 16];
    let mut largest = 0.0_f32;
    for ((run, codes), scale) in runs.iter().zip(codes.as_chunks_mut().0).zip(&mut scales) {
        *scale = best_scale(run, codes);
        if scale.abs() > largest.abs() {
            largest = *scale;
        }
    }
    let mut block = [0; 210];
    if largest.abs() < TINY {
        return block;
    }
    // The largest scale becomes -128, whatever its sign.
    let inverse = -128.0 / largest;
    let d = f16::from_f32(1.0 / inverse);
    block[208..].copy_from_slice(&d.to_le_bytes());
    for (run, scale) in scales.iter().enumerate() {
        let scale = ((inverse * scale).round_ties_even() as i32).min(127) as i8;
        block[192 + run] = scale.cast_unsigned();
        let step = d.to_f32() * f32::from(scale);
        // A run whose scale rounded to zero keeps its first codes, which are then multiplied by zero.
        if step != 0.0 {
            for (code, value) in codes[run * Q6_K_RUN..].iter_mut().zip(&runs[run]) {
                *code = code_of(value / step);
            }
        }
    }
    for (half, codes) in codes.as_chunks::<128>().0.iter().enumerate() {
        for j in 0..32 {
            let [a, b, c, d] = [codes[j], codes[j + 32], codes[j + 64], codes[j + 96]];
            block[half * 64 + j] = (a & 15) | ((c & 15) << 4);
            block[half * 64 + 32 + j] = (b & 15) | ((d & 15) << 4);
            block[128 + half * 32 + j] = (a >> 4) | ((b >> 4) << 2) | ((c >> 4) << 4) | ((d >> 4) << 6);
        }
    }
    block
}

/// A value in units of its scale, rounded to the nearest of -32..=31, ties to even.
fn level_of(value: f32) -> f32 {
    // Beyond this the spacing of f32 is 1, so the sum is rounded to an integer; unlike a call it vectorises.
    const ROUND: f32 = 1.5 * (1 << 23) as f32;
    (value.clamp(-32.0, 31.0) + ROUND) - ROUND
}

/// The level as a code.
fn code_of(value: f32) -> u8 {
    (level_of(value) as i32 + 32) as u8
}

/// The scale that fits a run best, and the codes with it.
fn best_scale(run: &[f32; Q6_K_RUN], codes: &mut [u8; Q6_K_RUN]) -> f32 {
    let mut largest = 0.0_f32;
    for value in run {
        if value.abs() > largest.abs() {
            largest = *value;
        }
    }
    if largest.abs() < TINY {
        *codes = [0; Q6_K_RUN];
        return 0.0;
    }
    // Sums of x * l and l * l weighted by x^2, where l is the integer that x rounds to.
    let fit = |inverse: f32| {
        let mut sums = (0.0_f32, 0.0_f32);
        for &value in run {
            let level = level_of(inverse * value);
            let weight = value * value;
            sums.0 += weight * value * level;
            sums.1 += weight * level * level;
        }
        sums
    };
    let set = |codes: &mut [u8; Q6_K_RUN], inverse: f32| {
        for (code, value) in codes.iter_mut().zip(run) {
            *code = code_of(inverse * value);
        }
    };
    // The value of largest magnitude at -32 first, then a little inside and outside of that.
    let first = -32.0 / largest;
    let (product, square) = fit(first);
    set(codes, first);
    let mut scale = if square > 0.0 { product / square } else { 0.0 };
    let mut best = scale * product;
    for step in (-9..=9).filter(|step| *step != 0) {
        let inverse = -(32.0 + 0.1 * step as f32) / largest;
        let (product, square) = fit(inverse);
        if square > 0.0 && product * product > best * square {
            set(codes, inverse);
            scale = product / square;
            best = scale * product;
        }
    }
    scale
}
