//! Tensors: each is converted once more to the type it has in the file, and compared byte for byte as it streams by.

use std::collections::HashMap;

use bitnet_embed::gguf::{GgufFile, TensorInfo};
use bitnet_embed::names::{TensorRole, expected_tensors};
use burn_i2s::ggml::GgmlType;
use burn_i2s::layout;

use super::{Difference, VerifyReport};
use crate::ConvertError;
use crate::convert::Prepared;
use crate::encode::{self, type_name};
use crate::plan::Outtype;
use crate::report::Progress;

/// Compares all tensors; `outtype` is what the metadata say the file is.
pub(super) fn compare<B: AsRef<[u8]>>(
    file: &GgufFile<B>,
    prepared: &Prepared,
    outtype: Option<Outtype>,
    progress: &mut dyn Progress,
    report: &mut VerifyReport,
) -> Result<(), ConvertError> {
    let slots: HashMap<String, (TensorRole, Vec<usize>)> = expected_tensors(&prepared.config.model)
        .into_iter()
        .map(|tensor| (tensor.name, (tensor.role, tensor.shape)))
        .collect();
    let count = prepared.plan.tensors.len();
    for (position, planned) in prepared.plan.tensors.iter().enumerate() {
        progress.tensor(&planned.name, position, count);
        let name = planned.name.clone();
        let Some(tensor) = file.tensor(&name) else {
            report.differences.push(Difference::TensorMissing { name });
            continue;
        };
        // Every planned tensor has a slot; that is how it was planned.
        let Some((role, shape)) = slots.get(&name) else { continue };
        if tensor.shape() != *shape {
            report.differences.push(Difference::TensorShape { name, expected: shape.clone(), found: tensor.shape() });
            continue;
        }
        let ty = match allowed_type(tensor, *role, outtype) {
            Ok(ty) => ty,
            Err(expected) => {
                let found = tensor.type_name().to_owned();
                report.differences.push(Difference::TensorType { name, expected, found });
                continue;
            }
        };
        let mut left = file.data(tensor).map_err(ConvertError::Input)?;
        let (mut difference, mut bytes) = (None, 0);
        encode::encode(&prepared.source(planned), ty, &mut |expected| {
            let (found, rest) = left.split_at_checked(expected.len()).unwrap_or((left, &[]));
            if difference.is_none() {
                difference = first_difference(ty, bytes, expected, found);
            }
            left = rest;
            bytes += expected.len();
            Ok(())
        })
        .map_err(|source| prepared.encode_error(planned, source))?;
        report.tensors += 1;
        report.values += tensor.element_count();
        report.differences.extend(difference.map(|(place, expected, found)| Difference::Value {
            name: name.clone(),
            place,
            expected,
            found,
        }));
    }
    let planned: std::collections::HashSet<&str> =
        prepared.plan.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    for tensor in file.tensors().iter().filter(|tensor| !planned.contains(tensor.name())) {
        report.differences.push(Difference::TensorUnexpected { name: tensor.name().to_owned() });
    }
    Ok(())
}

/// The tensor's type, if a file of that kind may have it there; else what it may have.
fn allowed_type(tensor: &TensorInfo, role: TensorRole, outtype: Option<Outtype>) -> Result<GgmlType, String> {
    let projection = outtype.map(|outtype| outtype.of(TensorRole::Projection));
    let allowed: Vec<GgmlType> = match (role, projection) {
        // F32 is what --auto-widen makes of a tensor whose values do not fit.
        (TensorRole::Projection, Some(GgmlType::I2_S)) => vec![GgmlType::I2_S],
        (TensorRole::Projection, Some(ty)) => vec![ty, GgmlType::F32],
        (TensorRole::TokenTable, _) => {
            vec![GgmlType::F32, GgmlType::F16, GgmlType::BF16, GgmlType::Q8_0, GgmlType::Q6_K]
        }
        (TensorRole::Projection, None) => vec![GgmlType::F32, GgmlType::F16, GgmlType::BF16, GgmlType::I2_S],
        (TensorRole::Norm | TensorRole::InputNorm, _) => vec![GgmlType::F32, GgmlType::F16, GgmlType::BF16],
    };
    tensor.ggml_type().filter(|ty| allowed.contains(ty)).ok_or_else(|| {
        let names: Vec<&str> = allowed.iter().map(|ty| type_name(*ty)).collect();
        names.join(" or ")
    })
}

