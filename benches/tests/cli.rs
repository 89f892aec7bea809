//! The program as its users meet it: tables, formats, refusals, on the fixture models.

use assert_cmd::Command;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(name)
}

fn qwen() -> PathBuf {
    testdata("gguf/qwen3-bitnet.i2_s.gguf")
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("benches").unwrap().args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("an exit code, not a signal"), text(output.stdout), text(output.stderr))
}

fn bench(arguments: &[&str]) -> (i32, String, String) {
    let (qwen, gemma) = (qwen(), testdata("gguf/gemma3-bitnet.i2_s.gguf"));
    let models = ["-m", qwen.to_str().unwrap(), "-m", gemma.to_str().unwrap()];
    run(&[&models, arguments].concat())
}

#[test]
fn the_table_has_a_row_for_every_model_thread_count_and_prompt() {
    let (code, stdout, stderr) = bench(&["-p", "4,9", "-t", "1,2", "-r", "2"]);
    assert_eq!(code, 0, "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 2 + 2 * 2 * 2, "{stdout}");
    for (line, head) in lines[0].trim_matches('|').split('|').zip(["model", "size", "params", "backend", "threads"]) {
        assert_eq!(line.trim(), head);
    }
    assert!(lines[1].starts_with("| -") && lines[1].contains(": |"), "{stdout}");
    let cells: Vec<&str> = lines[2].trim_matches('|').split('|').map(str::trim).collect();
    assert!(cells[0].starts_with("qwen3 ") && cells[0].ends_with(" I2_S"), "{stdout}");
    assert_eq!((cells[3], cells[4], cells[5]), ("I2_S", "1", "pp4"), "{stdout}");
    let (rate, deviation) = cells[6].split_once(" ± ").unwrap();
    assert!(rate.parse::<f64>().unwrap() > 0.0 && deviation.parse::<f64>().unwrap() >= 0.0, "{stdout}");
    assert!(lines[9].contains("gemma3 ") && lines[9].contains(" pp9 |"), "{stdout}");
    assert!(stderr.contains("layer shapes give the scalar level's results"), "{stderr}");
    assert!(!stdout.contains("I2_S : F16"), "nothing to compare with: {stdout}");
}

#[test]
fn llama_benchs_options_are_accepted_and_skipped_with_a_note() {
    let (code, stdout, stderr) = bench(&["-p", "3", "-n", "0", "-ngl", "0", "-embd", "1", "-t", "1", "-r", "1"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("pp3") && !stdout.contains("tg"), "{stdout}");
    for option in ["-n is skipped", "-ngl is skipped", "-embd is skipped"] {
        assert!(stderr.contains(option), "{stderr}");
    }
}

#[test]
fn json_has_llama_benchs_fields_and_nothing_else_is_on_stdout() {
    let (code, stdout, _) = bench(&["-p", "5", "-t", "1", "-r", "3", "-o", "json"]);
    assert_eq!(code, 0);
    let rows: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    let row = &rows[0];
    assert_eq!((&row["n_prompt"], &row["n_threads"], &row["n_gen"]), (&5.into(), &1.into(), &0.into()));
    let samples: Vec<f64> = row["samples_ts"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let mean = samples.iter().sum::<f64>() / 3.0;
    assert_eq!(samples.len(), 3);
    assert!((row["avg_ts"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9);
    let ns = row["samples_ns"][0].as_f64().unwrap();
    assert!((samples[0] * ns / 5e9 - 1.0).abs() < 1e-6, "a rate is tokens by time");
    for field in ["model_filename", "model_type", "model_size", "model_n_params", "stddev_ts", "avg_ns", "test_time"] {
        assert!(!row[field].is_null(), "{field}");
    }
    let (_, lines, _) = bench(&["-p", "5", "-t", "1", "-r", "1", "-o", "jsonl"]);
    assert!(lines.lines().count() == 2 && lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn cpu_time_is_named_in_the_table_and_in_json() {
    let (code, stdout, stderr) = bench(&["-p", "5", "-t", "1", "-r", "1", "--cpu-time"]);
    if cfg!(unix) {
        assert!(code == 0 && stdout.lines().next().unwrap().contains("t/s of CPU time"), "{stderr}");
        let (_, stdout, _) = bench(&["-p", "5", "-t", "1", "-r", "1", "--cpu-time", "-o", "jsonl"]);
        assert_eq!(serde_json::from_str::<Value>(stdout.lines().next().unwrap()).unwrap()["clock"], "cpu");
    } else {
        assert!(code == 2 && stderr.contains("--cpu-time"), "{stderr}");
    }
}

#[test]
fn csv_has_a_header_and_as_many_fields_in_every_row() {
    let (code, stdout, _) = bench(&["-p", "5", "-t", "1", "-r", "1", "-o", "csv"]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 3);
    let fields = lines[0].split(',').count();
    assert!(lines[1..].iter().all(|line| line.split("\",\"").count() == fields), "{stdout}");
    assert!(lines[0].split(',').any(|field| field == "avg_ts"), "{stdout}");
}

#[test]
fn a_bitnet_file_on_both_backends_gets_a_ratio() {
    let qwen = qwen();
    let folder = tempfile::tempdir().unwrap();
    let float = folder.path().join("float.gguf");
    let mut options = converter::ConvertOptions::new(testdata("checkpoints/qwen3-bitnet"), converter::Outtype::F16);
    options.outfile = Some(float.clone());
    converter::convert(&options, &mut ()).unwrap();
    let files = ["-m", qwen.to_str().unwrap(), "-m", float.to_str().unwrap(), "-t", "1", "-r", "1"];
    let (code, stdout, stderr) = run(&[&files, &["-p", "8"][..]].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("| F16 "), "{stdout}");
    assert_eq!(stdout.lines().filter(|line| line.starts_with("I2_S : F16 = ")).count(), 1, "{stdout}");
    // The other formats are for programs: there the ratio is a note.
    let (_, stdout, stderr) = run(&[&files, &["-p", "8", "-o", "json"][..]].concat());
    assert!(!stdout.contains("I2_S : F16") && stderr.contains("I2_S : F16 = "), "{stderr}");
    // One backend for all: nothing to compare.
    let (code, stdout, _) = run(&[&files, &["-p", "8", "--backend", "f16"][..]].concat());
    assert!(code == 0 && !stdout.contains("I2_S : F16"), "{stdout}");
}

#[test]
fn what_cannot_be_measured_is_refused_in_one_line() {
    let (code, stdout, stderr) = run(&[]);
    assert!(code == 2 && stdout.is_empty());
    assert!(stderr.contains("-m") && stderr.contains("converter") && stderr.contains("dummy"), "{stderr}");
    let (code, _, stderr) = run(&["-m", "no-such-file.gguf"]);
    assert!(code == 3 && stderr.contains("no-such-file.gguf") && stderr.lines().count() == 1, "{stderr}");
    for wrong in [["-p", "0"], ["-t", "x"], ["-r", "0"], ["--isa", "sse9"], ["-o", "sql"]] {
        let (code, _, stderr) = bench(&wrong);
        assert_eq!(code, 2, "{wrong:?}: {stderr}");
    }
}

#[test]
fn a_prompt_beyond_the_context_is_refused_before_it_is_allocated() {
    let qwen = qwen();
    let config = bitnet_embed::store::GgufStore::open(&qwen).unwrap().plan().config.clone();
    let (most, beyond) = (config.max_position.to_string(), (config.max_position + 1).to_string());
    for command in [&[][..], &["limits", "--time", "1"]] {
        let (code, stdout, stderr) =
            run(&[command, &["-m", qwen.to_str().unwrap(), "-p", &format!("4,{beyond}")]].concat());
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        let said = format!("a text of {beyond} tokens is longer than the model's context of {most}");
        assert!(stderr.contains(&said) && stderr.contains("qwen3-bitnet.i2_s.gguf"), "{stderr}");
    }
}

#[test]
fn more_tokens_than_memory_holds_are_refused_before_they_are_allocated() {
    let qwen = qwen();
    let model = ["-m", qwen.to_str().unwrap()];
    for (arguments, said) in [
        (&["-p", "64", "--texts", "65536"][..], "65536 texts of 64 tokens are more than the 131072"),
        (&["texts", "--count", "100000", "--tokens", "1000"], "100000 texts of 1000 tokens are more than 67108864"),
        (&["texts", "--count", "4294967295"], "4294967295 is not in 1..=200000"),
        (&["texts", "--count", "1", "--tokens", "65536"], "is longer than the model's context"),
        (&["limits", "--time", "0"], "0 is not in 1..=3600000"),
    ] {
        let (code, stdout, stderr) = run(&[arguments, &model].concat());
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}

#[test]
fn every_command_obeys_bitnet_isa() {
    let qwen = qwen();
    let model = ["-m", qwen.to_str().unwrap()];
    for (arguments, said) in [
        (&["texts", "--count", "1", "-r", "1"][..], "on scalar, threads: 1"),
        (&["limits", "--time", "1", "-p", "4"], "scalar has no int8 multiply-add"),
        (&["tune", "--time", "1"], "product on scalar"),
    ] {
        let model = if arguments[0] == "tune" { &[][..] } else { &model };
        let output = Command::new(env!("CARGO_BIN_EXE_benches"))
            .args([arguments, model].concat())
            .env("BITNET_ISA", "scalar")
            .output()
            .unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && stdout.contains(said), "{arguments:?}: {stdout}");
    }
}

#[test]
fn an_empty_bitnet_isa_is_as_good_as_none() {
    let set_to = |level: &str| {
        let mut program = Command::cargo_bin("benches").unwrap();
        program.env("BITNET_ISA", level).args(["-p", "4", "-t", "1", "-r", "1", "-m"]).arg(qwen());
        program.output().unwrap().status.code()
    };
    assert_eq!((set_to(""), set_to("sse9")), (Some(0), Some(2)));
}

#[test]
fn a_float_model_cannot_be_timed_in_integers() {
    let folder = tempfile::tempdir().unwrap();
    let float = folder.path().join("float.gguf");
    let mut options = converter::ConvertOptions::new(testdata("checkpoints/qwen3-std"), converter::Outtype::F16);
    options.outfile = Some(float.clone());
    converter::convert(&options, &mut ()).unwrap();
    let float = float.to_str().unwrap();
    let (code, stdout, stderr) = run(&["-m", float, "-p", "8", "-t", "1", "-r", "1"]);
    assert!(code == 0 && stdout.contains("F16"), "{stderr}");
    let (code, _, stderr) = run(&["-m", float, "-p", "8", "--backend", "i2_s"]);
    assert!(code == 3 && stderr.contains("F16Backend"), "{stderr}");
}

#[test]
fn limits_print_a_part_for_every_shape() {
    let (code, stdout, stderr) = run(&["limits", "--time", "1", "-t", "2", "-m", qwen().to_str().unwrap(), "-p", "16"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("scalar") && stdout.contains("and back: "), "{stdout}");
    if stdout.contains("avx2") {
        assert!(stdout.contains("3072 x 1024") && stdout.contains("640 x 2048"), "{stdout}");
        assert!(stdout.contains("pp16") && stdout.contains("t/s x"), "{stdout}");
    }
}

#[test]
fn texts_report_rates_and_a_query() {
    let (code, stdout, stderr) =
        run(&["texts", "-m", qwen().to_str().unwrap(), "--count", "40", "--tokens", "6", "-r", "1", "-t", "1,2"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stdout.matches("40 texts of ").count(), 2, "{stdout}");
    assert_eq!(stdout.matches("one query of 16 tokens: ").count(), 2, "{stdout}");
}
