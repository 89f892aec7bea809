//! NdArray: Burn's ndarray backend.
#![allow(
    deprecated,
    reason = "upstream marks the whole crate deprecated since 0.22; this file is the only one to name it"
)]

use super::{CpuBackend, index};
use burn::backend::NdArray;
use burn::backend::ndarray::NdArrayTensor;
use burn::tensor::{Device, Shape, TensorData};

/// The NdArray device, without the deprecation warning its own constructor gives.
pub fn ndarray_device() -> Device {
    Device::ndarray()
}

/// Calls `$read` with the tensor's values as a slice, through one copy if it is a strided view.
macro_rules! with_slice {
    ($tensor:expr, $variant:ident, $read:expr) => {
        match $tensor {
            NdArrayTensor::$variant(storage) => {
                let view = storage.view();
                match view.as_slice() {
                    Some(values) => $read(values),
                    None => $read(&view.iter().copied().collect::<Vec<_>>()),
                }
            }
            other => panic!(
                "expected a {} tensor, found {:?}",
                stringify!($variant),
                burn::backend::TensorMetadata::dtype(other)
            ),
        }
    };
}

impl CpuBackend for NdArray {
    fn with_floats<R>(tensor: &NdArrayTensor, read: impl FnOnce(&[f32]) -> R) -> R {
        with_slice!(tensor, F32, read)
    }

    fn with_bytes<R>(tensor: &NdArrayTensor, read: impl FnOnce(&[u8]) -> R) -> R {
        with_slice!(tensor, U8, read)
    }

    fn to_indices(tensor: &NdArrayTensor) -> Vec<u32> {
        match tensor {
            NdArrayTensor::I64(storage) => storage.view().iter().map(index).collect(),
            NdArrayTensor::I32(storage) => storage.view().iter().map(index).collect(),
            NdArrayTensor::U64(storage) => storage.view().iter().map(index).collect(),
            NdArrayTensor::U32(storage) => storage.view().iter().map(index).collect(),
            other => panic!("expected 32- or 64-bit indices, found {:?}", burn::backend::TensorMetadata::dtype(other)),
        }
    }

    fn into_floats(tensor: NdArrayTensor) -> Vec<f32> {
        match tensor {
            NdArrayTensor::F32(storage) if storage.is_unique() && storage.view().is_standard_layout() => {
                let (values, offset) = storage.into_owned().into_owned().into_raw_vec_and_offset();
                match offset {
                    None | Some(0) => values,
                    Some(start) => values[start..].to_vec(),
                }
            }
            other => with_slice!(&other, F32, <[f32]>::to_vec),
        }
    }

    fn reclaim(tensor: NdArrayTensor) -> Option<Vec<f32>> {
        match tensor {
            NdArrayTensor::F32(storage) if storage.is_unique() => {
                Some(storage.into_owned().into_owned().into_raw_vec_and_offset().0)
            }
            _ => None,
        }
    }

    fn from_floats(values: Vec<f32>, shape: Shape) -> NdArrayTensor {
        NdArrayTensor::from_data(TensorData::new(values, shape))
    }
}
