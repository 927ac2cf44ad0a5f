//! Phones: apps that take turns in the foreground.

use super::*;
use crate::lifecycle::{self, Lifecycle};

/// Apps that come to the foreground in turn, on a phone that has not enough memory for all: it uses a third of what it holds.
pub(super) fn phone(apps: u32, mib: u32, total_mib: f64, swap_mib: u64, lasts_s: f64) -> Setup {
    let loads = (0..apps).map(|id| {
        let file = Part { kind: Kind::File, ..part(mib / 4, AccessPattern::Sweep(lasts_s)) };
        let anon = [part(mib / 3, AccessPattern::Sweep(1.0)), part(mib - mib / 3, AccessPattern::Idle)];
        let mut app = Load::new(u64::from(id) + 1, format!("app {id}"), [anon.to_vec(), vec![file]].concat());
        let from_s = lasts_s * f64::from(id);
        app.foreground = Some(Foreground { from_s, lasts_s, every_s: lasts_s * f64::from(apps) });
        app
    });
    let duration_s = 4.0 * lasts_s * f64::from(apps);
    Setup { spare: 96.0 * MIB, step_s: 0.5, ..setup(memory(total_mib, swap_mib), loads.collect(), duration_s) }
}

#[test]
fn what_is_paged_out_in_the_background_need_not_be_killed() {
    let both = |swap_mib| {
        let phone = || Simulated::new(phone(8, 170, 1024.0, swap_mib, 6.0));
        let policy = Lifecycle::new(lifecycle::LifecycleSettings::default());
        (run(phone(), None), run(phone(), Some(AnyPolicy::workloads(policy))))
    };
    // Swap is short: each workload paged out is one less to be killed.
    let (nothing, paged_out) = both(512);
    assert!(nothing.killed() >= 20, "{}", nothing.killed());
    assert!(paged_out.killed() * 10 <= nothing.killed() * 8, "{} of {}", paged_out.killed(), nothing.killed());
    // It is not: none is killed, and none waits for others to be evicted.
    let (nothing, paged_out) = both(1400);
    assert_eq!((nothing.killed(), paged_out.killed()), (0, 0));
    assert!(paged_out.slowdown() < 0.5 * nothing.slowdown(), "{} after {}", paged_out.slowdown(), nothing.slowdown());
}
