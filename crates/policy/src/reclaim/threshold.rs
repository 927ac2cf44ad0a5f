//! The idle age beyond which memory goes, found for each target and side from what would come back.
//!
//! Time is cut into slices. For each, histograms tell how much would have come back for every age, and so the youngest
//! age that would have cost no more than is allowed. What did come back corrects it. The age in use is a percentile of
//! those of past slices, and no younger than the last one's (Lagar-Cavilla et al., ASPLOS'19).
//!
//! There are two ways to tell what would have come back, and the lower counts, as each overstates where the other does
//! not. The slope of the working set over its window (Denning) takes memory that only grows old for memory that is used
//! again; what was idle for T at one time and not for T + d when d had passed, is off by the error of both looks, and
//! takes memory that was freed for memory that was used.

use std::collections::VecDeque;

use lowtide_model::curve::{SIDES, rate_of_return};
use lowtide_model::{AGE_EDGES_S, PAGE};

use crate::machine::Target;

/// How ages are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Terms {
    /// Seconds of a slice.
    pub slice_s: f64,
    /// Slices that are remembered.
    pub history: usize,
    /// Share of them that the age must have done for.
    pub percentile: f64,
    /// Seconds that are watched first, and not remembered.
    pub warm_up_s: f64,
}

/// What is allowed to come back, in bytes a second, given the bytes in use.
pub(super) type Allowed<'a> = &'a dyn Fn(usize, f64) -> f64;

/// Of each side, by edge.
type Edges = [[Option<f64>; AGE_EDGES_S.len()]; SIDES];
type Sums = [[(f64, u32); AGE_EDGES_S.len()]; SIDES];

/// Seconds between two looks that are kept, and how many are: those between the last two edges, and one.
const LOOK_S: f64 = 5.0;
const LOOKS: usize = 13;

/// A slice that nobody told anything of for so many times its length is begun anew.
const LONGEST: f64 = 20.0;

/// What was idle for how long at one time.
#[derive(Debug, Clone, Copy)]
struct Look {
    at_s: f64,
    cold: Edges,
    swapped: f64,
    /// Bytes of anonymous memory that came back until then.
    back: f64,
}

/// The slice under way.
#[derive(Debug, Clone, Default)]
struct Slice {
    from_s: f64,
    /// Working sets by edge, and bytes a second that were idle for an edge and used before the next: sums, and of how many.
    used: Sums,
    woke: Sums,
    /// Pages that came back.
    back: [f64; SIDES],
    /// Bytes in memory and paged out when it began.
    total: [f64; SIDES],
}

/// What is remembered of one target.
#[derive(Debug, Clone, Default)]
pub struct Threshold {
    from_s: Option<f64>,
    slice: Option<Slice>,
    looks: VecDeque<Look>,
    /// Bytes of anonymous memory that came back so far.
    back: f64,
    /// What would have done in past slices; infinite where nothing would.
    best_s: [VecDeque<f64>; SIDES],
    /// In use; infinite = nothing goes.
    age_s: Option<[f64; SIDES]>,
}

impl Threshold {
    /// Takes in a look at the target; ages that are in use from now on.
    pub(super) fn see(&mut self, terms: &Terms, target: &Target, now_s: f64, allowed: Allowed) -> [Option<f64>; SIDES] {
        let usable = |slice: &Slice| (0.0..LONGEST * terms.slice_s).contains(&(now_s - slice.from_s));
        let mut slice = self.slice.take().filter(usable).unwrap_or_else(|| Slice::new(target, now_s));
        slice.add(target);
        self.look(&mut slice, target, now_s);
        let from_s = *self.from_s.get_or_insert(now_s);
        // Generations tell of idle ages once in half a minute or so: until then the slice goes on.
        if now_s - slice.from_s >= terms.slice_s - 0.05 && slice.is_told() {
            // A clock that was set back is past it.
            if now_s - from_s > terms.warm_up_s + 0.05 || slice.from_s < from_s {
                self.close(&slice, terms, target, now_s, allowed);
            }
            slice = Slice::new(target, now_s);
        }
        self.slice = Some(slice);
        self.age_s.unwrap_or([f64::INFINITY; SIDES]).map(|age_s| age_s.is_finite().then_some(age_s))
    }

    /// Holds what is idle now against what was idle before.
    fn look(&mut self, slice: &mut Slice, target: &Target, now_s: f64) {
        self.back += target.refaults[0] * page();
        // A clock that jumped makes all looks worthless.
        self.looks.retain(|look| (0.0..=LOOK_S * cast(LOOKS)).contains(&(now_s - look.at_s)));
        if self.looks.back().is_some_and(|look| now_s - look.at_s < LOOK_S - 0.05) {
            return;
        }
        let now = Look { at_s: now_s, cold: cold(target), swapped: target.swapped, back: self.back };
        for side in 0..SIDES {
            for (at, pair) in AGE_EDGES_S.windows(2).enumerate() {
                let apart_s = f64::from(pair[1] - pair[0]);
                let before = self.looks.iter().find(|look| (now_s - look.at_s - apart_s).abs() < 0.2 * apart_s);
                let known = before.and_then(|before| Some((before, before.cold[side][at]?, now.cold[side][at + 1]?)));
                let Some((before, old, still)) = known else { continue };
                // What was evicted meanwhile was not used.
                let evicted = if side == 0 { now.swapped - before.swapped + now.back - before.back } else { 0.0 };
                let sums = &mut slice.woke[side][at];
                *sums = (sums.0 + (old - still - evicted.max(0.0)) / apart_s, sums.1 + 1);
            }
        }
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(now);
    }

