//! lowtide on the same programs, attached to them as the others are.

use anyhow::Context;
use lowtide_model::units::float;
use lowtide_record::Record;

use super::subject::watch;
use super::{Answer, PeersArgs, Used};
use crate::truth::Truth;

/// Records a pattern by `lowtide record --pid`.
pub fn run(args: &PeersArgs, pattern: &str) -> anyhow::Result<(Answer, Truth)> {
    let dir = args.tools.folder()?;
    let folder = dir.path().join("record");
    let watched = watch(args, pattern, dir.path(), |pid| {
        let mut command = args.tools.lowtide("record", &folder)?;
        command.arg("--pid").arg(pid.to_string()).arg("--duration").arg(format!("{}s", args.seconds));
        Ok(command)
    })?;
    let record = Record::open(&folder).map_err(|_| anyhow::anyhow!("{}", watched.recorder.complaint()))?;
    let end = record.meta().end.clone().context("the record has no end")?;
    let summary = record.summary();
    // The complete tree including the report page, less the cost of recording by lowtide's own account.
    let total_s = watched.recorder.ended.cpu_s + watched.kdamonds_s;
    let largest = watched.recorder.ended.peak_rss_bytes;
    let answer = Answer {
        seconds: args.seconds,
        peak_bytes: summary.memory.rss.peak_bytes.map(float),
        working_set_bytes: summary.answer.steady.used.used_bytes.map(float),
        recording: Used { cpu_s: Some(end.monitor_cpu_s), peak_rss_bytes: Some(end.own_peak_rss_bytes) },
        answering: Used {
            cpu_s: Some((total_s - end.monitor_cpu_s).max(0.0)),
            peak_rss_bytes: (largest > end.own_peak_rss_bytes).then_some(largest),
        },
        watched: Some((watched.from_s, watched.from_s + args.seconds)),
    };
    Ok((answer, watched.truth))
}
