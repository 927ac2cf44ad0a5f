use super::*;
use crate::machine::WorkloadState;
use lowtide_model::kind::PerKind;

const MIB: f64 = 1_048_576.0;
const ONE: TargetId = TargetId::Cgroup(1);
const TWO: TargetId = TargetId::Cgroup(2);

/// Workloads by MiB in memory, MiB paged out, pages a second that are refaulted, and the share of the time that is lost.
fn frame(now_s: f64, of: &[(f64, f64, f64, f64)]) -> Observation {
    let target = |(id, (resident, swapped, back, lost)): (u64, &(f64, f64, f64, f64))| WorkloadState {
        id: TargetId::Cgroup(id),
        resident: PerKind { anon: resident * MIB, file: 0.0 },
        swapped: swapped * MIB,
        refaults: PerKind { anon: *back, file: 0.0 },
        stalled: Some(*lost),
        ..WorkloadState::default()
    };
    Observation {
        now_s,
        targets: (1..).zip(of).map(target).collect(),
        cpus: Some(2.0),
        cpu_busy: Some(0.2),
        ..Observation::default()
    }
}

fn pauses(actions: &[WorkloadAction]) -> Vec<TargetId> {
    actions
        .iter()
        .filter_map(|of| if let WorkloadAction::Pause { target, .. } = of { Some(*target) } else { None })
        .collect()
}

const THRASHING: [(f64, f64, f64, f64); 2] = [(100.0, 60.0, 40_000.0, 0.7), (100.0, 80.0, 40_000.0, 0.7)];

#[test]
fn it_is_believed_after_a_while_and_the_closest_is_whole_first() {
    let mut guard = Guard::new(GuardSettings::default());
    for now_s in 0..2 {
        assert_eq!(guard.decide(&frame(f64::from(now_s), &THRASHING)), [], "{now_s} s");
    }
    let actions = guard.decide(&frame(2.0, &THRASHING));
    assert_eq!((pauses(&actions), guard.holder()), (vec![TWO], Some(ONE)), "{actions:?}");
    let lasts = |of: &WorkloadAction| matches!(of, WorkloadAction::Pause { lasts_s, .. } if *lasts_s <= LEASE_S);
    assert!(actions.iter().any(lasts));
    // Its time is up, and it is the other's turn; then it is its own again.
    let calm = [(160.0, 0.0, 0.0, 0.0), (40.0, 140.0, 0.0, 0.0)];
    // It uses all that it has, so nothing is learnt but that.
    let turns: Vec<Option<TargetId>> = (3..69)
        .map(|now_s| {
            guard.decide(&frame(f64::from(now_s), &calm));
            guard.holder()
        })
        .collect();
    assert_eq!((turns[0], turns[15], turns[17], turns[45]), (Some(ONE), Some(ONE), Some(TWO), Some(ONE)), "{turns:?}");
    // One ends: none waits any more.
    let actions = guard.decide(&frame(70.0, &calm[..1]));
    let [WorkloadAction::Release { target: ONE, reason }] = actions.as_slice() else { panic!("{actions:?}") };
    // It lost a little at first, and did not run in some twelve of 68; of the other one nothing is known any more.
    assert_eq!(reason, "no two are left that thrash; progress of 56.0 s in 68.0 s, on average 56.0 s");
    assert_eq!(guard.holder(), None);
}

#[test]
fn a_round_that_gains_nothing_ends_and_the_next_waits_for_longer_each_time() {
    let mut guard = Guard::new(GuardSettings::default());
    // Whoever runs loses as much as before: what is lost has another cause.
    let ends: Vec<u32> = (0..120)
        .filter(|second| {
            let before = guard.holder();
            guard.decide(&frame(f64::from(*second), &THRASHING));
            before.is_some() && guard.holder().is_none()
        })
        .collect();
    assert!(ends.len() >= 2 && ends[0] <= 8, "{ends:?}");
    assert!(ends.windows(2).all(|two| two[1] - two[0] >= 10), "{ends:?}");
}

