//! f32 weights to ternary weights to I2_S bytes, and back.
//!
//! A tensor's scale is the mean magnitude of its weights, and a weight is what rounds to -1, 0 or +1 in units of the
//! scale. Weights near half the scale change their code with the scale's last bits, so the mean is summed in exactly
//! one order, that of numpy's float32 sum, which other converters use: files then agree byte for byte.

use crate::error::PackError;
use crate::layout::{self, BLOCK, BLOCK_BYTES, INVALID_CODE, TAIL_BYTES, ZERO_CODE};
use rayon::prelude::*;
use std::ops::Range;

/// The smallest scale a tensor can have; a tensor of zeros has it.
pub const MIN_SCALE: f32 = 1e-5;

/// Values below which a sum is not shared between threads: a few microseconds of work.
const SUM_ON_ONE_THREAD: usize = 1 << 16;

/// Blocks that one task packs or scans: a few microseconds of work.
const BLOCKS_PER_TASK: usize = 1 << 10;

/// The scale of a tensor: the mean magnitude of all its values, at least [`MIN_SCALE`]. For no values, [`MIN_SCALE`].
///
/// A pure function of the values: threads share the work along the fixed splits of the sum. The mean of finite values
/// may overflow to infinity; [`ternarize_and_pack`] refuses that.
pub fn absmean_scale(values: &[f32]) -> f32 {
    if values.is_empty() {
        return MIN_SCALE;
    }
    (sum_of_magnitudes(values) / values.len() as f32).max(MIN_SCALE)
}

/// The pairwise sum: halves split at a multiple of 8, down to leaves of at most 128 values.
fn sum_of_magnitudes(values: &[f32]) -> f32 {
    if values.len() <= 128 {
        return leaf_sum(values);
    }
    let half = values.len() / 2;
    let (low, high) = values.split_at(half - half % 8);
    if values.len() > SUM_ON_ONE_THREAD {
        let (low, high) = rayon::join(|| sum_of_magnitudes(low), || sum_of_magnitudes(high));
        low + high
    } else {
        sum_of_magnitudes(low) + sum_of_magnitudes(high)
    }
}

/// A leaf: eight running sums joined as a tree, then the values that do not fill eight lanes one by one.
fn leaf_sum(values: &[f32]) -> f32 {
    let (groups, rest) = values.as_chunks::<8>();
    let total = match groups.split_first() {
        None => 0.0,
        Some((first, groups)) => {
            let mut lane = first.map(f32::abs);
            for group in groups {
                for (lane, value) in lane.iter_mut().zip(group) {
                    *lane += value.abs();
                }
            }
            ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]))
        }
    };
    rest.iter().fold(total, |total, value| total + value.abs())
}

/// The code of `value * inverse` rounded half to even and clamped to -1, 0, +1.
///
/// Half rounds to the even 0 and everything beyond it to at least 1, so two comparisons say it all.
fn code(value: f32, inverse: f32) -> u8 {
    let scaled = value * inverse;
    (ZERO_CODE + u8::from(scaled > 0.5)) - u8::from(scaled < -0.5)
}

/// The ternary weights of `values` in units of `scale`.
///
/// # Errors
/// When the scale is not positive and finite, or a value is not finite.
pub fn ternarize(values: &[f32], scale: f32) -> Result<Vec<i8>, PackError> {
    let inverse = inverse_of(scale)?;
    all_finite(values)?;
    Ok(values.iter().map(|&value| layout::weight_of(code(value, inverse))).collect())
}

/// Ternarises `values` with their [`absmean_scale`] and packs them in flat order, tail included: the tensor's bytes in
/// a file.
///
/// # Errors
/// When a value or the scale is not finite, or `values.len()` is not a multiple of [`BLOCK`].
pub fn ternarize_and_pack(values: &[f32]) -> Result<Vec<u8>, PackError> {
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    if !rest.is_empty() {
        return Err(PackError::PartialBlock { block: BLOCK, found: values.len() });
    }
    all_finite(values)?;
    let scale = absmean_scale(values);
    let inverse = inverse_of(scale)?;
    // In flat order every block is a row of its own.
    pack_padded(values, blocks.len(), BLOCK, scale, 0.0, |block, packed| ternarize_block(block, inverse, packed))
}

