//! Phases of a run: start-up, growth and steady state, separated by what is touched for the first time.
//!
//! Problem: memory that is touched once while a program starts says nothing of what it needs afterwards. Approach: what the
//! processes have asked for so far (resident or swapped, at its highest) only rises while memory is touched for the first
//! time. Stretches in which it rises by more than a hundredth of its peak a second are growth, the first of them the
//! start-up; the rest is steady. Steady stretches are cut again where the use of memory changes for good.

use serde::{Deserialize, Serialize};

use crate::stats;
use crate::units::float;
use crate::usage::Usage;

/// What a phase is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseKind {
    /// From the start until growth ends for the first time.
    StartUp,
    /// Memory is touched for the first time, later on.
    Growth,
    /// What is touched was touched before.
    Steady,
}

/// A stretch of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// What it is.
    pub kind: PhaseKind,
    /// Its start, seconds since the start of the record.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
}

impl Phase {
    /// Seconds that it lasts.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to_s - self.from_s
    }

    /// The rows of it; rows ascend in time, and a long record has very many.
    pub(crate) fn rows<'a>(&self, live: &'a [Usage]) -> impl Iterator<Item = &'a Usage> {
        let before = |t_s: f64| live.partition_point(|row| row.t_s.is_none_or(|at_s| at_s <= t_s));
        let (from, to) = (before(self.from_s), before(self.to_s + 1e-9));
        live.get(from..to).unwrap_or_default().iter()
    }

    /// Bytes that it touched for the first time: by how much demand rose. `None` where it has no rows.
    pub(crate) fn first_touched(&self, live: &[Usage]) -> Option<f64> {
        let earlier = Self { from_s: f64::NEG_INFINITY, to_s: self.from_s, ..*self };
        let before = earlier.rows(live).filter_map(Usage::touched).fold(0.0, f64::max);
        Some(self.rows(live).filter_map(Usage::touched).reduce(f64::max)? - before)
    }
}

/// Share of the peak a second from which memory grows rather than drifts.
const GROWTH_PER_S: f64 = 0.01;
/// Share of the peak by which a stretch grows, however slowly, that is not steady.
const SLOW_GROWTH: f64 = 0.5;
/// Less than this between two ticks is no growth, however small the program is; bytes.
const LEAST_GROWTH: f64 = 256.0 * 1024.0;
/// Growth that rests for less than this goes on; seconds.
const REST_S: f64 = 3.0;
/// Growth that begins so soon is the start-up; seconds.
const BEGINS_S: f64 = 2.0;
/// So is growth before which the target held less than this share of its peak, if that took less than half of the run: it waited
/// for a disk, a lock or another program, and what it used meanwhile says nothing of its work.
const WAITED: f64 = 0.1;
/// A change of use is one by more than this factor.
const CHANGE: f64 = 1.5;
/// Readings searched for changes, at most.
const MOST_READINGS: usize = 600;
/// Readings before and after a change, at least.
const FEWEST_READINGS: usize = 3;
/// A change stands out from the scatter around it by so many standard errors.
const STANDS_OUT: f64 = 4.0;
/// More changes than these are how the program works all the time.
const MOST_CHANGES: usize = 4;
/// Bytes added before logarithms are taken, so that changes between next to nothing and nothing do not count.
const BASE: f64 = 1_048_576.0;

/// The phases of a run, ascending and without gaps; none where its memory was never counted. `rows` begin with the baseline
/// from before the start. Of a target that was `attached` to, the start was not recorded.
#[must_use]
pub fn phases(rows: &[Usage], attached: bool) -> Vec<Phase> {
    let mut high: Vec<(f64, f64)> = if attached { Vec::new() } else { vec![(0.0, 0.0)] };
    for row in rows.get(1..).unwrap_or_default() {
        let Some((t_s, bytes)) = row.t_s.zip(row.touched()) else { continue };
        let before = high.last().copied();
        if before.is_none_or(|(at_s, _)| t_s > at_s) {
            high.push((t_s, before.map_or(bytes, |(_, most)| most.max(bytes))));
        }
    }
    let (Some((from_s, _)), Some((end_s, peak))) = (high.first().copied(), high.last().copied()) else {
        return Vec::new();
    };
    if high.len() < 2 {
        return Vec::new();
    }
    let at =
        |t_s: f64| high.partition_point(|(at_s, _)| *at_s <= t_s + 1e-9).checked_sub(1).map_or(0.0, |at| high[at].1);
    let mut phases: Vec<Phase> = Vec::new();
    let mut steady_from_s = from_s;
    for (from_s, to_s) in growths(&high, peak) {
        let waited = at(from_s) < WAITED * peak && from_s < end_s / 2.0;
        let starts = !attached && (waited || (phases.is_empty() && from_s <= BEGINS_S));
        let (kind, from_s) = if starts { (PhaseKind::StartUp, 0.0) } else { (PhaseKind::Growth, from_s) };
        if starts {
            phases.clear();
            steady_from_s = 0.0;
        }
        if from_s > steady_from_s {
            phases.push(Phase { kind: PhaseKind::Steady, from_s: steady_from_s, to_s: from_s });
        }
        phases.push(Phase { kind, from_s, to_s });
        steady_from_s = to_s;
    }
    if end_s > steady_from_s {
        phases.push(Phase { kind: PhaseKind::Steady, from_s: steady_from_s, to_s: end_s });
    }
    for phase in phases.iter_mut().filter(|phase| phase.kind == PhaseKind::Steady) {
        if at(phase.to_s) - at(phase.from_s) > SLOW_GROWTH * peak {
            phase.kind = PhaseKind::Growth;
        }
    }
    phases.into_iter().flat_map(|phase| by_use(&phase, rows)).collect()
}

