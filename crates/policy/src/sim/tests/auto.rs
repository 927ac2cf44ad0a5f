//! How soon `auto` takes what is idle, and what it costs where the use changes.

use lowtide_model::curve::RefaultCosts;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::machine::Observation;
use crate::policies::Spec;

fn auto() -> AnyPolicy {
    Spec::built_in("auto").unwrap().build(1).unwrap()
}

/// Runs a workload under `auto`: its outcome, and what was out at the end of each step.
fn under_auto(load: Load, duration_s: f64) -> (Outcome, Vec<f64>) {
    let mut machine = Simulated::new(setup(memory(4000.0, 4000), vec![load], duration_s));
    let mut policy = auto();
    let mut out = Vec::new();
    while machine.step() {
        machine.turn(&mut policy);
        out.push(machine.loads()[0].out.total() as f64 * 4096.0 / MIB);
    }
    (machine.outcome(), out)
}

/// The first step, from one on, at whose end so much is out.
fn first(out: &[f64], from: usize, mib: f64) -> Option<usize> {
    out.iter().skip(from).position(|out| *out >= mib)
}

#[test]
fn what_is_idle_from_the_start_goes_within_seconds() {
    let parts = vec![part(64, AccessPattern::Sweep(0.5)), part(448, AccessPattern::Idle)];
    let (outcome, out) = under_auto(Load::new(1, "eighth", parts), 60.0);
    assert!(first(&out, 0, 1.0).is_some_and(|step| step <= 3), "{out:?}");
    assert!(out[59] > 440.0, "{out:?}");
    assert_eq!(outcome.refaults, PerKind::default());
}

#[test]
fn what_was_swept_for_a_minute_and_is_idle_then_goes_within_ten_seconds() {
    for period_s in [1.0, 5.0, 20.0, 60.0] {
        let swept = Part { idle_after_s: 60.0, ..part(1024, AccessPattern::Sweep(period_s)) };
        let (outcome, out) = under_auto(Load::new(1, "swept", vec![swept]), 180.0);
        let half = first(&out, 60, 512.0);
        assert!(half.is_some_and(|steps| steps <= 10), "{period_s}: {:?}", &out[50..90]);
        assert!(outcome.workloads[0].slowdown() < 0.02);
    }
}

/// A workload that uses its memory for half of a period, and rests for the other half.
fn swinging(mib: u32, period_s: f64, until_s: f64) -> Part {
    let mut times = Vec::new();
    let mut at_s = 0.5;
    while at_s < until_s {
        if at_s % period_s < 0.5 * period_s {
            times.push(at_s);
        }
        at_s += f64::min(1.0, 0.25 * period_s);
    }
    part(mib, AccessPattern::Trace(vec![times; mib as usize]))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever the period of a load that swings, it never loses more than two percent.
    #[test]
    fn a_load_that_swings_loses_little(period_s in 1.0f64..600.0, mib in 64u32..1500, steady in 16u32..200) {
        let duration_s = f64::max(600.0, 4.0 * period_s);
        let parts = vec![swinging(mib, period_s, duration_s), part(steady, AccessPattern::Sweep(1.0))];
        let (outcome, _) = under_auto(Load::new(1, "swings", parts), duration_s);
        let slowdown = outcome.workloads[0].slowdown();
        prop_assert!(slowdown < 0.02, "{}", slowdown);
    }
}

/// A policy that is given wrong prices.
struct WrongPrices {
    policy: Box<WorkloadPolicy>,
    factor: f64,
}

impl Policy for WrongPrices {
    type Frame = Observation;
    type Action = WorkloadAction;

    fn decide(&mut self, frame: &Observation) -> Vec<WorkloadAction> {
        let costs = RefaultCosts { swap_s: self.factor * frame.costs.swap_s, disk_s: self.factor * frame.costs.disk_s };
        self.policy.decide(&Observation { costs, ..frame.clone() })
    }
}

/// Minutes of a run in which a workload lost more than a share of the time, and all of them.
fn dear_minutes(machine: Setup, policy: WrongPrices, most: f64) -> (usize, usize) {
    let mut simulated = Simulated::new(machine);
    let mut policy = AnyPolicy::workloads(policy);
    let mut waited = Vec::new();
    while simulated.step() {
        waited.push(simulated.waited_s());
        simulated.turn(&mut policy);
    }
    let minutes: Vec<f64> = waited.chunks(60).map(|minute| minute.iter().sum::<f64>() / 60.0).collect();
    (minutes.iter().filter(|waited| **waited > most).count(), minutes.len())
}

/// On random machines, with random loads, faults, monitors that lie and prices that are wrong by half to twice, a workload
/// loses no more than the allowance in 99 of 100 minutes.
#[test]
fn the_allowance_holds_in_nearly_every_minute() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut dear, mut all) = (0, 0);
    for seed in 0..60u64 {
        let strategy = (laws::unlimited_load(), laws::faults(), 0.5f64..2.0);
        let (load, faults, factor) = strategy.new_tree(&mut runner).unwrap().current();
        let faults = InjectedFaults { vanish: None, swap_fills: None, ..faults };
        let machine = Setup { seed, faults, ..setup(memory(8000.0, 8000), vec![load], 1200.0) };
        let policy = Spec::built_in("auto").unwrap().build(seed).unwrap().into_workloads().unwrap();
        let (some, of) = dear_minutes(machine, WrongPrices { policy, factor }, 0.01);
        (dear, all) = (dear + some, all + of);
    }
    assert!(all >= 1000 && 100 * dear <= all, "{dear} of {all} minutes");
}
