//! Seams that the compiler does not keep.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Rust files below a folder, with their texts.
fn sources(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
}

fn of(crates: &[&str]) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    crates.iter().for_each(|name| sources(&root.join(name).join("src"), &mut found));
    assert!(found.len() > 20);
    found
}

/// What is not in a test module.
fn product(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// What was tried on the simulated machine is what runs on the real one: in one place a policy is asked, and both
/// machines are asked there.
#[test]
fn policies_are_asked_in_one_place_for_real_and_simulated_machines() {
    let files: Vec<_> = of(&["cli", "engine", "kernel", "policy"])
        .into_iter()
        .filter(|(path, _)| {
            !path.components().any(|part| ["tests", "tests.rs"].iter().any(|name| part.as_os_str() == *name))
        })
        .collect();
    let with = |needle: &str| -> Vec<String> {
        let holding = files.iter().filter(|(_, text)| product(text).contains(needle));
        let mut names: Vec<String> =
            holding.map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(with(".decide("), ["machine.rs"]);
    // What carries actions out, on real machines and on the simulated one.
    assert_eq!(with("impl Actuator<Action> for "), ["actuator.rs", "obeying.rs"]);
    assert_eq!(with("impl Actuator<RegionAction> for "), ["acting.rs", "obeying.rs", "site.rs"]);
    // One place waits.
    assert_eq!(with("kernel.wait("), ["scheduler.rs"]);
}
