use lowtide_model::AGE_EDGES_S;
use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::units::Size;

use super::*;
use crate::machine::{Brake, Reclaimed, WorkloadPolicy};
use crate::reclaim::brakes::seconds;

const MIB: f64 = 1_048_576.0;
const ONE: TargetId = TargetId::Cgroup(1);

fn anon(value: f64) -> PerKind<f64> {
    PerKind { anon: value, file: 0.0 }
}

fn bin(anon: bool, min_s: f64, bytes: f64) -> AgeBin {
    let max_s = AGE_EDGES_S.iter().map(|edge| f64::from(*edge)).find(|edge| *edge > min_s);
    AgeBin { anon, min_s, max_s, size: Estimate { bytes, ci95: 0.0 }, first_touched: None }
}

fn target() -> WorkloadState {
    let ages = vec![bin(true, 0.0, 60.0), bin(true, 10.0, 40.0), bin(false, 5.0, 50.0), bin(false, 20.0, 50.0)];
    WorkloadState { id: ONE, resident: PerKind::both(100.0), ages, pressure: Some(0.0), ..WorkloadState::default() }
}

fn frame(now_s: f64, target: WorkloadState) -> Observation {
    Observation { now_s, targets: vec![target], swap_free: Some(1 << 30), ..Observation::default() }
}

fn bytes(actions: &[WorkloadAction]) -> Vec<[f64; 2]> {
    let reclaims = actions.iter().filter_map(|action| match action {
        WorkloadAction::Reclaim(reclaim) => Some(reclaim.bytes.into()),
        _ => None,
    });
    reclaims.collect()
}

/// Everything colder than ten seconds at every turn.
fn always(brakes: Brakes) -> Reclaimer<age::AgeSettings> {
    Reclaimer::new(age::AgeSettings { every: seconds(0), ..age::AgeSettings::default() }, brakes)
}

#[test]
fn what_is_colder_goes_every_so_often() {
    let mut policy = Reclaimer::new(age::AgeSettings::default(), Brakes::default());
    assert_eq!(bytes(&policy.decide(&frame(0.0, target()))), [[40.0, 50.0]]);
    assert!(policy.decide(&frame(39.0, target())).is_empty());
    assert_eq!(bytes(&policy.decide(&frame(40.0, target()))), [[40.0, 50.0]]);
    // The clock was set back.
    assert_eq!(bytes(&policy.decide(&frame(3.0, target()))), [[40.0, 50.0]]);
    let one_side = age::AgeSettings { anon: None, ..age::AgeSettings::default() };
    assert_eq!(bytes(&Reclaimer::new(one_side, Brakes::default()).decide(&frame(0.0, target()))), [[0.0, 50.0]]);
}

#[test]
fn floors_quotas_pressure_and_full_swap_hold_it_back() {
    let first = |brakes: Brakes, frame: &Observation| bytes(&always(brakes).decide(frame));
    let with = |target: WorkloadState| first(Brakes::default(), &frame(0.0, target));
    assert_eq!(with(WorkloadState { floor: 170.0, ..target() }), [[0.0, 30.0]], "files first");
    assert_eq!(with(WorkloadState { floor: 120.0, ..target() }), [[30.0, 50.0]]);
    assert!(with(WorkloadState { floor: 300.0, ..target() }).is_empty());
    assert!(with(WorkloadState { pressure: Some(0.2), ..target() }).is_empty());
    assert_eq!(first(Brakes { floor: Size(190), ..Brakes::default() }, &frame(0.0, target())), [[0.0, 10.0]]);
    assert_eq!(first(Brakes { quota: Some(Size(57)), ..Brakes::default() }, &frame(0.0, target())), [[7.0, 50.0]]);
    let held = |brakes: Brakes, frame: &Observation| {
        let mut policy = always(brakes);
        policy.decide(frame);
        policy.held()
    };
    let pressed = Observation { pressure: Some(0.2), ..frame(0.0, target()) };
    assert_eq!(held(Brakes::default(), &pressed), [(None, Brake::Pressure)]);
    assert_eq!(
        held(Brakes::default(), &frame(0.0, WorkloadState { floor: 300.0, ..target() })),
        [(Some(ONE), Brake::Floor)]
    );
    assert_eq!(held(Brakes::default(), &frame(0.0, target())), []);
    assert!(first(Brakes::default(), &pressed).is_empty());
    let full = Observation { swap_free: Some(0), ..frame(0.0, target()) };
    assert_eq!(held(Brakes::default(), &full), [(None, Brake::Swap)]);
    assert_eq!(first(Brakes::default(), &full), [[0.0, 50.0]], "file memory needs no swap");
    // Two targets share the swap that there is.
    let two = vec![target(), WorkloadState { id: TargetId::Cgroup(2), ..target() }];
    let little = Observation { swap_free: Some(60 + (16 << 20)), targets: two, ..Observation::default() };
    assert_eq!(first(Brakes::default(), &little), [[40.0, 50.0], [20.0, 50.0]]);
}

