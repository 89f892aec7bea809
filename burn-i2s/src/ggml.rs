//! The GGML tensor types this crate reads, and the decoding of their rows to f32.

use half::{bf16, f16};

/// How a tensor's values are stored. The names and numbers are GGML's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(non_camel_case_types, reason = "GGML's own spellings, which people search for")]
pub enum GgmlType {
    /// 32-bit float.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
    /// Ternary weights, 2 bits each, one scale per tensor (see [`crate::layout`]).
    I2_S,
}

impl GgmlType {
    /// The type with that GGML number, if this crate reads it.
    pub fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::F32,
            1 => Self::F16,
            30 => Self::BF16,
            36 => Self::I2_S,
            _ => return None,
        })
    }

    /// GGML's number of the type.
    pub fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::BF16 => 30,
            Self::I2_S => 36,
        }
    }

    /// GGML's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::I2_S => "I2_S",
        }
    }

    /// Values per block and bytes per block; `None` for I2_S, whose scale sits once at the end of the tensor.
    pub fn block(self) -> Option<(usize, usize)> {
        match self {
            Self::F32 => Some((1, 4)),
            Self::F16 | Self::BF16 => Some((1, 2)),
            Self::I2_S => None,
        }
    }

    /// Bytes of one row of `cols` values; `None` for I2_S, for a row that is not whole blocks, or on overflow.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        let (len, bytes) = self.block()?;
        if !cols.is_multiple_of(len) {
            return None;
        }
        (cols / len).checked_mul(bytes)
    }

    /// Bytes of a whole tensor of `element_count` values; `None` when these are not whole blocks, or on overflow.
    ///
    /// Rows must be whole blocks as well, except those of I2_S.
    pub fn tensor_bytes(self, element_count: usize) -> Option<usize> {
        match self.block() {
            Some(_) => self.row_bytes(element_count),
            // Blocks of 128 values in 32 bytes, then the scale, padded to 32 bytes.
            None if element_count.is_multiple_of(128) => Some(element_count / 4 + 32),
            None => None,
        }
    }

    /// Decodes whole blocks of a row into `out`.
    ///
    /// # Panics
    /// When `bytes` is not exactly the bytes of `out.len()` values, or the type is I2_S.
    pub fn decode_row(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(Some(bytes.len()), self.row_bytes(out.len()), "a {} row of {} values", self.name(), out.len());
        match self {
            Self::F32 => decode_each(bytes, out, |b| f32::from_le_bytes(*b)),
            Self::F16 => decode_each(bytes, out, |b| f16::from_le_bytes(*b).to_f32()),
            Self::BF16 => decode_each(bytes, out, |b| bf16::from_le_bytes(*b).to_f32()),
            Self::I2_S => unreachable!("row_bytes is None for I2_S"),
        }
    }
}

fn decode_each<const N: usize>(bytes: &[u8], out: &mut [f32], decode: impl Fn(&[u8; N]) -> f32) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *value = decode(bytes);
    }
}
