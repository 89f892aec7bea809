//! What is in a GGUF file, for people and, as JSON, for programs.
//!
//! Every file that the reader opens is described, whatever model it is of. Text from the file is escaped: in the JSON all
//! that is not ASCII, in the text all that is not plainly visible.

use std::fmt;

use bitnet_embed::config::ModelConfig;
use bitnet_embed::config::keys::tokenizer as tk;
use bitnet_embed::gguf::{Array, GgufFile, Value, ValueType};
use bitnet_embed::tokenizer::{TokenType, Tokenizer};
use serde_json::{Map, Value as Json, json};

use crate::edit::part_count;
use crate::report::shortened;

/// Elements of an array that the JSON shows.
const SHOWN_ELEMENTS: usize = 8;
/// Characters of a string that the JSON shows.
const SHOWN_CHARS: usize = 1000;

/// What is in a file.
pub struct Inspection<'a, B> {
    file: &'a GgufFile<B>,
    tokenizer: TokenizerSummary,
    loader: LoaderSummary,
}

/// The vocabulary of a file.
#[derive(Clone, Debug, Default)]
struct TokenizerSummary {
    kind: Option<String>,
    pre: Option<String>,
    whole_json: Option<usize>,
    tokens: Option<usize>,
    merges: Option<usize>,
    /// Number of tokens of each type that occurs.
    types: Vec<(&'static str, usize)>,
    /// Role, id, token.
    special: Vec<(&'static str, u32, Option<String>)>,
    adds: Vec<&'static str>,
    /// Why no tokenizer can be made of it.
    refused: Option<String>,
}

/// What a loader makes of a file.
#[derive(Clone, Debug, Default)]
struct LoaderSummary {
    config: Option<ModelConfig>,
    /// How many files the model is in, if it is more than one.
    parts: Option<u64>,
    refused: Option<String>,
}

impl<'a, B: AsRef<[u8]>> Inspection<'a, B> {
    /// Looks at a file. Of the tensors' data nothing is read: what comes of loading them is `loaded`, from
    /// [`load`](crate::loader::load).
    pub fn of(file: &'a GgufFile<B>, loaded: Result<ModelConfig, String>) -> Self {
        Self { file, tokenizer: TokenizerSummary::of(file), loader: LoaderSummary::of(file, loaded) }
    }

    /// All of it as JSON in ASCII.
    pub fn to_json(&self) -> String {
        let file = self.file;
        let metadata: Vec<Json> = file
            .metadata()
            .keys()
            .filter_map(|key| {
                let value = file.metadata().value(key)?;
                let mut entry = Map::new();
                entry.insert("key".into(), json!(key));
                entry.insert("type".into(), json!(value.kind().to_string()));
                if let Value::Array(array) = value {
                    entry.insert("length".into(), json!(array.len()));
                }
                entry.insert("value".into(), json_value(value));
                Some(Json::Object(entry))
            })
            .collect();
        let tensors: Vec<Json> = file
            .tensors()
            .iter()
            .map(|tensor| {
                json!({
                    "name": tensor.name(), "type": tensor.type_name(), "type_id": tensor.type_id(),
                    "shape": tensor.shape(), "offset": tensor.offset(), "bytes": tensor.byte_len(),
                })
            })
            .collect();
        let whole = json!({
            "version": file.version(),
            "bytes": file.owner().as_ref().len(),
            "alignment": file.alignment(),
            "data_start": file.data_start(),
            "metadata": metadata,
            "tensors": tensors,
            "types": self.types(),
            "tokenizer": self.tokenizer.to_json(),
            "loader": self.loader.to_json(),
        });
        let text = serde_json::to_string_pretty(&whole).unwrap_or_default();
        ascii(&text)
    }

    fn types(&self) -> Json {
        let mut types = Map::new();
        for tensor in self.file.tensors() {
            let name = match tensor.type_name() {
                "unknown" => format!("unknown ({})", tensor.type_id()),
                name => name.to_owned(),
            };
            let entry = types.entry(name).or_insert_with(|| json!({"tensors": 0, "bytes": 0}));
            entry["tensors"] = json!(entry["tensors"].as_u64().unwrap_or(0) + 1);
            let sum = entry["bytes"].as_u64().zip(tensor.byte_len()).map(|(sum, bytes)| sum + bytes as u64);
            entry["bytes"] = json!(sum);
        }
        Json::Object(types)
    }
}

impl<B: AsRef<[u8]>> fmt::Display for Inspection<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.describe())?;
        self.tokenizer.write(f)?;
        self.loader.write(f)
    }
}

