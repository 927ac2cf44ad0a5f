use super::*;
use crate::PAGE;
use crate::choice::{Choice, level_for};
use proptest::prelude::*;

/// Anonymous pages that came at the start.
fn made_at_0(pages: impl Iterator<Item = u64>) -> Vec<Found> {
    let found = |page| Found {
        key: PageKey { space: 1, page },
        kind: PageKind::Anon,
        frame: page,
        node: 0,
        share: 1.0,
        allocated_s: Some(0.0),
    };
    pages.map(found).collect()
}

/// A target of `pages` pages from page 0 up, all anonymous, of which `is_hot` are touched in every tick.
fn watch(pages: u64, limit: u64, seed: u64, ticks: u32, is_hot: impl Fn(u64) -> bool) -> (Cohort, Totals) {
    let choice = Choice { level: level_for(pages, limit), seed, turn: 0 };
    let found = made_at_0(choice.pages_in(0, pages));
    #[expect(clippy::cast_precision_loss)]
    let totals = [(pages * PAGE) as f64, 0.0, 0.0];
    let mut cohort = Cohort::new(1.0);
    let mut out = Vec::new();
    cohort.refresh(
        0.0,
        &Walk { found: &found, pages_each: [choice.pages_each(); 3], totals: totals.map(Some) },
        &mut out,
    );
    for tick in 1..=ticks {
        cohort.tick(f64::from(tick), |frame| Some(is_hot(frame)));
    }
    (cohort, totals)
}

#[test]
fn scattered_hot_eighth_is_found_within_its_interval() {
    // 2 GiB, one page in eight hot at random: the interval must hold the truth about 19 times in 20.
    let pages = 1 << 19;
    let hot = |page: u64| page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 == 0;
    #[expect(clippy::cast_precision_loss)]
    let truth = ((0..pages).filter(|page| hot(*page)).count() as u64 * PAGE) as f64;
    let mut inside = 0;
    for seed in 0..200 {
        let (cohort, totals) = watch(pages, 2000, seed, 3, hot);
        let ws = cohort.picture(3.0, totals).working_set[0].unwrap();
        inside += u32::from((ws.bytes - truth).abs() <= ws.ci95);
    }
    assert!((180..=199).contains(&inside), "{inside} of 200 intervals held the truth");
}

#[test]
fn contiguous_hot_range_is_measured_better_than_a_random_sample_could() {
    let (cohort, totals) = watch(1 << 17, 2048, 7, 3, |page| page < 1 << 14);
    let ws = cohort.picture(3.0, totals).working_set[0].unwrap();
    let truth = 64.0 * 1_048_576.0;
    assert!((ws.bytes - truth).abs() < 0.01 * truth, "{ws:?}");
    // The binomial half-width would be 11 % here.
    assert!(ws.ci95 < 0.03 * truth, "{ws:?}");
}

#[test]
fn a_page_counts_by_its_share() {
    // One page in four stands for three: those are in use, and so are three of six parts of the memory.
    let found: Vec<Found> = made_at_0(0..400)
        .into_iter()
        .map(|page| Found { share: if page.frame % 4 == 0 { 3.0 } else { 1.0 }, ..page })
        .collect();
    let totals = [600.0 * 4096.0, 0.0, 0.0];
    let (mut cohort, mut out) = (Cohort::new(1.0), Vec::new());
    cohort.refresh(0.0, &Walk { found: &found, pages_each: [1; 3], totals: totals.map(Some) }, &mut out);
    for tick in 1..=3 {
        cohort.tick(f64::from(tick), |frame| Some(frame % 4 == 0));
    }
    let set = cohort.picture(3.0, totals).working_set[0].unwrap();
    assert!((set.bytes - 300.0 * 4096.0).abs() < 1.0, "{set:?}");
}

#[test]
fn a_page_counts_for_a_window_only_when_watched_for_it() {
    let mut cohort = Cohort::new(1.0);
    let found = [Found {
        key: PageKey { space: 1, page: 5 },
        kind: PageKind::Anon,
        frame: 5,
        node: 0,
        share: 1.0,
        allocated_s: None,
    }];
    let totals = [4096.0, 0.0, 0.0];
    let mut out = Vec::new();
    cohort.refresh(10.0, &Walk { found: &found, pages_each: [1; 3], totals: totals.map(Some) }, &mut out);
    cohort.tick(11.0, |_| Some(false));
    let picture = cohort.picture(11.0, totals);
    assert_eq!(picture.working_set[0].unwrap().bytes, 0.0);
    assert_eq!(picture.working_set[1], None, "five seconds were not watched yet");
    for tick in 12..=15 {
        cohort.tick(f64::from(tick), |_| Some(false));
    }
    assert!(cohort.picture(15.0, totals).working_set[1].is_some());
}

