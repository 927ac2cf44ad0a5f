use super::*;
use crate::PAGE;
use crate::choice::{Choice, level_for};
use crate::cohort::{AgeBin, Cohort, Estimate, Found, Walk};
use crate::episode::{PageKey, PageKind};
use crate::random::Random;
use proptest::prelude::*;

/// What a cohort writes down of `pages` anonymous pages that were made at the start, redrawing a quarter of the sample
/// every 45 ticks; `uses` returns whether a page is used in a tick.
pub(crate) fn watch(
    pages: u64,
    limit: u64,
    seed: u64,
    ticks: u32,
    uses: &mut dyn FnMut(u64, u32) -> bool,
) -> (Vec<AgeRow>, Vec<Episode>) {
    let level = level_for(pages, limit);
    #[expect(clippy::cast_precision_loss)]
    let totals = [(pages * PAGE) as f64, 0.0, 0.0];
    let mut cohort = Cohort::new(1.0);
    let (mut rows, mut episodes) = (Vec::new(), Vec::new());
    let mut used = vec![true; usize::try_from(pages).unwrap()];
    for tick in 0..=ticks {
        if tick % 45 == 0 {
            let choice = Choice { level, seed, turn: u64::from(tick / 45) };
            let found = |page| Found {
                key: PageKey { space: 1, page },
                kind: PageKind::Anon,
                frame: page,
                weight: 1.0,
                allocated_s: (tick == 0).then_some(0.0),
            };
            let found: Vec<Found> = choice.pages_in(0, pages).map(found).collect();
            cohort.refresh(
                f64::from(tick),
                &Walk { found: &found, pages_each: [choice.pages_each(); 3], totals: totals.map(Some) },
                &mut episodes,
            );
        }
        if tick > 0 {
            used.iter_mut().zip(0..).for_each(|(used, page)| *used = uses(page, tick));
            cohort.tick(f64::from(tick), |frame| Some(used[usize::try_from(frame).unwrap()]), &mut episodes);
            let t_s = f64::from(tick);
            rows.extend(cohort.picture(t_s, totals).ages.into_iter().map(|bin| AgeRow { t_s, bin }));
        }
        if tick % 5 == 0 {
            cohort.cut(&mut episodes);
        }
    }
    cohort.finish(&mut episodes);
    (rows, episodes)
}

/// Pages of which each is used with a chance of its own in every tick: some always, some now and then, some hardly ever.
fn chances(pages: u64, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..pages).map(|_| [0.9, 0.3, 0.1, 0.04, 0.01, 0.0][random.index(6)]).collect()
}

/// The reference for the curve: which page is used in which tick.
fn trace(pages: u64, ticks: u32, seed: u64) -> Vec<Vec<bool>> {
    let chances = chances(pages, seed);
    let mut random = Random::new(seed ^ 1);
    (0..=ticks)
        .map(|tick| chances.iter().map(|chance| tick == 0 || random.chance() < *chance).collect::<Vec<bool>>())
        .collect()
}

/// Misses of an LRU list of so many pages, first uses left out, and the bytes that would be idle for `age` ticks, both
/// counted exactly.
fn lru_misses(trace: &[Vec<bool>], capacity: usize) -> usize {
    // Ascending by last use: the first is the next to be evicted. Stack distance >= capacity is a miss.
    let mut stack: Vec<usize> = (0..trace[0].len()).collect();
    let mut random = Random::new(7);
    let mut misses = 0;
    for tick in &trace[1..] {
        let mut used: Vec<usize> = (0..tick.len()).filter(|page| tick[*page]).collect();
        random.shuffle(&mut used);
        for page in used {
            let at = stack.iter().rposition(|of| *of == page).unwrap();
            misses += usize::from(stack.len() - at > capacity);
            stack.remove(at);
            stack.push(page);
        }
    }
    misses
}

#[test]
fn a_memory_of_the_size_kept_misses_under_lru_what_the_curve_says() {
    let (pages, ticks) = (600, 400);
    let trace = trace(pages, ticks, 11);
    let (rows, episodes) = watch(pages, pages, 1, ticks, &mut |page, tick| {
        trace[usize::try_from(tick).unwrap()][usize::try_from(page).unwrap()]
    });
    let curve = Curve::of(&rows, &episodes, 1.0).unwrap();
    assert_eq!(curve.basis, Basis::Pages);
    for point in curve.points.iter().filter(|point| (3.0..=45.0).contains(&point.age_s)) {
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let (kept, per_s) = ((point.kept / PAGE as f64).round() as usize, |misses: usize| {
            misses as f64 * PAGE as f64 / f64::from(ticks)
        });
        let exact = per_s(lru_misses(&trace, kept));
        let off = (point.back.anon.at - exact).abs();
        assert!(off <= 0.1 * exact + per_s(8), "age {}: {} against {exact}", point.age_s, point.back.anon.at);
    }
}

