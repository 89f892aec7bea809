//! What the program writes beyond the published converter's contract, and how it behaves while doing so.

mod common;

use std::path::Path;

use bitnet_embed::gguf::{GgufFile, Metadata};
use bitnet_embed::tokenizer::Tokenizer;
use burn_i2s::ggml::GgmlType;
use common::{Copy, converter};
use half::bf16;
use serde_json::json;

fn convert(copy: &Copy, args: &[&str]) -> GgufFile<Vec<u8>> {
    converter(&copy.dir, args).arg("--outfile").arg(copy.output()).assert().success();
    GgufFile::read(copy.output()).expect("a valid file")
}

fn window(metadata: &Metadata<'_>) -> (Option<u32>, Option<Vec<bool>>, Option<f32>) {
    let pattern = metadata.array("gemma3.attention.sliding_window_pattern").expect("an array");
    (
        metadata.u32("gemma3.attention.sliding_window").expect("a number"),
        pattern.map(|pattern| pattern.bools().expect("booleans").collect()),
        metadata.f32("gemma3.rope.freq_base_swa").expect("a number"),
    )
}

#[test]
fn gemma_keeps_window_pattern_bases_and_scale() {
    let file = convert(&Copy::of("gemma3-bitnet"), &["--outtype", "i2_s"]);
    let metadata = file.metadata();
    assert_eq!(window(&metadata), (Some(16), Some(vec![true, false]), Some(1e4)));
    assert_eq!(metadata.f32("gemma3.rope.freq_base").expect("a number"), Some(1e6));
    assert_eq!(metadata.f32("gemma3.attention.scale").expect("a number"), Some(0.125));
    assert_eq!(metadata.bool("gemma3.attention.causal").expect("a flag"), None);

    let file = convert(&Copy::of("gemma3-std"), &["--outtype", "f16"]);
    assert_eq!(window(&file.metadata()), (Some(12), Some(vec![true, false]), Some(1e4)));

    // One layer, and it does not slide: a window would only mislead a reader that knows no pattern.
    let file = convert(&Copy::of("gemma3-ternary"), &["--outtype", "f16"]);
    assert_eq!(window(&file.metadata()), (None, None, None));
}

#[test]
fn rope_parameters_of_newer_configs_are_kept() {
    let copy = Copy::of("gemma3-std");
    copy.edit_json("config.json", |config| {
        let object = config.as_object_mut().expect("an object");
        object.remove("rope_theta");
        object.remove("rope_local_base_freq");
        object.insert(
            "rope_parameters".into(),
            json!({"full_attention": {"rope_type": "default", "rope_theta": 5e5},
                   "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}),
        );
    });
    let file = convert(&copy, &["--outtype", "f16"]);
    assert_eq!(file.metadata().f32("gemma3.rope.freq_base").expect("a number"), Some(5e5));
    assert_eq!(window(&file.metadata()).2, Some(2e4));

    // Every layer slides: the base of full layers is still stated.
    copy.edit_json("config.json", |config| config["sliding_window_pattern"] = json!(6));
    let file = convert(&copy, &["--outtype", "f16"]);
    assert_eq!(file.metadata().f32("gemma3.rope.freq_base").expect("a number"), Some(5e5));
    assert_eq!(window(&file.metadata()), (Some(12), Some(vec![true, true]), Some(2e4)));
}

#[test]
fn a_bidirectional_model_keeps_its_whole_window() {
    for stated in [12, 13] {
        let copy = Copy::of("gemma3-std");
        copy.edit_json("config.json", |config| {
            config["use_bidirectional_attention"] = json!(true);
            config["sliding_window"] = json!(stated);
        });
        let file = convert(&copy, &["--outtype", "f16"]);
        assert_eq!(window(&file.metadata()).0, Some(stated));
        assert_eq!(file.metadata().bool("gemma3.attention.causal").expect("a flag"), Some(false));
    }
}

#[test]
fn gemmas_norms_are_stored_plus_one_and_the_norms_of_projections_are_not() {
    let copy = Copy::of("gemma3-bitnet");
    let file = convert(&copy, &["--outtype", "f32"]);
    let source = common::Tensors::parse(&copy.read("model.safetensors"));
    for (ours, theirs, one) in [
        ("blk.1.post_ffw_norm.weight", "model.layers.1.post_feedforward_layernorm.weight", 1.0),
        ("blk.1.attn_q_norm.weight", "model.layers.1.self_attn.q_norm.weight", 1.0),
        ("output_norm.weight", "model.norm.weight", 1.0),
        ("blk.1.attn_q_norm_in.weight", "model.layers.1.self_attn.q_proj.norm.weight", 0.0),
    ] {
        let tensor = file.tensor(ours).expect("there");
        let mut found = vec![0.0; tensor.element_count()];
        GgmlType::F32.decode_row(file.data(tensor).expect("data"), &mut found);
        let bytes = &source.0[theirs].2;
        let expected: Vec<f32> =
            bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32() + one).collect();
        assert_eq!(found, expected, "{ours}");
    }
}

#[test]
fn the_default_output_is_named_after_the_folder_and_type() {
    let copy = Copy::of("qwen3-bitnet");
    let expected = copy.dir.join("qwen3-bitnet-i2_s.gguf");
    let result = converter(&copy.dir, &["--outtype", "i2_s"]).assert().success();
    assert_eq!(result.get_output().stdout, format!("{}\n", expected.display()).as_bytes());
    // The folder's own name also where it is not spelled.
    let mut command = converter(Path::new("."), &["--outtype", "i2_s"]);
    let result = command.current_dir(&copy.dir).assert().success();
    assert_eq!(result.get_output().stdout, b"./qwen3-bitnet-i2_s.gguf\n");
    let file = GgufFile::read(expected).expect("a valid file");
    assert_eq!(file.metadata().str("general.name").expect("a string"), Some("qwen3-bitnet"));
}

#[test]
fn the_subcommand_may_be_spelled_out_and_an_existing_file_is_replaced() {
    let copy = Copy::of("qwen3-std");
    std::fs::write(copy.output(), b"older").expect("a file");
    let short = convert(&copy, &["--outtype", "f16"]).into_owner();
    let mut command = assert_cmd::Command::cargo_bin("converter").expect("the program is built");
    command.arg("convert").arg(&copy.dir).args(["--outtype", "f16", "--outfile"]).arg(copy.output());
    command.assert().success();
    assert_eq!(std::fs::read(copy.output()).expect("a file"), short);
}

#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
    let bytes = |threads: &str| {
        let copy = Copy::of("gemma3-bitnet");
        let mut command = converter(&copy.dir, &["--outtype", "i2_s", "--outfile"]);
        command.arg(copy.output()).env("RAYON_NUM_THREADS", threads).assert().success();
        std::fs::read(copy.output()).expect("a file")
    };
    assert_eq!(bytes("1"), bytes("5"));
}