#[test]
fn a_target_that_loses_time_is_left_alone_for_longer_and_longer() {
    let mut policy = always(Brakes::default());
    let lost = |pages: f64| WorkloadState { refaults: anon(pages), swapped: 1e10, pressure: None, ..target() };
    // At ten microseconds a page, a thousand of them in a second are the one percent that may be lost.
    let mut acted = |now_s: u32, pages: f64| !policy.decide(&frame(f64::from(now_s), lost(pages))).is_empty();
    assert!(acted(0, 0.0) && acted(1, 900.0));
    assert!(!acted(2, 1200.0));
    let pauses =
        |acted: &mut dyn FnMut(u32, f64) -> bool, from: u32| (from..2000).find(|now_s| acted(*now_s, 0.0)).unwrap();
    let first = pauses(&mut acted, 3);
    assert_eq!(first, 12, "ten seconds after");
    assert!(!acted(13, 1200.0));
    assert_eq!(pauses(&mut acted, 14), 33, "twenty seconds after");
    // A quiet time makes it forgiving again.
    assert!((34..200).all(|now_s| acted(now_s, 0.0)));
    assert!(!acted(200, 1200.0));
    assert!(pauses(&mut acted, 201) <= 211);
    // Nothing comes back for ever after the clock was set back.
    assert!(!acted(400, 300_000.0));
    assert!((0..60).any(|now_s| acted(now_s, 0.0)));
}

#[test]
fn memory_that_does_not_compress_is_left() {
    let first = |stored: f64| {
        let target = WorkloadState { swapped: 20.0 * MIB, stored: Some(stored * MIB), ..target() };
        bytes(&always(Brakes::default()).decide(&frame(0.0, target)))
    };
    assert_eq!(first(5.0), [[40.0, 50.0]]);
    assert_eq!(first(19.0), [[0.0, 50.0]]);
}

/// A tenth of a CPU where there is one to spare; where programs use both, a hundredth of each.
#[test]
fn evicting_takes_no_more_cpu_than_it_may() {
    let took = |cpu_busy: Option<f64>| {
        let mut policy = always(Brakes::default());
        let turn = |now_s: u32, cpu_s: f64| {
            let reclaimed = vec![Reclaimed { target: ONE, bytes: PerKind::default(), cpu_s }];
            Observation { reclaimed, cpus: Some(2.0), cpu_busy, ..frame(f64::from(now_s), target()) }
        };
        // Each turn takes half a second.
        let (mut took, mut cpu_s) = (0.0, 0.0);
        for now_s in 0..1000 {
            let acted = !policy.decide(&turn(now_s, cpu_s)).is_empty();
            cpu_s = if acted { 0.5 } else { 0.0 };
            took += cpu_s;
        }
        took
    };
    for (cpu_busy, at_least, at_most) in [(None, 90.0, 101.5), (Some(0.5), 90.0, 101.5), (Some(1.0), 18.0, 21.5)] {
        let took = took(cpu_busy);
        assert!((at_least..at_most).contains(&took), "{cpu_busy:?}: {took}");
    }
}

#[test]
fn a_disk_is_written_to_no_more_than_it_may_a_day() {
    let brakes = Brakes { writes: Some(Size(4000)), ..Brakes::default() };
    let day = |swap_on_disk: bool| {
        let mut policy = always(brakes.clone());
        let turns = (0..24 * 60).map(|minute| Observation { swap_on_disk, ..frame(f64::from(60 * minute), target()) });
        turns.flat_map(|frame| bytes(&policy.decide(&frame))).map(|[anon, _]| anon).sum::<f64>()
    };
    assert!((3800.0..=4000.0).contains(&day(true)), "{}", day(true));
    assert_eq!(day(false), 40.0 * 24.0 * 60.0, "zram is no disk");
}

