//! A program whose memory use is known exactly: it touches memory as a pattern file says, and logs which bytes it
//! touched. Monitors of memory use are checked against that log.

mod area;
mod config;
mod hot;
mod log;
mod pattern;
mod rng;
mod run;
mod schedule;
mod shape;
mod smaps;
mod sys;
mod truth;
mod units;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Parser;

use crate::area::PatternArea;
use crate::log::TruthLog;
use crate::run::{PatternRun, Stats};
use crate::schedule::Ending;
use crate::units::{PAGE, parse_seconds};

/// Touches memory as a pattern file says, and logs exactly which bytes it touched when.
///
/// Ends when the pattern's phases do, or in an orderly way on SIGTERM or SIGINT. Prints one JSON line in the end:
/// passes, touches, seconds, late_s (furthest behind schedule) and busy_s (time spent on touching).
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// The pattern file.
    file: PathBuf,
    /// Write the ground truth here, as JSON lines: a header once memory is populated, then one line every so often.
    #[arg(long, value_name = "PATH")]
    truth: Option<PathBuf>,
    /// The time between two lines of the log. Every line reads one number per page.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, default_value = "1s")]
    every: u64,
    /// Where the files of `file` and `read` areas are made; they are removed in the end. [default: the temporary
    /// directory]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Run this long (seconds, or 200ms, 1m): the last phase is stretched, or the rest is cut off.
    #[arg(long, value_name = "N", value_parser = parse_seconds)]
    seconds: Option<u64>,
    /// Start again after the last phase, until --seconds or a signal.
    #[arg(long)]
    repeat: bool,
    /// Make this many touches without waiting for the clock, in the order the pattern makes them, and end.
    #[arg(long, value_name = "TOUCHES", conflicts_with_all = ["seconds", "repeat"])]
    work: Option<u64>,
    /// How many hot ranges a line of the log may have; if there are more, it says null instead.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    max_ranges: usize,
}

impl Options {
    fn ending(&self) -> Ending {
        match (self.work, self.repeat, self.seconds) {
            (Some(_), _, _) => Ending::Never,
            (_, true, seconds) => Ending::Repeat(seconds),
            (_, _, Some(seconds)) => Ending::After(seconds),
            _ => Ending::Phases,
        }
    }
}

/// The pattern file is wrong; the text says what would be right.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongPattern(String);

fn run(options: &Options) -> anyhow::Result<Stats> {
    let shown = options.file.display();
    let text = std::fs::read_to_string(&options.file).with_context(|| format!("reading {shown}"))?;
    let pattern = pattern::parse(&text).map_err(|why| WrongPattern(format!("{shown}: {}", why.trim_end())))?;
    let page = rustix::param::page_size();
    ensure!(page == PAGE, "this program counts in pages of {PAGE} bytes, but this system's have {page}");
    sys::catch_stop_signals().context("catching signals")?;
    let epoch = sys::monotonic_ns();
    let log = |path| TruthLog::create(path, epoch, options.every, options.max_ranges);
    let log = options.truth.as_deref().map(log).transpose()?;
    let dir = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let areas = pattern.areas.iter().map(|spec| PatternArea::new(spec, &dir)).collect::<Result<Vec<_>, _>>()?;
    PatternRun::new(&pattern, areas, epoch, options.work).with_log(log).run(options.ending())
}

fn main() -> ExitCode {
    let printed = run(&Options::parse()).and_then(|stats| {
        use std::io::Write as _;
        let line = serde_json::to_string(&stats)?;
        writeln!(std::io::stdout(), "{line}").context("printing the result")
    });
    let Err(error) = printed else { return ExitCode::SUCCESS };
    eprintln!("pattern: {error:#}");
    ExitCode::from(if error.is::<WrongPattern>() { 2 } else { 1 })
}
