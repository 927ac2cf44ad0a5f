//! The curve from histograms alone.

use super::{Band, Basis, Curve, Point, SIDES, mean_total, totals};
use crate::cohort::AgeRow;
use crate::stats;

/// Fewer ticks at which an age is known say nothing.
const FEWEST_TICKS: usize = 2;

/// The working set of one window over the ticks at which it was measured.
struct Edge {
    age_s: f64,
    cold: [f64; SIDES],
    half: [f64; SIDES],
    used: [f64; SIDES],
    /// The same without what was new in the window: that did not come back.
    known_before: [f64; SIDES],
    peak: f64,
}

/// The curve; `None` where fewer than two ages are known.
pub(super) fn curve(ages: &[AgeRow]) -> Option<Curve> {
    let mut edges: Vec<f64> = ages.iter().filter_map(|row| row.bin.max_s).collect();
    edges.sort_by(f64::total_cmp);
    edges.dedup();
    let all = totals(ages);
    let mut known: Vec<Edge> = edges.iter().filter_map(|age_s| edge(ages, &all, *age_s)).collect();
    // Windows are measured at different times, so their means may cross where the use changed in between.
    for at in 1..known.len() {
        for side in 0..SIDES {
            known[at].used[side] = known[at].used[side].max(known[at - 1].used[side]);
            known[at].known_before[side] = known[at].known_before[side].max(known[at - 1].known_before[side]);
            known[at].cold[side] = known[at].cold[side].min(known[at - 1].cold[side]);
        }
        known[at].peak = known[at].peak.max(known[at - 1].peak);
    }
    if known.len() < 2 {
        return None;
    }
    let points = (0..known.len()).map(|at| point(&known, at)).collect();
    Some(Curve { basis: Basis::Histograms, total: [mean_total(&all, 0), mean_total(&all, 1)], points })
}

/// Sizes at the last tick that is not after a time; `None` before the first.
fn at(totals: &[(f64, [f64; SIDES])], t_s: f64) -> Option<[f64; SIDES]> {
    let after = totals.partition_point(|(at_s, _)| *at_s <= t_s + 1e-6);
    Some(totals[after.checked_sub(1)?].1)
}

fn edge(ages: &[AgeRow], totals: &[(f64, [f64; SIDES])], age_s: f64) -> Option<Edge> {
    let (mut cold, mut half, mut used) = ([vec![], vec![]], [vec![], vec![]], [vec![], vec![]]);
    let mut known_before = [vec![], vec![]];
    let mut peak: f64 = 0.0;
    for tick in ages.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits()) {
        let ends_here = |anon: bool| tick.iter().find(|row| row.bin.anon == anon && row.bin.max_s == Some(age_s));
        let (Some(anon), Some(file)) = (ends_here(true), ends_here(false)) else { continue };
        let mut kept = 0.0;
        // What it grew by is new. What was there before the first tick nobody knows.
        let before = at(totals, tick[0].t_s - age_s).zip(at(totals, tick[0].t_s));
        for (side, end) in [anon, file].into_iter().enumerate() {
            let sum = |is: &dyn Fn(&AgeRow) -> bool| -> f64 {
                tick.iter().filter(|row| row.bin.anon == (side == 0) && is(row)).map(|row| row.bin.size.bytes).sum()
            };
            let within = sum(&|row| row.bin.max_s.is_some_and(|max_s| max_s <= age_s));
            kept += within;
            used[side].push(within);
            if let Some((before, now)) = before {
                known_before[side].push((within - (now[side] - before[side]).max(0.0)).max(0.0));
            }
            cold[side].push(sum(&|row| row.bin.min_s >= age_s));
            half[side].push(end.bin.size.ci95);
        }
        peak = peak.max(kept);
    }
    let mean = |values: &[Vec<f64>; SIDES]| [0, 1].map(|side| stats::mean(&values[side]).unwrap_or(0.0));
    let known_before = if known_before[0].len() >= FEWEST_TICKS { &known_before } else { &used };
    (used[0].len() >= FEWEST_TICKS).then(|| Edge {
        age_s,
        known_before: mean(known_before),
        cold: mean(&cold),
        half: mean(&half),
        used: mean(&used),
        peak,
    })
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
    // Which of the two is steeper is the run's affair, where its use changed between the looks.
    Band { at: (before * after).sqrt(), low: before.min(after), high: before.max(after) }
}

fn point(known: &[Edge], at: usize) -> Point {
    let edge = &known[at];
    let sets =
        |side: usize| -> Vec<(f64, f64)> { known.iter().map(|edge| (edge.age_s, edge.known_before[side])).collect() };
    Point {
        age_s: edge.age_s,
        cold: [0, 1].map(|side| Band::around(edge.cold[side], edge.half[side])),
        back: [0, 1].map(|side| rate_of_return(&sets(side), at)),
        kept: edge.used.iter().sum(),
        kept_peak: edge.peak,
    }
}
