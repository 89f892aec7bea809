//! Bounded little-endian reads: the only code that walks over file bytes.

use super::{GgufError, Part};

/// A position in a file, from which nothing past the end can be read.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// A read that would have gone past the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    offset: usize,
    needed: u64,
    available: usize,
}

impl Short {
    pub(super) fn at(self, part: Part) -> GgufError {
        let Self { offset, needed, available } = self;
        GgufError::Truncated { part, offset, needed, available }
    }
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Fails unless `count` items of at least `size` bytes each can follow.
    pub(super) fn expect(&self, count: u64, size: u64) -> Result<(), Short> {
        let needed = count.saturating_mul(size);
        if needed > self.remaining() as u64 {
            return Err(Short { offset: self.position, needed, available: self.remaining() });
        }
        Ok(())
    }

    #[inline]
    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], Short> {
        let available = self.remaining();
        if count > available as u64 {
            return Err(Short { offset: self.position, needed: count, available });
        }
        let start = self.position;
        self.position += count as usize;
        Ok(&self.bytes[start..self.position])
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        match self.bytes[self.position..].first_chunk() {
            Some(array) => {
                self.position += N;
                Ok(*array)
            }
            None => Err(Short { offset: self.position, needed: N as u64, available: self.remaining() }),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }

    /// The bytes of a string: its length, then itself.
    #[inline]
    pub(super) fn string(&mut self) -> Result<&'a [u8], Short> {
        let length = self.u64()?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_says_where_and_moves_nothing() {
        let mut cursor = Cursor::new(&[1, 0, 0, 0, 9]);
        assert_eq!(cursor.u32(), Ok(1));
        assert_eq!(cursor.u32(), Err(Short { offset: 4, needed: 4, available: 1 }));
        assert_eq!(cursor.take(u64::MAX), Err(Short { offset: 4, needed: u64::MAX, available: 1 }));
        assert_eq!(cursor.expect(u64::MAX, 8), Err(Short { offset: 4, needed: u64::MAX, available: 1 }));
        assert_eq!(cursor.expect(1, 1), Ok(()));
        assert_eq!(cursor.take(1), Ok(&[9][..]));
        assert_eq!(cursor.take(0), Ok(&[][..]));
        assert_eq!(cursor.array::<1>(), Err(Short { offset: 5, needed: 1, available: 0 }));
    }

    #[test]
    fn a_string_longer_than_the_file_is_refused() {
        let mut cursor = Cursor::new(&[4, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c']);
        assert_eq!(cursor.string(), Err(Short { offset: 8, needed: 4, available: 3 }));
    }
}