#[test]
fn where_it_can_one_is_protected_and_the_others_go_on() {
    let mut guard = Guard::new(GuardSettings::default());
    let can = |now_s| Observation { can_protect: true, ..frame(now_s, &THRASHING) };
    let actions = (0..4).map(|now_s| guard.decide(&can(f64::from(now_s)))).last().unwrap();
    let granted = |of: &WorkloadAction| matches!(of, WorkloadAction::Protect { target: ONE, bytes, .. } if (*bytes - 160.0 * MIB).abs() < 1.0);
    assert!(actions.iter().any(granted) && pauses(&actions).is_empty(), "{actions:?}");
}

#[test]
fn where_they_need_the_cpus_of_one_another_the_others_wait() {
    let waits = |cpus, swap_on_disk, lost| {
        let mut guard = Guard::new(GuardSettings::default());
        let of = THRASHING.map(|(resident, swapped, back, _)| (resident, swapped, back, lost));
        let can = |now_s| Observation { can_protect: true, cpus: Some(cpus), swap_on_disk, ..frame(now_s, &of) };
        let actions = (0..4).map(|now_s| guard.decide(&can(f64::from(now_s)))).last().unwrap();
        assert!(guard.holder().is_some());
        pauses(&actions) == [TWO]
    };
    assert!(waits(1.0, false, 0.7));
    assert!(!waits(2.0, false, 0.7), "each has a CPU");
    assert!(!waits(1.0, true, 0.7), "who waits for a disk needs none");
    // Of a CPU each has half, so that both lose nearly all of that.
    assert!(waits(1.0, false, 0.45));
}

#[test]
fn what_would_gain_nothing_is_left_alone() {
    let never = |of: &[(f64, f64, f64, f64)]| {
        let mut guard = Guard::new(GuardSettings::default());
        (0..60).all(|now_s| guard.decide(&frame(f64::from(now_s), of)).is_empty())
    };
    assert!(never(&[(100.0, 20.0, 10_000.0, 0.3), (100.0, 20.0, 10_000.0, 0.3)]), "a little: both together do more");
    assert!(never(&[(100.0, 60.0, 40_000.0, 0.8), (100.0, 0.0, 0.0, 0.0)]), "one alone");
    assert!(never(&[(100.0, 60.0, 0.0, 0.8), (100.0, 60.0, 0.0, 0.8)]), "they wait, but not for what was taken");
    assert!(never(&[(100.0, 200.0, 40_000.0, 0.8), (50.0, 300.0, 40_000.0, 0.8)]), "none of them ever fits");
    assert!(!never(&THRASHING));
}

#[test]
fn workloads_that_fill_free_memory_do_not_thrash() {
    let mut guard = Guard::new(GuardSettings::default());
    let filling = |second: u32| {
        let more = 5.0 * f64::from(second);
        [(60.0 + more, 100.0 - more, 1_280.0, 0.8), (60.0 + more, 120.0 - more, 1_280.0, 0.8)]
    };
    assert!((0..8).all(|second| guard.decide(&frame(f64::from(second), &filling(second))).is_empty()));
    // Nothing is free any more: what one gets, the other loses.
    let robbing = |second: u32| {
        let more = if second.is_multiple_of(2) { 10.0 } else { 0.0 };
        [(95.0 + more, 65.0 - more, 40_000.0, 0.8), (105.0 - more, 75.0 + more, 40_000.0, 0.8)]
    };
    assert!((8..12).any(|second| !guard.decide(&frame(f64::from(second), &robbing(second))).is_empty()));
}

#[test]
fn what_is_in_transit_to_the_swap_device_is_not_free() {
    // Two LU decompositions on a disk as observed, MiB: all have more at times, but far less than they refault.
    let observed = [(17.8, 27.6), (15.3, 23.2), (16.8, 27.4), (18.6, 27.6), (20.3, 28.1)];
    let mut guard = Guard::new(GuardSettings::default());
    let acts = observed.iter().zip(0_u32..).position(|(&(one, two), turn)| {
        let all = [(one, 33.5 - one, 7_400.0, 0.85), (two, 33.5 - two, 7_400.0, 0.85)];
        !guard.decide(&frame(0.25 * f64::from(turn), &all)).is_empty()
    });
    assert_eq!(acts, Some(2), "half a second after the first comparison");
}

