//! The writer: what it refuses, that it leaves nothing behind, and that the reader gets back what was written.

use std::fs;
use std::path::Path;

use bitnet_embed::gguf::{GgufError, GgufFile, GgufWriter, OwnedArray, OwnedValue};
use burn_i2s::ggml::GgmlType;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn two_tensors() -> GgufWriter {
    let mut writer = GgufWriter::new();
    writer.tensor("a", GgmlType::F32, &[2, 3]).unwrap();
    writer.tensor("b", GgmlType::F16, &[4]).unwrap();
    writer
}

#[test]
fn rejects_duplicates() {
    let mut writer = two_tensors();
    writer.metadata("k", 1u32).unwrap();
    assert!(matches!(writer.metadata("k", "again"), Err(GgufError::DuplicateKey { key }) if key == "k"));
    assert!(
        matches!(writer.tensor("b", GgmlType::F32, &[1]), Err(GgufError::DuplicateTensor { tensor }) if tensor == "b")
    );
}

#[test]
fn rejects_shapes_that_the_reader_would_refuse() {
    let mut writer = GgufWriter::new();
    let mut declare = |ty, shape: &[usize]| writer.tensor("a", ty, shape).map(drop).unwrap_err();
    assert!(matches!(declare(GgmlType::F32, &[]), GgufError::DimensionCount { found: 0, .. }));
    assert!(matches!(declare(GgmlType::F32, &[1; 5]), GgufError::DimensionCount { found: 5, .. }));
    assert!(matches!(declare(GgmlType::F32, &[3, 0]), GgufError::ZeroDimension { dims, .. } if dims == [0, 3]));
    assert!(matches!(declare(GgmlType::F32, &[usize::MAX, 2]), GgufError::TensorTooLarge { .. }));
    assert!(matches!(declare(GgmlType::F32, &[usize::MAX]), GgufError::TensorTooLarge { .. }));
    assert!(matches!(declare(GgmlType::I2_S, &[3, 64]), GgufError::PartialBlock { found: 192, .. }));
}

#[test]
fn rejects_names_over_the_limit() {
    let long = "n".repeat(1 << 16);
    let mut writer = GgufWriter::new();
    assert!(matches!(writer.metadata(&long, true), Err(GgufError::Limit { .. })));
    assert!(matches!(writer.tensor(&long, GgmlType::F32, &[1]), Err(GgufError::Limit { .. })));
}

#[test]
fn rejects_alignments_that_are_none() {
    let mut writer = GgufWriter::new();
    assert!(matches!(writer.metadata("general.alignment", 24u32), Err(GgufError::Alignment { found: 24 })));
    assert!(matches!(writer.metadata("general.alignment", 32u64), Err(GgufError::ValueType { .. })));
}

#[test]
fn rejects_data_of_another_length() {
    let mut tensors = two_tensors().write_to(Vec::new()).unwrap();
    assert_eq!(tensors.next(), Some(("a", 24)));
    let error = tensors.write("a", &[0; 25]).unwrap_err();
    assert_eq!(error.to_string(), "tensor \"a\" takes 24 bytes, 25 were given");
    tensors.write("a", &[0; 20]).unwrap();
    assert!(matches!(tensors.write("a", &[0; 5]), Err(GgufError::DataLength { expected: 24, found: 25, .. })));
    let error = tensors.write("b", &[0; 8]).unwrap_err();
    assert_eq!(error.to_string(), "tensor \"a\" takes 24 bytes, 20 were given");
    assert!(matches!(tensors.finish(), Err(GgufError::DataLength { expected: 24, found: 20, .. })));
}

#[test]
fn rejects_data_out_of_order() {
    let mut tensors = two_tensors().write_to(Vec::new()).unwrap();
    let error = tensors.write("b", &[0; 8]).unwrap_err();
    assert_eq!(error.to_string(), "the next tensor to write is \"a\", not \"b\"");
    tensors.write("a", &[0; 24]).unwrap();
    tensors.write("b", &[0; 8]).unwrap();
    assert_eq!(tensors.next(), None);
    let error = tensors.write("c", &[]).unwrap_err();
    assert_eq!(error.to_string(), "the next tensor to write is the end of the file, not \"c\"");
    assert_eq!(
        two_tensors().write_to(Vec::new()).unwrap().finish().unwrap_err().to_string(),
        "the next tensor to write is \"a\", not the end of the file"
    );
}