/// Ternarises a `[rows, cols]` tensor with its [`absmean_scale`] and packs it in rows of whole blocks, tail included:
/// what [`TernaryMatrix`](crate::matrix::TernaryMatrix) reads. Any shape will do.
///
/// # Errors
/// When a value or the scale is not finite, or `values.len()` is not `rows * cols`.
pub fn ternarize_and_pack_rows(values: &[f32], rows: usize, cols: usize) -> Result<Vec<u8>, PackError> {
    check_values(values.len(), rows, cols)?;
    ternarize_and_pack_decoded(rows, cols, |row, out| out.copy_from_slice(&values[row * cols..][..cols]))
}

/// [`ternarize_and_pack_rows`] of a tensor that exists in another form: `decode(row, out)` writes one of its rows. Rows
/// are decoded twice, for the scale and for the codes, so that no more than a few are ever held as f32.
///
/// # Errors
/// When a value or the scale is not finite, or the size of the result overflows.
pub fn ternarize_and_pack_decoded(
    rows: usize,
    cols: usize,
    decode: impl Fn(usize, &mut [f32]) + Sync,
) -> Result<Vec<u8>, PackError> {
    let too_large = PackError::Length { rows, cols, unit: "bytes", expected: None, found: 0 };
    let (Some(count), Some(len)) = (rows.checked_mul(cols), layout::padded_byte_len(rows, cols)) else {
        return Err(too_large);
    };
    let sum = if count == 0 { 0.0 } else { sum_of_decoded(0..count, cols, &decode) };
    if !sum.is_finite() {
        first_not_finite(rows, cols, &decode)?;
    }
    // Not `max` on a sum that overflowed: it is refused here.
    let scale = if count == 0 { MIN_SCALE } else { (sum / count as f32).max(MIN_SCALE) };
    let inverse = inverse_of(scale)?;
    let mut bytes = vec![0; len];
    let packed = bytes[..len - TAIL_BYTES].as_chunks_mut::<BLOCK_BYTES>().0;
    let stride = layout::blocks_per_row(cols).max(1);
    let rows_per_task = (BLOCKS_PER_TASK / stride).max(1);
    packed.par_chunks_mut(rows_per_task * stride).enumerate().for_each(|(task, packed)| {
        // What a row leaves of its last block is zero, the weight of no effect.
        let mut values = vec![0.0; stride * BLOCK];
        for (row, packed) in packed.chunks_exact_mut(stride).enumerate() {
            decode(task * rows_per_task + row, &mut values[..cols]);
            for (block, packed) in values.as_chunks::<BLOCK>().0.iter().zip(packed) {
                ternarize_block(block, inverse, packed);
            }
        }
    });
    bytes[len - TAIL_BYTES..].copy_from_slice(&layout::tail(scale));
    Ok(bytes)
}

/// [`sum_of_magnitudes`] of the flat values in `range`, with the same splits.
fn sum_of_decoded(range: Range<usize>, cols: usize, decode: &(impl Fn(usize, &mut [f32]) + Sync)) -> f32 {
    if range.len() > SUM_ON_ONE_THREAD {
        let half = range.len() / 2;
        let middle = range.start + half - half % 8;
        let (low, high) = rayon::join(
            || sum_of_decoded(range.start..middle, cols, decode),
            || sum_of_decoded(middle..range.end, cols, decode),
        );
        return low + high;
    }
    let (first, last) = (range.start / cols, (range.end - 1) / cols);
    let mut values = vec![0.0; (last + 1 - first) * cols];
    for (row, values) in (first..=last).zip(values.chunks_exact_mut(cols)) {
        decode(row, values);
    }
    let offset = range.start - first * cols;
    sum_of_magnitudes(&values[offset..][..range.len()])
}

/// The error of the first value that is not finite, if there is one.
fn first_not_finite(rows: usize, cols: usize, decode: &impl Fn(usize, &mut [f32])) -> Result<(), PackError> {
    let mut values = vec![0.0; cols];
    for row in 0..rows {
        decode(row, &mut values);
        if let Some(col) = values.iter().position(|value| !value.is_finite()) {
            return Err(PackError::NotFinite { index: row * cols + col, found: values[col] });
        }
    }
    Ok(())
}

