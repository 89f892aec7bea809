//! Models of the published sizes: both backends agree to the bit, and memory above the mapped file stays small.
//!
//! Too large for every test run. `docs/checks.md` has the commands.
#![cfg(feature = "burn")]

mod support;

use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::process::Command;

use bitnet_embed::{BackendKind, Embedder};
use converter::Outtype;
use converter::dummy::{self, DummyArch, DummyOptions};

/// Anonymous memory in KiB that one run may use at 512 tokens, token table and weights not included: those are pages of
/// the file. Measured on two cores: 40 MB for 0.6B, 28 MB for 270M.
const MEMORY_LIMITS: [(DummyArch, u64); 2] = [(DummyArch::Qwen3, 250 << 10), (DummyArch::Gemma3, 150 << 10)];

fn write_dummy(dir: &Path, arch: DummyArch) -> PathBuf {
    let path = dir.join(format!("{arch:?}.gguf"));
    let options = DummyOptions { outfile: Some(path.clone()), ..DummyOptions::new(arch, Outtype::I2S) };
    dummy::write(&options, &mut ()).unwrap();
    path
}

#[test]
#[ignore = "writes 800 MB; cargo test --release --workspace --test full_size -- --ignored"]
fn both_backends_give_the_same_bits_at_full_size() {
    let dir = tempfile::tempdir().unwrap();
    for (arch, _) in MEMORY_LIMITS {
        let path = write_dummy(dir.path(), arch);
        let texts = ["The cat sat on the mat.", "a", "Die Katze sitzt auf der Matte."];
        let [i2s, f16] = [BackendKind::I2s, BackendKind::F16].map(|backend| {
            let embedder = Embedder::builder().backend(backend).open(&path).unwrap();
            let together = embedder.embed(&texts).unwrap();
            for (text, vector) in texts.iter().zip(&together) {
                assert_eq!(embedder.embed(&[text]).unwrap()[0], *vector, "{arch:?} {backend:?} {text:?}");
            }
            together
        });
        assert_eq!(i2s, f16, "{arch:?}");
        assert_ne!(i2s[0], i2s[1]);
    }
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "writes 800 MB; cargo test --release --workspace --test full_size -- --ignored"]
fn memory_above_the_mapped_file_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    for (arch, limit) in MEMORY_LIMITS {
        let path = write_dummy(dir.path(), arch);
        let text = "word ".repeat(600);
        let mut command = Command::new(env!("CARGO_BIN_EXE_bitnet-embed"));
        command.arg("embed").arg("-m").arg(&path).args(["--max-tokens", "512", "-p", &text]);
        let peak = support::peak_anonymous(&mut command);
        println!("{arch:?}: {peak} KiB of anonymous memory at 512 tokens");
        assert!(peak < limit, "{arch:?}: {peak} KiB, limit {limit} KiB");
    }
}
