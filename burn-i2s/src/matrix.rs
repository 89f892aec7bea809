//! [`TernaryMatrix`]: packed bytes whose shape and scale were checked.

use crate::error::TernaryError;
use crate::layout::{self, BLOCK, BLOCK_BYTES};
use crate::pack;

/// The most columns a matrix may have.
///
/// A product sums `in_features` terms of at most `2 * 128` in magnitude in an i32, and the kernels without shifts hold
/// a quarter of a lane's terms scaled by 64: `192 * 128 * 2^20 / 4 / 16` is below 2^31 as well. No known model has a
/// tenth of this.
pub const MAX_COLUMNS: usize = 1 << 20;

/// A borrowed `[out_features, in_features]` matrix of ternary weights in rows of whole I2_S blocks.
///
/// Building one costs the same for every size: the codes are not looked at. Any bytes are safe to multiply with; a
/// code 3, which no valid file has, acts as the weight +2 at every [`Isa`](crate::isa::Isa) level. Loaders refuse it
/// with [`TernaryMatrix::first_invalid_code`].
#[derive(Clone, Copy, Debug)]
pub struct TernaryMatrix<'a> {
    blocks: &'a [[u8; BLOCK_BYTES]],
    out_features: usize,
    in_features: usize,
    weight_scale: f32,
}

impl<'a> TernaryMatrix<'a> {
    /// Views `bytes` (rows padded to whole blocks, then the tail; see [`layout`]) as a matrix.
    ///
    /// # Errors
    /// When a dimension is zero, there are more than [`MAX_COLUMNS`] columns, the length is not
    /// [`layout::padded_byte_len`], or the scale is not positive and finite.
    pub fn new(bytes: &'a [u8], out_features: usize, in_features: usize) -> Result<Self, TernaryError> {
        if out_features == 0 || in_features == 0 {
            return Err(TernaryError::Empty { out_features, in_features });
        }
        if in_features > MAX_COLUMNS {
            return Err(TernaryError::TooManyColumns { limit: MAX_COLUMNS, found: in_features });
        }
        let expected = layout::padded_byte_len(out_features, in_features)
            .ok_or(TernaryError::TooLarge { out_features, in_features })?;
        let wrong_length = TernaryError::ByteLength { out_features, in_features, expected, found: bytes.len() };
        if bytes.len() != expected {
            return Err(wrong_length);
        }
        let (blocks, weight_scale) = layout::split(bytes).ok_or(wrong_length)?;
        if !(weight_scale.is_finite() && weight_scale > 0.0) {
            return Err(TernaryError::WeightScale { found: weight_scale });
        }
        Ok(Self { blocks, out_features, in_features, weight_scale })
    }

    /// Rows: the length of an output.
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Columns: the length of an input.
    pub fn in_features(&self) -> usize {
        self.in_features
    }

    /// What every weight is multiplied with.
    pub fn weight_scale(&self) -> f32 {
        self.weight_scale
    }

    /// Blocks of one row.
    pub fn blocks_per_row(&self) -> usize {
        layout::blocks_per_row(self.in_features)
    }

    /// All blocks, row after row: `out_features * blocks_per_row` of them.
    pub fn blocks(&self) -> &'a [[u8; BLOCK_BYTES]] {
        self.blocks
    }

    /// Row and column of the first code 3, if there is one; the column may lie in the padding. Reads all bytes, on
    /// the threads of rayon's current pool.
    pub fn first_invalid_code(&self) -> Option<(usize, usize)> {
        let stride = self.blocks_per_row() * BLOCK;
        pack::first_invalid_code(self.blocks.as_flattened()).map(|index| (index / stride, index % stride))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(rows: usize, cols: usize, scale: f32) -> Vec<u8> {
        let mut bytes = vec![0x55; layout::padded_byte_len(rows, cols).unwrap()];
        let at = bytes.len() - layout::TAIL_BYTES;
        bytes[at..].copy_from_slice(&layout::tail(scale));
        bytes
    }

    #[test]
    fn a_row_is_whole_blocks() {
        let bytes = bytes(3, 129, 0.5);
        let matrix = TernaryMatrix::new(&bytes, 3, 129).unwrap();
        assert_eq!((matrix.out_features(), matrix.in_features(), matrix.weight_scale()), (3, 129, 0.5));
        assert_eq!((matrix.blocks_per_row(), matrix.blocks().len()), (2, 6));
    }

    #[test]
    fn wrong_lengths_and_shapes_are_errors() {
        let bytes = bytes(4, 128, 1.0);
        assert!(matches!(
            TernaryMatrix::new(&bytes[1..], 4, 128),
            Err(TernaryError::ByteLength { expected: 160, found: 159, .. })
        ));
        assert!(matches!(TernaryMatrix::new(&bytes, 5, 128), Err(TernaryError::ByteLength { .. })));
        assert!(matches!(TernaryMatrix::new(&bytes, 0, 128), Err(TernaryError::Empty { .. })));
        assert!(matches!(TernaryMatrix::new(&bytes, 4, 0), Err(TernaryError::Empty { .. })));
        assert!(matches!(TernaryMatrix::new(&bytes, usize::MAX, 128), Err(TernaryError::TooLarge { .. })));
        assert!(matches!(
            TernaryMatrix::new(&bytes, 1, MAX_COLUMNS + 1),
            Err(TernaryError::TooManyColumns { limit: MAX_COLUMNS, .. })
        ));
    }

    #[test]
    fn a_scale_that_is_not_positive_and_finite_is_an_error() {
        for scale in [0.0, -0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let bytes = bytes(1, 128, scale);
            assert!(matches!(TernaryMatrix::new(&bytes, 1, 128), Err(TernaryError::WeightScale { .. })), "{scale}");
        }
        let bytes = bytes(1, 128, f32::from_bits(1));
        assert!(TernaryMatrix::new(&bytes, 1, 128).is_ok());
    }

    #[test]
    fn an_invalid_code_is_found_by_row_and_column() {
        let mut bytes = bytes(3, 200, 1.0);
        assert_eq!(TernaryMatrix::new(&bytes, 3, 200).unwrap().first_invalid_code(), None);
        bytes[2 * 64 + 32 + 5] |= 3 << 4;
        assert_eq!(TernaryMatrix::new(&bytes, 3, 200).unwrap().first_invalid_code(), Some((2, 128 + 32 + 5)));
    }
}