/// Packs ternary weights in flat order, tail included: the tensor's bytes in a file.
///
/// # Errors
/// When a weight is none of -1, 0, +1, the scale is not positive and finite, or `weights.len()` is not a multiple of
/// [`BLOCK`].
pub fn pack(weights: &[i8], scale: f32) -> Result<Vec<u8>, PackError> {
    if !weights.len().is_multiple_of(BLOCK) {
        return Err(PackError::PartialBlock { block: BLOCK, found: weights.len() });
    }
    pack_rows(weights, weights.len() / BLOCK, BLOCK, scale)
}

/// Packs a `[rows, cols]` tensor of ternary weights in rows of whole blocks, tail included. Any shape will do.
///
/// # Errors
/// When a weight is none of -1, 0, +1, the scale is not positive and finite, or `weights.len()` is not `rows * cols`.
pub fn pack_rows(weights: &[i8], rows: usize, cols: usize, scale: f32) -> Result<Vec<u8>, PackError> {
    check_values(weights.len(), rows, cols)?;
    inverse_of(scale)?;
    if let Some(index) = weights.iter().position(|&weight| layout::code_of(weight).is_none()) {
        return Err(PackError::NotTernary { index, found: weights[index] });
    }
    pack_padded(weights, rows, cols, scale, 0, pack_block)
}

/// The weights of the blocks `packed`, 128 a block; a code 3 reads as +2.
pub fn unpack(packed: &[[u8; BLOCK_BYTES]]) -> Vec<i8> {
    let mut weights = vec![0; packed.len() * BLOCK];
    for (weights, block) in weights.as_chunks_mut::<BLOCK>().0.iter_mut().zip(packed) {
        unpack_block(block, weights);
    }
    weights
}

