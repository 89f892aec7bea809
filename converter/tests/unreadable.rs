//! What no reader would accept, or what would change the vectors, is not written: tokenizers, and modules beside the
//! pooling.

mod common;

use common::{Copy, converter};
use serde_json::{Value, json};

const F16: &[&str] = &["--outtype", "f16"];
const REFUSED: i32 = 3;
const UNSUPPORTED: i32 = 4;

#[test]
fn the_other_modules_are_checked_whatever_the_pooling() {
    for pooling in [F16, &["--outtype", "f16", "--pooling", "last"]] {
        for kind in ["sentence_transformers.models.Dense", "x.WeightedLayerPooling", "evil.NotNormalize", "Normalize.x"]
        {
            let copy = Copy::of("qwen3-std");
            copy.edit_json("modules.json", |modules| modules[2]["type"] = json!(kind));
            copy.assert_refused(pooling, UNSUPPORTED, &["modules.json", kind, "Transformer, Pooling and Normalize"]);
        }
        for (modules, part) in [
            (json!(null), "null, not an array"),
            (json!({"0": {"type": "Dense"}}), "not an array"),
            (json!([3]), "\"type\" is null, not a string"),
            (json!([{"type": 3}]), "\"type\" is 3, not a string"),
            (json!([{"type": "Pooling"}]), "\"path\" is null, not a string"),
            (json!([{"type": "Pooling", "path": "../x"}]), "outside the checkpoint"),
        ] {
            let copy = Copy::of("qwen3-std");
            copy.write("modules.json", modules.to_string());
            copy.assert_refused(pooling, REFUSED, &["modules.json: ", part]);
        }
        let copy = Copy::of("qwen3-std");
        let twice = json!([{"type": "Pooling", "path": "1_Pooling"}, {"type": "Pooling", "path": "1_Pooling"}]);
        copy.write("modules.json", twice.to_string());
        copy.assert_refused(pooling, UNSUPPORTED, &["modules.json", "Pooling only once"]);
    }
}

#[test]
fn a_missing_pooling_says_what_is_missing_and_can_be_given() {
    let copy = Copy::of("qwen3-std");
    copy.write("modules.json", "[]");
    copy.assert_refused(F16, REFUSED, &["modules.json names no pooling module", "--pooling last|mean|cls"]);
    converter(&copy.dir, F16).args(["--pooling", "mean", "--outfile"]).arg(copy.output()).assert().success();
    copy.remove("modules.json");
    copy.assert_refused(F16, REFUSED, &[": no modules.json, so the pooling", "--pooling last|mean|cls"]);

    let copy = Copy::of("qwen3-std");
    copy.remove("1_Pooling/config.json");
    copy.assert_refused(F16, REFUSED, &["1_Pooling/config.json: no such file", "--pooling"]);
    converter(&copy.dir, F16).args(["--pooling", "last", "--outfile"]).arg(copy.output()).assert().success();
}

