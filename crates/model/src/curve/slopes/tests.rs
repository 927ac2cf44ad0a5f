use super::*;
use crate::cohort::{AgeBin, Estimate};
use crate::curve::tests::watch;
use crate::phase::{Phase, PhaseKind};

/// Histograms of a stationary workload whose working set of a window is known.
fn histograms(ages: &[f64], used: impl Fn(f64) -> f64, total: f64) -> Vec<AgeRow> {
    let row = |t_s: f64, anon: bool, min_s: f64, max_s: Option<f64>, bytes: f64| AgeRow {
        t_s,
        bin: AgeBin { anon, min_s, max_s, size: Estimate { bytes, ci95: 0.0 }, first_touched: None },
    };
    let mut rows = Vec::new();
    // Longer than the longest window: what was there before the first row may have been new.
    for t_s in (0..40).map(f64::from) {
        let (mut reached, mut from_s) = (0.0, 0.0);
        for age_s in ages {
            rows.push(row(t_s, true, from_s, Some(*age_s), used(*age_s) - reached));
            rows.push(row(t_s, false, from_s, Some(*age_s), 0.0));
            (reached, from_s) = (used(*age_s), *age_s);
        }
        rows.push(row(t_s, true, from_s, None, total - reached));
        rows.push(row(t_s, false, from_s, None, 0.0));
    }
    rows
}

#[test]
fn histograms_alone_bound_what_comes_back() {
    // Exponential reuse with a mean of 10 s: the working set is 1 - exp(-T/10), what comes back exp(-T/10) / 10.
    let total = 1e9;
    let rows = histograms(&[1.0, 2.0, 5.0, 10.0, 20.0, 30.0], |t| total * (1.0 - (-t / 10.0).exp()), total);
    let curve = Curve::of(&rows, &[], 1.0).unwrap();
    assert_eq!((curve.basis, curve.points.len()), (Basis::Histograms, 6));
    for point in &curve.points {
        let exact = total * (-point.age_s / 10.0).exp() / 10.0;
        let back = point.back.anon;
        assert!(back.low <= exact && exact <= back.high, "{point:?}: {exact}");
    }
    assert_eq!(Curve::of(&rows[..2], &[], 1.0), None, "one tick gives no curve");
}

/// One cycle of nested windows (seconds, bytes used, of them first touched), read to its end at `t_s`.
fn cycle(t_s: f64, windows: &[(f64, f64, f64)], total: f64) -> Vec<AgeRow> {
    let (mut rows, mut reached, mut from_s) = (Vec::new(), (0.0, 0.0), 0.0);
    let row = |anon, min_s, max_s, bytes, first| AgeRow {
        t_s,
        bin: AgeBin { anon, min_s, max_s, size: Estimate { bytes, ci95: 0.0 }, first_touched: Some(first) },
    };
    for (window_s, used, first) in windows {
        rows.push(row(true, from_s, Some(*window_s), used - reached.0, first - reached.1));
        rows.push(row(false, from_s, Some(*window_s), 0.0, 0.0));
        (reached, from_s) = ((*used, *first), *window_s);
    }
    rows.push(row(true, from_s, None, total - reached.0, 0.0));
    rows.push(row(false, from_s, None, 0.0, 0.0));
    rows
}

#[test]
fn windows_are_compared_within_their_cycle_alone() {
    // Hot by turns: 50 in one cycle and 200 in the next, of which only the first reads ten seconds. Nothing ever comes back
    // after more than a second, though the mean of the five-second windows is larger than the ten-second one.
    let rows = [
        cycle(110.0, &[(1.0, 50.0, 0.0), (5.0, 50.0, 0.0), (10.0, 50.0, 0.0)], 500.0),
        cycle(120.0, &[(1.0, 200.0, 0.0), (5.0, 200.0, 0.0)], 500.0),
    ];
    let curve = Curve::of(&rows.concat(), &[], 1.0).unwrap();
    let sets: Vec<(f64, f64)> = curve.points.iter().map(|point| (point.age_s, point.kept)).collect();
    assert_eq!(sets, [(1.0, 125.0), (5.0, 125.0), (10.0, 125.0)]);
    assert_eq!((curve.points[1].back.anon, curve.points[1].kept_peak), (Band::default(), 200.0));
}

