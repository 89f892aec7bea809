//! The description of one tensor, and the proof that its bytes are in the file.

use std::ops::Range;

use burn_i2s::ggml::GgmlType;

use super::cursor::Cursor;
use super::metadata::read_name;
use super::{GgufError, MAX_DIMENSIONS, Part};

/// A tensor of a file: its name, shape, type and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    name: String,
    dims: Vec<usize>,
    element_count: usize,
    type_id: u32,
    offset: u64,
    byte_len: Option<usize>,
    range: Range<usize>,
}

impl TensorInfo {
    /// The tensor's name, such as `blk.0.attn_q.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One to four dimensions in the order of the file: fastest first, `[cols, rows]` for a matrix. None of them is zero.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The dimensions in the order of Burn and PyTorch: slowest first, `[rows, cols]` for a matrix.
    pub fn shape(&self) -> Vec<usize> {
        self.dims.iter().rev().copied().collect()
    }

    /// Values per row.
    pub fn cols(&self) -> usize {
        self.dims[0]
    }

    /// Rows: the product of all dimensions but the fastest, 1 for a vector.
    pub fn rows(&self) -> usize {
        self.element_count / self.dims[0]
    }

    /// Values in all.
    pub fn element_count(&self) -> usize {
        self.element_count
    }

    /// GGML's number of the type.
    pub fn type_id(&self) -> u32 {
        self.type_id
    }

    /// The type, if this crate decodes it.
    pub fn ggml_type(&self) -> Option<GgmlType> {
        GgmlType::from_id(self.type_id)
    }

    /// GGML's name of the type, also of one that this crate does not decode; `unknown` if it has none.
    pub fn type_name(&self) -> &'static str {
        stored(self.type_id).map_or("unknown", |stored| stored.name)
    }

    /// Where the data starts, in bytes from the start of the file's data section.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the data; `None` for a type whose size is not known.
    pub fn byte_len(&self) -> Option<usize> {
        self.byte_len
    }

    /// The type, or an error for one that this crate does not decode.
    ///
    /// # Errors
    /// [`GgufError::UnsupportedType`].
    pub fn require_type(&self) -> Result<GgmlType, GgufError> {
        self.ggml_type().ok_or_else(|| self.unsupported())
    }

    pub(super) fn unsupported(&self) -> GgufError {
        GgufError::UnsupportedType { tensor: self.name.clone(), type_name: self.type_name(), id: self.type_id }
    }

    /// Where the data is, in bytes from the start of the file.
    ///
    /// # Errors
    /// [`GgufError::UnsupportedType`] for a type that this crate does not decode.
    pub fn file_range(&self) -> Result<Range<usize>, GgufError> {
        self.require_type()?;
        Ok(self.range.clone())
    }

    /// As [`file_range`](Self::file_range), for every type whose size is known.
    pub(super) fn raw_range(&self) -> Result<Range<usize>, GgufError> {
        self.byte_len.map(|_| self.range.clone()).ok_or_else(|| self.unsupported())
    }

    /// Reads one description. Where the data is has to be [placed](place) when all descriptions are read.
    pub(super) fn read(cursor: &mut Cursor<'_>, index: usize) -> Result<Self, GgufError> {
        let part = || Part::TensorInfo(index);
        let name = read_name(cursor, part)?.to_owned();
        let count = cursor.u32().map_err(|short| short.at(part()))?;
        if !(1..=MAX_DIMENSIONS as u32).contains(&count) {
            return Err(GgufError::DimensionCount { tensor: name, found: count.into() });
        }
        let mut stored_dims = Vec::with_capacity(count as usize);
        for _ in 0..count {
            stored_dims.push(cursor.u64().map_err(|short| short.at(part()))?);
        }
        let type_id = cursor.u32().map_err(|short| short.at(part()))?;
        let offset = cursor.u64().map_err(|short| short.at(part()))?;
        if stored_dims.contains(&0) {
            return Err(GgufError::ZeroDimension { tensor: name, dims: stored_dims });
        }
        let Some((dims, element_count)) = checked_dims(&stored_dims) else {
            return Err(GgufError::TensorTooLarge { tensor: name, dims: stored_dims });
        };
        let byte_len = byte_len(&name, type_id, &dims, element_count)?;
        Ok(Self { name, dims, element_count, type_id, offset, byte_len, range: 0..0 })
    }
}

fn checked_dims(stored: &[u64]) -> Option<(Vec<usize>, usize)> {
    let dims: Vec<usize> = stored.iter().map(|dim| usize::try_from(*dim).ok()).collect::<Option<_>>()?;
    let element_count = dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim))?;
    Some((dims, element_count))
}

/// The bytes that a tensor takes; `None` when its type is not known.
fn byte_len(name: &str, type_id: u32, dims: &[usize], element_count: usize) -> Result<Option<usize>, GgufError> {
    let partial =
        |type_name, block, found| GgufError::PartialBlock { tensor: name.to_owned(), type_name, block, found };
    let too_large =
        || GgufError::TensorTooLarge { tensor: name.to_owned(), dims: dims.iter().map(|dim| *dim as u64).collect() };
    if type_id == GgmlType::I2_S.id() {
        return match GgmlType::I2_S.tensor_bytes(element_count) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(partial(GgmlType::I2_S.name(), 128, element_count)),
        };
    }
    let Some(stored) = stored(type_id) else { return Ok(None) };
    if !dims[0].is_multiple_of(stored.block) {
        return Err(partial(stored.name, stored.block, dims[0]));
    }
    (element_count / stored.block).checked_mul(stored.bytes).map(Some).ok_or_else(too_large)
}