#[test]
fn pressure_takes_a_little_as_long_as_nobody_waits() {
    let settings = pressure::PressureSettings { every: seconds(1), ..pressure::PressureSettings::default() };
    let mut policy = Reclaimer::new(settings.clone(), Brakes::default());
    let stalled = |share: f64| WorkloadState { pressure: Some(share), ..target() };
    let mut at = |now_s: f64, share: f64| bytes(&policy.decide(&frame(now_s, stalled(share))));
    assert!(at(0.0, 0.0).is_empty(), "nothing is known of the time before");
    let close = |bytes: Vec<[f64; 2]>, expected: [f64; 2]| {
        assert!((bytes[0][0] - expected[0]).abs() < 1e-9 && (bytes[0][1] - expected[1]).abs() < 1e-9, "{bytes:?}");
    };
    close(at(1.0, 0.0), [0.0, 2.0]);
    close(at(2.0, 0.0005), [0.0, 1.0]);
    assert!(at(3.0, 0.002).is_empty());
    assert!(at(4.0, 0.0).is_empty(), "rarer now");
    close(at(5.0, 0.0), [0.0, 2.0]);
    // Where pressure cannot be read, nothing would hold it.
    let blind = WorkloadState { pressure: None, ..target() };
    let mut policy = Reclaimer::new(settings, Brakes::default());
    assert!((0..9).all(|now_s| policy.decide(&frame(f64::from(now_s), blind.clone())).is_empty()));
}

/// A target of which `used` is in use and `idle` is not, after so many seconds.
fn grown_old(now_s: f64, used: f64, idle: f64, back: f64) -> WorkloadState {
    let edges = AGE_EDGES_S.map(f64::from);
    let at = edges.iter().rposition(|edge| *edge <= now_s).unwrap();
    let ages = (0..edges.len()).map(|edge| {
        let bytes = if edge == 0 { used } else { 0.0 } + if edge == at { idle } else { 0.0 };
        bin(true, edges[edge], bytes * MIB)
    });
    WorkloadState {
        id: ONE,
        resident: anon((used + idle) * MIB),
        ages: ages.collect(),
        refaults: anon(back),
        ..WorkloadState::default()
    }
}

#[test]
fn ages_that_are_reported_now_and_then_are_enough() {
    let mut policy = Reclaimer::new(auto::AutoSettings::default(), Brakes::default());
    let (mut acted, mut out) = (Vec::new(), 0.0);
    for now_s in (0..400).step_by(5) {
        let complete = grown_old(f64::from(now_s), 64.0, 448.0 - out / MIB, 0.0);
        let ages = if now_s % 30 == 0 { complete.ages } else { Vec::new() };
        let target = WorkloadState { ages, swapped: out, ..complete };
        let mut frame = frame(f64::from(now_s), target);
        let last: f64 = acted.last().filter(|(at_s, _)| *at_s == now_s - 5).map_or(0.0, |(_, anon)| *anon);
        frame.reclaimed = vec![Reclaimed { target: ONE, bytes: anon(last), cpu_s: 0.0 }];
        let actions = policy.decide(&frame);
        acted.extend(bytes(&actions).into_iter().map(|[anon, _]| (now_s, anon)));
        out = acted.iter().map(|(_, anon)| anon).sum();
    }
    assert!(acted.first().is_some_and(|(now_s, _)| *now_s <= 60), "{acted:?}");
    assert!(acted.iter().all(|(now_s, _)| now_s % 30 == 0), "{acted:?}");
    // Credit allows all of it after a while.
    assert!((447.0..449.0).contains(&(out / MIB)), "{acted:?}");
}

#[test]
fn auto_finds_a_young_age_where_nothing_comes_back_and_an_older_one_where_it_does() {
    let mut policy = Reclaimer::new(auto::AutoSettings::default(), Brakes::default());
    let mut age_at = |now_s: u32, back: f64| -> Option<f64> {
        let actions = policy.decide(&frame(f64::from(now_s), grown_old(f64::from(now_s), 64.0, 448.0, back)));
        actions.into_iter().find_map(|action| match action {
            WorkloadAction::Reclaim(reclaim) => reclaim.older_s.anon,
            _ => None,
        })
    };
    let first = (0..200).find_map(|now_s| Some((now_s, age_at(now_s, 0.0)?))).unwrap();
    assert!(first.0 <= 30 && first.1 <= 10.0, "{first:?}");
    // More comes back than is allowed: 250 pages a second at ten microseconds each.
    let young = (201..220).find_map(|now_s| age_at(now_s, 0.0)).unwrap();
    let ages: Vec<f64> = (220..300).filter_map(|now_s| age_at(now_s, 600.0)).collect();
    assert!(ages.last().is_some_and(|age_s| *age_s > young) && ages.is_sorted(), "{ages:?}");
}

