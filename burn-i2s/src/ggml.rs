//! The GGML tensor types this crate reads, the decoding of their rows to f32, and the encoding of those it writes.

use crate::isa::Isa;
use crate::kernel::float::multiversion;
use crate::layout;

mod encode;
pub(crate) mod quant;

/// How a tensor's values are stored. The names and numbers are GGML's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(non_camel_case_types, reason = "GGML's own spellings, which people search for")]
pub enum GgmlType {
    /// 32-bit float.
    F32,
    /// IEEE half precision.
    F16,
    /// Blocks of 32 values, 4 bits each and one scale.
    Q4_0,
    /// Blocks of 32 values, 5 bits each and one scale.
    Q5_0,
    /// Blocks of 32 values, 8 bits each and one scale.
    Q8_0,
    /// Blocks of 256 values, 4 bits each, with a scale and a minimum for every 32.
    Q4_K,
    /// Blocks of 256 values, 5 bits each, with a scale and a minimum for every 32.
    Q5_K,
    /// Blocks of 256 values, 6 bits each, with a scale for every 16.
    Q6_K,
    /// bfloat16.
    BF16,
    /// Blocks of 256 ternary values, 2 bits each and one scale.
    TQ2_0,
    /// Ternary weights, 2 bits each, one scale per tensor (see [`crate::layout`]).
    I2_S,
}

impl GgmlType {
    /// The type with that GGML number, if this crate reads it.
    pub fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            6 => Self::Q5_0,
            8 => Self::Q8_0,
            12 => Self::Q4_K,
            13 => Self::Q5_K,
            14 => Self::Q6_K,
            30 => Self::BF16,
            35 => Self::TQ2_0,
            36 => Self::I2_S,
            _ => return None,
        })
    }

    /// GGML's number of the type.
    pub fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q5_0 => 6,
            Self::Q8_0 => 8,
            Self::Q4_K => 12,
            Self::Q5_K => 13,
            Self::Q6_K => 14,
            Self::BF16 => 30,
            Self::TQ2_0 => 35,
            Self::I2_S => 36,
        }
    }

    /// GGML's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Q4_0 => "Q4_0",
            Self::Q5_0 => "Q5_0",
            Self::Q8_0 => "Q8_0",
            Self::Q4_K => "Q4_K",
            Self::Q5_K => "Q5_K",
            Self::Q6_K => "Q6_K",
            Self::BF16 => "BF16",
            Self::TQ2_0 => "TQ2_0",
            Self::I2_S => "I2_S",
        }
    }

    /// Values per block and bytes per block; `None` for I2_S, whose scale sits once at the end of the tensor.
    pub fn block(self) -> Option<(usize, usize)> {
        match self {
            Self::F32 => Some((1, 4)),
            Self::F16 | Self::BF16 => Some((1, 2)),
            Self::Q4_0 => Some((32, 18)),
            Self::Q5_0 => Some((32, 22)),
            Self::Q8_0 => Some((32, 34)),
            Self::Q4_K => Some((256, 144)),
            Self::Q5_K => Some((256, 176)),
            Self::Q6_K => Some((256, 210)),
            Self::TQ2_0 => Some((256, 66)),
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
            None => layout::byte_len(1, element_count),
        }
    }

    /// Decodes whole blocks of a row into `out`, to the values of the `gguf` Python package, bit for bit. Runs on
    /// [`Isa::current`].
    ///
    /// # Panics
    /// When `bytes` is not exactly the bytes of `out.len()` values, or the type is I2_S.
    pub fn decode_row(self, bytes: &[u8], out: &mut [f32]) {
        decode_row(Isa::current(), self, bytes, out);
    }

    #[inline(always)]
    fn decode_blocks(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(Some(bytes.len()), self.row_bytes(out.len()), "a {} row of {} values", self.name(), out.len());
        /// Decodes block after block; the decoder's type says how long they are.
        ///
        /// A macro, because a function passed as a value is called through a shim that is not inlined.
        macro_rules! decode {
            ($decoder:path) => {
                for (values, block) in out.as_chunks_mut().0.iter_mut().zip(bytes.as_chunks().0) {
                    $decoder(block, values);
                }
            };
        }
        match self {
            Self::F32 => decode!(quant::f32),
            Self::F16 => decode!(quant::f16),
            Self::BF16 => decode!(quant::bf16),
            Self::Q4_0 => decode!(quant::q4_0),
            Self::Q5_0 => decode!(quant::q5_0),
            Self::Q8_0 => decode!(quant::q8_0),
            Self::Q4_K => decode!(quant::q4_k),
            Self::Q5_K => decode!(quant::q5_k),
            Self::Q6_K => decode!(quant::q6_k),
            Self::TQ2_0 => decode!(quant::tq2_0),
            Self::I2_S => unreachable!("row_bytes is None for I2_S"),
        }
    }
}

#[inline(always)]
fn decode_row_body(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    ty.decode_blocks(bytes, out);
}

multiversion!(
    /// [`GgmlType::decode_row`] on a level of choice.
    pub(crate) fn decode_row(ty: GgmlType, bytes: &[u8], out: &mut [f32]) = decode_row_body
);
