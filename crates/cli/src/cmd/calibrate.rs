//! The monitors of this machine against a program whose working set is known: part of `lowtide doctor --calibrate`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use lowtide_engine::source::automatic;
use lowtide_model::PAGE;
use lowtide_model::summary::Summary;
use lowtide_model::units::{count, float};
use serde::Serialize;

/// Bytes the program holds.
const HELD: usize = 128 << 20;
/// Pieces of it that it uses over and over, evenly spread, and bytes of each.
const PIECES: usize = 16;
const PIECE: usize = 2 << 20;
/// Seconds it runs: enough for the cohort to settle and for a dozen figures.
const SECONDS: u64 = 15;
/// Time between two sweeps over what it uses.
const REST: Duration = Duration::from_millis(50);

/// A hidden command: the program itself.
///
/// # Errors
/// None; the signature is that of a command.
pub fn pattern() -> anyhow::Result<i32> {
    let mut held = vec![1u8; HELD];
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(SECONDS) {
        for piece in held.chunks_mut(HELD / PIECES) {
            for page in piece[..PIECE].chunks_mut(usize::try_from(PAGE)?) {
                page[0] = page[0].wrapping_add(1);
            }
        }
        std::hint::black_box(&held);
        std::thread::sleep(REST);
    }
    Ok(0)
}

/// How exact one monitor was, and what it cost.
#[derive(Debug, Clone, Serialize)]
pub struct MonitorCost {
    /// `damon` or `smaps`.
    pub monitor: &'static str,
    /// What the program used, bytes.
    pub known_bytes: u64,
    /// What the monitor said: working set of one second, median over the run. `None`: it cannot serve.
    pub measured_bytes: Option<u64>,
    /// Its deviation from what is known, percent. The program's own code and stack count in it.
    pub error_percent: Option<f64>,
    /// Half-width of the monitor's own 95 % interval, percent.
    pub ci95_percent: Option<f64>,
    /// CPU of lowtide and its kernel threads, percent of one CPU.
    pub cpu_percent: Option<f64>,
    /// lowtide's own highest resident set, bytes.
    pub own_peak_rss_bytes: Option<u64>,
    /// Why it cannot serve; empty where it can.
    pub why: String,
}

/// Runs the program under each monitor, one after the other.
#[must_use]
pub fn monitors(terminal: bool) -> Vec<MonitorCost> {
    automatic()
        .map(|entry| {
            let monitor = entry.name;
            if terminal {
                lowtide_kernel::message!("measuring a known program with {monitor}, {SECONDS} s ...");
            }
            let known_bytes = count(PIECES * PIECE);
            match measure(monitor) {
                Ok(Ok(summary)) => judge(monitor, known_bytes, &summary),
                Ok(Err(why)) => unmeasured(monitor, known_bytes, why),
                Err(error) => unmeasured(monitor, known_bytes, format!("{error:#}")),
            }
        })
        .collect()
}

fn unmeasured(monitor: &'static str, known_bytes: u64, why: String) -> MonitorCost {
    MonitorCost {
        monitor,
        known_bytes,
        measured_bytes: None,
        error_percent: None,
        ci95_percent: None,
        cpu_percent: None,
        own_peak_rss_bytes: None,
        why,
    }
}

fn judge(monitor: &'static str, known_bytes: u64, summary: &Summary) -> MonitorCost {
    let used = &summary.answer.steady.used;
    let measured_bytes = used.used_bytes;
    let half = used.used_high_bytes.zip(measured_bytes).map(|(high, bytes)| high.saturating_sub(bytes));
    let error = |bytes: u64| 100.0 * (float(bytes) / float(known_bytes) - 1.0);
    MonitorCost {
        measured_bytes,
        error_percent: measured_bytes.map(error),
        ci95_percent: half.zip(measured_bytes).map(|(half, bytes)| 100.0 * float(half) / float(bytes.max(1))),
        cpu_percent: summary.monitor.cpu_percent,
        own_peak_rss_bytes: summary.monitor.own_peak_rss_bytes,
        ..unmeasured(monitor, known_bytes, String::new())
    }
}

/// One run under one monitor: its summary, or lowtide's own words on why that monitor cannot serve.
fn measure(monitor: &str) -> anyhow::Result<Result<Summary, String>> {
    let folder = std::env::temp_dir().join(format!("lowtide-calibrate-{}-{monitor}", std::process::id()));
    let output = Command::new("/proc/self/exe")
        .args(["run", "--json", "--monitor", monitor, "--out"])
        .arg(&folder)
        .args(["--", "/proc/self/exe", "calibration-program"])
        .stdin(Stdio::null())
        .output()
        .context("lowtide could not be started")?;
    let _ = std::fs::remove_dir_all(&folder);
    if output.status.success() {
        return Ok(Ok(serde_json::from_slice(&output.stdout).context("the summary does not read")?));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it failed without a word");
    Ok(Err(last.trim_start_matches("lowtide: ").to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_signed_and_relative_to_what_is_known() {
        let mut summary = Summary::default();
        let used = &mut summary.answer.steady.used;
        (used.used_bytes, used.used_high_bytes) = (Some(90), Some(93));
        let cost = judge("damon", 100, &summary);
        assert!((cost.error_percent.unwrap() + 10.0).abs() < 1e-9);
        assert_eq!((cost.measured_bytes, cost.why.as_str()), (Some(90), ""));
        assert_eq!(judge("damon", 100, &Summary::default()).error_percent, None);
    }
}
