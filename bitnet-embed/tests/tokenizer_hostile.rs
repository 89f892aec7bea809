//! What a `tokenizer.json` may ask for: everything else is refused by name, and nothing makes the library behind it
//! panic, take memory without bound, or give ids that are not there.

mod support;

use bitnet_embed::tokenizer::{Tokenizer, TokenizerError};
use serde_json::{Value, json};
use support::testdata;

const QWEN: &str = "qwen3-bitnet";
const GEMMA: &str = "gemma3-bitnet";

fn document(model: &str) -> Value {
    support::json(testdata().join("checkpoints").join(model).join("tokenizer.json"))
}

fn load(document: &Value) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_json_bytes(document.to_string().as_bytes())
}

/// The document with the value at a JSON pointer replaced; where there is none, it is put in.
fn changed(model: &str, pointer: &str, value: Value) -> Value {
    let mut document = document(model);
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match document.pointer_mut(parent).unwrap() {
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        parent => parent[key] = value,
    }
    document
}

/// Asserts the whole message for a document with one value replaced.
fn assert_refused(model: &str, pointer: &str, value: Value, message: &str) {
    let found = load(&changed(model, pointer, value)).unwrap_err().to_string();
    assert!(found.starts_with(message), "{pointer}: {found:?} does not start with {message:?}");
}

