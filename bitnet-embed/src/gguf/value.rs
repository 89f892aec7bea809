//! Metadata values: scalars, strings, and arrays that stay encoded.

use std::fmt;
use std::iter::Map;
use std::slice::Iter;

use super::cursor::{Cursor, Short};
use super::{GgufError, MAX_ARRAY_DEPTH, Part};

/// The type of a metadata value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Str,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// Every type; its position is GGUF's number of it.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::Str,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type with that GGUF number.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// GGUF's number of the type.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// `u8`, `f32`, `bool`, `str`, `array` and so on.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::Str => "str",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// Bytes of one value, for the types where that does not depend on the value.
    fn size(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Str | Self::Array => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of a metadata value and, for an array, of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueKind {
    /// The type of the value itself.
    pub value: ValueType,
    /// The type of an array's elements; `None` for everything else, and for an array of whatever type.
    pub element: Option<ValueType>,
}

impl ValueKind {
    pub(super) const fn array(element: ValueType) -> Self {
        Self { value: ValueType::Array, element: Some(element) }
    }
}

impl From<ValueType> for ValueKind {
    fn from(value: ValueType) -> Self {
        Self { value, element: None }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.element {
            Some(element) => write!(f, "{} of {element}", self.value),
            None => write!(f, "{}", self.value),
        }
    }
}

/// A metadata value, borrowed from the file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(&'a str),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// The value's type.
    pub fn kind(&self) -> ValueKind {
        match self {
            Self::U8(_) => ValueType::U8.into(),
            Self::I8(_) => ValueType::I8.into(),
            Self::U16(_) => ValueType::U16.into(),
            Self::I16(_) => ValueType::I16.into(),
            Self::U32(_) => ValueType::U32.into(),
            Self::I32(_) => ValueType::I32.into(),
            Self::F32(_) => ValueType::F32.into(),
            Self::Bool(_) => ValueType::Bool.into(),
            Self::Str(_) => ValueType::Str.into(),
            Self::Array(array) => ValueKind::array(array.element),
            Self::U64(_) => ValueType::U64.into(),
            Self::I64(_) => ValueType::I64.into(),
            Self::F64(_) => ValueType::F64.into(),
        }
    }

    /// The value as a number, if it is an integer of any width.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(value) => value.into(),
            Self::I8(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::U64(value) => value.into(),
            Self::I64(value) => value.into(),
            _ => return None,
        })
    }

    /// The same value, free of the file.
    pub fn into_owned(self) -> OwnedValue {
        match self {
            Self::U8(value) => OwnedValue::U8(value),
            Self::I8(value) => OwnedValue::I8(value),
            Self::U16(value) => OwnedValue::U16(value),
            Self::I16(value) => OwnedValue::I16(value),
            Self::U32(value) => OwnedValue::U32(value),
            Self::I32(value) => OwnedValue::I32(value),
            Self::F32(value) => OwnedValue::F32(value),
            Self::Bool(value) => OwnedValue::Bool(value),
            Self::Str(value) => OwnedValue::Str(value.to_owned()),
            Self::Array(array) => OwnedValue::Array(array.into_owned()),
            Self::U64(value) => OwnedValue::U64(value),
            Self::I64(value) => OwnedValue::I64(value),
            Self::F64(value) => OwnedValue::F64(value),
        }
    }

    /// Reads a value, with every length in it checked. Strings that are elements of arrays are measured, not validated.
    pub(super) fn read(cursor: &mut Cursor<'a>, key: &'a str, ty: ValueType) -> Result<Self, Fault> {
        read_nested(cursor, key, ty, 0)
    }
}

