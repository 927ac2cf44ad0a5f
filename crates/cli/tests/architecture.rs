//! The laws of the repository that the compiler does not hold.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Which crates of the workspace each crate may import.
const IMPORTS: [(&str, &[&str]); 8] = [
    ("model", &[]),
    ("policy", &["model"]),
    ("kernel", &["model"]),
    ("record", &["model"]),
    ("fleet", &["model", "policy", "record"]),
    ("report", &["fleet", "model", "policy", "record"]),
    ("engine", &["fleet", "kernel", "model", "policy", "record"]),
    ("cli", &["engine", "fleet", "kernel", "model", "policy", "record", "report"]),
];

/// Lines of a file that are not its tests, at most.
const LINES: usize = 400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every product file of the crates, the benchmarks and the workloads, with its lines above its tests.
fn product() -> Vec<(String, String)> {
    fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "benches", "target"].contains(&name.as_str()) {
                collect(&path, found);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    ["crates", "bench", "workloads"].iter().for_each(|dir| collect(&root().join(dir), &mut found));
    let file = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let product = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        (path.strip_prefix(root()).unwrap().display().to_string(), product)
    };
    found.into_iter().map(file).collect()
}

#[test]
fn crates_import_only_what_the_design_allows() {
    let mut crates: Vec<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    crates.sort();
    let mut known = IMPORTS.map(|(name, _)| name);
    known.sort_unstable();
    assert_eq!(crates, known, "every crate has its line");
    for (name, allowed) in IMPORTS {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let dependencies = manifest["dependencies"].as_table().unwrap();
        for import in dependencies.keys().filter_map(|dependency| dependency.strip_prefix("lowtide-")) {
            assert!(allowed.contains(&import), "{name} must not import {import}");
        }
    }
}

#[test]
fn no_two_public_types_share_a_name() {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in product() {
        for line in text.lines().map(str::trim_start) {
            let declared = ["pub struct ", "pub enum ", "pub trait "].iter().find_map(|start| line.strip_prefix(start));
            if let Some(rest) = declared {
                let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
                types.entry(name.to_owned()).or_default().push(file.clone());
            }
        }
    }
    types.retain(|_, files| files.len() > 1);
    assert!(types.is_empty(), "{types:#?}");
}

#[test]
fn no_product_file_is_long() {
    let too_long = |(_, text): &(String, String)| text.lines().count() > LINES;
    let long: Vec<String> = product().into_iter().filter(too_long).map(|(file, _)| file).collect();
    assert!(long.is_empty(), "{long:?}");
}
