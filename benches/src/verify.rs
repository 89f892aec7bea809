//! Before a model is timed: its layers' kernels give the scalar level's results.

use crate::error::BenchError;
use crate::model::BenchModel;
use crate::shapes::Random;
use bitnet_embed::embedder::BackendKind;
use bitnet_embed::gguf::{GgufFile, TensorInfo};
use bitnet_embed::names::{TensorRole, expected_tensors};
use burn_i2s::dense::{DenseMatrix, dense_gemm};
use burn_i2s::gemm::{ternary_accumulate, ternary_gemm};
use burn_i2s::ggml::GgmlType;
use burn_i2s::isa::Isa;
use burn_i2s::layout::BLOCK;
use burn_i2s::matrix::TernaryMatrix;
use burn_i2s::pack;
use burn_i2s::ternary_floats::ternary_gemm_as_floats;
use std::collections::HashSet;

/// The most activation rows that are compared.
const MAX_ROWS: usize = 8;

/// Outputs of a float layer that are compared: the scalar level computes a fused multiply-add in software.
const DENSE_ROWS: usize = 128;

/// Compares the first layer of each distinct shape, at 1 to 8 rows of random activations (float layers at 1, 8 and 16), with
/// the scalar level.
///
/// Returns the number of shapes.
///
/// # Errors
/// When a result differs, or a weight cannot be read.
pub fn verify(model: &BenchModel, isa: Isa) -> Result<usize, BenchError> {
    let gguf = |source| BenchError::Gguf { path: model.path.clone(), source };
    let file = GgufFile::open(&model.path).map_err(gguf)?;
    let mut seen = HashSet::new();
    for expected in expected_tensors(&model.config) {
        let Some(tensor) = file.tensor(&expected.name) else { continue };
        let ty = tensor.ggml_type();
        if expected.role != TensorRole::Projection || !seen.insert((expected.shape.clone(), ty)) {
            continue;
        }
        let norm_name = expected.name.replace(".weight", "_norm_in.weight");
        let data = file.data(tensor).map_err(gguf)?;
        let differs = |rows| BenchError::Differs {
            path: model.path.clone(),
            tensor: expected.name.clone(),
            rows,
            isa: isa.name(),
        };
        if ty == Some(GgmlType::I2_S) || file.tensor(&norm_name).is_some() {
            let packed = packed(tensor, data).map_err(|source| BenchError::Pack {
                path: model.path.clone(),
                tensor: expected.name.clone(),
                source,
            })?;
            let [out_features, in_features] = expected.shape[..] else { continue };
            let matrix = TernaryMatrix::new(&packed, out_features, in_features).expect("the store checked the weight");
            compare_ternary(&matrix, isa, model.backend).map_err(differs)?;
        } else if let (Some(ty), [out_features, in_features]) = (ty, &expected.shape[..]) {
            let rows = DENSE_ROWS.min(*out_features);
            let bytes = &data[..data.len() / out_features * rows];
            let matrix = DenseMatrix::new(bytes, ty, rows, *in_features).expect("the store checked the weight");
            compare_dense(&matrix, rows, *in_features, isa).map_err(differs)?;
        }
    }
    Ok(seen.len())
}

/// The weight in rows of whole I2_S blocks, as the store lends or makes it.
fn packed(tensor: &TensorInfo, data: &[u8]) -> Result<Vec<u8>, burn_i2s::error::PackError> {
    let (rows, cols) = (tensor.rows(), tensor.cols());
    match tensor.ggml_type() {
        Some(GgmlType::I2_S) if cols.is_multiple_of(BLOCK) => Ok(data.to_vec()),
        Some(GgmlType::I2_S) | None => pack::repack_rows(data, rows, cols),
        Some(ty) => {
            let mut values = vec![0.0; rows * cols];
            ty.decode_row(data, &mut values);
            pack::ternarize_and_pack_rows(&values, rows, cols)
        }
    }
}

/// The number of rows at which `isa` differs from scalar, if there is one.
fn compare_ternary(matrix: &TernaryMatrix<'_>, isa: Isa, backend: BackendKind) -> Result<(), usize> {
    let mut random = Random(1);
    for rows in 1..=MAX_ROWS {
        let x = random.quantized(rows, matrix.in_features());
        let len = rows * matrix.out_features();
        let (mut exact, mut found) = (vec![0; len], vec![0; len]);
        let same_sums = ternary_accumulate(Isa::Scalar, &x.activations(), matrix, &mut exact)
            .and_then(|()| ternary_accumulate(isa, &x.activations(), matrix, &mut found))
            .is_ok_and(|()| exact == found);
        let (mut scalar, mut scaled) = (vec![0.0; len], vec![0.0; len]);
        let same_values =
            ternary_gemm(Isa::Scalar, &x.activations(), matrix, &mut scalar).is_ok_and(|()| match backend {
                BackendKind::I2s => ternary_gemm(isa, &x.activations(), matrix, &mut scaled).is_ok(),
                BackendKind::F16 => {
                    ternary_gemm_as_floats(isa, &x.activations(), matrix, &mut scaled);
                    true
                }
            });
        if !(same_sums && same_values && same_bits(&scalar, &scaled)) {
            return Err(rows);
        }
    }
    Ok(())
}

fn compare_dense(matrix: &DenseMatrix<'_>, out_features: usize, in_features: usize, isa: Isa) -> Result<(), usize> {
    let mut random = Random(2);
    // Up to a few rows and beyond them, halves are multiplied in two ways.
    for rows in [1, MAX_ROWS, 2 * MAX_ROWS] {
        let x = random.floats(rows * in_features);
        let (mut scalar, mut found) = (vec![0.0; rows * out_features], vec![0.0; rows * out_features]);
        dense_gemm(Isa::Scalar, &x, matrix, &mut scalar);
        dense_gemm(isa, &x, matrix, &mut found);
        if !same_bits(&scalar, &found) {
            return Err(rows);
        }
    }
    Ok(())
}

/// Whether two results are the same, bit for bit.
pub fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}
