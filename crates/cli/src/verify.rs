//! Budgets on trial: the program runs under each of them, interleaved with runs without a limit.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::recording;
use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::swap;
use lowtide_model::budget::trials::Slowdown;
use lowtide_model::budget::{Budget, Mechanism};
use lowtide_record::atomic::{self, Care};
use serde::{Deserialize, Serialize};

use crate::budgets::RecordBudget;
use crate::compare::runner::{Runner, Stop};
use crate::compare::scope;
use crate::session;

mod tables;
mod trials;

/// The result of the runs under one budget.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialResult {
    /// How the budget was calculated.
    pub mechanism: Mechanism,
    /// Bytes.
    pub bytes: u64,
    /// Whether the program may be paged out.
    pub swap: bool,
    /// Runs under it.
    pub runs: usize,
    /// Runs that were killed, failed, or took far too long.
    pub failed: usize,
    /// How the first of these ended.
    pub failure: Option<String>,
    /// Seconds, median of the others.
    pub runtime_s: Option<f64>,
    /// Standard deviation of these times over their mean.
    pub variability: Option<f64>,
    /// How much longer they took than those without a limit.
    pub slowdown: Option<Slowdown>,
    /// Share of the time in which a CPU waited for I/O.
    pub io_wait: Option<f64>,
    /// Performance per GB, by the published formula.
    pub perf_per_gb: Option<f64>,
    /// Whether it stays within the allowed slowdown.
    pub holds: bool,
    /// Whether more runs would not change that, with 95 % certainty however often that was asked.
    pub certain: bool,
}

/// The least budget that held, kept beside the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// Share of the time that may be lost.
    pub slowdown: f64,
    /// Whether the program might be paged out.
    pub swap: bool,
    /// Bytes of swap that were active; absent in files of earlier versions.
    #[serde(default)]
    pub swap_bytes: Option<u64>,
    /// Bytes.
    pub bytes: u64,
    /// The predicted budget, bytes.
    pub predicted_bytes: u64,
    /// How much longer runs took under it.
    pub measured: Slowdown,
}

/// The results of all trials.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdicts {
    /// Seconds without a limit, median.
    pub runtime_s: f64,
    /// Standard deviation of these times over their mean.
    pub variability: Option<f64>,
    /// Share of the time in which a CPU waited for I/O, without a limit.
    pub io_wait: Option<f64>,
    /// Performance per GB of Unlimited.
    pub perf_per_gb: Option<f64>,
    /// Of each budget.
    pub tried: Vec<TrialResult>,
    /// The least that holds, with and without swap, where it was searched for.
    pub verified: Vec<Verified>,
}

/// What the trials are to show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    /// Share of the time that may be lost.
    pub slowdown: f64,
    /// Rounds at most.
    pub runs: u32,
    /// Search for the least that holds even if the predicted budget holds.
    pub least: bool,
    /// Bytes of swap that are active.
    pub swap_bytes: u64,
}

/// Runs the program of a record under each budget. `None` if it was interrupted.
///
/// # Errors
/// If the program fails without any limit, or limits cannot be set.
pub fn verify(
    record: &RecordBudget,
    budgets: &BTreeMap<bool, Vec<Budget>>,
    asked: Asked,
) -> anyhow::Result<Option<Verdicts>> {
    let folder = record.record.join("trials");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let kernel = Kernel::default();
    let signals = session::ending_signals()?;
    let journal = recording::journal(&kernel)?;
    let runner = Runner { kernel: &kernel, journal: &journal, signals: &signals, folder, keep: false };
    match trials::run(&runner, record, budgets, asked) {
        Ok(all) => {
            keep(&record.record, &all.verified)?;
            Ok(Some(all))
        }
        Err(error) if Stop::is_interrupted(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that limits can be set here; otherwise every run would fail, whatever its program needs.
///
/// # Errors
/// If they cannot be set: why.
pub fn check(kernel: &Kernel) -> anyhow::Result<()> {
    if scope::serves(kernel) == Ok(true) {
        return Ok(());
    }
    // Not interrupted while there is a cgroup; a signal that comes now waits for `verify`.
    session::ending_signals()?;
    let journal = recording::journal(kernel)?;
    let fix = "run it as root, or where a cgroup was delegated to you";
    let refused = |exit: i32, why: String| Failure::new(exit, format!("--verify: no limit can be set: {why}; {fix}"));
    let failed = |error: lowtide_kernel::root::Error| {
        refused(if error.is_permission() { code::PERMISSION } else { code::IMPOSSIBLE }, error.to_string())
    };
    let made = Cgroup::create_own(kernel, &journal, &format!("lowtide-{}", std::process::id())).map_err(failed)?;
    let none = || refused(code::IMPOSSIBLE, "no memory cgroup is mounted".to_owned());
    let (cgroup, _lease) = made.ok_or_else(none)?;
    Ok(cgroup.set_limit(kernel, 1 << 30).map_err(failed)?)
}

/// The budgets of a record that were verified, by this trial or an earlier one.
#[must_use]
pub fn verified(record: &Path) -> Vec<Verified> {
    let read = || serde_json::from_slice(&std::fs::read(record.join("verified.json")).ok()?).ok();
    read().unwrap_or_default()
}

/// Keeps new verified budgets, and replaces earlier ones for the same slowdown.
fn keep(record: &Path, new: &[Verified]) -> anyhow::Result<()> {
    let mut all = verified(record);
    let same =
        |one: &Verified, other: &Verified| one.swap == other.swap && one.slowdown.total_cmp(&other.slowdown).is_eq();
    all.retain(|one| !new.iter().any(|other| same(one, other)));
    all.extend_from_slice(new);
    let path = record.join("verified.json");
    let text = serde_json::to_vec_pretty(&all)?;
    atomic::write(&path, Care { sync: true, ..Care::default() }, &text).with_context(|| path.display().to_string())
}

/// Whether programs can be tried with swap here, and without.
///
/// # Errors
/// If the kernel does not report it.
pub fn swaps(kernel: &Kernel, no_swap: bool) -> anyhow::Result<Vec<bool>> {
    let there = !no_swap && !swap::devices(kernel)?.is_empty();
    Ok(if there { vec![true, false] } else { vec![false] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_learns_the_newest_for_each_slowdown() {
        let dir = tempfile::tempdir().unwrap();
        let measured = Slowdown::of(&[(1.0, 1.0)]).unwrap();
        let one = |slowdown, bytes| Verified {
            slowdown,
            swap: true,
            swap_bytes: Some(1),
            bytes,
            predicted_bytes: 1,
            measured,
        };
        keep(dir.path(), &[one(0.02, 10), one(0.05, 8)]).unwrap();
        keep(dir.path(), &[one(0.02, 11)]).unwrap();
        assert_eq!(verified(dir.path()), [one(0.05, 8), one(0.02, 11)]);
        std::fs::write(dir.path().join("verified.json"), "[{").unwrap();
        assert_eq!(verified(dir.path()), []);
    }
}
