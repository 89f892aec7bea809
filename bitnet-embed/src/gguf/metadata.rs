//! The metadata of a file: which keys it has, where their values are, and typed access to them.

use std::fmt;
use std::ops::Range;

use super::cursor::Cursor;
use super::value::{Fault, read_type};
use super::{Array, GgufError, MAX_NAME_BYTES, OwnedValue, Part, Value, ValueKind, ValueType};

/// Where the metadata of a file is.
#[derive(Debug)]
pub(super) struct Index {
    entries: Vec<Entry>,
    /// Positions in `entries`, ordered by key.
    by_key: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    key: String,
    ty: ValueType,
    /// Element type and count, for an array.
    array: Option<(ValueType, usize)>,
    /// The bytes of the scalar, the string or the elements.
    range: Range<usize>,
}

impl Index {
    /// Reads `count` entries; the caller has checked that this many can be in the file.
    pub(super) fn read(cursor: &mut Cursor<'_>, count: usize) -> Result<Self, GgufError> {
        let mut entries = Vec::with_capacity(count);
        for index in 0..count {
            entries.push(Entry::read(cursor, index)?);
        }
        let by_key = sorted_unique(&entries, |entry| &entry.key)
            .map_err(|entry| GgufError::DuplicateKey { key: entry.key.clone() })?;
        Ok(Self { entries, by_key })
    }

    fn find(&self, key: &str) -> Option<&Entry> {
        find_sorted(&self.entries, &self.by_key, |entry| &entry.key, key)
    }
}

impl Entry {
    fn read(cursor: &mut Cursor<'_>, index: usize) -> Result<Self, GgufError> {
        let key = read_name(cursor, || Part::MetadataKey(index))?;
        let in_value = |fault: Fault| fault.in_value(key);
        let ty = read_type(cursor).map_err(in_value)?;
        let value = Value::read(cursor, key, ty).map_err(in_value)?;
        let end = cursor.position();
        let (array, length) = match value {
            Value::Array(array) => (Some((array.element_type(), array.len())), array.bytes().len()),
            Value::Str(text) => (None, text.len()),
            Value::U8(_) | Value::I8(_) | Value::Bool(_) => (None, 1),
            Value::U16(_) | Value::I16(_) => (None, 2),
            Value::U32(_) | Value::I32(_) | Value::F32(_) => (None, 4),
            Value::U64(_) | Value::I64(_) | Value::F64(_) => (None, 8),
        };
        Ok(Self { ty, array, range: end - length..end, key: key.to_owned() })
    }
}

/// Reads a metadata key or a tensor name.
pub(super) fn read_name<'a>(cursor: &mut Cursor<'a>, part: impl Fn() -> Part) -> Result<&'a str, GgufError> {
    let bytes = cursor.string().map_err(|short| short.at(part()))?;
    if bytes.len() > MAX_NAME_BYTES {
        let (what, found) = ("the length of a name", bytes.len() as u64);
        return Err(GgufError::Limit { part: part(), what, found, limit: MAX_NAME_BYTES });
    }
    str::from_utf8(bytes).map_err(|_| GgufError::NotUtf8 { part: part() })
}

/// The positions of `items` in the order of their names, or an item whose name appears twice.
pub(super) fn sorted_unique<T>(items: &[T], name: impl Fn(&T) -> &str) -> Result<Vec<u32>, &T> {
    // The limits on both kinds of item keep their number far below 2^32.
    let mut order: Vec<u32> = (0..items.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| name(&items[a as usize]).cmp(name(&items[b as usize])));
    let same = |pair: &&[u32]| name(&items[pair[0] as usize]) == name(&items[pair[1] as usize]);
    match order.windows(2).find(same) {
        Some(pair) => Err(&items[pair[0] as usize]),
        None => Ok(order),
    }
}

/// The item of that name, by the order that [`sorted_unique`] made.
pub(super) fn find_sorted<'a, T>(
    items: &'a [T],
    order: &[u32],
    name: impl Fn(&T) -> &str,
    wanted: &str,
) -> Option<&'a T> {
    let position = order.binary_search_by(|&index| name(&items[index as usize]).cmp(wanted)).ok()?;
    items.get(order[position] as usize)
}