#[test]
fn new_files_are_no_returns_while_old_ones_go_on_request() {
    const NEW: f64 = 10.0 * MIB;
    // A file is read once from end to end, and what was read ten seconds ago is evicted.
    let back = |reported: f64| {
        let mut returns = returns::Returns::default();
        let reading = |now_s: u32| {
            let bins = [(0.0, 1.0), (1.0, 1.0), (2.0, 3.0), (5.0, 5.0)];
            let ages = bins.map(|(from_s, lasts_s)| bin(false, from_s, lasts_s * NEW)).into();
            let target = WorkloadState {
                id: ONE,
                resident: PerKind { anon: 0.0, file: 10.0 * NEW },
                ages,
                ..WorkloadState::default()
            };
            returns.observe(60.0, &target, if now_s > 0 { reported * NEW } else { 0.0 }, f64::from(now_s))
        };
        let (returned, _) = (0..=120).filter_map(reading).last().unwrap();
        returned.file.back.iter().flatten().fold(0.0, |most: f64, back| most.max(*back)) / NEW
    };
    assert!(back(1.0) < 0.01, "{}", back(1.0));
    // Where evictions are not reported, the same file is taken to come back again and again.
    assert!(back(0.0) > 0.9, "{}", back(0.0));
}

/// The next life of a policy, which begins at that time.
fn reborn(old: &WorkloadPolicy, now_s: f64, mut new: Box<WorkloadPolicy>) -> Box<WorkloadPolicy> {
    let file = serde_json::to_string(&old.save()).unwrap();
    assert_eq!(new.restore(&serde_json::from_str(&file).unwrap(), now_s), 1, "{file}");
    new
}

#[test]
fn what_was_learnt_and_what_holds_outlives_a_restart() {
    let fresh = || Reclaimer::new(auto::AutoSettings::default(), Brakes::default());
    let age = |policy: &mut WorkloadPolicy, now_s: f64, target: WorkloadState| {
        policy.decide(&frame(now_s, target)).into_iter().find_map(|action| match action {
            WorkloadAction::Reclaim(reclaim) => reclaim.older_s.anon,
            _ => None,
        })
    };
    let mut policy = fresh();
    let learnt =
        (0..100).filter_map(|now_s| age(&mut policy, f64::from(now_s), grown_old(f64::from(now_s), 64.0, 448.0, 0.0)));
    let learnt = learnt.last().unwrap();
    let old = || grown_old(100.0, 64.0, 448.0, 0.0);
    assert_eq!(age(reborn(&policy, 106.0, Box::new(fresh())).as_mut(), 106.0, old()), Some(learnt));
    assert_eq!(age(&mut fresh(), 106.0, old()), None, "a new one has to observe first");
    // A pause of ten seconds goes on; a restart that took longer has it behind it.
    let mut policy = always(Brakes::default());
    let lost = |pages: f64| WorkloadState { refaults: anon(pages), swapped: 1e10, pressure: None, ..target() };
    policy.decide(&frame(500.0, lost(0.0)));
    assert!(policy.decide(&frame(501.0, lost(1200.0))).is_empty());
    let next = |now_s: f64| reborn(&policy, now_s, Box::new(always(Brakes::default())));
    assert!(next(504.0).decide(&frame(510.0, target())).is_empty());
    assert!(!next(504.0).decide(&frame(512.0, target())).is_empty());
    assert!(!next(522.0).decide(&frame(522.5, target())).is_empty());
    // What comes every so often is waited for again.
    let slow = || Reclaimer::new(age::AgeSettings::default(), Brakes::default());
    let mut policy = slow();
    assert!(!policy.decide(&frame(0.0, target())).is_empty());
    let mut policy = reborn(&policy, 601.0, Box::new(slow()));
    assert!(policy.decide(&frame(640.0, target())).is_empty() && !policy.decide(&frame(641.0, target())).is_empty());
}

#[test]
fn what_makes_no_sense_is_not_taken_up() {
    let mut policy = Reclaimer::new(auto::AutoSettings::default(), Brakes::default());
    (0..100)
        .for_each(|now_s| drop(policy.decide(&frame(f64::from(now_s), grown_old(f64::from(now_s), 448.0, 64.0, 0.0)))));
    let good = policy.save();
    let restored = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut bad = good.clone();
        bad.targets.values_mut().for_each(change);
        Reclaimer::new(auto::AutoSettings::default(), Brakes::default()).restore(&bad, 99.0)
    };
    assert_eq!(restored(&|_| {}), 1);
    for (path, wrong) in [
        ("/held/for_s", 601.0f64),
        ("/held/for_s", -1.0),
        ("/held/until_s", 1e9),
        ("/past/threshold/chosen/age/0", 0.5),
        ("/past/threshold/chosen/age/0", 9.0),
        ("/past/threshold/returns/from_s", 160.0),
        ("/past/threshold/chosen/means/0/1/sum", -7.0),
        ("/past/threshold/chosen/added_s", 101.0),
        ("/past/threshold/returns/steps/0/1/1/over", 6.0),
        ("/past/pace/credit_s", -1.0),
        ("/past/pace/trust", 2.0),
        ("/losses/lost_s", -1.0),
        ("/past/least/span/1", -1.0),
        ("/observed_s", 3600.0),
    ] {
        let change = |value: &mut serde_json::Value| {
            #[expect(clippy::cast_possible_truncation, reason = "a small number")]
            let number = if wrong.fract() > 0.0 { serde_json::json!(wrong) } else { serde_json::json!(wrong as i64) };
            *value.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = number;
        };
        assert_eq!(restored(&change), 0, "{path} = {wrong}");
    }
    assert_eq!(restored(&|value| *value = serde_json::json!(["x", null])), 0);
}

