//! Where the values of a tensor come from: a checkpoint, or another GGUF file.

use std::borrow::Cow;

use bitnet_embed::gguf::{GgufFile, TensorInfo};
use burn_i2s::ggml::GgmlType;
use half::{bf16, f16};
use rayon::prelude::*;

use crate::checkpoint::{Checkpoint, Dtype, TensorEntry};
use crate::data_file::{DataFile, start_of};
use crate::encode::{EncodeError, TASK, first};

/// A tensor whose values can be read as f32, any part of it.
pub trait Source {
    /// The tensor's name where it comes from.
    fn name(&self) -> &str;

    /// Number of values.
    fn elements(&self) -> usize;

    /// Reads `values.len()` values from flat position `start` on, all of them finite. `start` and the length are whole
    /// blocks of 256, except at the end of the tensor.
    ///
    /// # Errors
    /// When a value is not finite, or the data cannot be read.
    fn read(&self, start: usize, values: &mut [f32]) -> Result<(), EncodeError>;
}

/// A tensor of a checkpoint; 1 is added to every value of one of Gemma's norms.
pub struct CheckpointTensor<'a> {
    /// The checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// The tensor in it.
    pub tensor: &'a TensorEntry,
    /// Whether 1 is added to every value.
    pub add_one: bool,
}

impl Source for CheckpointTensor<'_> {
    fn name(&self) -> &str {
        &self.tensor.name
    }

    fn elements(&self) -> usize {
        self.tensor.elements()
    }

    fn read(&self, start: usize, values: &mut [f32]) -> Result<(), EncodeError> {
        // Planning let only these four types through; the size of another one is never asked for.
        let size = self.tensor.dtype.size().unwrap_or(1);
        // Sizes of data that is in the file: the header was checked against its length.
        let mut raw = vec![0; values.len() * size];
        self.checkpoint.read_at(self.tensor, (start * size) as u64, &mut raw)?;
        match self.tensor.dtype {
            Dtype::F64 => decode(&raw, values, |bytes: &[u8; 8]| f64::from_le_bytes(*bytes) as f32),
            Dtype::F32 => decode(&raw, values, |bytes: &[u8; 4]| f32::from_le_bytes(*bytes)),
            Dtype::F16 => decode(&raw, values, |bytes: &[u8; 2]| f16::from_le_bytes(*bytes).to_f32()),
            Dtype::BF16 => decode(&raw, values, |bytes: &[u8; 2]| bf16::from_le_bytes(*bytes).to_f32()),
            Dtype::Other(_) => {}
        }
        if let Some(at) = first(values, |value| !value.is_finite()) {
            return Err(self.not_finite(start + at, values[at], raw.as_chunks().0.get(at)));
        }
        if self.add_one {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        Ok(())
    }
}

impl CheckpointTensor<'_> {
    fn not_finite(&self, index: usize, value: f32, wide: Option<&[u8; 8]>) -> EncodeError {
        let tensor = self.tensor.name.clone();
        let wide = wide.map(|bytes| f64::from_le_bytes(*bytes)).filter(|value| value.is_finite());
        match wide {
            Some(value) if self.tensor.dtype == Dtype::F64 => {
                EncodeError::Overflow { tensor, index, value, target: "f32" }
            }
            _ => EncodeError::NotFinite { tensor, index, value },
        }
    }
}

/// A tensor of a GGUF file, of a type that is decoded.
pub struct GgufTensor<'a, B> {
    file: &'a GgufFile<B>,
    tensor: &'a TensorInfo,
    ty: GgmlType,
    data: Option<&'a DataFile>,
}

impl<'a, B: AsRef<[u8]>> GgufTensor<'a, B> {
    /// The tensor; `None` for I2_S, whose scale is not part of a row, and for types that are not decoded.
    pub fn new(file: &'a GgufFile<B>, tensor: &'a TensorInfo) -> Option<Self> {
        let ty = tensor.ggml_type().filter(|ty| ty.block().is_some())?;
        Some(Self { file, tensor, ty, data: None })
    }

    /// The same, its values read from `data`, if that is there.
    pub(crate) fn read_from(self, data: Option<&'a DataFile>) -> Self {
        Self { data, ..self }
    }
}

impl<B: AsRef<[u8]>> Source for GgufTensor<'_, B> {
    fn name(&self) -> &str {
        self.tensor.name()
    }

    fn elements(&self) -> usize {
        self.tensor.element_count()
    }

    fn read(&self, start: usize, values: &mut [f32]) -> Result<(), EncodeError> {
        let bytes_of = |elements| self.ty.row_bytes(elements);
        // The type has blocks, of at most 256 values, and whole ones are asked for.
        let (Some(from), Some(len)) = (bytes_of(start), bytes_of(values.len())) else { return Ok(()) };
        let bytes = match self.data {
            Some(data) => {
                let start = start_of(self.file, self.tensor) + from;
                Cow::Owned(data.read(start..start + len)?)
            }
            None => match self.file.data(self.tensor)?.get(from..from + len) {
                Some(bytes) => Cow::Borrowed(bytes),
                None => return Ok(()),
            },
        };
        let task_bytes = bytes_of(TASK).unwrap_or(len).max(1);
        let ty = self.ty;
        bytes.par_chunks(task_bytes).zip(values.par_chunks_mut(TASK)).for_each(|(bytes, values)| {
            ty.decode_row(bytes, values);
        });
        match first(values, |value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => {
                let tensor = self.tensor.name().to_owned();
                Err(EncodeError::NotFinite { tensor, index: start + at, value: values[at] })
            }
        }
    }
}

fn decode<const N: usize>(raw: &[u8], values: &mut [f32], decode: impl Fn(&[u8; N]) -> f32 + Sync) {
    raw.par_chunks(TASK * N).zip(values.par_chunks_mut(TASK)).for_each(|(bytes, values)| {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = decode(bytes);
        }
    });
}
