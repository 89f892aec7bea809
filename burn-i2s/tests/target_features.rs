//! What kernels are compiled for is what their witnesses prove: a feature enabled beyond that would be undefined behaviour
//! on the CPUs that lack it, and no run on a newer CPU would show it.

#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use std::collections::BTreeSet;
use std::path::Path;

/// The witnesses that reach each kernel file; those of one architecture, which is all that a build has.
#[cfg(target_arch = "x86_64")]
fn reached_by(file: &str) -> &'static [&'static [&'static str]] {
    use burn_i2s::isa::{Avx2, Avx512Bw, Avx512Vnni, AvxVnni};
    match file {
        // Shared by levels: what all of them have.
        "avx.rs" | "float_transpose.rs" => {
            &[Avx2::FEATURES, AvxVnni::FEATURES, Avx512Bw::FEATURES, Avx512Vnni::FEATURES]
        }
        "avx2.rs" => &[Avx2::FEATURES],
        "avx_vnni.rs" => &[AvxVnni::FEATURES],
        "avx512.rs" | "half_panel.rs" | "score.rs" => &[Avx512Bw::FEATURES, Avx512Vnni::FEATURES],
        "avx512bw.rs" => &[Avx512Bw::FEATURES],
        "avx512_vnni.rs" => &[Avx512Vnni::FEATURES],
        other => panic!("say here which witnesses reach {other}"),
    }
}

#[cfg(target_arch = "aarch64")]
fn reached_by(file: &str) -> &'static [&'static [&'static str]] {
    use burn_i2s::isa::{Neon, NeonDotprod};
    match file {
        "neon.rs" | "float_transpose.rs" => &[Neon::FEATURES, NeonDotprod::FEATURES],
        "neon_dotprod.rs" => &[NeonDotprod::FEATURES],
        other => panic!("say here which witnesses reach {other}"),
    }
}

/// The witnesses of a function or macro call that a file with several levels names by its level.
#[cfg(target_arch = "x86_64")]
fn reached_by_name(name: &str) -> &'static [&'static [&'static str]] {
    use burn_i2s::isa::{Avx2, Avx512Bw, Avx512Vnni, AvxVnni};
    match name {
        "avx2" | "decode_8" => &[Avx2::FEATURES, AvxVnni::FEATURES],
        "avx_vnni" => &[AvxVnni::FEATURES],
        "avx512" | "decode_16" => &[Avx512Bw::FEATURES, Avx512Vnni::FEATURES],
        "avx512bw" => &[Avx512Bw::FEATURES],
        "avx512_vnni" => &[Avx512Vnni::FEATURES],
        other => panic!("say here which witnesses reach {other}"),
    }
}

#[cfg(target_arch = "aarch64")]
fn reached_by_name(name: &str) -> &'static [&'static [&'static str]] {
    use burn_i2s::isa::{Neon, NeonDotprod};
    match name {
        "neon" => &[Neon::FEATURES, NeonDotprod::FEATURES],
        "neon_dotprod" => &[NeonDotprod::FEATURES],
        other => panic!("say here which witnesses reach {other}"),
    }
}

/// Features that another one brings along, by the definition of `target_feature`.
fn proves(features: &[&str], feature: &str) -> bool {
    features.contains(&feature) || (feature == "avx" && features.contains(&"avx2"))
}

/// Whether a list of features is about the architecture of this build.
fn of_this_architecture(features: &str) -> bool {
    features.contains("neon") == cfg!(target_arch = "aarch64")
}

/// Every `target_feature` list of a source, with the name of the function it is on.
fn lists(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for after in source.split("#[target_feature(enable = ").skip(1) {
        // The macro of the peaks hands its list on; its calls are looked at below.
        let Some(after) = after.strip_prefix('"') else { continue };
        let (features, after) = after.split_once('"').unwrap();
        let (_, after) = after.split_once("fn ").unwrap();
        let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
        found.push((name.to_owned(), features.to_owned()));
    }
    for call in source.split("spin!(").skip(1).filter(|call| !call.starts_with('\n')) {
        let mut arguments = call.split(", ");
        let (name, features) = (arguments.next().unwrap(), arguments.next().unwrap());
        found.push((name.to_owned(), features.trim_matches('"').to_owned()));
    }
    found
}

#[test]
fn kernels_enable_no_feature_that_their_witness_does_not_prove() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernel");
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let source = std::fs::read_to_string(&path).unwrap();
        let lists = lists(&source);
        assert_eq!(
            lists.is_empty(),
            !source.contains("#[target_feature("),
            "{file}: a list that this test does not understand"
        );
        for (name, features) in lists.iter().filter(|(_, features)| of_this_architecture(features)) {
            let by_name = ["float.rs", "float_half.rs", "peak.rs"].contains(&&*file);
            let witnesses = if by_name { reached_by_name(name) } else { reached_by(&file) };
            for witness in witnesses {
                for feature in features.split(',') {
                    assert!(proves(witness, feature), "{file}: {name} enables {feature}, proved is {witness:?}");
                }
            }
            files.insert(file.clone());
        }
    }
    let at_least = if cfg!(target_arch = "aarch64") { 3 } else { 9 };
    assert!(files.len() >= at_least, "lists were found in {files:?} alone");
}

/// The whole crate holds no other list: kernels are where the unsafe code is.
#[test]
fn no_other_source_enables_a_feature() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut looked_at = 0;
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("kernel") {
                    folders.push(path);
                }
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            assert!(!source.contains("#[target_feature("), "{}", path.display());
            assert!(!source.contains("unsafe {"), "{}", path.display());
            looked_at += 1;
        }
    }
    assert!(looked_at > 20);
}

/// `.ci/old-cpus` and `.ci/aarch64` run this on emulated CPUs, whose levels they know.
#[test]
#[ignore = "needs BITNET_EXPECT_LEVELS, such as avx2,scalar; .ci/old-cpus and .ci/aarch64 run it"]
fn the_cpu_has_the_expected_levels() {
    let expected = std::env::var("BITNET_EXPECT_LEVELS").unwrap();
    let found: Vec<&str> = burn_i2s::isa::Isa::available().iter().map(|isa| isa.name()).collect();
    assert_eq!(found.join(","), expected);
}