/// Stretches in which the highest demand so far rises.
fn growths(high: &[(f64, f64)], peak: f64) -> Vec<(f64, f64)> {
    let mut found: Vec<(f64, f64)> = Vec::new();
    for pair in high.windows(2) {
        let ((from_s, before), (to_s, after)) = (pair[0], pair[1]);
        if after - before <= (GROWTH_PER_S * peak * (to_s - from_s)).max(LEAST_GROWTH) {
            continue;
        }
        match found.last_mut() {
            Some(last) if from_s - last.1 < REST_S => last.1 = to_s,
            _ => found.push((from_s, to_s)),
        }
    }
    found
}

/// A steady phase, cut where its use changes for good.
fn by_use(phase: &Phase, rows: &[Usage]) -> Vec<Phase> {
    if phase.kind != PhaseKind::Steady {
        return vec![*phase];
    }
    let within = |row: &&Usage| row.t_s.is_some_and(|t_s| t_s - 1.0 >= phase.from_s - 0.5 && t_s <= phase.to_s);
    let used = rows.iter().filter(within).filter_map(|row| Some((row.t_s?, row.working_set(1)?.bytes)));
    let readings: Vec<(f64, f64)> = used.map(|(t_s, bytes)| (t_s, (bytes.max(0.0) + BASE).ln())).collect();
    let mut cuts = Vec::new();
    changes(&thinned(&readings), &mut cuts);
    if cuts.is_empty() || cuts.len() > MOST_CHANGES {
        return vec![*phase];
    }
    cuts.sort_by(f64::total_cmp);
    let edges: Vec<f64> = [phase.from_s].into_iter().chain(cuts).chain([phase.to_s]).collect();
    edges.windows(2).map(|pair| Phase { from_s: pair[0], to_s: pair[1], ..*phase }).collect()
}

/// The means of neighbours, so that there are no more than [`MOST_READINGS`]: looking for changes takes the square of them.
fn thinned(readings: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = readings.len().div_ceil(MOST_READINGS).max(1);
    let mean = |chunk: &[(f64, f64)]| {
        let values: Vec<f64> = chunk.iter().map(|(_, value)| *value).collect();
        Some((chunk.last()?.0, stats::mean(&values)?))
    };
    readings.chunks(step).filter_map(mean).collect()
}

/// Where the level of these readings (time, logarithm) changes, by binary segmentation: the cut that leaves the least scatter
/// on both sides, if it stands out, and then both sides again (Scott and Knott, Biometrics 1974).
fn changes(readings: &[(f64, f64)], found: &mut Vec<f64>) {
    if found.len() > MOST_CHANGES {
        return;
    }
    let last = readings.len().saturating_sub(FEWEST_READINGS);
    let cut = (FEWEST_READINGS..=last).filter_map(|at| Some((at, stands_out(readings, at)?)));
    let Some((at, _)) = cut.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    // The reading at the cut is the first of the new level; it covers the second before it.
    found.push(readings[at - 1].0);
    changes(&readings[..at], found);
    changes(&readings[at..], found);
}

