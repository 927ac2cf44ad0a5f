//! `lowtide-bench peers`: the same programs watched by other tools, what they find, and what they use for it.

mod damo;
mod gnu_time;
mod kdamonds;
mod lowtide;
mod print;
mod psutil;
mod subject;

use std::path::PathBuf;

use lowtide_model::stats::{max, quantile};
use serde::Serialize;

use crate::fits;
use crate::tools::Tools;
use crate::truth::Truth;

/// Left out of the truth at the start: every recorder takes a moment.
const SETTLING_S: f64 = 3.0;

/// `peers`
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    tools: Tools,
    /// Watch each program so long
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

/// What a part of a recorder's work used.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Used {
    cpu_s: Option<f64>,
    /// Of its largest process.
    peak_rss_bytes: Option<u64>,
}

/// What a recorder found.
#[derive(Debug, Default, Serialize)]
struct Answer {
    /// Seconds it watched.
    seconds: f64,
    peak_bytes: Option<f64>,
    working_set_bytes: Option<f64>,
    /// Kernel threads included.
    recording: Used,
    /// What it takes to get the answer from the recording, where that is a step of its own.
    answering: Used,
    /// The time of which the truth is asked, `CLOCK_MONOTONIC`; `None` = all of it.
    watched: Option<(f64, f64)>,
}

/// All of it.
#[derive(Debug, Serialize)]
struct Report<'a> {
    peers: &'a [Row],
}

/// One recorder on one pattern.
#[derive(Debug, Serialize)]
struct Row {
    pattern: String,
    recorder: &'static str,
    /// Why there are no figures.
    skipped: Option<String>,
    answer: Option<Answer>,
    truth_peak_bytes: Option<f64>,
    truth_working_set_bytes: Option<f64>,
}

/// A way to watch: on this pattern, for so long, by the means of `Args`.
type Recorder = fn(&Args, &str) -> anyhow::Result<(Answer, Truth)>;

/// All of them.
const RECORDERS: [(&str, Recorder); 4] = [
    ("GNU time", gnu_time::watch),
    ("psutil, 1 Hz", psutil::watch),
    ("damo", damo::watch),
    ("lowtide", lowtide::watch),
];

/// Watches every pattern by every recorder and prints what came of it.
///
/// # Errors
/// If a pattern is not found. A recorder that cannot serve here is skipped, with the reason.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (pattern, file) in args.only.iter().zip(args.tools.pattern_files(&args.only)?) {
        for (recorder, watch) in RECORDERS {
            eprintln!("peers: {pattern}, {recorder}");
            rows.push(row(pattern, recorder, fits::check(&file).and_then(|()| watch(args, pattern))));
        }
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&Report { peers: &rows })?);
    } else {
        print!("{}", print::text(&rows));
    }
    Ok(())
}

fn row(pattern: &str, recorder: &'static str, result: anyhow::Result<(Answer, Truth)>) -> Row {
    let mut row = Row {
        pattern: pattern.to_owned(),
        recorder,
        skipped: None,
        answer: None,
        truth_peak_bytes: None,
        truth_working_set_bytes: None,
    };
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
