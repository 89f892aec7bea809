//! How each Burn backend lends its memory to our operations: the only files that know a tensor primitive.

use burn::backend::Backend;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::Shape;

#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "ndarray")]
pub use ndarray::ndarray_device;

/// What our operations ask of a CPU backend: read a tensor in place, take its buffer, wrap a new one.
///
/// `with_*` and `into_floats` give values in row-major order whatever the tensor's strides, and copy only when they must.
pub(crate) trait CpuBackend: Backend {
    /// Calls `read` with the values of a float tensor.
    fn with_floats<R>(tensor: &FloatTensor<Self>, read: impl FnOnce(&[f32]) -> R) -> R;
    /// Calls `read` with the bytes of a U8 tensor.
    fn with_bytes<R>(tensor: &IntTensor<Self>, read: impl FnOnce(&[u8]) -> R) -> R;
    /// The values of an integer tensor of any width; a value that does not fit becomes `u32::MAX`.
    fn to_indices(tensor: &IntTensor<Self>) -> Vec<u32>;
    /// The tensor's buffer, without a copy when nothing else holds it.
    fn into_floats(tensor: FloatTensor<Self>) -> Vec<f32>;
    /// The tensor's buffer for other use, if nothing else holds it; its values and length are unspecified.
    fn reclaim(tensor: FloatTensor<Self>) -> Option<Vec<f32>>;
    /// A float tensor around `values`, without a copy.
    fn from_floats(values: Vec<f32>, shape: Shape) -> FloatTensor<Self>;
}

/// Narrows an index to u32; what does not fit becomes `u32::MAX`, which is no row of any table.
fn index<T: TryInto<u32> + Copy>(value: &T) -> u32 {
    (*value).try_into().unwrap_or(u32::MAX)
}
