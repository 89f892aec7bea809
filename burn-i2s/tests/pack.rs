//! Ternarising and packing: the published order of the mean, the rounding, the layout, and round trips.

use burn_i2s::error::PackError;
use burn_i2s::layout::{self, BLOCK, TAIL_BYTES};
use burn_i2s::pack::{
    MIN_SCALE, absmean_scale, first_invalid_code, pack, pack_rows, repack_rows, ternarize, ternarize_and_pack,
    ternarize_and_pack_rows, unpack,
};
use proptest::prelude::*;

/// The mean's order of additions as numpy documents it, written another way than the crate: one value at a time.
fn pairwise(values: &[f32]) -> f32 {
    let n = values.len();
    if n < 8 {
        return values.iter().fold(0.0, |sum, v| sum + v.abs());
    }
    if n <= 128 {
        let mut lanes = [0.0f32; 8];
        for (i, v) in values[..n / 8 * 8].iter().enumerate() {
            lanes[i % 8] += v.abs();
        }
        let [a, b, c, d, e, f, g, h] = lanes;
        let total = ((a + b) + (c + d)) + ((e + f) + (g + h));
        return values[n / 8 * 8..].iter().fold(total, |sum, v| sum + v.abs());
    }
    let half = n / 2 / 8 * 8;
    pairwise(&values[..half]) + pairwise(&values[half..])
}

fn noise(n: usize) -> Vec<f32> {
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..n).map(|_| next() * next() * 0.1).collect()
}

#[test]
fn the_mean_is_summed_pairwise_at_every_length() {
    let values = noise(300_000);
    for n in (1..300).chain([1000, 1024, 4095, 65_536, 65_537, 131_080, 300_000]) {
        let expected = (pairwise(&values[..n]) / n as f32).max(MIN_SCALE);
        assert_eq!(absmean_scale(&values[..n]).to_bits(), expected.to_bits(), "{n} values");
    }
    // And the order matters: a plain sum of these values is another number.
    let plain = values.iter().fold(0.0, |sum, v| sum + v.abs()) / values.len() as f32;
    assert_ne!(plain, absmean_scale(&values));
}

#[test]
fn tensors_of_nothing_or_zeros_have_the_least_scale() {
    assert_eq!(absmean_scale(&[]), MIN_SCALE);
    assert_eq!(absmean_scale(&[0.0, -0.0]), MIN_SCALE);
    assert_eq!(absmean_scale(&[1e-7; 256]), MIN_SCALE);
}

#[test]
fn halves_round_to_even_and_large_values_clamp() {
    let up = 0.5f32.next_up();
    let values = [0.0, -0.0, 0.5, -0.5, up, -up, 1.0, -1.5, 2.5, -1e30];
    assert_eq!(ternarize(&values, 1.0).unwrap(), [0, 0, 0, 0, 1, -1, 1, -1, 1, -1]);
    // The scale is applied as a rounded reciprocal, not by division.
    let scale = 0.3f32;
    for value in noise(10_000).iter().map(|v| v * 20.0) {
        let expected = (value * (1.0 / scale)).round_ties_even().clamp(-1.0, 1.0) as i8;
        assert_eq!(ternarize(&[value], scale).unwrap(), [expected]);
    }
}

#[test]
fn values_and_scales_that_are_not_finite_are_errors() {
    let mut values = noise(300 * BLOCK);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        values[20_000] = bad;
        for result in [
            ternarize_and_pack(&values),
            ternarize_and_pack_rows(&values, 300, BLOCK),
            ternarize(&values, 1.0).map(|_| Vec::new()),
        ] {
            assert!(
                matches!(result, Err(PackError::NotFinite { index: 20_000, found }) if found.to_bits() == bad.to_bits())
            );
        }
    }
    // Finite values whose sum is not.
    assert_eq!(ternarize_and_pack(&[f32::MAX; BLOCK]).unwrap_err(), PackError::Scale { found: f32::INFINITY });
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert!(matches!(ternarize(&[1.0], scale), Err(PackError::Scale { .. })));
        assert!(matches!(pack(&[0; BLOCK], scale), Err(PackError::Scale { .. })));
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    assert_eq!(ternarize_and_pack(&[0.0; 129]).unwrap_err(), PackError::PartialBlock { block: BLOCK, found: 129 });
    assert_eq!(
        pack_rows(&[0; 10], 3, 3, 1.0).unwrap_err(),
        PackError::Length { rows: 3, cols: 3, unit: "values", expected: Some(9), found: 10 }
    );
    assert_eq!(pack_rows(&[0, 1, 2], 1, 3, 1.0).unwrap_err(), PackError::NotTernary { index: 2, found: 2 });
    assert!(matches!(pack_rows(&[], usize::MAX, 2, 1.0), Err(PackError::Length { expected: None, .. })));
    assert!(matches!(repack_rows(&[0; 64], 3, 64), Err(PackError::Length { unit: "bytes", expected: None, .. })));
    assert!(matches!(repack_rows(&[0; 95], 2, 128), Err(PackError::Length { expected: Some(96), found: 95, .. })));
}