#[test]
fn any_float_type_gives_the_same_file() {
    let reference = convert(&Copy::of("qwen3-std"), &["--outtype", "f32"]).into_owner();
    for (dtype, encode) in [
        ("F32", (|value: f32| value.to_le_bytes().to_vec()) as fn(f32) -> Vec<u8>),
        ("F64", |value| f64::from(value).to_le_bytes().to_vec()),
    ] {
        let copy = Copy::of("qwen3-std");
        copy.edit_tensors("model.safetensors", |tensors| {
            for (name, _, values) in tensors.0.values_mut() {
                *values = values.as_chunks().0.iter().flat_map(|b| encode(bf16::from_le_bytes(*b).to_f32())).collect();
                *name = dtype.to_owned();
            }
        });
        assert!(convert(&copy, &["--outtype", "f32"]).into_owner() == reference, "{dtype}");
    }
}

#[test]
fn what_is_left_out_is_said() {
    let copy = Copy::of("qwen3-sharded-f16-mean");
    let result = converter(&copy.dir, &["--outtype", "f32"]).assert().success();
    let stderr = String::from_utf8(result.get_output().stderr.clone()).expect("UTF-8");
    assert!(stderr.contains("left out: lm_head.weight"), "{stderr}");
}

#[test]
fn added_tokens_beyond_the_table_are_left_out_and_said() {
    let copy = Copy::of("gemma3-std");
    copy.edit_json("tokenizer.json", |tokenizer| {
        let mut token = tokenizer["added_tokens"][4].clone();
        token["id"] = json!(768);
        token["content"] = json!("<image_soft_token>");
        tokenizer["added_tokens"].as_array_mut().expect("an array").push(token);
        tokenizer["model"]["vocab"]["<image_soft_token>"] = json!(768);
    });
    let json = std::fs::read(copy.dir.join("tokenizer.json")).expect("a file");
    let text = "a<image_soft_token> b\n\n<eos>";
    let mut ids = Vec::new();
    for flags in [&[][..], &["--embed-tokenizer"]] {
        let mut command = converter(&copy.dir, &["--outtype", "f16", "--outfile"]);
        let result = command.arg(copy.output()).args(flags).assert().success();
        let stderr = String::from_utf8(result.get_output().stderr.clone()).expect("UTF-8");
        let lines: Vec<&str> = stderr.lines().filter(|line| line.contains("<image_soft_token>")).collect();
        assert!(lines.len() == 1 && lines[0].contains("1 in all"), "{stderr}");
        let file = GgufFile::read(copy.output()).expect("a valid file");
        assert_eq!(file.metadata().array("tokenizer.ggml.tokens").expect("an array").expect("there").len(), 768);
        // Stored as it is: readers that have such rows are not this one's concern.
        let stored = file.metadata().str("tokenizer.huggingface.json").expect("a string");
        assert_eq!(stored.map(str::as_bytes), (!flags.is_empty()).then_some(&json[..]));
        let tokenizer = Tokenizer::from_gguf(file.metadata()).expect("a tokenizer");
        assert_eq!(tokenizer.id_count(), 768);
        ids.push(tokenizer.encode(text).expect("ids"));
        let paths = [copy.output(), copy.dir.clone()].map(|path| path.display().to_string());
        common::run(["verify", "--no-embeddings", &paths[0], &paths[1]], 0);
    }
    // The token without a row is ordinary text in both, and 768 where nothing says how many rows there are.
    assert_eq!(ids[0], ids[1]);
    assert!(ids[0].iter().all(|&id| id < 768));
    let unlimited = Tokenizer::from_json_bytes(&json).expect("a tokenizer");
    assert!(unlimited.encode(text).expect("ids").contains(&768));
    let given = Tokenizer::from_file_for_rows(copy.dir.join("tokenizer.json"), 768).expect("a tokenizer");
    assert_eq!(given.encode(text).expect("ids"), ids[0]);
}

