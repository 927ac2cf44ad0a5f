//! Checks that `docs/record.md` agrees with the field table and the JSON files.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use lowtide_model::budget::Known;
use lowtide_model::meta::{End, Meta, Refusal, SchemeUse};
use lowtide_model::numa::NodeSummary;
use lowtide_model::scheme::{Action, Scheme};
use lowtide_model::summary::{Summary, summarise};
use lowtide_model::task::Task;
use lowtide_model::usage::{FIELDS, Field, Shape, Unit};
use serde_json::Value;

const RECORD: &str = include_str!("../../../docs/record.md");

/// The text below a heading, up to the next one.
fn section(heading: &str) -> &'static str {
    let (_, text) = RECORD.split_once(&format!("\n## {heading}\n")).unwrap();
    text.split("\n## ").next().unwrap()
}

/// First cells of the rows of a section's tables, where they are a name.
fn names(section: &str) -> Vec<&str> {
    section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

/// How the field's row reads in the document.
fn row_of(field: &Field) -> String {
    let unit = match field.unit {
        Unit::Bytes => "bytes",
        Unit::Count => "count",
        Unit::Seconds => "seconds",
    };
    let shape = match field.shape {
        Shape::Gauge => "level",
        Shape::Counter => "counter",
    };
    format!("| `{}` | {unit} | {shape} | {} |", field.name, field.doc)
}

#[test]
fn every_field_has_its_row() {
    let lines: Vec<&str> = section("usage.parquet").lines().collect();
    let missing: Vec<String> = FIELDS.iter().map(row_of).filter(|row| !lines.contains(&row.as_str())).collect();
    assert!(missing.is_empty(), "docs/record.md lacks, or has otherwise:\n{}", missing.join("\n"));
}

#[test]
fn rows_are_in_the_order_of_the_columns_and_there_are_no_others() {
    let documented = names(section("usage.parquet"));
    let fields: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(documented, fields);
}

/// Every key of a JSON value, at any depth.
fn keys(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            found.push(key.clone());
            keys(value, found);
        }),
        Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

#[test]
fn every_key_of_the_json_files_is_named() {
    let refused = Refusal { backend: String::new(), why: String::new() };
    let mut meta = Meta { end: Some(End::default()), task: Some(Task::default()), ..Meta::default() };
    meta.task = meta.task.map(|task| Task { partition: Some(String::new()), ..task });
    meta.monitor.refused.push(refused);
    let scheme = Scheme { name: Some(String::new()), ..Scheme::new(Action::Stat) };
    let (by, none) = (String::new(), None);
    meta.schemes.push(SchemeUse {
        scheme,
        by,
        dry_run: false,
        tried_bytes: 0,
        applied_bytes: 0,
        refused_bytes: none,
        returned_bytes: none,
        quota_exceeded: none,
        cpu_s: None,
        held_s: BTreeMap::new(),
    });
    let summary = Summary { nodes: vec![NodeSummary::default()], ..summarise(&Known::of(&meta, &[]), &[], &[]) };
    let summary = serde_json::to_value(summary).unwrap();
    for (file, value) in [("meta.json", serde_json::to_value(&meta).unwrap()), ("summary.json", summary)] {
        // What summary.json repeats from meta.json is described there.
        let text = section(file).to_owned() + section("meta.json");
        let mut found = Vec::new();
        keys(&value, &mut found);
        let missing: Vec<&String> = found.iter().filter(|key| !text.contains(&format!("`{key}`"))).collect();
        assert!(missing.is_empty(), "docs/record.md does not name these keys of {file}: {missing:?}");
    }
}