#[test]
fn where_all_ask_for_more_than_there_is_it_is_believed_at_once() {
    let begins = |detect, more: f64| {
        let mut guard = Guard::new(GuardSettings { detect, ..GuardSettings::default() });
        let asking = |turn: u32| {
            let swapped = 60.0 + more * f64::from(turn);
            frame(0.1 * f64::from(turn), &[(100.0, swapped, 40_000.0, 0.9), (100.0, swapped, 40_000.0, 0.9)])
        };
        (0..99).position(|turn| !guard.decide(&asking(turn)).is_empty()).expect("they thrash")
    };
    assert_eq!(begins(Detect::Auto, 5.0) + 3, begins(Detect::Auto, 0.0));
    assert_eq!(begins(Detect::Published, 5.0), begins(Detect::Published, 0.0));
}

#[test]
fn as_published_it_goes_by_idle_cpus_and_faults() {
    let settings = GuardSettings { detect: Detect::Published, ..GuardSettings::default() };
    let mut guard = Guard::new(settings.clone());
    let busy = |now_s, cpu_busy| Observation { cpu_busy: Some(cpu_busy), ..frame(now_s, &THRASHING) };
    assert!((0..9).all(|now_s| guard.decide(&busy(f64::from(now_s), 0.41)).is_empty()));
    assert!((9..14).any(|now_s| !guard.decide(&busy(f64::from(now_s), 0.39)).is_empty()));
    // It has all that it needs.
    let complete = [(160.0, 0.0, 0.0, 0.0), (40.0, 140.0, 0.0, 0.0)];
    let actions = (14..18).map(|now_s| guard.decide(&frame(f64::from(now_s), &complete))).last().unwrap();
    assert!(
        actions.iter().all(|of| matches!(of, WorkloadAction::Release { .. })) && guard.holder().is_none(),
        "{actions:?}"
    );
}

#[test]
fn the_clock_may_jump_and_pressure_may_be_unknown() {
    let mut guard = Guard::new(GuardSettings::default());
    let blind = |now_s| {
        let mut frame = frame(now_s, &[(100.0, 60.0, 80_000.0, 0.0), (100.0, 80.0, 80_000.0, 0.0)]);
        frame.targets.iter_mut().for_each(|of| of.stalled = None);
        frame
    };
    assert!((0..9).any(|now_s| !guard.decide(&blind(f64::from(now_s))).is_empty()));
    for now_s in [1e6, 1e6 + 1.0, 5.0, 6.0, 7.0, 8.0, f64::MAX, 9.0] {
        let _ = guard.decide(&blind(now_s));
    }
    // Whatever it believes, its turns end.
    let turns: Vec<Option<TargetId>> = (10..200)
        .map(|now_s| {
            guard.decide(&blind(f64::from(now_s)));
            guard.holder()
        })
        .collect();
    assert!(turns.contains(&Some(ONE)) && turns.contains(&Some(TWO)), "{turns:?}");
}

/// A service that loses a little, of high priority, and two programs that evict each other and it.
fn outranked(now_s: f64, service: (f64, f64, f64, f64)) -> Observation {
    let batch = (60.0, 60.0, 40_000.0, 0.9);
    let mut frame = Observation { can_limit: true, ..frame(now_s, &[batch, service, batch]) };
    frame.targets[1].priority = 10;
    frame
}

/// MiB that others are limited to; nothing waits, and nothing is protected.
fn limits(actions: &[WorkloadAction]) -> Vec<f64> {
    assert_eq!(pauses(actions), []);
    let limit = |of: &WorkloadAction| match of {
        WorkloadAction::Protect { target, .. } => panic!("{target:?} is protected"),
        WorkloadAction::Limit { target, bytes, .. } if *target != TWO => Some((bytes / MIB).round()),
        _ => None,
    };
    actions.iter().filter_map(limit).collect()
}