/// Place, expected and found value of the first difference in a piece that starts `before` bytes into the tensor.
fn first_difference(ty: GgmlType, before: usize, expected: &[u8], found: &[u8]) -> Option<(String, String, String)> {
    if expected == found {
        return None;
    }
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(found.len());
    let Some((len, size)) = ty.block() else { return ternary_difference(expected, found) };
    let block = at / size;
    let first = (before / size + block) * len;
    let bytes = |data: &[u8]| data.get(block * size..(block + 1) * size).map(<[u8]>::to_vec).unwrap_or_default();
    let decode = |data: &[u8]| {
        let mut values = vec![0.0; len];
        if data.len() == size {
            ty.decode_row(data, &mut values);
        }
        values
    };
    let (expected, found) = (bytes(expected), bytes(found));
    let (a, b) = (decode(&expected), decode(&found));
    Some(match a.iter().zip(&b).position(|(a, b)| a.to_bits() != b.to_bits()) {
        Some(index) => (format!("value {}", first + index), format!("{:?}", a[index]), format!("{:?}", b[index])),
        // Blocks of other bytes and the same values: a scale of zero, for instance.
        None => {
            (format!("the block of value {first}"), format!("bytes {expected:02x?}"), format!("bytes {found:02x?}"))
        }
    })
}

/// The same for a whole I2_S tensor: codes, then the scale, then what follows it.
fn ternary_difference(expected: &[u8], found: &[u8]) -> Option<(String, String, String)> {
    let ((a, a_scale), (b, b_scale)) = (layout::split(expected)?, layout::split(found)?);
    if let Some(block) = a.iter().zip(b).position(|(a, b)| a != b) {
        let unpack = |blocks: &[[u8; layout::BLOCK_BYTES]]| burn_i2s::pack::unpack(&blocks[block..block + 1]);
        let (a, b) = (unpack(a), unpack(b));
        let index = a.iter().zip(&b).position(|(a, b)| a != b)?;
        let show = |weight: i8| if weight == 2 { "the invalid code 3".to_owned() } else { format!("{weight:+}") };
        return Some((format!("weight {}", block * layout::BLOCK + index), show(a[index]), show(b[index])));
    }
    if a_scale.to_bits() != b_scale.to_bits() {
        return Some(("the scale".to_owned(), format!("{a_scale:?}"), format!("{b_scale:?}")));
    }
    Some(("the bytes after the scale".to_owned(), "zeros".to_owned(), "something else".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named_by_its_place_in_the_tensor() {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let (a, b) = (bytes(&[1.0, 2.0, 3.0]), bytes(&[1.0, 2.5, 4.0]));
        let found = first_difference(GgmlType::F32, 40, &a, &b).expect("they differ");
        assert_eq!(found, ("value 11".to_owned(), "2.0".to_owned(), "2.5".to_owned()));
        assert_eq!(first_difference(GgmlType::F32, 0, &a, &a), None);
        // Minus zero is another value.
        let found = first_difference(GgmlType::F32, 0, &bytes(&[0.0]), &bytes(&[-0.0])).expect("they differ");
        assert_eq!(found.2, "-0.0");
        // A scale of zero hides the codes of a block.
        let (mut a, b) = (vec![0; 34], vec![0; 34]);
        a[5] = 1;
        assert!(first_difference(GgmlType::Q8_0, 34, &a, &b).expect("they differ").0.contains("block of value 32"));
        let a = burn_i2s::pack::pack(&[1; 256], 0.5).expect("two blocks");
        let mut b = a.clone();
        b[32 + 3] ^= 0b11 << 4;
        let found = first_difference(GgmlType::I2_S, 0, &a, &b).expect("they differ");
        assert_eq!(found, (format!("weight {}", 128 + 32 + 3), "+1".to_owned(), "+0".to_owned()));
        let mut b = a.clone();
        b[64] ^= 1;
        assert_eq!(first_difference(GgmlType::I2_S, 0, &a, &b).expect("they differ").0, "the scale");
        let mut b = a.clone();
        b[95] = 1;
        assert_eq!(first_difference(GgmlType::I2_S, 0, &a, &b).expect("they differ").0, "the bytes after the scale");
    }
}
