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
    watch_some(pages, (&|_| limit, seed), ticks, uses)
}

/// The same where the size of the sample changes from tick to tick.
pub(crate) fn watch_some(
    pages: u64,
    (limit, seed): (&dyn Fn(u32) -> u64, u64),
    ticks: u32,
    uses: &mut dyn FnMut(u64, u32) -> bool,
) -> (Vec<AgeRow>, Vec<Episode>) {
    #[expect(clippy::cast_precision_loss)]
    let totals = [(pages * PAGE) as f64, 0.0, 0.0];
    let mut cohort = Cohort::new(1.0);
    let (mut rows, mut episodes) = (Vec::new(), Vec::new());
    let mut used = vec![true; usize::try_from(pages).unwrap()];
    for tick in 0..=ticks {
        if tick % 45 == 0 {
            let choice = Choice { level: level_for(pages, limit(tick)), seed, turn: u64::from(tick / 45) };
            let found = |page| Found {
                key: PageKey { space: 1, page },
                kind: PageKind::Anon,
                frame: page,
                node: 0,
                share: 1.0,
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
            cohort.tick(f64::from(tick), |frame| Some(used[usize::try_from(frame).unwrap()]));
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
pub(crate) fn trace(pages: u64, ticks: u32, seed: u64) -> Vec<Vec<bool>> {
    let chances = chances(pages, seed);
    let mut random = Random::new(seed ^ 1);
    (0..=ticks)
        .map(|tick| chances.iter().map(|chance| tick == 0 || random.chance() < *chance).collect::<Vec<bool>>())
        .collect()
}

/// Misses of an LRU list of so many pages, first uses left out, and the bytes that would be idle for `age` ticks, both
/// counted exactly.
pub(crate) fn lru_misses(trace: &[Vec<bool>], capacity: usize) -> usize {
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
    assert!(held.iter().all(|held| *held < asked), "{held:?} of {asked}");
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
            key: PageKey { space: 1, page }, kind: PageKind::Anon, weight_bytes: 4096.0, share: None, touched, start_s, end_s, reuse_s,
        }).collect();
        let _ = Curve::of(&rows, &lives, 1.0);
    }
}

#[test]
fn swap_on_a_disk_that_was_not_measured_costs_what_a_file_does() {
    let measured = |swap_s, disk_s| MeasuredCosts { swap_s, disk_s, ..MeasuredCosts::default() };
    let around = |disk_s| MeasuredCosts { around_s: Some(4e-3), around_bytes: Some(8 << 20), ..measured(None, disk_s) };
    assert_eq!(around(None).with_swap(true).swap_s, RefaultCosts::default().disk_s);
    let cost_s = |disk_s, mib| around(disk_s).of_limits(mib * 1048576.0).disk_s;
    assert_eq!((cost_s(None, 32.0), cost_s(Some(5e-3), 32.0)), (3e-3, 5e-3));
    assert_eq!([0.0, 8.0].map(|mib| cost_s(None, mib)), [1e-4; 2], "all files are read at once");
    assert_eq!(measured(None, Some(5e-3)).with_swap(true), RefaultCosts { swap_s: 5e-3, disk_s: 5e-3 });
    assert_eq!(measured(None, Some(5e-3)).with_swap(false).swap_s, RefaultCosts::default().swap_s);
    assert_eq!(measured(Some(2e-4), None).with_swap(true).swap_s, 2e-4);
    // What was measured before that was kept apart, and what is written to a disk later, counts as a whole.
    let out_s =
        |swap_s, swap_out_s, on_disk| MeasuredCosts { swap_out_s, ..measured(swap_s, None) }.swap_out_s(on_disk);
    assert_eq!([out_s(None, None, false), out_s(None, None, true), out_s(Some(8e-6), None, false)], [5e-6, 0.0, 0.0]);
    assert_eq!([out_s(Some(8e-6), Some(3e-6), false), out_s(Some(2e-6), Some(3e-6), false)], [3e-6, 2e-6]);
}
