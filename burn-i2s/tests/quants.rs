//! Every quantised type against the values of the `gguf` Python package (`testdata/quants/generate.py`), bit for bit.

use std::fs;
use std::path::Path;

use burn_i2s::ggml::GgmlType;
use burn_i2s::isa::Isa;

const TYPES: [GgmlType; 7] =
    [GgmlType::Q4_0, GgmlType::Q5_0, GgmlType::Q8_0, GgmlType::Q4_K, GgmlType::Q5_K, GgmlType::Q6_K, GgmlType::TQ2_0];

fn read(ty: GgmlType, what: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/quants");
    fs::read(folder.join(format!("{}.{what}.bin", ty.name()))).unwrap()
}

/// All blocks of a type and their values.
fn fixture(ty: GgmlType) -> (Vec<u8>, Vec<f32>) {
    let values = read(ty, "f32").as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    (read(ty, "blocks"), values)
}

#[test]
fn every_value_is_that_of_the_gguf_package_on_every_level() {
    for (ty, isa) in TYPES.into_iter().flat_map(|ty| Isa::available().iter().map(move |&isa| (ty, isa))) {
        let (blocks, expected) = fixture(ty);
        let mut found = vec![0.0; expected.len()];
        isa.scope(|| ty.decode_row(&blocks, &mut found));
        let mut nans = 0;
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            // Which NaN an invalid operation gives is the machine's choice.
            let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(same, "{isa}: {} value {index}: {found:e} is not {expected:e}", ty.name());
            nans += usize::from(found.is_nan());
        }
        // The last four blocks have infinite and NaN scales, and no other has a NaN.
        let (length, _) = ty.block().unwrap();
        assert!((2 * length..=4 * length).contains(&nans), "{} has {nans} NaNs", ty.name());
        assert!(!expected[..expected.len() - 4 * length].iter().any(|value| value.is_nan()));
    }
}

#[test]
fn a_row_is_decoded_as_its_blocks_are() {
    for ty in TYPES {
        let (blocks, expected) = fixture(ty);
        let (length, size) = ty.block().unwrap();
        // A guard after the values, so that a block that writes too far is seen.
        let mut found = vec![7.0; length + 1];
        for (block, expected) in blocks.chunks(size).zip(expected.chunks(length)) {
            ty.decode_row(block, &mut found[..length]);
            let bits = |values: &[f32]| values.iter().map(|v| (v.is_nan(), v.to_bits())).collect::<Vec<_>>();
            for (found, expected) in bits(&found).iter().zip(bits(expected)) {
                assert!(*found == expected || (found.0 && expected.0), "{}", ty.name());
            }
            assert_eq!(found[length], 7.0);
        }
    }
}

#[test]
fn rows_are_whole_blocks() {
    for ty in TYPES {
        let (length, size) = ty.block().unwrap();
        assert_eq!(ty.row_bytes(0), Some(0));
        assert_eq!(ty.row_bytes(3 * length), Some(3 * size));
        assert_eq!(ty.tensor_bytes(6 * length), Some(6 * size));
        assert_eq!(ty.row_bytes(length + 1), None);
        assert_eq!(ty.row_bytes(length / 2), None);
        assert_eq!(GgmlType::from_id(ty.id()), Some(ty));
    }
    assert_eq!(GgmlType::Q8_0.row_bytes(usize::MAX / 32 * 32), None, "more bytes than there are");
    assert_eq!(GgmlType::I2_S.tensor_bytes(256), Some(96));
    assert_eq!(GgmlType::I2_S.tensor_bytes(192), None);
}

#[test]
#[should_panic(expected = "a Q8_0 row of 64 values")]
fn a_row_of_another_length_panics() {
    GgmlType::Q8_0.decode_row(&[0; 34], &mut [0.0; 64]);
}

/// The rows that `testdata/quants/generate_encoded.py` had the `gguf` package quantise.
fn rows_to_encode() -> Vec<f32> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/quants");
    let bytes = fs::read(folder.join("encoded.f32.bin")).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn encoded_bytes_are_those_of_the_gguf_package() {
    let values = rows_to_encode();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/quants");
    for ty in [GgmlType::F16, GgmlType::BF16, GgmlType::Q8_0] {
        let expected = fs::read(folder.join(format!("encoded.{}.bin", ty.name()))).unwrap();
        let mut found = vec![0; ty.row_bytes(values.len()).unwrap()];
        ty.encode_row(&values, &mut found);
        let (_, size) = ty.block().unwrap();
        for (block, (found, expected)) in found.chunks(size).zip(expected.chunks(size)).enumerate() {
            assert_eq!(found, expected, "{} block {block}", ty.name());
        }
        assert_eq!(found.len(), expected.len());
    }
}

#[test]
fn six_bits_lose_little_and_the_rest_is_exact() {
    let error = |values: &[f32]| {
        let mut bytes = vec![0; GgmlType::Q6_K.row_bytes(values.len()).unwrap()];
        GgmlType::Q6_K.encode_row(values, &mut bytes);
        let mut decoded = vec![0.0; values.len()];
        GgmlType::Q6_K.decode_row(&bytes, &mut decoded);
        let square = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
        let lost = square(&mut values.iter().zip(&decoded).map(|(value, decoded)| value - decoded));
        (lost / square(&mut values.iter().copied())).sqrt()
    };
    let values = rows_to_encode();
    // Normal values: a scale for 16 of them and 64 levels leave about 1.6 %; a wrong scale, plane or sign leaves far more.
    for row in [&values[..256], &values[256..512]] {
        assert!(error(row) < 0.02, "{}", error(row));
    }
    // Multiples of a scale that f16 holds, the largest at -32 steps: nothing is lost, in any of the four planes.
    let exact: Vec<f32> =
        (0..256).map(|i| if i % 16 == 0 { -32.0 } else { (i * 7 % 63) as f32 - 31.0 } * 0.25).collect();
    assert_eq!(error(&exact), 0.0);
    // Zeros are zeros.
    let mut bytes = vec![1; 210];
    GgmlType::Q6_K.encode_row(&[0.0; 256], &mut bytes);
    assert_eq!(bytes, [0; 210]);
}

#[test]
fn what_is_encoded_is_said() {
    for ty in (0..64).filter_map(GgmlType::from_id) {
        let written = matches!(ty.name(), "F32" | "F16" | "BF16" | "Q8_0" | "Q6_K");
        assert_eq!(ty.can_encode(), written, "{}", ty.name());
    }
}
