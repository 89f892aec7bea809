//! What can be wrong with ternary tensors and with the arguments of a ternary product.

use thiserror::Error;

/// Why bytes are no [`TernaryMatrix`](crate::matrix::TernaryMatrix), or why a product cannot be formed.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum TernaryError {
    /// A matrix without rows or columns.
    #[error("a [{out_features}, {in_features}] ternary matrix has no weights")]
    Empty {
        /// Rows of the matrix.
        out_features: usize,
        /// Columns of the matrix.
        in_features: usize,
    },
    /// More columns than an exact 32-bit sum is promised for.
    #[error("{found} columns, at most {limit} are supported")]
    TooManyColumns {
        /// The largest number of columns.
        limit: usize,
        /// Columns asked for.
        found: usize,
    },
    /// The shape asks for more bytes than can be addressed.
    #[error("a [{out_features}, {in_features}] ternary matrix is too large to address")]
    TooLarge {
        /// Rows of the matrix.
        out_features: usize,
        /// Columns of the matrix.
        in_features: usize,
    },
    /// The bytes do not have the length of the shape.
    #[error("a [{out_features}, {in_features}] ternary matrix takes {expected} bytes, found {found}")]
    ByteLength {
        /// Rows of the matrix.
        out_features: usize,
        /// Columns of the matrix.
        in_features: usize,
        /// Bytes that such a matrix takes, tail included.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The weight scale is zero, negative, infinite or not a number.
    #[error("weight scale {found} is not a positive finite number")]
    WeightScale {
        /// The scale in the tensor's tail.
        found: f32,
    },
    /// Activation codes, sums and scales do not describe the same rows.
    #[error("{what} of {rows} activation rows of {stride} codes: expected {expected}, found {found}")]
    ActivationLength {
        /// Which of the parts: `codes` or `scales`.
        what: &'static str,
        /// Rows, as many as there are sums.
        rows: usize,
        /// Codes of a row with its padding.
        stride: usize,
        /// The length that part should have.
        expected: usize,
        /// The length it has.
        found: usize,
    },
    /// The activations and the matrix differ in their number of columns.
    #[error("activations have {found} columns, the matrix {expected}")]
    Columns {
        /// Columns of the matrix.
        expected: usize,
        /// Columns of the activations.
        found: usize,
    },
    /// The output is not `[rows, out_features]`.
    #[error("the output [{rows}, {out_features}] takes {expected:?} values, found {found}")]
    OutputLength {
        /// Activation rows.
        rows: usize,
        /// Rows of the matrix.
        out_features: usize,
        /// Values of the output; `None` when that is more than can be addressed.
        expected: Option<usize>,
        /// Values given.
        found: usize,
    },
}

/// Why values cannot be ternarised or packed.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PackError {
    /// A value is infinite or not a number.
    #[error("value {found} at index {index} is not finite")]
    NotFinite {
        /// Its flat index.
        index: usize,
        /// The value.
        found: f32,
    },
    /// The scale is zero, negative, infinite or not a number.
    #[error("scale {found} is not a positive finite number")]
    Scale {
        /// The scale.
        found: f32,
    },
    /// A weight is none of -1, 0 and +1.
    #[error("weight {found} at index {index} is none of -1, 0 and +1")]
    NotTernary {
        /// Its flat index.
        index: usize,
        /// The weight.
        found: i8,
    },
    /// The number of weights is not a multiple of the block.
    #[error("{found} weights are not whole blocks of {block}")]
    PartialBlock {
        /// Weights of a block.
        block: usize,
        /// Weights given.
        found: usize,
    },
    /// The number of values or bytes is not that of the shape.
    #[error("a [{rows}, {cols}] tensor takes {expected:?} {unit}, found {found}")]
    Length {
        /// Rows of the tensor.
        rows: usize,
        /// Columns of the tensor.
        cols: usize,
        /// What is counted: `values` or `bytes`.
        unit: &'static str,
        /// The length of the shape; `None` when the shape has none (it overflows, or is not whole blocks).
        expected: Option<usize>,
        /// The length given.
        found: usize,
    },
}
