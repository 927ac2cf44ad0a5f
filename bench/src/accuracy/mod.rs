//! `lowtide-bench accuracy`: lowtide's figures of programs whose memory use is known exactly, compared to the truth.

mod ages;
mod map;
mod print;
mod steady;
mod working_set;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lowtide_model::units::float;
use lowtide_record::Record;
use serde::Serialize;

use crate::tools::{Measured, Tools};
use crate::truth::Truth;
use crate::{fits, grid};

/// Left out after populating: monitors take a moment to find a program, and to notice populating.
const SETTLING_S: f64 = 3.0;
/// Left out for the map, whose regions take some aggregations to find their shape.
const MAP_SETTLING_S: f64 = 10.0;
/// Ranges of a line of the log: more than any pattern has (`sparse`: 28,600).
const MAX_RANGES: &str = "200000";
/// Longer than any pattern runs by itself.
const PATTERN_S: f64 = 60.0;
/// Extra time for a pattern, to populate and on slow machines.
const LIMIT_S: f64 = 240.0;

#[derive(Debug, clap::Args)]
pub struct AccuracyArgs {
    #[command(flatten)]
    tools: Tools,
    /// Patterns, by name [default: all]
    #[arg(value_delimiter = ',', long, value_name = "NAMES")]
    only: Vec<String>,
    /// Run each so long [default: as long as the pattern says, 30 to 40]
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Time between two lines of the programs' logs
    #[arg(long, value_name = "TIME", default_value = "250ms")]
    every: String,
    /// Keep records and logs of the truth in this folder, one folder per pattern
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    pattern: String,
    /// Why there are no figures.
    skipped: Option<String>,
    figures: Option<Figures>,
}

#[derive(Debug, Serialize)]
struct Figures {
    backend: String,
    /// Furthest that the pattern was behind its schedule: the truth is still true, but less was touched.
    late_s: Option<f64>,
    steady: steady::SteadyScore,
    working_set: Vec<working_set::WorkingSetScore>,
    ages: ages::AgeScore,
    map: Option<map::MapScore>,
    cost: Cost,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Cost {
    cpu_percent: Option<f64>,
    own_peak_rss_bytes: Option<u64>,
    record_bytes_per_minute: Option<f64>,
}

/// Runs the patterns and prints their figures. A pattern that cannot be measured here is skipped, with the reason.
pub fn run(args: &AccuracyArgs) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for file in args.tools.pattern_files(&args.only)? {
        let pattern = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        eprintln!("accuracy: {pattern}");
        let result = one(args, &file, &pattern);
        let skipped = result.as_ref().err().map(|error| format!("{error:#}"));
        rows.push(Row { pattern, skipped, figures: result.ok() });
    }
    grid::print(args.json, &BTreeMap::from([("accuracy", &rows)]), || print::text(&rows))
}

fn one(args: &AccuracyArgs, file: &Path, pattern: &str) -> anyhow::Result<Figures> {
    fits::check(file)?;
    let temporary = args.tools.folder()?;
    let kept = args.keep.as_ref().map(|keep| keep.join(pattern));
    let dir = kept.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(dir)?;
    let truth = dir.join("truth.jsonl");
    let mut program = args.tools.pattern(file, temporary.path())?;
    program.arg("--truth").arg(&truth).args(["--max-ranges", MAX_RANGES, "--every", &args.every]);
    if let Some(seconds) = args.seconds {
        program.arg("--seconds").arg(seconds.to_string());
    }
    let limit = Duration::from_secs_f64(args.seconds.unwrap_or(PATTERN_S) + LIMIT_S);
    let measured = args.tools.measure(&program, dir, limit)?;
    compare(&measured, &Truth::read(&truth)?)
}

fn compare(measured: &Measured, truth: &Truth) -> anyhow::Result<Figures> {
    let record = Record::open(&measured.record)?;
    let meta = record.meta();
    let usage = record.usage();
    let start_s = meta.started_monotonic_s;
    let end = meta.end.as_ref();
    let minutes = end.map(|end| end.runtime_s / 60.0).filter(|minutes| *minutes > 0.0);
    Ok(Figures {
        backend: meta.monitor.backend.clone(),
        late_s: measured.program["late_s"].as_f64(),
        steady: steady::score(&record.summary().answer, start_s, truth),
        working_set: [1, 10].map(|window| working_set::score(&usage, start_s, truth, window)).into(),
        ages: ages::score(&record.ages(), start_s, truth),
        map: map::score(&record, truth),
        cost: Cost {
            cpu_percent: end.zip(minutes).map(|(end, minutes)| 100.0 * end.monitor_cpu_s / (60.0 * minutes)),
            own_peak_rss_bytes: end.map(|end| end.own_peak_rss_bytes),
            record_bytes_per_minute: minutes.map(|minutes| table_bytes(&measured.record) / minutes),
        },
        notes: meta.notes.clone(),
    })
}

/// Bytes of a record's tables, finished or in parts. The report page is not data, and its size is nearly fixed.
pub fn table_bytes(record: &Path) -> f64 {
    let files = [record.to_path_buf(), record.join("parts")].into_iter().filter_map(|dir| std::fs::read_dir(dir).ok());
    let tables = files.flatten().flatten().filter(|entry| entry.path().extension().is_some_and(|e| e == "parquet"));
    float(tables.filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum::<u64>())
}

#[cfg(test)]
mod tests;
