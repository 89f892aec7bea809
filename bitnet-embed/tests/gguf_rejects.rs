//! Every way in which a GGUF file can be wrong, one test each: what is refused, and by which name.

use bitnet_embed::gguf::{
    GgufError, GgufFile, MAX_ARRAY_DEPTH, MAX_METADATA, MAX_NAME_BYTES, MAX_TENSORS, Part, Value, ValueType,
};

/// A file put together from parts that need not fit.
#[derive(Clone)]
struct Builder {
    magic: [u8; 4],
    version: u32,
    metadata: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    counts: Option<(u64, u64)>,
    alignment: usize,
    data: Vec<u8>,
}

const F32: u32 = 0;
const Q4_0: u32 = 2;
const I2_S: u32 = 36;
const UNKNOWN: u32 = 1000;

fn file() -> Builder {
    Builder {
        magic: *b"GGUF",
        version: 3,
        metadata: Vec::new(),
        tensors: Vec::new(),
        counts: None,
        alignment: 32,
        data: Vec::new(),
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

fn array(element: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [&element.to_le_bytes()[..], &len.to_le_bytes(), elements].concat()
}

impl Builder {
    fn raw_metadata(mut self, key: &[u8], ty: u32, value: &[u8]) -> Self {
        self.metadata.push([&string(key), &ty.to_le_bytes()[..], value].concat());
        self
    }

    fn metadata(self, key: &str, ty: ValueType, value: &[u8]) -> Self {
        self.raw_metadata(key.as_bytes(), ty.id(), value)
    }

    fn raw_tensor(mut self, name: &[u8], dims: &[u64], ty: u32, offset: u64) -> Self {
        let dims_bytes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        let parts = [&string(name)[..], &(dims.len() as u32).to_le_bytes(), &dims_bytes, &ty.to_le_bytes()];
        self.tensors.push([&parts.concat()[..], &offset.to_le_bytes()].concat());
        self
    }

    fn tensor(self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Self {
        self.raw_tensor(name.as_bytes(), dims, ty, offset)
    }

    fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = data.into();
        self
    }

    fn header(&self) -> Vec<u8> {
        let (tensors, metadata) = self.counts.unwrap_or((self.tensors.len() as u64, self.metadata.len() as u64));
        let counts = [tensors.to_le_bytes(), metadata.to_le_bytes()].concat();
        [&self.magic[..], &self.version.to_le_bytes(), &counts, &self.metadata.concat(), &self.tensors.concat()]
            .concat()
    }

    fn build(&self) -> Vec<u8> {
        let mut bytes = self.header();
        bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        bytes.extend_from_slice(&self.data);
        bytes
    }

    fn open(&self) -> Result<GgufFile<Vec<u8>>, GgufError> {
        GgufFile::from_owner(self.build())
    }

    fn error(&self) -> GgufError {
        self.open().expect_err("the file is wrong")
    }
}

/// I2_S weights: `code_bytes`, then the scale and its padding.
fn i2s(code_bytes: &[u8], scale: f32) -> Vec<u8> {
    [code_bytes, &scale.to_le_bytes(), &[0; 28]].concat()
}

macro_rules! assert_refused {
    ($error:expr, $pattern:pat $(if $guard:expr)?, $message:expr) => {
        let error = $error;
        assert!(matches!(error, $pattern $(if $guard)?), "{error:?}");
        assert_eq!(error.to_string(), $message);
    };
}

#[test]
fn accepts_the_smallest_files() {
    let empty = file().open().unwrap();
    assert!(empty.metadata().is_empty() && empty.tensors().is_empty());
    let bare = GgufFile::from_owner(file().header()).unwrap();
    assert_eq!(bare.data_start(), 32, "the padding may be missing when there is no data");
    for version in [2, 3] {
        let file = Builder { version, ..file().tensor("a", &[2], F32, 0).data([0; 8]) }.open().unwrap();
        assert_eq!((file.version(), file.tensors()[0].byte_len()), (version, Some(8)));
    }
}

#[test]
fn rejects_another_magic() {
    assert_refused!(
        Builder { magic: *b"GGML", ..file() }.error(),
        GgufError::Magic { .. },
        "not a GGUF file: it starts with \"GGML\", not \"GGUF\""
    );
    assert_refused!(
        GgufFile::from_owner(b"\x1bG").unwrap_err(),
        GgufError::Magic { ref found } if found == b"\x1bG",
        "not a GGUF file: it starts with \"\\\\x1bG\", not \"GGUF\""
    );
}

#[test]
fn rejects_other_versions_by_number() {
    for found in [0, 1, 4, u32::MAX] {
        assert_refused!(
            Builder { version: found, ..file() }.error(),
            GgufError::Version { .. },
            format!("GGUF version {found} is not supported, only 2 and 3 are")
        );
    }
}

#[test]
fn rejects_big_endian_by_version() {
    for version in 1..=3u32 {
        assert_refused!(
            Builder { version: version.swap_bytes(), ..file() }.error(),
            GgufError::BigEndian { .. },
            format!("big-endian GGUF (version {version}) is not supported")
        );
    }
}

#[test]
fn rejects_counts_that_the_file_cannot_hold() {
    for counts in [(u64::MAX, 0), (0, u64::MAX), (1, 0), (0, 1), (1 << 60, 1 << 60)] {
        let error = Builder { counts: Some(counts), ..file() }.error();
        assert!(matches!(error, GgufError::Truncated { part: Part::Header, .. }), "{counts:?}: {error:?}");
    }
    assert_refused!(
        Builder { counts: Some((0, 3)), ..file() }.error(),
        GgufError::Truncated { .. },
        "the header needs 39 bytes at offset 24, 8 are left in the file"
    );
}

#[test]
fn rejects_counts_over_the_limits() {
    let roomy = file().data(vec![0; (MAX_METADATA + 1) * 32]);
    assert_refused!(
        Builder { counts: Some((0, MAX_METADATA as u64 + 1)), ..roomy.clone() }.error(),
        GgufError::Limit { .. },
        "the header: the number of metadata entries is 65537, the limit is 65536"
    );
    assert_refused!(
        Builder { counts: Some((MAX_TENSORS as u64 + 1, 0)), ..roomy }.error(),
        GgufError::Limit { .. },
        "the header: the number of tensors is 65537, the limit is 65536"
    );
}

#[test]
fn rejects_lengths_past_the_end() {
    let key = Builder { metadata: vec![[&u64::MAX.to_le_bytes()[..], &[b'k'; 20]].concat()], ..file() };
    assert!(matches!(key.error(), GgufError::Truncated { part: Part::MetadataKey(0), needed: u64::MAX, .. }));
    let text = file().metadata("k", ValueType::Str, &(1u64 << 40).to_le_bytes());
    assert!(matches!(text.error(), GgufError::Truncated { part: Part::MetadataValue(key), .. } if key == "k"));
    let name = Builder { tensors: vec![[&1000u64.to_le_bytes()[..], &[0; 32]].concat()], ..file() };
    assert!(matches!(name.error(), GgufError::Truncated { part: Part::TensorInfo(0), needed: 1000, .. }));
}

#[test]
fn rejects_array_lengths_past_the_end() {
    for element in ValueType::ALL {
        for len in [1000, 1 << 33, 1 << 61, u64::MAX] {
            let file = file().metadata("k", ValueType::Array, &array(element.id(), len, &[0; 64]));
            assert!(
                matches!(file.error(), GgufError::Truncated { part: Part::MetadataValue(key), .. } if key == "k"),
                "{len} x {element}"
            );
        }
    }
}

#[test]
fn rejects_names_over_the_limit() {
    let long = vec![b'n'; MAX_NAME_BYTES + 1];
    let longest = &long[1..];
    let message = "the length of a name is 65536, the limit is 65535";
    assert_refused!(
        file().raw_metadata(&long, 0, &[0]).error(),
        GgufError::Limit { part: Part::MetadataKey(0), .. },
        format!("the key of metadata entry 0: {message}")
    );
    assert_refused!(
        file().raw_tensor(&long, &[1], F32, 0).data([0; 4]).error(),
        GgufError::Limit { part: Part::TensorInfo(0), .. },
        format!("the description of tensor 0: {message}")
    );
    let accepted = file().raw_metadata(longest, 0, &[0]).raw_tensor(longest, &[1], F32, 0).data([0; 4]);
    assert!(accepted.open().is_ok());
}

#[test]
fn rejects_text_that_is_not_utf8() {
    let bad = b"a\xff";
    assert_refused!(
        file().raw_metadata(bad, 0, &[0]).error(),
        GgufError::NotUtf8 { part: Part::MetadataKey(0) },
        "the key of metadata entry 0 is not UTF-8"
    );
    assert_refused!(
        file().metadata("k", ValueType::Str, &string(bad)).error(),
        GgufError::NotUtf8 { part: Part::MetadataValue(_) },
        "the value of \"k\" is not UTF-8"
    );
    assert_refused!(
        file().raw_tensor(bad, &[1], F32, 0).data([0; 4]).error(),
        GgufError::NotUtf8 { part: Part::TensorInfo(0) },
        "the description of tensor 0 is not UTF-8"
    );
}

#[test]
fn rejects_array_strings_that_are_not_utf8_when_they_are_read() {
    let elements = [string(b"fine"), string(b"\xc0\x80")].concat();
    let file = file().metadata("k", ValueType::Array, &array(ValueType::Str.id(), 2, &elements)).open().unwrap();
    let mut strings = file.metadata().array("k").unwrap().unwrap().strings().unwrap();
    assert_eq!(strings.next().unwrap().unwrap(), "fine");
    assert!(matches!(strings.next().unwrap(), Err(GgufError::NotUtf8 { .. })));
    assert!(strings.next().is_none());
    assert_refused!(
        file.check_data().unwrap_err(),
        GgufError::NotUtf8 { part: Part::MetadataValue(_) },
        "the value of \"k\" is not UTF-8"
    );
}

#[test]
fn rejects_duplicate_keys() {
    let file = file().metadata("k", ValueType::U8, &[1]).metadata("b", ValueType::U8, &[1]);
    assert_refused!(
        file.metadata("k", ValueType::I8, &[2]).error(),
        GgufError::DuplicateKey { .. },
        "metadata key \"k\" appears twice"
    );
}

#[test]
fn rejects_duplicate_tensors_and_escapes_their_names() {
    assert_refused!(
        file().tensor("a\x1b[2J", &[1], F32, 0).tensor("a\x1b[2J", &[1], F32, 32).data([0; 64]).error(),
        GgufError::DuplicateTensor { .. },
        "tensor \"a\\u{1b}[2J\" appears twice"
    );
}

#[test]
fn rejects_unknown_value_types() {
    assert_refused!(
        file().raw_metadata(b"k", 13, &[0; 8]).error(),
        GgufError::UnknownValueType { id: 13, .. },
        "\"k\" has the unknown value type 13"
    );
    let elements = file().metadata("k", ValueType::Array, &array(99, 0, &[]));
    assert!(matches!(elements.error(), GgufError::UnknownValueType { id: 99, .. }));
}

#[test]
fn rejects_booleans_other_than_0_and_1() {
    assert_refused!(
        file().metadata("k", ValueType::Bool, &[2]).error(),
        GgufError::InvalidBool { found: 2, .. },
        "\"k\" holds a boolean with the value 2"
    );
    let elements = file().metadata("k", ValueType::Array, &array(ValueType::Bool.id(), 3, &[0, 1, 255]));
    assert!(matches!(elements.error(), GgufError::InvalidBool { found: 255, .. }));
}

#[test]
fn rejects_arrays_that_nest_too_deep() {
    let nested = |depth| {
        let mut value = array(ValueType::U8.id(), 2, &[7, 8]);
        for _ in 1..depth {
            value = array(ValueType::Array.id(), 1, &value);
        }
        file().metadata("k", ValueType::Array, &value)
    };
    assert_refused!(
        nested(MAX_ARRAY_DEPTH + 1).error(),
        GgufError::Limit { .. },
        "the value of \"k\": the depth of nested arrays is 5, the limit is 4"
    );
    let file = nested(MAX_ARRAY_DEPTH).open().unwrap();
    let mut value = file.metadata().value("k").unwrap();
    for _ in 1..MAX_ARRAY_DEPTH {
        let Value::Array(array) = value else { panic!("{value:?}") };
        value = array.values().next().unwrap().unwrap();
    }
    let Value::Array(innermost) = value else { panic!("{value:?}") };
    assert_eq!(innermost.bytes(), [7, 8]);
}

#[test]
fn rejects_values_of_another_type_when_they_are_asked_for() {
    let file = file().metadata("k", ValueType::F32, &1.5f32.to_le_bytes()).open().unwrap();
    let metadata = file.metadata();
    assert_eq!(metadata.f32("k").unwrap(), Some(1.5));
    assert_eq!(metadata.u32("absent").unwrap(), None);
    assert_refused!(metadata.u32("k").unwrap_err(), GgufError::ValueType { .. }, "\"k\" is f32, expected u32");
    assert_refused!(metadata.str("k").unwrap_err(), GgufError::ValueType { .. }, "\"k\" is f32, expected str");
    assert_refused!(metadata.bool("k").unwrap_err(), GgufError::ValueType { .. }, "\"k\" is f32, expected bool");
    assert_refused!(metadata.array("k").unwrap_err(), GgufError::ValueType { .. }, "\"k\" is f32, expected array");
}

#[test]
fn rejects_integers_that_do_not_fit() {
    let file = file()
        .metadata("negative", ValueType::I32, &(-1i32).to_le_bytes())
        .metadata("large", ValueType::U64, &(1u64 << 32).to_le_bytes())
        .metadata("fits", ValueType::I8, &[7])
        .open()
        .unwrap();
    let metadata = file.metadata();
    assert_refused!(
        metadata.u32("negative").unwrap_err(),
        GgufError::ValueRange { found: -1, .. },
        "\"negative\" is -1, which does not fit u32"
    );
    assert!(matches!(metadata.u32("large"), Err(GgufError::ValueRange { .. })));
    assert_eq!(metadata.u64("large").unwrap(), Some(1 << 32));
    assert_eq!(metadata.u32("fits").unwrap(), Some(7));
}

#[test]
fn rejects_alignments_that_are_none() {
    for found in [0u32, 3, 48, 1 << 17, u32::MAX] {
        assert_refused!(
            file().metadata("general.alignment", ValueType::U32, &found.to_le_bytes()).error(),
            GgufError::Alignment { .. },
            format!("alignment {found} is not a power of two up to 65536")
        );
    }
    assert_refused!(
        file().metadata("general.alignment", ValueType::U64, &32u64.to_le_bytes()).error(),
        GgufError::ValueType { .. },
        "\"general.alignment\" is u64, expected u32"
    );
    let other = file().metadata("general.alignment", ValueType::U32, &128u32.to_le_bytes());
    let other = Builder { alignment: 128, ..other.tensor("a", &[1], F32, 128).data([0; 132]) }.open().unwrap();
    assert_eq!((other.alignment(), other.data_start() % 128), (128, 0));
}

#[test]
fn rejects_dimension_counts() {
    for (dims, found) in [(&[][..], 0), (&[1; 5][..], 5)] {
        assert_refused!(
            file().tensor("a", dims, F32, 0).data([0; 64]).error(),
            GgufError::DimensionCount { .. },
            format!("tensor \"a\" has {found} dimensions, expected 1 to 4")
        );
    }
}

#[test]
fn rejects_dimensions_of_zero() {
    assert_refused!(
        file().tensor("a", &[32, 0], F32, 0).data([0; 64]).error(),
        GgufError::ZeroDimension { .. },
        "tensor \"a\" has no elements: its dimensions are [32, 0]"
    );
}

#[test]
fn rejects_dimensions_that_overflow() {
    for (dims, ty) in
        [(&[1 << 40, 1 << 40][..], F32), (&[1 << 62], F32), (&[1 << 63, 2], I2_S), (&[u64::MAX, 3], UNKNOWN)]
    {
        let error = file().tensor("a", dims, ty, 0).data([0; 64]).error();
        assert!(matches!(error, GgufError::TensorTooLarge { .. }), "{dims:?}: {error:?}");
    }
    assert_refused!(
        file().tensor("a", &[1 << 62], F32, 0).data([0; 64]).error(),
        GgufError::TensorTooLarge { .. },
        "tensor \"a\" is too large: its dimensions are [4611686018427387904]"
    );
}

#[test]
fn rejects_partial_blocks() {
    assert_refused!(
        file().tensor("a", &[48, 2], Q4_0, 0).data([0; 64]).error(),
        GgufError::PartialBlock { .. },
        "tensor \"a\": 48 values are not whole blocks of 32 (Q4_0)"
    );
    assert_refused!(
        file().tensor("a", &[64, 3], I2_S, 0).data(i2s(&[0; 48], 1.0)).error(),
        GgufError::PartialBlock { .. },
        "tensor \"a\": 192 values are not whole blocks of 128 (I2_S)"
    );
    // Blocks of I2_S may straddle rows.
    assert!(file().tensor("a", &[64, 2], I2_S, 0).data(i2s(&[0; 32], 1.0)).open().is_ok());
}

#[test]
fn rejects_unaligned_offsets() {
    assert_refused!(
        file().tensor("a", &[1], F32, 4).data([0; 64]).error(),
        GgufError::UnalignedOffset { .. },
        "tensor \"a\" starts at 4, which is not a multiple of the alignment 32"
    );
}

#[test]
fn rejects_tensors_past_the_end() {
    assert_refused!(
        file().tensor("a", &[17], F32, 0).data([0; 64]).error(),
        GgufError::OutOfFile { .. },
        "tensor \"a\" ends at byte 132, the file at 128"
    );
    for ty in [F32, UNKNOWN] {
        for offset in [64, 1 << 40, u64::MAX - 31] {
            let error = file().tensor("a", &[16], ty, offset).data([0; 64]).error();
            assert!(matches!(error, GgufError::OutOfFile { .. }), "{offset}: {error:?}");
        }
    }
}

#[test]
fn rejects_overlapping_tensors() {
    // The order of the descriptions is not the order of the data.
    assert_refused!(
        file().tensor("b", &[8], F32, 32).tensor("a", &[9], F32, 0).data([0; 64]).error(),
        GgufError::Overlap { .. },
        "tensors \"a\" and \"b\" overlap"
    );
    for ty in [F32, UNKNOWN] {
        let same = file().tensor("a", &[1], ty, 0).tensor("b", &[1], F32, 0).data([0; 64]);
        assert!(matches!(same.error(), GgufError::Overlap { .. }));
    }
}

#[test]
fn rejects_type_36_with_another_length_than_i2s() {
    // What IQ4_NL_4_4, which had the number before, takes for these 4096 values: 18 bytes for each 32.
    let other = 4096 / 32 * 18;
    assert_refused!(
        file().tensor("a", &[128, 32], I2_S, 0).data(vec![0; other]).error(),
        GgufError::I2sLength { .. },
        "tensor \"a\" has type 36 but not the byte length of I2_S: expected 1056 with padding, found 2304"
    );
    let with_next = file().tensor("a", &[128, 32], I2_S, 0).tensor("b", &[1], F32, other as u64);
    assert!(matches!(with_next.data(vec![0; other + 4]).error(), GgufError::I2sLength { found: 2304, .. }));
    let too_close = file().tensor("a", &[128, 32], I2_S, 0).tensor("b", &[1], F32, 1024);
    assert!(matches!(too_close.data(vec![0; 1056]).error(), GgufError::I2sLength { found: 1024, .. }));
    let cut = file().tensor("a", &[128, 32], I2_S, 0).data(vec![0; 1055]);
    assert!(matches!(cut.error(), GgufError::OutOfFile { .. }));
}

#[test]
fn describes_but_does_not_lend_unsupported_types() {
    let file = file().tensor("a", &[7, 3], UNKNOWN, 0).tensor("b", &[32], 9, 64).data([0; 104]).open().unwrap();
    let [a, b] = file.tensors() else { panic!("two tensors") };
    assert_eq!((a.type_name(), a.type_id(), a.shape(), a.byte_len()), ("unknown", UNKNOWN, vec![3, 7], None));
    assert_eq!((b.type_name(), b.byte_len(), b.ggml_type()), ("Q8_1", Some(40), None));
    assert_refused!(
        file.data(a).unwrap_err(),
        GgufError::UnsupportedType { .. },
        "tensor \"a\" has the unsupported type unknown (1000)"
    );
    assert_refused!(
        file.data(b).unwrap_err(),
        GgufError::UnsupportedType { .. },
        "tensor \"b\" has the unsupported type Q8_1 (9)"
    );
    file.check_data().unwrap();
}

#[test]
fn rejects_weight_scales_in_the_data_check() {
    for scale in [0.0, -0.0, -1.0, f32::NAN, f32::INFINITY] {
        let file = file().tensor("a", &[128], I2_S, 0).data(i2s(&[0; 32], scale)).open().unwrap();
        assert_refused!(
            file.check_data().unwrap_err(),
            GgufError::WeightScale { .. },
            format!("tensor \"a\": expected a positive finite weight scale, found {scale}")
        );
    }
    let smallest = file().tensor("a", &[128], I2_S, 0).data(i2s(&[0; 32], 1e-45)).open().unwrap();
    smallest.check_data().unwrap();
}

#[test]
fn rejects_code_3_in_the_data_check_and_says_which_weight() {
    // Large enough for several of the pieces that are scanned in parallel.
    let (rows, cols) = (1024, 1280);
    let valid = vec![0b10_01_00_10u8; rows * cols / 4];
    let clean = file().tensor("a", &[cols as u64, rows as u64], I2_S, 0);
    clean.clone().data(i2s(&valid, 1.0)).open().unwrap().check_data().unwrap();
    for weight in [0, 31, 32, 127, 128, 65_535 * 4, 777_777, rows * cols - 1] {
        let mut codes = valid.clone();
        // A later one as well: the first is reported.
        for weight in [weight, rows * cols - 1] {
            let (block, within) = (weight / 128, weight % 128);
            codes[block * 32 + within % 32] |= 3 << (6 - 2 * (within / 32));
        }
        assert_refused!(
            clean.clone().data(i2s(&codes, 1.0)).open().unwrap().check_data().unwrap_err(),
            GgufError::WeightCode { index, .. } if index == weight,
            format!("tensor \"a\": weight {weight} has the invalid code 3")
        );
    }
}

#[test]
fn errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.gguf");
    std::fs::write(&path, b"GG").unwrap();
    let message = format!("{}: not a GGUF file: it starts with \"GG\", not \"GGUF\"", path.display());
    for error in [GgufFile::open(&path).unwrap_err(), GgufFile::read(&path).unwrap_err()] {
        assert!(matches!(error.kind(), GgufError::Magic { .. }));
        assert_refused!(error, GgufError::InFile { .. }, message);
    }
    std::fs::write(&path, b"").unwrap();
    assert!(matches!(GgufFile::open(&path).unwrap_err().kind(), GgufError::Magic { .. }));
    let message = format!("{}: a folder, not a GGUF file; give the *.gguf file itself", folder.path().display());
    for error in [GgufFile::open(folder.path()).unwrap_err(), GgufFile::read(folder.path()).unwrap_err()] {
        assert!(error.to_string().starts_with(&message), "{error}");
    }
    let error = GgufFile::open(folder.path().join("absent.gguf")).unwrap_err();
    assert!(error.to_string().starts_with(&folder.path().join("absent.gguf").display().to_string()), "{error}");
    assert!(matches!(error.kind(), GgufError::Io { .. }));
}
