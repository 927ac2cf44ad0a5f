use super::*;
use crate::cohort::{AgeBin, AgeRow, Estimate};
use crate::curve::Curve;
use crate::meta::{End, Meta};
use crate::phase::phases;

const MIB: f64 = 1_048_576.0;

/// A program that loads `peak` MiB in five seconds, read second by second, and then uses `hot` of them, read by cycles of 20 s.
struct Run {
    meta: Meta,
    rows: Vec<Usage>,
    ages: Vec<AgeRow>,
}

fn run(seconds: u32, peak: f64, hot: impl Fn(f64) -> f64) -> Run {
    let end = End { cgroup_peak_bytes: Some(rounded(peak * MIB)), runtime_s: f64::from(seconds), ..End::default() };
    let mut meta = Meta { end: Some(end), ..Meta::default() };
    meta.host.cpus = 2;
    let mut rows = vec![Usage { t_s: Some(0.0), ..Usage::default() }];
    let mut ages = Vec::new();
    for second in 1..=seconds {
        let t_s = f64::from(second);
        let held = MIB * peak * (t_s / 5.0).min(1.0);
        let at = (second.saturating_sub(8)) % 20;
        let used = |window_s: u32| (second > 8 && at == window_s % 20).then(|| MIB * hot(t_s));
        rows.push(Usage {
            t_s: Some(t_s),
            rss_bytes: Some(held),
            demand_bytes: Some(held),
            anon_bytes: Some(held),
            file_bytes: Some(0.0),
            cgroup_bytes: Some(held),
            processes: Some(1.0),
            ws_1s_bytes: used(1),
            ws_5s_bytes: used(5),
            ws_10s_bytes: used(10),
            ..Usage::default()
        });
        let bin = |anon, min_s, max_s, bytes| AgeRow {
            t_s,
            bin: AgeBin { anon, min_s, max_s, size: Estimate { bytes, ci95: 0.0 }, first_touched: Some(0.0) },
        };
        if second <= 5 {
            ages.extend([bin(true, 0.0, Some(1.0), MIB * peak / 5.0), bin(true, 1.0, None, held - MIB * peak / 5.0)]);
            ages.extend([bin(false, 0.0, Some(1.0), 0.0), bin(false, 1.0, None, 0.0)]);
        }
        if second > 8 && at == 0 {
            let (used, idle) = (MIB * hot(t_s), held - MIB * hot(t_s));
            ages.extend([
                bin(true, 0.0, Some(1.0), used),
                bin(true, 1.0, Some(10.0), 0.0),
                bin(true, 10.0, None, idle),
            ]);
            ages.extend([
                bin(false, 0.0, Some(1.0), 0.0),
                bin(false, 1.0, Some(10.0), 0.0),
                bin(false, 10.0, None, 0.0),
            ]);
        }
    }
    Run { meta, rows, ages }
}

fn answer(run: &Run) -> BottomLine {
    let phases = phases(&run.rows, run.meta.starts_late());
    let curve = Curve::of_phases(&phases, &run.ages, &[], 1.0);
    let known = Known { ages: &run.ages, curve: curve.as_ref(), phases: &phases, ..Known::of(&run.meta, &run.rows) };
    BottomLine::of(&known, &OwnBudgets::of(&known, 0.02))
}

#[test]
fn what_is_loaded_once_and_what_is_used_are_two_numbers() {
    let run = run(68, 500.0, |_| 50.0);
    let of = answer(&run);
    // The peak, 3 % as runs differ, and what the kernel charges ahead for two CPUs; in full MiB.
    assert_eq!(of.no_swap_bytes, Some(516 << 20));
    let with = of.with_swap_bytes.unwrap();
    assert!((50 << 20..200 << 20).contains(&with), "{with}");
    assert_eq!(of.swap_bytes, Some((516 << 20) - with));
    assert!(of.with_swap_slowdown_percent.is_some_and(|percent| percent > 0.0 && percent <= 2.01), "{of:?}");
    let used = of.steady.used;
    assert_eq!((used.used_bytes, used.window_s, used.readings), (Some(50 << 20), Some(10), 3));
    assert_eq!((used.used_low_bytes, used.used_high_bytes), (None, None), "three readings may be alike by chance");
    assert_eq!((of.steady.resident_bytes, of.steady.seconds), (Some(500 << 20), 63.0));
    let start = StartUp { recorded: true, seconds: Some(5.0), touched_bytes: Some(500 << 20) };
    assert_eq!((of.start_up, of.basis.as_deref(), of.doubts.len()), (start, Some("histograms"), 0));
}

