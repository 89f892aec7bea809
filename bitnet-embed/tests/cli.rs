//! The program as its users meet it: formats, exit codes, refusals in one line.
#![cfg(feature = "cli")]

use assert_cmd::Command;
use std::path::{Path, PathBuf};

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata")
}

fn program() -> Command {
    Command::cargo_bin("bitnet-embed").unwrap()
}

fn model() -> PathBuf {
    testdata().join("gguf/gemma3-bitnet.i2_s.gguf")
}

fn embed(arguments: &[&str]) -> (i32, String, String) {
    run(program().arg("embed").arg("-m").arg(model()).args(arguments))
}

fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("an exit code, not a signal"), text(output.stdout), text(output.stderr))
}

#[test]
fn without_a_model_the_demo_answers_and_says_what_it_is() {
    let (code, stdout, stderr) = run(program().args(["embed", "-p", "hello"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("embedding 0: "), "{stdout}");
    assert!(stderr.contains("demo") && stderr.contains("bitnet-embeddings-0.6b"), "{stderr}");
}

#[test]
fn json_is_the_same_vector_as_array_and_nothing_else_is_on_stdout() {
    let (code, json, _) = embed(&["-p", "a text", "-p", "another", "--embd-output-format", "json"]);
    assert_eq!(code, 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (_, array, _) = embed(&["-p", "a text", "-p", "another", "--embd-output-format", "array"]);
    let array: serde_json::Value = serde_json::from_str(&array).unwrap();
    assert_eq!(json["data"][0]["embedding"], array[0]);
    assert_eq!(json["data"][1]["embedding"], array[1]);
    assert_eq!(json["data"][1]["index"], 1);
    let (_, plus, _) = embed(&["-p", "a text", "-p", "another", "--embd-output-format", "json+"]);
    let plus: serde_json::Value = serde_json::from_str(&plus).unwrap();
    assert_eq!(plus["cosineSimilarity"][0][0], 1.0);
    let (_, raw, _) = embed(&["-p", "a text", "-p", "another", "--embd-output-format", "raw"]);
    assert_eq!(raw.lines().count(), 2);
    assert_eq!(raw.lines().next().unwrap().split(' ').count(), 128);
}

#[test]
fn a_prompt_with_a_line_break_is_one_text_and_a_file_is_one_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("texts.txt");
    std::fs::write(&file, "one\r\ntwo\n\nfour\n").unwrap();
    let (code, stdout, _) = embed(&["-p", "a\nb", "-f", file.to_str().unwrap(), "--embd-output-format", "raw"]);
    assert_eq!((code, stdout.lines().count()), (0, 5));
    let (_, one, _) = embed(&["-p", "one", "--embd-output-format", "raw"]);
    assert_eq!(stdout.lines().nth(1), one.lines().next());
    let stdin = run(program()
        .args(["embed", "-m"])
        .arg(model())
        .args(["-f", "-", "--embd-output-format", "raw"])
        .write_stdin("one"));
    assert_eq!(stdin.1, one);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_text() {
    let lines = |text: &str| {
        let mut program = program();
        program.args(["embed", "-f", "-", "--embd-output-format", "raw", "-m"]).arg(model()).write_stdin(text);
        let (code, stdout, stderr) = run(&mut program);
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    assert_eq!(lines("\u{feff}one\ntwo"), lines("one\ntwo"));
    // Anywhere else it is a character like others.
    assert_ne!(lines("one\n\u{feff}two"), lines("one\ntwo"));
}

#[test]
fn texts_that_are_cut_are_said_to_be_with_the_limit() {
    let (code, _, stderr) = embed(&["-p", "a", "-p", "a text of several tokens", "--max-tokens", "4"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("1 text(s) cut to the limit of 4 tokens, the first is text 1"), "{stderr}");
}

#[test]
fn every_option_that_cannot_change_a_vector_does_not() {
    let format = ["-p", "the same text", "--embd-output-format", "json"];
    let expected = embed(&format).1;
    let levels = burn_i2s::isa::Isa::available().iter().map(|isa| isa.name());
    for isa in levels {
        for extra in [vec!["--isa", isa], vec!["--isa", isa, "--backend", "f16"], vec!["-t", "3", "--backend", "i2_s"]]
        {
            let arguments: Vec<&str> = format.iter().copied().chain(extra.clone()).collect();
            assert_eq!(embed(&arguments).1, expected, "{extra:?}");
        }
    }
    let (code, stdout, stderr) = embed(&["-p", "the same text", "--embd-output-format", "json", "-ngl", "99"]);
    assert_eq!((code, stdout), (0, expected));
    assert!(stderr.contains("-ngl is ignored"), "{stderr}");
}

#[test]
fn normalisations_and_poolings_are_accepted_by_their_llama_cpp_values() {
    for (number, check) in [
        ("-1", (|v: &[f64]| v.iter().any(|x| x.abs() > 1.0)) as fn(&[f64]) -> bool),
        ("0", |v| v.iter().any(|x| x.abs() == 32760.0) && v.iter().all(|x| x.fract() == 0.0)),
        ("1", |v| (v.iter().map(|x| x.abs()).sum::<f64>() - 1.0).abs() < 1e-5),
        ("2", |v| (v.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5),
        ("3", |v| (v.iter().map(|x| x.abs().powi(3)).sum::<f64>() - 1.0).abs() < 1e-5),
    ] {
        let (code, stdout, stderr) =
            embed(&["-p", "x", "--embd-normalize", number, "--embd-output-format", "array", "--pooling", "mean"]);
        assert_eq!(code, 0, "{stderr}");
        let vectors: Vec<Vec<f64>> = serde_json::from_str(&stdout).unwrap();
        assert!(check(&vectors[0]), "{number}: {:?}", vectors[0]);
    }
    let last = embed(&["-p", "two words", "--pooling", "last"]).1;
    assert_eq!(embed(&["-p", "two words"]).1, last);
    assert_ne!(embed(&["-p", "two words", "--pooling", "cls"]).1, last);
}

#[test]
fn tokenize_prints_the_ids_of_the_golden_file() {
    let goldens = std::fs::read_to_string(testdata().join("tokens/gemma.json")).unwrap();
    let goldens: serde_json::Value = serde_json::from_str(&goldens).unwrap();
    for golden in
        goldens.as_array().unwrap().iter().filter(|golden| !golden["text"].as_str().unwrap().contains('\0')).take(20)
    {
        let text = golden["text"].as_str().unwrap();
        let (code, stdout, stderr) = run(program().args(["tokenize", "--json", "-m"]).arg(model()).arg("-p").arg(text));
        assert_eq!(code, 0, "{stderr}");
        let ids: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(ids, golden["ids"], "{text:?}");
    }
    let (_, listing, _) = run(program().args(["tokenize", "-p", "hello there"]));
    assert!(listing.lines().all(|line| line.contains(" -> '")), "{listing}");
}

#[test]
fn a_refused_tokenizer_is_named_once_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.json");
    std::fs::write(&path, "{").unwrap();
    for command in ["tokenize", "embed"] {
        let mut program = program();
        let (code, _, stderr) =
            run(program.arg(command).arg("-m").arg(model()).args(["-p", "x", "--tokenizer"]).arg(&path));
        assert_eq!(code, 3, "{stderr}");
        assert!(stderr.contains(&format!("error: {}: not a tokenizer.json: EOF", path.display())), "{stderr}");
        assert_eq!(stderr.matches("other.json").count(), 1, "{stderr}");
    }
}

#[test]
fn a_tokenizer_of_another_kind_exits_with_4() {
    let folder = tempfile::tempdir().unwrap();
    let json = std::fs::read_to_string(testdata().join("checkpoints/gemma3-bitnet/tokenizer.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
    json["normalizer"] = serde_json::json!({"type": "Lowercase"});
    let path = folder.path().join("lowercase.json");
    std::fs::write(&path, json.to_string()).unwrap();
    let tokenizer = ["-p", "x", "--tokenizer", path.to_str().unwrap()];
    let file = folder.path().join("inside.gguf");
    let edit = converter::edit::EditOptions {
        file: model(),
        set: vec![format!("tokenizer.huggingface.json=str:{json}").parse().unwrap()],
        delete: Vec::new(),
        outfile: file.clone(),
    };
    converter::edit::edit(&edit, &mut ()).unwrap();
    for command in ["tokenize", "embed"] {
        for (arguments, named) in [(&tokenizer[..], "lowercase.json"), (&["-p", "x"], "inside.gguf")] {
            let gguf = if named == "inside.gguf" { file.clone() } else { model() };
            let (code, stdout, stderr) = run(program().arg(command).arg("-m").arg(gguf).args(arguments));
            assert_eq!((code, stdout.as_str()), (4, ""), "{stderr}");
            let error = stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
            assert!(error.contains(named) && error.contains("\"Lowercase\", which is not supported"), "{error}");
        }
    }
}

/// Both commands would take the ids of one model to the rows of another.
#[test]
fn a_tokenizer_of_another_model_is_refused_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let json = testdata().join("checkpoints/qwen3-bitnet/tokenizer.json");
    let inside = folder.path().join("inside.gguf");
    let edit = converter::edit::EditOptions {
        file: model(),
        set: vec![
            format!("tokenizer.huggingface.json=str:{}", std::fs::read_to_string(&json).unwrap()).parse().unwrap(),
        ],
        delete: Vec::new(),
        outfile: inside.clone(),
    };
    converter::edit::edit(&edit, &mut ()).unwrap();
    for command in ["tokenize", "embed"] {
        let given = run(program().args([command, "-p", "x", "-m"]).arg(model()).arg("--tokenizer").arg(&json));
        let inside = run(program().args([command, "-p", "x", "-m"]).arg(&inside));
        for ((code, stdout, stderr), named) in [
            (given, &["qwen3-bitnet/tokenizer.json: its"][..]),
            (inside, &["inside.gguf: \"tokenizer.huggingface.json\""]),
        ] {
            assert_eq!((code, stdout.as_str()), (3, ""), "{stderr}");
            for word in named.iter().chain(&["token 0 is \"!\"", "\"tokenizer.ggml.tokens\"", "\"<pad>\""]) {
                assert!(stderr.contains(word), "{word}: {stderr}");
            }
        }
    }
}

/// A `tokenizer.json` in the file is enough for ids, but the pieces come from the file's list.
#[test]
fn a_token_that_is_not_utf8_is_said_to_be_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latin1.gguf");
    let json = std::fs::read_to_string(testdata().join("checkpoints/gemma3-bitnet/tokenizer.json")).unwrap();
    let edit = converter::edit::EditOptions {
        file: model(),
        set: vec![format!("tokenizer.huggingface.json=str:{json}").parse().unwrap()],
        delete: Vec::new(),
        outfile: path.clone(),
    };
    converter::edit::edit(&edit, &mut ()).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|window| window == b"<pad>").unwrap();
    bytes[at] = 0xff;
    std::fs::write(&path, bytes).unwrap();
    for command in ["tokenize", "embed"] {
        let (code, _, stderr) = run(program().args([command, "-p", "x", "-m"]).arg(&path));
        assert_eq!(code, 3, "{stderr}");
        assert!(
            stderr.contains("latin1.gguf: ") && stderr.contains("\"tokenizer.ggml.tokens\" is not UTF-8"),
            "{stderr}"
        );
    }
}

#[test]
fn added_tokens_beyond_the_table_are_text_for_a_tokenizer_given_by_flag() {
    let folder = tempfile::tempdir().unwrap();
    let json = std::fs::read_to_string(testdata().join("checkpoints/gemma3-bitnet/tokenizer.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let mut token = json["added_tokens"][4].clone();
    token["id"] = 768.into();
    token["content"] = "<image_soft_token>".into();
    json["added_tokens"].as_array_mut().unwrap().push(token);
    json["model"]["vocab"]["<image_soft_token>"] = 768.into();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    let run_both = |command: &str, flags: &[&str]| {
        let own = run(program().args([command, "-p", "a<image_soft_token>b", "-m"]).arg(model()).args(flags));
        let given = run(program()
            .args([command, "-p", "a<image_soft_token>b", "-m"])
            .arg(model())
            .args(flags)
            .arg("--tokenizer")
            .arg(&path));
        assert_eq!((given.0, &given.1), (0, &own.1), "{}", given.2);
        own.1
    };
    assert!(!run_both("tokenize", &["--json"]).contains("768"));
    run_both("embed", &["--embd-output-format", "array"]);
    // Without a model nothing says how many rows there are.
    let (code, alone, _) =
        run(program().args(["tokenize", "--json", "-p", "<image_soft_token>", "--tokenizer"]).arg(&path));
    assert!(code == 0 && alone.contains("768"), "{alone}");
}

#[test]
fn info_describes_models_and_other_files() {
    let (code, stdout, _) = run(program().arg("info").arg(model()));
    assert_eq!(code, 0);
    for expected in ["general.architecture", "gemma3", "blk.0.attn_q.weight", "I2_S", "BitNet", "cpu: has"] {
        assert!(stdout.contains(expected), "{expected}: {stdout}");
    }
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.gguf");
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend([0; 16]);
    std::fs::write(&empty, bytes).unwrap();
    let (code, stdout, stderr) = run(program().arg("info").arg(&empty));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("would refuse"), "{stdout}");
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [
        vec!["embed"],
        vec!["embed", "-p", "x", "--pooling", "max"],
        vec!["embed", "-p", "x", "-t", "0"],
        vec!["embed", "-p", "x", "--embd-normalize", "-2"],
        vec!["embed", "-p", "x", "--override-kv", "no-equals-sign"],
        vec!["embed", "-p", "x", "--override-kv", "qwen3.context_lenght=int:5"],
        vec!["embed", "-p", "x", "--override-kv", "a.b=int:5", "--override-kv", "a.b=int:6"],
        vec!["embed", "-p", "x", "-t", "60000"],
        vec!["embed", "-p", "x", "--max-tokens", "0"],
        vec!["embed", "-p", "x", "--isa", "sse9"],
        vec!["frobnicate"],
        vec![],
    ] {
        let (code, stdout, stderr) = run(program().args(&arguments));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(!stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn an_empty_bitnet_isa_is_as_good_as_none() {
    for command in [vec!["embed", "-p", "x", "-m"], vec!["info"]] {
        let set_to = |level: &str| run(program().env("BITNET_ISA", level).args(&command).arg(model()));
        let (code, stdout, stderr) = set_to("");
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(stdout, run(program().env_remove("BITNET_ISA").args(&command).arg(model())).1);
        assert_eq!(set_to("sse9").0, 2);
    }
}

/// A refused file: exit 3 (or 4 for a model of another kind), one line that names the file, nothing on stdout.
fn assert_refused(file: &Path, code: i32, words: &[&str]) {
    let (found, stdout, stderr) = run(program().args(["embed", "-p", "x", "-m"]).arg(file));
    assert_eq!((found, stdout.as_str()), (code, ""), "{}: {stderr}", file.display());
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(file.file_name().unwrap().to_str().unwrap()), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word:?}: {stderr}");
    }
}

#[test]
fn damaged_and_foreign_files_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(model()).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    assert_refused(&write("empty.gguf", b""), 3, &[]);
    assert_refused(&write("text.gguf", b"not a model"), 3, &["GGUF"]);
    assert_refused(&write("half.gguf", &whole[..whole.len() / 2]), 3, &[]);
    assert_refused(&write("head.gguf", &whole[..100]), 3, &[]);
    let mut version = whole.clone();
    version[4] = 1;
    assert_refused(&write("version.gguf", &version), 3, &["version 1"]);
    let mut architecture = whole.clone();
    let at = architecture.windows(6).position(|window| window == b"gemma3").unwrap();
    architecture[at..at + 6].copy_from_slice(b"gemmaX");
    assert_refused(&write("architecture.gguf", &architecture), 4, &["gemmaX"]);
    let file = bitnet_embed::gguf::GgufFile::from_owner(whole.clone()).unwrap();
    let tensor = file.tensor("blk.1.ffn_up.weight").unwrap();
    let start = tensor.file_range().unwrap().start;
    let mut code = whole.clone();
    code[start + 5] |= 0xc0;
    assert_refused(&write("code.gguf", &code), 3, &["blk.1.ffn_up.weight", "3"]);
    let mut scale = whole.clone();
    let at = tensor.file_range().unwrap().end - 32;
    scale[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    assert_refused(&write("scale.gguf", &scale), 3, &["blk.1.ffn_up.weight", "NaN"]);
    assert_refused(folder.path(), 3, &[]);
    assert_refused(&folder.path().join("absent.gguf"), 3, &[]);
    let (info, _, stderr) = run(program().arg("info").arg(folder.path().join("code.gguf")));
    assert_eq!(info, 3);
    assert!(stderr.contains("blk.1.ffn_up.weight"), "{stderr}");
}

#[test]
fn a_file_may_be_read_instead_of_mapped() {
    let array = ["-p", "a text", "--embd-output-format", "array"];
    let (code, read, stderr) = embed(&[&array[..], &["--no-mmap"]].concat());
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(read, embed(&array).1);
}

/// What is given in the wrong place, and what to give instead.
#[test]
fn a_folder_where_a_file_is_expected_is_called_one() {
    let checkpoint = testdata().join("checkpoints/qwen3-bitnet");
    let (folder, file) = (checkpoint.as_os_str(), model());
    let gguf =
        "a folder, not a GGUF file; give the *.gguf file itself, or make one of a checkpoint's folder with `converter";
    let json = "it is a folder, not a regular file; give the file itself";
    let text = "it is a folder; give a text file with one text a line";
    for (arguments, part) in [
        (vec!["embed".as_ref(), "-p".as_ref(), "x".as_ref(), "-m".as_ref(), folder], gguf),
        (vec!["tokenize".as_ref(), "-p".as_ref(), "x".as_ref(), "-m".as_ref(), folder], gguf),
        (vec!["info".as_ref(), folder], gguf),
        (vec!["embed".as_ref(), "-m".as_ref(), file.as_os_str(), "-f".as_ref(), folder], text),
        (vec!["embed".as_ref(), "-p".as_ref(), "x".as_ref(), "--tokenizer".as_ref(), folder], json),
        (vec!["tokenize".as_ref(), "-p".as_ref(), "x".as_ref(), "--tokenizer".as_ref(), folder], json),
    ] {
        let (code, stdout, stderr) = run(program().args(&arguments));
        assert_eq!((code, stdout.as_str()), (3, ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(&checkpoint.display().to_string()) && stderr.contains(part), "{arguments:?}: {stderr}");
    }
}

#[test]
fn info_says_what_embed_would_say_of_the_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut bytes = std::fs::read(model()).unwrap();
    let key = b"tokenizer.ggml.eos_token_id";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    bytes[at..at + 4].copy_from_slice(&9999_u32.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let (code, stdout, stderr) = run(program().arg("info").arg(&path));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("`embed` would refuse this file: ") && stdout.contains("eos_token_id"), "{stdout}");
}

#[test]
fn any_part_of_a_model_stands_for_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = testdata().join("checkpoints/qwen3-bitnet");
    let mut options = converter::ConvertOptions::new(checkpoint, converter::Outtype::I2S);
    options.outfile = Some(folder.path().join("model.gguf"));
    options.split_max_size = Some(100_000);
    let first = converter::convert(&options, &mut ()).unwrap().outfile;
    let second = PathBuf::from(first.to_str().unwrap().replace("-00001-of", "-00002-of"));
    let info = |path: &Path| {
        let (code, stdout, stderr) = run(program().arg("info").arg(path));
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    let tokens = |path: &Path| run(program().args(["tokenize", "--json", "-p", "a text", "-m"]).arg(path));
    assert!(info(&second).contains("model: qwen3 with BitNet"), "{}", info(&second));
    assert_eq!(tokens(&second), tokens(&first));
    std::fs::remove_file(first).unwrap();
    let alone = info(&second);
    assert!(alone.contains("`embed` would refuse this file: ") && alone.contains("file 1 of the "), "{alone}");
    assert_eq!(tokens(&second).0, 3);
}
