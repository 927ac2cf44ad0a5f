//! Programs whose slowdown is measured: one computes, one allocates, faults and starts processes. Each measures its own time
//! and prints it as one JSON line, so that start and end of the process are not in it. A third one runs any of them and
//! adds its CPU time.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use lowtide_kernel::sys::{Area, children_usage};

/// `churn` maps so much at a time: 2,048 page faults, and page tables of its own.
const CHUNK_PAGES: usize = 2048;

/// Hashes for `rounds` rounds in registers alone.
pub fn spin(rounds: u64) -> anyhow::Result<()> {
    let start = Instant::now();
    let hash = hash(rounds);
    report(start, rounds, hash);
    Ok(())
}

/// FNV-1a of the numbers below `rounds`: the compiler cannot shorten this loop.
pub fn hash(rounds: u64) -> u64 {
    (0..rounds).fold(0xcbf2_9ce4_8422_2325, |hash, round| (hash ^ black_box(round)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// `rounds` times: maps 8 MiB, touches all of it, unmaps it, and starts a process and waits for it.
pub fn churn(rounds: u64) -> anyhow::Result<()> {
    let start = Instant::now();
    for _ in 0..rounds {
        drop(Area::anonymous(CHUNK_PAGES, |_, page| page[0] = 1).context("mapping memory")?);
        let mut child = Command::new("/proc/self/exe");
        let status = child.arg("nothing").stdin(Stdio::null()).status().context("starting a process")?;
        anyhow::ensure!(status.success(), "the process failed: {status}");
    }
    report(start, rounds, 0);
    Ok(())
}

/// Runs a program that prints its figures as a JSON line, and adds `cpu_s`: user and system time of it and the processes
/// it waited for.
pub fn timed(words: &[String]) -> anyhow::Result<()> {
    let (program, arguments) = words.split_first().context("no program given")?;
    let before_s = children_usage().cpu_s;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
    crate::sys::end_with_this(&mut command);
    let output = command.output().with_context(|| format!("starting {program}"))?;
    let cpu_s = children_usage().cpu_s - before_s;
    anyhow::ensure!(output.status.success(), "{program}: {}", output.status);
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut figures: serde_json::Value = serde_json::from_str(printed.lines().last().unwrap_or_default())?;
    figures["cpu_s"] = cpu_s.into();
    println!("{figures}");
    Ok(())
}

fn report(start: Instant, rounds: u64, checksum: u64) {
    let seconds = start.elapsed().as_secs_f64();
    println!("{}", serde_json::json!({ "seconds": seconds, "rounds": rounds, "checksum": checksum }));
}