#[test]
fn reuse_times_and_idleness_are_written_down() {
    let mut cohort = Cohort::new(1.0);
    let key = PageKey { space: 9, page: 1 };
    let found = [Found { key, kind: PageKind::Anon, frame: 3, node: 0, share: 1.0, allocated_s: Some(0.5) }];
    let mut out = Vec::new();
    cohort.refresh(
        1.0,
        &Walk { found: &found, pages_each: [4; 3], totals: [Some(4.0 * 4096.0), None, None] },
        &mut out,
    );
    for (tick, touched) in [(2, true), (3, true), (4, false), (5, false), (6, true), (7, false), (8, false)] {
        cohort.tick(f64::from(tick), |_| Some(touched));
    }
    cohort.finish(&mut out);
    let rows: Vec<_> = out.iter().map(|e| (e.touched, e.start_s, e.end_s, e.reuse_s)).collect();
    assert_eq!(rows, [(true, 2.0, 3.0, Some(1.5)), (true, 6.0, 6.0, Some(3.0)), (false, 6.0, 8.0, Some(0.0))]);
    assert_eq!(out[0].weight_bytes, 4.0 * 4096.0);
}

#[test]
fn a_page_in_another_frame_was_touched_and_one_on_another_node_was_moved() {
    let reuse = |moved: Found| {
        let (mut cohort, mut out) = (Cohort::new(1.0), Vec::new());
        let refresh = |cohort: &mut Cohort, now_s, found: Found| {
            cohort.refresh(now_s, &Walk { found: &[found], pages_each: [1; 3], totals: [None; 3] }, &mut Vec::new());
        };
        refresh(&mut cohort, 1.0, Found { frame: 3, node: 0, allocated_s: Some(1.0), ..moved });
        (2..=5).for_each(|tick| cohort.tick(f64::from(tick), |_| Some(false)));
        refresh(&mut cohort, 5.5, moved);
        // The monitor needs a moment until it samples the new frame.
        (6..=8).for_each(|tick| cohort.tick(f64::from(tick), |_| (tick > 6).then_some(false)));
        let used = cohort.picture(8.0, [4096.0, 0.0, 0.0]).working_set[1].map(|used| used.bytes);
        cohort.tick(9.0, |_| Some(true));
        cohort.finish(&mut out);
        (used, out.last().and_then(|row| row.reuse_s))
    };
    let page = PageKey { space: 9, page: 1 };
    let found = Found { key: page, kind: PageKind::Anon, frame: 7, node: 0, share: 1.0, allocated_s: None };
    assert_eq!(reuse(found), (Some(4096.0), Some(3.5)));
    assert_eq!(reuse(Found { node: 1, ..found }), (Some(0.0), Some(8.0)));
}

#[test]
fn what_a_frame_did_after_its_page_was_moved_is_dropped() {
    let (mut cohort, mut out) = (Cohort::new(1.0), Vec::new());
    let key = PageKey { space: 9, page: 1 };
    let found = Found { key, kind: PageKind::Anon, frame: 3, node: 0, share: 1.0, allocated_s: Some(0.5) };
    let refresh = |cohort: &mut Cohort, now_s, found: Found, out: &mut Vec<Episode>| {
        cohort.refresh(now_s, &Walk { found: &[found], pages_each: [1; 3], totals: [None; 3] }, out);
    };
    refresh(&mut cohort, 1.0, found, &mut out);
    // Used at 2 s; at 6 s the page is on another node, and its old frame was used by somebody else at 4 s.
    cohort.tick(2.0, |_| Some(true));
    refresh(&mut cohort, 2.5, found, &mut out);
    (3..=5).for_each(|tick| cohort.tick(f64::from(tick), |_| Some(tick == 4)));
    refresh(&mut cohort, 5.5, Found { frame: 7, node: 1, allocated_s: None, ..found }, &mut out);
    (6..=8).for_each(|tick| cohort.tick(f64::from(tick), |_| Some(false)));
    assert_eq!(cohort.picture(8.0, [4096.0, 0.0, 0.0]).working_set[1].map(|used| used.bytes), Some(0.0));
    cohort.finish(&mut out);
    let rows: Vec<_> = out.iter().map(|row| (row.touched, row.start_s, row.end_s, row.reuse_s)).collect();
    assert_eq!(rows, [(true, 2.0, 2.0, Some(1.5)), (false, 2.0, 8.0, Some(0.0))]);
}

