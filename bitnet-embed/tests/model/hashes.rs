//! The bits of every fixture model's vectors, recorded: any CPU, level, batch, order or number of threads that gives
//! other bits than those of the machine that wrote the file fails here.
//!
//! A change of the float operations changes the hashes. Then, and only then, write them anew and say so in the commit:
//! `BITNET_WRITE_HASHES=1 cargo test --release -p bitnet-embed --test model hashes`.

use crate::common::{read_json, testdata};
use bitnet_embed::BackendKind::{self, F16, I2s};
use bitnet_embed::Embedder;
use burn_i2s::isa::Isa;
use converter::{ConvertOptions, Outtype};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const TEXTS: usize = 200;

/// Texts a request, threads, and whether the texts are put in another order first.
const RUNS: [(usize, usize, bool); 4] = [(1, 1, false), (7, 2, true), (64, 5, true), (TEXTS, 2, false)];

/// All of them on the best level, which is what users run; fewer on the others, the slowest least. Without fused
/// multiply-add in hardware `scalar` takes ten times as long.
fn runs(isa: Isa) -> &'static [(usize, usize, bool)] {
    if isa == Isa::best() {
        &RUNS
    } else if isa == Isa::Scalar {
        &RUNS[2..3]
    } else {
        &RUNS[1..3]
    }
}

/// A model's file types and the backends that must agree on each.
fn variants(bitnet: bool) -> &'static [(Outtype, &'static [BackendKind])] {
    if bitnet { &[(Outtype::I2S, &[I2s, F16])] } else { &[(Outtype::F32, &[F16]), (Outtype::F16, &[F16])] }
}

/// A fixed sequence (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

const WORDS: [&str; 24] = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "über",
    "Straße",
    "東京",
    "你好",
    "été",
    "x1",
    "don't",
    "3.14",
    "  ",
    "\n",
    "fn main()",
    "?",
    "...",
    "🙂",
    "naïve",
    "I'M",
    "\t",
    "zzzzzz",
];

/// The golden texts of the model and generated ones: most of them short, some longer than any window or block.
fn texts(golden: &[String]) -> Vec<String> {
    let mut random = Random(1);
    let mut texts = golden.to_vec();
    while texts.len() < TEXTS {
        let words = if texts.len().is_multiple_of(40) { 60 + random.below(60) } else { random.below(9) };
        let words: Vec<&str> = (0..words).map(|_| WORDS[random.below(WORDS.len())]).collect();
        texts.push(words.join(" "));
    }
    texts
}

/// The vectors, in the order of the texts, embedded `batch` at a time.
fn hash(embedder: &Embedder, texts: &[String], batch: usize, shuffled: bool) -> String {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    if shuffled {
        let mut random = Random(batch as u64);
        (1..order.len()).rev().for_each(|last| order.swap(last, random.below(last + 1)));
    }
    let mut vectors = vec![Vec::new(); texts.len()];
    for members in order.chunks(batch) {
        let request: Vec<&str> = members.iter().map(|&text| texts[text].as_str()).collect();
        for (&text, vector) in members.iter().zip(embedder.embed(&request).unwrap()) {
            vectors[text] = vector;
        }
    }
    let mut sha = Sha256::new();
    vectors.iter().flatten().for_each(|value: &f32| sha.update(value.to_bits().to_le_bytes()));
    sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn convert(name: &str, outtype: Outtype, folder: &Path) -> PathBuf {
    let outfile = folder.join(format!("{name}.gguf"));
    let dir = testdata().join("checkpoints").join(name);
    let mut options = ConvertOptions::new(dir, outtype);
    options.outfile = Some(outfile.clone());
    options.force = true;
    converter::convert(&options, &mut ()).unwrap_or_else(|error| panic!("{name}: {error}"));
    outfile
}

/// The hash of each file of a checkpoint, the same in every run; `recorded` is what it must be.
fn hashes(name: &str, recorded: Option<&serde_json::Value>, folder: &Path) -> BTreeMap<String, String> {
    let golden = read_json(&testdata().join("goldens").join(format!("{name}.json")));
    let golden_texts = golden["texts"].as_array().unwrap().iter();
    let texts = texts(&golden_texts.map(|text| text["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
    let mut found = BTreeMap::new();
    for &(outtype, backends) in variants(golden["bitnet"].as_bool().unwrap()) {
        let file = convert(name, outtype, folder);
        let key = format!("{name} {outtype:?}").to_lowercase();
        for &backend in backends {
            for &isa in Isa::available() {
                for &(batch, threads, shuffled) in runs(isa) {
                    let embedder = Embedder::builder().threads(threads).isa(isa).backend(backend).open(&file);
                    let hash = hash(&embedder.unwrap(), &texts, batch, shuffled);
                    let here = format!("{key}: {} on {isa}, {batch} at a time, {threads} threads", backend.name());
                    if let Some(recorded) = recorded {
                        assert_eq!(recorded[&key].as_str(), Some(&*hash), "{here}");
                    }
                    let first = found.entry(key.clone()).or_insert_with(|| hash.clone());
                    assert_eq!(*first, hash, "{here}");
                }
            }
        }
    }
    found
}

#[test]
fn the_vectors_have_the_recorded_bits_on_every_level_in_any_batch_order_and_threads() {
    let path = testdata().join("hashes.json");
    let write = std::env::var_os("BITNET_WRITE_HASHES").is_some();
    let recorded = (!write).then(|| read_json(&path));
    let folder = tempfile::tempdir().unwrap();
    let (recorded, folder) = (recorded.as_ref(), folder.path());
    let checkpoints = std::fs::read_dir(testdata().join("checkpoints")).unwrap();
    let names: Vec<_> = checkpoints.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    // A thread each: an emulated CPU takes minutes for all of them.
    let found: BTreeMap<String, String> = std::thread::scope(|scope| {
        let running: Vec<_> = names.iter().map(|name| scope.spawn(move || hashes(name, recorded, folder))).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(found.len(), 9, "{found:?}");
    if write {
        std::fs::write(&path, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
    }
}
