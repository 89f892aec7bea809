//! A report on what is in a file, for people. Nothing in it can steer a terminal: text from the file is escaped.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use super::{Array, GgufFile, Metadata, TensorInfo, Value};

/// Elements of an array that are shown.
const SHOWN_ELEMENTS: usize = 4;
/// Characters of a string that are shown.
const SHOWN_CHARS: usize = 60;
/// The widest column of names; longer ones push their row to the right.
const NAME_WIDTH: usize = 48;

/// What is in a file, as text: see [`GgufFile::describe`].
#[derive(Debug)]
pub struct Description<'a> {
    version: u32,
    alignment: usize,
    file_len: usize,
    metadata: Metadata<'a>,
    tensors: &'a [TensorInfo],
}

impl<B: AsRef<[u8]>> GgufFile<B> {
    /// A report in lines of text: every metadata entry, with long values cut short, every tensor with its type, shape
    /// (slowest dimension first) and bytes, and the sums per type.
    ///
    /// It describes every file that this reader opens, whatever model it is of, and tensors of types that this crate does
    /// not decode.
    pub fn describe(&self) -> Description<'_> {
        Description {
            version: self.version(),
            alignment: self.alignment(),
            file_len: self.owner().as_ref().len(),
            metadata: self.metadata(),
            tensors: self.tensors(),
        }
    }
}

impl Display for Description<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "GGUF version {}, {} bytes, alignment {}", self.version, self.file_len, self.alignment)?;
        self.write_metadata(f)?;
        self.write_tensors(f)?;
        self.write_types(f)
    }
}

impl Description<'_> {
    fn write_metadata(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{} metadata entries", self.metadata.len())?;
        let width = name_width(self.metadata.keys());
        for key in self.metadata.keys() {
            // Only a file that changed since it was opened has lost a value.
            let Some(value) = self.metadata.value(key) else { continue };
            writeln!(f, "  {:width$}  {:13}  {}", plain(key), value.kind().to_string(), Short(value))?;
        }
        Ok(())
    }

    fn write_tensors(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{} tensors", self.tensors.len())?;
        let width = name_width(self.tensors.iter().map(TensorInfo::name));
        for tensor in self.tensors {
            let shape = format!("{:?}", tensor.shape());
            writeln!(
                f,
                "  {:width$}  {:13}  {shape:16}  {}",
                plain(tensor.name()),
                type_name(tensor),
                bytes(tensor.byte_len())
            )?;
        }
        Ok(())
    }

    fn write_types(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut types = BTreeMap::<u32, (String, usize, Option<usize>)>::new();
        for tensor in self.tensors {
            let entry = types.entry(tensor.type_id()).or_insert_with(|| (type_name(tensor), 0, Some(0)));
            entry.1 += 1;
            // Tensors do not overlap, so the sum is at most the length of the file.
            entry.2 = entry.2.zip(tensor.byte_len()).map(|(sum, byte_len)| sum + byte_len);
        }
        writeln!(f, "\n{} tensor types", types.len())?;
        for (name, count, byte_len) in types.values() {
            writeln!(f, "  {name:13}  {count:5} tensors  {}", bytes(*byte_len))?;
        }
        Ok(())
    }
}

fn type_name(tensor: &TensorInfo) -> String {
    match tensor.type_name() {
        "unknown" => format!("unknown ({})", tensor.type_id()),
        name => name.to_owned(),
    }
}

fn bytes(byte_len: Option<usize>) -> String {
    byte_len.map_or_else(|| "unknown size".to_owned(), |byte_len| format!("{byte_len} bytes"))
}

/// Text of the file without quotes around it, with everything escaped that is not plainly visible.
fn plain(text: &str) -> String {
    text.escape_debug().to_string()
}

fn name_width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| plain(name).chars().count()).filter(|width| *width <= NAME_WIDTH).max().unwrap_or(0)
}

/// A value in one line of bounded length.
struct Short<'a>(Value<'a>);

impl Display for Short<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::U8(value) => value.fmt(f),
            Value::I8(value) => value.fmt(f),
            Value::U16(value) => value.fmt(f),
            Value::I16(value) => value.fmt(f),
            Value::U32(value) => value.fmt(f),
            Value::I32(value) => value.fmt(f),
            Value::U64(value) => value.fmt(f),
            Value::I64(value) => value.fmt(f),
            // `{:?}` turns to exponents where `{}` would print a row of zeros.
            Value::F32(value) => write!(f, "{value:?}"),
            Value::F64(value) => write!(f, "{value:?}"),
            Value::Bool(value) => value.fmt(f),
            Value::Str(text) => write_text(f, text),
            Value::Array(array) => write_array(f, array),
        }
    }
}

fn write_text(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => write!(f, "{:?}... ({} bytes)", &text[..end], text.len()),
        None => write!(f, "{text:?}"),
    }
}

fn write_array(f: &mut Formatter<'_>, array: Array<'_>) -> fmt::Result {
    write!(f, "{} elements: [", array.len())?;
    for (index, element) in array.values().take(SHOWN_ELEMENTS).enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        match element {
            Ok(Value::Array(inner)) => write!(f, "{comma}({} x {})", inner.len(), inner.element_type())?,
            Ok(value) => write!(f, "{comma}{}", Short(value))?,
            Err(_) => write!(f, "{comma}<not UTF-8>")?,
        }
    }
    f.write_str(if array.len() > SHOWN_ELEMENTS { ", ...]" } else { "]" })
}

#[cfg(test)]
mod tests {
    use super::super::{GgufWriter, OwnedArray};
    use super::*;
    use burn_i2s::ggml::GgmlType;

    #[test]
    fn a_report_shows_everything_and_escapes_what_could_steer_a_terminal() {
        let mut writer = GgufWriter::new();
        writer.metadata("general.name", "\x1b[31mred \u{202e}x").unwrap();
        writer.metadata("evil\nkey", 1u8).unwrap();
        writer.metadata("eps", 1e-6f32).unwrap();
        writer.metadata("long", "é".repeat(100)).unwrap();
        writer.metadata("tokens", OwnedArray::strings(["a", "\u{7}", "c", "d", "e"])).unwrap();
        writer.metadata("mask", OwnedArray::from(&[true, false][..])).unwrap();
        writer.tensor("norm", GgmlType::F32, &[3]).unwrap();
        writer.tensor("\x1b]0;q", GgmlType::I2_S, &[2, 128]).unwrap();
        let mut tensors = writer.write_to(Vec::new()).unwrap();
        tensors.write("norm", &[0; 12]).unwrap();
        tensors.write("\x1b]0;q", &[0; 96]).unwrap();
        let file = GgufFile::from_owner(tensors.finish().unwrap()).unwrap();
        let length = file.owner().len();
        let expected = format!(
            r#"GGUF version 3, {length} bytes, alignment 32

6 metadata entries
  general.name  str            "\u{{1b}}[31mred \u{{202e}}x"
  evil\nkey     u8             1
  eps           f32            1e-6
  long          str            "{}"... (200 bytes)
  tokens        array of str   5 elements: ["a", "\u{{7}}", "c", "d", ...]
  mask          array of bool  2 elements: [true, false]

2 tensors
  norm        F32            [3]               12 bytes
  \u{{1b}}]0;q  I2_S           [2, 128]          96 bytes

2 tensor types
  F32                1 tensors  12 bytes
  I2_S               1 tensors  96 bytes
"#,
            "é".repeat(60)
        );
        assert_eq!(file.describe().to_string(), expected);
    }
}
