//! Flex: Burn's pure-Rust CPU backend.

use super::{CpuBackend, index};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Shape, TensorData};

/// Calls `$read` with the tensor's values as a slice of `$ty`, through one copy if it is a strided view.
macro_rules! with_slice {
    ($tensor:expr, $ty:ty, $read:expr) => {{
        let tensor: &FlexTensor = $tensor;
        match tensor.as_slice::<$ty>() {
            Some(values) => $read(values),
            None => {
                let contiguous = tensor.to_contiguous();
                match contiguous.as_slice::<$ty>() {
                    Some(values) => $read(values),
                    None => panic!("expected a {} tensor, found {:?}", stringify!($ty), tensor.dtype()),
                }
            }
        }
    }};
}

impl CpuBackend for Flex {
    fn with_floats<R>(tensor: &FlexTensor, read: impl FnOnce(&[f32]) -> R) -> R {
        with_slice!(tensor, f32, read)
    }

    fn with_bytes<R>(tensor: &FlexTensor, read: impl FnOnce(&[u8]) -> R) -> R {
        with_slice!(tensor, u8, read)
    }

    fn to_indices(tensor: &FlexTensor) -> Vec<u32> {
        fn narrow<T: TryInto<u32> + Copy>(values: &[T]) -> Vec<u32> {
            values.iter().map(index).collect()
        }
        match tensor.dtype() {
            DType::I32 => with_slice!(tensor, i32, narrow),
            DType::I64 => with_slice!(tensor, i64, narrow),
            DType::U32 => with_slice!(tensor, u32, narrow),
            DType::U64 => with_slice!(tensor, u64, narrow),
            other => panic!("expected 32- or 64-bit indices, found {other:?}"),
        }
    }

    fn into_floats(tensor: FlexTensor) -> Vec<f32> {
        if tensor.is_unique() && tensor.dtype() == DType::F32 {
            let data = tensor.into_data();
            return data.try_into_vec().expect("the dtype was checked");
        }
        with_slice!(&tensor, f32, <[f32]>::to_vec)
    }

    fn reclaim(tensor: FlexTensor) -> Option<Vec<f32>> {
        let whole = tensor.is_unique() && tensor.dtype() == DType::F32 && tensor.as_slice::<f32>().is_some();
        whole.then(|| tensor.into_data().try_into_vec().ok()).flatten()
    }

    fn from_floats(values: Vec<f32>, shape: Shape) -> FlexTensor {
        FlexTensor::from_data(TensorData::new(values, shape))
    }
}
