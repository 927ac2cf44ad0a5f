use lowtide_model::PAGE;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::scheme::Action as Advice;
use lowtide_model::units::Span;

use super::load::{AccessPattern, Foreground, Load, MemoryLimits, Part};
use super::memory::{SimulatedMemory, Swap};
use super::monitor::Monitors;
use super::simulated::Setup;
use super::*;
use crate::machine::{Actuator, Policy, RegionAction, RegionPolicy, WorkloadAction, WorkloadPolicy};
use crate::policies::AnyPolicy;
use crate::reclaim::Reclaimer;
use crate::reclaim::age::AgeSettings;
use crate::reclaim::brakes::Brakes;

const MIB: f64 = 1_048_576.0;

fn memory(total_mib: f64, swap_mib: u64) -> SimulatedMemory {
    let swap = Swap { capacity: swap_mib * 256, used: 0, zram: true, in_s: 10e-6 };
    SimulatedMemory { total: total_mib * MIB, resident: 0, stored: 0.0, swap, disk_s: 100e-6, out_s: 5e-6 }
}

fn setup(memory: SimulatedMemory, loads: Vec<Load>, duration_s: f64) -> Setup {
    Setup {
        seed: 1,
        step_s: 1.0,
        duration_s,
        cpus: 8.0,
        memory,
        loads,
        turn_s: 1.0,
        monitors: Monitors::default(),
        faults: InjectedFaults::default(),
        spare: 0.0,
    }
}

/// So many MiB in groups of 1 MiB.
fn part(mib: u32, uses: AccessPattern) -> Part {
    Part::new(Kind::Anon, uses, 256, mib)
}

fn age(seconds: f64) -> AnyPolicy {
    let span = Some(Span(std::time::Duration::from_secs_f64(seconds)));
    AnyPolicy::workloads(Reclaimer::new(
        AgeSettings { anon: span, file: span, ..AgeSettings::default() },
        Brakes::default(),
    ))
}

#[test]
fn left_alone_with_enough_memory_nothing_happens() {
    let load = Load::new(1, "web", vec![part(100, AccessPattern::Steady(2.0)), part(300, AccessPattern::Idle)]);
    let outcome = run(Simulated::new(setup(memory(1000.0, 0), vec![load], 60.0)), None);
    assert_eq!((outcome.refaults, outcome.out_bytes, outcome.killed()), (PerKind::default(), PerKind::default(), 0));
    assert_eq!(outcome.workloads[0].slowdown(), 0.0);
    assert!((outcome.workloads[0].resident_peak_bytes - 400.0 * MIB).abs() < 1.0);
}

#[test]
fn what_is_idle_goes_and_what_is_used_stays() {
    let load = Load::new(1, "web", vec![part(100, AccessPattern::Sweep(2.0)), part(300, AccessPattern::Idle)]);
    let outcome = run(Simulated::new(setup(memory(1000.0, 1000), vec![load], 600.0)), Some(age(10.0)));
    assert_eq!(outcome.refaults, PerKind::default());
    let gone = 300.0 * MIB;
    // The first round that finds it idle is the second one, at 41 s.
    assert!((outcome.out_bytes.anon - gone * 559.0 / 600.0).abs() < 0.01 * gone, "{}", outcome.out_bytes.anon / MIB);
    assert!((outcome.net_bytes() - outcome.out_bytes.anon * 2.0 / 3.0).abs() < MIB);
    assert!(outcome.action_cpu_s > 0.0);
}

#[test]
fn a_part_that_comes_again_is_there_each_time_and_gone_between() {
    let mut batch =
        Part { from_s: 10.0, grow_s: 5.0, until_s: 40.0, again_s: 100.0, ..part(50, AccessPattern::Sweep(5.0)) };
    batch.idle_after_s = 30.0;
    let mut machine = Simulated::new(setup(memory(1000.0, 0), vec![Load::new(1, "batch", vec![batch])], 1000.0));
    let mut there = Vec::new();
    while machine.step() {
        there.push(machine.loads()[0].bytes() / MIB);
    }
    // The first step ends after a second.
    for round in 0..10 {
        let at = |second: usize| there[100 * round + second - 1];
        assert_eq!([at(9), at(16), at(39), at(41), at(99)], [0.0, 50.0, 50.0, 0.0, 0.0], "round {round}: {there:?}");
    }
}

