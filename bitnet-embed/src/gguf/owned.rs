//! Metadata values of their own: to be written, or to stand in for a file's.

use std::fmt;

use super::{Array, Value, ValueType};

/// A metadata value of its own: to be written, or to stand in for a file's.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum OwnedValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    Array(OwnedArray),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl OwnedValue {
    /// The value as a file would lend it; errors about it will name `key`.
    pub fn as_value<'a>(&'a self, key: &'a str) -> Value<'a> {
        match self {
            Self::U8(value) => Value::U8(*value),
            Self::I8(value) => Value::I8(*value),
            Self::U16(value) => Value::U16(*value),
            Self::I16(value) => Value::I16(*value),
            Self::U32(value) => Value::U32(*value),
            Self::I32(value) => Value::I32(*value),
            Self::F32(value) => Value::F32(*value),
            Self::Bool(value) => Value::Bool(*value),
            Self::Str(value) => Value::Str(value),
            Self::Array(array) => Value::Array(Array::new(key, array.element, array.len, &array.bytes)),
            Self::U64(value) => Value::U64(*value),
            Self::I64(value) => Value::I64(*value),
            Self::F64(value) => Value::F64(*value),
        }
    }

    /// Appends the value's type and the value, as in a file.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.as_value("").kind().value.id().to_le_bytes());
        match self {
            Self::U8(value) => out.extend(value.to_le_bytes()),
            Self::I8(value) => out.extend(value.to_le_bytes()),
            Self::U16(value) => out.extend(value.to_le_bytes()),
            Self::I16(value) => out.extend(value.to_le_bytes()),
            Self::U32(value) => out.extend(value.to_le_bytes()),
            Self::I32(value) => out.extend(value.to_le_bytes()),
            Self::F32(value) => out.extend(value.to_le_bytes()),
            Self::Bool(value) => out.push(u8::from(*value)),
            Self::Str(value) => encode_string(value, out),
            Self::Array(array) => {
                out.extend(array.element.id().to_le_bytes());
                out.extend((array.len as u64).to_le_bytes());
                out.extend_from_slice(&array.bytes);
            }
            Self::U64(value) => out.extend(value.to_le_bytes()),
            Self::I64(value) => out.extend(value.to_le_bytes()),
            Self::F64(value) => out.extend(value.to_le_bytes()),
        }
    }
}

pub(super) fn encode_string(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// An array of its own, kept as it is written.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnedArray {
    element: ValueType,
    len: usize,
    bytes: Vec<u8>,
}

impl OwnedArray {
    pub(super) fn from_array(array: Array<'_>) -> Self {
        Self { element: array.element_type(), len: array.len(), bytes: array.bytes().to_owned() }
    }

    /// An array of strings.
    pub fn strings<S: AsRef<str>>(strings: impl IntoIterator<Item = S>) -> Self {
        let mut array = Self { element: ValueType::Str, len: 0, bytes: Vec::new() };
        for string in strings {
            encode_string(string.as_ref(), &mut array.bytes);
            array.len += 1;
        }
        array
    }
}

impl fmt::Debug for OwnedArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedArray({} x {})", self.len, self.element)
    }
}

macro_rules! owned {
    ($($variant:ident $ty:ty),+) => {$(
        impl From<$ty> for OwnedValue {
            fn from(value: $ty) -> Self {
                Self::$variant(value)
            }
        }

        impl From<&[$ty]> for OwnedArray {
            fn from(values: &[$ty]) -> Self {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                Self { element: ValueType::$variant, len: values.len(), bytes }
            }
        }
    )+};
}
owned!(U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64, F32 f32, F64 f64);

impl From<&[bool]> for OwnedArray {
    fn from(values: &[bool]) -> Self {
        let bytes = values.iter().map(|value| u8::from(*value)).collect();
        Self { element: ValueType::Bool, len: values.len(), bytes }
    }
}

impl From<bool> for OwnedValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for OwnedValue {
    fn from(value: &str) -> Self {
        Self::Str(value.to_owned())
    }
}

impl From<String> for OwnedValue {
    fn from(value: String) -> Self {
        Self::Str(value)
    }
}

impl From<OwnedArray> for OwnedValue {
    fn from(value: OwnedArray) -> Self {
        Self::Array(value)
    }
}