/// A second of the start-up, and a cycle that came too late for its first windows.
#[test]
fn a_window_that_no_longer_one_was_read_with_is_left_out() {
    let start = cycle(1.0, &[(1.0, 300.0, 300.0)], 500.0);
    let late = cycle(22.0, &[(5.0, 60.0, 0.0), (10.0, 70.0, 0.0), (20.0, 80.0, 0.0)], 500.0);
    let curve = Curve::of(&[start, late].concat(), &[], 1.0).unwrap();
    assert_eq!(curve.points.iter().map(|point| point.age_s).collect::<Vec<_>>(), [5.0, 10.0, 20.0]);
    assert_eq!(curve.points[0].kept, 60.0);
}

#[test]
fn use_that_rises_between_two_readings_is_in_the_peak() {
    // From the fifth to the tenth second 150 were used that were idle before.
    let rows = cycle(50.0, &[(1.0, 50.0, 0.0), (5.0, 50.0, 0.0), (10.0, 200.0, 0.0), (20.0, 200.0, 0.0)], 500.0);
    let curve = Curve::of(&rows, &[], 1.0).unwrap();
    assert_eq!(curve.points.iter().map(|point| point.kept_peak).collect::<Vec<_>>(), [50.0, 150.0, 200.0, 200.0]);
}

#[test]
fn first_touches_of_a_cycle_did_not_come_back() {
    // 40 bytes a second are new, 10 are used all the time.
    let grows = cycle(50.0, &[(1.0, 50.0, 40.0), (5.0, 210.0, 200.0), (10.0, 410.0, 400.0)], 900.0);
    let curve = Curve::of(&grows, &[], 1.0).unwrap();
    assert_eq!(curve.points[1].back.anon, Band::default());
    assert_eq!(curve.points[1].kept, 210.0);
}

#[test]
fn cycles_outside_of_steady_phases_say_nothing_of_them() {
    let phase = |kind, from_s, to_s| Phase { kind, from_s, to_s };
    let phases = [phase(PhaseKind::StartUp, 0.0, 20.0), phase(PhaseKind::Steady, 20.0, 60.0)];
    let rows = [
        cycle(18.0, &[(1.0, 300.0, 0.0), (5.0, 400.0, 0.0), (10.0, 500.0, 0.0)], 500.0),
        // Begun in the start-up, if only just.
        cycle(20.3, &[(1.0, 400.0, 0.0)], 500.0),
        cycle(25.0, &[(1.0, 300.0, 0.0), (5.0, 400.0, 0.0), (10.0, 500.0, 0.0)], 500.0),
        cycle(36.0, &[(1.0, 60.0, 0.0), (5.0, 60.0, 0.0), (10.0, 60.0, 0.0)], 500.0),
    ];
    let curve = Curve::of_phases(&phases, &rows.concat(), &[], 1.0).unwrap();
    assert_eq!(curve.points.iter().map(|point| point.kept_peak).collect::<Vec<_>>(), [60.0; 3]);
    assert_eq!(Curve::of_phases(&phases[..1], &rows.concat(), &[], 1.0), None, "never steady, so no curve");
}

#[test]
fn what_is_new_did_not_come_back() {
    // By histograms alone: all is made in the third tick, and a quarter is used from then on.
    let (mut rows, _) = watch(1000, 1000, 1, 40, &mut |page, tick| page < 250 || tick == 3);
    for row in rows.iter_mut().filter(|row| row.t_s < 3.0) {
        row.bin.size.bytes = 0.0;
    }
    let curve = Curve::of(&rows, &[], 1.0).unwrap();
    assert_eq!(curve.basis, Basis::Histograms);
    for point in curve.points.iter().filter(|point| point.age_s <= 10.0) {
        assert!(point.back.anon.at < 2.0 * 4096.0, "{point:?}");
    }
}
