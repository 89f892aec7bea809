//! Which vocabularies in a GGUF file are taken, and from which keys.

mod support;

use bitnet_embed::config::Overrides;
use bitnet_embed::gguf::{GgufFile, GgufWriter, OwnedArray, OwnedValue};
use bitnet_embed::tokenizer::{Tokenizer, TokenizerError};
use support::testdata;

fn fixture(model: &str) -> GgufFile<Vec<u8>> {
    GgufFile::read(testdata().join(format!("gguf/{model}.i2_s.gguf"))).unwrap()
}

/// The metadata of a fixture without some of its keys.
fn without(model: &str, dropped: &[&str]) -> GgufFile<Vec<u8>> {
    let file = fixture(model);
    let mut writer = GgufWriter::new();
    for key in file.metadata().keys().filter(|key| !dropped.contains(key)) {
        writer.metadata(key, file.metadata().value(key).unwrap().into_owned()).unwrap();
    }
    GgufFile::from_owner(writer.write_to(Vec::new()).unwrap().finish().unwrap()).unwrap()
}

fn message(file: &GgufFile<Vec<u8>>, key: &str, value: impl Into<OwnedValue>) -> String {
    let mut overrides = Overrides::default();
    overrides.push(key, value);
    let metadata = file.metadata().with_overrides(overrides.as_slice());
    Tokenizer::from_gguf(metadata).unwrap_err().to_string()
}

/// The `tokenizer.json` that a fixture was made from.
fn tokenizer_json(model: &str) -> serde_json::Value {
    support::json(testdata().join(format!("checkpoints/{model}/tokenizer.json")))
}

#[test]
fn a_whole_tokenizer_json_comes_first() {
    let file = fixture("gemma3-bitnet");
    // Without the tokens around a text, so that its ids tell which one was read.
    let mut json = tokenizer_json("gemma3-bitnet");
    json["post_processor"] = serde_json::Value::Null;
    let mut overrides = Overrides::default();
    overrides.push("tokenizer.huggingface.json", json.to_string());
    let tokenizer = Tokenizer::from_gguf(file.metadata().with_overrides(overrides.as_slice())).unwrap();
    assert!(tokenizer.encode("").unwrap().is_empty());
    assert_eq!(Tokenizer::from_gguf(file.metadata()).unwrap().encode("").unwrap(), [2, 1]);
    let message = message(&file, "tokenizer.huggingface.json", "{}");
    assert!(message.starts_with("\"tokenizer.huggingface.json\": not a tokenizer.json: missing field"), "{message}");
}

/// The vectors would be wrong without a sign of it.
#[test]
fn a_tokenizer_json_of_another_model_is_refused() {
    let (qwen, json) = (fixture("qwen3-bitnet"), tokenizer_json("gemma3-bitnet"));
    let expected =
        "its token 0 is \"<pad>\", but \"tokenizer.ggml.tokens\" of the model has \"!\" there: one of the two";
    let found = message(&qwen, "tokenizer.huggingface.json", json.to_string());
    assert!(found.starts_with(&format!("\"tokenizer.huggingface.json\": {expected}")), "{found}");
    assert!(found.ends_with(
        "take the tokenizer.json of the checkpoint that the model was made from, or convert that checkpoint again"
    ));
    let path = testdata().join("checkpoints/gemma3-bitnet/tokenizer.json");
    let found = Tokenizer::from_file_for_gguf(&path, 768, qwen.metadata()).unwrap_err().to_string();
    assert!(found.starts_with(&format!("{}: {expected}", path.display())), "{found}");
    // Two tokens of one model that changed places are enough.
    let mut json = tokenizer_json("qwen3-bitnet");
    (json["model"]["vocab"]["!"], json["model"]["vocab"]["A"]) = (json["model"]["vocab"]["A"].clone(), 0.into());
    let found = message(&qwen, "tokenizer.huggingface.json", json.to_string());
    assert!(found.contains("its token 0 is \"A\", but ") && found.contains("\"!\" there"), "{found}");
}

#[test]
fn rows_without_a_token_and_respelled_spaces_are_no_contradiction() {
    for model in ["qwen3-bitnet", "gemma3-bitnet"] {
        let file = fixture(model);
        let tokens = file.metadata().array("tokenizer.ggml.tokens").unwrap().unwrap();
        let mut tokens: Vec<String> =
            tokens.strings().unwrap().map(|token| token.unwrap().replace('\u{2581}', " ")).collect();
        tokens.push(format!("[PAD{}]", tokens.len()));
        let mut overrides = Overrides::default();
        overrides.push("tokenizer.ggml.tokens", OwnedArray::strings(&tokens));
        let metadata = file.metadata().with_overrides(overrides.as_slice());
        let path = testdata().join(format!("checkpoints/{model}/tokenizer.json"));
        let tokenizer = Tokenizer::from_file_for_gguf(path, tokens.len(), metadata).unwrap();
        assert_eq!(
            tokenizer.encode("a  b").unwrap(),
            Tokenizer::from_gguf(file.metadata()).unwrap().encode("a  b").unwrap()
        );
    }
}

