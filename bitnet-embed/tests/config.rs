//! Configurations from checkpoints and from GGUF metadata, and every refusal by name.

mod support;

use bitnet_embed::config::{
    Activation, Architecture, ConfigError, LayerAttention, ModelConfig, Overrides, Pooling, pooling_of_checkpoint,
};
use bitnet_embed::gguf::{GgufFile, GgufWriter, OwnedArray, OwnedValue};
use bitnet_embed::names::{GgufName, TensorRole, expected_tensors, gguf_tensor_name};
use serde_json::{Value, json};
use support::{extra_fixtures, testdata};

fn checkpoint(model: &str) -> ModelConfig {
    let dir = testdata().join("checkpoints").join(model);
    let pooling = pooling_of_checkpoint(&dir).unwrap().unwrap();
    ModelConfig::from_json_file(dir.join("config.json"), pooling).unwrap()
}

const FULL: LayerAttention = LayerAttention { rope_theta: 1e6, window: None };

fn sliding(window: usize) -> LayerAttention {
    LayerAttention { rope_theta: 1e4, window: Some(window) }
}

#[test]
fn a_qwen3_checkpoint_is_read() {
    let expected = ModelConfig {
        architecture: Architecture::Qwen3,
        vocab_size: 768,
        hidden_size: 128,
        intermediate_size: 128,
        num_layers: 2,
        num_heads: 8,
        num_kv_heads: 2,
        head_dim: 32,
        rms_norm_eps: 1e-6,
        attention_scale: 0.17677669,
        embedding_scale: 1.0,
        activation: Activation::Silu,
        max_position: 32768,
        causal: true,
        pooling: Pooling::Last,
        layers: vec![FULL; 2],
        assumed: vec![],
    };
    assert_eq!(checkpoint("qwen3-bitnet"), expected);
    let std = checkpoint("qwen3-std");
    assert_eq!((std.rms_norm_eps, std.num_heads, std.num_kv_heads, std.hidden_size), (1e-5, 3, 1, 64));
    assert_eq!(checkpoint("qwen3-sharded-f16-mean").pooling, Pooling::Mean);
}

#[test]
fn a_gemma3_checkpoint_is_read() {
    let config = checkpoint("gemma3-bitnet");
    assert_eq!((config.architecture, config.activation), (Architecture::Gemma3, Activation::GeluTanh));
    assert_eq!((config.attention_scale, config.embedding_scale), (0.125, 128f32.sqrt()));
    assert_eq!(config.layers, [sliding(16), FULL]);
    assert_eq!(checkpoint("gemma3-std").layers, [sliding(12), FULL]);
    assert_eq!(checkpoint("gemma3-ternary").layers, [LayerAttention { rope_theta: 1e4, window: None }]);
}