/// By how many standard errors the levels before and after a place differ; `None` where that is no change.
fn stands_out(readings: &[(f64, f64)], at: usize) -> Option<f64> {
    let side = |of: &[(f64, f64)]| {
        let values: Vec<f64> = of.iter().map(|(_, value)| *value).collect();
        Some((stats::mean(&values)?, stats::stdev(&values)?.powi(2) / float(values.len())))
    };
    let ((before, error), (after, other)) = (side(&readings[..at])?, side(&readings[at..])?);
    let difference = (after - before).abs();
    let errors = difference / (error + other).sqrt().max(1e-3);
    (difference > CHANGE.ln() && errors > STANDS_OUT).then_some(errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: f64 = 1_048_576.0;

    fn row(t_s: f64, demand: f64, used: Option<f64>) -> Usage {
        Usage { t_s: Some(t_s), demand_bytes: Some(demand), ws_1s_bytes: used, ..Usage::default() }
    }

    fn rows(seconds: u32, demand: impl Fn(f64) -> f64, used: impl Fn(f64) -> Option<f64>) -> Vec<Usage> {
        let at = |t_s: f64| row(t_s, demand(t_s) * MIB, used(t_s).map(|used| used * MIB));
        [row(0.0, 0.0, None)].into_iter().chain((1..=seconds).map(|t_s| at(f64::from(t_s)))).collect()
    }

    fn kinds(phases: &[Phase]) -> Vec<(PhaseKind, f64, f64)> {
        phases.iter().map(|phase| (phase.kind, phase.from_s, phase.to_s)).collect()
    }

    use PhaseKind::{Growth, StartUp, Steady};

    #[test]
    fn a_start_up_ends_where_growth_does() {
        let of = phases(&rows(30, |t_s| 100.0 * t_s.min(5.0), |_| None), false);
        assert_eq!(kinds(&of), [(StartUp, 0.0, 5.0), (Steady, 5.0, 30.0)]);
        let of = phases(&rows(20, |_| 1.5, |_| None), false);
        assert_eq!(kinds(&of), [(StartUp, 0.0, 1.0), (Steady, 1.0, 20.0)]);
    }

    #[test]
    fn what_waits_before_it_works_is_still_starting() {
        // An interpreter is there at once, and then reads its modules from a slow disk.
        let late = |t_s: f64| if t_s > 8.0 { 100.0 } else { 6.0 };
        assert_eq!(kinds(&phases(&rows(30, late, |_| None), false)), [(StartUp, 0.0, 9.0), (Steady, 9.0, 30.0)]);
        // A server that is idle for most of the time is at work then too.
        let of = phases(&rows(14, late, |_| None), false);
        assert_eq!(kinds(&of), [(StartUp, 0.0, 1.0), (Steady, 1.0, 8.0), (Growth, 8.0, 9.0), (Steady, 9.0, 14.0)]);
    }

    #[test]
    fn what_grows_to_its_end_is_never_steady() {
        let of = phases(&rows(40, |t_s| 8.0 * t_s, |_| None), false);
        assert_eq!(kinds(&of), [(StartUp, 0.0, 40.0)]);
        // However slowly.
        let of = phases(&rows(300, |t_s| 10.0 + t_s, |_| None), false);
        assert_eq!(kinds(&of), [(StartUp, 0.0, 1.0), (Growth, 1.0, 300.0)]);
        // A leak of a thousandth a second is a drift.
        let of = phases(&rows(40, |t_s| 500.0 + 0.5 * t_s, |_| None), false);
        assert_eq!(kinds(&of), [(StartUp, 0.0, 1.0), (Steady, 1.0, 40.0)]);
    }

    #[test]
    fn memory_that_doubles_at_the_end_is_growth() {
        let of = phases(&rows(40, |t_s| if t_s > 37.0 { 400.0 } else { 200.0 }, |_| None), false);
        assert_eq!(kinds(&of), [(StartUp, 0.0, 1.0), (Steady, 1.0, 37.0), (Growth, 37.0, 38.0), (Steady, 38.0, 40.0)]);
    }

    #[test]
    fn memory_given_back_and_taken_again_is_steady() {
        let saw = |t_s: f64| if t_s % 4.0 < 2.0 { 100.0 } else { 300.0 };
        let of = phases(&rows(40, saw, |_| None), false);
        assert_eq!(kinds(&of), [(StartUp, 0.0, 2.0), (Steady, 2.0, 40.0)]);
    }

    #[test]
    fn a_target_that_ran_before_has_no_start_up() {
        let of = phases(&rows(20, |_| 300.0, |_| None), true);
        assert_eq!(kinds(&of), [(Steady, 1.0, 20.0)]);
        assert_eq!(phases(&[], false), []);
        assert_eq!(phases(&rows(1, |_| 5.0, |_| None), true), []);
    }

    #[test]
    fn steady_use_that_changes_for_good_is_cut() {
        let used = |t_s: f64| Some(if t_s <= 60.0 { 50.0 } else { 120.0 } + (t_s * 7.0) % 5.0);
        let of = phases(&rows(100, |_| 500.0, used), false);
        assert_eq!(kinds(&of), [(StartUp, 0.0, 1.0), (Steady, 1.0, 60.0), (Steady, 60.0, 100.0)]);
        let bursts = |t_s: f64| Some(if (t_s / 7.0) % 2.0 < 1.0 { 50.0 } else { 200.0 });
        assert_eq!(phases(&rows(200, |_| 500.0, bursts), false).len(), 2, "bursts all along are one phase");
        let noise = |t_s: f64| Some(100.0 + 30.0 * (t_s * 12.9898).sin());
        assert_eq!(phases(&rows(200, |_| 500.0, noise), false).len(), 2);
    }

    proptest! {
        #[test]
        fn phases_follow_each_other_without_gaps(
            demands in prop::collection::vec((0.0f64..1e9, prop::option::of(0.0f64..1e9)), 2..80), attached: bool,
        ) {
            let all: Vec<Usage> = (0u32..).zip(&demands).map(|(t_s, (demand, used))| row(f64::from(t_s), *demand, *used)).collect();
            let of = phases(&all, attached);
            for pair in of.windows(2) {
                prop_assert_eq!(pair[0].to_s.to_bits(), pair[1].from_s.to_bits());
            }
            prop_assert!(of.iter().all(|phase| phase.to_s > phase.from_s));
            if let Some(last) = of.last() {
                prop_assert_eq!(last.to_s, all.last().unwrap().t_s.unwrap());
            }
        }
    }
}
