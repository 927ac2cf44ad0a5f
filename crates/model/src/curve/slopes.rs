//! The curve from histograms alone: the rate of misses is the slope of the working set over its window (Denning and
//! Schwartz, CACM 1972), taken within cycles of windows that were read together.

use super::{Band, Basis, Curve, Point, mean, totals};
use crate::cohort::AgeRow;
use crate::kind::{Kind, PerKind};

/// Fewer cycles in which a window was read say nothing of it.
const FEWEST_CYCLES: usize = 2;
/// The same of cycles that report first touches themselves.
const FEWEST_NESTED: usize = 1;
/// Readings are made a little early or late, and ages are known to a tick; seconds.
const JITTER_S: f64 = 1.0;
/// Clears are made at ticks, and so do phases begin at ticks; seconds.
const CLEAR_JITTER_S: f64 = 0.1;

/// One window of one cycle: used within it, of that used before, and the half-width of its interval.
#[derive(Debug, Clone, Copy)]
struct Reading {
    age_s: f64,
    used: PerKind<f64>,
    /// Without what was touched for the first time: that did not come back.
    reused: PerKind<f64>,
    half: PerKind<f64>,
}

/// Nested windows that were read together: a histogram of one moment, or readings after one clear of the accessed bits.
struct Cycle {
    total: PerKind<f64>,
    /// By ascending window.
    readings: Vec<Reading>,
    /// Whether it reports first touches itself.
    nested: bool,
}

/// A window over all cycles.
struct Edge {
    age_s: f64,
    used: PerKind<f64>,
    reused: PerKind<f64>,
    half: PerKind<f64>,
    peak: f64,
}

/// The curve of what was read within these stretches of the run (from, to; seconds); `None` where fewer than two ages are
/// known.
///
/// Use changes from one cycle to the next, so windows are never compared across cycles: what a longer window holds beyond a
/// shorter one is the mean over the cycles that read both.
pub(super) fn curve(ages: &[AgeRow], spans: &[(f64, f64)]) -> Option<Curve> {
    let all = totals(ages);
    let ticks = ages.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits());
    let cycles: Vec<Cycle> = ticks.filter_map(|tick| cycle(tick, &all, spans)).collect();
    let known = edges(&cycles);
    if known.len() < 2 {
        return None;
    }
    let total = mean(cycles.iter().map(|of| of.total));
    let points = (0..known.len()).map(|at| point(&known, total, at)).collect();
    Some(Curve { basis: Basis::Histograms, total, points })
}

/// Bytes held at the last tick that is not after a time; `None` before the first.
fn at(totals: &[(f64, PerKind<f64>)], t_s: f64) -> Option<PerKind<f64>> {
    let after = totals.partition_point(|(at_s, _)| *at_s <= t_s + 1e-6);
    Some(totals[after.checked_sub(1)?].1)
}

/// What a tick's histogram says of the windows that lie within one of these stretches; `None` where it lies in none.
fn cycle(tick: &[AgeRow], totals: &[(f64, PerKind<f64>)], spans: &[(f64, f64)]) -> Option<Cycle> {
    let t_s = tick.first()?.t_s;
    let (from_s, _) = spans.iter().find(|(from_s, to_s)| (from_s - JITTER_S..=to_s + JITTER_S).contains(&t_s))?;
    let bins = |kind: Kind| tick.iter().map(|row| &row.bin).filter(move |bin| Kind::of(bin.anon) == kind);
    let mut ages: Vec<f64> = bins(Kind::Anon).filter_map(|bin| bin.max_s).collect();
    ages.sort_by(f64::total_cmp);
    ages.retain(|age_s| bins(Kind::File).any(|bin| bin.max_s == Some(*age_s)));
    let nested = tick.iter().any(|row| row.bin.first_touched.is_some());
    // Nested windows share their start, and so does the longest of them.
    let jitter_s = if nested { CLEAR_JITTER_S } else { JITTER_S };
    let reaches_back = |age_s: f64| t_s - age_s < from_s - jitter_s;
    if nested && ages.last().is_some_and(|longest_s| reaches_back(*longest_s)) {
        return None;
    }
    let now = at(totals, t_s)?;
    let reading = |age_s: f64| {
        // What it grew by is new. What was there before the first tick is not known.
        let before = if nested { Some(now) } else { at(totals, t_s - age_s) }?;
        let within = |kind| bins(kind).filter(|bin| bin.max_s.is_some_and(|max_s| max_s <= age_s));
        let used: PerKind<f64> = PerKind::from_fn(|kind| within(kind).map(|bin| bin.size.bytes).sum());
        let reused = PerKind::from_fn(|kind| {
            let first: f64 = within(kind).filter_map(|bin| bin.first_touched).sum();
            let grown = (now[kind] - before[kind]).max(0.0);
            (used[kind] - if nested { first } else { grown }).max(0.0)
        });
        let half =
            PerKind::from_fn(|kind| bins(kind).find(|bin| bin.max_s == Some(age_s)).map_or(0.0, |bin| bin.size.ci95));
        Some(Reading { age_s, used, reused, half })
    };
    let readings = ages.iter().filter(|age_s| !reaches_back(**age_s)).filter_map(|age_s| reading(*age_s)).collect();
    Some(Cycle { total: now, readings, nested })
}

impl Cycle {
    fn reading(&self, age_s: f64) -> Option<Reading> {
        self.readings.iter().find(|reading| reading.age_s.total_cmp(&age_s).is_eq()).copied()
    }