#[test]
fn a_block_by_hand() {
    let mut weights = [0i8; BLOCK];
    weights[0] = 1;
    weights[32] = -1;
    weights[127] = 1;
    let bytes = pack(&weights, 0.5).unwrap();
    assert_eq!(bytes[0], 0b10_00_01_01);
    assert_eq!(bytes[31], 0b01_01_01_10);
    assert_eq!(bytes[1..31], [0x55; 30]);
    assert_eq!(bytes[32..36], 0.5f32.to_le_bytes());
    assert_eq!(bytes[36..], [0; 28]);
}

#[test]
fn code_three_is_found_wherever_it_is() {
    // More blocks than one task scans.
    let clean = vec![0x99; 3000 * 32];
    assert_eq!(first_invalid_code(&clean), None);
    assert_eq!(first_invalid_code(&[]), None);
    for index in [0, 1, 31, 32, 127, 128, 131_072, 131_071, 20_0003, 3000 * BLOCK - 1] {
        let mut bytes = clean.clone();
        let (byte, shift) = layout::position(index % BLOCK);
        bytes[index / BLOCK * 32 + byte] |= 3 << shift;
        assert_eq!(first_invalid_code(&bytes), Some(index));
        // A later one does not hide it.
        bytes[3000 * 32 - 1] |= 3;
        assert_eq!(first_invalid_code(&bytes), Some(index));
    }
}

fn tensor() -> impl Strategy<Value = (usize, usize, Vec<i8>)> {
    (1usize..9, 1usize..400)
        .prop_flat_map(|(rows, cols)| (Just(rows), Just(cols), prop::collection::vec(-1i8..=1, rows * cols)))
}

proptest! {
    #[test]
    fn packed_rows_unpack_to_the_same_weights((rows, cols, weights) in tensor(), scale in 1e-5f32..10.0) {
        let bytes = pack_rows(&weights, rows, cols, scale).unwrap();
        prop_assert_eq!(Some(bytes.len()), layout::padded_byte_len(rows, cols));
        let (blocks, found) = layout::split(&bytes).unwrap();
        prop_assert_eq!(found, scale);
        prop_assert_eq!(first_invalid_code(&bytes[..bytes.len() - TAIL_BYTES]), None);
        let padded = unpack(blocks);
        let stride = layout::blocks_per_row(cols) * BLOCK;
        for (row, weights) in padded.chunks(stride).zip(weights.chunks(cols)) {
            prop_assert_eq!(&row[..cols], weights);
            prop_assert!(row[cols..].iter().all(|&weight| weight == 0));
        }
    }

    #[test]
    fn a_flat_tensor_repacks_to_what_its_rows_pack_to(rows in 1usize..9, cols in 1usize..400, seed in any::<u32>()) {
        // As many rows as make whole blocks of any number of columns.
        let rows = rows * 128;
        let weights: Vec<i8> = (0..rows * cols).map(|i| ((i as u32 ^ seed).wrapping_mul(2654435761) >> 16) as i8 % 2).collect();
        let flat = pack(&weights, 0.25).unwrap();
        prop_assert_eq!(Some(flat.len()), layout::byte_len(rows, cols));
        prop_assert_eq!(&unpack(layout::split(&flat).unwrap().0), &weights);
        prop_assert_eq!(repack_rows(&flat, rows, cols).unwrap(), pack_rows(&weights, rows, cols, 0.25).unwrap());
    }

    #[test]
    fn the_fused_forms_are_the_steps_one_by_one(rows in 1usize..5, cols in 1usize..300) {
        let values = noise(rows * cols);
        let scale = absmean_scale(&values);
        let weights = ternarize(&values, scale).unwrap();
        prop_assert_eq!(
            ternarize_and_pack_rows(&values, rows, cols).unwrap(),
            pack_rows(&weights, rows, cols, scale).unwrap()
        );
        if weights.len().is_multiple_of(BLOCK) {
            prop_assert_eq!(ternarize_and_pack(&values).unwrap(), pack(&weights, scale).unwrap());
        }
    }
}
