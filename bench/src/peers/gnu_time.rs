//! GNU time: the largest resident set of the program, told when it ends.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use super::{Answer, Args, Used};
use crate::child::Running;
use crate::truth::Truth;

/// Runs the pattern under `time -v`.
pub fn watch(args: &Args, pattern: &str) -> anyhow::Result<(Answer, Truth)> {
    if !args.gnu_time.exists() {
        bail!("needs {} (Debian package time)", args.gnu_time.display());
    }
    let dir = args.tools.folder()?;
    let (told, log) = (dir.path().join("time"), dir.path().join("truth.jsonl"));
    let target = args.tools.pattern(&args.tools.pattern_file(pattern)?, dir.path())?;
    let mut command = Command::new(&args.gnu_time);
    command.args(["-v", "-o"]).arg(&told).arg(target.get_program()).args(target.get_args());
    command.arg("--truth").arg(&log).arg("--seconds").arg(args.seconds.to_string());
    let running = Running::start(command, dir.path())?;
    let pid = running.pid();
    let mut own = Used::default();
    let limit = Duration::from_secs_f64(args.seconds + 180.0);
    let finished = running.wait(limit, || own = own_use(pid).unwrap_or(own))?;
    anyhow::ensure!(finished.ended.code == 0, "{}", finished.complaint());
    let peak_bytes = peak(&std::fs::read_to_string(&told)?).context("GNU time did not say the resident set")?;
    let answer = Answer { seconds: args.seconds, peak_bytes: Some(peak_bytes), recording: own, ..Answer::default() };
    Ok((answer, Truth::read(&log)?))
}

fn peak(told: &str) -> Option<f64> {
    let kilobytes = told.lines().find_map(|line| line.trim().strip_prefix("Maximum resident set size (kbytes):"))?;
    Some(kilobytes.trim().parse::<f64>().ok()? * 1024.0)
}

/// What a process itself has used so far: `wait4` would count the program that it waits for.
fn own_use(pid: u32) -> Option<Used> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut times = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = times.next()?.parse::<f64>().ok()? + times.next()?.parse::<f64>().ok()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = peak.trim().strip_suffix("kB")?.trim().parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "100")]
    let per_s = rustix::param::clock_ticks_per_second() as f64;
    Some(Used { cpu_s: Some(ticks / per_s), peak_rss_bytes: Some(1024 * kilobytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_found() {
        let told = "\tCommand being timed: \"x\"\n\tMaximum resident set size (kbytes): 2048\n\tExit status: 0\n";
        assert_eq!(peak(told), Some(2_097_152.0));
        assert_eq!(peak("nothing"), None);
    }

    #[test]
    fn a_process_tells_its_own_use() {
        assert!(own_use(std::process::id()).is_some_and(|used| used.peak_rss_bytes > Some(100_000)));
    }
}