#[test]
fn of_higher_priority_it_has_what_it_needs_as_soon_as_others_cost_it_time_and_for_as_long() {
    let mut guard = Guard::new(GuardSettings::default());
    let loses = (70.0, 30.0, 800.0, 0.05);
    let mut begins =
        (0..8).map(|turn| 0.25 * f64::from(turn)).map(|now_s| (now_s, guard.decide(&outranked(now_s, loses))));
    let (begins_s, actions) = begins.find(|(_, actions)| !actions.is_empty()).unwrap();
    // Of 190 MiB, 9.5 are in transit and 103 are the service's: its demand, and a little of the kernel.
    assert_eq!((begins_s, limits(&actions)), (0.5, vec![39.0, 39.0]));
    assert_eq!(guard.holder(), Some(TWO));
    // The others go on to lose nearly all of their time: it keeps what it needs, for many cycles.
    let whole = (100.0, 0.0, 0.0, 0.0);
    let lasts_s = (2..999).find(|second| limits(&guard.decide(&outranked(f64::from(*second), whole))) != [39.0, 39.0]);
    assert!(
        lasts_s.is_some_and(|lasts_s| lasts_s > 100 && guard.holder().is_none()),
        "it is tried without: {lasts_s:?}"
    );
}

#[test]
fn of_higher_priority_it_costs_others_nothing_where_they_are_not_the_cause() {
    let never = |service, change: fn(&mut Observation)| {
        let mut guard = Guard::new(GuardSettings::default());
        (0..30).all(|turn| {
            let mut frame = outranked(0.25 * f64::from(turn), service);
            frame.targets.truncate(2);
            change(&mut frame);
            guard.decide(&frame).is_empty()
        })
    };
    assert!(!never((100.0, 30.0, 800.0, 0.05), |_| ()));
    assert!(never((100.0, 30.0, 0.0, 0.0), |_| ()), "nothing is refaulted");
    assert!(never((100.0, 30.0, 50.0, 0.015), |_| ()), "next to nothing is lost");
    assert!(never((30.0, 400.0, 800.0, 0.05), |_| ()), "it needs more than all have");
    assert!(never((100.0, 30.0, 800.0, 0.05), |frame| frame.swap_free = Some(1 << 20)), "there is no swap for it");
    assert!(never((100.0, 30.0, 800.0, 0.05), |frame| frame.can_limit = false), "others would be killed");
    let idle = |frame: &mut Observation| frame.targets[0].refaults = PerKind::default();
    assert!(never((100.0, 30.0, 800.0, 0.05), idle), "others take nothing");
}

#[test]
fn of_higher_priority_it_is_let_go_where_that_changes_nothing() {
    let mut guard = Guard::new(GuardSettings::default());
    // It loses as much as before: by a limit of its own.
    let ends = (0..40).map(|turn| 0.25 * f64::from(turn)).find(|now_s| {
        let before = guard.holder();
        let actions = guard.decide(&outranked(*now_s, (70.0, 30.0, 800.0, 0.05)));
        before.is_some() && actions.iter().all(|of| matches!(of, WorkloadAction::Release { .. }))
    });
    assert!(ends.is_some_and(|end_s| end_s < 5.0), "{ends:?}");
}

#[test]
fn when_one_has_ended_the_others_are_let_go_if_they_nearly_fit() {
    let ends = |third: f64| {
        let mut guard = Guard::new(GuardSettings::default());
        // Of 270 MiB that may be used of 285, the first two lack a twentieth.
        let of = [(140.0, 0.0, 40_000.0, 0.7), (100.0, third, 40_000.0, 0.7), (45.0, 100.0, 40_000.0, 0.7)];
        (0..3).for_each(|now_s| drop(guard.decide(&frame(f64::from(now_s), &of))));
        assert!(guard.holder().is_some());
        guard.decide(&frame(3.0, &of[..2]));
        guard.holder().is_none()
    };
    assert!(ends(40.0) && !ends(80.0));
}