#[test]
fn the_steps_of_the_library_that_no_model_uses_are_refused_by_name() {
    let precompiled = json!({"type": "Precompiled", "precompiled_charsmap": "AAAAAgAA"});
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    for (value, message) in [
        (precompiled.clone(), "normalizer.type is \"Precompiled\", which is not supported (supported: null, NFC, "),
        (
            json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, precompiled]}),
            "normalizer.normalizers[1].type is \"Precompiled\", ",
        ),
        (replace(json!({"String": ""}), "x"), "normalizer.pattern is {\"String\":\"\"}, "),
        (replace(json!({"Regex": "(a*)*b"}), "x"), "normalizer.pattern is {\"Regex\":\"(a*)*b\"}, "),
        (replace(json!({"String": " "}), "xx"), "normalizer.content is \"xx\", "),
        (replace(Value::Null, "x"), "normalizer.pattern is null, "),
        (json!({"type": "Lowercase"}), "normalizer.type is \"Lowercase\", "),
        (json!({"type": "Prepend", "prepend": ""}), "normalizer.type is \"Prepend\", "),
        (json!({"type": 5}), "normalizer.type is 5, "),
        (json!([]), "normalizer is [], "),
        (json!("NFC"), "normalizer is \"NFC\", "),
        (json!({"normalizers": []}), "normalizer is {\"normalizers\":[]}, "),
        (json!({"type": "Sequence"}), "normalizer.normalizers is null, "),
        (json!({"type": "Sequence", "normalizers": vec![json!({"type": "NFC"}); 17]}), "normalizer.normalizers is [{"),
        (
            json!({"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": []}]}),
            "normalizer.normalizers[0].type is \"Sequence\", ",
        ),
    ] {
        assert_refused(GEMMA, "/normalizer", value.clone(), message);
        assert_refused(QWEN, "/normalizer", value, message);
    }
    let split = |pattern: Value| json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false});
    for (value, message) in [
        (json!({"type": "FixedLength", "length": 0}), "pre_tokenizer.type is \"FixedLength\", "),
        (
            json!({"type": "Sequence", "pretokenizers": [{"type": "FixedLength", "length": 0}]}),
            "pre_tokenizer.pretokenizers[0].type is \"FixedLength\", ",
        ),
        (split(json!({"Regex": "(a*)*b"})), "pre_tokenizer.pattern is {\"Regex\":\"(a*)*b\"}, "),
        (split(json!({"String": ""})), "pre_tokenizer.pattern is {\"String\":\"\"}, "),
        (
            json!({"type": "Split", "pattern": {"String": " "}, "behavior": "Removes", "invert": false}),
            "pre_tokenizer.behavior is \"Removes\", ",
        ),
        (json!({"type": "Split", "pattern": {"String": " "}, "invert": true}), "pre_tokenizer.invert is true, "),
        (
            json!({"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}),
            "pre_tokenizer.add_prefix_space is true, ",
        ),
        (json!({"type": "ByteLevel", "add_prefix_space": false}), "pre_tokenizer.use_regex is null, "),
        (json!({"type": "Metaspace", "replacement": "_"}), "pre_tokenizer.type is \"Metaspace\", "),
        (json!(3), "pre_tokenizer is 3, "),
    ] {
        assert_refused(GEMMA, "/pre_tokenizer", value, message);
    }
}

#[test]
fn templates_that_add_what_is_not_there_are_refused() {
    let template = |single: Value, tokens: Value| json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": tokens});
    let (a, b) = (json!({"Sequence": {"id": "A", "type_id": 0}}), json!({"Sequence": {"id": "B", "type_id": 0}}));
    let x = json!({"SpecialToken": {"id": "x", "type_id": 0}});
    let ids = |ids: Value| json!({"x": {"id": "x", "ids": ids, "tokens": ["x"]}});
    let single = "post_processor.single";
    for (value, message) in [
        (template(json!([a, x]), json!({})), format!("{single}[1] is {{\"SpecialToken\"")),
        (template(json!([a, x]), ids(Value::Null)), format!("{single}[1] is {{\"SpecialToken\"")),
        (template(json!([b]), json!({})), format!("{single}[0] is {{\"Sequence\":{{\"id\":\"B\"")),
        (template(json!([a, a]), json!({})), format!("{single}[1] is {{\"Sequence\"")),
        (template(json!([x]), ids(json!([1]))), format!("{single} is [{{\"SpecialToken\"")),
        (template(json!([]), json!({})), format!("{single} is [], ")),
        (template(json!("$A"), json!({})), format!("{single} is \"$A\", ")),
        (template(json!([a, 3]), json!({})), format!("{single}[1] is 3, ")),
        (template(json!([a, x]), ids(json!(vec![1; 17]))), format!("{single} is [{{\"Sequence\"")),
        (template(json!(vec![a.clone(); 18]), json!({})), format!("{single} is [{{\"Sequence\"")),
        (
            template(json!([x, a]), ids(json!([1, 768]))),
            format!("{single}[0] adds the id 768, the ids of the tokens are below 768"),
        ),
        (template(json!([x, a]), ids(json!([-1]))), format!("{single}[0] adds the id -1, ")),
        (template(json!([x, a]), ids(json!([u64::MAX]))), format!("{single}[0] adds the id 18446744073709551615, ")),
        (json!({"type": "RobertaProcessing"}), "post_processor.type is \"RobertaProcessing\", ".into()),
        (json!({"type": "Sequence", "processors": [5]}), "post_processor.processors[0] is 5, ".into()),
        (
            json!({"type": "Sequence", "processors": [template(json!([a]), json!({})), template(json!([a]), json!({}))]}),
            "post_processor.processors[1].type is \"TemplateProcessing\", ".into(),
        ),
    ] {
        assert_refused(GEMMA, "/post_processor", value, &message);
    }
    let template = template(json!([x, a, x]), ids(json!([767, 5])));
    let tokenizer = load(&changed(GEMMA, "/post_processor", template)).unwrap();
    assert_eq!((tokenizer.special_count(), tokenizer.encode("").unwrap()), (4, vec![767, 5, 767, 5]));
    assert_eq!(tokenizer.encode_truncated("a a a a", 5).unwrap().ids.len(), 5);
}

#[test]
fn models_other_than_plain_bpe_are_refused_by_name() {
    for (key, value, message) in [
        ("dropout", json!(0.1), "model.dropout is 0.1, which is not supported (supported: null, 0.0)"),
        ("dropout", json!(1), "model.dropout is 1, "),
        ("dropout", json!("0"), "model.dropout is \"0\", "),
        ("continuing_subword_prefix", json!("##########"), "model.continuing_subword_prefix is \"##########\", "),
        ("end_of_word_suffix", json!("</w>"), "model.end_of_word_suffix is \"</w>\", "),
        ("unk_token", json!("no such token"), "model.unk_token is \"no such token\", "),
        ("unk_token", json!(3), "model.unk_token is 3, "),
        ("fuse_unk", json!("yes"), "model.fuse_unk is \"yes\", "),
        ("byte_fallback", json!(1), "model.byte_fallback is 1, "),
        ("ignore_merges", json!([]), "model.ignore_merges is [], "),
        ("type", json!("WordPiece"), "model.type is \"WordPiece\", which is not supported (supported: \"BPE\")"),
        ("type", json!(["BPE"]), "model.type is [\"BPE\"], "),
        ("vocab", Value::Null, "\"model.vocab\" is missing"),
        ("merges", Value::Null, "\"model.merges\" is missing"),
        ("vocab", json!([["a", 0.0]]), "not a tokenizer.json: model.vocab: invalid type: sequence, expected an object"),
        ("vocab", json!({"a": -1}), "not a tokenizer.json: model.vocab.a: invalid value"),
        ("vocab", json!({"<unk>": u32::MAX}), "the vocabulary has 4294967296 or more tokens"),
        // A merge that is longer than any token.
        ("merges", json!([["<unused0>", "<unused0>".repeat(100)]]), "merge 0 is \"<unused0> <unused0><unused0>"),
        ("merges", json!(["e r", "no such"]), "the tokenizers library: "),
        (
            "merges",
            json!(["no"]),
            "not a tokenizer.json: model.merges[0]: invalid value: string \"no\", expected a merge",
        ),
        ("merges", json!([["a"]]), "not a tokenizer.json: model.merges[0]: invalid length 1, expected a merge"),
        (
            "merges",
            json!([["a", "b", "c"]]),
            "not a tokenizer.json: model.merges[0]: invalid length 3, expected a merge",
        ),
    ] {
        assert_refused(GEMMA, &format!("/model/{key}"), value, message);
    }
    let unigram = json!({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]]});
    assert_refused(GEMMA, "/model", unigram, "model.type is \"Unigram\", ");
    assert_refused(GEMMA, "/version", json!("2.0"), "version is \"2.0\", ");
    let mut document = document(QWEN);
    document["model"]["vocab"].as_object_mut().unwrap().remove("a");
    document["model"]["merges"] = json!([]);
    let error = load(&document).unwrap_err();
    assert!(matches!(error, TokenizerError::MissingByte { byte: b'a' }), "{error}");
}