/// Brings the bytes of a `[rows, cols]` tensor in flat order, tail included, into rows of whole blocks. The scale and
/// every code stay as they are, valid or not.
///
/// # Errors
/// When `bytes.len()` is not [`layout::byte_len`] of the shape.
pub fn repack_rows(bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<u8>, PackError> {
    let expected = layout::byte_len(rows, cols);
    let wrong_length = PackError::Length { rows, cols, unit: "bytes", expected, found: bytes.len() };
    if expected != Some(bytes.len()) {
        return Err(wrong_length);
    }
    if cols.is_multiple_of(BLOCK) {
        return Ok(bytes.to_vec());
    }
    let (blocks, scale) = layout::split(bytes).ok_or(wrong_length)?;
    pack_padded(&unpack(blocks), rows, cols, scale, 0, pack_block)
}

/// The flat index of the first code 3 in packed blocks (without the tail), if there is one.
///
/// Reads on the threads of rayon's current pool; bytes after the last whole block are not looked at.
pub fn first_invalid_code(packed: &[u8]) -> Option<usize> {
    let blocks = packed.as_chunks::<BLOCK_BYTES>().0;
    let block = blocks.par_chunks(BLOCKS_PER_TASK).enumerate().find_map_first(|(task, blocks)| {
        // One test for the whole task is a loop without exits, which vectorises; most tasks of most files pass it.
        let any = blocks.iter().fold(0, |any, block| any | invalid_bits(block));
        (any != 0).then(|| task * BLOCKS_PER_TASK)
    })?;
    let block = block + blocks[block..].iter().position(|block| invalid_bits(block) != 0)?;
    let index = (0..BLOCK).find(|&index| {
        let (byte, shift) = layout::position(index);
        (blocks[block][byte] >> shift) & 3 == INVALID_CODE
    })?;
    Some(block * BLOCK + index)
}

/// Not zero when the block has a code 3: both bits of a pair set.
fn invalid_bits(block: &[u8; BLOCK_BYTES]) -> u8 {
    block.iter().fold(0, |any, &byte| any | (byte & (byte >> 1) & 0x55))
}

/// Packs rows of `cols` values with `pack_block`, filling the last block of each row with `zero`.
fn pack_padded<T: Copy + Sync>(
    values: &[T],
    rows: usize,
    cols: usize,
    scale: f32,
    zero: T,
    pack_block: impl Fn(&[T; BLOCK], &mut [u8; BLOCK_BYTES]) + Sync,
) -> Result<Vec<u8>, PackError> {
    let Some(len) = layout::padded_byte_len(rows, cols) else {
        return Err(PackError::Length { rows, cols, unit: "bytes", expected: None, found: values.len() });
    };
    let mut bytes = vec![0; len];
    let packed = bytes[..len - TAIL_BYTES].as_chunks_mut::<BLOCK_BYTES>().0;
    // At least one, as chunks must be, for the tensor without columns.
    let stride = layout::blocks_per_row(cols).max(1);
    let cols = cols.max(1);
    let rows_per_task = (BLOCKS_PER_TASK / stride).max(1);
    packed.par_chunks_mut(rows_per_task * stride).zip(values.par_chunks(rows_per_task * cols)).for_each(
        |(packed, values)| {
            for (packed, row) in packed.chunks_exact_mut(stride).zip(values.chunks_exact(cols)) {
                let (blocks, rest) = row.as_chunks::<BLOCK>();
                for (packed, block) in packed.iter_mut().zip(blocks) {
                    pack_block(block, packed);
                }
                if !rest.is_empty() {
                    let mut block = [zero; BLOCK];
                    block[..rest.len()].copy_from_slice(rest);
                    pack_block(&block, &mut packed[stride - 1]);
                }
            }
        },
    );
    bytes[len - TAIL_BYTES..].copy_from_slice(&layout::tail(scale));
    Ok(bytes)
}

fn ternarize_block(block: &[f32; BLOCK], inverse: f32, packed: &mut [u8; BLOCK_BYTES]) {
    let (planes, _) = block.as_chunks::<BLOCK_BYTES>();
    for (j, packed) in packed.iter_mut().enumerate() {
        *packed = (code(planes[0][j], inverse) << 6)
            | (code(planes[1][j], inverse) << 4)
            | (code(planes[2][j], inverse) << 2)
            | code(planes[3][j], inverse);
    }
}

/// Packs weights of -1..=2, the range of two bits.
fn pack_block(block: &[i8; BLOCK], packed: &mut [u8; BLOCK_BYTES]) {
    let (planes, _) = block.as_chunks::<BLOCK_BYTES>();
    for (j, packed) in packed.iter_mut().enumerate() {
        let code = |plane: usize| (planes[plane][j] + 1).cast_unsigned() & 3;
        *packed = (code(0) << 6) | (code(1) << 4) | (code(2) << 2) | code(3);
    }
}

/// Unpacks one block.
pub(crate) fn unpack_block(packed: &[u8; BLOCK_BYTES], weights: &mut [i8; BLOCK]) {
    for (plane, shift) in weights.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().zip(layout::PLANE_SHIFTS) {
        for (weight, packed) in plane.iter_mut().zip(packed) {
            *weight = layout::weight_of(packed >> shift);
        }
    }
}

fn inverse_of(scale: f32) -> Result<f32, PackError> {
    if scale.is_finite() && scale > 0.0 { Ok(1.0 / scale) } else { Err(PackError::Scale { found: scale }) }
}

fn all_finite(values: &[f32]) -> Result<(), PackError> {
    const TASK: usize = BLOCKS_PER_TASK * BLOCK;
    // No early exit inside a task, so that the loop vectorises.
    let bad = |values: &[f32]| values.iter().fold(false, |bad, value| bad | !value.is_finite());
    let task = values.par_chunks(TASK).position_first(bad);
    let Some(start) = task.map(|task| task * TASK) else { return Ok(()) };
    match values[start..].iter().position(|value| !value.is_finite()) {
        Some(offset) => Err(PackError::NotFinite { index: start + offset, found: values[start + offset] }),
        None => Ok(()),
    }
}

fn check_values(found: usize, rows: usize, cols: usize) -> Result<(), PackError> {
    let expected = rows.checked_mul(cols);
    if expected == Some(found) {
        Ok(())
    } else {
        Err(PackError::Length { rows, cols, unit: "values", expected, found })
    }
}
