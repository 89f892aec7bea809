//! Dense products and row gathering: exact bits against the plain chain.

mod common;

use burn_i2s::dense::{DenseError, DenseMatrix, WeightRows, dense_gemm, dense_gemm_many, gather_rows};
use burn_i2s::ggml::GgmlType;
use burn_i2s::isa::Isa;
use common::{bits, in_pool, values};

const TYPES: [GgmlType; 3] = [GgmlType::F32, GgmlType::F16, GgmlType::BF16];

fn encode(ty: GgmlType, values: &[f32]) -> Vec<u8> {
    match ty {
        GgmlType::F16 => values.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect(),
        GgmlType::BF16 => values.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

/// One `mul_add` chain per output.
fn reference(x: &[f32], weights: &DenseMatrix<'_>, bytes: &[u8], ty: GgmlType) -> Vec<f32> {
    let (n, k) = (weights.rows(), weights.cols());
    let mut decoded = vec![0.0; n * k];
    for (row, bytes) in decoded.chunks_mut(k).zip(bytes.chunks(bytes.len() / n)) {
        ty.decode_row(bytes, row);
    }
    x.chunks(k)
        .flat_map(|x| decoded.chunks(k).map(move |w| x.iter().zip(w).fold(0.0f32, |sum, (x, w)| x.mul_add(*w, sum))))
        .collect()
}

#[test]
fn every_output_is_the_plain_chain_on_every_level() {
    // Around the register tiles (1..7 rows, 64 outputs), the depth of a pass (128) and the decoding of 8 rows.
    for (m, n, k) in [
        (1, 1, 1),
        (1, 64, 128),
        (2, 65, 129),
        (3, 7, 17),
        (4, 63, 127),
        (5, 128, 300),
        (6, 100, 256),
        (7, 17, 33),
        (13, 72, 385),
        (64, 130, 64),
        // Few rows of whole groups of 32 need no panel: the most of them, and one more.
        (8, 81, 160),
        (9, 81, 160),
    ] {
        let x = values(m * k, 1);
        for ty in TYPES {
            let bytes = encode(ty, &values(n * k, 2));
            let weights = DenseMatrix::new(&bytes, ty, n, k).unwrap();
            let expected = reference(&x, &weights, &bytes, ty);
            for &isa in Isa::available() {
                let mut out = vec![f32::NAN; m * n];
                dense_gemm(isa, &x, &weights, &mut out);
                assert_eq!(bits(&out), bits(&expected), "{isa} {ty:?} {m}x{n}x{k}");
            }
        }
    }
}

#[test]
fn several_matrices_and_threads_change_nothing() {
    let (m, k) = (33, 200);
    let x = values(m * k, 3);
    let stored: Vec<(usize, Vec<u8>)> =
        [300, 1, 500].into_iter().map(|n| (n, encode(GgmlType::F16, &values(n * k, n as u64)))).collect();
    let matrices: Vec<DenseMatrix<'_>> =
        stored.iter().map(|(n, bytes)| DenseMatrix::new(bytes, GgmlType::F16, *n, k).unwrap()).collect();
    let alone: Vec<Vec<f32>> = matrices
        .iter()
        .map(|matrix| {
            let mut out = vec![0.0; m * matrix.rows()];
            dense_gemm(Isa::best(), &x, matrix, &mut out);
            out
        })
        .collect();
    for threads in [1, 2, 5] {
        let mut outs: Vec<Vec<f32>> = alone.iter().map(|out| vec![f32::NAN; out.len()]).collect();
        in_pool(threads, || {
            let mut slices: Vec<&mut [f32]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
            dense_gemm_many(Isa::best(), &x, &matrices.iter().collect::<Vec<_>>(), &mut slices);
        });
        for (out, alone) in outs.iter().zip(&alone) {
            assert_eq!(bits(out), bits(alone), "{threads} threads");
        }
    }
}

#[test]
fn empty_products_are_sums_of_nothing() {
    let weights = DenseMatrix::new(&[], GgmlType::F16, 3, 0).unwrap();
    let mut out = [1.0; 6];
    dense_gemm(Isa::best(), &[], &weights, &mut out);
    assert_eq!(out, [0.0; 6]);
    let weights = DenseMatrix::new(&[], GgmlType::F32, 0, 5).unwrap();
    dense_gemm(Isa::best(), &[1.0; 10], &weights, &mut []);
    let bytes = [0; 40];
    dense_gemm(Isa::best(), &[], &DenseMatrix::new(&bytes, GgmlType::F32, 2, 5).unwrap(), &mut []);
}

#[test]
fn gathering_decodes_and_scales_on_every_level() {
    let (rows, cols) = (50, 77);
    let table = values(rows * cols, 4);
    let ids: Vec<u32> = (0..2000).map(|i| i * 31 % 50).collect();
    for ty in TYPES {
        let bytes = encode(ty, &table);
        let matrix = DenseMatrix::new(&bytes, ty, rows, cols).unwrap();
        for scale in [1.0, 32.0f32.sqrt()] {
            let mut expected = vec![0.0; ids.len() * cols];
            for (&id, out) in ids.iter().zip(expected.chunks_mut(cols)) {
                ty.decode_row(&bytes[id as usize * bytes.len() / rows..][..bytes.len() / rows], out);
                out.iter_mut().for_each(|x| *x *= scale);
            }
            for &isa in Isa::available() {
                let mut out = vec![0.0; expected.len()];
                gather_rows(isa, &matrix, &ids, scale, &mut out);
                assert_eq!(bits(&out), bits(&expected), "{isa} {ty:?}");
            }
        }
    }
}

#[test]
fn bytes_of_another_length_are_refused() {
    let length = |rows, cols, expected, found| DenseError::Length { rows, cols, expected, found };
    let new = |bytes, ty, rows, cols| DenseMatrix::new(bytes, ty, rows, cols).err();
    assert_eq!(new(&[0; 11], GgmlType::F16, 2, 3), Some(length(2, 3, Some(12), 11)));
    assert_eq!(new(&[0; 13], GgmlType::F16, 2, 3), Some(length(2, 3, Some(12), 13)));
    assert_eq!(new(&[], GgmlType::F32, usize::MAX, 3), Some(length(usize::MAX, 3, None, 0)));
    assert_eq!(new(&[], GgmlType::F32, 0, usize::MAX), Some(DenseError::Row { ty: GgmlType::F32, found: usize::MAX }));
    assert_eq!(new(&[0; 64], GgmlType::I2_S, 1, 128), Some(DenseError::Row { ty: GgmlType::I2_S, found: 128 }));
}