/// Bytes idle for that long, mean over the ticks, and bytes a second used again after it, counted in full.
fn truth(trace: &[Vec<bool>], age: u32) -> (f64, f64) {
    let (mut cold, mut back) = (0u32, 0u32);
    for page in 0..trace[0].len() {
        let mut last = 0;
        for (tick, used) in (0u32..).zip(trace).skip(1) {
            cold += u32::from(tick - last > age);
            if used[page] {
                // Half of those that lie on the edge are over it: uses are somewhere in their tick.
                back += 2 * u32::from(tick - last > age) + u32::from(tick - last == age);
                last = tick;
            }
        }
    }
    #[expect(clippy::cast_precision_loss)]
    let per_tick = PAGE as f64 / (trace.len() - 1) as f64;
    (f64::from(cold) * per_tick, f64::from(back) / 2.0 * per_tick)
}

#[test]
fn bands_of_a_sample_hold_the_truth() {
    let (pages, ticks) = (6000, 150);
    let (mut held, mut asked) = ([0u32; 2], 0u32);
    for seed in 0..30 {
        let trace = trace(pages, ticks, 100 + seed);
        let (rows, episodes) = watch(pages, 500, seed, ticks, &mut |page, tick| {
            trace[usize::try_from(tick).unwrap()][usize::try_from(page).unwrap()]
        });
        let curve = Curve::of(&rows, &episodes, 1.0).unwrap();
        for point in curve.points.iter().filter(|point| [3.0, 10.0, 20.0].contains(&point.age_s)) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let (cold, back) = truth(&trace, point.age_s as u32);
            asked += 1;
            for (held, (band, truth)) in held.iter_mut().zip([(point.cold.anon, cold), (point.back.anon, back)]) {
                *held += u32::from((band.low..=band.high).contains(&truth));
            }
            assert!((point.cold.anon.at - cold).abs() < 0.25 * cold, "{point:?} against {cold}");
        }
    }
    assert!(held.iter().all(|held| *held * 100 >= asked * 90), "{held:?} of {asked}");
    // Nor are they so wide that they say nothing.
    assert!(held.iter().any(|held| *held < asked), "{held:?} of {asked}");
}

#[test]
fn what_is_used_over_and_over_never_comes_back_and_what_is_idle_is_gone() {
    let (rows, episodes) = watch(1000, 1000, 1, 60, &mut |page, _| page < 250);
    let curve = Curve::of(&rows, &episodes, 1.0).unwrap();
    let point = curve.points.iter().find(|point| point.age_s == 5.0).unwrap();
    assert_eq!(point.back.anon.at, 0.0);
    // The idle three quarters lie in memory for 60 s, of which they are cold for 55.
    let gone = 750.0 * 4096.0 * 55.0 / 60.0;
    assert!((point.gone().at - gone).abs() < 0.03 * gone, "{point:?}");
    let costs = RefaultCosts::default();
    assert_eq!(curve.within(0.02, &costs), curve.points.first());
    assert!(point.kept_peak >= point.kept);
}

#[test]
fn a_sweep_longer_than_the_age_comes_back_whole() {
    // Every page is used once in 20 ticks, one after the other.
    let (rows, episodes) = watch(2000, 2000, 1, 1000, &mut |page, tick| page % 20 == u64::from(tick % 20));
    let curve = Curve::of(&rows, &episodes, 1.0).unwrap();
    let at = |age_s: f64| curve.points.iter().find(|point| point.age_s == age_s).unwrap();
    let all = 2000.0 * 4096.0;
    assert!((at(10.0).back.anon.at - all / 20.0).abs() < 0.02 * all / 20.0, "{:?}", at(10.0));
    assert!((at(10.0).kept - all / 2.0).abs() < 0.05 * all, "{:?}", at(10.0));
    assert_eq!(at(30.0).back.anon.at, 0.0);
    let costs = RefaultCosts { swap_s: 1e-3, disk_s: 1e-3 };
    // 100 pages a second at a millisecond each.
    assert!((at(10.0).slowdown(&costs).at - 0.1).abs() < 0.003);
    assert_eq!(curve.within(0.02, &costs).unwrap().age_s, 30.0);
}

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
fn a_start_unlike_the_rest_can_be_left_out() {
    // All is used for forty ticks, then nothing of the upper three quarters.
    let (ages, episodes) = watch(400, 400, 1, 100, &mut |page, tick| tick <= 40 || page < 100);
    let gone = |curve: &Curve| curve.at(5.0).unwrap().gone().at / PAGE as f64;
    let (all, late) = (Curve::of(&ages, &episodes, 1.0).unwrap(), Curve::since(50.0, &ages, &episodes, 1.0).unwrap());
    assert!((gone(&all) - 165.0).abs() < 10.0, "{}", gone(&all));
    assert!((gone(&late) - 300.0).abs() < 3.0, "{}", gone(&late));
    let late = Curve::since(50.0, &ages, &[], 1.0).unwrap();
    assert_eq!(late.basis, Basis::Histograms);
    assert!((gone(&late) - 300.0).abs() < 3.0, "{}", gone(&late));
    assert!(Curve::since(101.0, &ages, &episodes, 1.0).is_none());
}

