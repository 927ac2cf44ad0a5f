//! `lowtide-bench accuracy`: what lowtide says of programs whose memory use is known exactly, held against the truth.

mod ages;
mod map;
mod print;
mod steady;
mod working_set;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lowtide_record::Record;
use serde::Serialize;

use crate::fits;
use crate::tools::{Measured, Tools};
use crate::truth::Truth;

/// Left out after populating: monitors take a moment to find a program, and so has populating to be noticed.
const SETTLING_S: f64 = 3.0;
/// Left out for the map, whose regions take some aggregations to find their shape.
const MAP_SETTLING_S: f64 = 10.0;
/// Ranges of a line of the log: more than any pattern has, `sparse` having the most (28,600).
const MAX_RANGES: &str = "200000";
/// Longer than any pattern runs by itself.
const PATTERN_S: f64 = 60.0;
/// A pattern may take so much longer than it is told, on slow machines and to populate.
const LIMIT_S: f64 = 240.0;

/// `accuracy`
#[derive(Debug, clap::Args)]
pub struct Args {
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

/// All of it.
#[derive(Debug, Serialize)]
struct Report<'a> {
    accuracy: &'a [Row],
}

/// One pattern.
#[derive(Debug, Serialize)]
struct Row {
    pattern: String,
    /// Why there are no figures.
    skipped: Option<String>,
    figures: Option<Figures>,
}

/// What came of one pattern.
#[derive(Debug, Serialize)]
struct Figures {
    backend: String,
    /// Furthest that the pattern was ever behind its schedule: the truth holds all the same, but less was touched.
    late_s: Option<f64>,
    steady: steady::Score,
    working_set: Vec<working_set::Score>,
    ages: ages::Score,
    map: Option<map::Score>,
    cost: Cost,
    notes: Vec<String>,
}

/// What measuring cost.
#[derive(Debug, Serialize)]
struct Cost {
    cpu_percent: Option<f64>,
    own_peak_rss_bytes: Option<u64>,
    record_bytes_per_minute: Option<f64>,
}

/// Runs the patterns and prints what came of them.
///
/// # Errors
/// If a program or a pattern is not found. A pattern that cannot be measured here is skipped, with the reason.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for file in args.tools.pattern_files(&args.only)? {
        let pattern = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        eprintln!("accuracy: {pattern}");
        let (skipped, figures) = match one(args, &file, &pattern) {
            Ok(figures) => (None, Some(figures)),
            Err(error) => (Some(format!("{error:#}")), None),
        };
        rows.push(Row { pattern, skipped, figures });
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&Report { accuracy: &rows })?);
    } else {
        print!("{}", print::text(&rows));
    }
    Ok(())
}

fn one(args: &Args, file: &Path, pattern: &str) -> anyhow::Result<Figures> {
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
#[must_use]
pub fn table_bytes(record: &Path) -> f64 {
    let files = [record.to_path_buf(), record.join("parts")].into_iter().filter_map(|dir| std::fs::read_dir(dir).ok());
    let tables = files.flatten().flatten().filter(|entry| entry.path().extension().is_some_and(|e| e == "parquet"));
    #[expect(clippy::cast_precision_loss, reason = "the size of a record")]
    let bytes = tables.filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum::<u64>() as f64;
    bytes
}

#[cfg(test)]
mod tests;