#[test]
fn two_merged_parts_longer_than_any_token_are_refused() {
    let mut document = document(GEMMA);
    let longest = document["model"]["vocab"].as_object().unwrap().keys().max_by_key(|token| token.len()).unwrap();
    document["model"]["merges"] = json!([[longest, longest]]);
    let error = load(&document).unwrap_err();
    assert!(matches!(error, TokenizerError::MergeToken { rank: 0, .. }), "{error}");
}

#[test]
fn added_tokens_have_the_ids_they_are_listed_with() {
    let token = |id: u32, content: &str, flag: &str| {
        let mut token = json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": false});
        token[flag] = true.into();
        token
    };
    for (added, message) in [
        (token(5, "<pad>", "special"), "added_tokens gives \"<pad>\" the id 5, vocabulary and order give it 0"),
        (
            token(u32::MAX, "new", "special"),
            "added_tokens gives \"new\" the id 4294967295, vocabulary and order give it 768",
        ),
        (token(3, "", "special"), "added_tokens gives \"\" the id 3, vocabulary and order give it none"),
        (token(768, "new", "lstrip"), "added_tokens \"new\" lstrip is true, "),
        (token(768, "new", "rstrip"), "added_tokens \"new\" rstrip is true, "),
        (token(768, "new", "single_word"), "added_tokens \"new\" single_word is true, "),
        (
            token(768, &"new".repeat(2 << 20), "special"),
            "the added tokens (control and user-defined) are 6291456 bytes",
        ),
    ] {
        assert_refused(GEMMA, "/added_tokens", json!([added]), message);
    }
    // A new one takes the next id, and the table needs a row for it.
    for flag in ["special", "normalized"] {
        let tokenizer = load(&changed(GEMMA, "/added_tokens", json!([token(768, "new one", flag)]))).unwrap();
        assert_eq!(tokenizer.id_count(), 769);
        assert_eq!(tokenizer.encode("new one").unwrap(), [2, 768, 1]);
    }
}

