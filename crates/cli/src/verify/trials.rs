//! The runs of a trial: rounds under each budget until the verdicts are certain, then a search for the least that holds.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;
use lowtide_kernel::root::Kernel;
use lowtide_model::PAGE;
use lowtide_model::budget::trials::{Bisection, Slowdown, perf_per_gb, planned_tests};
use lowtide_model::budget::{Budget, Mechanism};
use lowtide_model::interval::FEWEST;
use lowtide_model::random::Random;
use lowtide_model::stats;
use lowtide_model::units::{Size, Span, float, index, integer};

use super::{Asked, TrialResult, Verdicts, Verified};
use crate::budgets::RecordBudget;
use crate::compare::outcome::{Outcomes, RunOutcome};
use crate::compare::runner::{RunSpec, Runner, Stop};
use crate::compare::scope;
use crate::compare::suite::{Configuration, ORIGINAL, Program, Suite};

/// Pairs of runs in one step of the search for the least, at most.
const PAIRS: u32 = 3;
/// Slowdowns this far from the allowed one, after one pair and after more, need no further pair.
const FAR: [f64; 2] = [0.1, 0.02];
/// A run under a budget is ended after so many times its time without: the budget does not hold.
const PATIENCE: f64 = 4.0;

/// A budget on trial.
#[derive(Debug, Clone, PartialEq)]
struct OnTrial {
    mechanism: Mechanism,
    bytes: u64,
    /// Whether the program may be paged out.
    swap: bool,
}

impl OnTrial {
    fn key(&self) -> String {
        format!("{} {} KiB", name(self.mechanism, self.swap), self.bytes >> 10)
    }

    fn config(&self, scope: bool) -> Configuration {
        let limit = Some(Size(self.bytes));
        Configuration { name: self.key(), limit, no_swap: !self.swap, scope, ..Configuration::default() }
    }
}

/// The name of a budget on trial.
pub fn name(mechanism: Mechanism, swap: bool) -> String {
    format!("{}{}", mechanism.name(), if swap { "" } else { ", no swap" })
}

/// Whether systemd sets the limits. Where it runs the machine and refuses, lowtide's own cgroups set them, with a message.
fn scope(kernel: &Kernel) -> bool {
    let serves = scope::serves(kernel);
    match &serves {
        Ok(true) => lowtide_kernel::message!("lowtide: limits are set by systemd-run --scope"),
        Ok(false) => {}
        Err(why) => {
            lowtide_kernel::message!("lowtide: systemd sets no limits here ({why}); cgroups of lowtide's own have them")
        }
    }
    serves.unwrap_or(false)
}

/// Makes the runs that are still missing, and judges the budgets.
///
/// # Errors
/// If a run cannot be made, or was interrupted.
pub fn run(
    runner: &Runner<'_>,
    record: &RecordBudget,
    budgets: &BTreeMap<bool, Vec<Budget>>,
    asked: Asked,
) -> anyhow::Result<Verdicts> {
    let suite = Suite::of(record.argv.clone());
    let patience = Span(Duration::from_secs_f64((PATIENCE * record.runtime_s + 30.0).ceil()));
    let program = Program { timeout: patience, ..suite.programs[0].clone() };
    let outcomes = Outcomes::open(&runner.folder.join("runs.jsonl"))?;
    let earlier = outcomes.all.iter().map(|run| run.round).max().unwrap_or(0);
    let mut trials = Trials {
        spec: RunSpec { name: &program.name, programs: vec![&program], limit: None },
        runner,
        outcomes,
        random: Random::new(1),
        round: earlier,
        earlier,
        spinner: ProgressBar::new_spinner(),
        scope: scope(runner.kernel),
        asked,
    };
    let verdicts = trials.all(budgets);
    trials.spinner.finish_and_clear();
    verdicts
}

/// The runs made so far, and how to make more.
struct Trials<'a> {
    spec: RunSpec<'a>,
    runner: &'a Runner<'a>,
    outcomes: Outcomes,
    random: Random,
    /// The last round.
    round: u32,
    /// The last round of earlier starts.
    earlier: u32,
    spinner: ProgressBar,
    /// Whether systemd sets the limits.
    scope: bool,
    asked: Asked,
}

/// Bytes of one of the budgets.
fn bytes_of(budgets: &BTreeMap<bool, Vec<Budget>>, mechanism: Mechanism) -> Option<f64> {
    budgets.values().flatten().find(|budget| budget.mechanism == mechanism).map(|budget| float(budget.bytes))
}

