//! Config and vocabulary -> the metadata of the file, in the order in which the published converter writes it.
//!
//! Keys that it does not write, and without which Gemma 3 is another model, follow the architecture's keys.
//! `docs/gguf.md` lists every key with its source.

use bitnet_embed::config::{Architecture, ModelConfig, Pooling};
use bitnet_embed::gguf::{OwnedArray, OwnedValue};

use crate::plan::Outtype;
use crate::vocab::{Vocab, VocabKind};

/// Keys with their values, in file order.
pub type Entries = Vec<(String, OwnedValue)>;

/// All metadata of a file.
pub fn entries(name: &str, config: &ModelConfig, pooling: Pooling, outtype: Outtype, vocab: &Vocab) -> Entries {
    let mut entries = model_entries(name, config, pooling, outtype);
    entries.extend(vocab_entries(vocab));
    entries
}

fn model_entries(name: &str, config: &ModelConfig, pooling: Pooling, outtype: Outtype) -> Entries {
    let arch = config.architecture.name();
    // Config checking bounds all of these to u32.
    let count = |value: usize| OwnedValue::U32(value as u32);
    let mut entries = vec![
        ("general.architecture".to_owned(), arch.into()),
        ("general.name".to_owned(), name.into()),
    ];
    let mut add = |key: &str, value: OwnedValue| entries.push((format!("{arch}.{key}"), value));
    add("block_count", count(config.num_layers));
    add("context_length", count(config.context_length));
    add("embedding_length", count(config.hidden_size));
    add("feed_forward_length", count(config.intermediate_size));
    add("attention.head_count", count(config.num_heads));
    add("attention.head_count_kv", count(config.num_kv_heads));
    add("vocab_size", count(config.vocab_size));
    add("rope.dimension_count", count(config.head_dim));
    add("attention.key_length", count(config.head_dim));
    add("attention.value_length", count(config.head_dim));
    add("rope.freq_base", (config.rope_theta as f32).into());
    add("attention.layer_norm_rms_epsilon", config.rms_norm_eps.into());
    entries.push(("general.file_type".to_owned(), outtype.file_type().into()));
    entries.push((format!("{arch}.pooling_type"), pooling_type(pooling).into()));

    let mut add = |key: &str, value: OwnedValue| entries.push((format!("{arch}.{key}"), value));
    if config.architecture == Architecture::Gemma3 {
        // No layer slides: then a window would only mislead a reader that knows no pattern.
        if let Some(window) = config.sliding_window.filter(|_| config.sliding_layers.contains(&true)) {
            add("attention.sliding_window", count(window));
            add("attention.sliding_window_pattern", OwnedArray::from(config.sliding_layers.as_slice()).into());
            add("rope.freq_base_swa", (config.rope_local_theta as f32).into());
        }
        add("attention.scale", config.attention_scale.into());
    }
    if !config.causal {
        add("attention.causal", false.into());
    }
    entries
}

fn vocab_entries(vocab: &Vocab) -> Entries {
    let mut entries = Entries::new();
    let mut add = |key: &str, value: OwnedValue| entries.push((format!("tokenizer.ggml.{key}"), value));
    let types: Vec<i32> = vocab.types.iter().map(|&kind| kind as i32).collect();
    add("model", vocab.kind.model().into());
    add("pre", vocab.kind.pre().into());
    add("tokens", OwnedArray::strings(&vocab.tokens).into());
    let mut ids = vec![("bos_token_id", vocab.bos), ("eos_token_id", vocab.eos)];
    match vocab.kind {
        VocabKind::Gpt2 => {
            add("token_type", OwnedArray::from(types.as_slice()).into());
            add("merges", OwnedArray::strings(&vocab.merges).into());
            ids.extend([("padding_token_id", vocab.padding), ("eot_token_id", vocab.eot)]);
        }
        VocabKind::Llama => {
            add("scores", OwnedArray::from(vocab.scores.as_slice()).into());
            add("token_type", OwnedArray::from(types.as_slice()).into());
            add("add_space_prefix", false.into());
            ids.extend([("unknown_token_id", vocab.unknown), ("padding_token_id", vocab.padding)]);
        }
    }
    for (key, id) in ids {
        if let Some(id) = id {
            add(key, id.into());
        }
    }
    let flags = [("add_bos_token", vocab.add_bos), ("add_eos_token", vocab.add_eos), ("add_sep_token", false)];
    // The published converter learns of `bos` last where no template mentions it.
    let order: [usize; 3] = if vocab.kind == VocabKind::Gpt2 { [1, 2, 0] } else { [0, 1, 2] };
    for (key, flag) in order.map(|index| flags[index]) {
        add(key, flag.into());
    }
    entries
}

/// GGUF's number of a pooling.
fn pooling_type(pooling: Pooling) -> u32 {
    match pooling {
        Pooling::Mean => 1,
        Pooling::Cls => 2,
        Pooling::Last => 3,
    }
}