#[test]
fn the_command_line_is_checked_and_explained() {
    let run = |args: &[&str]| {
        let mut command = assert_cmd::Command::cargo_bin("converter").expect("the program is built");
        command.args(args).output().expect("the program runs")
    };
    for args in [&[][..], &["x"], &["x", "--outtype", "q4_0"], &["dummy"], &["x", "--outtype", "f16", "--nonsense"]] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
    let help = run(&["--help"]);
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    for part in ["--outtype", "--pooling", "--force", "dummy", "Exit codes", "  3  ", "  4  ", "  5  "] {
        assert!(help.contains(part), "no {part:?} in the help");
    }
    for command in ["convert", "inspect", "verify", "edit", "dummy"] {
        let help = String::from_utf8(run(&[command, "--help"]).stdout).expect("UTF-8");
        assert!(help.contains("Example") && help.contains("Exit codes:\n  0  ") && help.contains("\n  5  "), "{help}");
    }
    assert_eq!(run(&["no/such/folder", "--outtype", "f16"]).status.code(), Some(3));
}

/// Pasted one after the other, beside a checkpoint of the name that they use.
#[test]
fn the_examples_of_every_help_work() {
    let copy = Copy::of("qwen3-bitnet");
    let folder = copy.dir.parent().expect("a folder");
    std::fs::rename(&copy.dir, folder.join("bitnet-0.6b")).expect("moved");
    let program = || {
        let mut command = assert_cmd::Command::cargo_bin("converter").expect("the program is built");
        command.current_dir(folder);
        command
    };
    let mut count = 0;
    for command in [
        &["--help"][..],
        &["convert", "--help"],
        &["inspect", "--help"],
        &["verify", "--help"],
        &["edit", "--help"],
        &["dummy", "--help"],
    ] {
        let help = program().args(command).output().expect("the program runs").stdout;
        let help = String::from_utf8(help).expect("UTF-8");
        for line in help.lines().filter_map(|line| line.strip_prefix("  converter ")) {
            let (line, writes) = line.split_once("  writes ").unwrap_or((line, ""));
            // Full size: the same command as for a custom one, and seconds of work.
            if line.contains("--arch qwen3-0.6b") {
                continue;
            }
            let output = program().args(line.split_whitespace()).output().expect("the program runs");
            let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "converter {line}: {stderr}");
            assert!(!stderr.contains("would refuse"), "converter {line}: {stderr}");
            assert!(stdout.trim_end().ends_with(writes), "converter {line}: {stdout}");
            count += 1;
        }
    }
    assert!(count > 15, "{count}");
}

#[test]
fn a_table_longer_than_one_piece_is_converted_and_checked_to_its_end() {
    let rows = 70_000;
    assert!(rows * 64 > converter::encode::CHUNK && rows * 64 < 2 * converter::encode::CHUNK);
    let copy = Copy::of("qwen3-std");
    copy.edit_json("config.json", |config| config["vocab_size"] = json!(rows));
    let values: Vec<f32> = (0..rows * 64).map(|index| (index % 1009) as f32 / 64.0).collect();
    let store = |values: &[f32]| {
        copy.edit_tensors("model.safetensors", |tensors| {
            let table = tensors.0.get_mut("model.embed_tokens.weight").expect("there");
            *table = ("F32".to_owned(), vec![rows, 64], values.iter().flat_map(|v| v.to_le_bytes()).collect());
        });
    };
    store(&values);
    let file = convert(&copy, &["--outtype", "f16"]);
    let tensor = file.tensor("token_embd.weight").expect("there");
    let mut found = vec![0.0; values.len()];
    GgmlType::F16.decode_row(file.data(tensor).expect("data"), &mut found);
    // Multiples of 1/64 below 16 are exact in half precision.
    assert!(found == values);

    let mut spoiled = values;
    *spoiled.last_mut().expect("not empty") = f32::NAN;
    store(&spoiled);
    copy.assert_refused(&["--outtype", "f16"], 3, &["value 4479999 is NaN"]);
}