#[test]
fn sampled_readings_have_an_interval_from_eight_on() {
    let rises = |t_s: f64| 50.0 + (t_s - 98.0) / 20.0;
    let of = answer(&run(180, 500.0, rises)).steady.used;
    // 46 to 54 MiB: t with eight degrees of freedom times the standard error.
    let half = 2.306_00 * (7.5f64 / 9.0).sqrt() * MIB;
    assert_eq!(of.readings, 9);
    assert!((float(of.used_high_bytes.unwrap()) - 50.0 * MIB - half).abs() < 1e4, "{of:?}");
    assert_eq!(answer(&run(150, 500.0, rises)).steady.used.used_low_bytes, None, "seven");
}

#[test]
fn a_short_program_has_its_exact_peak() {
    let run = run(4, 500.0, |_| 50.0);
    let of = answer(&run);
    // The exact peak is higher by more than runs differ.
    assert_eq!((of.no_swap_bytes, of.with_swap_bytes, of.basis.as_deref()), (Some(501 << 20), None, Some("peak")));
    assert!(of.steady.used.used_bytes.is_none());
}

#[test]
fn a_program_that_was_read_only_while_it_started_says_how_to_read_more() {
    let of = answer(&run(25, 500.0, |_| 50.0));
    assert_eq!((of.with_swap_bytes, of.basis.as_deref()), (None, Some("peak")));
    let [doubt] = &of.doubts[..] else { panic!("{of:?}") };
    assert!(doubt.contains("unknown whether less memory suffices: record it for longer"), "{doubt}");
}

#[test]
fn what_grows_to_its_end_is_said_to() {
    let mut grows = run(40, 500.0, |_| 50.0);
    for row in &mut grows.rows[1..] {
        let held = row.t_s.map(|t_s| 10.0 * t_s * MIB);
        (row.rss_bytes, row.demand_bytes, row.anon_bytes, row.cgroup_bytes) = (held, held, held, held);
    }
    grows.ages.clear();
    let of = answer(&grows);
    assert_eq!((of.steady.seconds, of.with_swap_bytes), (0.0, None));
    assert!(of.no_swap_bytes.unwrap() >= 400 << 20);
    assert_eq!(of.doubts, ["it grew until its end and never reached a steady state"]);
}

#[test]
fn a_record_without_start_or_end_says_so() {
    let mut late = run(68, 500.0, |_| 50.0);
    late.meta.attached = true;
    late.meta.end = None;
    let of = answer(&late);
    assert!(!of.start_up.recorded && of.doubts.len() == 2, "{:?}", of.doubts);
    assert!(of.no_swap_bytes.unwrap() >= 500 << 20 && of.with_swap_bytes.is_none());
}

#[test]
fn watched_pages_keep_their_sampling_error_however_long_the_run() {
    for seconds in [30, 120, 400] {
        let mut of = run(seconds, 500.0, |_| 50.0);
        for row in of.rows.iter_mut().filter(|row| row.t_s > Some(8.0)) {
            (row.ws_10s_bytes, row.ws_10s_ci95_bytes) = (Some(50.0 * MIB), Some(4.0 * MIB));
        }
        let used = answer(&of).steady.used;
        let half = float(used.used_high_bytes.unwrap() - used.used_bytes.unwrap());
        assert!((half - 4.0 * MIB).abs() < 1.0, "{seconds} s: {half}");
    }
}

#[test]
fn what_the_start_up_touched_last_is_not_in_the_steady_state() {
    // Pages are sampled every second: what was touched by 5 s may be found used at 6 s, and be younger than ten until 15.9 s.
    let mut of = run(50, 500.0, |_| 50.0);
    for row in of.rows.iter_mut().filter(|row| row.t_s > Some(5.0)) {
        let bytes = if row.t_s < Some(15.9) { 300.0 } else { 50.0 };
        (row.ws_10s_bytes, row.ws_10s_ci95_bytes) = (Some(bytes * MIB), Some(3.0 * MIB));
        (row.ws_1s_bytes, row.ws_5s_bytes) = (None, None);
    }
    assert_eq!(answer(&of).steady.used.used_bytes, Some(50 << 20));
}

#[test]
fn watched_pages_have_the_error_of_a_window_that_is_off_by_half_a_tick() {
    let mut of = run(50, 500.0, |_| 50.0);
    for row in of.rows.iter_mut().filter(|row| row.t_s > Some(8.0)) {
        (row.ws_10s_bytes, row.ws_10s_ci95_bytes) = (Some(50.0 * MIB), Some(3.0 * MIB));
        (row.ws_1s_bytes, row.ws_5s_bytes) = (None, Some(10.0 * MIB));
    }
    let used = answer(&of).steady.used;
    // 8 MiB more a second, half of that, and the sampling error.
    let half = float(used.used_high_bytes.unwrap() - used.used_bytes.unwrap());
    assert!((half - 5.0 * MIB).abs() < 1.0, "{half}");
}

#[test]
fn readings_that_overlap_are_not_independent() {
    assert_eq!(independent((10..=40).map(f64::from), 10.0), 4);
    assert_eq!(independent([1.0, 21.0, 41.0].into_iter(), 1.0), 3);
    assert_eq!(independent(std::iter::empty(), 1.0), 0);
}
