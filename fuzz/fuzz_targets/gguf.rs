//! Any bytes as a GGUF file: all of it is read, described, and written again; what was written reads the same.
#![no_main]

use bitnet_embed::gguf::{GgufFile, GgufWriter};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = GgufFile::from_owner(bytes) else { return };
    let _ = file.check_data();
    let _ = file.describe().to_string();
    let metadata = file.metadata();
    let mut writer = GgufWriter::new();
    for key in metadata.keys() {
        let value = metadata.value(key).expect("a key of the file");
        if writer.metadata(key, value.into_owned()).is_err() {
            return;
        }
    }
    for tensor in file.tensors() {
        let _ = (tensor.rows(), tensor.cols(), tensor.shape(), file.data(tensor).map(<[u8]>::len));
        if writer.copy_of(tensor).is_err() {
            return;
        }
    }
    let mut copy = writer.write_to(Vec::new()).expect("memory");
    for tensor in file.tensors() {
        copy.write(tensor.name(), file.raw_data(tensor).expect("its size is known")).expect("in order");
    }
    let copy = GgufFile::from_owner(copy.finish().expect("complete")).expect("what was written is read");
    assert_eq!(copy.alignment(), file.alignment());
    assert!(copy.metadata().keys().eq(metadata.keys()));
    for (tensor, original) in copy.tensors().iter().zip(file.tensors()) {
        assert_eq!(copy.raw_data(tensor).expect("data"), file.raw_data(original).expect("data"));
    }
});