#[test]
fn cutting_loses_nothing() {
    let mut uncut = Vec::new();
    let mut parts = Vec::new();
    for (out, cut) in [(&mut uncut, false), (&mut parts, true)] {
        let mut cohort = Cohort::new(1.0);
        let key = PageKey { space: 9, page: 1 };
        let found = [Found { key, kind: PageKind::File, frame: 3, node: 0, share: 1.0, allocated_s: None }];
        cohort.refresh(0.0, &Walk { found: &found, pages_each: [1; 3], totals: [None; 3] }, out);
        for tick in 1..=9 {
            cohort.tick(f64::from(tick), |_| Some(tick <= 7));
            if cut && tick % 3 == 0 {
                cohort.cut(out);
            }
        }
        cohort.finish(out);
    }
    assert_eq!(uncut.len(), 2);
    let touched: Vec<_> = parts.iter().filter(|e| e.touched).collect();
    assert_eq!((touched[0].start_s, touched.last().unwrap().end_s), (1.0, 7.0));
    assert!(touched[1..].iter().all(|e| e.reuse_s == Some(0.0)));
}

#[test]
fn growth_between_refreshes_counts_as_touched_when_it_came() {
    let (mut cohort, before) = watch(1 << 12, 1 << 12, 1, 10, |page| page < 1 << 10);
    let mut totals = before;
    totals[0] += 1_048_576.0;
    cohort.note_totals(8.0, before);
    cohort.note_totals(8.9, totals);
    let sets = cohort.picture(10.0, totals).working_set;
    // A quarter of what is known is used. The last second saw no growth; the last five saw all of it.
    assert!((sets[0].unwrap().bytes - totals[0] / 4.0).abs() < 1.0, "{sets:?}");
    assert!((sets[1].unwrap().bytes - (before[0] / 4.0 + 1_048_576.0)).abs() < 1.0, "{sets:?}");
    // Of what came before the last second all or nothing may be used.
    assert!(sets[0].unwrap().ci95 >= 0.5 * 1_048_576.0 && sets[1].unwrap().ci95 < 1.0, "{sets:?}");
}

#[test]
fn what_grew_by_half_since_the_last_refresh_has_no_picture_yet() {
    let (mut cohort, before) = watch(1 << 12, 1 << 12, 1, 10, |page| page < 1 << 10);
    let totals = [1.5 * before[0], 0.0, 0.0];
    cohort.note_totals(8.0, totals);
    assert_eq!(cohort.picture(10.0, totals).working_set[0], None);
    assert!(cohort.picture(10.0, totals).working_set[2].is_some(), "the last ten seconds saw it come");
}

/// The share that is used within a second by what is known while the monitor does not sample yet what joined at 10 s: as many
/// pages again as there were, or, of a target that grew, three times as many.
fn used_while_pages_join(allocated_s: Option<f64>) -> Option<f64> {
    let (mut cohort, totals) = watch(1 << 12, 1 << 9, 1, 10, |page| page < 1 << 10);
    let denser = Choice { level: 2, seed: 1, turn: 0 };
    let known: Vec<Found> = made_at_0(denser.pages_in(0, 1 << if allocated_s.is_some() { 14 } else { 12 }));
    let is_old = |found: &Found| cohort.frame_of(found.key).is_some();
    let found: Vec<Found> =
        known.into_iter().map(|new| if is_old(&new) { new } else { Found { allocated_s, ..new } }).collect();
    let old: Vec<u64> = found.iter().filter(|page| is_old(page)).map(|page| page.frame).collect();
    let mut out = Vec::new();
    cohort.refresh(10.2, &Walk { found: &found, pages_each: [4; 3], totals: totals.map(Some) }, &mut out);
    for tick in 11..=13 {
        cohort.tick(f64::from(tick), |frame| old.contains(&frame).then_some(frame < 1 << 10));
    }
    cohort.picture(13.0, totals).working_set[0].map(|used| used.bytes / totals[0])
}

#[test]
fn a_sample_that_becomes_denser_keeps_its_picture_and_one_of_new_pages_does_not() {
    assert_eq!(used_while_pages_join(None), Some(0.25));
    assert_eq!(used_while_pages_join(Some(10.1)), None);
}

#[test]
fn a_page_that_is_first_sampled_late_is_not_known_to_have_been_idle() {
    let known = |found_s: u32, now_s: u32| {
        let (mut cohort, totals) = (Cohort::new(1.0), [4096.0, 0.0, 0.0]);
        let found = made_at_0(0..1);
        for tick in 1..=now_s {
            if tick == found_s {
                let walk = Walk { found: &found, pages_each: [1; 3], totals: totals.map(Some) };
                cohort.refresh(f64::from(tick), &walk, &mut Vec::new());
            }
            cohort.tick(f64::from(tick), |_| Some(false));
        }
        cohort.picture(f64::from(now_s), totals).working_set[2].map(|used| used.bytes)
    };
    assert_eq!(known(10, 14), None, "what it did from 0 to 9 s is not known");
    assert_eq!(known(10, 19), Some(0.0), "idle for the ten seconds since");
    assert_eq!(known(5, 11), Some(0.0), "found by the next walk");
    assert_eq!(known(5, 9), Some(4096.0), "its allocation is a touch");
}

