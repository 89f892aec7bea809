//! Many requests: from many threads at once, and for a long time.

use crate::common::{bits, testdata};
use bitnet_embed::Embedder;

/// A text of up to `most` words.
fn text(number: usize, most: usize) -> String {
    // Lengths from nothing on, in no simple order.
    let words = number.wrapping_mul(2_654_435_761) >> 7;
    (0..words % (most + 1)).map(|word| ["one ", "two, ", "drei ", "東京", "\n"][(number + word) % 5]).collect()
}

#[test]
fn sixteen_threads_share_an_embedder_and_all_get_the_vectors_of_one() {
    for (name, threads) in [("qwen3-bitnet", 1), ("gemma3-bitnet", 3)] {
        let file = testdata().join("gguf").join(format!("{name}.i2_s.gguf"));
        let embedder = Embedder::builder().threads(threads).open(file).unwrap();
        let texts: Vec<String> = (0..96).map(|number| text(number, 60)).collect();
        let expected = bits(&embedder.embed(&texts).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let (embedder, texts, expected) = (&embedder, &texts, &expected);
                scope.spawn(move || {
                    // Each in pieces of its own size and from a place of its own, so that no two run in step.
                    let mut first = thread * 6;
                    for round in 0..12 {
                        let last = texts.len().min(first + 1 + (thread * 5 + round * 3) % 17);
                        let vectors = embedder.embed(&texts[first..last]).unwrap();
                        assert_eq!(bits(&vectors), expected[first..last], "{name}: thread {thread}, round {round}");
                        first = last % texts.len();
                    }
                });
            }
        });
    }
}

/// Memory must not grow: in a process of its own, since other tests' memory would be counted.
#[cfg(target_os = "linux")]
mod memory {
    use super::*;
    use converter::Outtype;
    use converter::dummy::{self, DummyArch, DummyOptions};
    use std::path::Path;
    use std::process::Command;

    const REQUESTS: &str = "BITNET_REQUESTS";
    const MODEL: &str = "BITNET_MODEL";
    const LONG: &str = "endurance::memory::a_long_run_keeps_its_memory";

    /// Requests after which memory is read.
    const WINDOW: usize = 500;

    /// A model of some forty megabytes: what the allocator keeps of freed memory moves by up to a megabyte,
    /// which in the process of a small fixture's model alone is more than the five percent.
    fn write_model(path: &Path) {
        let mut options = DummyOptions::new(DummyArch::Custom, Outtype::I2S);
        options.outfile = Some(path.to_owned());
        let shape = &mut options.shape;
        (shape.hidden_size, shape.intermediate_size, shape.num_layers, shape.vocab_size) = (512, 2048, 28, 1024);
        dummy::write(&options, &mut ()).unwrap();
    }

    /// Resident memory in kB.
    fn resident() -> f64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn median(mut readings: Vec<f64>) -> f64 {
        readings.sort_by(f64::total_cmp);
        readings[readings.len() / 2]
    }

    /// The requests in a process of their own, whose allocator gives memory back by fixed thresholds, those it starts
    /// with. By itself it raises them with the sizes that it sees, which over a long run keeps up to a megabyte more of
    /// what was freed.
    fn run(requests: usize) {
        let this = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(this);
        command.args(["--exact", "--ignored", "--nocapture", LONG]).env(REQUESTS, requests.to_string());
        command.env("MALLOC_TRIM_THRESHOLD_", "131072").env("MALLOC_TOP_PAD_", "0");
        if std::env::var_os(MODEL).is_none() {
            let model = folder.path().join("model.gguf");
            write_model(&model);
            command.env(MODEL, model);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    fn a_short_run_keeps_its_memory() {
        run(3000);
    }

    /// 100,000 requests; to the file of the environment variable `BITNET_MODEL`, if it is set.
    #[test]
    #[ignore = "minutes; cargo test --release --workspace --test model -- --ignored --nocapture a_long_run"]
    fn a_long_run_keeps_its_memory() {
        let Ok(requests) = std::env::var(REQUESTS) else { return run(100_000) };
        let requests: usize = requests.parse().unwrap();
        let embedder = Embedder::builder().threads(2).open(std::env::var_os(MODEL).unwrap()).unwrap();
        // The median of some hundred readings: one alone moves.
        let (mut after_1000, mut at_end) = (Vec::new(), Vec::new());
        for request in 0..requests {
            embedder.embed(&[text(request, 6)]).unwrap();
            if (1000 - WINDOW..1000).contains(&request) {
                after_1000.push(resident());
            } else if request >= requests - WINDOW {
                at_end.push(resident());
            }
        }
        let (after_1000, at_end) = (median(after_1000), median(at_end));
        println!("{requests} requests: {after_1000} kB resident after 1000, {at_end} kB at the end");
        assert!(after_1000 > 0.0 && at_end <= 1.05 * after_1000, "from {after_1000} kB to {at_end} kB");
    }
}
