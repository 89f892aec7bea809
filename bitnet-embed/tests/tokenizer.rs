//! Token ids against the goldens, and rebuilt tokenizers against the `tokenizers` library.

mod support;

use std::path::Path;

use bitnet_embed::gguf::GgufFile;
use bitnet_embed::tokenizer::{Encoded, MergeSource, TokenType, Tokenizer, TokenizerError, VocabArrays};
use support::{Random, Texts, extra_fixtures, json, testdata};

/// Asserts the ids of every string in a golden file.
fn assert_goldens(tokenizer: &Tokenizer, goldens: &Path) {
    let goldens = json(goldens);
    let cases = goldens.as_array().unwrap();
    assert!(cases.len() >= 150);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let ids: Vec<u32> = case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert!(ids.iter().all(|id| (*id as usize) < tokenizer.id_count()));
    }
}

fn rebuilt(gguf: &Path) -> Tokenizer {
    Tokenizer::from_gguf(GgufFile::open(gguf).unwrap().metadata()).unwrap()
}

const PAIRS: [(&str, &str); 2] = [("qwen3-bitnet", "qwen"), ("gemma3-bitnet", "gemma")];

#[test]
fn tokenizer_json_gives_the_golden_ids() {
    for (model, goldens) in PAIRS {
        let path = testdata().join("checkpoints").join(model).join("tokenizer.json");
        let tokenizer = Tokenizer::from_file(path).unwrap();
        assert_goldens(&tokenizer, &testdata().join(format!("tokens/{goldens}.json")));
    }
}

#[test]
fn a_tokenizer_rebuilt_from_a_gguf_gives_the_golden_ids() {
    for (model, goldens) in PAIRS {
        let tokenizer = rebuilt(&testdata().join(format!("gguf/{model}.i2_s.gguf")));
        assert_goldens(&tokenizer, &testdata().join(format!("tokens/{goldens}.json")));
    }
}

#[test]
fn cut_down_published_vocabularies_give_their_golden_ids() {
    let Some(fixtures) = extra_fixtures() else { return };
    let mut files = 0;
    for goldens in std::fs::read_dir(fixtures.join("tokens")).unwrap() {
        let goldens = goldens.unwrap().path();
        let model = goldens.file_stem().unwrap().to_str().unwrap();
        let tokenizer = Tokenizer::from_file(fixtures.join(model).join("tokenizer.json")).unwrap();
        assert_goldens(&tokenizer, &goldens);
        let gguf = fixtures.join(format!("gguf/{model}.i2_s.gguf"));
        // One of the models has no I2_S file.
        if gguf.exists() {
            assert_goldens(&rebuilt(&gguf), &goldens);
            assert_agreement(&fixtures.join(model), &gguf, 1000);
            files += 1;
        }
    }
    assert_eq!(files, 7);
}

/// Compares the rebuilt tokenizer with the library on random texts, whole and truncated.
fn assert_agreement(checkpoint: &Path, gguf: &Path, count: usize) {
    let library = Tokenizer::from_file(checkpoint.join("tokenizer.json")).unwrap();
    let file = GgufFile::open(gguf).unwrap();
    let rebuilt = Tokenizer::from_gguf(file.metadata()).unwrap();
    assert_eq!(library.special_count(), rebuilt.special_count());
    let arrays = VocabArrays::from_gguf(file.metadata()).unwrap();
    let added: Vec<&str> = arrays
        .tokens
        .iter()
        .zip(&arrays.token_types)
        .filter(|(_, kind)| matches!(kind, 3 | 4))
        .map(|(token, _)| *token)
        .collect();
    let spaced: Vec<String> = arrays.tokens.iter().map(|token| token.replace(['\u{2581}', 'Ġ'], " ")).collect();
    let words: Vec<&str> = spaced.iter().map(String::as_str).collect();
    let mut texts = Texts { random: Random(20), words: &words, added: &added };
    for _ in 0..count {
        let text = texts.next();
        let ids = library.encode(&text).unwrap();
        assert_eq!(rebuilt.encode(&text).unwrap(), ids, "{text:?}");
        let limit = rebuilt.special_count() + texts.random.below(ids.len() + 1);
        let cut = library.encode_truncated(&text, limit).unwrap();
        assert_eq!(rebuilt.encode_truncated(&text, limit).unwrap(), cut, "{text:?} cut to {limit}");
    }
}

