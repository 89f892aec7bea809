//! Rectangles of a row-major output that workers fill without sharing a value.

use std::marker::PhantomData;
use std::ops::Range;

/// Exclusive access to a rectangle of a row-major matrix: `split_at_mut` in two dimensions.
pub(crate) struct Rect<'a, T> {
    /// The first value. `rows` rows of `cols` values that start `pitch` values apart belong to this rectangle alone.
    origin: *mut T,
    pitch: usize,
    rows: usize,
    cols: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a rectangle is exclusive access to its values, like `&mut [T]`, which is Send when T is. No two rectangles
// overlap: `new` takes the exclusive borrow of a whole slice and the splits consume what they divide.
unsafe impl<T: Send> Send for Rect<'_, T> {}

impl<'a, T> Rect<'a, T> {
    /// The whole of a `[rows, cols]` matrix.
    ///
    /// # Panics
    /// When `values` does not have `rows * cols` values.
    pub(crate) fn new(values: &'a mut [T], rows: usize, cols: usize) -> Self {
        assert_eq!(Some(values.len()), rows.checked_mul(cols), "a [{rows}, {cols}] output");
        Self { origin: values.as_mut_ptr(), pitch: cols, rows, cols, owner: PhantomData }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// The first `at` columns and the others.
    ///
    /// # Panics
    /// When there are fewer than `at` columns.
    pub(crate) fn split_columns(self, at: usize) -> (Self, Self) {
        assert!(at <= self.cols);
        // `wrapping_add`, since with no rows there may be no value at that offset to point to.
        let origin = self.origin.wrapping_add(at);
        (Self { cols: at, ..self }, Self { origin, cols: self.cols - at, ..self })
    }

    /// The first `at` rows and the others.
    ///
    /// # Panics
    /// When there are fewer than `at` rows.
    pub(crate) fn split_rows(self, at: usize) -> (Self, Self) {
        assert!(at <= self.rows);
        let origin = self.origin.wrapping_add(at * self.pitch);
        (Self { rows: at, ..self }, Self { origin, rows: self.rows - at, ..self })
    }

    /// A rectangle inside this one, for as long as it is borrowed.
    ///
    /// # Panics
    /// When it is not inside.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        allow(dead_code, reason = "for tiles, which the vector levels have")
    )]
    pub(crate) fn part(&mut self, rows: Range<usize>, cols: Range<usize>) -> Rect<'_, T> {
        let whole = Rect { owner: PhantomData, ..*self };
        let (whole, _) = whole.split_rows(rows.end);
        let (_, whole) = whole.split_rows(rows.start);
        let (whole, _) = whole.split_columns(cols.end);
        whole.split_columns(cols.start).1
    }

    /// Row `row` of the rectangle.
    ///
    /// # Panics
    /// When there is no such row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows);
        // SAFETY: `origin + row * pitch .. + cols` lies in the slice that `new` borrowed: `new` starts with the whole
        // matrix, the splits only move `origin` by what they take off `rows` or `cols`, and `row < rows`. The values
        // are this rectangle's alone (see `Send` above) and stay borrowed from it while the row is in use.
        unsafe { std::slice::from_raw_parts_mut(self.origin.wrapping_add(row * self.pitch), self.cols) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_tile_the_whole() {
        let mut values = [0; 4 * 5];
        let (left, right) = Rect::new(&mut values, 4, 5).split_columns(2);
        let (top, bottom) = right.split_rows(3);
        for (mark, mut part) in [(1, left), (2, top), (3, bottom)] {
            for row in 0..part.rows() {
                part.row(row).fill(mark);
            }
        }
        assert_eq!(values, [1, 1, 2, 2, 2, 1, 1, 2, 2, 2, 1, 1, 2, 2, 2, 1, 1, 3, 3, 3]);
    }

    #[test]
    fn a_part_lies_inside() {
        let mut values = [0; 3 * 4];
        let mut whole = Rect::new(&mut values, 3, 4);
        let mut part = whole.part(1..3, 1..3);
        assert_eq!((part.rows(), part.cols()), (2, 2));
        part.row(1).fill(7);
        assert_eq!(values, [0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 0]);
    }

    #[test]
    #[should_panic]
    fn a_part_beyond_the_edge_is_refused() {
        Rect::new(&mut [0; 4], 2, 2).part(0..1, 1..3);
    }

    #[test]
    fn empty_parts_are_allowed() {
        let (left, right) = Rect::new(&mut [0u8; 0], 0, 7).split_columns(7);
        assert_eq!((left.rows(), left.cols(), right.cols()), (0, 7, 0));
    }
}
