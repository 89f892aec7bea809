//! Every fixture model, in every file type, on every backend, against references computed by other programs.
//!
//! `testdata/README.md` says where the references come from. A second set, whose vocabularies may not be committed, is
//! read from beside the project where it is present.

use crate::common::{Golden, Tolerance, embed_everywhere, read_json, testdata, workspace};
use bitnet_embed::BackendKind::{F16, I2s};
use bitnet_embed::config::Pooling;
use converter::{ConvertOptions, Outtype};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A set of checkpoints and their references.
struct Set {
    checkpoints: PathBuf,
    goldens: PathBuf,
    published: PathBuf,
    tolerance: Tolerance,
}

impl Set {
    fn names(&self) -> Vec<String> {
        let folder = std::fs::read_dir(&self.goldens).unwrap();
        let mut names: Vec<String> = folder
            .map(|entry| entry.unwrap().path())
            .filter_map(|path| path.file_stem().map(|stem| stem.to_str().unwrap().to_owned()))
            .filter(|name| self.checkpoints.join(name).is_dir())
            .collect();
        names.sort();
        assert!(!names.is_empty(), "no checkpoints in {}", self.checkpoints.display());
        names
    }

    fn golden(&self, name: &str) -> Value {
        read_json(&self.goldens.join(format!("{name}.json")))
    }

    /// Converts to each type and holds each file against the reference that fits what the file says.
    fn check(&self, name: &str) {
        let json = self.golden(name);
        let checkpoint = Golden::of_checkpoint(&json);
        let gemma = json["arch"] == "gemma3" || name.contains("gemma");
        let folder = tempfile::tempdir().unwrap();
        let backends: &[_] = if checkpoint.bitnet { &[I2s, F16] } else { &[F16] };

        let f32_file = self.convert(name, Outtype::F32, &json, folder.path()).expect("f32 of every checkpoint");
        let vectors = embed_everywhere(&f32_file, &checkpoint, backends);
        checkpoint.assert_close(&vectors, &self.tolerance, &format!("{name} f32"));

        // Our files carry the windows, bases and scales of config.json.
        let f16_file = self.convert(name, Outtype::F16, &json, folder.path()).expect("f16 of every checkpoint");
        // Where no rounding happens on the way to f16, the checkpoint's own reference serves.
        let exact_in_f16 = json["gguf"]["f16"]["literal"]["vs_hf"][0].as_f64().is_some_and(|d| d < 1e-12);
        let golden = Golden::of_file(&json, "f16", &["hf_attention", "literal"]);
        let vectors_f16 = embed_everywhere(&f16_file, &checkpoint, backends);
        match golden {
            Some(golden) => golden.assert_close(&vectors_f16, &self.tolerance, &format!("{name} f16")),
            None if exact_in_f16 && !gemma => {
                checkpoint.assert_close(&vectors_f16, &self.tolerance, &format!("{name} f16"));
            }
            None => {}
        }

        if let Some(i2s_file) = self.convert(name, Outtype::I2S, &json, folder.path()) {
            let vectors_i2s = embed_everywhere(&i2s_file, &checkpoint, &[I2s, F16]);
            if let Some(golden) = Golden::of_file(&json, "i2_s", &["hf_attention", "literal"]) {
                golden.assert_close(&vectors_i2s, &self.tolerance, &format!("{name} i2_s"));
            }
            if checkpoint.bitnet {
                // An f16 master weight and the packed code it becomes are the same ternary weight.
                assert_eq!(
                    crate::common::bits(&vectors_i2s),
                    crate::common::bits(&vectors_f16),
                    "{name}: i2_s against f16 file"
                );
            }
        }

        let published = self.published.join(format!("{name}.i2_s.gguf"));
        if published.is_file()
            && let Some(golden) = Golden::of_file(&json, "i2_s", &["literal"])
        {
            let vectors = embed_everywhere(&published, &golden, &[I2s, F16]);
            golden.assert_close(&vectors, &self.tolerance, &format!("{name} published i2_s"));
        }
    }

    /// `None` where the type cannot hold the checkpoint: a tensor that is no whole blocks in I2_S.
    fn convert(&self, name: &str, outtype: Outtype, json: &Value, folder: &Path) -> Option<PathBuf> {
        let dir = self.checkpoints.join(name);
        let outfile = folder.join(format!("{name}.{outtype:?}.gguf"));
        // Without modules.json the published converter falls back to the mean, the reference of the checkpoint to the
        // last token.
        let stated = dir.join("modules.json").is_file();
        let mean = outtype != Outtype::F32 && json["gguf"]["i2_s"]["pooling"] == "mean";
        let pooling = if mean { Pooling::Mean } else { Pooling::Last };
        let mut options = ConvertOptions::new(dir, outtype);
        options.outfile = Some(outfile.clone());
        options.pooling = (!stated).then_some(pooling);
        options.force = true;
        match converter::convert(&options, &mut ()) {
            Ok(_) => Some(outfile),
            Err(error) if outtype == Outtype::I2S && error.to_string().contains("whole I2_S blocks") => None,
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

fn committed() -> Set {
    let testdata = testdata();
    Set {
        checkpoints: testdata.join("checkpoints"),
        goldens: testdata.join("goldens"),
        published: testdata.join("gguf"),
        tolerance: Tolerance { float: 5e-6 },
    }
}

#[test]
fn the_fixture_models_give_the_reference_vectors() {
    let set = committed();
    let names = set.names();
    assert_eq!(names.len(), 6, "{names:?}");
    names.iter().for_each(|name| set.check(name));
}

#[test]
fn the_second_set_gives_the_reference_vectors_where_it_is_present() {
    let root = workspace().join("../shared/fixtures/visible");
    if !root.is_dir() {
        eprintln!("SKIPPED: {} is absent; its vocabularies may not be committed", root.display());
        return;
    }
    let set = Set {
        checkpoints: root.clone(),
        goldens: root.join("goldens"),
        published: root.join("gguf"),
        tolerance: Tolerance { float: 2e-5 },
    };
    set.names().iter().for_each(|name| set.check(name));
}