#[test]
fn ages_between_those_known_lie_between_them() {
    let point = |age_s: f64, gone: f64| Point {
        age_s,
        cold: [Band::around(gone, gone / 2.0), Band::default()].into(),
        kept: 100.0 - gone,
        ..Point::default()
    };
    let points = vec![point(1.0, 80.0), point(5.0, 40.0), point(10.0, 20.0)];
    let curve = Curve { basis: Basis::Pages, total: [100.0, 0.0].into(), points: points.clone() };
    assert_eq!(curve.at(5.0), Some(points[1]));
    assert_eq!(curve.at(1.0), Some(points[0]));
    let between = curve.at(4.0).unwrap();
    assert_eq!((between.age_s, between.gone(), between.kept), (4.0, Band::around(50.0, 25.0), 50.0));
    assert_eq!(curve.at(0.9), None);
    assert_eq!(curve.at(10.1), None);
}

proptest! {
    #[test]
    fn older_means_less_gone_and_less_back(seed: u64, pages in 1u64..300, ticks in 5u32..60) {
        let trace = trace(pages, ticks, seed);
        let (rows, episodes) = watch(pages, pages, seed, ticks, &mut |page, tick| {
            trace[usize::try_from(tick).unwrap()][usize::try_from(page).unwrap()]
        });
        let Some(curve) = Curve::of(&rows, &episodes, 1.0) else { return Ok(()) };
        #[expect(clippy::cast_precision_loss)]
        let total = (pages * PAGE) as f64;
        for point in &curve.points {
            prop_assert!(point.gone().at <= total * 1.001 && point.kept <= total * 1.001);
            prop_assert!(point.kept_peak <= total * 1.001);
            for (_, band) in point.cold.iter().chain(point.back.iter()) {
                prop_assert!(0.0 <= band.low && band.low <= band.at && band.at <= band.high, "{:?}", band);
            }
        }
        for pair in curve.points.windows(2) {
            prop_assert!(pair[1].gone().at <= pair[0].gone().at * 1.001 + 1.0);
            prop_assert!(pair[1].back.anon.at <= pair[0].back.anon.at * 1.001 + 1.0);
        }
    }

    #[test]
    fn any_rows_are_survived(
        rows in prop::collection::vec((0.0f64..100.0, any::<bool>(), 0.0f64..100.0, prop::option::of(0.0f64..100.0), 0.0f64..1e12), 0..40),
        lives in prop::collection::vec((0u64..5, any::<bool>(), 0.0f64..100.0, 0.0f64..100.0, prop::option::of(0.0f64..200.0)), 0..40),
    ) {
        let rows: Vec<AgeRow> = rows.into_iter().map(|(t_s, anon, min_s, max_s, bytes)| AgeRow {
            t_s, bin: AgeBin { anon, min_s, max_s, size: Estimate { bytes, ci95: 0.0 }, first_touched: None },
        }).collect();
        let lives: Vec<Episode> = lives.into_iter().map(|(page, touched, start_s, end_s, reuse_s)| Episode {
            key: PageKey { space: 1, page }, kind: PageKind::Anon, weight_bytes: 4096.0, touched, start_s, end_s, reuse_s,
        }).collect();
        let _ = Curve::of(&rows, &lives, 1.0);
    }
}

