//! Config and vocabulary -> the metadata of the file, in the order in which the published converter writes it.
//!
//! Keys that it does not write, and without which Gemma 3 is another model, follow the architecture's keys.
//! `docs/gguf.md` lists every key with its source.

use bitnet_embed::config::keys::tokenizer as tk;
use bitnet_embed::config::{Architecture, keys};
use bitnet_embed::gguf::{OwnedArray, OwnedValue};

use crate::config::SourceConfig;
use crate::plan::Outtype;
use crate::vocab::{Vocab, VocabKind};

/// Keys with their values, in file order.
pub type Entries = Vec<(String, OwnedValue)>;

/// All metadata of a file.
pub fn entries(name: &str, config: &SourceConfig, outtype: Outtype, vocab: &Vocab) -> Entries {
    let mut entries = model_entries(name, config, outtype);
    entries.extend(vocab_entries(vocab));
    entries
}

fn model_entries(name: &str, config: &SourceConfig, outtype: Outtype) -> Entries {
    let model = &config.model;
    let own = |key: &str, value: OwnedValue| (keys::of(model.architecture, key), value);
    // The limits on a config keep all of these far below 2^32.
    let count = |key: &str, value: usize| own(key, OwnedValue::U32(value as u32));
    let mut entries = vec![
        (keys::ARCHITECTURE.to_owned(), model.architecture.gguf_name().into()),
        (keys::NAME.to_owned(), name.into()),
        count(keys::BLOCK_COUNT, model.num_layers),
        count(keys::CONTEXT_LENGTH, model.max_position),
        count(keys::EMBEDDING_LENGTH, model.hidden_size),
        count(keys::FEED_FORWARD_LENGTH, model.intermediate_size),
        count(keys::HEAD_COUNT, model.num_heads),
        count(keys::HEAD_COUNT_KV, model.num_kv_heads),
        count(keys::VOCAB_SIZE, model.vocab_size),
        count(keys::ROPE_DIMENSION_COUNT, model.head_dim),
        count(keys::KEY_LENGTH, model.head_dim),
        count(keys::VALUE_LENGTH, model.head_dim),
        own(keys::ROPE_FREQ_BASE, (config.full_rope_theta as f32).into()),
        own(keys::RMS_EPSILON, model.rms_norm_eps.into()),
        (keys::FILE_TYPE.to_owned(), outtype.file_type().into()),
        own(keys::POOLING_TYPE, bitnet_embed::config::pooling_gguf_id(model.pooling).into()),
    ];
    if let Some(sliding) = &config.sliding {
        let pattern: Vec<bool> = model.layers.iter().map(|layer| layer.window.is_some()).collect();
        entries.push(count(keys::SLIDING_WINDOW, sliding.window));
        entries.push(own(keys::SLIDING_WINDOW_PATTERN, OwnedArray::from(pattern.as_slice()).into()));
        entries.push(own(keys::ROPE_FREQ_BASE_SWA, (sliding.rope_theta as f32).into()));
    }
    if model.architecture == Architecture::Gemma3 {
        entries.push(own(keys::ATTENTION_SCALE, model.attention_scale.into()));
    }
    if !model.causal {
        entries.push(own(keys::CAUSAL, false.into()));
    }
    entries
}

fn vocab_entries(vocab: &Vocab) -> Entries {
    let mut entries = Entries::new();
    let mut add = |key: &str, value: OwnedValue| entries.push((key.to_owned(), value));
    let types: Vec<i32> = vocab.types.iter().map(|&kind| kind as i32).collect();
    add(tk::MODEL, vocab.kind.model().into());
    add(tk::PRE, vocab.kind.pre().into());
    add(tk::TOKENS, OwnedArray::strings(&vocab.tokens).into());
    let mut ids = vec![(tk::BOS_ID, vocab.bos), (tk::EOS_ID, vocab.eos)];
    match vocab.kind {
        VocabKind::Gpt2 => {
            add(tk::TOKEN_TYPES, OwnedArray::from(types.as_slice()).into());
            add(tk::MERGES, OwnedArray::strings(&vocab.merges).into());
            ids.extend([(tk::PADDING_ID, vocab.padding), (tk::EOT_ID, vocab.eot)]);
        }
        VocabKind::Llama => {
            add(tk::SCORES, OwnedArray::from(vocab.scores.as_slice()).into());
            add(tk::TOKEN_TYPES, OwnedArray::from(types.as_slice()).into());
            add(tk::ADD_SPACE_PREFIX, false.into());
            ids.extend([(tk::UNKNOWN_ID, vocab.unknown), (tk::PADDING_ID, vocab.padding)]);
        }
    }
    for (key, id) in ids {
        if let Some(id) = id {
            add(key, id.into());
        }
    }
    let flags = [(tk::ADD_BOS, vocab.add_bos), (tk::ADD_EOS, vocab.add_eos), (tk::ADD_SEP, false)];
    // The published converter learns of `bos` last where no template mentions it.
    let order: [usize; 3] = if vocab.kind == VocabKind::Gpt2 { [1, 2, 0] } else { [0, 1, 2] };
    for (key, flag) in order.map(|index| flags[index]) {
        add(key, flag.into());
    }
    if let Some(json) = &vocab.whole {
        entries.push((tk::HUGGINGFACE_JSON.to_owned(), json.as_str().into()));
    }
    entries
}