#[test]
fn a_sweep_longer_than_the_age_costs_what_its_pages_cost() {
    let load = Load::new(1, "scan", vec![part(200, AccessPattern::Sweep(60.0))]);
    let mut setup = setup(memory(1000.0, 1000), vec![load], 1200.0);
    setup.memory.swap.in_s = 1e-3;
    let outcome = run(Simulated::new(setup), Some(age(10.0)));
    let waited_s = outcome.workloads[0].waited_s;
    #[expect(clippy::cast_precision_loss)]
    let expected = outcome.refaults.anon as f64 * 1e-3;
    assert!(outcome.refaults.anon > 100_000, "{:?}", outcome.refaults);
    assert!((waited_s - expected).abs() < 0.02 * expected, "{waited_s} against {expected}");
}

#[test]
fn a_limit_is_kept_and_without_swap_it_kills() {
    let bounded = |swap_mib| {
        let mut load = Load::new(1, "big", vec![part(200, AccessPattern::Idle), part(50, AccessPattern::Steady(1.0))]);
        load.limits = MemoryLimits { max: 100.0 * MIB, ..MemoryLimits::default() };
        run(Simulated::new(setup(memory(1000.0, swap_mib), vec![load], 60.0)), None)
    };
    let kept = bounded(500);
    assert!(kept.workloads[0].resident_peak_bytes <= 100.0 * MIB && kept.killed() == 0, "{:?}", kept.workloads[0]);
    assert_eq!(bounded(0).killed(), 1);
}

#[test]
fn protection_is_the_last_to_be_taken() {
    let mut safe = Load::new(1, "safe", vec![part(200, AccessPattern::Idle)]);
    safe.limits.low = 200.0 * MIB;
    let other = Load::new(2, "other", vec![part(300, AccessPattern::Idle)]);
    let mut late = Load::new(3, "late", vec![part(250, AccessPattern::Steady(5.0))]);
    late.start_s = 10.0;
    let outcome = run(Simulated::new(setup(memory(600.0, 1000), vec![safe, other, late], 60.0)), None);
    assert_eq!(outcome.workloads[0].out_bytes.anon, 0.0);
    assert!(outcome.workloads[1].out_bytes.anon > 50.0 * MIB, "{:?}", outcome.workloads[1]);
    assert_eq!(outcome.killed(), 0);
}

#[test]
fn the_same_seed_gives_the_same_machine() {
    let faults = InjectedFaults { vanish: Some(Span(std::time::Duration::from_secs(50))), ..InjectedFaults::default() };
    let once = || {
        let loads = (1..6).map(|id| Load::new(id, "web", vec![part(50, AccessPattern::Zipf(1.0))])).collect();
        run(Simulated::new(Setup { faults, ..setup(memory(1000.0, 500), loads, 300.0) }), Some(age(5.0)))
    };
    assert_eq!(once(), once());
}

#[test]
fn starved_of_cpu_everyone_runs_slower_and_waits_no_longer() {
    let loads = (1..=16).map(|id| Load::new(id, "web", vec![part(10, AccessPattern::Steady(1.0))])).collect();
    let outcome = run(Simulated::new(setup(memory(1000.0, 0), loads, 100.0)), None);
    // Sixteen on eight CPUs.
    assert!((outcome.workloads[0].runtime_s - 50.0).abs() < 1.0, "{:?}", outcome.workloads[0]);
    assert_eq!(outcome.workloads[0].slowdown(), 0.0);
}

mod auto;
mod churn;
mod guard;
mod killed;
mod laws;
mod phone;

#[test]
fn a_process_id_that_was_given_to_another_is_not_acted_on() {
    let mut first = Load::new(1, "first", vec![part(64, AccessPattern::Idle)]);
    first.stop_s = 20.0;
    let mut second = Load::new(2, "second", vec![part(64, AccessPattern::Idle)]);
    (second.start_s, second.pid) = (20.0, first.pid);
    second.protected = true;
    let mut machine = Simulated::new(setup(memory(1000.0, 1000), vec![first, second], 60.0));
    for _ in 0..19 {
        machine.step();
    }
    let frame = machine.observe().unwrap();
    assert_eq!(frame.targets.len(), 1);
    for _ in 0..10 {
        machine.step();
    }
    let pid = machine.loads()[0].pid;
    let start = machine.loads()[0].range_of(0, 0).0;
    let order = crate::machine::Order {
        scheme: 0,
        action: Advice::Pageout,
        pid,
        ranges: vec![(start, start + 256 * PAGE)],
        filters: Vec::new(),
        reason: String::new(),
    };
    machine.carry_out(vec![RegionAction::Advise(order)]);
    assert_eq!(machine.loads()[1].out, PerKind::default());
}