#[test]
fn every_key_that_is_needed_is_missed_by_name() {
    for (model, keys) in [
        ("qwen3-bitnet", &["model", "pre", "tokens", "token_type", "merges", "eos_token_id"][..]),
        ("gemma3-bitnet", &["model", "tokens", "token_type", "scores", "eos_token_id", "bos_token_id"]),
    ] {
        for key in keys {
            let key = format!("tokenizer.ggml.{key}");
            let error = Tokenizer::from_gguf(without(model, &[&key]).metadata()).unwrap_err();
            assert!(matches!(error, TokenizerError::MissingKey { key: missed } if missed == key), "{key}: {error}");
        }
    }
}

#[test]
fn keys_that_may_be_absent_may_be_absent() {
    let bare = ["tokenizer.ggml.pre", "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.add_sep_token"];
    let file = without("gemma3-bitnet", &bare);
    assert_eq!(Tokenizer::from_gguf(file.metadata()).unwrap().encode("").unwrap(), [2, 1]);
    let file = without("gemma3-bitnet", &["tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"]);
    assert_eq!(Tokenizer::from_gguf(file.metadata()).unwrap().encode("").unwrap().len(), 0);
}

#[test]
fn other_kinds_of_vocabulary_are_refused_by_name() {
    let (qwen, gemma) = (fixture("qwen3-bitnet"), fixture("gemma3-bitnet"));
    let ggml = |key: &str| format!("tokenizer.ggml.{key}");
    for (file, key, value, found) in [
        (&qwen, "model", OwnedValue::from("bert"), "\"bert\" is not supported (supported: gpt2, llama)"),
        (&qwen, "pre", "llama-bpe".into(), "\"llama-bpe\" is not supported (supported: qwen2)"),
        (&gemma, "pre", "qwen2".into(), "\"qwen2\" is not supported (supported: default)"),
        (&gemma, "add_space_prefix", true.into(), "true is not supported (supported: false)"),
        (&qwen, "add_sep_token", true.into(), "true is not supported (supported: false)"),
    ] {
        assert_eq!(message(file, &ggml(key), value), format!("{:?} = {found}", ggml(key)));
    }
}

#[test]
fn values_of_other_types_are_refused() {
    let file = fixture("qwen3-bitnet");
    for (key, value) in [
        ("model", OwnedValue::from(1u32)),
        ("tokens", "x".into()),
        ("tokens", OwnedArray::from(&[1u32][..]).into()),
        ("token_type", OwnedArray::from(&[1f32][..]).into()),
        ("merges", OwnedArray::from(&[1u8][..]).into()),
        ("eos_token_id", (-1i32).into()),
        ("add_eos_token", 1u32.into()),
    ] {
        let key = format!("tokenizer.ggml.{key}");
        assert!(message(&file, &key, value).contains(&key), "{key}");
    }
}

#[test]
fn a_tokenizer_json_refuses_whitespace_that_its_regex_engine_would_get_wrong() {
    let path = testdata().join("checkpoints/qwen3-bitnet/tokenizer.json");
    let (library, rebuilt) =
        (Tokenizer::from_file(path).unwrap(), Tokenizer::from_gguf(fixture("qwen3-bitnet").metadata()).unwrap());
    let text = |count| format!("a{}b", " ".repeat(count));
    // Not `assert_eq!`: it would print a quarter of a million ids.
    assert!(library.encode(&text(1 << 18)).unwrap() == rebuilt.encode(&text(1 << 18)).unwrap());
    for result in
        [library.encode(&text((1 << 18) + 1)), library.encode_truncated(&text(1 << 20), 10).map(|encoded| encoded.ids)]
    {
        let error = result.map(|ids| ids.len()).unwrap_err();
        assert!(matches!(error, TokenizerError::LongWhitespace { chars: 262_145, .. }), "{error}");
    }
    // Without a regex there is nothing to get wrong.
    let gemma = Tokenizer::from_file(testdata().join("checkpoints/gemma3-bitnet/tokenizer.json")).unwrap();
    let rebuilt = Tokenizer::from_gguf(fixture("gemma3-bitnet").metadata()).unwrap();
    assert!(gemma.encode(&text(1 << 19)).unwrap() == rebuilt.encode(&text(1 << 19)).unwrap());
}