#[test]
fn leaves_nothing_behind_when_dropped_or_unfinished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut dropped = two_tensors().create(&path).unwrap();
    dropped.write("a", &[0; 24]).unwrap();
    assert_eq!(entries(folder.path()), 1, "the temporary file");
    drop(dropped);
    assert_eq!(entries(folder.path()), 0);

    let error = two_tensors().create(&path).unwrap().finish().unwrap_err();
    assert!(matches!(error.kind(), GgufError::TensorOrder { .. }));
    assert!(error.to_string().starts_with(&path.display().to_string()));
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn replaces_an_older_file_and_not_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, "older").unwrap();
    let mut tensors = two_tensors().create(&path).unwrap();
    tensors.write("a", &[1; 24]).unwrap();
    tensors.write("b", &[2; 8]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"older");
    tensors.finish().unwrap();
    assert_eq!(entries(folder.path()), 1);
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.data(file.tensor("b").unwrap()).unwrap(), [2; 8]);
    assert_eq!(file.tensor("a").unwrap().dims(), [3, 2]);
}

#[cfg(unix)]
#[test]
fn a_written_file_has_the_permissions_of_any_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("model.gguf"), folder.path().join("other"));
    fs::write(&other, "").unwrap();
    GgufWriter::new().create(&path).unwrap().finish().unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&other));
}

#[test]
fn names_the_path_when_it_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent/model.gguf");
    let error = two_tensors().create(&absent).unwrap_err();
    assert!(error.to_string().starts_with(&absent.display().to_string()), "{error}");
    assert!(matches!(error.kind(), GgufError::Io { operation: "create", .. }));

    let taken = folder.path().join("taken.gguf");
    fs::create_dir(&taken).unwrap();
    let error = GgufWriter::new().create(&taken).unwrap_err();
    assert!(matches!(error.kind(), GgufError::OutputKind { found: "a folder" }), "{error}");
    assert_eq!(entries(folder.path()), 1, "only the folder in the way");
}

#[test]
fn two_writers_of_one_path_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let first = two_tensors().create(&path).unwrap();
    let error = two_tensors().create(&path).unwrap_err();
    assert!(matches!(error.kind(), GgufError::Busy { partial } if partial == first.partial_path()), "{error}");
    assert!(first.partial_path().exists(), "the refused one removed nothing");
    drop(first);
    drop(two_tensors().create(&path).unwrap());
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn what_a_killed_process_left_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let partial = folder.path().join(".model.gguf.partial");
    fs::write(&partial, vec![7; 1 << 16]).unwrap();
    let mut tensors = two_tensors().create(&path).unwrap();
    assert_eq!(tensors.partial_path(), partial);
    tensors.write("a", &[1; 24]).unwrap();
    tensors.write("b", &[2; 8]).unwrap();
    tensors.finish().unwrap();
    assert_eq!(entries(folder.path()), 1);
    let file = GgufFile::read(&path).unwrap();
    assert!(file.owner().len() < 1 << 10, "nothing of the old content");
}

#[cfg(unix)]
#[test]
fn a_link_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("link.gguf"), folder.path().join("target"));
    fs::write(&target, "kept").unwrap();
    for name in ["link.gguf", ".other.gguf.partial"] {
        std::os::unix::fs::symlink(&target, folder.path().join(name)).unwrap();
    }
    let error = two_tensors().create(&link).unwrap_err();
    assert!(matches!(error.kind(), GgufError::OutputKind { found: "a symbolic link" }), "{error}");
    let error = two_tensors().create(folder.path().join("other.gguf")).unwrap_err();
    assert!(matches!(error.kind(), GgufError::Partial { .. }), "{error}");
    assert_eq!(fs::read(&target).unwrap(), b"kept");
    assert_eq!(entries(folder.path()), 3);
}

#[test]
fn a_tensor_of_any_type_is_copied_as_it_is() {
    let mut tensors = two_tensors().write_to(Vec::new()).unwrap();
    tensors.write("a", &[1; 24]).unwrap();
    tensors.write("b", &[2; 8]).unwrap();
    let mut bytes = tensors.finish().unwrap();
    // Name, number of dimensions, two dimensions, type: F32 becomes I32, which has the same size and is not decoded.
    let name = bytes.windows(9).position(|window| window == b"\x01\0\0\0\0\0\0\0a").unwrap();
    bytes[name + 9 + 4 + 16] = 26;
    let source = GgufFile::from_owner(bytes).unwrap();
    let mut writer = GgufWriter::new();
    for tensor in source.tensors() {
        writer.copy_of(tensor).unwrap();
    }
    let mut copy = writer.write_to(Vec::new()).unwrap();
    for tensor in source.tensors() {
        copy.write(tensor.name(), source.raw_data(tensor).unwrap()).unwrap();
    }
    let copy = GgufFile::from_owner(copy.finish().unwrap()).unwrap();
    assert!(copy.tensors().iter().any(|tensor| tensor.ggml_type().is_none()), "one that is not decoded");
    for (tensor, original) in copy.tensors().iter().zip(source.tensors()) {
        assert_eq!((tensor.type_id(), tensor.dims()), (original.type_id(), original.dims()));
        assert_eq!(copy.raw_data(tensor).unwrap(), source.raw_data(original).unwrap());
    }
}

