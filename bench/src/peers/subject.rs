//! The program that recorders watch while it runs, and what it really did.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::PeersArgs;
use crate::child::{FinishedChild, Running};
use crate::kdamonds::Kdamonds;
use crate::machine::monotonic_s;
use crate::truth::Truth;

/// Populating takes at most so long.
const POPULATED: Duration = Duration::from_secs(180);
/// The program runs so much longer than recorders: some take a while to begin, and some to write a file.
const SPARE_S: f64 = 90.0;

/// A recorder that watched a pattern.
pub struct ObservedSubject {
    pub recorder: FinishedChild,
    /// CPU time of DAMON's kernel threads meanwhile.
    pub kdamonds_s: f64,
    /// Start and end of the recorder, `CLOCK_MONOTONIC`.
    pub from_s: f64,
    pub to_s: f64,
    pub truth: Truth,
}

/// Starts a pattern, waits until its memory is populated, runs the recorder that `command` gives for its process id, and
/// ends the pattern.
pub fn watch(
    args: &PeersArgs,
    pattern: &str,
    dir: &Path,
    command: impl FnOnce(u32) -> anyhow::Result<Command>,
) -> anyhow::Result<ObservedSubject> {
    let log = dir.join("truth.jsonl");
    let mut subject = args.tools.pattern(&args.tools.pattern_file(pattern)?, dir)?;
    subject.arg("--truth").arg(&log).arg("--seconds").arg((args.seconds + SPARE_S).to_string());
    let mut subject = Running::start(subject, dir)?;
    let start = Instant::now();
    while Truth::read(&log).is_err() {
        if start.elapsed() > POPULATED || !subject.is_running()? {
            bail!("the pattern did not begin");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let command = command(subject.pid)?;
    let (from_s, mut kdamonds) = (monotonic_s(), Kdamonds::new());
    let limit = Duration::from_secs_f64(args.seconds + 120.0);
    let recorder = Running::start(command, dir)?.wait(limit, || kdamonds.poll())?;
    let to_s = monotonic_s();
    subject.terminate();
    subject.wait(Duration::from_secs(60), || ()).context("ending the pattern")?;
    Ok(ObservedSubject { recorder, kdamonds_s: kdamonds.total_s(), from_s, to_s, truth: Truth::read(&log)? })
}
