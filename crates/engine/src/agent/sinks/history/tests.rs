use super::*;
use crate::event::{ActionEvent, ActionKind};

const MIB: f64 = 1_048_576.0;

fn ages(edges: &[(f64, f64)], total: f64) -> Vec<AgeBin> {
    let mut bins = Vec::new();
    for anon in [true, false] {
        let (mut reached, mut min_s) = (0.0, 0.0);
        for (edge, used) in edges {
            let size = Estimate { bytes: (used - reached) * MIB, ci95: 0.0 };
            bins.push(AgeBin { anon, min_s, max_s: Some(*edge), size, first_touched: None });
            (reached, min_s) = (*used, *edge);
        }
        bins.push(AgeBin {
            anon,
            min_s,
            max_s: None,
            size: Estimate { bytes: (total - reached) * MIB, ci95: 0.0 },
            first_touched: None,
        });
    }
    bins
}

fn reading(id: u64, ages: &[AgeBin]) -> TargetReading<'_> {
    TargetReading { id: id.into(), resident: PerKind::both(100.0 * MIB), swapped: 0.0, stalled_s: Some(0.0), ages }
}

fn action(t_s: f64) -> ActionTaken {
    ActionTaken::new(&ActionEvent::of(ActionKind::Reclaim, TargetId::Cgroup(1)), t_s)
}

#[test]
fn the_working_set_is_that_of_the_longest_window_known() {
    let mut history = History::default();
    let (middle, long) = (ages(&[(10.0, 30.0), (30.0, 40.0)], 100.0), ages(&[(60.0, 50.0)], 100.0));
    history.observe(0.0, [reading(1, &middle)].into_iter());
    assert_eq!(history.tracks[&TargetId::Cgroup(1)].working_set(), Some((30, PerKind::both(40.0 * MIB))));
    history.observe(5.0, [reading(1, &long)].into_iter());
    assert_eq!(history.tracks[&TargetId::Cgroup(1)].working_set(), Some((60, PerKind::both(50.0 * MIB))));
    // Shorter windows stay as they were known last.
    assert_eq!(history.tracks[&TargetId::Cgroup(1)].used[3], Some(PerKind::both(40.0 * MIB)));
    history.observe(10.0, [reading(2, &[])].into_iter());
    assert_eq!(history.tracks.keys().collect::<Vec<_>>(), [&TargetId::Cgroup(2)], "what is gone is forgotten");
    assert_eq!(history.tracks[&TargetId::Cgroup(2)].working_set(), None);
}

#[test]
fn the_curve_shows_what_less_would_cost_by_kind() {
    let mut history = History::default();
    let mut bins = ages(&[(10.0, 30.0), (30.0, 40.0)], 100.0);
    bins.iter_mut().filter(|bin| !bin.anon && bin.max_s.is_some()).for_each(|bin| bin.size.bytes = 0.0);
    history.observe(0.0, [reading(1, &bins)].into_iter());
    assert!(history.tracks[&TargetId::Cgroup(1)].curve(0.0).is_none(), "one reading is not enough");
    for at in 1..9 {
        history.observe(5.0 * f64::from(at), [reading(1, &bins)].into_iter());
    }
    let curve = history.tracks[&TargetId::Cgroup(1)].curve(40.0).unwrap();
    assert_eq!(curve.points.iter().map(|point| point.age_s).collect::<Vec<_>>(), [10.0, 30.0]);
    assert_eq!(curve.points[0].cold.map(|cold| cold.at / MIB), [70.0, 100.0].into());
    assert_eq!(curve.points[1].cold.map(|cold| cold.at / MIB), [60.0, 100.0].into());
    // 10 MiB in the 20 s after, 3 MiB a second before.
    let lowtide_model::kind::PerKind { anon, file } = curve.points[0].back;
    assert!((0.5 * MIB..=3.0 * MIB).contains(&anon.at) && file.at == 0.0, "{anon:?} {file:?}");
}

#[test]
fn an_hour_is_kept_in_as_much_memory_as_there_is_for_so_many() {
    for (workloads, most) in [(1_u32, 60), (5000, 12)] {
        let mut history = History::default();
        let bins = ages(&[(10.0, 30.0)], 100.0);
        let turns = if workloads == 1 { 1800 } else { 60 };
        for turn in 0..turns {
            let all = (0..workloads).map(|id| reading(u64::from(id), &bins));
            history.observe(5.0 * f64::from(turn), all);
        }
        let now_s = history.now_s;
        let samples = history.tracks[&TargetId::Cgroup(0)].samples(now_s);
        assert!(samples.len() <= most + 1 && samples.len() > most / 3, "{} of {workloads}", samples.len());
        assert!(samples.windows(2).all(|pair| pair[0].t_s < pair[1].t_s));
        if workloads == 1 {
            let reach = now_s - f64::from(samples[0].t_s);
            assert!(reach > 0.8 * SPAN_S && reach <= SPAN_S + 1.0, "{reach}");
        }
        for turn in 0..100 {
            (0..u64::from(workloads)).for_each(|id| history.acted(id.into(), action(f64::from(turn))));
        }
        let known = &history.tracks[&TargetId::Cgroup(0)];
        assert_eq!(known.actions().count(), if workloads == 1 { ACTIONS.1 } else { ACTIONS.0 });
        assert_eq!(known.actions().last().unwrap().t_s, 99.0, "the newest stay");
    }
}

#[test]
fn joining_samples_keeps_what_is_known_and_the_mean() {
    let mut history = History::default();
    let bins = ages(&[(10.0, 30.0)], 100.0);
    history.observe(0.0, [reading(1, &bins)].into_iter());
    let known = history.tracks[&TargetId::Cgroup(1)].samples(0.0)[0];
    let unknown = HistorySample { used: [PerKind::both(f32::NAN); 6], resident: PerKind::both(0.0), t_s: 5.0, ..known };
    let joined = together(&[known, unknown]);
    assert_eq!((joined.t_s, joined.resident.anon), (5.0, known.resident.anon / 2.0));
    assert_eq!(joined.used(2), Some(PerKind::both(30.0 * MIB)));
    let alone = together(&[known]);
    assert_eq!((alone.t_s, alone.resident, alone.used(2)), (known.t_s, known.resident, known.used(2)));
}

#[test]
fn pressure_is_averaged_over_ten_seconds_and_absent_where_there_is_none() {
    let mut history = History::default();
    let mut pressure = |now_s: f64, stalled_s| {
        history.observe(now_s, [TargetReading { stalled_s, ..reading(1, &[]) }].into_iter());
        history.tracks[&TargetId::Cgroup(1)].pressure
    };
    assert_eq!(pressure(0.0, Some(100.0)), None);
    assert_eq!(pressure(1.0, Some(101.0)), None);
    assert_eq!(pressure(10.0, Some(102.0)), Some(0.2));
    assert_eq!(pressure(11.0, Some(103.0)), Some(0.2));
    assert_eq!(pressure(21.0, None), None, "the kernel reports it no more");
}

#[test]
fn a_log_has_bounds_and_takes_nothing_from_strangers() {
    let mut history = History::default();
    history.acted(TargetId::Cgroup(7), action(0.0));
    assert!(history.tracks.is_empty());
    let reason = &"ä".repeat(1000);
    let long = ActionEvent { reason, ..ActionEvent::of(ActionKind::Reclaim, TargetId::Cgroup(1)) };
    assert_eq!(ActionTaken::new(&long, 0.0).reason.chars().count(), 240);
}
