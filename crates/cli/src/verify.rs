//! Budgets on trial: runs under each of them, interleaved with runs without a limit, and what these say.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;
use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::swap;
use lowtide_model::PAGE;
use lowtide_model::budget::trials::{Bisection, Slowdown, looks, perf_per_gb};
use lowtide_model::budget::{Budget, Mechanism};
use lowtide_model::interval::FEWEST;
use lowtide_model::random::Random;
use lowtide_model::stats;
use lowtide_model::units::{Size, Span};
use lowtide_record::atomic::{self, Care};
use serde::{Deserialize, Serialize};

use crate::compare::outcome::{Outcome, Outcomes};
use crate::compare::runner::{Runner, Stop, Work};
use crate::compare::scope;
use crate::compare::suite::{Config, ORIGINAL, Program, Suite};
use crate::session;
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::recording;

mod tables;

/// Pairs of runs in one step of the search for the least, at most.
const PAIRS: u32 = 3;
/// A pair that is so far from what is allowed needs no other to decide.
const FAR: [f64; 2] = [0.1, 0.02];
/// A run under a budget is given up after so many times its time without: the budget does not hold, however much longer it
/// would take.
const PATIENCE: f64 = 4.0;

/// A budget on trial.
#[derive(Debug, Clone, PartialEq)]
pub struct OnTrial {
    /// How it was come to.
    pub mechanism: Mechanism,
    /// Bytes.
    pub bytes: u64,
    /// Whether the program may be paged out.
    pub swap: bool,
}

impl OnTrial {
    fn name(&self) -> String {
        format!("{}{}", self.mechanism.name(), if self.swap { "" } else { ", no swap" })
    }

    fn key(&self) -> String {
        format!("{} {} KiB", self.name(), self.bytes >> 10)
    }

    /// With the limit set as whoever pastes it sets it.
    fn config(&self, scope: bool) -> Config {
        Config { name: self.key(), limit: Some(Size(self.bytes)), no_swap: !self.swap, scope, ..Config::default() }
    }
}

/// What came of one on trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tried {
    /// How it was come to.
    pub mechanism: Mechanism,
    /// Bytes.
    pub bytes: u64,
    /// Whether the program might be paged out.
    pub swap: bool,
    /// Runs under it.
    pub runs: usize,
    /// Of them those that were killed, failed, or took far too long, and how the first ended.
    pub failed: usize,
    /// See above.
    pub failure: Option<String>,
    /// Seconds, median of those that ended well.
    pub runtime_s: Option<f64>,
    /// Standard deviation of these times over their mean.
    pub variability: Option<f64>,
    /// How much longer they took than those without a limit.
    pub slowdown: Option<Slowdown>,
    /// Share of the time in which a CPU waited for I/O.
    pub io_wait: Option<f64>,
    /// Performance per GB, by what is published.
    pub perf_per_gb: Option<f64>,
    /// Whether it stays within the stated slowdown.
    pub holds: bool,
    /// Whether more runs would not change that, with 95 % certainty however often that was asked.
    pub certain: bool,
}

/// The least that was seen to hold, kept beside the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// Share of the time that may be lost.
    pub slowdown: f64,
    /// Whether the program might be paged out.
    pub swap: bool,
    /// Bytes of swap that there were; unknown of what was verified before this was kept.
    #[serde(default)]
    pub swap_bytes: Option<u64>,
    /// Bytes.
    pub bytes: u64,
    /// What had been predicted, bytes.
    pub predicted_bytes: u64,
    /// How much longer runs took under it.
    pub measured: Slowdown,
}

/// All that the trials came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdicts {
    /// Seconds without a limit, median, and the standard deviation over the mean.
    pub runtime_s: f64,
    /// See above.
    pub variability: Option<f64>,
    /// Share of the time in which a CPU waited for I/O, without a limit.
    pub io_wait: Option<f64>,
    /// Performance per GB of Unlimited.
    pub perf_per_gb: Option<f64>,
    /// Each budget's.
    pub tried: Vec<Tried>,
    /// The least that holds, with and without swap, as far as it was looked for.
    pub verified: Vec<Verified>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    /// Share of the time that may be lost.
    pub slowdown: f64,
    /// Rounds at most.
    pub runs: u32,
    /// The least that holds is looked for even if what was predicted holds.
    pub least: bool,
    /// Bytes of swap that there are.
    pub swap_bytes: u64,
}