#[test]
fn a_full_census_has_no_sampling_error() {
    let (cohort, totals) = watch(100, 1000, 1, 2, |page| page < 25);
    let ws = cohort.picture(2.0, totals).working_set[0].unwrap();
    assert_eq!((ws.bytes, ws.ci95), (25.0 * 4096.0, 0.0));
}

proptest! {
    /// Conservation: the bins of the histogram sum to the target's size, and working sets grow with the window.
    #[test]
    fn bins_partition_the_target(periods in prop::collection::vec(1u32..200, 1..60), now in 1u32..180, known in any::<bool>()) {
        let mut cohort = Cohort::new(1.0);
        let found: Vec<Found> = periods.iter().enumerate().map(|(i, _)| Found {
            key: PageKey { space: 1, page: i as u64 },
            kind: PageKind::ALL[i % 3],
            frame: i as u64,
            node: 0,
            share: 1.0,
            allocated_s: known.then_some(0.0),
        }).collect();
        let mut out = Vec::new();
        let mut totals = Totals::default();
        for page in &found {
            totals[page.kind.index()] += 4096.0;
        }
        cohort.refresh(0.0, &Walk { found: &found, pages_each: [1; 3], totals: totals.map(Some) }, &mut out);
        for tick in 1..=now {
            cohort.tick(f64::from(tick), |frame| Some(tick % periods[usize::try_from(frame).unwrap()] == 0));
        }
        let picture = cohort.picture(f64::from(now), totals);
        let sum: f64 = picture.ages.iter().map(|bin| bin.size.bytes).sum();
        let total: f64 = totals.iter().sum();
        prop_assert!((sum - total).abs() < 1e-6 * total.max(1.0), "{} of {}", sum, total);
        let sets: Vec<f64> = picture.working_set.iter().flatten().map(|ws| ws.bytes).collect();
        prop_assert!(sets.windows(2).all(|pair| pair[0] <= pair[1] + 1e-6), "{:?}", sets);
        // Every row of the record is in order and of a watched page.
        cohort.finish(&mut out);
        prop_assert!(out.iter().all(|e| e.start_s <= e.end_s && e.key.page < periods.len() as u64));
    }
}

/// Pages swept round and round, each touched once in `period_s`, sampled every `tick_s`.
fn swept(period_s: f64, tick_s: f64, ticks: u32) -> (Cohort, Totals, f64) {
    let pages = 1u32 << 15;
    let found = made_at_0((0..u64::from(pages)).step_by(16));
    let totals = [f64::from(pages) * 4096.0, 0.0, 0.0];
    let mut cohort = Cohort::new(1.0);
    let mut out = Vec::new();
    cohort.refresh(0.0, &Walk { found: &found, pages_each: [16; 3], totals: totals.map(Some) }, &mut out);
    for tick in 1..=ticks {
        let now = f64::from(tick) * tick_s;
        #[expect(clippy::cast_precision_loss)]
        let phase = |frame: u64| frame as f64 / f64::from(pages);
        let rounds = |frame: u64, t: f64| (t / period_s - phase(frame)).floor();
        cohort.tick(now, |frame| Some(rounds(frame, now) > rounds(frame, now - tick_s)));
    }
    (cohort, totals, f64::from(ticks) * tick_s)
}

#[test]
fn looks_that_are_not_quite_a_second_apart_measure_a_second() {
    for tick_s in [1.024, 0.97, 1.1] {
        let (cohort, totals, now_s) = swept(8.0, tick_s, 40);
        let picture = cohort.picture(now_s, totals);
        for (window, at) in [(1.0, 0), (5.0, 1)] {
            let (estimate, truth) = (picture.working_set[at].unwrap(), totals[0] * window / 8.0);
            let off = (estimate.bytes - truth).abs();
            assert!(off <= 0.005 * truth, "{tick_s}, {window}: {} of {truth}", estimate.bytes);
            assert!(off <= estimate.ci95, "{tick_s}, {window}: {off}, {}", estimate.ci95);
        }
    }
}

#[test]
fn after_a_long_gap_nothing_is_said_of_a_second() {
    let (mut cohort, totals, now_s) = swept(8.0, 1.0, 20);
    cohort.tick(now_s + 2.05, |_| Some(true));
    let picture = cohort.picture(now_s + 2.05, totals);
    assert_eq!(picture.working_set[0], None);
    assert!(picture.working_set[1].is_some());
}
