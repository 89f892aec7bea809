//! Damaged files: cut anywhere, with any bit flipped, or with any number in them replaced by a huge one. Whatever the
//! reader says about them, it says it without a panic, soon, and without taking memory for what is not there.

#[cfg(target_os = "linux")]
use std::process::Command;
use std::time::{Duration, Instant};

use bitnet_embed::gguf::{GgufFile, GgufWriter, OwnedArray, Value};
use burn_i2s::ggml::GgmlType;

/// A file with a bit of everything.
fn tiny() -> Vec<u8> {
    let mut writer = GgufWriter::new();
    writer.metadata("general.alignment", 32u32).unwrap();
    writer.metadata("name", "tiny").unwrap();
    writer.metadata("flag", true).unwrap();
    writer.metadata("wide", -1i64).unwrap();
    writer.metadata("tokens", OwnedArray::strings(["a", "", "\u{2581}b"])).unwrap();
    writer.metadata("scores", OwnedArray::from(&[0.5f32, -1.0][..])).unwrap();
    writer.metadata("mask", OwnedArray::from(&[true, false][..])).unwrap();
    writer.tensor("norm", GgmlType::F32, &[3]).unwrap();
    writer.tensor("q", GgmlType::I2_S, &[2, 64]).unwrap();
    writer.tensor("table", GgmlType::F16, &[2, 3]).unwrap();
    let mut tensors = writer.write_to(Vec::new()).unwrap();
    tensors.write("norm", &[0; 12]).unwrap();
    tensors.write("q", &[&[0b01_10_00_01; 32][..], &1f32.to_le_bytes(), &[0; 28]].concat()).unwrap();
    tensors.write("table", &[0; 12]).unwrap();
    tensors.finish().unwrap()
}

/// Opens a file and asks it for everything; true if it opened.
fn exercise(bytes: &[u8]) -> bool {
    let start = Instant::now();
    let opened = match GgufFile::from_owner(bytes) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
        Ok(file) => {
            for key in file.metadata().keys() {
                if let Some(Value::Array(array)) = file.metadata().value(key) {
                    assert_eq!(array.values().count(), array.len());
                }
            }
            assert!(!file.describe().to_string().is_empty());
            for tensor in file.tensors() {
                if let Ok(data) = file.data(tensor) {
                    assert_eq!(Some(data.len()), tensor.byte_len());
                }
            }
            let _ = file.check_data();
            true
        }
    };
    assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
    opened
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let tiny = tiny();
    assert!(exercise(&tiny));
    // The last tensor's padding may be missing.
    let needed = tiny.len() - 20;
    for length in 0..tiny.len() {
        assert_eq!(exercise(&tiny[..length]), length >= needed, "cut to {length} of {}", tiny.len());
    }
}

#[test]
fn a_file_with_any_bit_flipped_does_no_harm() {
    let mut tiny = tiny();
    let mut refused = 0;
    for bit in 0..tiny.len() * 8 {
        tiny[bit / 8] ^= 1 << (bit % 8);
        refused += usize::from(!exercise(&tiny));
        tiny[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(refused > 1000, "only {refused} were refused");
}

#[test]
fn a_file_with_any_two_bytes_replaced_does_no_harm() {
    let tiny = tiny();
    for first in 0..tiny.len() {
        for second in (first + 1)..(first + 12).min(tiny.len()) {
            for (a, b) in [(0, 0), (0xff, 0xff), (0, 0xff), (0xff, 0)] {
                let mut bytes = tiny.clone();
                (bytes[first], bytes[second]) = (a, b);
                exercise(&bytes);
            }
        }
    }
}

/// Every eight bytes of the file in turn replaced by a claim.
fn exercise_claims() {
    let tiny = tiny();
    for claim in [1u64 << 16, 1 << 24, 1 << 32, 1 << 40, 1 << 61, 1 << 63, u64::MAX] {
        for at in 0..tiny.len() - 8 {
            let mut bytes = tiny.clone();
            bytes[at..at + 8].copy_from_slice(&claim.to_le_bytes());
            exercise(&bytes);
        }
    }
}

/// Runs the claims again in a process that may have little memory, so that one that is believed ends it.
#[cfg(target_os = "linux")]
#[test]
fn claims_are_not_allocated() {
    const INSIDE: &str = "GGUF_TEST_LIMITED";
    if std::env::var_os(INSIDE).is_some() {
        return exercise_claims();
    }
    let this = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 500000 && exec \"$0\" --exact claims_are_not_allocated --test-threads 1"])
        .arg(this)
        .env(INSIDE, "1")
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(not(target_os = "linux"))]
#[test]
fn claims_do_no_harm() {
    exercise_claims();
}
