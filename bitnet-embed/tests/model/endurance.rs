//! Many requests: from many threads at once, and for a long time.

use crate::common::{bits, testdata};
use bitnet_embed::Embedder;

fn text(number: usize) -> String {
    // Lengths from nothing to some hundred tokens in no simple order.
    let words = number.wrapping_mul(2_654_435_761) >> 7;
    (0..words % 61).map(|word| ["one ", "two, ", "drei ", "東京", "\n"][(number + word) % 5]).collect()
}

#[test]
fn sixteen_threads_share_an_embedder_and_all_get_the_vectors_of_one() {
    for (name, threads) in [("qwen3-bitnet", 1), ("gemma3-bitnet", 3)] {
        let file = testdata().join("gguf").join(format!("{name}.i2_s.gguf"));
        let embedder = Embedder::builder().threads(threads).open(file).unwrap();
        let texts: Vec<String> = (0..96).map(text).collect();
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
    use std::process::Command;

    const REQUESTS: &str = "BITNET_REQUESTS";
    const LONG: &str = "endurance::memory::a_long_run_keeps_its_memory";

    /// Resident memory in kB.
    fn resident() -> f64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn a_short_run_keeps_its_memory() {
        let this = std::env::current_exe().unwrap();
        let run = Command::new(this).args(["--exact", "--ignored", LONG]).env(REQUESTS, "4000").output().unwrap();
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && output.contains("1 passed"), "{output}");
    }

    /// `cargo test --release -p bitnet-embed --test model -- --ignored --nocapture a_long_run` makes 100,000 requests.
    #[test]
    #[ignore = "minutes; cargo test --release --workspace --test model -- --ignored --nocapture a_long_run"]
    fn a_long_run_keeps_its_memory() {
        let requests: usize = std::env::var(REQUESTS).map_or(100_000, |requests| requests.parse().unwrap());
        let embedder = Embedder::builder().threads(2);
        let embedder = embedder.open(testdata().join("gguf/gemma3-bitnet.i2_s.gguf")).unwrap();
        let mut after_1000 = 0.0;
        for request in 0..requests {
            embedder.embed(&[text(request)]).unwrap();
            if request == 1000 {
                after_1000 = resident();
            }
        }
        let at_end = resident();
        println!("{requests} requests: {after_1000} kB resident after 1000, {at_end} kB at the end");
        assert!(after_1000 > 0.0 && at_end <= 1.05 * after_1000, "from {after_1000} kB to {at_end} kB");
    }
}