/// Finds every tensor's bytes: inside the file, aligned, apart from each other.
///
/// `data_start` is where the data section starts, in bytes from the start of the file.
pub(super) fn place(
    tensors: &mut [TensorInfo],
    data_start: usize,
    file_len: usize,
    alignment: usize,
) -> Result<(), GgufError> {
    for tensor in &mut *tensors {
        if !tensor.offset.is_multiple_of(alignment as u64) {
            let tensor_name = tensor.name.clone();
            return Err(GgufError::UnalignedOffset { tensor: tensor_name, offset: tensor.offset, alignment });
        }
        // At least one byte of every tensor has to be there, whatever its type.
        let start = u128::from(tensor.offset) + data_start as u128;
        if start >= file_len as u128 {
            return Err(GgufError::OutOfFile { tensor: tensor.name.clone(), end: start + 1, file_len });
        }
        tensor.range.start = start as usize;
    }
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&index| tensors[index].range.start);
    for (position, &index) in order.iter().enumerate() {
        let next = order.get(position + 1).map(|&next| &tensors[next]);
        let tensor = &tensors[index];
        let end = tensor.end_before(next, file_len, alignment)?;
        tensors[index].range.end = end;
    }
    Ok(())
}

impl TensorInfo {
    /// Where the data ends, if that is in the file and not after the start of the next tensor.
    fn end_before(&self, next: Option<&Self>, file_len: usize, alignment: usize) -> Result<usize, GgufError> {
        let start = self.range.start;
        let limit = next.map_or(file_len, |next| next.range.start);
        let overlap = |other: &Self| GgufError::Overlap { tensor: self.name.clone(), other: other.name.clone() };
        if let Some(next) = next.filter(|next| next.range.start == start) {
            return Err(overlap(next));
        }
        let Some(byte_len) = self.byte_len else { return Ok(limit) };
        let room = limit - start;
        let padded = byte_len.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
        // Another type had number 36 once, so the room must be that of I2_S. Only the last tensor may go unpadded.
        let fits = if next.is_some() { room == padded } else { (byte_len..=padded).contains(&room) };
        if self.type_id == GgmlType::I2_S.id() && !fits && (next.is_some() || room > padded) {
            return Err(GgufError::I2sLength { tensor: self.name.clone(), expected: padded, found: room });
        }
        match next {
            _ if byte_len <= room => Ok(start + byte_len),
            Some(next) => Err(overlap(next)),
            None => {
                let end = start as u128 + byte_len as u128;
                Err(GgufError::OutOfFile { tensor: self.name.clone(), end, file_len })
            }
        }
    }
}

/// How GGML stores a type, whether or not this crate decodes it.
struct Stored {
    name: &'static str,
    /// Values per block.
    block: usize,
    /// Bytes per block.
    bytes: usize,
}

/// The types that GGML gives a number and a size.
fn stored(type_id: u32) -> Option<Stored> {
    let (name, block, bytes) = match type_id {
        0 => ("F32", 1, 4),
        1 => ("F16", 1, 2),
        2 => ("Q4_0", 32, 18),
        3 => ("Q4_1", 32, 20),
        6 => ("Q5_0", 32, 22),
        7 => ("Q5_1", 32, 24),
        8 => ("Q8_0", 32, 34),
        9 => ("Q8_1", 32, 40),
        10 => ("Q2_K", 256, 84),
        11 => ("Q3_K", 256, 110),
        12 => ("Q4_K", 256, 144),
        13 => ("Q5_K", 256, 176),
        14 => ("Q6_K", 256, 210),
        15 => ("Q8_K", 256, 292),
        16 => ("IQ2_XXS", 256, 66),
        17 => ("IQ2_XS", 256, 74),
        18 => ("IQ3_XXS", 256, 98),
        19 => ("IQ1_S", 256, 50),
        20 => ("IQ4_NL", 32, 18),
        21 => ("IQ3_S", 256, 110),
        22 => ("IQ2_S", 256, 82),
        23 => ("IQ4_XS", 256, 136),
        24 => ("I8", 1, 1),
        25 => ("I16", 1, 2),
        26 => ("I32", 1, 4),
        27 => ("I64", 1, 8),
        28 => ("F64", 1, 8),
        29 => ("IQ1_M", 256, 56),
        30 => ("BF16", 1, 2),
        34 => ("TQ1_0", 256, 54),
        35 => ("TQ2_0", 256, 66),
        // The scale at the end is not part of a block.
        36 => ("I2_S", 128, 32),
        39 => ("MXFP4", 32, 17),
        40 => ("NVFP4", 64, 36),
        41 => ("Q1_0", 128, 18),
        _ => return None,
    };
    Some(Stored { name, block, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_that_are_decoded_have_ggmls_name_and_size() {
        let mut decoded = 0;
        for id in 0..64 {
            let Some(ty) = GgmlType::from_id(id) else { continue };
            let stored = stored(id).expect("a decoded type is in the table");
            assert_eq!((ty.id(), ty.name()), (id, stored.name));
            if let Some(block) = ty.block() {
                assert_eq!(block, (stored.block, stored.bytes), "{}", stored.name);
            }
            decoded += 1;
        }
        assert!(decoded >= 4);
    }
}