#[test]
fn another_pooling_than_the_checkpoints_is_said() {
    let copy = Copy::of("qwen3-std");
    let stderr = |pooling: &str| {
        let mut command = converter(&copy.dir, F16);
        let output = command.args(["--pooling", pooling, "--outfile"]).arg(copy.output()).output().expect("it runs");
        assert!(output.status.success());
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    assert!(stderr("cls").contains("--pooling replaces the pooling of the checkpoint, last"), "{}", stderr("cls"));
    assert!(!stderr("last").contains("--pooling"), "{}", stderr("last"));
}

#[test]
fn errors_of_the_pooling_module_name_its_file_and_key() {
    for (config, code, part) in [
        (json!({"pooling_mode_mean_tokens": 3}), REFUSED, "\"pooling_mode_mean_tokens\" is 3"),
        (json!({"pooling_mode_max_tokens": true}), UNSUPPORTED, "\"pooling_mode_max_tokens\""),
        (json!([]), REFUSED, "not an object"),
    ] {
        for pooling in [F16, &["--outtype", "f16", "--pooling", "last"]] {
            let copy = Copy::of("qwen3-std");
            copy.write("1_Pooling/config.json", config.to_string());
            copy.assert_refused(pooling, code, &["1_Pooling/config.json: ", part]);
        }
    }
}

/// The small files are read to a limit, and only where they are files.
#[cfg(unix)]
#[test]
fn pipes_devices_and_links_to_nothing_are_refused() {
    use std::os::unix::fs::symlink;
    let files = ["config.json", "modules.json", "1_Pooling/config.json", "tokenizer.json", "tokenizer_config.json"];
    for file in files {
        let copy = Copy::of("gemma3-std");
        copy.remove(file);
        assert!(std::process::Command::new("mkfifo").arg(copy.dir.join(file)).status().expect("mkfifo").success());
        copy.assert_refused(F16, REFUSED, &[file, "not a regular file"]);
        copy.remove(file);
        symlink("/dev/zero", copy.dir.join(file)).expect("a link");
        copy.assert_refused(F16, REFUSED, &[file, "not a regular file"]);
        copy.remove(file);
        symlink("../gone", copy.dir.join(file)).expect("a link");
        copy.assert_refused(F16, REFUSED, &[file, "a symbolic link to ../gone, which does not exist"]);
    }
    // Not absence either: the weights beside it may be those of another model.
    for file in ["model.safetensors.index.json", "model.safetensors"] {
        let copy = Copy::of("qwen3-std");
        copy.write("other.safetensors", copy.read("model.safetensors"));
        if file == "model.safetensors" {
            copy.remove(file);
        }
        symlink("../gone", copy.dir.join(file)).expect("a link");
        copy.assert_refused(F16, REFUSED, &[&format!("{file}: "), "a symbolic link to ../gone"]);
    }
}

#[test]
fn errors_of_the_tokenizer_config_name_that_file_and_the_field() {
    for (field, value, part) in [
        ("pad_token", json!(3), "pad_token is 3, not a string or an object"),
        ("eos_token", json!({"text": "x"}), "eos_token is {\"text\":\"x\"}, not a string or an object"),
        ("add_bos_token", json!("yes"), "add_bos_token is \"yes\", not true or false"),
        ("tokenizer_class", json!([]), "tokenizer_class is [], not a string"),
        ("pad_token", json!("<nowhere>"), "pad_token: \"<nowhere>\" is not a token of the vocabulary"),
    ] {
        let copy = Copy::of("gemma3-std");
        copy.edit_json("tokenizer_config.json", |config| config[field] = value);
        copy.assert_refused(F16, REFUSED, &["tokenizer_config.json: ", part]);
    }
    let copy = Copy::of("gemma3-std");
    copy.edit_json("tokenizer_config.json", |config| {
        config["pad_token"] = json!({"content": "<pad>", "lstrip": false})
    });
    converter(&copy.dir, F16).arg("--outfile").arg(copy.output()).assert().success();
}

#[test]
fn a_vocabulary_that_no_reader_accepts_is_not_written() {
    type Edit = fn(&mut Value);
    let cases: [(&str, Edit, &str); 3] = [
        (
            "gemma3-std",
            |t| {
                let vocab = t["model"]["vocab"].as_object_mut().expect("an object");
                let id = vocab.remove("<0x41>").expect("a byte token");
                vocab.insert("<0xno>".to_owned(), id);
            },
            "no token for byte 0x41",
        ),
        (
            "qwen3-std",
            |t| {
                let vocab = t["model"]["vocab"].as_object_mut().expect("an object");
                let id = vocab.remove("\u{100}").expect("a byte token");
                vocab.insert("zz top".to_owned(), id);
                let merges = t["model"]["merges"].as_array_mut().expect("an array");
                merges.retain(|merge| !merge.to_string().contains('\u{100}'));
            },
            "no token for byte 0x00",
        ),
        ("qwen3-std", |t| t["added_tokens"][3]["content"] = json!("long".repeat(1 << 15)), "bytes long"),
    ];
    for (name, edit, part) in cases {
        let copy = Copy::of(name);
        copy.edit_json("tokenizer.json", edit);
        copy.assert_refused(F16, REFUSED, &["tokenizer.json: ", part]);
    }
}

#[test]
fn a_whole_tokenizer_with_ids_beyond_the_table_is_not_stored() {
    let copy = Copy::of("gemma3-std");
    copy.edit_json("tokenizer.json", |tokenizer| {
        let mut token = tokenizer["added_tokens"][4].clone();
        token["id"] = json!(768);
        token["content"] = json!("<image_soft_token>");
        tokenizer["added_tokens"].as_array_mut().expect("an array").push(token);
        // Not that token: a text could reach this one.
        tokenizer["model"]["vocab"]["another"] = json!(768);
    });
    converter(&copy.dir, F16).arg("--outfile").arg(copy.output()).assert().success();
    let args = ["--outtype", "f16", "--embed-tokenizer"];
    copy.assert_refused(&args, REFUSED, &["tokenizer.json: ", "769 ids", "768 rows", "--embed-tokenizer"]);
}

#[test]
fn a_template_at_odds_with_the_vocabulary_is_refused() {
    let copy = Copy::of("gemma3-std");
    let path = |tokenizer: &mut Value, ids: Value| {
        let tokens = tokenizer["post_processor"]["special_tokens"].as_object_mut().expect("an object");
        tokens.values_mut().for_each(|token| token["ids"] = ids.clone());
    };
    for ids in [json!([7]), json!([]), json!([2, 2]), json!("2"), json!(null)] {
        copy.edit_json("tokenizer.json", |tokenizer| path(tokenizer, ids.clone()));
        let parts = ["tokenizer.json: post_processor.special_tokens: ", &format!("has the ids {ids}")];
        copy.assert_refused(F16, REFUSED, &parts);
    }
}
