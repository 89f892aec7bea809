//! The header of one safetensors file: what tensors it has and where, checked against the length of the file.
//!
//! ```text
//! u64 length of the header | header: JSON object, tensor -> dtype, shape, data_offsets | data
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use bitnet_embed::json::parse;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::checkpoint::{CheckpointError, Dtype, MAX_HEADER_BYTES, TensorEntry};

#[derive(Deserialize)]
struct HeaderEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// A JSON object whose keys must differ; `serde_json` alone would keep the last of two equal keys.
struct Header(Vec<(String, HeaderEntry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let entry = map.next_value()?;
                    match entries.entry(name) {
                        Entry::Vacant(slot) => slot.insert(entry),
                        Entry::Occupied(slot) => {
                            return Err(A::Error::custom(format_args!("tensor {} is named twice", slot.key())));
                        }
                    };
                }
                Ok(Header(entries.into_iter().collect()))
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// Reads and checks the header of one safetensors file; its tensors come sorted by name.
pub(crate) fn read_header(mut file: &File, path: &Path, shard: usize) -> Result<Vec<TensorEntry>, CheckpointError> {
    let fail = |source| CheckpointError::Read { path: path.to_owned(), source };
    let file_len = file.metadata().map_err(fail)?.len();
    let mut length = [0; 8];
    if file_len < 8 {
        return Err(CheckpointError::HeaderPastEnd { path: path.to_owned(), header: 8, file: file_len });
    }
    file.read_exact(&mut length).map_err(fail)?;
    let header_len = u64::from_le_bytes(length);
    if header_len > file_len - 8 {
        return Err(CheckpointError::HeaderPastEnd { path: path.to_owned(), header: header_len, file: file_len });
    }
    if header_len > MAX_HEADER_BYTES {
        return Err(CheckpointError::TooLong { path: path.to_owned(), found: header_len, limit: MAX_HEADER_BYTES });
    }
    let mut json = Vec::new();
    file.take(header_len).read_to_end(&mut json).map_err(fail)?;
    let Header(entries) = parse(&json).map_err(|source| CheckpointError::Json {
        path: path.to_owned(),
        what: "the safetensors header",
        source,
    })?;

    let data_start = 8 + header_len;
    let data_len = file_len - data_start;
    check_layout(&entries, path, data_len)?;
    Ok(entries
        .into_iter()
        .map(|(name, entry)| TensorEntry {
            name,
            dtype: Dtype::from_name(&entry.dtype),
            shape: entry.shape,
            shard,
            offset: data_start + entry.data_offsets.0,
        })
        .collect())
}

/// The tensors must tile the data exactly, as the format demands, and each must be as long as its shape says.
fn check_layout(entries: &[(String, HeaderEntry)], path: &Path, data_len: u64) -> Result<(), CheckpointError> {
    let mut order: Vec<_> = entries.iter().collect();
    order.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut end = 0_u64;
    for (name, entry) in order {
        let (from, to) = entry.data_offsets;
        let wrong = |expected: String| CheckpointError::Offsets {
            path: path.to_owned(),
            tensor: name.clone(),
            expected,
            found: entry.data_offsets,
        };
        if from != end || to < from {
            return Err(wrong(format!("{end}..")));
        }
        let elements = entry.shape.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim));
        let bytes = match Dtype::from_name(&entry.dtype).size() {
            Some(size) => elements.and_then(|count| count.checked_mul(size)).map(|bytes| bytes as u64),
            None => elements.map(|_| to - from),
        };
        match bytes {
            None => return Err(wrong(format!("less than 2^64 values, not shape {:?}", entry.shape))),
            Some(bytes) if bytes != to - from => {
                return Err(wrong(format!("{end}.. of {bytes} bytes for {} {:?}", entry.dtype, entry.shape)));
            }
            Some(_) => end = to,
        }
    }
    if end != data_len {
        return Err(CheckpointError::DataLength { path: path.to_owned(), expected: end, found: data_len });
    }
    Ok(())
}