impl TokenizerSummary {
    fn of<B: AsRef<[u8]>>(file: &GgufFile<B>) -> Self {
        let metadata = file.metadata();
        let text = |key| match metadata.value(key) {
            Some(Value::Str(text)) => Some(text),
            _ => None,
        };
        let array = |key| match metadata.value(key) {
            Some(Value::Array(array)) => Some(array),
            _ => None,
        };
        let id = |key| match metadata.value(key)?.as_integer() {
            Some(id) => u32::try_from(id).ok(),
            None => None,
        };
        let tokens: Option<Array<'_>> = array(tk::TOKENS);
        let token = |id: u32| -> Option<String> {
            let token = tokens?.strings().ok()?.nth(id as usize)?;
            token.ok().map(shortened)
        };
        let roles = [
            ("bos", tk::BOS_ID),
            ("eos", tk::EOS_ID),
            ("unknown", tk::UNKNOWN_ID),
            ("padding", tk::PADDING_ID),
            ("eot", tk::EOT_ID),
        ];
        let adds = [("bos", tk::ADD_BOS), ("eos", tk::ADD_EOS)];
        let present = tk_present(file);
        Self {
            kind: text(tk::MODEL).map(shortened),
            pre: text(tk::PRE).map(shortened),
            whole_json: text(tk::HUGGINGFACE_JSON).map(str::len),
            tokens: tokens.map(|tokens| tokens.len()),
            merges: array(tk::MERGES).map(|merges| merges.len()),
            types: array(tk::TOKEN_TYPES).map(count_types).unwrap_or_default(),
            special: roles.into_iter().filter_map(|(role, key)| id(key).map(|id| (role, id, token(id)))).collect(),
            adds: adds
                .into_iter()
                .filter(|(_, key)| metadata.value(key) == Some(Value::Bool(true)))
                .map(|(role, _)| role)
                .collect(),
            refused: if present {
                Tokenizer::from_gguf(metadata).err().map(|error| shortened(&error.to_string()))
            } else {
                None
            },
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\ntokenizer")?;
        let quoted = |text: &Option<String>| text.as_ref().map_or("absent".to_owned(), |text| format!("{text:?}"));
        if self.kind.is_none() && self.whole_json.is_none() {
            return writeln!(f, "  none");
        }
        writeln!(f, "  kind {}, pre-tokenizer {}", quoted(&self.kind), quoted(&self.pre))?;
        if let Some(bytes) = self.whole_json {
            writeln!(f, "  the whole tokenizer.json of {bytes} bytes, which is read first")?;
        }
        let count = |count: Option<usize>| count.map_or("no".to_owned(), |count| count.to_string());
        let types: Vec<String> = self.types.iter().map(|(name, count)| format!("{count} {name}")).collect();
        writeln!(f, "  {} tokens ({}), {} merges", count(self.tokens), types.join(", "), count(self.merges))?;
        for (role, id, token) in &self.special {
            let added = if self.adds.contains(role) { ", added to every text" } else { "" };
            writeln!(f, "  {role} {id} {}{added}", quoted(token))?;
        }
        match &self.refused {
            Some(reason) => writeln!(f, "  would be refused: {}", escaped(reason)),
            None => Ok(()),
        }
    }

    fn to_json(&self) -> Json {
        let special: Map<String, Json> = self
            .special
            .iter()
            .map(|(role, id, token)| {
                let added = self.adds.contains(role);
                ((*role).to_owned(), json!({"id": id, "token": token, "added": added}))
            })
            .collect();
        let types: Map<String, Json> =
            self.types.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
        json!({
            "kind": self.kind, "pre": self.pre, "tokenizer_json_bytes": self.whole_json, "tokens": self.tokens,
            "merges": self.merges, "token_types": types, "special": special, "refused": self.refused,
        })
    }
}

fn tk_present<B: AsRef<[u8]>>(file: &GgufFile<B>) -> bool {
    [tk::MODEL, tk::HUGGINGFACE_JSON].iter().any(|key| file.metadata().value(key).is_some())
}

fn count_types(array: Array<'_>) -> Vec<(&'static str, usize)> {
    let named = [
        (TokenType::Normal, "normal"),
        (TokenType::Unknown, "unknown"),
        (TokenType::Control, "control"),
        (TokenType::UserDefined, "user-defined"),
        (TokenType::Unused, "unused"),
        (TokenType::Byte, "byte"),
    ];
    let Ok(types) = array.i32s() else { return Vec::new() };
    named
        .into_iter()
        .map(|(kind, name)| (name, types.clone().filter(|found| *found == kind as i32).count()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

impl LoaderSummary {
    fn of<B: AsRef<[u8]>>(file: &GgufFile<B>, loaded: Result<ModelConfig, String>) -> Self {
        let parts = part_count(file).filter(|count| *count > 1);
        match loaded {
            Ok(config) => Self { config: Some(config), parts, refused: None },
            Err(reason) => {
                let config = ModelConfig::from_gguf(file.metadata()).ok();
                Self { config, parts, refused: Some(shortened(&reason)) }
            }
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nwhat a loader makes of it")?;
        if let Some(count) = self.parts {
            writeln!(f, "  one of {count} parts of a model, which are loaded together")?;
        }
        if let Some(config) = &self.config {
            writeln!(
                f,
                "  {}: {} layers of {} (feed-forward {}), {} heads and {} key-value heads of {}, {} tokens, context {}, \
                 {} pooling, {}",
                config.architecture,
                config.num_layers,
                config.hidden_size,
                config.intermediate_size,
                config.num_heads,
                config.num_kv_heads,
                config.head_dim,
                config.vocab_size,
                config.max_position,
                config.pooling.name(),
                if config.causal { "causal" } else { "bidirectional" },
            )?;
            for assumed in &config.assumed {
                writeln!(f, "  {}", assumed.to_string().escape_debug())?;
            }
        }
        match &self.refused {
            Some(reason) => writeln!(f, "  would be refused: {}", escaped(reason)),
            None => Ok(()),
        }
    }

    fn to_json(&self) -> Json {
        let config = self.config.as_ref().map(|config| {
            json!({
                "architecture": config.architecture.gguf_name(), "layers": config.num_layers,
                "hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size,
                "heads": config.num_heads, "kv_heads": config.num_kv_heads, "head_dim": config.head_dim,
                "vocab_size": config.vocab_size, "context": config.max_position,
                "pooling": config.pooling.name(), "causal": config.causal,
                "sliding_layers": config.layers.iter().filter(|layer| layer.window.is_some()).count(),
            })
        });
        let assumed: Vec<Json> = self
            .config
            .iter()
            .flat_map(|config| &config.assumed)
            .map(|assumed| json!({"key": assumed.key, "value": assumed.value}))
            .collect();
        json!({"model": config, "parts": self.parts, "assumed": assumed, "refused": self.refused})
    }
}

/// Nothing in it that a terminal obeys; quotes stay quotes.
fn escaped(text: &str) -> String {
    let escape = |c: char| if matches!(c, '"' | '\'') { c.to_string() } else { c.escape_debug().to_string() };
    text.chars().map(escape).collect()
}

/// A value as JSON; long ones are cut.
fn json_value(value: Value<'_>) -> Json {
    match value {
        Value::Str(text) => json!(text.chars().take(SHOWN_CHARS).collect::<String>()),
        Value::Bool(value) => json!(value),
        // JSON has no NaN and no infinity.
        Value::F32(value) => json!(shortest(value)),
        Value::F64(value) => json!(value),
        Value::U64(value) => json!(value),
        Value::I64(value) => json!(value),
        Value::Array(array) if array.element_type() == ValueType::Array => json!(null),
        Value::Array(array) => {
            array.values().take(SHOWN_ELEMENTS).map(|value| value.map_or(json!(null), json_value)).collect()
        }
        integer => integer.as_integer().and_then(|value| i64::try_from(value).ok()).map_or(json!(null), |v| json!(v)),
    }
}

/// The f64 that prints as the f32 does: 1e-6 rather than 9.999999974752427e-7.
fn shortest(value: f32) -> f64 {
    format!("{value:?}").parse().unwrap_or(f64::NAN)
}

/// JSON whose strings hold ASCII alone, and so nothing that a terminal obeys.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, ' '..='~' | '\n') {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}