/// An array, still encoded as in the file. The lengths in it have been checked.
#[derive(Clone, Copy)]
pub struct Array<'a> {
    key: &'a str,
    element: ValueType,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    pub(super) fn new(key: &'a str, element: ValueType, len: usize, bytes: &'a [u8]) -> Self {
        Self { key, element, len, bytes }
    }

    /// The type of the elements.
    pub fn element_type(&self) -> ValueType {
        self.element
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements as they are in the file, without the array's own type and length.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The elements of an array of strings.
    ///
    /// # Errors
    /// When it is an array of something else; an element is an error when it is not UTF-8.
    pub fn strings(
        &self,
    ) -> Result<impl ExactSizeIterator<Item = Result<&'a str, GgufError>> + Clone + use<'a>, GgufError> {
        self.expect(ValueType::Str)?;
        let key = self.key;
        let mut cursor = Cursor::new(self.bytes);
        Ok((0..self.len).map(move |_| {
            let bytes = cursor.string().map_err(|short| Fault::from(short).in_value(key))?;
            str::from_utf8(bytes).map_err(|_| Fault::NotUtf8.in_value(key))
        }))
    }

    /// The elements of an array of `f32`.
    ///
    /// # Errors
    /// When it is an array of something else.
    pub fn f32s(&self) -> Result<impl ExactSizeIterator<Item = f32> + Clone + use<'a>, GgufError> {
        self.fixed(ValueType::F32, |bytes| f32::from_le_bytes(*bytes))
    }

    /// The elements of an array of `i32`.
    ///
    /// # Errors
    /// When it is an array of something else.
    pub fn i32s(&self) -> Result<impl ExactSizeIterator<Item = i32> + Clone + use<'a>, GgufError> {
        self.fixed(ValueType::I32, |bytes| i32::from_le_bytes(*bytes))
    }

    /// The elements of an array of `u32`.
    ///
    /// # Errors
    /// When it is an array of something else.
    pub fn u32s(&self) -> Result<impl ExactSizeIterator<Item = u32> + Clone + use<'a>, GgufError> {
        self.fixed(ValueType::U32, |bytes| u32::from_le_bytes(*bytes))
    }

    /// The elements of an array of `bool`.
    ///
    /// # Errors
    /// When it is an array of something else.
    pub fn bools(&self) -> Result<impl ExactSizeIterator<Item = bool> + Clone + use<'a>, GgufError> {
        self.fixed(ValueType::Bool, |[byte]| *byte != 0)
    }

    /// The elements, of whatever type.
    pub fn values(&self) -> impl Iterator<Item = Result<Value<'a>, GgufError>> + use<'a> {
        let Self { key, element, len, bytes } = *self;
        let mut cursor = Cursor::new(bytes);
        // An array inside an array has been measured when the file was opened, as part of the outer one.
        (0..len).map(move |_| Value::read(&mut cursor, key, element).map_err(|fault| fault.in_value(key)))
    }

    /// The same array, free of the file.
    pub fn into_owned(self) -> OwnedArray {
        OwnedArray { element: self.element, len: self.len, bytes: self.bytes.to_owned() }
    }

    fn fixed<T, F, const N: usize>(&self, ty: ValueType, decode: F) -> Result<Map<Iter<'a, [u8; N]>, F>, GgufError>
    where
        F: Fn(&'a [u8; N]) -> T,
    {
        self.expect(ty)?;
        Ok(self.bytes.as_chunks::<N>().0.iter().map(decode))
    }

    fn expect(&self, element: ValueType) -> Result<(), GgufError> {
        if self.element == element {
            return Ok(());
        }
        let (expected, found) = (ValueKind::array(element), ValueKind::array(self.element));
        Err(GgufError::ValueType { key: self.key.to_owned(), expected, found })
    }
}

/// Equal elements of one type; the key they were found under does not matter.
impl PartialEq for Array<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.element, self.len, self.bytes) == (other.element, other.len, other.bytes)
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} x {})", self.len, self.element)
    }
}

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

/// What is wrong with an encoded value, before its key is attached.
#[derive(Debug)]
pub(super) enum Fault {
    Short(Short),
    UnknownType(u32),
    InvalidBool(u8),
    NotUtf8,
    TooDeep(usize),
}

impl From<Short> for Fault {
    fn from(short: Short) -> Self {
        Self::Short(short)
    }
}

impl Fault {
    pub(super) fn in_value(self, key: &str) -> GgufError {
        let key = key.to_owned();
        match self {
            Self::Short(short) => short.at(Part::MetadataValue(key)),
            Self::UnknownType(id) => GgufError::UnknownValueType { key, id },
            Self::InvalidBool(found) => GgufError::InvalidBool { key, found },
            Self::NotUtf8 => GgufError::NotUtf8 { part: Part::MetadataValue(key) },
            Self::TooDeep(depth) => GgufError::Limit {
                part: Part::MetadataValue(key),
                what: "the depth of nested arrays",
                found: depth as u64,
                limit: MAX_ARRAY_DEPTH,
            },
        }
    }
}

pub(super) fn read_type(cursor: &mut Cursor<'_>) -> Result<ValueType, Fault> {
    let id = cursor.u32()?;
    ValueType::from_id(id).ok_or(Fault::UnknownType(id))
}

fn read_nested<'a>(cursor: &mut Cursor<'a>, key: &'a str, ty: ValueType, depth: usize) -> Result<Value<'a>, Fault> {
    Ok(match ty {
        ValueType::U8 => Value::U8(u8::from_le_bytes(cursor.array()?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.array()?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.array()?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.array()?)),
        ValueType::U32 => Value::U32(cursor.u32()?),
        ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.array()?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.array()?)),
        ValueType::U64 => Value::U64(cursor.u64()?),
        ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.array()?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.array()?)),
        ValueType::Bool => match cursor.array()? {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            [other] => return Err(Fault::InvalidBool(other)),
        },
        ValueType::Str => Value::Str(str::from_utf8(cursor.string()?).map_err(|_| Fault::NotUtf8)?),
        ValueType::Array => Value::Array(read_array(cursor, key, depth + 1)?),
    })
}

fn read_array<'a>(cursor: &mut Cursor<'a>, key: &'a str, depth: usize) -> Result<Array<'a>, Fault> {
    if depth > MAX_ARRAY_DEPTH {
        return Err(Fault::TooDeep(depth));
    }
    let element = read_type(cursor)?;
    let len = cursor.u64()?;
    let mut start = cursor.clone();
    match (element, element.size()) {
        (_, Some(size)) => {
            let bytes = cursor.take(len.saturating_mul(size as u64))?;
            if element == ValueType::Bool
                && let Some(byte) = bytes.iter().find(|byte| **byte > 1)
            {
                return Err(Fault::InvalidBool(*byte));
            }
        }
        (ValueType::Str, _) => {
            cursor.expect(len, 8)?;
            for _ in 0..len {
                cursor.string()?;
            }
        }
        _ => {
            cursor.expect(len, 12)?;
            for _ in 0..len {
                read_array(cursor, key, depth + 1)?;
            }
        }
    }
    let bytes = start.take((cursor.position() - start.position()) as u64)?;
    // Every element takes at least one byte of the file, so the count fits.
    Ok(Array::new(key, element, len as usize, bytes))
}