#[test]
fn steps_that_do_not_concern_the_ids_do_not_matter() {
    for (model, pointer, value) in [
        (QWEN, "/decoder", json!({"type": "NoSuchDecoder"})),
        (QWEN, "/truncation", json!({"max_length": 0, "stride": 7, "strategy": "LongestFirst"})),
        (QWEN, "/padding", json!({"strategy": {"Fixed": 1_000_000_000}, "pad_id": 4_000_000_000_u32})),
        (QWEN, "/model/dropout", json!(0.0)),
        (GEMMA, "/model/continuing_subword_prefix", json!("")),
        (GEMMA, "/normalizer", json!({"type": "Sequence", "normalizers": [document(GEMMA)["normalizer"]]})),
    ] {
        let (plain, other) = (load(&document(model)).unwrap(), load(&changed(model, pointer, value)).unwrap());
        let text = "The quick brown fox, 123 \u{1F600} <eos> e\u{301}";
        assert_eq!(other.encode(text).unwrap(), plain.encode(text).unwrap(), "{pointer}");
    }
}

#[test]
fn deep_and_cut_off_documents_are_errors() {
    let deep = |count: usize| {
        let (open, close) = (r#"{"type":"Sequence","normalizers":["#.repeat(count), "]}".repeat(count));
        format!(r#"{{"normalizer":{open}{close},"model":{{}}}}"#)
    };
    for json in [&deep(10), &deep(1000), &deep(100_000), "", "[", "null", "[[]]"] {
        assert!(Tokenizer::from_json_bytes(json.as_bytes()).is_err());
    }
    let whole = std::fs::read(testdata().join("checkpoints/gemma3-bitnet/tokenizer.json")).unwrap();
    for len in (0..whole.len()).step_by(997) {
        let error = Tokenizer::from_json_bytes(&whole[..len]).unwrap_err();
        assert!(matches!(error, TokenizerError::Json { .. }), "{len} bytes: {error}");
    }
}

#[test]
fn errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.json");
    let message = || Tokenizer::from_file(&path).unwrap_err().to_string();
    let name = path.display().to_string();
    assert!(message().starts_with(&format!("cannot read {name}: ")));
    for (json, problem) in [
        ("{", "not a tokenizer.json: EOF while parsing".to_owned()),
        (&changed(GEMMA, "/normalizer", json!({"type": "Lowercase"})).to_string(), "normalizer.type is ".to_owned()),
    ] {
        std::fs::write(&path, json).unwrap();
        let message = message();
        assert!(message.starts_with(&format!("{name}: {problem}")), "{message}");
    }
    std::fs::File::create(&path).unwrap().set_len((256 << 20) + 1).unwrap();
    assert_eq!(message(), format!("cannot read {name}: it is longer than 268435456 bytes, which is the limit"));
    let error = Tokenizer::from_file(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("it is a folder, not a regular file; give the file itself"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = Tokenizer::from_file(&pipe).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read {}: it is a device or pipe", pipe.display())), "{error}");
}
