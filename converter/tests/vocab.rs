//! The spellings of a tokenizer that mean the same, and the settings that mean something else.

mod common;

use bitnet_embed::gguf::GgufFile;
use bitnet_embed::tokenizer::Tokenizer;
use converter::vocab::{Vocab, VocabKind};
use serde_json::{Value, json};

fn vocab(name: &str, edit_tokenizer: impl FnOnce(&mut Value), edit_config: impl FnOnce(&mut Value)) -> Vocab {
    let read = |file: &str| -> Value {
        let bytes = std::fs::read(common::checkpoint(name).join(file)).expect("a file");
        serde_json::from_slice(&bytes).expect("JSON")
    };
    let (mut tokenizer, mut config) = (read("tokenizer.json"), read("tokenizer_config.json"));
    edit_tokenizer(&mut tokenizer);
    edit_config(&mut config);
    let (tokenizer, config) = (tokenizer.to_string(), config.to_string());
    Vocab::from_json(tokenizer.as_bytes(), Some(config.as_bytes()), 768).expect("a vocabulary")
}

fn plain(name: &str) -> Vocab {
    vocab(name, |_| {}, |_| {})
}

#[test]
fn merges_may_be_strings() {
    let join = |tokenizer: &mut Value| {
        for merge in tokenizer["model"]["merges"].as_array_mut().expect("merges") {
            *merge = json!(format!("{} {}", merge[0].as_str().expect("left"), merge[1].as_str().expect("right")));
        }
    };
    assert_eq!(vocab("qwen3-std", join, |_| {}), plain("qwen3-std"));
    assert_eq!(vocab("gemma3-std", join, |_| {}), plain("gemma3-std"));
}

#[test]
fn a_sequence_of_one_normalizer_is_that_normalizer() {
    let wrap = |tokenizer: &mut Value| {
        let inner = tokenizer["normalizer"].take();
        tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": [inner]});
    };
    assert_eq!(vocab("qwen3-std", wrap, |_| {}), plain("qwen3-std"));
    assert_eq!(vocab("gemma3-std", wrap, |_| {}), plain("gemma3-std"));
}

#[test]
fn the_pattern_may_spell_its_cases_out() {
    let spell = |tokenizer: &mut Value| {
        let pattern = &mut tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
        let short = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
        let long = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
        *pattern = json!(pattern.as_str().expect("a pattern").replace(short, long));
    };
    assert_eq!(vocab("qwen3-std", spell, |_| {}), plain("qwen3-std"));
}

#[test]
fn special_tokens_may_be_objects() {
    let spell = |config: &mut Value| config["pad_token"] = json!({"content": "<|endoftext|>", "special": true});
    assert_eq!(vocab("qwen3-std", |_| {}, spell), plain("qwen3-std"));
}

#[test]
fn the_template_says_what_surrounds_a_text() {
    let qwen = plain("qwen3-std");
    assert_eq!((qwen.kind, qwen.add_bos, qwen.add_eos, qwen.eos), (VocabKind::Gpt2, false, true, Some(760)));
    // Without a template nothing is appended, and the end is what the configuration calls so.
    let bare = vocab("qwen3-std", |tokenizer| tokenizer["post_processor"] = Value::Null, |_| {});
    assert_eq!((bare.add_eos, bare.eos), (false, Some(762)));
}

#[test]
fn gemmas_flags_replace_the_template_and_this_is_noted() {
    let gemma = plain("gemma3-std");
    assert_eq!((gemma.add_bos, gemma.add_eos, gemma.notes.len()), (true, true, 0));
    let flagged = vocab("gemma3-std", |_| {}, |config| config["add_eos_token"] = json!(false));
    assert_eq!((flagged.add_bos, flagged.add_eos, flagged.eos), (true, false, Some(1)));
    assert!(flagged.notes[0].contains("add_eos_token"), "{:?}", flagged.notes);
    // Other classes run tokenizer.json as it is.
    let qwen = vocab("qwen3-std", |_| {}, |config| config["add_bos_token"] = json!(true));
    assert!(!qwen.add_bos);
    assert!(qwen.notes[0].contains("ignored"), "{:?}", qwen.notes);
}

/// The strings of the token fixtures.
fn texts() -> Vec<String> {
    let bytes = std::fs::read(common::workspace().join("testdata/tokens/gemma.json")).expect("a fixture");
    let fixture: Value = serde_json::from_slice(&bytes).expect("JSON");
    let list = fixture.as_array().or_else(|| fixture["texts"].as_array()).expect("a list");
    list.iter().map(|case| case["text"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn merges_that_scores_do_not_give_back_are_kept_whole() {
    type Edit = fn(&mut Vec<Value>);
    let edits: [(Edit, bool); 3] = [
        (|_| {}, false),
        // One way to make a token is gone; a reader of scores would still take it.
        (|merges| drop(merges.remove(merges.iter().rposition(|m| m[1].as_str().unwrap().len() > 1).unwrap())), true),
        (|merges| merges.reverse(), true),
    ];
    for (edit, whole) in edits {
        let copy = common::Copy::of("gemma3-std");
        copy.edit_json("tokenizer.json", |tokenizer| edit(tokenizer["model"]["merges"].as_array_mut().unwrap()));
        common::converter(&copy.dir, &["--outtype", "f16", "--outfile"]).arg(copy.output()).assert().success();
        let file = GgufFile::read(copy.output()).expect("a valid file");
        assert_eq!(file.metadata().value("tokenizer.huggingface.json").is_some(), whole);
        let ours = Tokenizer::from_gguf(file.metadata()).expect("a tokenizer");
        let theirs = Tokenizer::from_file(copy.dir.join("tokenizer.json")).expect("a tokenizer");
        for text in texts() {
            assert_eq!(ours.encode(&text).expect("ids"), theirs.encode(&text).expect("ids"), "{text:?}");
        }
    }
}
