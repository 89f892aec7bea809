//! The values of a tensor -> the bytes of a GGUF tensor.
//!
//! Values pass through f32 and are rounded once to the target type, to nearest even. A tensor goes through in pieces
//! of [`CHUNK`] values, so memory does not grow with it; only I2_S needs a whole matrix at once, for its scale. Every
//! piece is a pure function of its values: the bytes do not depend on the number of threads.

use bitnet_embed::gguf::GgufError;
use burn_i2s::ggml::GgmlType;
use half::{bf16, f16};
use rayon::prelude::*;

use crate::checkpoint::CheckpointError;
use crate::source::Source;
use crate::ternary_fit::TernaryFit;

/// Values converted at a time: whole blocks of every type.
pub const CHUNK: usize = 1 << 22;
/// Values per task of the thread pool: whole blocks of every type.
pub(crate) const TASK: usize = 1 << 16;

/// Why a tensor cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A value is not a finite number.
    #[error("tensor {tensor}: value {index} is {value}; weights must be finite: the checkpoint is damaged")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// Flat position of the value.
        index: usize,
        /// NaN or an infinity.
        value: f32,
    },
    /// A finite value is too large for the target type.
    #[error(
        "tensor {tensor}: value {index} is {value}, beyond the largest {target}; convert with --outtype f32, or with --auto-widen to keep this tensor in f32"
    )]
    Overflow {
        /// The tensor.
        tensor: String,
        /// Flat position of the value.
        index: usize,
        /// The value.
        value: f64,
        /// Name of the target type.
        target: &'static str,
    },
    /// A matrix has no usable ternary form.
    #[error("tensor {tensor}: {source}")]
    Ternary {
        /// The tensor.
        tensor: String,
        /// Why.
        source: burn_i2s::error::PackError,
    },
    /// The source could not be read.
    #[error(transparent)]
    Read(#[from] CheckpointError),
    /// The output could not be written, or a GGUF file not be read.
    #[error("not written: {0}")]
    Write(#[from] GgufError),
}

/// What the user may want to know about a tensor that was converted.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    /// Values that were not zero and are zero in the file.
    pub flushed: usize,
    /// How well ternary weights describe it, for I2_S.
    pub fit: Option<TernaryFit>,
}

/// Passes one tensor as `target` to `out`, piece by piece.
///
/// # Errors
/// When a value is not finite or does not fit, or reading or writing fails.
pub fn encode(
    source: &dyn Source,
    target: GgmlType,
    out: &mut dyn FnMut(&[u8]) -> Result<(), GgufError>,
) -> Result<Encoded, EncodeError> {
    let elements = source.elements();
    let mut encoded = Encoded::default();
    if target == GgmlType::I2_S {
        let mut values = vec![0.0; elements];
        for (piece, start) in values.chunks_mut(CHUNK).zip((0..).step_by(CHUNK)) {
            source.read(start, piece)?;
        }
        let packed = burn_i2s::pack::ternarize_and_pack(&values)
            .map_err(|problem| EncodeError::Ternary { tensor: source.name().to_owned(), source: problem })?;
        encoded.fit = TernaryFit::of(&values, &packed);
        out(&packed)?;
        return Ok(encoded);
    }
    let mut values = Vec::new();
    let mut bytes = Vec::new();
    for start in (0..elements).step_by(CHUNK) {
        values.resize(CHUNK.min(elements - start), 0.0);
        source.read(start, &mut values)?;
        encode_piece(&values, target, &mut bytes);
        if let Some(at) = first_overflow(&values, &bytes, target) {
            let (tensor, target) = (source.name().to_owned(), type_name(target));
            return Err(EncodeError::Overflow { tensor, index: start + at, value: values[at].into(), target });
        }
        encoded.flushed += flushed(&values, target);
        out(&bytes)?;
    }
    Ok(encoded)
}

/// Whether all values of a tensor fit the type.
///
/// # Errors
/// Those of [`encode`], except that a value is too large.
pub fn fits(source: &dyn Source, target: GgmlType) -> Result<bool, EncodeError> {
    if target == GgmlType::F32 || target == GgmlType::I2_S {
        return Ok(true);
    }
    match encode(source, target, &mut |_| Ok(())) {
        Ok(_) => Ok(true),
        Err(EncodeError::Overflow { target, .. }) if target != "f32" => Ok(false),
        Err(error) => Err(error),
    }
}

/// The type as the command line spells it.
pub fn type_name(ty: GgmlType) -> &'static str {
    match ty {
        GgmlType::F32 => "f32",
        GgmlType::F16 => "f16",
        GgmlType::BF16 => "bf16",
        GgmlType::Q8_0 => "q8_0",
        GgmlType::Q6_K => "q6_k",
        GgmlType::I2_S => "i2_s",
        other => other.name(),
    }
}

fn encode_piece(values: &[f32], target: GgmlType, bytes: &mut Vec<u8>) {
    // Planning asks for rows of whole blocks, and pieces and tasks are whole blocks as well.
    bytes.resize(target.row_bytes(values.len()).unwrap_or(0), 0);
    let task_bytes = target.row_bytes(TASK).unwrap_or(1);
    bytes.par_chunks_mut(task_bytes).zip(values.par_chunks(TASK)).for_each(|(bytes, values)| {
        target.encode_row(values, bytes);
    });
}

/// Position of a value that the type cannot hold.
fn first_overflow(values: &[f32], bytes: &[u8], target: GgmlType) -> Option<usize> {
    // The largest value of a block with an infinite scale.
    let in_block = |at: usize| -> Option<usize> {
        let (len, size) = target.block()?;
        let infinite = |block: &[u8]| !f16::from_le_bytes([block[at], block[at + 1]]).is_finite();
        let start = bytes.chunks_exact(size).position(infinite)? * len;
        (start..start + len).max_by(|&a, &b| values[a].abs().total_cmp(&values[b].abs()))
    };
    match target {
        GgmlType::F16 => first(values, |value| f16::from_f32(value).is_infinite()),
        GgmlType::BF16 => first(values, |value| bf16::from_f32(value).is_infinite()),
        GgmlType::Q8_0 => in_block(0),
        GgmlType::Q6_K => in_block(208),
        _ => None,
    }
}

/// Values that become zero although they are none; that is what quantised blocks do to most small values, so it is
/// counted for floats alone.
fn flushed(values: &[f32], target: GgmlType) -> usize {
    let count = |to_zero: fn(f32) -> bool| {
        values
            .par_chunks(TASK)
            .map(|values| values.iter().filter(|value| **value != 0.0 && to_zero(**value)).count())
            .sum()
    };
    match target {
        GgmlType::F16 => count(|value| f16::from_f32(value).to_bits() << 1 == 0),
        GgmlType::BF16 => count(|value| bf16::from_f32(value).to_bits() << 1 == 0),
        _ => 0,
    }
}

/// Position of the first value that `found` accepts.
pub(crate) fn first(values: &[f32], found: impl Fn(f32) -> bool + Sync) -> Option<usize> {
    values
        .par_chunks(TASK)
        .enumerate()
        .find_map_first(|(task, values)| Some(task * TASK + values.iter().position(|&value| found(value))?))
}
