//! Whether a file can be loaded: what `inspect` says is what loading does, and a file that was written and that no loader
//! takes is not written in silence.
#![cfg(feature = "embeddings")]

mod common;

use bitnet_embed::Embedder;
use bitnet_embed::gguf::{OwnedArray, OwnedValue};
use burn_i2s::ggml::GgmlType;
use common::{Converted, Parts, run};
use serde_json::Value;
use std::path::Path;

/// Whether `inspect` and the loader agree on the file, and what both say: `None` that it can be loaded.
fn refused(path: &Path, what: &str) -> Option<String> {
    let (json, _) = run(["inspect".as_ref(), path.as_os_str(), "--json".as_ref()], 0);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let refused = json["loader"]["refused"].as_str().map(str::to_owned);
    let error = Embedder::open(path).err().map(|error| error.to_string());
    assert_eq!(refused.is_some(), error.is_some(), "{what}: inspect says {refused:?}, the loader {error:?}");
    if let (Some(refused), Some(error)) = (&refused, error) {
        assert!(error.ends_with(refused.as_str()), "{what}: {refused} is not the reason, {error}");
    }
    refused
}

#[test]
fn inspect_refuses_what_the_loader_refuses_and_nothing_else() {
    for (name, kind) in [("qwen3-bitnet", "qwen3"), ("gemma3-bitnet", "gemma3"), ("qwen3-std", "qwen3")] {
        let outtype = if name.ends_with("std") { "f16" } else { "i2_s" };
        let converted = Converted::new(name, &["--outtype", outtype]);
        let whole = Parts::read(&converted.path);
        assert_eq!(refused(&converted.path, "whole"), None);
        let changed = converted.folder.path().join("changed.gguf");
        let refused_if = |change: &dyn Fn(&mut Parts), what: &str| {
            let mut parts = whole.clone();
            change(&mut parts);
            parts.write(&changed);
            refused(&changed, &format!("{name}, {what}")).is_some()
        };
        let mut count = 0;
        for (key, _) in &whole.metadata {
            count += usize::from(refused_if(&|parts| parts.remove(key), &format!("without {key}")));
            for value in [OwnedValue::F32(f32::NAN), "text".into(), true.into(), 0_u32.into(), u64::MAX.into()] {
                let what = format!("{key} = {value:?}");
                count += usize::from(refused_if(&|parts| *parts.value(key) = value.clone(), &what));
            }
            let numbers = OwnedValue::from(OwnedArray::from(&[1_i32, 2][..]));
            count += usize::from(refused_if(&|parts| *parts.value(key) = numbers.clone(), &format!("{key} = [1, 2]")));
        }
        assert!(count > whole.metadata.len(), "{count} refusals");
        for (key, value) in [
            (format!("{kind}.vocab_size"), 767_u32),
            (format!("{kind}.block_count"), 3),
            (format!("{kind}.context_length"), 1),
            ("tokenizer.ggml.eos_token_id".to_owned(), 768),
        ] {
            assert!(refused_if(&|parts| *parts.value(&key) = value.into(), &key), "{key} = {value}");
        }
        let norm = "blk.0.attn_norm.weight";
        let changes: [(&str, &dyn Fn(&mut Parts)); 5] = [
            ("a tensor is missing", &|parts| parts.tensors.retain(|tensor| tensor.0 != norm)),
            ("a tensor too many", &|parts| {
                parts.tensors.push(("score.weight".to_owned(), GgmlType::F32, vec![1], vec![0; 4]));
            }),
            ("a tensor of another shape", &|parts| {
                let shape = &mut parts.tensor(norm).2;
                *shape = vec![2, shape[0] / 2];
            }),
            ("a norm that is no number", &|parts| parts.data(norm).fill(0xff)),
            ("tokens too few", &|parts| parts.strings("tokenizer.ggml.tokens", |tokens| tokens.truncate(9))),
        ];
        for (what, change) in changes {
            assert!(refused_if(change, what), "{name}, {what}");
        }
        // Not found before a text needs them: here inspect may not promise less than the loader either.
        refused_if(&|parts| parts.data("blk.0.ffn_up.weight").fill(0xff), "a weight that is no number");
    }
}

#[test]
fn tokens_that_are_not_utf8_are_seen_by_inspect() {
    let converted = Converted::new("qwen3-bitnet", &["--outtype", "i2_s"]);
    let mut bytes = std::fs::read(&converted.path).expect("a file");
    let at = bytes.windows(13).position(|window| window == b"<|endoftext|>").expect("a token of the vocabulary");
    bytes[at + 2] = 0xff;
    std::fs::write(&converted.path, bytes).expect("written");
    let reason = refused(&converted.path, "tokens").expect("refused");
    assert!(reason.contains("tokenizer.ggml.tokens") && reason.contains("UTF-8"), "{reason}");
}