#[test]
fn a_replayed_cohort_does_what_was_recorded() {
    use lowtide_model::cohort::AgeRow;
    use lowtide_model::episode::{Episode, PageKey, PageKind};
    // 100 pages of 1 MiB each: half used every 20 s for a second, half once.
    let episode = |page: u64, start_s: f64, reuse_s: Option<f64>| Episode {
        key: PageKey { space: 1, page },
        kind: PageKind::Anon,
        weight_bytes: MIB,
        share: None,
        touched: true,
        start_s,
        end_s: start_s,
        reuse_s,
    };
    let mut episodes = Vec::new();
    for page in 0..100 {
        episodes.push(episode(page, 1.0, None));
        for round in 1..=10u32 {
            if page < 50 {
                episodes.push(episode(page, 1.0 + 20.0 * f64::from(round), Some(20.0)));
            }
        }
        let last = if page < 50 { 201.0 } else { 1.0 };
        episodes.push(Episode { touched: false, start_s: last, end_s: 210.0, ..episode(page, 0.0, None) });
    }
    let load = replay::load("recorded", &[] as &[AgeRow], &episodes, 1.0).unwrap();
    let outcome = run(Simulated::new(setup(memory(1000.0, 1000), vec![load], 210.0)), Some(age(30.0)));
    assert!((outcome.workloads[0].resident_peak_bytes - 100.0 * MIB).abs() < MIB);
    // Only what is never used again goes, in the round at 41 s.
    assert_eq!(outcome.refaults, PerKind::default());
    assert!(
        (outcome.out_bytes.anon - 50.0 * MIB * 169.0 / 210.0).abs() < 2.0 * MIB,
        "{}",
        outcome.out_bytes.anon / MIB
    );
}

#[test]
fn a_replayed_histogram_has_the_working_sets_and_sizes_that_were_recorded() {
    use lowtide_model::cohort::{AgeBin, AgeRow, Estimate};
    let sets = [(1.0, 40.0), (5.0, 80.0), (10.0, 100.0), (30.0, 160.0), (60.0, 200.0)];
    let mut rows = Vec::new();
    for t_s in 1..=400u32 {
        // Twice the memory in the middle of the run.
        let scale = if (150..250).contains(&t_s) { 2.0 } else { 1.0 };
        let mut push = |anon: bool, min_s: f64, max_s: Option<f64>, mib: f64| {
            let size = Estimate { bytes: mib * MIB * scale, ci95: 0.0 };
            rows.push(AgeRow { t_s: f64::from(t_s), bin: AgeBin { anon, min_s, max_s, size, first_touched: None } });
        };
        let mut before = (0.0, 0.0);
        for (age_s, mib) in sets {
            push(true, before.0, Some(age_s), mib - before.1);
            push(false, before.0, Some(age_s), 0.0);
            before = (age_s, mib);
        }
        push(true, before.0, None, 400.0 - before.1);
        push(false, before.0, None, 0.0);
    }
    let load = replay::load("recorded", &rows, &[], 1.0).unwrap();
    let mut machine = Simulated::new(setup(memory(4000.0, 0), vec![load], 400.0));
    let (mut used, mut ticks, mut doubled) = ([0.0; 5], 0.0, 0.0);
    while machine.step() {
        let (now_s, load) = (machine.now_s(), &machine.loads()[0]);
        if (200.0..=201.0).contains(&now_s) {
            doubled = load.bytes() / MIB;
        }
        if (90.0..150.0).contains(&now_s) {
            ticks += 1.0;
            for ((age_s, _), used) in sets.iter().zip(&mut used) {
                let within = load.groups.iter().filter(|group| now_s - group.last_s < *age_s);
                *used += within.map(|group| f64::from(group.resident) * 4096.0 / MIB).sum::<f64>();
            }
        }
    }
    for ((age_s, mib), used) in sets.iter().zip(used) {
        assert!((used / ticks - mib).abs() < 0.12 * mib + 6.0, "{age_s} s: {} of {mib}", used / ticks);
    }
    assert!((doubled - 800.0).abs() < 40.0, "{doubled}");
}
