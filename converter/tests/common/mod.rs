//! What the test files share: where the fixtures are, running the program, and checkpoints to damage.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

/// The workspace's folder.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a workspace").to_owned()
}

/// A checkpoint of the test data.
pub(crate) fn checkpoint(name: &str) -> PathBuf {
    workspace().join("testdata/checkpoints").join(name)
}

/// The program, with a checkpoint and these further arguments.
pub(crate) fn converter(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("converter").expect("the program is built");
    command.arg(dir).args(args);
    command
}

/// A copy of a checkpoint that a test may damage.
pub(crate) struct Copy {
    folder: tempfile::TempDir,
    /// The checkpoint's folder.
    pub(crate) dir: PathBuf,
}

impl Copy {
    pub(crate) fn of(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let dir = folder.path().join(name);
        copy_folder(&checkpoint(name), &dir);
        Self { folder, dir }
    }

    /// Where the tests have the output written.
    pub(crate) fn output(&self) -> PathBuf {
        self.folder.path().join("out.gguf")
    }

    pub(crate) fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.dir.join(file)).expect("a file of the checkpoint")
    }

    pub(crate) fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.dir.join(file), bytes).expect("the copy can be written");
    }

    pub(crate) fn remove(&self, file: &str) {
        std::fs::remove_file(self.dir.join(file)).expect("a file of the checkpoint");
    }

    /// Changes a JSON file.
    pub(crate) fn edit_json(&self, file: &str, edit: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_slice(&self.read(file)).expect("JSON");
        edit(&mut value);
        self.write(file, value.to_string());
    }

    /// Changes the tensors of a safetensors file.
    pub(crate) fn edit_tensors(&self, file: &str, edit: impl FnOnce(&mut Tensors)) {
        let mut tensors = Tensors::parse(&self.read(file));
        edit(&mut tensors);
        self.write(file, tensors.encode());
    }

    /// Runs the program, which must end with `code`, say one line that contains each of `parts`, leave an older output
    /// as it was, and leave nothing else behind.
    pub(crate) fn assert_refused(&self, args: &[&str], code: i32, parts: &[&str]) {
        let output = self.output();
        std::fs::write(&output, b"older file").expect("a file");
        let mut command = converter(&self.dir, args);
        let result = command.arg("--outfile").arg(&output).output().expect("the program runs");
        let stderr = String::from_utf8(result.stderr).expect("UTF-8");
        assert_eq!(result.status.code(), Some(code), "{stderr}");
        assert!(result.stdout.is_empty(), "only a written file is named on standard output");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.starts_with("error: "), "{stderr}");
        for part in parts {
            assert!(stderr.contains(part), "no {part:?} in: {stderr}");
        }
        assert_eq!(std::fs::read(&output).expect("still there"), b"older file");
        let left: Vec<_> = std::fs::read_dir(self.folder.path())
            .expect("a folder")
            .map(|e| e.expect("an entry").file_name())
            .collect();
        assert_eq!(left.len(), 2, "the checkpoint and the older output: {left:?}");
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new folder");
    for entry in std::fs::read_dir(from).expect("a checkpoint") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            // Not fs::copy, which would copy a read-only fixture's permissions as well.
            std::fs::write(target, std::fs::read(entry.path()).expect("a file")).expect("a copy");
        }
    }
}

/// The tensors of a safetensors file: dtype, shape, bytes. Written by hand, so that it can also be written wrong.
pub(crate) struct Tensors(pub(crate) BTreeMap<String, (String, Vec<usize>, Vec<u8>)>);

impl Tensors {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let file = safetensors::SafeTensors::deserialize(bytes).expect("a safetensors file");
        let tensors = file
            .tensors()
            .into_iter()
            .map(|(name, view)| (name, (format!("{:?}", view.dtype()), view.shape().to_vec(), view.data().to_vec())));
        Self(tensors.collect())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut header = serde_json::Map::new();
        let mut data = Vec::new();
        for (name, (dtype, shape, bytes)) in &self.0 {
            let start = data.len();
            data.extend_from_slice(bytes);
            let offsets = [start, data.len()];
            header.insert(name.clone(), serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
        }
        let header = serde_json::to_vec(&header).expect("JSON");
        [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
    }
}

/// The program with these arguments.
pub(crate) fn program<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::cargo_bin("converter").expect("the program is built");
    command.args(args);
    command
}

