//! damo: DAMON's own user-space tool. Only where nothing else uses DAMON.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use lowtide_kernel::damon;
use lowtide_kernel::root::Kernel;
use lowtide_model::units::{Size, float};

use super::subject::watch;
use super::{Answer, PeersArgs, Used};
use crate::child::{FinishedChild, Running};
use crate::truth::Truth;

/// Records a pattern by `damo record`, then asks `damo report wss`.
pub fn run(args: &PeersArgs, pattern: &str) -> anyhow::Result<(Answer, Truth)> {
    possible(&args.damo)?;
    let dir = args.tools.folder()?;
    let recorded = dir.path().join("damon.data");
    let watched = watch(args, pattern, dir.path(), |pid| {
        let mut record = Command::new(&args.damo);
        // Only accesses: by default it records a CPU profile as well.
        record.args(["record", "--do_record", "access", "--timeout"]).arg(args.seconds.to_string());
        record.arg("-o").arg(&recorded).arg(pid.to_string());
        Ok(record)
    })?;
    if watched.recorder.ended.code != 0 || !recorded.exists() {
        bail!("damo record: {}", complaint(&watched.recorder));
    }
    let mut recording = Used::of(&watched.recorder);
    recording.cpu_s = recording.cpu_s.map(|cpu_s| cpu_s + watched.kdamonds_s);
    let mut report = Command::new(&args.damo);
    report.args(["report", "wss", "--raw_number", "--range", "50", "51", "1", "--input"]).arg(&recorded);
    let limit = Duration::from_secs_f64(args.seconds + 120.0);
    let report = Running::start(report, dir.path())?.wait(limit, || ())?;
    let median = median(&report.stdout).with_context(|| format!("damo report wss: {}", complaint(&report)))?;
    let answer = Answer {
        seconds: args.seconds,
        working_set_bytes: Some(median),
        recording,
        answering: Used::of(&report),
        watched: Some((watched.from_s, watched.to_s)),
        ..Answer::default()
    };
    Ok((answer, watched.truth))
}

fn possible(damo: &Path) -> anyhow::Result<()> {
    let kernel = Kernel::default();
    damon::probe(&kernel).map_err(|error| anyhow::anyhow!("needs DAMON: {error}"))?;
    if let Some(pid) = damon::running(&kernel)?.first() {
        bail!("needs DAMON to itself: kdamond {pid} is on");
    }
    if let Some(module) = damon::exclusive_module(&kernel) {
        bail!("needs DAMON to itself: {module} is on");
    }
    if !Command::new(damo).arg("version").output().is_ok_and(|output| output.status.success()) {
        bail!("needs damo; give it by --damo (scripts/bench.sh --pypi fetches it)");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir.join("perf").exists() || dir.join("trace-cmd").exists()) {
        bail!("needs perf or trace-cmd, by which damo records");
    }
    Ok(())
}

/// damo writes errors to either output.
fn complaint(finished: &FinishedChild) -> String {
    let output = if finished.stderr.trim().is_empty() { &finished.stdout } else { &finished.stderr };
    output.lines().last().unwrap_or("no message").to_owned()
}

/// The 50th percentile of a working set distribution: a line of the percentile, the bytes, and perhaps a bar.
fn median(report: &str) -> Option<f64> {
    report.lines().find_map(|line| {
        let line = line.split('|').next()?.replace(',', "");
        let mut words = line.split_whitespace();
        if words.next()? != "50" {
            return None;
        }
        let size = words.next()?.to_owned() + words.next().unwrap_or_default();
        Size::in_file(&size).ok().map(|Size(bytes)| float(bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_found_with_units_and_without() {
        let raw = "# <percentile> <wss>\n# target_id\t0\n# avr:\t67108864\n50\t67108864 |*****|\n";
        assert_eq!(median(raw), Some(67_108_864.0));
        assert_eq!(median(" 50      63.500 MiB |****   |"), Some(63.5 * 1_048_576.0));
        assert_eq!(median(" 50   67,108,864 |****   |"), Some(67_108_864.0));
        assert_eq!(median("no snapshot"), None);
    }
}
