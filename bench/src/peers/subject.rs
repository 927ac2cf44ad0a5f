//! The program that recorders watch while it runs, and what it really did.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::child::Running;
use crate::tools::Tools;
use crate::truth::Truth;

/// Populating takes at most so long.
const POPULATED: Duration = Duration::from_secs(180);
/// The program goes on for so long after recorders were to end: some take a while to begin.
const SPARE_S: f64 = 90.0;

/// A populated pattern program.
#[derive(Debug)]
pub struct Subject {
    running: Running,
    log: PathBuf,
}

impl Subject {
    /// Starts a pattern and waits until all its memory is there.
    pub fn start(tools: &Tools, pattern: &str, seconds: f64, dir: &Path) -> anyhow::Result<Self> {
        let log = dir.join("truth.jsonl");
        let mut command = tools.pattern(&tools.pattern_file(pattern)?, dir)?;
        command.arg("--truth").arg(&log).arg("--seconds").arg((seconds + SPARE_S).to_string());
        let mut running = Running::start(command, dir)?;
        let start = Instant::now();
        while Truth::read(&log).is_err() {
            if start.elapsed() > POPULATED || !running.is_running()? {
                bail!("the pattern did not begin");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Self { running, log })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Ends it and tells what it did.
    pub fn end(mut self) -> anyhow::Result<Truth> {
        self.running.terminate();
        self.running.wait(Duration::from_secs(60), || ()).context("ending the pattern")?;
        Truth::read(&self.log)
    }
}

/// Seconds on `CLOCK_MONOTONIC`.
#[must_use]
pub fn now_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    #[expect(clippy::cast_precision_loss, reason = "an uptime")]
    let seconds = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
    seconds
}
