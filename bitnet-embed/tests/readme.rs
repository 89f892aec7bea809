//! The README's Rust programs compile as documentation tests, with this crate's own dependencies; here is asked whether
//! its `[dependencies]` are enough for somebody who has no others.

use std::path::Path;

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap()
}

/// The text of all blocks that begin with this line, without their fences.
fn blocks<'a>(text: &'a str, fence: &str) -> Vec<&'a str> {
    let begin = format!("\n{fence}\n");
    text.split(&begin).skip(1).map(|block| block.split("\n```").next().unwrap()).collect()
}

/// The line of a manifest for this dependency.
fn dependency<'a>(manifest: &'a str, name: &str) -> Option<&'a str> {
    manifest.lines().find(|line| line.split('=').next().unwrap().trim() == name)
}

#[test]
fn the_dependencies_name_every_crate_that_the_programs_use() {
    let readme = read("README.md");
    let manifest = blocks(&readme, "```toml").concat();
    let programs = blocks(&readme, "```rust,no_run");
    assert_eq!(programs.len(), 2);
    for line in programs.iter().flat_map(|program| program.lines()).filter_map(|line| line.strip_prefix("use ")) {
        let name = line.split([':', ';']).next().unwrap().replace('_', "-");
        assert!(name == "std" || dependency(&manifest, &name).is_some(), "{name} is not in {manifest}");
    }
}

#[test]
fn burn_has_the_version_that_this_crate_is_built_with() {
    let version = |manifest: &str| {
        let line = dependency(manifest, "burn").unwrap();
        line.split('"').find(|part| part.starts_with('=') && part.len() > 1).map(str::to_owned)
    };
    let readme = read("README.md");
    let stated = blocks(&readme, "```toml").iter().find_map(|block| version(block));
    assert!(stated.is_some());
    assert_eq!(stated, version(&read("Cargo.toml")));
}
