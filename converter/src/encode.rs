//! A tensor of the checkpoint -> the bytes of a GGUF tensor.
//!
//! Values pass through f32 and are rounded once to the target type, to nearest even. A tensor goes through in pieces
//! of [`CHUNK`] values, so memory does not grow with it; only I2_S needs a whole matrix at once, for its scale. Every
//! piece is a pure function of its values: the bytes do not depend on the number of threads.

use bitnet_embed::gguf::GgufError;
use burn_i2s::ggml::GgmlType;
use half::{bf16, f16};
use rayon::prelude::*;

use crate::checkpoint::{Checkpoint, CheckpointError, Dtype, TensorEntry};

/// Values converted at a time.
pub const CHUNK: usize = 1 << 22;
/// Values per task of the thread pool.
const TASK: usize = 1 << 16;

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
    #[error("tensor {tensor}: value {index} is {value}, beyond the largest {target}; convert with --outtype f32")]
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
    /// The checkpoint could not be read.
    #[error(transparent)]
    Read(#[from] CheckpointError),
    /// The output could not be written.
    #[error("not written: {0}")]
    Write(#[from] GgufError),
}

/// Passes one tensor as `target` to `out`, piece by piece, adding one to every value first if `add_one` (Gemma's norms).
///
/// # Errors
/// When a value is not finite or does not fit, or reading or writing fails.
pub fn encode(
    checkpoint: &Checkpoint,
    tensor: &TensorEntry,
    target: GgmlType,
    add_one: bool,
    out: &mut impl FnMut(&[u8]) -> Result<(), GgufError>,
) -> Result<(), EncodeError> {
    let elements = tensor.elements();
    let mut buffers = Buffers::default();
    if target == GgmlType::I2_S {
        buffers.read(checkpoint, tensor, 0, elements)?;
        let packed = burn_i2s::pack::ternarize_and_pack(&buffers.values)
            .map_err(|source| EncodeError::Ternary { tensor: tensor.name.clone(), source })?;
        return Ok(out(&packed)?);
    }
    for start in (0..elements).step_by(CHUNK) {
        buffers.read(checkpoint, tensor, start, CHUNK.min(elements - start))?;
        if add_one {
            buffers.values.iter_mut().for_each(|value| *value += 1.0);
        }
        buffers.encode(target);
        if target == GgmlType::F16 {
            buffers.check_f16(tensor, start)?;
        }
        out(&buffers.encoded)?;
    }
    Ok(())
}

/// What a piece passes through; reused from piece to piece.
#[derive(Default)]
struct Buffers {
    raw: Vec<u8>,
    values: Vec<f32>,
    encoded: Vec<u8>,
}

impl Buffers {
    /// Fills `values` with `count` values from `start` on, all of them finite.
    fn read(
        &mut self,
        checkpoint: &Checkpoint,
        tensor: &TensorEntry,
        start: usize,
        count: usize,
    ) -> Result<(), EncodeError> {
        // Planning let only these four types through; the size of another one is never asked for.
        let size = tensor.dtype.size().unwrap_or(1);
        self.raw.resize(count * size, 0);
        self.values.resize(count, 0.0);
        // Both are sizes of data that is in the file: the header was checked against its length.
        checkpoint.read_at(tensor, (start * size) as u64, &mut self.raw)?;
        let (raw, values) = (&self.raw, &mut self.values);
        match tensor.dtype {
            Dtype::F64 => decode(raw, values, |bytes: &[u8; 8]| f64::from_le_bytes(*bytes) as f32),
            Dtype::F32 => decode(raw, values, |bytes: &[u8; 4]| f32::from_le_bytes(*bytes)),
            Dtype::F16 => decode(raw, values, |bytes: &[u8; 2]| f16::from_le_bytes(*bytes).to_f32()),
            Dtype::BF16 => decode(raw, values, |bytes: &[u8; 2]| bf16::from_le_bytes(*bytes).to_f32()),
            Dtype::Other(_) => {}
        }
        let Some(at) = first(&self.values, |value| !value.is_finite()) else { return Ok(()) };
        let (name, index) = (tensor.name.clone(), start + at);
        if tensor.dtype == Dtype::F64
            && let Some(bytes) = self.raw.as_chunks().0.get(at)
            && f64::from_le_bytes(*bytes).is_finite()
        {
            return Err(EncodeError::Overflow {
                tensor: name,
                index,
                value: f64::from_le_bytes(*bytes),
                target: "f32",
            });
        }
        Err(EncodeError::NotFinite { tensor: name, index, value: self.values[at] })
    }

    fn encode(&mut self, target: GgmlType) {
        match target {
            GgmlType::F16 => self.encode_with(|value| f16::from_f32(value).to_le_bytes()),
            _ => self.encode_with(f32::to_le_bytes),
        }
    }

    fn encode_with<const N: usize>(&mut self, encode: impl Fn(f32) -> [u8; N] + Sync) {
        self.encoded.resize(self.values.len() * N, 0);
        self.encoded.par_chunks_mut(TASK * N).zip(self.values.par_chunks(TASK)).for_each(|(bytes, values)| {
            for (bytes, &value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
                *bytes = encode(value);
            }
        });
    }

    fn check_f16(&self, tensor: &TensorEntry, start: usize) -> Result<(), EncodeError> {
        let Some(at) = first(&self.values, |value| f16::from_f32(value).is_infinite()) else { return Ok(()) };
        Err(EncodeError::Overflow {
            tensor: tensor.name.clone(),
            index: start + at,
            value: f64::from(self.values[at]),
            target: "f16",
        })
    }
}

fn decode<const N: usize>(raw: &[u8], values: &mut [f32], decode: impl Fn(&[u8; N]) -> f32 + Sync) {
    raw.par_chunks(TASK * N).zip(values.par_chunks_mut(TASK)).for_each(|(bytes, values)| {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = decode(bytes);
        }
    });
}

/// Position of the first value that `found` accepts.
fn first(values: &[f32], found: impl Fn(f32) -> bool + Sync) -> Option<usize> {
    values
        .par_chunks(TASK)
        .enumerate()
        .find_map_first(|(task, values)| Some(task * TASK + values.iter().position(|&value| found(value))?))
}
