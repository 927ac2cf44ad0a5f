//! Polling by psutil once a second, as home-made monitors do.

use std::process::Command;

use anyhow::{Context, bail};

use super::subject::watch;
use super::{Answer, PeersArgs, Used};
use crate::truth::Truth;

/// Takes a process id and seconds; prints its readings as JSON.
const POLL: &str = include_str!("psutil_poll.py");

/// Polls a pattern.
pub fn run(args: &PeersArgs, pattern: &str) -> anyhow::Result<(Answer, Truth)> {
    let import = Command::new(&args.python).args(["-c", "import psutil"]).output();
    if !import.is_ok_and(|output| output.status.success()) {
        bail!("needs a Python with psutil; give it by --python (scripts/bench.sh --pypi makes one)");
    }
    let dir = args.tools.folder()?;
    let watched = watch(args, pattern, dir.path(), |pid| {
        let mut command = Command::new(&args.python);
        command.args(["-c", POLL]).arg(pid.to_string()).arg(args.seconds.to_string());
        Ok(command)
    })?;
    let peak_bytes = Some(watched.recorder.json()?["peak_bytes"].as_f64().context("psutil had no reading")?);
    let (recording, times) = (Used::of(&watched.recorder), Some((watched.from_s, watched.to_s)));
    let answer = Answer { seconds: args.seconds, peak_bytes, recording, watched: times, ..Answer::default() };
    Ok((answer, watched.truth))
}
