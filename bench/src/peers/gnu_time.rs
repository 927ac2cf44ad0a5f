//! GNU time: the largest resident set of the program, reported when it ends.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;

use super::{Answer, PeersArgs, Used};
use crate::child::Running;
use crate::truth::Truth;

/// Runs the pattern under `time -v`.
pub fn run(args: &PeersArgs, pattern: &str) -> anyhow::Result<(Answer, Truth)> {
    if !args.gnu_time.exists() {
        bail!("needs {} (Debian package time)", args.gnu_time.display());
    }
    let dir = args.tools.folder()?;
    let (report, log) = (dir.path().join("time"), dir.path().join("truth.jsonl"));
    let target = args.tools.pattern(&args.tools.pattern_file(pattern)?, dir.path())?;
    let mut command = Command::new(&args.gnu_time);
    command.args(["-v", "-o"]).arg(&report).arg(target.get_program()).args(target.get_args());
    command.arg("--truth").arg(&log).arg("--seconds").arg(args.seconds.to_string());
    let running = Running::start(command, dir.path())?;
    let pid = running.pid;
    let mut own = Used::default();
    let limit = Duration::from_secs_f64(args.seconds + 180.0);
    let finished = running.wait(limit, || own = own_use(pid).unwrap_or(own))?;
    anyhow::ensure!(finished.ended.code == 0, "{}", finished.complaint());
    let peak_bytes = peak(&std::fs::read_to_string(&report)?).context("GNU time did not report the resident set")?;
    let answer = Answer { seconds: args.seconds, peak_bytes: Some(peak_bytes), recording: own, ..Answer::default() };
    Ok((answer, Truth::read(&log)?))
}

fn peak(report: &str) -> Option<f64> {
    let kilobytes = report.lines().find_map(|line| line.trim().strip_prefix("Maximum resident set size (kbytes):"))?;
    Some(kilobytes.trim().parse::<f64>().ok()? * 1024.0)
}

/// What a process itself has used so far: `wait4` would count the program that it waits for.
fn own_use(pid: u32) -> Option<Used> {
    let kernel = Kernel::default();
    let peak_rss_bytes = Some(proc::status(&kernel, pid).ok()?.peak_rss);
    Some(Used { cpu_s: Some(proc::cpu_seconds(&kernel, pid).ok()?), peak_rss_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_found() {
        let report = "\tCommand being timed: \"x\"\n\tMaximum resident set size (kbytes): 2048\n\tExit status: 0\n";
        assert_eq!(peak(report), Some(2_097_152.0));
        assert_eq!(peak("nothing"), None);
    }

    #[test]
    fn own_use_is_that_of_the_process() {
        assert!(own_use(std::process::id()).is_some_and(|used| used.peak_rss_bytes > Some(100_000)));
    }
}
