//! Shapes that do not fit are errors that say so, and no output is touched.

use burn_i2s::error::TernaryError;
use burn_i2s::gemm::{Activations, Product, ternary_gemm, ternary_gemm_many};
use burn_i2s::isa::Isa;
use burn_i2s::layout;
use burn_i2s::matrix::{MAX_COLUMNS, TernaryMatrix};

fn matrix(rows: usize, cols: usize) -> Vec<u8> {
    let len = layout::padded_byte_len(rows, cols).unwrap() - layout::TAIL_BYTES;
    std::iter::repeat_n(0x55, len).chain(layout::tail(1.0)).collect()
}

#[test]
fn rejects_activations_whose_parts_do_not_fit() {
    let codes = [0i8; 256];
    assert_eq!(
        Activations::new(&codes, &[0; 3], &[1.0; 3], 100).unwrap_err(),
        TernaryError::ActivationLength { what: "codes", rows: 3, stride: 128, expected: 384, found: 256 }
    );
    assert_eq!(
        Activations::new(&codes, &[0; 2], &[1.0; 3], 100).unwrap_err(),
        TernaryError::ActivationLength { what: "scales", rows: 2, stride: 128, expected: 2, found: 3 }
    );
    assert!(matches!(Activations::new(&[], &[], &[], 0), Err(TernaryError::Empty { .. })));
    assert!(matches!(
        Activations::new(&[], &[], &[], MAX_COLUMNS + 1),
        Err(TernaryError::TooManyColumns { limit: MAX_COLUMNS, .. })
    ));
    let x = Activations::new(&codes, &[0; 2], &[1.0; 2], 100).unwrap();
    assert_eq!((x.rows(), x.cols(), x.stride()), (2, 100, 128));
}

#[test]
fn rejects_columns_that_differ() {
    let bytes = matrix(4, 256);
    let w = TernaryMatrix::new(&bytes, 4, 256).unwrap();
    // 200 columns take as many blocks as 256: the shapes still differ.
    let codes = [0; 256];
    let x = Activations::new(&codes, &[0], &[1.0], 200).unwrap();
    let mut out = [7.0; 4];
    let error = ternary_gemm(Isa::best(), &x, &w, &mut out).unwrap_err();
    assert_eq!(error, TernaryError::Columns { expected: 256, found: 200 });
    assert_eq!(error.to_string(), "activations have 200 columns, the matrix 256");
    assert_eq!(out, [7.0; 4]);
}

#[test]
fn one_bad_product_of_many_leaves_all_outputs_alone() {
    let bytes = matrix(4, 128);
    let w = TernaryMatrix::new(&bytes, 4, 128).unwrap();
    let codes = [0; 128];
    let x = Activations::new(&codes, &[0], &[1.0], 128).unwrap();
    let (mut good, mut short) = ([7.0; 4], [7.0; 3]);
    let mut products = [Product { x, w, out: &mut good }, Product { x, w, out: &mut short }];
    assert_eq!(
        ternary_gemm_many(Isa::best(), &mut products).unwrap_err(),
        TernaryError::OutputLength { rows: 1, out_features: 4, expected: Some(4), found: 3 }
    );
    assert_eq!((good, short), ([7.0; 4], [7.0; 3]));
}
