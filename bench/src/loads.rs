//! Programs to be slowed down: one that computes, and one that allocates, faults and starts processes. Each times
//! itself and says so in one JSON line, so that nothing of what surrounds it is in its time. And one that runs any of
//! them and adds the CPU time it took.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use lowtide_kernel::sys::children_usage;

/// What `churn` maps at a time: 2,048 page faults, and enough for its page tables to come and go too.
const CHUNK: NonZeroUsize = NonZeroUsize::new(8 << 20).expect("not zero");

/// Hashes for `rounds` rounds in registers alone.
///
/// # Errors
/// If the result cannot be printed.
pub fn spin(rounds: u64) -> anyhow::Result<()> {
    let start = Instant::now();
    let hash = hash(rounds);
    tell(start, rounds, hash);
    Ok(())
}

/// FNV-1a of the numbers below, which leaves the compiler nothing to take out of the loop.
#[must_use]
pub fn hash(rounds: u64) -> u64 {
    (0..rounds).fold(0xcbf2_9ce4_8422_2325, |hash, round| (hash ^ black_box(round)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// `rounds` times: maps 8 MiB, touches all of it, unmaps it, and starts a process and waits for it.
///
/// # Errors
/// If memory or processes are refused.
pub fn churn(rounds: u64) -> anyhow::Result<()> {
    let start = Instant::now();
    for _ in 0..rounds {
        crate::sys::map_touch_unmap(CHUNK).context("mapping memory")?;
        let mut child = Command::new("/proc/self/exe");
        let status = child.arg("nothing").stdin(Stdio::null()).status().context("starting a process")?;
        anyhow::ensure!(status.success(), "the process failed: {status}");
    }
    tell(start, rounds, 0);
    Ok(())
}

/// Runs a program that tells its figures in a JSON line, and adds `cpu_s`: user and system time of it and the processes
/// it waited for.
///
/// # Errors
/// If it fails or tells nothing.
pub fn timed(words: &[String]) -> anyhow::Result<()> {
    let (program, arguments) = words.split_first().context("no program given")?;
    let before_s = children_usage().1;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
    crate::sys::dies_with_us(&mut command);
    let output = command.output().with_context(|| format!("starting {program}"))?;
    let cpu_s = children_usage().1 - before_s;
    anyhow::ensure!(output.status.success(), "{program}: {}", output.status);
    let told = String::from_utf8_lossy(&output.stdout);
    let mut figures: serde_json::Value = serde_json::from_str(told.lines().last().unwrap_or_default())?;
    figures["cpu_s"] = cpu_s.into();
    println!("{figures}");
    Ok(())
}

fn tell(start: Instant, rounds: u64, checksum: u64) {
    println!(
        "{}",
        serde_json::json!({ "seconds": start.elapsed().as_secs_f64(), "rounds": rounds, "checksum": checksum })
    );
}
