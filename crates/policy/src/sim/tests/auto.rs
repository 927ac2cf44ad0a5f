//! How soon `auto` takes what is idle, and what it costs where the use changes.

use proptest::prelude::*;

use super::*;
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
        println!("{period_s} s: half after {half:?}, {:.2} % lost", 100.0 * outcome.workloads[0].slowdown());
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
        println!("{period_s:.0} s, {mib} MiB: {:.2} %", 100.0 * slowdown);
        prop_assert!(slowdown < 0.02, "{}", slowdown);
    }
}