    /// The most that is known to have been used in any stretch no longer than this: what a window holds beyond a shorter one was
    /// used in the time between their ends.
    fn most_within(&self, age_s: f64) -> f64 {
        let sum = |reading: &Reading| reading.used.total();
        let between = |(at, longer): (usize, &Reading)| {
            let shorter = self.readings[..at].iter().filter(|shorter| longer.age_s - shorter.age_s <= age_s);
            shorter.map(|shorter| sum(longer) - sum(shorter)).fold(0.0, f64::max)
        };
        self.readings.iter().enumerate().map(between).fold(0.0, f64::max)
    }

    /// A window and the one before it, if there is one; `None` where either was not read.
    fn step(&self, shorter_s: Option<f64>, age_s: f64) -> Option<(Reading, Option<Reading>)> {
        let before = match shorter_s {
            None => None,
            Some(shorter_s) => Some(self.reading(shorter_s)?),
        };
        Some((self.reading(age_s)?, before))
    }
}

/// The windows that enough cycles read, each as its step over the one before. Windows that none of the longer ones was read
/// with are left out: a cycle of the start-up has short ones only, and a busy machine may have missed them later.
fn edges(cycles: &[Cycle]) -> Vec<Edge> {
    let mut ages: Vec<f64> = cycles.iter().flat_map(|cycle| &cycle.readings).map(|reading| reading.age_s).collect();
    ages.sort_by(f64::total_cmp);
    ages.dedup();
    let mut longest = Vec::new();
    for from in 0..ages.len() {
        let known = chain(cycles, &ages[from..]);
        if known.len() > longest.len() {
            longest = known;
        }
    }
    longest
}

/// The windows of these ages that enough cycles read, from the first on.
fn chain(cycles: &[Cycle], ages: &[f64]) -> Vec<Edge> {
    // Where cycles report first touches themselves, nothing has to be compared with other times.
    let fewest = if cycles.iter().all(|cycle| cycle.nested) { FEWEST_NESTED } else { FEWEST_CYCLES };
    let mut known: Vec<Edge> = Vec::new();
    for age_s in ages.iter().copied() {
        let shorter_s = known.last().map(|edge| edge.age_s);
        let steps: Vec<_> = cycles.iter().filter_map(|cycle| cycle.step(shorter_s, age_s)).collect();
        if steps.len() >= fewest {
            let stretches = cycles.iter().map(|cycle| cycle.most_within(age_s)).fold(0.0, f64::max);
            let edge = edge(known.last(), &steps);
            known.push(Edge { peak: edge.peak.max(stretches), ..edge });
        }
    }
    known
}

/// A window by its mean step over the one before.
fn edge(shorter: Option<&Edge>, steps: &[(Reading, Option<Reading>)]) -> Edge {
    let step = |get: fn(&Reading) -> PerKind<f64>| {
        mean(steps.iter().map(|(now, before)| {
            let before = before.as_ref().map(get).unwrap_or_default();
            get(now).zip(before).map(|(now, before)| (now - before).max(0.0))
        }))
    };
    let reached = |get: fn(&Edge) -> PerKind<f64>| shorter.map(get).unwrap_or_default();
    let peak = steps.iter().map(|(now, _)| now.used.total()).fold(0.0, f64::max);
    Edge {
        age_s: steps.first().map_or(0.0, |(now, _)| now.age_s),
        used: reached(|edge| edge.used) + step(|reading| reading.used),
        reused: reached(|edge| edge.reused) + step(|reading| reading.reused),
        half: mean(steps.iter().map(|(now, _)| now.half)),
        peak: shorter.map_or(peak, |edge| edge.peak.max(peak)),
    }
}

/// Bytes a second that come back after having been idle for the window at that place, from working sets (window in
/// seconds, bytes), both ascending.
///
/// The working set grows with its window the slower the longer that is, so the rate at an age lies between the slopes
/// before and after it. After the last age it may be anything down to nothing.
#[must_use]
pub fn rate_of_return(sets: &[(f64, f64)], at: usize) -> Band {
    let slope = |from: (f64, f64), to: (f64, f64)| (to.1 - from.1) / (to.0 - from.0);
    let steepness = |at: usize| match at.checked_sub(1) {
        Some(before) => slope(sets[before], sets[at]),
        None => sets[at].1 / sets[at].0,
    };
    let before = steepness(at);
    let Some(after) = sets.get(at + 1).map(|after| slope(sets[at], *after)) else {
        // It is taken to fall on as it fell before.
        let fall = if at > 0 { before / steepness(at - 1).max(before).max(1e-9) } else { 0.5 };
        return Band { at: before * fall.sqrt(), low: 0.0, high: before };
    };
    // Which of the two is steeper is not known, where its use changed between the readings.
    Band { at: (before * after).sqrt(), low: before.min(after), high: before.max(after) }
}

fn point(known: &[Edge], total: PerKind<f64>, at: usize) -> Point {
    let edge = &known[at];
    let sets = |kind: Kind| -> Vec<(f64, f64)> { known.iter().map(|edge| (edge.age_s, edge.reused[kind])).collect() };
    Point {
        age_s: edge.age_s,
        cold: PerKind::from_fn(|kind| Band::around((total[kind] - edge.used[kind]).max(0.0), edge.half[kind])),
        back: PerKind::from_fn(|kind| rate_of_return(&sets(kind), at)),
        kept: edge.used.total(),
        kept_peak: edge.peak,
    }
}

#[cfg(test)]
mod tests;