/// Runs the program under each budget. `None` if it was interrupted.
///
/// # Errors
/// If the program fails without any limit, or limits cannot be set.
pub fn verify(
    record: &Path,
    command: &[String],
    runtime_s: f64,
    budgets: &BTreeMap<bool, Vec<Budget>>,
    asked: Asked,
) -> anyhow::Result<Option<Verdicts>> {
    let folder = record.join("trials");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let kernel = Kernel::default();
    let journal = recording::journal(&kernel)?;
    let signals = session::ending_signals()?;
    let runner = Runner { kernel: &kernel, journal: &journal, signals: &signals, folder: folder.clone(), keep: false };
    let suite = Suite::of(command.to_vec());
    let Some(program) = suite.programs.first() else { return Ok(None) };
    let patience = Span(Duration::from_secs_f64((PATIENCE * runtime_s + 30.0).ceil()));
    let program = Program { timeout: patience, ..program.clone() };
    let mut trials = Trials {
        work: Work { name: &program.name, programs: vec![&program], limit: None },
        runner: &runner,
        outcomes: Outcomes::open(&folder.join("runs.jsonl"))?,
        random: Random::new(1),
        round: 0,
        earlier: 0,
        spinner: std::io::stderr().is_terminal().then(ProgressBar::new_spinner),
        scope: scope(&kernel),
        asked,
    };
    trials.round = trials.outcomes.all.iter().map(|run| run.round).max().unwrap_or(0);
    trials.earlier = trials.round;
    let all = match trials.all(budgets) {
        Ok(all) => all,
        Err(Stop::Interrupted) => return Ok(None),
        Err(stop) => return Err(stop.into()),
    };
    if let Some(spinner) = &trials.spinner {
        spinner.finish_and_clear();
    }
    keep(record, &all.verified)?;
    Ok(Some(all))
}

/// Whether systemd sets the limits. Where it runs the machine and refuses, lowtide's own cgroups have to do, and it is said.
fn scope(kernel: &Kernel) -> bool {
    let serves = scope::serves(kernel);
    match &serves {
        Ok(true) => eprintln!("lowtide: limits are set by systemd-run --scope"),
        Ok(false) => {}
        Err(why) => eprintln!("lowtide: systemd sets no limits here ({why}); cgroups of lowtide's own have them"),
    }
    serves.unwrap_or(false)
}

/// That runs can be given limits: else every one of them would fail for that, and say nothing of the program.
///
/// # Errors
/// If they cannot: why.
pub fn check(kernel: &Kernel) -> anyhow::Result<()> {
    if scope::serves(kernel) == Ok(true) {
        return Ok(());
    }
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

/// What was verified of a record, whenever that was.
#[must_use]
pub fn verified(record: &Path) -> Vec<Verified> {
    let read = || serde_json::from_slice(&std::fs::read(record.join("verified.json")).ok()?).ok();
    read().unwrap_or_default()
}

/// Keeps it, in the place of what was known for the same slowdown.
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

/// Which media a program can be paged out to here: with swap, if there is any, and without.
///
/// # Errors
/// If the kernel does not tell.
pub fn swaps(kernel: &Kernel, no_swap: bool) -> anyhow::Result<Vec<bool>> {
    let there = !no_swap && !swap::devices(kernel)?.is_empty();
    Ok(if there { vec![true, false] } else { vec![false] })
}

/// Runs, and those that were made.
struct Trials<'a> {
    work: Work<'a>,
    runner: &'a Runner<'a>,
    outcomes: Outcomes,
    random: Random,
    /// The last one.
    round: u32,
    /// The last one that was made before this start.
    earlier: u32,
    spinner: Option<ProgressBar>,
    /// Whether limits are set by systemd.
    scope: bool,
    asked: Asked,
}

