//! Models with random weights are whole models: every tensor is there, and their vocabulary works.

mod common;

use assert_cmd::Command;
use bitnet_embed::config::ModelConfig;
use bitnet_embed::gguf::GgufFile;
use bitnet_embed::names::expected_tensors;
use bitnet_embed::tokenizer::Tokenizer;

const SMALL: &[&str] = &["--layers", "2", "--hidden-size", "128", "--ffn", "256", "--vocab", "500"];

fn dummy(args: &[&str]) -> GgufFile<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dummy.gguf");
    let mut command = Command::cargo_bin("converter").expect("the program is built");
    command.arg("dummy").args(args).arg("--outfile").arg(&path).assert().success();
    GgufFile::read(path).expect("a valid file")
}

#[test]
fn dummies_of_every_kind_are_whole_models() {
    for arch in ["custom", "qwen3-0.6b", "gemma3-270m"] {
        for outtype in ["f32", "f16", "i2_s"] {
            for bitnet in [&[][..], &["--bitnet"]] {
                let file = dummy(&[&["--arch", arch, "--outtype", outtype], SMALL, bitnet].concat());
                let config = ModelConfig::from_gguf(file.metadata()).expect("a valid config");
                assert_eq!((config.num_layers, config.vocab_size), (2, 500));
                let with_norms = outtype == "i2_s" || !bitnet.is_empty();
                let mut expected = expected_tensors(&config);
                expected.retain(|tensor| with_norms || !tensor.is_optional());
                assert_eq!(file.tensors().len(), expected.len());
                for tensor in expected {
                    assert_eq!(file.tensor(&tensor.name).expect("there").shape(), tensor.shape);
                }
                file.check_data().expect("no invalid code, nothing that is no number");
            }
        }
    }
}

#[test]
fn their_vocabulary_reads_any_text() {
    for (arch, before, after) in [("custom", None, 497), ("gemma3-270m", Some(2), 1)] {
        let file = dummy(&[&["--arch", arch, "--outtype", "f16"], SMALL].concat());
        let tokenizer = Tokenizer::from_gguf(file.metadata()).expect("a valid vocabulary");
        let ids = tokenizer.encode("the lazy dog, \u{1F415} and Stra\u{DF}e\n").expect("ids");
        assert_eq!(ids.first().copied().filter(|&id| id == 2), before, "{arch}");
        assert_eq!(ids.last(), Some(&after), "{arch}");
        // `th` comes from a merge, so the text takes fewer tokens than bytes.
        let text = "ab ".repeat(20);
        assert!(tokenizer.encode(&text).expect("ids").len() < 45, "{arch}");
    }
}

#[test]
fn the_seed_alone_decides_the_bytes() {
    let bytes =
        |seed: &str| dummy(&[&["--arch", "custom", "--outtype", "i2_s", "--seed", seed], SMALL].concat()).into_owner();
    assert!(bytes("7") == bytes("7"));
    assert!(bytes("7") != bytes("8"));
}

#[test]
fn sizes_that_make_no_model_are_refused_by_flag() {
    for (flag, value) in [
        ("--vocab-size", "10"),
        ("--hidden-size", "100"),
        ("--layers", "0"),
        ("--kv-heads", "3"),
        ("--head-dim", "33"),
        ("--heads", "18446744073709551615"),
    ] {
        let mut command = Command::cargo_bin("converter").expect("the program is built");
        let output = command.args(["dummy", "--arch", "custom", "--outtype", "f16", flag, value]).assert().code(2);
        let stderr = String::from_utf8(output.get_output().stderr.clone()).expect("UTF-8");
        assert!(stderr.contains(flag), "{stderr}");
    }
}

#[test]
fn sizes_that_make_too_large_a_model_are_refused_as_such() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.gguf");
    for sizes in [&["--layers", "4096", "--bitnet"][..], &["--layers", "1048576"], &["--layers", "7000"]] {
        let mut command = Command::cargo_bin("converter").expect("the program is built");
        command.args(["dummy", "--arch", "custom", "--outtype", "f16", "--outfile"]).arg(&out).args(sizes);
        let output = command.timeout(std::time::Duration::from_secs(60)).output().expect("the program runs");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{sizes:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains("layers"), "{stderr}");
        assert!(!out.exists());
    }
}
