//! The one statement of I2_S, the packed form of a ternary weight tensor.
//!
//! A weight is -1, 0 or +1 and is stored as its *code*, the weight plus one, in two bits. 128 weights that follow each
//! other make a block of 32 bytes in four planes: byte `j` of a block holds weights `j`, `32 + j`, `64 + j` and
//! `96 + j`, the first in the two highest bits.
//!
//! ```text
//!            bit  7 6   5 4   3 2   1 0
//! byte  0       [ w0  | w32 | w64 | w96  ]
//! byte  1       [ w1  | w33 | w65 | w97  ]
//!  ..
//! byte 31       [ w31 | w63 | w95 | w127 ]      code = weight + 1; code 3 has no meaning
//! ```
//!
//! After the last block come [`TAIL_BYTES`] bytes: the tensor's scale, a little-endian f32, and 28 zero bytes. The
//! value of a weight is `(code - 1) * scale`. Scale and block size are the same on every CPU.
//!
//! In a file the blocks run through the tensor in flat row-major order, so a block straddles rows when the number of
//! columns is not a multiple of 128 ([`byte_len`]). Kernels read rows of whole blocks ([`padded_byte_len`]); the two
//! forms are one when the columns are a multiple of 128, which is why such a tensor is used where it lies in the file.

/// Weights in a block.
pub const BLOCK: usize = 128;

/// Bytes in a block.
pub const BLOCK_BYTES: usize = 32;

/// Bytes after the last block: the scale as a little-endian f32, then zeros.
pub const TAIL_BYTES: usize = 32;

/// The bit position of each plane in a byte: plane `p` holds weights `32 * p ..` of the block.
pub const PLANE_SHIFTS: [u32; 4] = [6, 4, 2, 0];

/// The code of the weight zero, which pads rows to whole blocks.
pub const ZERO_CODE: u8 = 1;

/// The code that no weight has.
pub const INVALID_CODE: u8 = 3;

/// The two-bit code of a weight; `None` unless the weight is -1, 0 or +1.
pub fn code_of(weight: i8) -> Option<u8> {
    matches!(weight, -1..=1).then(|| (weight + 1).cast_unsigned())
}

/// The weight of the code in the two lowest bits of `code`. Code 3, which no valid file has, reads as +2.
pub fn weight_of(code: u8) -> i8 {
    (code & 3).cast_signed() - 1
}

/// Where weight `index` of a block lies: its byte, and how far its code is shifted up there.
///
/// # Panics
/// When `index` is not below [`BLOCK`].
pub fn position(index: usize) -> (usize, u32) {
    (index % BLOCK_BYTES, PLANE_SHIFTS[index / BLOCK_BYTES])
}

/// Whole blocks that hold one row of `cols` weights.
pub fn blocks_per_row(cols: usize) -> usize {
    cols.div_ceil(BLOCK)
}

/// Bytes of a `[rows, cols]` tensor in flat order, as in a file, with its tail; `None` when `rows * cols` is not a
/// multiple of [`BLOCK`] or the length overflows.
pub fn byte_len(rows: usize, cols: usize) -> Option<usize> {
    let weights = rows.checked_mul(cols)?;
    if !weights.is_multiple_of(BLOCK) {
        return None;
    }
    (weights / BLOCK * BLOCK_BYTES).checked_add(TAIL_BYTES)
}

/// Bytes of a `[rows, cols]` tensor whose rows are padded to whole blocks, with its tail; `None` on overflow.
///
/// Equal to [`byte_len`] when `cols` is a multiple of [`BLOCK`].
pub fn padded_byte_len(rows: usize, cols: usize) -> Option<usize> {
    blocks_per_row(cols).checked_mul(BLOCK_BYTES)?.checked_mul(rows)?.checked_add(TAIL_BYTES)
}

/// The tail that follows the blocks of a tensor with that scale.
pub fn tail(scale: f32) -> [u8; TAIL_BYTES] {
    let mut tail = [0; TAIL_BYTES];
    tail[..4].copy_from_slice(&scale.to_le_bytes());
    tail
}

/// Splits a tensor's bytes into its blocks and its scale; `None` when there is no tail or a part of a block.
///
/// The 28 bytes after the scale are not looked at, and the scale may be any f32.
pub fn split(bytes: &[u8]) -> Option<(&[[u8; BLOCK_BYTES]], f32)> {
    let (packed, tail) = bytes.split_last_chunk::<TAIL_BYTES>()?;
    let (blocks, rest) = packed.as_chunks::<BLOCK_BYTES>();
    let (scale, _zeros) = tail.split_first_chunk::<4>()?;
    rest.is_empty().then(|| (blocks, f32::from_le_bytes(*scale)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bit_picture_of_the_module_doc() {
        assert_eq!(position(0), (0, 6));
        assert_eq!(position(33), (1, 4));
        assert_eq!(position(95), (31, 2));
        assert_eq!(position(127), (31, 0));
    }

    #[test]
    fn codes_and_weights() {
        assert_eq!([-1, 0, 1].map(code_of), [Some(0), Some(ZERO_CODE), Some(2)]);
        assert_eq!([-2, 2, i8::MIN, i8::MAX].map(code_of), [None; 4]);
        assert_eq!([0, 1, 2, INVALID_CODE].map(weight_of), [-1, 0, 1, 2]);
    }

    #[test]
    fn lengths_and_their_limits() {
        assert_eq!(byte_len(2, 64), Some(64));
        assert_eq!(padded_byte_len(2, 64), Some(96));
        assert_eq!(byte_len(3, 640), padded_byte_len(3, 640));
        assert_eq!(byte_len(3, 64), None);
        assert_eq!(byte_len(usize::MAX, 128), None);
        assert_eq!(padded_byte_len(usize::MAX, 1), None);
        assert_eq!(padded_byte_len(usize::MAX / BLOCK_BYTES, 1), None);
    }

    #[test]
    fn a_tail_splits_off_again() {
        let mut bytes = vec![7; BLOCK_BYTES];
        bytes.extend(tail(0.25));
        assert_eq!(split(&bytes), Some((&[[7; BLOCK_BYTES]][..], 0.25)));
        assert_eq!(split(&bytes[1..]), None);
        assert_eq!(split(&bytes[..TAIL_BYTES - 1]), None);
    }
}