/// Runs the program, which must end with `code`; returns what it wrote to standard output and standard error.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>, code: i32) -> (String, String) {
    let output = program(args).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{stdout}{stderr}");
    (stdout, stderr)
}

/// A checkpoint converted into a folder that goes away with it.
pub(crate) struct Converted {
    pub(crate) folder: tempfile::TempDir,
    /// The file.
    pub(crate) path: PathBuf,
}

impl Converted {
    pub(crate) fn new(name: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("model.gguf");
        converter(&checkpoint(name), args).arg("--outfile").arg(&path).assert().success();
        Self { folder, path }
    }
}

/// What a GGUF file says, to be changed and written again: metadata, then tensors with type, shape and bytes.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) metadata: Vec<(String, bitnet_embed::gguf::OwnedValue)>,
    pub(crate) tensors: Vec<(String, burn_i2s::ggml::GgmlType, Vec<usize>, Vec<u8>)>,
}

impl Parts {
    pub(crate) fn read(path: &Path) -> Self {
        let file = bitnet_embed::gguf::GgufFile::read(path).expect("a valid file");
        let metadata = file.metadata();
        Self {
            metadata: metadata
                .keys()
                .map(|key| (key.to_owned(), metadata.value(key).expect("a value").into_owned()))
                .collect(),
            tensors: file
                .tensors()
                .iter()
                .map(|tensor| {
                    let data = file.data(tensor).expect("data").to_vec();
                    (tensor.name().to_owned(), tensor.require_type().expect("a type"), tensor.shape(), data)
                })
                .collect(),
        }
    }

    pub(crate) fn write(&self, path: &Path) {
        let mut writer = bitnet_embed::gguf::GgufWriter::new();
        for (key, value) in &self.metadata {
            writer.metadata(key, value.clone()).expect("a new key");
        }
        for (name, ty, shape, _) in &self.tensors {
            writer.tensor(name, *ty, shape).expect("a new tensor");
        }
        let mut file = writer.create(path).expect("a file");
        for (name, _, _, data) in &self.tensors {
            file.write(name, data).expect("written");
        }
        file.finish().expect("written");
    }

    pub(crate) fn value(&mut self, key: &str) -> &mut bitnet_embed::gguf::OwnedValue {
        &mut self.metadata.iter_mut().find(|(name, _)| name == key).expect("a key of the file").1
    }

    pub(crate) fn remove(&mut self, key: &str) {
        let before = self.metadata.len();
        self.metadata.retain(|(name, _)| name != key);
        assert_eq!(self.metadata.len() + 1, before, "{key}");
    }

    pub(crate) fn strings(&mut self, key: &str, edit: impl FnOnce(&mut Vec<String>)) {
        let value = self.value(key);
        let bitnet_embed::gguf::Value::Array(array) = value.as_value(key) else { panic!("{key} is no array") };
        let mut strings: Vec<String> =
            array.strings().expect("strings").map(|string| string.expect("UTF-8").to_owned()).collect();
        edit(&mut strings);
        *value = bitnet_embed::gguf::OwnedArray::strings(strings).into();
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut (String, burn_i2s::ggml::GgmlType, Vec<usize>, Vec<u8>) {
        self.tensors.iter_mut().find(|tensor| tensor.0 == name).expect("a tensor of the file")
    }

    pub(crate) fn data(&mut self, name: &str) -> &mut Vec<u8> {
        &mut self.tensor(name).3
    }

    /// Exchanges the data of two tensors.
    pub(crate) fn swap(&mut self, a: &str, b: &str) {
        let first = self.data(a).clone();
        let second = std::mem::replace(self.data(b), first);
        assert_ne!(*self.data(b), second, "{a} and {b} are the same");
        *self.data(a) = second;
    }
}
