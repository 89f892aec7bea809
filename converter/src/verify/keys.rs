//! Metadata: every key that a conversion would write, and no other that changes the model.

use bitnet_embed::config::keys;
use bitnet_embed::config::keys::tokenizer::HUGGINGFACE_JSON;
use bitnet_embed::gguf::{Array, GgufFile, Value};

use super::{Difference, VerifyReport};
use crate::convert::Prepared;
use crate::metadata;
use crate::plan::Outtype;

/// Characters of a value that are shown.
const SHOWN: usize = 60;

/// Compares the metadata with those of the checkpoint in the folder of that name; returns the kind of file that they say it is.
pub(super) fn compare<B: AsRef<[u8]>>(
    file: &GgufFile<B>,
    prepared: &Prepared,
    folder: &str,
    report: &mut VerifyReport,
) -> Option<Outtype> {
    let found = file.metadata();
    let outtype = match found.value(keys::FILE_TYPE) {
        Some(Value::U32(file_type)) => Outtype::from_file_type(file_type),
        _ => None,
    };
    // A name is free to choose: another than the folder's is no difference, and was not compared with anything. An unknown
    // file type is a difference from any.
    let name = match found.value(keys::NAME) {
        Some(Value::Str(name)) => name,
        _ => folder,
    };
    let expected = metadata::entries(name, &prepared.config, outtype.unwrap_or(Outtype::I2S), &prepared.vocab);
    for (key, expected) in &expected {
        if key == keys::NAME && name != folder {
            report.notes.push(not_compared(key));
            continue;
        }
        report.keys += 1;
        let expected = expected.as_value(key);
        report.differences.extend(match found.value(key) {
            None => Some(Difference::KeyMissing { key: key.clone(), expected: show(expected) }),
            Some(found) => difference(key, expected, found),
        });
    }
    for key in found.keys().filter(|key| !expected.iter().any(|(known, _)| known == key)) {
        let Some(value) = found.value(key) else { continue };
        match value {
            // Allowed in every file, if it is the checkpoint's.
            Value::Str(json) if key == HUGGINGFACE_JSON => {
                report.keys += 1;
                if json.as_bytes() != prepared.tokenizer {
                    let (key, place) = (key.to_owned(), String::new());
                    let expected = "tokenizer.json of the checkpoint".to_owned();
                    report.differences.push(Difference::Key { key, place, expected, found: show(value) });
                }
            }
            _ if key.starts_with("general.") || key.starts_with("split.") => {
                report.notes.push(not_compared(key));
            }
            _ => report.differences.push(Difference::KeyUnexpected { key: key.to_owned(), found: show(value) }),
        }
    }
    outtype
}

fn not_compared(key: &str) -> String {
    format!("key {key:?} is not compared, nothing in the checkpoint says what it should be")
}

fn difference(key: &str, expected: Value<'_>, found: Value<'_>) -> Option<Difference> {
    if expected == found {
        return None;
    }
    let differs = |place, expected, found| Some(Difference::Key { key: key.to_owned(), place, expected, found });
    if let (Value::Array(expected), Value::Array(found)) = (expected, found)
        && expected.element_type() == found.element_type()
    {
        if expected.len() != found.len() {
            return differs(String::new(), format!("{} elements", expected.len()), format!("{} elements", found.len()));
        }
        let (index, (expected, found)) =
            elements(expected).zip(elements(found)).enumerate().find(|(_, (expected, found))| expected != found)?;
        return differs(format!(", element {index}"), expected, found);
    }
    differs(String::new(), typed(expected), typed(found))
}

fn elements<'a>(array: Array<'a>) -> impl Iterator<Item = String> + use<'a> {
    array.values().map(|value| value.map_or_else(|error| error.to_string(), show))
}

/// The value with its type, for an integer of another width looks the same otherwise.
fn typed(value: Value<'_>) -> String {
    format!("{} {}", value.kind(), show(value))
}

fn show(value: Value<'_>) -> String {
    match value {
        Value::Str(text) if text.chars().count() > SHOWN => {
            let start: String = text.chars().take(SHOWN).collect();
            format!("{start:?}... ({} bytes)", text.len())
        }
        Value::Str(text) => format!("{text:?}"),
        Value::Array(array) => format!("{} elements of {}", array.len(), array.element_type()),
        Value::F32(value) => format!("{value:?}"),
        Value::F64(value) => format!("{value:?}"),
        Value::Bool(value) => value.to_string(),
        integer => integer.as_integer().map_or_else(String::new, |value| value.to_string()),
    }
}
