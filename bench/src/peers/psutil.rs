//! Polling by psutil once a second, as home-made monitors do.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use super::subject::{Subject, now_s};
use super::{Answer, Args, Used};
use crate::child::Running;
use crate::truth::Truth;

/// Takes a process id and seconds; prints what it saw as JSON.
const POLL: &str = include_str!("psutil_poll.py");

/// Polls a pattern.
pub fn watch(args: &Args, pattern: &str) -> anyhow::Result<(Answer, Truth)> {
    let there = Command::new(&args.python).args(["-c", "import psutil"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        bail!("needs a Python with psutil; give it by --python (scripts/bench.sh --pypi makes one)");
    }
    let dir = args.tools.folder()?;
    let subject = Subject::start(&args.tools, pattern, args.seconds, dir.path())?;
    let mut command = Command::new(&args.python);
    command.args(["-c", POLL]).arg(subject.pid().to_string()).arg(args.seconds.to_string());
    let start_s = now_s();
    let limit = Duration::from_secs_f64(args.seconds + 60.0);
    let finished = Running::start(command, dir.path())?.wait(limit, || ())?;
    let watched = Some((start_s, now_s()));
    let peak_bytes = Some(finished.json()?["peak_bytes"].as_f64().context("psutil saw nothing")?);
    let recording = Used { cpu_s: Some(finished.ended.cpu_s), peak_rss_bytes: Some(finished.ended.peak_rss_bytes) };
    let answer = Answer { seconds: args.seconds, peak_bytes, recording, watched, ..Answer::default() };
    Ok((answer, subject.end()?))
}
