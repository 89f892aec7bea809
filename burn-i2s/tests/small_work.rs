//! Work that is too small for a second thread does not start rayon's.

#![cfg(target_os = "linux")]

use burn_i2s::gemm::{Activations, ternary_gemm};
use burn_i2s::isa::Isa;
use burn_i2s::layout;
use burn_i2s::matrix::TernaryMatrix;

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux lists threads").count()
}

// The only test of this program: another might start threads of its own meanwhile.
#[test]
fn a_small_product_starts_no_thread() {
    let (rows, out_features, in_features) = (4, 64, 256);
    let bytes = [
        vec![0x55; layout::padded_byte_len(out_features, in_features).unwrap() - layout::TAIL_BYTES],
        layout::tail(1.0).to_vec(),
    ];
    let bytes = bytes.concat();
    let weights = TernaryMatrix::new(&bytes, out_features, in_features).unwrap();
    let (codes, sums, scales) = (vec![1; rows * in_features], vec![in_features as i32; rows], vec![1.0; rows]);
    let x = Activations::new(&codes, &sums, &scales, in_features).unwrap();
    let mut out = vec![1.0; rows * out_features];
    let before = threads();
    ternary_gemm(Isa::best(), &x, &weights, &mut out).unwrap();
    assert_eq!(threads(), before);
    assert!(out.iter().all(|&x| x == 0.0), "every weight is 0");
    rayon::join(|| (), || ());
    assert!(threads() > before, "rayon's threads would have been seen");
}