impl Trials<'_> {
    fn all(&mut self, budgets: &BTreeMap<bool, Vec<Budget>>) -> anyhow::Result<Verdicts> {
        let limited = |budget: &&Budget| budget.mechanism != Mechanism::Unlimited;
        let on_trial: Vec<OnTrial> = budgets
            .iter()
            .flat_map(|(swap, all)| all.iter().filter(limited).map(|budget| (*swap, budget)))
            .map(|(swap, budget)| OnTrial { mechanism: budget.mechanism, bytes: budget.bytes, swap })
            .collect();
        for done in 0..self.asked.runs {
            let mut these: Vec<&OnTrial> = on_trial.iter().filter(|one| self.is_open(one)).collect();
            if these.is_empty() && usize::try_from(done)? >= FEWEST {
                break;
            }
            self.random.shuffle(&mut these);
            let at = self.random.index(these.len() + 1);
            self.round(&these, at)?;
        }
        let free: Vec<f64> = self.times(ORIGINAL).into_iter().map(|(_, seconds)| seconds).collect();
        let runtime_s = stats::quantile(&free, 0.5).context("no run was made")?;
        let least = bytes_of(budgets, Mechanism::AppMaxrss).map(|bytes| (bytes, runtime_s));
        let unlimited = bytes_of(budgets, Mechanism::Unlimited);
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

    /// One run under each of `these`, and one without a limit before the one at place `at`.
    fn round(&mut self, these: &[&OnTrial], at: usize) -> anyhow::Result<()> {
        self.round += 1;
        let free = Configuration { name: ORIGINAL.to_owned(), ..Configuration::default() };
        let mut failed = 0;
        let mut configs: Vec<Configuration> = these.iter().map(|one| one.config(self.scope)).collect();
        configs.insert(at, free);
        for config in configs {
            let is_free = config.name == ORIGINAL;
            if is_free && failed == these.len() && failed > 0 && !self.runs(ORIGINAL).is_empty() {
                // There is no run to compare it with.
                break;
            }
            self.spinner.set_message(format!("round {}: {}", self.round, config.name));
            self.spinner.tick();
            let outcome = self.runner.run(&self.spec, &config, self.round)?;
            failed += usize::from(outcome.failure.is_some());
            if let (true, Some(why)) = (is_free, &outcome.failure) {
                anyhow::bail!(Stop::Failed(format!("without a limit, it {why}; no budget follows from that")));
            }
            self.outcomes.add(outcome)?;
        }
        Ok(())
    }

    /// Whether more runs may change its verdict.
    fn is_open(&self, one: &OnTrial) -> bool {
        let runs = self.runs(&one.key());
        let failed = runs.iter().filter(|run| run.failure.is_some()).count();
        failed < 2 && !self.is_certain(one)
    }

    /// Whether it is certain that it stays within the slowdown, or that it does not.
    fn is_certain(&self, one: &OnTrial) -> bool {
        let before = self.runs(&one.key()).into_iter().filter(|run| run.round <= self.earlier).count();
        self.slowdown(one).is_some_and(|of| is_certain(&of, before, self.asked))
    }

    fn runs(&self, config: &str) -> Vec<&RunOutcome> {
        self.outcomes.all.iter().filter(|run| run.config == config).collect()
    }

    /// Rounds and seconds of the runs that did not fail.
    fn times(&self, config: &str) -> Vec<(u32, f64)> {
        let well = self.runs(config).into_iter().filter(|run| run.failure.is_none());
        well.map(|run| (run.round, run.runtime_s)).collect()
    }

    fn mean(&self, config: &str, get: fn(&RunOutcome) -> Option<f64>) -> Option<f64> {
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

    fn tried(&self, one: &OnTrial, least: Option<(f64, f64)>) -> TrialResult {
        let name = one.key();
        let runs = self.runs(&name);
        let failures: Vec<&String> = runs.iter().filter_map(|run| run.failure.as_ref()).collect();
        let times: Vec<f64> = self.times(&name).into_iter().map(|(_, seconds)| seconds).collect();
        let runtime_s = stats::quantile(&times, 0.5);
        let slowdown = self.slowdown(one);
        TrialResult {
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
            // A program that fails has no performance.
            perf_per_gb: least.zip(runtime_s).map(|(least, runtime_s)| {
                if failures.is_empty() { perf_per_gb(least, (float(one.bytes), runtime_s)) } else { 0.0 }
            }),
            holds: self.holds(one),
            certain: !failures.is_empty() || self.is_certain(one),
        }
    }

    /// The least that holds: the predicted budget, if that holds and no less was asked for; otherwise by a search.
    fn least(&mut self, own: &OnTrial, all: &[OnTrial], unlimited: Option<f64>) -> anyhow::Result<Option<Verified>> {
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
        let mut best = holds.then(|| own.clone());
        let mut bisection = if holds {
            Bisection::between(0.0, float(own.bytes))
        } else {
            // Up to a budget that held, or to what the program uses without a limit.
            let other = all.iter().filter(|one| one.swap == own.swap && one.bytes > own.bytes && self.holds(one));
            let high = other.min_by_key(|one| one.bytes).cloned();
            let bytes =
                high.as_ref().map_or(unlimited.unwrap_or(0.0).max(2.0 * float(own.bytes)), |one| float(one.bytes));
            best = high;
            Bisection::between(float(own.bytes), bytes)
        };
        while let Some(bytes) = bisection.next() {
            let one = OnTrial { bytes: integer(bytes).div_ceil(PAGE) * PAGE, ..own.clone() };
            let held = self.step(&one)?;
            bisection.record(bytes, held);
            if held {
                best = Some(one);
            }
        }
        Ok(best.and_then(|one| verified(self, &one)))
    }

    /// Whether a budget holds, from as few pairs of runs as decide it.
    fn step(&mut self, one: &OnTrial) -> anyhow::Result<bool> {
        for pairs in 1..=PAIRS {
            // The order alternates, as machines drift; what fails needs no run to be compared with.
            self.round(&[one], usize::from(pairs % 2 == 1))?;
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

/// Whether it is certain that a slowdown is within the allowed one or not, for all the times that this is asked.
fn is_certain(slowdown: &Slowdown, runs_before: usize, asked: Asked) -> bool {
    slowdown.is_certain(asked.slowdown, planned_tests(runs_before + index(f64::from(asked.runs))))
}

/// Standard deviation over the mean; `None` of less than two.
fn variability(times: &[f64]) -> Option<f64> {
    Some(stats::stdev(times)? / stats::mean(times)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_that_may_end_the_trials_counts() {
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
