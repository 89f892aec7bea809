//! What a user of [`Embedder`] relies on: the same bits in any company, batches, limits, threads, refusals.

use crate::common::{bits, testdata};
use bitnet_embed::config::Overrides;
use bitnet_embed::embedder::Receiver;
use bitnet_embed::output::Normalization;
use bitnet_embed::{BackendKind, EmbedError, Embedder};
use burn_i2s::isa::Isa;
use burn_i2s::pooling::Pooling;
use proptest::prelude::*;

fn model(name: &str) -> std::path::PathBuf {
    testdata().join("gguf").join(format!("{name}.i2_s.gguf"))
}

const MODELS: [&str; 2] = ["qwen3-bitnet", "gemma3-bitnet"];

#[test]
fn an_embedder_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Embedder>();
    let embedder = Embedder::open(model("qwen3-bitnet")).unwrap();
    let texts: Vec<String> = (0..40).map(|n| format!("text number {n} {}", "word ".repeat(n % 7))).collect();
    let expected = bits(&embedder.embed(&texts).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(bits(&embedder.embed(&texts).unwrap()), expected));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_vector_has_the_same_bits_alone_and_in_any_batch_order_threads_and_isa(
        texts in prop::collection::vec("[a-zA-Z ,.äß你好\n]{0,90}", 1..12),
        order in any::<u64>(),
        threads in 1usize..6,
        budget in 1usize..200,
        level in any::<prop::sample::Index>(),
        which in any::<bool>(),
    ) {
        let file = model(MODELS[usize::from(which)]);
        let alone = Embedder::builder().threads(1).open(&file).unwrap();
        let alone: Vec<Vec<f32>> =
            texts.iter().map(|text| alone.embed(&[text]).unwrap().remove(0)).collect();
        let isa = Isa::available()[level.index(Isa::available().len())];
        let together = Embedder::builder().threads(threads).token_budget(budget).isa(isa).open(&file).unwrap();
        let mut shuffled: Vec<usize> = (0..texts.len()).collect();
        shuffled.sort_by_key(|&index| (order.rotate_left(index as u32 * 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let vectors = together.embed(&shuffled.iter().map(|&index| &texts[index]).collect::<Vec<_>>()).unwrap();
        for (vector, &index) in vectors.iter().zip(&shuffled) {
            prop_assert_eq!(bits(std::slice::from_ref(vector)), bits(std::slice::from_ref(&alone[index])));
        }
    }
}

#[test]
fn a_list_of_many_parts_gives_each_text_its_own_vector_in_its_place() {
    // With a budget of 8 tokens a part is about 512 bytes: these texts, one of them longer than a part, are some twenty.
    let mut texts: Vec<String> = (0..300).map(|n| format!("text {n} {}", "word ".repeat(n % 11))).collect();
    texts[123] = "a long text of many words ".repeat(40);
    texts[200].clear();
    for name in MODELS {
        let alone = Embedder::builder().threads(1).max_tokens(60).open(model(name)).unwrap();
        let expected: Vec<Vec<f32>> = texts.iter().map(|text| alone.embed(&[text]).unwrap().remove(0)).collect();
        let tokens: usize = texts.iter().map(|text| alone.tokenize(text).unwrap().len().min(60)).sum();
        let builder = || Embedder::builder().max_tokens(60).token_budget(8);
        for threads in [None, Some(1), Some(2), Some(5)] {
            let builder = threads.map_or_else(builder, |threads| builder().threads(threads));
            let (vectors, report) = builder.open(model(name)).unwrap().embed_with_report(&texts).unwrap();
            assert!(bits(&vectors) == bits(&expected), "{name}, threads: {threads:?}");
            assert_eq!((report.tokens, &report.truncated[..]), (tokens, &[123][..]), "{name}");
        }
    }
}

/// Takes parts until it has enough of them.
struct Parts {
    vectors: Vec<Vec<f32>>,
    computed: usize,
    parts: usize,
    enough: usize,
}

impl Receiver for Parts {
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn computed(&mut self, texts: usize) {
        self.computed += texts;
    }

    fn receive(&mut self, vectors: Vec<Vec<f32>>) -> Result<(), Self::Error> {
        self.vectors.extend(vectors);
        assert_eq!(self.computed, self.vectors.len(), "of a part that is received all texts were computed");
        self.parts += 1;
        if self.parts == self.enough { Err("enough".into()) } else { Ok(()) }
    }
}

#[test]
fn a_receiver_is_given_the_same_vectors_part_by_part_and_may_end_the_work() {
    let texts: Vec<String> = (0..200).map(|n| format!("text {n}")).collect();
    let embedder = Embedder::builder().token_budget(8).open(model("qwen3-bitnet")).unwrap();
    let (vectors, report) = embedder.embed_with_report(&texts).unwrap();
    let receiver = |enough| Parts { vectors: Vec::new(), computed: 0, parts: 0, enough };
    let mut all = receiver(usize::MAX);
    assert_eq!(embedder.embed_into(&texts, &mut all).unwrap(), report);
    assert!(bits(&all.vectors) == bits(&vectors));
    assert!(all.parts > 2, "{}", all.parts);
    let mut some = receiver(2);
    assert_eq!(embedder.embed_into(&texts, &mut some).unwrap_err().to_string(), "enough");
    assert_eq!(some.parts, 2);
    assert!(bits(&some.vectors) == bits(&vectors[..some.vectors.len()]));
}

#[test]
fn the_first_text_that_is_refused_is_named_wherever_it_is() {
    // Without its post-processor this tokenizer has no tokens for an empty text; and it refuses much whitespace.
    let json = testdata().join("checkpoints/qwen3-bitnet/tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    json["post_processor"] = serde_json::Value::Null;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    let spaces = " ".repeat((1 << 18) + 1);
    for threads in [1, 3] {
        let builder = Embedder::builder().threads(threads).token_budget(8).tokenizer(&path);
        let embedder = builder.open(model("qwen3-bitnet")).unwrap();
        let embed = |bad: &[(usize, &str)]| {
            let mut texts = vec!["some words"; 150];
            bad.iter().for_each(|&(text, with)| texts[text] = with);
            embedder.embed(&texts).map(|vectors| vectors.len())
        };
        assert_eq!(embed(&[]).unwrap(), 150);
        for text in [0, 1, 75, 149] {
            assert!(matches!(embed(&[(text, "")]), Err(EmbedError::NoTokens { text: found }) if found == text));
            let error = embed(&[(text, &spaces)]).unwrap_err();
            assert!(matches!(error, EmbedError::Text { text: found, .. } if found == text), "{error}");
            assert!(error.to_string().starts_with(&format!("text {text}: ")), "{error}");
        }
        // The first of several, in one part or in two.
        assert!(matches!(embed(&[(90, ""), (91, &spaces)]), Err(EmbedError::NoTokens { text: 90 })));
        assert!(matches!(embed(&[(140, ""), (60, &spaces)]), Err(EmbedError::Text { text: 60, .. })));
    }
}

#[test]
fn many_texts_are_one_forward_per_token_budget() {
    let embedder = Embedder::builder().token_budget(64).open(model("qwen3-bitnet")).unwrap();
    let texts: Vec<String> = (0..50).map(|n| "ab ".repeat(n % 9)).collect();
    let lengths: Vec<usize> = texts.iter().map(|text| embedder.tokenize(text).unwrap().len()).collect();
    let (vectors, report) = embedder.embed_with_report(&texts).unwrap();
    assert_eq!(vectors.len(), 50);
    assert_eq!(report.tokens, lengths.iter().sum::<usize>());
    // Longest first, a batch is closed only when the next text does not fit: half full at worst.
    assert!(report.forwards >= report.tokens.div_ceil(64), "{report:?}");
    assert!(report.forwards <= 2 * report.tokens.div_ceil(64), "{report:?}");
    let one = Embedder::builder().token_budget(usize::MAX).open(model("qwen3-bitnet")).unwrap();
    assert_eq!(one.embed_with_report(&texts).unwrap().1.forwards, 1);
    assert_eq!(embedder.embed_with_report::<&str>(&[]).unwrap().1.forwards, 0);
}

#[test]
fn a_text_over_the_limit_is_cut_before_its_last_special_token_and_reported() {
    for name in MODELS {
        let whole = Embedder::open(model(name)).unwrap();
        let cut = Embedder::builder().max_tokens(8).open(model(name)).unwrap();
        let long = "one two three four five six seven eight nine ten".to_owned();
        let ids = whole.tokenize(&long).unwrap();
        let special = usize::from(name.starts_with("gemma"));
        assert!(ids.len() > 8);
        let mut kept = ids[..7].to_vec();
        kept.push(ids[ids.len() - 1]);
        let (vectors, report) = cut.embed_with_report(&["a", &long]).unwrap();
        assert_eq!(report.truncated, [1]);
        assert_eq!(bits(&vectors[1..]), bits(&whole.embed_ids(&[kept]).unwrap()), "{name} {special}");
    }
}

#[test]
fn pooling_and_normalisation_follow_the_options() {
    let text = ["some words to embed"];
    let file = model("qwen3-bitnet");
    let unit = Embedder::open(&file).unwrap().embed(&text).unwrap();
    let length = |vector: &[f32]| vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    assert!((length(&unit[0]) - 1.0).abs() < 1e-6);
    let raw = Embedder::builder().normalization(Normalization::None).open(&file).unwrap().embed(&text).unwrap();
    let scale = length(&raw[0]);
    assert!(raw[0].iter().zip(&unit[0]).all(|(raw, unit)| (f64::from(*raw) / scale - f64::from(*unit)).abs() < 1e-6));
    let mut seen = vec![unit[0].clone()];
    for pooling in [Pooling::Mean, Pooling::Cls] {
        let other = Embedder::builder().pooling(pooling).open(&file).unwrap().embed(&text).unwrap().remove(0);
        assert!(!seen.contains(&other), "{pooling:?}");
        seen.push(other);
    }
    // The same through the file's own key.
    let mut overrides = Overrides::default();
    overrides.push("qwen3.pooling_type", 1u32);
    let mean = Embedder::builder().overrides(overrides).open(&file).unwrap().embed(&text).unwrap();
    assert_eq!(bits(&mean), bits(&seen[1..2]));
}

#[test]
fn requests_that_make_no_sense_are_errors() {
    let file = model("qwen3-bitnet");
    let embedder = Embedder::open(&file).unwrap();
    let vocab_size = embedder.config().vocab_size;
    assert!(matches!(
        embedder.embed_ids(&[vec![1], vec![5, vocab_size as u32]]),
        Err(EmbedError::TokenId { text: 1, .. })
    ));
    assert!(matches!(embedder.embed_ids(&[vec![1], vec![]]), Err(EmbedError::NoTokens { text: 1 })));
    assert!(matches!(Embedder::builder().max_tokens(1).open(&file), Err(EmbedError::MaxTokens { .. })));
    assert_eq!(embedder.backend(), BackendKind::I2s);
    let missing = Embedder::open("no-such-file.gguf").unwrap_err().to_string();
    assert!(missing.contains("no-such-file.gguf"), "{missing}");
}

#[test]
fn a_file_that_was_read_may_be_truncated_and_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::copy(model("gemma3-bitnet"), &path).unwrap();
    let mapped = bits(&Embedder::open(&path).unwrap().embed(&["a text"]).unwrap());
    let read = Embedder::builder().mmap(false).open(&path).unwrap();
    // Mapped, this would end the process at the next access.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    assert_eq!(bits(&read.embed(&["a text"]).unwrap()), mapped);
    let refused = Embedder::builder().mmap(false).open(&path).map(drop).unwrap_err();
    assert!(refused.to_string().contains("model.gguf"), "{refused}");
}
