//! `lowtide-bench peers`: the same programs watched by other tools, their figures, and what they use for it.

mod damo;
mod gnu_time;
mod lowtide;
mod print;
mod psutil;
mod subject;

use std::collections::BTreeMap;
use std::path::PathBuf;

use lowtide_model::stats::{max, quantile};
use serde::Serialize;

use crate::child::FinishedChild;
use crate::tools::Tools;
use crate::truth::Truth;
use crate::{fits, grid};

/// Left out of the truth at the start: every recorder takes a moment.
const SETTLING_S: f64 = 3.0;

#[derive(Debug, clap::Args)]
pub struct PeersArgs {
    #[command(flatten)]
    tools: Tools,
    /// Seconds that each program is watched
    #[arg(long, value_name = "N", default_value_t = 30.0)]
    seconds: f64,
    /// Patterns to watch
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_value = "eighth,islands")]
    only: Vec<String>,
    /// A Python that has psutil
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// damo
    #[arg(long, value_name = "PATH", default_value = "damo")]
    damo: PathBuf,
    /// GNU time
    #[arg(long, value_name = "PATH", default_value = "/usr/bin/time")]
    gnu_time: PathBuf,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// What a step of a recorder's work used.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Used {
    cpu_s: Option<f64>,
    /// Of its largest process.
    peak_rss_bytes: Option<u64>,
}

impl Used {
    fn of(finished: &FinishedChild) -> Self {
        Self { cpu_s: Some(finished.ended.cpu_s), peak_rss_bytes: Some(finished.ended.peak_rss_bytes) }
    }
}

#[derive(Debug, Default, Serialize)]
struct Answer {
    /// Seconds it watched.
    seconds: f64,
    peak_bytes: Option<f64>,
    working_set_bytes: Option<f64>,
    /// Kernel threads included.
    recording: Used,
    /// Getting the answer from the recording, where that is a step of its own.
    answering: Used,
    /// Start and end of the watch, `CLOCK_MONOTONIC`; `None` = the program's own.
    watched: Option<(f64, f64)>,
}

#[derive(Debug, Default, Serialize)]
struct Row {
    pattern: String,
    recorder: &'static str,
    /// Why there are no figures.
    skipped: Option<String>,
    answer: Option<Answer>,
    truth_peak_bytes: Option<f64>,
    truth_working_set_bytes: Option<f64>,
}

type Recorder = fn(&PeersArgs, &str) -> anyhow::Result<(Answer, Truth)>;

const RECORDERS: [(&str, Recorder); 4] =
    [("GNU time", gnu_time::run), ("psutil, 1 Hz", psutil::run), ("damo", damo::run), ("lowtide", lowtide::run)];

/// Watches every pattern by every recorder and prints the figures. A recorder that cannot run here is skipped, with the
/// reason.
pub fn run(args: &PeersArgs) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (pattern, file) in args.only.iter().zip(args.tools.pattern_files(&args.only)?) {
        for (recorder, watch) in RECORDERS {
            eprintln!("peers: {pattern}, {recorder}");
            rows.push(row(pattern, recorder, fits::check(&file).and_then(|()| watch(args, pattern))));
        }
    }
    grid::print(args.json, &BTreeMap::from([("peers", &rows)]), || print::text(&rows))
}

fn row(pattern: &str, recorder: &'static str, result: anyhow::Result<(Answer, Truth)>) -> Row {
    let mut row = Row { pattern: pattern.to_owned(), recorder, ..Row::default() };
    match result {
        Ok((answer, truth)) => {
            let (from_s, to_s) = answer.watched.unwrap_or((truth.header.start_s, f64::INFINITY));
            let lines = || truth.lines.iter().filter(|line| (from_s + SETTLING_S..=to_s).contains(&line.t_s));
            let sets: Vec<f64> = lines().filter_map(|line| line.working_set.get(&1).copied()).collect();
            row.truth_peak_bytes = max(&lines().map(|line| line.resident).collect::<Vec<f64>>());
            row.truth_working_set_bytes = quantile(&sets, 0.5);
            row.answer = Some(answer);
        }
        Err(error) => row.skipped = Some(format!("{error:#}")),
    }
    row
}