/// A complete `config.json` of either family, with some keys replaced.
fn config_json(architecture: Architecture, changes: &Value) -> Value {
    let mut config = match architecture {
        Architecture::Qwen3 => json!({"model_type": "qwen3", "rope_theta": 1e6}),
        Architecture::Gemma3 => json!({"model_type": "gemma3_text", "sliding_window": 8}),
    };
    let common = json!({"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 100, "max_position_embeddings": 512});
    for source in [&common, changes] {
        config.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    }
    config
}

fn read(architecture: Architecture, changes: Value) -> Result<ModelConfig, ConfigError> {
    ModelConfig::from_json(&config_json(architecture, &changes), Pooling::Last)
}

#[test]
fn absent_keys_have_the_defaults_of_transformers() {
    let null = json!({"head_dim": null, "num_key_value_heads": null, "max_position_embeddings": null});
    let qwen = read(Architecture::Qwen3, null.clone()).unwrap();
    assert_eq!((qwen.head_dim, qwen.num_kv_heads, qwen.rms_norm_eps, qwen.max_position), (128, 4, 1e-6, 32768));
    let gemma = read(Architecture::Gemma3, null).unwrap();
    assert_eq!((gemma.head_dim, gemma.num_kv_heads, gemma.attention_scale), (256, 4, 0.0625));
    assert_eq!(gemma.layers, [sliding(8); 3]);
    let seven = read(Architecture::Gemma3, json!({"num_hidden_layers": 7, "sliding_window": null})).unwrap();
    assert_eq!(seven.layers.iter().position(|layer| layer.window.is_none()), Some(5));
    assert_eq!(seven.layers[6], sliding(4096));
}

#[test]
fn gemma3_layers_follow_types_or_either_spelling_of_the_pattern() {
    let every_second = [sliding(8), FULL, sliding(8)];
    for changes in [
        json!({"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window_pattern": 3}),
        json!({"sliding_window_pattern": 2, "_sliding_window_pattern": 3}),
        json!({"_sliding_window_pattern": 2}),
    ] {
        assert_eq!(read(Architecture::Gemma3, changes.clone()).unwrap().layers, every_second, "{changes}");
    }
}

#[test]
fn rope_bases_are_read_from_both_forms() {
    let theta = |changes| read(Architecture::Qwen3, changes).unwrap().layers[0].rope_theta;
    assert_eq!(theta(json!({"rope_theta": 5000})), 5000.0);
    assert_eq!(theta(json!({"rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 2e6}})), 2e6);
    assert_eq!(theta(json!({"rope_scaling": {"type": "default"}})), 1e6);
    let layers = |changes| read(Architecture::Gemma3, changes).unwrap().layers;
    let flat = layers(json!({"rope_theta": 7e5, "rope_local_base_freq": 3e3, "sliding_window_pattern": 3}));
    assert_eq!((flat[0].rope_theta, flat[2].rope_theta), (3e3, 7e5));
    let nested = layers(json!({"rope_theta": 1, "sliding_window_pattern": 3, "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 7e5}, "sliding_attention": {"rope_theta": 3e3}}}));
    assert_eq!(nested, flat);
}

#[test]
fn a_bidirectional_model_has_half_the_window() {
    let config = read(Architecture::Gemma3, json!({"use_bidirectional_attention": true, "sliding_window": 9})).unwrap();
    assert_eq!((config.causal, config.layers[0].window), (false, Some(5)));
}

#[test]
fn what_is_not_implemented_is_refused_by_name() {
    use Architecture::{Gemma3, Qwen3};
    let both: &[_] = &[Qwen3, Gemma3];
    let cases: &[(&[Architecture], Value, &str)] = &[
        (both, json!({"model_type": "llama"}), "\"model_type\" = \"llama\" is not supported"),
        (both, json!({"model_type": "gemma3"}), "\"model_type\" = \"gemma3\" is not supported"),
        (both, json!({"model_type": null}), "\"model_type\" is missing"),
        (both, json!({"model_type": 3}), "\"model_type\" is 3, not a string"),
        (both, json!({"attention_bias": true}), "\"attention_bias\" = true is not supported"),
        (both, json!({"mlp_bias": true}), "\"mlp_bias\" = true"),
        (both, json!({"attn_logit_softcapping": 50.0}), "\"attn_logit_softcapping\" = 50.0"),
        (both, json!({"final_logit_softcapping": 30}), "\"final_logit_softcapping\" = 30"),
        (both, json!({"hidden_act": "relu"}), "\"hidden_act\" = \"relu\""),
        (both, json!({"hidden_activation": "gelu"}), "\"hidden_activation\" = \"gelu\""),
        (both, json!({"rope_scaling": {"type": "linear", "factor": 2}}), "\"rope_scaling.type\" = \"linear\""),
        (both, json!({"rope_scaling": {"rope_type": "yarn"}}), "\"rope_scaling.rope_type\" = \"yarn\""),
        (both, json!({"rope_scaling": {"factor": 2}}), "\"rope_scaling\" = {\"factor\":2}"),
        (both, json!({"rope_scaling": 2}), "\"rope_scaling\" is 2, not an object"),
        (&[Qwen3], json!({"use_sliding_window": true}), "\"use_sliding_window\" = true"),
        (
            &[Qwen3],
            json!({"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
            "\"layer_types\" = [",
        ),
        (&[Qwen3], json!({"rope_theta": null}), "\"rope_theta\" is missing"),
        (&[Qwen3], json!({"rope_parameters": {"rope_type": "llama3"}}), "\"rope_parameters.rope_type\" = \"llama3\""),
        (
            &[Qwen3],
            json!({"rope_parameters": {"partial_rotary_factor": 0.5}}),
            "\"rope_parameters.partial_rotary_factor\"",
        ),
        (&[Gemma3], json!({"rope_parameters": {"rope_theta": 1e4}}), "\"rope_parameters\" = {"),
        (
            &[Gemma3],
            json!({"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}}),
            "full_attention.rope_type\"",
        ),
        (&[Gemma3], json!({"use_bidirectional_attention": "all"}), "\"all\", not true or false"),
        (both, json!({"layer_types": ["full_attention"]}), "\"layer_types\" has 1 entries, the model has 3 layers"),
        (both, json!({"layer_types": ["full_attention", "chunked", "x"]}), "\"layer_types\" = \"chunked\""),
        (both, json!({"layer_types": [1, 2, 3]}), "\"layer_types\" is 1, not an array of strings"),
    ];
    for (architectures, changes, words) in cases {
        for architecture in *architectures {
            let message = read(*architecture, changes.clone()).unwrap_err().to_string();
            assert!(message.contains(words), "{architecture} {changes}: {message:?} has no {words:?}");
        }
    }
}

#[test]
fn impossible_numbers_are_refused() {
    for (key, value, words) in [
        ("hidden_size", json!(null), "\"hidden_size\" is missing"),
        ("hidden_size", json!(0), "\"hidden_size\" = 0, it must be 1 to 1048576"),
        ("hidden_size", json!(u64::MAX), "\"hidden_size\" = 18446744073709551615, it must be 1 to"),
        ("hidden_size", json!(-1), "\"hidden_size\" is -1, not a whole number"),
        ("hidden_size", json!(1.5), "\"hidden_size\" is 1.5, not a whole number"),
        ("intermediate_size", json!(1 << 21), "\"intermediate_size\" = 2097152"),
        ("num_hidden_layers", json!(0), "\"num_hidden_layers\" = 0"),
        ("num_hidden_layers", json!(4097), "\"num_hidden_layers\" = 4097"),
        ("num_attention_heads", json!(0), "\"num_attention_heads\" = 0"),
        ("num_attention_heads", json!(3), "3 query heads are not a multiple of 2"),
        ("num_key_value_heads", json!(0), "\"num_key_value_heads\" = 0"),
        ("num_key_value_heads", json!(8), "4 query heads are not a multiple of 8"),
        ("head_dim", json!(31), "the head width 31 is odd"),
        ("head_dim", json!(0), "\"head_dim\" = 0"),
        ("head_dim", json!(1 << 20), "\"num_attention_heads\" = 4, it must be 1 to 1"),
        ("vocab_size", json!(0), "\"vocab_size\" = 0"),
        ("vocab_size", json!("100"), "\"vocab_size\" is \"100\", not a whole number"),
        ("max_position_embeddings", json!(0), "\"max_position_embeddings\" = 0"),
        ("rms_norm_eps", json!(0.0), "\"rms_norm_eps\" = 0.0, it must be positive and finite"),
        ("rms_norm_eps", json!(1e-60), "\"rms_norm_eps\" = 1e-60, it must be positive and finite as a 32-bit float"),
        ("rope_theta", json!(1e300), "\"rope_theta\" = 1e300"),
        ("rope_theta", json!(-5), "\"rope_theta\" = -5.0, it must be positive and finite"),
    ] {
        for architecture in [Architecture::Qwen3, Architecture::Gemma3] {
            let message = read(architecture, json!({ key: value })).unwrap_err().to_string();
            assert!(message.contains(words), "{architecture} {key} {value}: {message:?} has no {words:?}");
        }
    }
    for (key, value) in [("sliding_window", 0), ("query_pre_attn_scalar", 0), ("sliding_window_pattern", 0)] {
        let message = read(Architecture::Gemma3, json!({ key: value })).unwrap_err().to_string();
        assert!(message.contains(key), "{message:?}");
    }
}

#[test]
fn files_too_long_for_a_configuration_and_what_is_no_file_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (modules, config) = (dir.path().join("modules.json"), dir.path().join("config.json"));
    let pooling = || pooling_of_checkpoint(dir.path()).unwrap_err().to_string();
    let folder = "it is a folder, not a regular file; give the file itself";
    std::fs::create_dir(&modules).unwrap();
    assert_eq!(pooling(), format!("cannot read {}: {folder}", modules.display()));
    std::fs::remove_dir(&modules).unwrap();
    let limit = "it is longer than 16777216 bytes, which is the limit";
    for path in [&modules, &config] {
        std::fs::File::create(path).unwrap().set_len((16 << 20) + 1).unwrap();
    }
    assert_eq!(pooling(), format!("cannot read {}: {limit}", modules.display()));
    let error = ModelConfig::from_json_file(&config, Pooling::Mean).unwrap_err().to_string();
    assert_eq!(error, format!("cannot read {}: {limit}", config.display()));
}

#[test]
fn a_key_that_stands_twice_is_refused_by_file_and_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    std::fs::write(&path, "{\"hidden_size\": 64,\n \"hidden_size\": 128}").unwrap();
    let error = ModelConfig::from_json_file(&path, Pooling::Mean).unwrap_err().to_string();
    let start =
        format!("{}: the key \"hidden_size\" stands there twice; remove the wrong one at line 2", path.display());
    assert!(error.starts_with(&start), "{error}");
}

#[test]
fn pooling_is_read_as_sentence_transformers_does() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let pooling = || pooling_of_checkpoint(dir.path()).map_err(|error| error.to_string());
    assert_eq!(pooling(), Ok(None), "no modules.json");
    write("modules.json", r#"[{"type": "sentence_transformers.models.Transformer", "path": ""}]"#);
    assert_eq!(pooling(), Ok(None), "no pooling module");
    write("modules.json", r#"[{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1_Pooling"}]"#);
    assert!(pooling().unwrap_err().contains("cannot read"));
    for (config, expected) in [
        (r#"{"pooling_mode_lasttoken": true, "pooling_mode_cls_token": false}"#, Ok(Pooling::Last)),
        (r#"{"pooling_mode_mean_tokens": true}"#, Ok(Pooling::Mean)),
        (r#"{"pooling_mode_cls_token": true}"#, Ok(Pooling::Cls)),
        (r#"{"pooling_mode": "lasttoken"}"#, Ok(Pooling::Last)),
        (r#"{"pooling_mode": "max"}"#, Err("\"pooling_mode\" = \"max\" is not supported")),
        (r#"{"pooling_mode_max_tokens": true}"#, Err("\"pooling_mode_max_tokens\" = true is not supported")),
        (r#"{"pooling_mode_weightedmean_tokens": true}"#, Err("\"pooling_mode_weightedmean_tokens\"")),
        (r#"{"pooling_mode_mean_sqrt_len_tokens": true}"#, Err("\"pooling_mode_mean_sqrt_len_tokens\"")),
        (r#"{"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true}"#, Err("\"pooling_mode_lasttoken\"")),
        (r#"{"pooling_mode_mean_tokens": false}"#, Err("\"pooling_mode_*\" is missing")),
        (r#"[]"#, Err("not an object")),
        (r#"{"#, Err("EOF")),
    ] {
        write("1_Pooling/config.json", config);
        match (pooling(), expected) {
            (found, Ok(expected)) => assert_eq!(found, Ok(Some(expected)), "{config}"),
            (found, Err(words)) => {
                assert!(found.clone().is_err_and(|error| error.contains(words)), "{config}: {found:?}")
            }
        }
    }
    for kind in ["sentence_transformers.models.Dense", "a.MyPooling", "Pooling"] {
        let modules = json!([{"type": "a.Pooling", "path": "1_Pooling"}, {"type": kind, "path": "2"}]);
        write("1_Pooling/config.json", r#"{"pooling_mode_cls_token": true}"#);
        write("modules.json", &modules.to_string());
        assert!(pooling().unwrap_err().contains(kind), "{kind}");
    }
    for path in ["../1_Pooling", "/etc", "1_Pooling/../.."] {
        write("modules.json", &json!([{"type": "a.Pooling", "path": path}]).to_string());
        assert!(pooling().unwrap_err().contains("outside the checkpoint"), "{path}");
    }
}

/// A GGUF file of nothing but metadata.
fn gguf(entries: &[(&str, OwnedValue)]) -> GgufFile<Vec<u8>> {
    let mut writer = GgufWriter::new();
    for (key, value) in entries {
        writer.metadata(key, value.clone()).unwrap();
    }
    GgufFile::from_owner(writer.write_to(Vec::new()).unwrap().finish().unwrap()).unwrap()
}

/// The least metadata a model can have, with some keys replaced or added.
fn least(architecture: &str, changes: &[(&str, OwnedValue)]) -> Result<ModelConfig, ConfigError> {
    let mut entries: Vec<(String, OwnedValue)> = vec![("general.architecture".into(), architecture.into())];
    let sizes = [
        ("block_count", 12u32),
        ("context_length", 512),
        ("embedding_length", 64),
        ("feed_forward_length", 96),
        ("attention.head_count", 4),
        ("vocab_size", 100),
    ];
    entries.extend(sizes.map(|(key, value)| (format!("{architecture}.{key}"), value.into())));
    entries.push((format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-6f32.into()));
    for (key, value) in changes {
        let key = format!("{architecture}.{key}");
        entries.retain(|(other, _)| *other != key);
        entries.push((key, value.clone()));
    }
    let borrowed: Vec<_> = entries.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
    ModelConfig::from_gguf(gguf(&borrowed).metadata())
}

fn assumed(config: &ModelConfig) -> Vec<String> {
    config.assumed.iter().map(ToString::to_string).collect()
}

#[test]
fn the_published_converters_files_say_what_their_checkpoints_say_except_what_it_drops() {
    let file = |model: &str| GgufFile::open(testdata().join(format!("gguf/{model}.i2_s.gguf"))).unwrap();
    let qwen = ModelConfig::from_gguf(file("qwen3-bitnet").metadata()).unwrap();
    assert_eq!(qwen, checkpoint("qwen3-bitnet"));

    let gemma = ModelConfig::from_gguf(file("gemma3-bitnet").metadata()).unwrap();
    assert_eq!(
        assumed(&gemma),
        [
            "gemma3.attention.causal is absent, assuming true",
            "gemma3.attention.scale is absent, assuming 0.125",
            "gemma3.attention.sliding_window is absent, assuming none, every layer is full",
        ]
    );
    let kept = ModelConfig { layers: vec![FULL; 2], assumed: gemma.assumed.clone(), ..checkpoint("gemma3-bitnet") };
    assert_eq!(gemma, kept);
}

#[test]
fn overrides_put_back_what_the_published_converter_drops() {
    let file = GgufFile::open(testdata().join("gguf/gemma3-bitnet.i2_s.gguf")).unwrap();
    let mut overrides = Overrides::default();
    for text in [
        "gemma3.attention.sliding_window=int:16",
        "gemma3.attention.sliding_window_pattern=int:2",
        "gemma3.rope.freq_base_swa=float:10000",
        "gemma3.attention.scale=float:0.125",
        "gemma3.attention.causal=bool:true",
    ] {
        overrides.parse_push(text).unwrap();
    }
    let config = ModelConfig::from_gguf(file.metadata().with_overrides(overrides.as_slice())).unwrap();
    assert_eq!(config, checkpoint("gemma3-bitnet"));
}

#[test]
fn absent_keys_are_read_literally_and_listed() {
    let qwen = least("qwen3", &[]).unwrap();
    assert_eq!((qwen.head_dim, qwen.num_kv_heads, qwen.attention_scale, qwen.causal), (16, 4, 0.25, true));
    assert_eq!(qwen.layers, [LayerAttention { rope_theta: 1e4, window: None }; 12]);
    assert_eq!(
        assumed(&qwen),
        [
            "qwen3.attention.head_count_kv is absent, assuming 4",
            "qwen3.attention.key_length is absent, assuming 16",
            "qwen3.rope.freq_base is absent, assuming 10000",
            "qwen3.pooling_type is absent, assuming 3 (last)",
        ]
    );
}

#[test]
fn a_window_alone_is_mainlines_gemma3() {
    let base = ("rope.freq_base", 1e6f32.into());
    let config = least("gemma3", &[base, ("attention.sliding_window", 512u32.into())]).unwrap();
    let expected: Vec<_> = (1..=12).map(|layer| if layer % 6 == 0 { FULL } else { sliding(512) }).collect();
    assert_eq!(config.layers, expected);
    let listed = assumed(&config);
    assert!(listed.contains(&"gemma3.attention.sliding_window_pattern is absent, assuming 6".into()), "{listed:?}");
    assert!(listed.contains(&"gemma3.rope.freq_base_swa is absent, assuming 10000".into()), "{listed:?}");
}

#[test]
fn a_pattern_is_one_boolean_a_layer_or_a_period() {
    let flags: Vec<bool> = (1..=12).map(|layer| layer % 3 != 0).collect();
    let read = |pattern: OwnedValue, causal: bool| {
        least(
            "gemma3",
            &[
                ("attention.sliding_window", 9u32.into()),
                ("attention.sliding_window_pattern", pattern),
                ("rope.freq_base", 1e6f32.into()),
                ("rope.freq_base_swa", 1e4f32.into()),
                ("attention.causal", causal.into()),
            ],
        )
    };
    let expected: Vec<_> = flags.iter().map(|slides| if *slides { sliding(9) } else { FULL }).collect();
    assert_eq!(read(OwnedArray::from(&flags[..]).into(), true).unwrap().layers, expected);
    assert_eq!(read(3u32.into(), true).unwrap().layers, expected);
    let both_ways = read(3u32.into(), false).unwrap();
    assert_eq!((both_ways.causal, both_ways.layers[0]), (false, sliding(5)));
    let short = read(OwnedArray::from(&flags[1..]).into(), true).unwrap_err();
    assert!(matches!(short, ConfigError::LayerCount { expected: 12, found: 11, .. }), "{short}");
    assert!(read(OwnedArray::from(&[1u32; 12][..]).into(), true).is_err());
}

#[test]
fn metadata_that_is_missing_wrong_or_not_implemented_is_refused_by_key() {
    let pattern: OwnedValue = OwnedArray::from(&[true; 12][..]).into();
    let cases: Vec<(&str, &str, OwnedValue, &str)> = vec![
        ("qwen3", "pooling_type", 0u32.into(), "\"qwen3.pooling_type\" = 0 (none) is not supported"),
        ("qwen3", "pooling_type", 4u32.into(), "\"qwen3.pooling_type\" = 4 (rank) is not supported"),
        ("qwen3", "pooling_type", 9u32.into(), "\"qwen3.pooling_type\" = 9"),
        ("gemma3", "attn_logit_softcapping", 50f32.into(), "\"gemma3.attn_logit_softcapping\" = 50"),
        ("gemma3", "final_logit_softcapping", f32::NAN.into(), "\"gemma3.final_logit_softcapping\" = NaN"),
        ("qwen3", "rope.scaling.type", "yarn".into(), "\"qwen3.rope.scaling.type\" = \"yarn\""),
        ("qwen3", "rope.scaling.factor", 4f32.into(), "\"qwen3.rope.scaling.factor\" = 4"),
        ("qwen3", "rope.scale_linear", 4f32.into(), "\"qwen3.rope.scale_linear\" = 4"),
        ("qwen3", "expert_count", 8u32.into(), "\"qwen3.expert_count\" = 8"),
        ("qwen3", "expert_count", "8".into(), "\"qwen3.expert_count\""),
        ("qwen3", "attention.sliding_window", 8u32.into(), "\"qwen3.attention.sliding_window\" = 8"),
        ("qwen3", "attention.value_length", 8u32.into(), "\"qwen3.attention.value_length\" = 8"),
        ("qwen3", "rope.dimension_count", 8u32.into(), "\"qwen3.rope.dimension_count\" = 8"),
        ("qwen3", "embedding_length", 0u32.into(), "\"qwen3.embedding_length\" = 0"),
        ("qwen3", "embedding_length", u64::MAX.into(), "\"qwen3.embedding_length\" = 18446744073709551615"),
        ("qwen3", "embedding_length", (-1i32).into(), "\"qwen3.embedding_length\""),
        ("qwen3", "embedding_length", 64f32.into(), "\"qwen3.embedding_length\""),
        ("qwen3", "block_count", 0u32.into(), "\"qwen3.block_count\" = 0"),
        ("qwen3", "context_length", 0u32.into(), "\"qwen3.context_length\" = 0"),
        ("qwen3", "vocab_size", 0u32.into(), "\"qwen3.vocab_size\" = 0"),
        ("qwen3", "attention.head_count", 3u32.into(), "the head width 21 is odd"),
        ("qwen3", "attention.head_count_kv", 3u32.into(), "4 query heads are not a multiple of 3"),
        ("qwen3", "attention.key_length", 7u32.into(), "the head width 7 is odd"),
        ("qwen3", "attention.layer_norm_rms_epsilon", f32::INFINITY.into(), "rms_epsilon\" = inf, it must be positive"),
        ("qwen3", "rope.freq_base", f32::NAN.into(), "\"qwen3.rope.freq_base\" = NaN"),
        ("gemma3", "attention.scale", 0f32.into(), "\"gemma3.attention.scale\" = 0.0, it must be positive"),
        ("gemma3", "attention.sliding_window", 0u32.into(), "\"gemma3.attention.sliding_window\" = 0"),
        ("gemma3", "attention.sliding_window_pattern", 0u32.into(), "sliding_window_pattern\" = 0"),
        ("gemma3", "attention.sliding_window_pattern", pattern, "\"gemma3.attention.sliding_window\" is missing"),
        ("llama", "rope.freq_base", 1f32.into(), "\"general.architecture\" = \"llama\" is not supported"),
    ];
    for (architecture, key, value, words) in cases {
        let message = least(architecture, &[(key, value)]).unwrap_err().to_string();
        assert!(message.contains(words), "{architecture}.{key}: {message:?} has no {words:?}");
    }
    let empty = ModelConfig::from_gguf(gguf(&[]).metadata()).unwrap_err().to_string();
    assert_eq!(empty, "\"general.architecture\" is missing");
    let named = gguf(&[("general.architecture", "qwen3".into())]);
    let message = ModelConfig::from_gguf(named.metadata()).unwrap_err().to_string();
    assert_eq!(message, "\"qwen3.embedding_length\" is missing");
}

#[test]
fn expected_tensors_are_those_of_the_files() {
    for model in ["qwen3-bitnet", "gemma3-bitnet"] {
        let file = GgufFile::open(testdata().join(format!("gguf/{model}.i2_s.gguf"))).unwrap();
        let mut expected: Vec<_> = expected_tensors(&ModelConfig::from_gguf(file.metadata()).unwrap())
            .into_iter()
            .map(|tensor| (tensor.name, tensor.shape))
            .collect();
        let mut found: Vec<_> =
            file.tensors().iter().map(|tensor| (tensor.name().to_owned(), tensor.shape())).collect();
        expected.sort();
        found.sort();
        assert_eq!(expected, found, "{model}");
    }
}

#[test]
fn every_tensor_of_a_checkpoint_has_a_name_that_is_expected() {
    for model in ["qwen3-bitnet", "qwen3-std", "gemma3-bitnet", "gemma3-std", "gemma3-ternary"] {
        let config = checkpoint(model);
        let bytes = std::fs::read(testdata().join("checkpoints").join(model).join("model.safetensors")).unwrap();
        let (_, tensors) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let expected = expected_tensors(&config);
        let mut stored = 0;
        for (name, info) in tensors.tensors() {
            let Some(GgufName::Tensor(gguf)) = gguf_tensor_name(config.architecture, &name) else {
                panic!("{model}: {name} has no name")
            };
            let tensor =
                expected.iter().find(|tensor| tensor.name == gguf).unwrap_or_else(|| panic!("{model}: {gguf}"));
            assert_eq!(tensor.shape, info.shape, "{model}: {name}");
            stored += usize::from(!tensor.is_optional());
        }
        assert_eq!(stored, expected.iter().filter(|tensor| tensor.role != TensorRole::InputNorm).count(), "{model}");
    }
}

#[test]
fn cut_down_published_models_are_read_and_agree_with_their_files() {
    let Some(fixtures) = extra_fixtures() else { return };
    let mut files = 0;
    for entry in std::fs::read_dir(&fixtures).unwrap() {
        let dir = entry.unwrap().path();
        if !dir.join("config.json").exists() {
            continue;
        }
        let pooling = pooling_of_checkpoint(&dir).unwrap();
        let model = dir.file_name().unwrap().to_str().unwrap();
        assert_eq!(pooling.is_none(), model.contains("nomodules"), "{model}");
        // The published converter takes the mean where nothing says.
        let config = ModelConfig::from_json_file(dir.join("config.json"), pooling.unwrap_or(Pooling::Mean)).unwrap();
        let path = fixtures.join(format!("gguf/{model}.i2_s.gguf"));
        if path.exists() {
            let found = ModelConfig::from_gguf(GgufFile::open(path).unwrap().metadata()).unwrap();
            let (layers, assumed) = (found.layers.clone(), found.assumed.clone());
            if config.architecture == Architecture::Qwen3 {
                assert_eq!((&layers, assumed.len()), (&config.layers, 0), "{model}");
            }
            assert_eq!(found, ModelConfig { layers, assumed, ..config }, "{model}");
            files += 1;
        }
    }
    assert_eq!(files, 7);
}
