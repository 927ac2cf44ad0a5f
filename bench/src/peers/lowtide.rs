//! lowtide on the same programs, attached to them as the others are.

use std::time::Duration;

use anyhow::Context;
use lowtide_record::Record;

use super::kdamonds::Kdamonds;
use super::subject::{Subject, now_s};
use super::{Answer, Args, Used};
use crate::child::Running;
use crate::truth::Truth;

/// Records a pattern by `lowtide record --pid`.
pub fn watch(args: &Args, pattern: &str) -> anyhow::Result<(Answer, Truth)> {
    let dir = args.tools.folder()?;
    let folder = dir.path().join("record");
    let subject = Subject::start(&args.tools, pattern, args.seconds, dir.path())?;
    let mut command = args.tools.lowtide("record", &folder)?;
    command.arg("--pid").arg(subject.pid().to_string()).arg("--duration").arg(format!("{}s", args.seconds));
    let (start_s, mut threads) = (now_s(), Kdamonds::new());
    let limit = Duration::from_secs_f64(args.seconds + 120.0);
    let finished = Running::start(command, dir.path())?.wait(limit, || threads.look())?;
    let truth = subject.end()?;
    let record = Record::open(&folder).map_err(|_| anyhow::anyhow!("{}", finished.complaint()))?;
    let end = record.meta().end.clone().context("the record has no end")?;
    let summary = record.summary();
    // The whole tree, report page and all, less what recording took by lowtide's own account.
    let all_s = finished.ended.cpu_s + threads.cpu_s();
    let largest = finished.ended.peak_rss_bytes;
    #[expect(clippy::cast_precision_loss, reason = "sizes of memory")]
    let bytes = |value: Option<u64>| value.map(|value| value as f64);
    let answer = Answer {
        seconds: args.seconds,
        peak_bytes: bytes(summary.memory.rss.peak_bytes),
        working_set_bytes: bytes(summary.answer.steady.used.used_bytes),
        recording: Used { cpu_s: Some(end.monitor_cpu_s), peak_rss_bytes: Some(end.own_peak_rss_bytes) },
        answering: Used {
            cpu_s: Some((all_s - end.monitor_cpu_s).max(0.0)),
            peak_rss_bytes: (largest > end.own_peak_rss_bytes).then_some(largest),
        },
        watched: Some((start_s, start_s + args.seconds)),
    };
    Ok((answer, truth))
}