/// The metadata of a file, with overrides in front of it if there are any.
///
/// The typed getters return `Ok(None)` for an absent key and an error for a value of another type.
#[derive(Clone, Copy)]
pub struct Metadata<'a> {
    index: &'a Index,
    bytes: &'a [u8],
    overrides: &'a [(String, OwnedValue)],
}

impl<'a> Metadata<'a> {
    pub(super) fn new(index: &'a Index, bytes: &'a [u8]) -> Self {
        Self { index, bytes, overrides: &[] }
    }

    /// The same metadata, where `overrides` replace or add values. The last of several with one key counts.
    pub fn with_overrides(self, overrides: &'a [(String, OwnedValue)]) -> Self {
        Self { overrides, ..self }
    }

    /// How many entries the file has.
    pub fn len(&self) -> usize {
        self.index.entries.len()
    }

    /// Whether the file has no metadata.
    pub fn is_empty(&self) -> bool {
        self.index.entries.is_empty()
    }

    /// The keys of the file, in file order. Keys that only an override has are not among them.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &'a str> + Clone + use<'a> {
        self.index.entries.iter().map(|entry| entry.key.as_str())
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<Value<'a>> {
        if let Some((key, value)) = self.overrides.iter().rev().find(|(name, _)| name == key) {
            return Some(value.as_value(key));
        }
        let entry = self.index.find(key)?;
        // What was checked when the file was opened is checked again, cheaply: should the bytes have changed since, then
        // the value is gone, and nothing worse.
        let bytes = self.bytes.get(entry.range.clone())?;
        match (entry.ty, entry.array) {
            (_, Some((element, len))) => Some(Value::Array(Array::new(&entry.key, element, len, bytes))),
            (ValueType::Str, _) => str::from_utf8(bytes).ok().map(Value::Str),
            (ty, _) => Value::read(&mut Cursor::new(bytes), &entry.key, ty).ok(),
        }
    }

    /// An unsigned integer; any integer type is taken if the value fits.
    ///
    /// # Errors
    /// [`GgufError::ValueType`], [`GgufError::ValueRange`].
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.integer(key, ValueType::U32)
    }

    /// An unsigned integer; any integer type is taken if the value fits.
    ///
    /// # Errors
    /// [`GgufError::ValueType`], [`GgufError::ValueRange`].
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.integer(key, ValueType::U64)
    }

    /// A float; an `f64` is rounded.
    ///
    /// # Errors
    /// [`GgufError::ValueType`].
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.get(key, ValueType::F32, |value| match value {
            Value::F32(value) => Some(value),
            Value::F64(value) => Some(value as f32),
            _ => None,
        })
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`GgufError::ValueType`].
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.get(key, ValueType::Bool, |value| match value {
            Value::Bool(value) => Some(value),
            _ => None,
        })
    }

    /// A string.
    ///
    /// # Errors
    /// [`GgufError::ValueType`].
    pub fn str(&self, key: &str) -> Result<Option<&'a str>, GgufError> {
        self.get(key, ValueType::Str, |value| match value {
            Value::Str(value) => Some(value),
            _ => None,
        })
    }

    /// An array, of whatever type.
    ///
    /// # Errors
    /// [`GgufError::ValueType`].
    pub fn array(&self, key: &str) -> Result<Option<Array<'a>>, GgufError> {
        self.get(key, ValueType::Array, |value| match value {
            Value::Array(value) => Some(value),
            _ => None,
        })
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, ty: ValueType) -> Result<Option<T>, GgufError> {
        let Some(found) = self.get(key, ty, |value| value.as_integer())? else { return Ok(None) };
        match T::try_from(found) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(GgufError::ValueRange { key: key.to_owned(), expected: ty.into(), found }),
        }
    }

    fn get<T>(
        &self,
        key: &str,
        expected: ValueType,
        take: impl Fn(Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match take(value) {
            Some(value) => Ok(Some(value)),
            None => {
                let (expected, found): (ValueKind, _) = (expected.into(), value.kind());
                Err(GgufError::ValueType { key: key.to_owned(), expected, found })
            }
        }
    }
}

impl fmt::Debug for Metadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.keys().map(|key| (key, self.value(key)))).finish()
    }
}
