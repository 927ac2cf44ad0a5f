//! The laws of the repository that the compiler does not hold.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The crates that docs/dependencies.md gives a reason for: names between backticks in the first column of its tables.
fn trusted() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let columns = text.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    let names = columns.flat_map(|column| column.split('`').skip(1).step_by(2));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn every_dependency_has_a_reason() {
    let tree = ["tree", "-p", "lowtide", "--edges", "normal,build", "--prefix", "none", "--locked", "--offline"];
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.args(tree).args(["--target", "x86_64-unknown-linux-gnu"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    let names = names.lines().filter_map(|line| line.split_whitespace().next());
    let used: BTreeSet<&str> = names.filter(|name| !name.starts_with("lowtide")).collect();
    assert_eq!(trusted(), Vec::from_iter(used), "docs/dependencies.md");
}