#[test]
fn an_io_error_is_an_error() {
    /// A disk with room for so many bytes.
    struct Disk(usize);
    impl std::io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(matches!(two_tensors().write_to(Disk(10)), Err(GgufError::Io { operation: "write", .. })));
    let mut tensors = two_tensors().write_to(Disk(150)).map_err(drop).unwrap();
    assert!(matches!(tensors.write("a", &[0; 24]), Err(GgufError::Io { operation: "write", .. })));
}

fn scalar() -> impl Strategy<Value = OwnedValue> {
    prop_oneof![
        any::<u8>().prop_map(OwnedValue::U8),
        any::<i8>().prop_map(OwnedValue::I8),
        any::<u16>().prop_map(OwnedValue::U16),
        any::<i16>().prop_map(OwnedValue::I16),
        any::<u32>().prop_map(OwnedValue::U32),
        any::<i32>().prop_map(OwnedValue::I32),
        any::<u64>().prop_map(OwnedValue::U64),
        any::<i64>().prop_map(OwnedValue::I64),
        any::<f32>().prop_map(OwnedValue::F32),
        any::<f64>().prop_map(OwnedValue::F64),
        any::<bool>().prop_map(OwnedValue::Bool),
        any::<String>().prop_map(OwnedValue::Str),
    ]
}

fn array() -> impl Strategy<Value = OwnedValue> {
    prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(|values| OwnedArray::from(&values[..]).into()),
        vec(any::<i16>(), 0..9).prop_map(|values| OwnedArray::from(&values[..]).into()),
        vec(any::<i32>(), 0..9).prop_map(|values| OwnedArray::from(&values[..]).into()),
        vec(any::<u64>(), 0..9).prop_map(|values| OwnedArray::from(&values[..]).into()),
        vec(any::<f32>(), 0..9).prop_map(|values| OwnedArray::from(&values[..]).into()),
        vec(any::<bool>(), 0..9).prop_map(|values| OwnedArray::from(&values[..]).into()),
        vec(any::<String>(), 0..9).prop_map(|values| OwnedArray::strings(values).into()),
    ]
}

fn tensor() -> impl Strategy<Value = (GgmlType, Vec<usize>)> {
    let plain = prop::sample::select(vec![GgmlType::F32, GgmlType::F16, GgmlType::BF16]);
    prop_oneof![
        (plain, vec(1usize..6, 1..=4)),
        (1usize..4, 1usize..4).prop_map(|(rows, blocks)| (GgmlType::I2_S, vec![rows, blocks * 128])),
    ]
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        metadata in btree_map("[a-z.]{1,12}|\\PC{1,8}", prop_oneof![scalar(), array()], 0..8),
        tensors in btree_map("[a-z.]{1,12}|\\PC{1,8}", tensor(), 0..8),
        alignment in prop::option::of(0u32..10),
    ) {
        let mut writer = GgufWriter::new();
        let mut metadata: Vec<_> = metadata.into_iter().collect();
        metadata.extend(alignment.map(|log2| ("general.alignment".to_owned(), OwnedValue::U32(1 << log2))));
        for (key, value) in &metadata {
            writer.metadata(key, value.clone()).unwrap();
        }
        for (name, (ty, shape)) in &tensors {
            writer.tensor(name, *ty, shape).unwrap();
        }
        let mut data = writer.write_to(Vec::new()).unwrap();
        let mut fill = 0u8;
        while let Some((name, byte_len)) = data.next().map(|(name, byte_len)| (name.to_owned(), byte_len)) {
            fill = fill.wrapping_add(1);
            data.write(&name, &vec![fill; byte_len]).unwrap();
        }
        let file = GgufFile::from_owner(data.finish().unwrap()).unwrap();

        prop_assert_eq!(file.alignment(), alignment.map_or(32, |log2| 1 << log2));
        prop_assert!(file.metadata().keys().eq(metadata.iter().map(|(key, _)| key.as_str())));
        for (key, value) in &metadata {
            let found = file.metadata().value(key).unwrap().into_owned();
            // NaN is not equal to itself; its text is.
            let same = found == *value || format!("{found:?}") == format!("{value:?}");
            prop_assert!(same, "{:?} is not {:?}", found, value);
        }
        prop_assert_eq!(file.tensors().len(), tensors.len());
        for (index, (tensor, (name, (ty, shape)))) in file.tensors().iter().zip(&tensors).enumerate() {
            prop_assert_eq!(tensor.name(), name);
            prop_assert_eq!((tensor.ggml_type(), &tensor.shape()), (Some(*ty), shape));
            prop_assert!(file.data(tensor).unwrap().iter().all(|byte| usize::from(*byte) == index + 1));
        }
    }
}