#[test]
fn a_rebuilt_tokenizer_agrees_with_the_library_on_random_texts() {
    for (model, _) in PAIRS {
        let checkpoint = testdata().join("checkpoints").join(model);
        assert_agreement(&checkpoint, &testdata().join(format!("gguf/{model}.i2_s.gguf")), 6000);
    }
}

#[test]
#[ignore = "seconds; cargo test --release --workspace --test tokenizer -- --ignored"]
fn a_hundred_thousand_random_texts_have_the_librarys_ids() {
    for (model, _) in PAIRS {
        let checkpoint = testdata().join("checkpoints").join(model);
        assert_agreement(&checkpoint, &testdata().join(format!("gguf/{model}.i2_s.gguf")), 100_000);
    }
}

#[test]
fn truncation_keeps_the_tokens_around_the_text() {
    let tokenizer = rebuilt(&testdata().join("gguf/gemma3-bitnet.i2_s.gguf"));
    let text = "the quick brown fox ".repeat(50);
    let whole = tokenizer.encode(&text).unwrap();
    for limit in [2, 3, 10, whole.len() - 1] {
        let cut = tokenizer.encode_truncated(&text, limit).unwrap().ids;
        assert_eq!(cut.len(), limit);
        assert_eq!((cut[0], cut[limit - 1]), (2, 1));
        assert_eq!(cut[..limit - 1], whole[..limit - 1]);
    }
    assert_eq!(
        tokenizer.encode_truncated(&text, whole.len()).unwrap(),
        Encoded { ids: whole.clone(), truncated: false }
    );
    assert_eq!(tokenizer.encode_truncated(&text, usize::MAX).unwrap().ids, whole);
    let error = tokenizer.encode_truncated(&text, 1).unwrap_err();
    assert!(matches!(error, TokenizerError::LimitTooSmall { max_tokens: 1, special: 2 }), "{error}");
}

#[test]
fn a_megabyte_of_one_thing_takes_about_as_long_as_a_megabyte_of_text() {
    for (model, _) in PAIRS {
        let tokenizer = rebuilt(&testdata().join(format!("gguf/{model}.i2_s.gguf")));
        for unit in
            ["a", " ", "\n", "\r", "\u{301}", "'", "<", "<|", "\u{2581}", "中", "\t ", "1", "e\u{301}\u{323}", "\0"]
        {
            let text = unit.repeat((1 << 20) / unit.len());
            let start = std::time::Instant::now();
            assert!(tokenizer.encode(&text).unwrap().len() > 1000);
            // A quadratic step would take minutes. The bound leaves room for a machine that is busy.
            assert!(start.elapsed().as_secs() < 20, "{model} {unit:?}");
        }
    }
}

/// The arrays of a small vocabulary of either kind, with all it needs.
fn arrays(byte_level: bool) -> VocabArrays<'static> {
    let name = if byte_level { "qwen3-bitnet" } else { "gemma3-bitnet" };
    // Leaked: a few tests borrow it for as long as they run.
    let file = GgufFile::read(testdata().join(format!("gguf/{name}.i2_s.gguf"))).unwrap();
    VocabArrays::from_gguf(Box::leak(Box::new(file)).metadata()).unwrap()
}