#[test]
fn a_workload_that_performs_worse_is_left_alone_for_longer_each_time() {
    let mut policy = always(Brakes::default());
    let mut acted = |now_s: u32, value: f64, took: bool| {
        let target = WorkloadState { metric: Some(value), ..target() };
        let reclaimed =
            if took { vec![Reclaimed { target: ONE, bytes: anon(4096.0), cpu_s: 0.0 }] } else { Vec::new() };
        !policy.decide(&Observation { reclaimed, ..frame(f64::from(now_s), target) }).is_empty()
    };
    // First it must be known its performance without.
    let first: Vec<bool> = [0, 5, 10].map(|now_s| acted(now_s, 100.0, false)).into();
    assert_eq!(first, [false, false, true]);
    assert!(acted(15, 105.0, true));
    assert!(!acted(20, 150.0, true), "it performs worse");
    assert!(!acted(29, 100.0, false) && acted(31, 100.0, false), "ten seconds later it is tried again");
    assert!(!acted(35, 150.0, true));
    assert!(!acted(46, 100.0, false) && acted(56, 100.0, false), "the next pause is longer");
}

#[test]
fn auto_acts_at_the_first_reading_of_two_windows() {
    // As accessed bits are read: a second after they were cleared, and five.
    let mut policy = Reclaimer::new(auto::AutoSettings::default(), Brakes::default());
    let acted = (1..12u32).find(|second| {
        let ages = match second {
            1 => vec![bin(true, 0.0, 64.0 * MIB), AgeBin { max_s: None, ..bin(true, 1.0, 448.0 * MIB) }],
            5 | 10 => {
                let middle = AgeBin { max_s: Some(5.0), ..bin(true, 1.0, 0.0) };
                vec![bin(true, 0.0, 64.0 * MIB), middle, AgeBin { max_s: None, ..bin(true, 5.0, 448.0 * MIB) }]
            }
            _ => Vec::new(),
        };
        // The agent's first turn only observes.
        let watched_s = f64::from(*second);
        let target =
            WorkloadState { id: ONE, watched_s, resident: anon(512.0 * MIB), ages, ..WorkloadState::default() };
        !policy.decide(&frame(0.19 + f64::from(*second), target)).is_empty()
    });
    assert_eq!(acted, Some(5));
}

/// Memory that comes in while the workload runs is in every window's working set without having been used again. Readings of accessed
/// bits count it themselves, and are up to a turn old when they are passed on: the growth until then belongs to no window.
#[test]
fn what_a_workload_grows_by_is_not_taken_for_reuse() {
    let mut policy = Reclaimer::new(auto::AutoSettings::default(), Brakes::default());
    let (hot, grows) = (28.0 * MIB, 9.0 * MIB);
    let nested = |min_s, max_s: Option<f64>, bytes, first| AgeBin {
        max_s,
        first_touched: Some(first),
        ..bin(true, min_s, bytes)
    };
    // A turn every two seconds; every ten a cycle ends, a second before a turn.
    let acted = (0..40u32).step_by(2).find(|second| {
        let now_s = f64::from(*second);
        let five = nested(0.0, Some(5.0), hot + 5.0 * grows, 5.0 * grows);
        let ten = nested(5.0, Some(10.0), 5.0 * grows, 5.0 * grows);
        let rest = nested(10.0, None, (now_s - 11.0) * grows, 0.0);
        let ages = if second % 10 == 6 && now_s > 10.0 { vec![five, ten, rest] } else { Vec::new() };
        let target = WorkloadState { id: ONE, resident: anon(hot + now_s * grows), ages, ..WorkloadState::default() };
        !policy.decide(&frame(now_s, target)).is_empty()
    });
    assert_eq!(acted, Some(16), "at the first reading");
}
