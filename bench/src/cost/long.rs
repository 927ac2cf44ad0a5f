//! A long watch of the 2 GiB pattern: growth of lowtide's own memory and of its record.

use std::time::{Duration, Instant};

use anyhow::Context;
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_model::units::float;
use lowtide_record::Record;
use serde::Serialize;

use crate::accuracy::table_bytes;
use crate::child::Running;
use crate::fits;
use crate::grid::{counted_size, figure, size, table};
use crate::tools::{Tools, measured};

/// Rows of the table at most about so many.
const ROWS: f64 = 20.0;

#[derive(Debug, Serialize)]
pub struct Long {
    backend: String,
    minutes: f64,
    samples: Vec<Sample>,
    own_peak_rss_bytes: u64,
    monitor_cpu_percent: f64,
    /// The tables once the record is finished.
    record_bytes: f64,
}

/// lowtide at one time.
#[derive(Debug, Serialize)]
struct Sample {
    t_s: f64,
    own_rss_bytes: Option<f64>,
    /// The tables so far.
    record_bytes: f64,
}

pub fn run(tools: &Tools, minutes: f64) -> anyhow::Result<Long> {
    let eighth = tools.pattern_file("eighth")?;
    fits::check(&eighth)?;
    let dir = tools.folder()?;
    let mut program = tools.pattern(&eighth, dir.path())?;
    program.arg("--seconds").arg((60.0 * minutes).to_string());
    let lowtide = Running::start(tools.under_lowtide(&program, dir.path())?, dir.path())?;
    let (start, pid, record) = (Instant::now(), lowtide.pid, dir.path().join("record"));
    let every_s = (60.0 * minutes / ROWS).max(1.0);
    let mut samples: Vec<Sample> = Vec::new();
    let limit = Duration::from_secs_f64(60.0 * minutes + 300.0);
    let finished = lowtide.wait(limit, || {
        let t_s = start.elapsed().as_secs_f64();
        // Afterwards it does not record.
        if t_s < 60.0 * minutes && t_s >= samples.last().map_or(0.0, |last| last.t_s) + every_s {
            eprintln!("cost: {t_s:.0} s of {:.0}", 60.0 * minutes);
            samples.push(Sample { t_s, own_rss_bytes: resident(pid), record_bytes: table_bytes(&record) });
        }
    })?;
    measured(&finished, dir.path())?;
    let opened = Record::open(&record)?;
    let end = opened.meta().end.clone().context("the record has no end")?;
    Ok(Long {
        backend: opened.meta().monitor.backend.clone(),
        minutes,
        samples,
        own_peak_rss_bytes: end.own_peak_rss_bytes,
        monitor_cpu_percent: 100.0 * end.monitor_cpu_s / end.runtime_s,
        record_bytes: table_bytes(&record),
    })
}

/// Resident set of a process, bytes.
fn resident(pid: u32) -> Option<f64> {
    proc::status(&Kernel::default(), pid).ok().map(|status| float(status.rss()))
}

pub fn text(long: &Long) -> String {
    let row = |of: &Sample| vec![figure(Some(of.t_s), 0, " s"), size(of.own_rss_bytes), size(Some(of.record_bytes))];
    let rows: Vec<Vec<String>> = long.samples.iter().map(row).collect();
    let title = format!("\n{} min of the 2 GiB pattern, monitor {}", long.minutes, long.backend);
    let end = format!(
        "own peak RSS {}, monitor CPU {:.2} % of one, finished record {} ({} per minute)\n",
        counted_size(Some(long.own_peak_rss_bytes)),
        long.monitor_cpu_percent,
        size(Some(long.record_bytes)),
        size(Some(long.record_bytes / long.minutes)),
    );
    table(&title, "time | own RSS | record", &rows) + &end
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_has_a_resident_set_while_it_lives() {
        assert!(super::resident(std::process::id()).is_some_and(|bytes| bytes > 100_000.0));
        assert_eq!(super::resident(u32::MAX), None);
    }
}
