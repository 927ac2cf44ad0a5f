//! damo: DAMON's own user-space tool. Only where nobody else holds DAMON.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use lowtide_kernel::damon;
use lowtide_kernel::root::Kernel;

use super::kdamonds::Kdamonds;
use super::subject::{Subject, now_s};
use super::{Answer, Args, Used};
use crate::child::{Finished, Running};
use crate::truth::Truth;

/// damo takes up to ten seconds to begin on slow machines, and some to write its file.
const SPARE_S: f64 = 120.0;

/// Records a pattern by `damo record`, then asks `damo report wss`.
pub fn watch(args: &Args, pattern: &str) -> anyhow::Result<(Answer, Truth)> {
    possible(&args.damo)?;
    let dir = args.tools.folder()?;
    let recorded = dir.path().join("damon.data");
    let subject = Subject::start(&args.tools, pattern, args.seconds, dir.path())?;
    let mut record = Command::new(&args.damo);
    // Only accesses: by default it records a CPU profile as well, which nobody asked for here.
    record.args(["record", "--do_record", "access", "--timeout"]).arg(args.seconds.to_string());
    record.arg("-o").arg(&recorded).arg(subject.pid().to_string());
    let (start_s, mut threads) = (now_s(), Kdamonds::new());
    let limit = Duration::from_secs_f64(args.seconds + SPARE_S);
    let finished = Running::start(record, dir.path())?.wait(limit, || threads.look())?;
    let watched = Some((start_s, now_s()));
    let truth = subject.end()?;
    if finished.ended.code != 0 || !recorded.exists() {
        bail!("damo record: {}", complaint(&finished));
    }
    let mut recording = used(&finished);
    recording.cpu_s = recording.cpu_s.map(|cpu_s| cpu_s + threads.cpu_s());
    let mut report = Command::new(&args.damo);
    report.args(["report", "wss", "--raw_number", "--range", "50", "51", "1", "--input"]).arg(&recorded);
    let told = Running::start(report, dir.path())?.wait(limit, || ())?;
    let median = median(&told.stdout).with_context(|| format!("damo report wss: {}", complaint(&told)))?;
    let answer = Answer {
        seconds: args.seconds,
        working_set_bytes: Some(median),
        recording,
        answering: used(&told),
        watched,
        ..Answer::default()
    };
    Ok((answer, truth))
}

fn possible(damo: &Path) -> anyhow::Result<()> {
    let kernel = Kernel::default();
    damon::probe(&kernel).map_err(|error| anyhow::anyhow!("needs DAMON: {error}"))?;
    if let Some(pid) = damon::running(&kernel).first() {
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

fn used(finished: &Finished) -> Used {
    Used { cpu_s: Some(finished.ended.cpu_s), peak_rss_bytes: Some(finished.ended.peak_rss_bytes) }
}

/// damo complains on either.
fn complaint(finished: &Finished) -> String {
    let said = if finished.stderr.trim().is_empty() { &finished.stdout } else { &finished.stderr };
    said.lines().last().unwrap_or("it said nothing").to_owned()
}

/// The 50th percentile of a working set distribution: a line of the percentile, the bytes, and perhaps a bar.
fn median(told: &str) -> Option<f64> {
    let fields = |line: &str| line.split('|').next().unwrap_or_default().replace(',', "");
    told.lines().find_map(|line| {
        let line = fields(line);
        let mut words = line.split_whitespace();
        if words.next()? != "50" {
            return None;
        }
        let number: f64 = words.next()?.parse().ok()?;
        let unit = match words.next() {
            None | Some("B") => 1.0,
            Some("KiB") => 1024.0,
            Some("MiB") => 1024.0 * 1024.0,
            Some("GiB") => 1024.0 * 1024.0 * 1024.0,
            Some(_) => return None,
        };
        Some(number * unit)
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
