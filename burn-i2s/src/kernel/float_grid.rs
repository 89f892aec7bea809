//! A row-major matrix cut into rectangles that different threads may write.
//!
//! Safe Rust splits a matrix by rows only; the outputs of a product are split by columns, those of attention both ways.

use std::marker::PhantomData;

/// A rectangle of a row-major f32 matrix, borrowed mutably; made by [`split_grid`].
pub(crate) struct RectMut<'a> {
    /// First value of the first row.
    start: *mut f32,
    rows: usize,
    cols: usize,
    /// Distance between the starts of two rows, in values.
    stride: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: a `RectMut` is the only handle to its values for 'a (see `split_grid`), as `&mut [f32]` would be.
unsafe impl Send for RectMut<'_> {}

impl RectMut<'_> {
    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The part of row `row` that lies in the rectangle.
    ///
    /// # Panics
    /// When `row` is not below [`rows`](Self::rows).
    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of a rectangle of {} rows", self.rows);
        // SAFETY: row < rows, so by the construction in `split_grid` the `cols` values from here are inside the matrix
        // and in no other rectangle; the returned borrow holds `self`, so no second slice exists.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.cols) }
    }
}

/// Cuts a matrix of `stride` columns at the given rows and columns (ascending, both ends included) into
/// `(row_cuts.len() - 1) * (col_cuts.len() - 1)` rectangles, row of rectangles by row of rectangles.
///
/// # Panics
/// When cuts are not ascending or lie outside the matrix.
pub(crate) fn split_grid<'a>(
    matrix: &'a mut [f32],
    stride: usize,
    row_cuts: &[usize],
    col_cuts: &[usize],
) -> Vec<RectMut<'a>> {
    assert!(row_cuts.is_sorted() && col_cuts.is_sorted(), "cuts must ascend");
    let rows = row_cuts.last().copied().unwrap_or(0);
    let cols = col_cuts.last().copied().unwrap_or(0);
    assert!(cols <= stride, "column cut {cols} in rows of {stride}");
    assert!(rows.checked_mul(stride).is_some_and(|len| len <= matrix.len()), "row cut {rows} outside the matrix");
    let start = matrix.as_mut_ptr();
    let mut rects = Vec::with_capacity(row_cuts.len().saturating_sub(1) * col_cuts.len().saturating_sub(1));
    for row in row_cuts.windows(2) {
        for col in col_cuts.windows(2) {
            // An empty rectangle may start one past the matrix; it keeps the matrix's own start instead.
            let empty = row[0] == row[1] || col[0] == col[1];
            let offset = if empty { 0 } else { row[0] * stride + col[0] };
            rects.push(RectMut {
                // SAFETY: rows * stride <= len and cols <= stride were checked, so the first value of a rectangle that
                // is not empty, and with it every row's `cols` values, is inside the matrix. Cuts ascend, so no two
                // rectangles share a value, and the matrix itself stays borrowed for 'a.
                start: unsafe { start.add(offset) },
                rows: if empty { 0 } else { row[1] - row[0] },
                cols: col[1] - col[0],
                stride,
                matrix: PhantomData,
            });
        }
    }
    rects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_cover_the_matrix_once() {
        let mut matrix = vec![0.0; 5 * 7];
        let rects = split_grid(&mut matrix, 7, &[0, 2, 2, 5], &[0, 3, 7]);
        assert_eq!(rects.len(), 6);
        std::thread::scope(|scope| {
            for (i, mut rect) in rects.into_iter().enumerate() {
                scope.spawn(move || {
                    for row in 0..rect.rows() {
                        rect.row_mut(row).iter_mut().for_each(|v| *v += 1.0 + i as f32);
                    }
                });
            }
        });
        let expected: Vec<f32> =
            (0..35).map(|at| if at / 7 < 2 { 0.0 } else { 4.0 } + if at % 7 < 3 { 1.0 } else { 2.0 }).collect();
        assert_eq!(matrix, expected);
    }

    #[test]
    #[should_panic(expected = "outside the matrix")]
    fn a_cut_beyond_the_end_is_refused() {
        split_grid(&mut [0.0; 6], 3, &[0, 3], &[0, 3]);
    }

    #[test]
    #[should_panic(expected = "ascend")]
    fn overlapping_cuts_are_refused() {
        split_grid(&mut [0.0; 6], 3, &[0, 2], &[0, 3, 1]);
    }
}