    fn close(&mut self, slice: &Slice, terms: &Terms, target: &Target, now_s: f64, allowed: Allowed) {
        let totals = totals(target);
        let mut ages_s = [f64::INFINITY; SIDES];
        for side in 0..SIDES {
            let elapsed_s = now_s - slice.from_s;
            let grown = ((totals[side] - slice.total[side]) / elapsed_s).max(0.0);
            let mut best_s = slice.best(side, grown, allowed);
            let used = slice.sets(side).last().map_or(0.0, |(_, used)| *used);
            let back = slice.back[side] * page() / elapsed_s;
            if back > allowed(side, used) {
                // Whatever the histograms say, the age in use did not do.
                best_s = best_s.max(self.age_s.map_or(0.0, |age_s| older_than(age_s[side])));
            }
            let past = &mut self.best_s[side];
            past.push_back(best_s);
            if past.len() > terms.history {
                past.pop_front();
            }
            ages_s[side] = percentile(past, terms.percentile).max(best_s);
        }
        self.age_s = Some(ages_s);
    }
}

impl Slice {
    fn new(target: &Target, now_s: f64) -> Self {
        Self { from_s: now_s, total: totals(target), ..Self::default() }
    }

    fn add(&mut self, target: &Target) {
        for side in 0..SIDES {
            self.back[side] += target.refaults[side];
            let bins = || target.ages.iter().filter(|bin| bin.anon == (side == 0));
            for (sums, edge) in self.used[side].iter_mut().zip(AGE_EDGES_S) {
                let edge = f64::from(edge);
                // A window that no bin ends with was not measured.
                if bins().any(|bin| bin.max_s == Some(edge)) {
                    let within = bins().filter(|bin| bin.max_s.is_some_and(|max_s| max_s <= edge));
                    sums.0 += within.map(|bin| bin.size.bytes).sum::<f64>();
                    sums.1 += 1;
                }
            }
        }
    }

    fn is_told(&self) -> bool {
        self.used.iter().flatten().any(|(_, times)| *times > 0)
    }

    /// Mean working sets by window; they grow with it.
    fn sets(&self, side: usize) -> Vec<(f64, f64)> {
        let mut least = 0.0f64;
        let known = self.used[side].iter().zip(AGE_EDGES_S).filter(|((_, times), _)| *times > 0);
        known
            .map(|((sum, times), edge)| {
                least = least.max(sum / f64::from(*times));
                (f64::from(edge), least)
            })
            .collect()
    }

    /// The youngest age that would have cost no more than is allowed. Memory that is new comes for the first time.
    fn best(&self, side: usize, grown: f64, allowed: Allowed) -> f64 {
        let sets = self.sets(side);
        let used = sets.last().map_or(0.0, |(_, used)| *used);
        let does = |at: &usize| {
            let slope = rate_of_return(&sets, *at).at - grown;
            let edge = AGE_EDGES_S.iter().position(|edge| f64::from(*edge).total_cmp(&sets[*at].0).is_eq());
            let woke = edge.map(|edge| self.woke[side][edge]).filter(|(_, times)| *times > 0);
            woke.map_or(slope, |(sum, times)| slope.min(sum / f64::from(times))) <= allowed(side, used)
        };
        (0..sets.len()).find(does).map_or(f64::INFINITY, |at| sets[at].0)
    }
}

/// Bytes of the target wherever they are.
fn totals(target: &Target) -> [f64; SIDES] {
    [target.resident[0] + target.swapped, target.resident[1]]
}

/// The next age.
fn older_than(age_s: f64) -> f64 {
    AGE_EDGES_S.iter().map(|edge| f64::from(*edge)).find(|edge| *edge > age_s).unwrap_or(f64::INFINITY)
}

/// The value that so large a share lies at or below.
fn percentile(values: &VecDeque<f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
    let at = ((share * cast(sorted.len())).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(f64::INFINITY)
}

#[expect(clippy::cast_precision_loss, reason = "4096")]
fn page() -> f64 {
    PAGE as f64
}

#[expect(clippy::cast_precision_loss, reason = "a small count")]
fn cast(count: usize) -> f64 {
    count as f64
}

/// Bytes idle for at least as long as each edge, where that was measured.
fn cold(target: &Target) -> Edges {
    [0, 1].map(|side| {
        AGE_EDGES_S.map(|edge| {
            let edge = f64::from(edge);
            let mut bins = target.ages.iter().filter(|bin| bin.anon == (side == 0));
            bins.any(|bin| bin.min_s.total_cmp(&edge).is_eq()).then(|| colder(target, side, Some(edge)))
        })
    })
}

/// Bytes of a side that have been idle for at least so long.
pub(super) fn colder(target: &Target, side: usize, age_s: Option<f64>) -> f64 {
    let bins = target.ages.iter().filter(|bin| bin.anon == (side == 0));
    age_s.map_or(0.0, |age_s| bins.filter(|bin| bin.min_s >= age_s).map(|bin| bin.size.bytes).sum())
}
