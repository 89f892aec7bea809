//! The token table: rows decoded one by one from the file's own bytes.

use crate::dense::DenseMatrix;
use crate::ggml::GgmlType;
use crate::linear::{LinearError, LinearWeight, byte_param};
use crate::ops;
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};

/// An embedding table of any dense GGML type; only the rows that are looked up are read.
#[derive(Module, Debug)]
pub struct RowTable {
    /// `[rows, bytes per row]`, U8, in the file's type.
    pub weight: Param<Tensor<2, Int>>,
    #[module(skip)]
    ty: GgmlType,
    rows: usize,
    cols: usize,
}

impl RowTable {
    /// A table without weights; a store fills them.
    ///
    /// # Errors
    /// When `cols` values are not whole blocks of `ty`, or the size overflows.
    pub fn init(rows: usize, cols: usize, ty: GgmlType, device: &Device) -> Result<Self, LinearError> {
        let row_bytes = ty.row_bytes(cols).filter(|bytes| bytes.checked_mul(rows).is_some());
        let row_bytes = row_bytes.ok_or(LinearError::Shape {
            out_features: rows,
            in_features: cols,
            weight: LinearWeight::Dense(ty),
        })?;
        Ok(Self { weight: byte_param([rows, row_bytes], device), ty, rows, cols })
    }

    /// The rows of `indices`, scaled: `[indices]` to `[indices, cols]`.
    ///
    /// # Panics
    /// When an index is not a row of the table.
    pub fn forward(&self, indices: Tensor<1, Int>, scale: f32) -> Tensor<2> {
        ops::with_bytes(&[self.weight.val()], |bytes| {
            let table = DenseMatrix::new(bytes[0], self.ty, self.rows, self.cols)
                .expect("the parameter's length was checked when it was loaded");
            ops::gather_rows(indices, &table, scale)
        })
    }
}