/// Asserts that the arrays, once `spoil` has changed them, are refused with a message that has these words in it.
fn assert_refused(byte_level: bool, words: &str, spoil: impl Fn(&mut VocabArrays<'static>)) {
    let mut arrays = arrays(byte_level);
    spoil(&mut arrays);
    let message = Tokenizer::from_arrays(&arrays).unwrap_err().to_string();
    assert!(message.contains(words), "{message:?} has no {words:?}");
}

fn merges<'a, 'b>(arrays: &'b mut VocabArrays<'a>) -> &'b mut Vec<&'a str> {
    match &mut arrays.source {
        MergeSource::Merges(merges) => merges,
        MergeSource::Scores(_) => panic!("this vocabulary has no merges"),
    }
}

fn scores<'b>(arrays: &'b mut VocabArrays<'_>) -> &'b mut Vec<f32> {
    match &mut arrays.source {
        MergeSource::Scores(scores) => scores,
        MergeSource::Merges(_) => panic!("this vocabulary has no scores"),
    }
}

#[test]
fn arrays_that_do_not_fit_together_are_refused() {
    for kind in [true, false] {
        assert_refused(kind, "\"tokenizer.ggml.token_type\" has 767 entries, there are 768 tokens", |arrays| {
            arrays.token_types.pop();
        });
        assert_refused(kind, "token 5 has type 7, not 1 to 6", |arrays| arrays.token_types[5] = 7);
        assert_refused(kind, "token 0 has type -1", |arrays| arrays.token_types[0] = -1);
        assert_refused(kind, "\"tokenizer.ggml.eos_token_id\" = 768, there are 768 tokens", |a| a.eos = Some(768));
        assert_refused(kind, "\"tokenizer.ggml.bos_token_id\" = 4294967295", |a| a.bos = Some(u32::MAX));
        assert_refused(kind, "\"tokenizer.ggml.eos_token_id\" is missing", |arrays| arrays.eos = None);
    }
    assert_refused(true, "no token for byte 0x61", |arrays| {
        let at = arrays.tokens.iter().position(|token| *token == "a").unwrap();
        arrays.tokens[at] = "[removed]";
        arrays.token_types[at] = TokenType::Unused as i32;
    });
    assert_refused(false, "no token for byte 0xff", |arrays| {
        let at = arrays.tokens.iter().position(|token| *token == "<0xFF>").unwrap();
        arrays.tokens[at] = "<0xff>";
    });
}

#[test]
fn merges_and_scores_that_make_no_sense_are_refused() {
    for (merge, words) in [
        ("ab", "merge 3 is \"ab\", not two token strings"),
        ("a b c", "not two token strings"),
        (" b", "not two token strings"),
        ("a ", "not two token strings"),
        ("a 中", "not two token strings"),
        ("zqzq a", "\"zqzq\" is not a token"),
        ("a zqzq", "\"zqzq\" is not a token"),
        ("z q", "\"zq\" is not a token"),
    ] {
        assert_refused(true, words, |arrays| merges(arrays)[3] = merge);
    }
    assert_refused(false, "\"tokenizer.ggml.scores\" has 769 entries", |arrays| scores(arrays).push(0.0));
    assert_refused(false, "token 9 has score NaN", |arrays| scores(arrays)[9] = f32::NAN);
    assert_refused(false, "token 9 has score -inf", |arrays| scores(arrays)[9] = f32::NEG_INFINITY);
}

#[test]
fn spoiled_arrays_are_refused_or_give_ids_that_exist() {
    let mut random = Random(7);
    let (mut built, mut refused) = (0, 0);
    for round in 0..400 {
        let mut arrays = arrays(round % 2 == 0);
        let count = arrays.tokens.len();
        for _ in 0..random.below(40) {
            let (from, to) = (random.below(count), random.below(count));
            match random.below(4) {
                // Equal tokens, tokens of changed types, scores or merges in another order, special tokens anywhere.
                // Byte tokens mostly stay, without them every vocabulary would be refused.
                0 if arrays.token_types[to] != 6 && arrays.tokens[to].len() > 2 => {
                    arrays.tokens[to] = arrays.tokens[from]
                }
                1 if arrays.tokens[to].len() > 2 => arrays.token_types[to] = 1 + random.below(6) as i32,
                2 => match &mut arrays.source {
                    MergeSource::Merges(merges) => {
                        let len = merges.len();
                        merges.swap(from % len, to % len);
                        merges[from % len] = merges[random.below(len)];
                    }
                    MergeSource::Scores(scores) => scores[to] = random.pick(&[0.0, -0.0, 1e30, -1e30, -1000.0, -5.0]),
                },
                _ => (arrays.bos, arrays.add_bos) = (Some(to as u32), true),
            }
        }
        let Ok(tokenizer) = Tokenizer::from_arrays(&arrays) else {
            refused += 1;
            continue;
        };
        built += 1;
        let words: Vec<&str> = arrays.tokens.clone();
        let mut texts =
            Texts { random: Random(round), words: &words, added: &["<eos>", "<|im_end|>", "\u{2581}\u{2581}"] };
        for _ in 0..20 {
            let text = texts.next();
            let ids = tokenizer.encode(&text).unwrap();
            assert!(ids.iter().all(|id| (*id as usize) < tokenizer.id_count()), "round {round}: {text:?}");
            // What is known about whole tokens by now must not change anything.
            assert_eq!(tokenizer.encode(&text).unwrap(), ids, "round {round}: {text:?}");
        }
    }
    assert!(built > 50 && refused > 50, "{built} built, {refused} refused");
}

#[test]
fn special_tokens_are_added_only_when_the_file_says_so() {
    let mut arrays = arrays(false);
    (arrays.add_bos, arrays.add_eos) = (false, false);
    let bare = Tokenizer::from_arrays(&arrays).unwrap();
    assert_eq!((bare.special_count(), bare.encode("").unwrap()), (0, vec![]));
    (arrays.add_bos, arrays.add_eos) = (true, false);
    let tokenizer = Tokenizer::from_arrays(&arrays).unwrap();
    assert_eq!((tokenizer.special_count(), tokenizer.encode("").unwrap()), (1, vec![2]));
}

#[test]
fn runs_of_u2581_may_be_spelled_with_spaces() {
    let file = GgufFile::open(testdata().join("gguf/gemma3-bitnet.i2_s.gguf")).unwrap();
    let mut arrays = VocabArrays::from_gguf(file.metadata()).unwrap();
    let is_run = |(id, token): &(usize, &&str)| {
        arrays.token_types[*id] == TokenType::UserDefined as i32 && token.chars().all(|c| c == '\u{2581}')
    };
    let runs: Vec<(usize, &str)> =
        arrays.tokens.iter().enumerate().filter(is_run).map(|(id, run)| (id, *run)).collect();
    let spaces: Vec<String> = runs.iter().map(|(_, run)| run.replace('\u{2581}', " ")).collect();
    assert!(runs.len() > 1);
    for ((id, _), spaces) in runs.iter().zip(&spaces) {
        arrays.tokens[*id] = spaces;
    }
    let tokenizer = Tokenizer::from_arrays(&arrays).unwrap();
    for ((id, run), spaces) in runs.iter().zip(&spaces) {
        for text in [run, spaces.as_str()] {
            assert_eq!(tokenizer.encode(text).unwrap(), [2, *id as u32, 1], "{text:?}");
        }
    }
    // Where the other spelling is a token of its own, each stands for itself.
    let (two, three) = (runs[0].0, runs[1].0);
    arrays.tokens[three] = runs[0].1;
    let tokenizer = Tokenizer::from_arrays(&arrays).unwrap();
    assert_eq!(tokenizer.encode(&spaces[0]).unwrap(), [2, two as u32, 1]);
    assert_eq!(tokenizer.encode(runs[0].1).unwrap(), [2, three as u32, 1]);
}

#[test]
fn a_tokenizer_json_that_is_none_is_an_error() {
    for json in ["", "{}", "[1", "{\"model\": 3}"] {
        assert!(matches!(Tokenizer::from_json_bytes(json.as_bytes()), Err(TokenizerError::Json { .. })), "{json:?}");
    }
    assert!(matches!(Tokenizer::from_file("no/such/file"), Err(TokenizerError::Io { .. })));
}