#[test]
fn swap_on_a_disk_that_was_not_measured_costs_what_a_file_does() {
    let measured = |swap_s, disk_s| MeasuredCosts { swap_s, disk_s, swap_out_s: None };
    assert_eq!(measured(None, Some(5e-3)).with_swap(true), RefaultCosts { swap_s: 5e-3, disk_s: 5e-3 });
    assert_eq!(measured(None, Some(5e-3)).with_swap(false).swap_s, RefaultCosts::default().swap_s);
    assert_eq!(measured(Some(2e-4), None).with_swap(true).swap_s, 2e-4);
    // What was measured before that was kept apart, and what is written to a disk later, counts as a whole.
    let out_s =
        |swap_s, swap_out_s, on_disk| MeasuredCosts { swap_out_s, ..measured(swap_s, None) }.swap_out_s(on_disk);
    assert_eq!([out_s(None, None, false), out_s(None, None, true), out_s(Some(8e-6), None, false)], [5e-6, 0.0, 0.0]);
    assert_eq!([out_s(Some(8e-6), Some(3e-6), false), out_s(Some(2e-6), Some(3e-6), false)], [3e-6, 2e-6]);
}

/// Every page that comes back costs a second, so that time lost is pages a second.
const A_SECOND: RefaultCosts = RefaultCosts { swap_s: 1.0, disk_s: 1.0 };

#[test]
fn a_limit_costs_what_an_lru_list_of_that_length_misses() {
    let (pages, ticks) = (2000u64, 400u32);
    let trace = trace(pages, ticks, 3);
    let (rows, episodes) = watch(pages, pages, 1, ticks, &mut |page, tick| {
        trace[usize::try_from(tick).unwrap()][usize::try_from(page).unwrap()]
    });
    let limits = Limits::of(&rows, &episodes, 1.0, true).unwrap();
    for capacity in [1100usize, 1250, 1400] {
        #[expect(clippy::cast_precision_loss)]
        let (bytes, misses) = ((capacity * 4096) as f64, lru_misses(&trace, capacity) as f64 / f64::from(ticks));
        let lost = limits.slowdown(bytes, &A_SECOND);
        assert!((lost - misses).abs() < 0.25 * misses, "{capacity} pages: {lost} against {misses} misses a second");
        // And back again: what is least for that loss.
        let least = limits.least(misses, &A_SECOND);
        assert!((least - bytes).abs() < 0.06 * bytes, "{least} against {bytes}");
    }
    assert_eq!(limits.slowdown(2000.0 * 4096.0, &A_SECOND), 0.0);
    // Without swap nothing of it can go.
    let limits = Limits::of(&rows, &episodes, 1.0, false).unwrap();
    assert!((limits.least(0.5, &A_SECOND) - 2000.0 * 4096.0).abs() <= 4096.0);
}

#[test]
fn what_is_used_in_phases_is_needed_in_one_at_a_time() {
    // 600 pages for 100 ticks, then 200 others, in turns.
    let phase = |tick: u32| (tick / 100) % 2;
    let uses = |page: u64, tick: u32| if phase(tick) == 0 { page < 600 } else { (600..800).contains(&page) };
    let (rows, episodes) = watch(1000, 1000, 1, 600, &mut { |page, tick| uses(page, tick) });
    let limits = Limits::of(&rows, &episodes, 1.0, true).unwrap();
    // A change of phase brings 600 or 200 pages back: five changes in 600 s, at 1 ms each some 0.3 %.
    let costs = RefaultCosts { swap_s: 1e-3, disk_s: 1e-3 };
    let least = limits.least(0.01, &costs) / 4096.0;
    assert!((590.0..640.0).contains(&least), "{least} pages");
    // Where nothing may be lost, both phases' pages are needed.
    let least = limits.least(1e-6, &costs) / 4096.0;
    assert!((790.0..1001.0).contains(&least), "{least} pages");
    let at = limits.tightest(400.0 * 4096.0, &costs).unwrap();
    assert_eq!(phase(u32_of(0.5 * (at.from_s + at.to_s))), 0, "the larger phase sets it: {at:?}");
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn u32_of(seconds: f64) -> u32 {
    seconds as u32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn more_memory_never_costs_more(seed: u64, pages in 200u64..600, ticks in 60u32..200) {
        let trace = trace(pages, ticks, seed);
        let (rows, episodes) = watch(pages, 200, seed, ticks, &mut |page, tick| {
            trace[usize::try_from(tick).unwrap()][usize::try_from(page).unwrap()]
        });
        let limits = Limits::of(&rows, &episodes, 1.0, true).unwrap();
        #[expect(clippy::cast_precision_loss)]
        let all = (pages * PAGE) as f64;
        let lost: Vec<f64> = (0..=20).map(|part| limits.slowdown(all * f64::from(part) / 20.0, &A_SECOND)).collect();
        prop_assert!(lost.windows(2).all(|pair| pair[1] <= pair[0] + 1e-9), "{lost:?}");
        prop_assert_eq!(lost[20], 0.0);
        let least = limits.least(lost[10], &A_SECOND);
        prop_assert!(limits.slowdown(least, &A_SECOND) <= lost[10]);
    }
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