impl Trials<'_> {
    fn all(&mut self, budgets: &BTreeMap<bool, Vec<Budget>>) -> Result<Verdicts, Stop> {
        let limited = |budget: &&Budget| budget.mechanism != Mechanism::Unlimited;
        let on_trial: Vec<OnTrial> = budgets
            .iter()
            .flat_map(|(swap, all)| all.iter().filter(limited).map(|budget| (*swap, budget)))
            .map(|(swap, budget)| OnTrial { mechanism: budget.mechanism, bytes: budget.bytes, swap })
            .collect();
        for done in 0..self.asked.runs {
            let mut these: Vec<&OnTrial> = on_trial.iter().filter(|one| self.is_open(one)).collect();
            if these.is_empty() && done as usize >= FEWEST {
                break;
            }
            self.random.shuffle(&mut these);
            let at = self.random.index(these.len() + 1);
            self.round(&these, at)?;
        }
        let free: Vec<f64> = self.times(ORIGINAL).into_iter().map(|(_, seconds)| seconds).collect();
        let runtime_s = stats::quantile(&free, 0.5).ok_or_else(|| Stop::Failed("no run was made".to_owned()))?;
        let least = self.of(budgets, Mechanism::AppMaxrss).map(|bytes| (bytes, runtime_s));
        let unlimited = self.of(budgets, Mechanism::Unlimited);
        let mut verified = Vec::new();
        for one in on_trial.iter().filter(|one| one.mechanism == Mechanism::Lowtide) {
            verified.extend(self.least(one, &on_trial, unlimited)?);
        }
        Ok(Verdicts {
            runtime_s,
            variability: variability(&free),
            io_wait: self.mean(ORIGINAL, |run| run.io_wait),
            perf_per_gb: least.zip(unlimited).map(|(least, bytes)| perf_per_gb(least, (bytes, runtime_s))),
            tried: on_trial.iter().map(|one| self.tried(one, least)).collect(),
            verified,
        })
    }

    #[expect(clippy::unused_self, clippy::cast_precision_loss, reason = "a size of memory")]
    fn of(&self, budgets: &BTreeMap<bool, Vec<Budget>>, mechanism: Mechanism) -> Option<f64> {
        let all = budgets.values().flatten().find(|budget| budget.mechanism == mechanism);
        all.map(|budget| budget.bytes as f64)
    }

    /// One run under each of these, and before the one at this place one without a limit.
    fn round(&mut self, these: &[&OnTrial], at: usize) -> Result<(), Stop> {
        self.round += 1;
        let free = Config { name: ORIGINAL.to_owned(), ..Config::default() };
        let mut failed = 0;
        let mut configs: Vec<Config> = these.iter().map(|one| one.config(self.scope)).collect();
        configs.insert(at, free);
        for config in configs {
            let is_free = config.name == ORIGINAL;
            if is_free && failed == these.len() && failed > 0 && !self.runs(ORIGINAL).is_empty() {
                // There is nothing to compare it with.
                break;
            }
            if let Some(spinner) = &self.spinner {
                spinner.set_message(format!("round {}: {}", self.round, config.name));
                spinner.tick();
            }
            let outcome = self.runner.run(&self.work, &config, self.round)?;
            failed += usize::from(outcome.failure.is_some());
            if let (true, Some(why)) = (is_free, &outcome.failure) {
                return Err(Stop::Failed(format!("without a limit, it {why}; no budget can be told from that")));
            }
            self.outcomes.add(outcome).map_err(anyhow::Error::from)?;
        }
        Ok(())
    }

    /// Whether more runs would say more of it.
    fn is_open(&self, one: &OnTrial) -> bool {
        let runs = self.runs(&one.key());
        let failed = runs.iter().filter(|run| run.failure.is_some()).count();
        failed < 2 && !self.is_certain(one)
    }

    /// Whether it is certain enough if it stays within the slowdown.
    fn is_certain(&self, one: &OnTrial) -> bool {
        let before = self.runs(&one.key()).into_iter().filter(|run| run.round <= self.earlier).count();
        self.slowdown(one).is_some_and(|of| is_certain(&of, before, self.asked))
    }

    fn runs(&self, config: &str) -> Vec<&Outcome> {
        self.outcomes.all.iter().filter(|run| run.config == config).collect()
    }

    /// Rounds and seconds of those that ended well.
    fn times(&self, config: &str) -> Vec<(u32, f64)> {
        let well = self.runs(config).into_iter().filter(|run| run.failure.is_none());
        well.map(|run| (run.round, run.runtime_s)).collect()
    }

    fn mean(&self, config: &str, get: fn(&Outcome) -> Option<f64>) -> Option<f64> {
        stats::mean(&self.runs(config).into_iter().filter_map(get).collect::<Vec<f64>>())
    }

    fn slowdown(&self, one: &OnTrial) -> Option<Slowdown> {
        let free = self.times(ORIGINAL);
        let pair = |(round, under): (u32, f64)| Some((under, free.iter().find(|(other, _)| *other == round)?.1));
        Slowdown::of(&self.times(&one.key()).into_iter().filter_map(pair).collect::<Vec<_>>())
    }

    fn holds(&self, one: &OnTrial) -> bool {
        let failed = self.runs(&one.key()).iter().any(|run| run.failure.is_some());
        !failed && self.slowdown(one).is_some_and(|of| of.mean <= self.asked.slowdown)
    }

    fn tried(&self, one: &OnTrial, least: Option<(f64, f64)>) -> Tried {
        let name = one.key();
        let runs = self.runs(&name);
        let failures: Vec<&String> = runs.iter().filter_map(|run| run.failure.as_ref()).collect();
        let times: Vec<f64> = self.times(&name).into_iter().map(|(_, seconds)| seconds).collect();
        let runtime_s = stats::quantile(&times, 0.5);
        let slowdown = self.slowdown(one);
        #[expect(clippy::cast_precision_loss, reason = "a size of memory")]
        let bytes = one.bytes as f64;
        Tried {
            mechanism: one.mechanism,
            bytes: one.bytes,
            swap: one.swap,
            runs: runs.len(),
            failed: failures.len(),
            failure: failures.first().map(|why| (*why).clone()),
            runtime_s,
            variability: variability(&times),
            slowdown,
            io_wait: self.mean(&name, |run| run.io_wait),
            // Who does not get through has no performance.
            perf_per_gb: least.zip(runtime_s).map(|(least, runtime_s)| {
                if failures.is_empty() { perf_per_gb(least, (bytes, runtime_s)) } else { 0.0 }
            }),
            holds: self.holds(one),
            certain: !failures.is_empty() || self.is_certain(one),
        }
    }

    /// The least that holds: what was predicted, if that does and no less was asked for; else it is looked for.
    fn least(&mut self, own: &OnTrial, all: &[OnTrial], unlimited: Option<f64>) -> Result<Option<Verified>, Stop> {
        let verified = |trials: &Self, one: &OnTrial| {
            let measured = trials.slowdown(one)?;
            let (slowdown, swap, bytes) = (trials.asked.slowdown, one.swap, one.bytes);
            let swap_bytes = Some(if swap { trials.asked.swap_bytes } else { 0 });
            Some(Verified { slowdown, swap, swap_bytes, bytes, predicted_bytes: own.bytes, measured })
        };
        let holds = self.holds(own);
        if holds && !self.asked.least {
            return Ok(verified(self, own));
        }
        #[expect(clippy::cast_precision_loss, reason = "sizes of memory")]
        let number = |bytes: u64| bytes as f64;
        let mut best = holds.then(|| own.clone());
        let mut bisection = if holds {
            Bisection::between(0.0, number(own.bytes))
        } else {
            // What is known to hold, or what there is without a limit.
            let other = all.iter().filter(|one| one.swap == own.swap && one.bytes > own.bytes && self.holds(one));
            let high = other.min_by_key(|one| one.bytes).cloned();
            let bytes =
                high.as_ref().map_or(unlimited.unwrap_or(0.0).max(2.0 * number(own.bytes)), |one| number(one.bytes));
            best = high;
            Bisection::between(number(own.bytes), bytes)
        };
        while let Some(bytes) = bisection.next() {
            let one = OnTrial { bytes: whole_pages(bytes), ..own.clone() };
            let held = self.step(&one)?;
            bisection.told(bytes, held);
            if held {
                best = Some(one);
            }
        }
        Ok(best.and_then(|one| verified(self, &one)))
    }

    /// Whether so much holds, from as few pairs of runs as can tell.
    fn step(&mut self, one: &OnTrial) -> Result<bool, Stop> {
        for pairs in 1..=PAIRS {
            // What cannot even run needs no run to be compared with; else by turns, as machines drift.
            self.round(&[one], (pairs % 2) as usize)?;
            if self.runs(&one.key()).iter().any(|run| run.failure.is_some()) {
                return Ok(false);
            }
            let Some(slowdown) = self.slowdown(one) else { return Ok(false) };
            let off = slowdown.mean - self.asked.slowdown;
            if off > FAR[0] || (pairs > 1 && off.abs() > FAR[1]) {
                break;
            }
        }
        Ok(self.holds(one))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size of memory")]
fn whole_pages(bytes: f64) -> u64 {
    (bytes as u64).div_ceil(PAGE) * PAGE
}

/// Whether it is certain enough if a slowdown is allowed, for all the times that this is asked.
fn is_certain(slowdown: &Slowdown, runs_before: usize, asked: Asked) -> bool {
    slowdown.is_certain(asked.slowdown, looks(runs_before + asked.runs as usize))
}

/// Standard deviation over the mean; `None` of less than two.
fn variability(times: &[f64]) -> Option<f64> {
    Some(stats::stdev(times)? / stats::mean(times)?)
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

    #[test]
    fn every_round_that_may_end_the_trials_is_a_look() {
        let slowdown = Slowdown::of(&[(1.02, 1.0), (1.03, 1.0), (1.04, 1.0), (1.035, 1.0)]).unwrap();
        let asked = |runs| Asked { slowdown: 0.05, runs, least: false, swap_bytes: 0 };
        let certain = [(0, 3), (0, 12), (9, 3)].map(|(before, runs)| is_certain(&slowdown, before, asked(runs)));
        assert_eq!(certain, [true, false, false], "those of an earlier start count");
    }

    #[test]
    fn times_vary_by_their_deviation_over_the_mean() {
        assert_eq!(variability(&[3.0]), None);
        assert!((variability(&[9.0, 11.0]).unwrap() - 2f64.sqrt() / 10.0).abs() < 1e-12);
    }
}
