//! The idle age beyond which memory goes, found for each target and side from what would come back.
//!
//! Time is cut into slices. For each, histograms tell how much would have come back for every age (Denning: the slope of
//! the working set over its window), and so the youngest age that would have cost no more than is allowed. What did come
//! back corrects it. The age in use is a percentile of those of past slices, and no younger than the last one's
//! (Lagar-Cavilla et al., ASPLOS'19).
//!
//! Memory that is new within a window is in its working set without having been used again, so it is left out. Working
//! sets are concave in their window where the use is steady; where a look says otherwise, the use comes in bursts that
//! this slice has not seen the whole of, and the concave envelope stands for them.

use std::collections::VecDeque;

use lowtide_model::cohort::used_within;
use lowtide_model::curve::{SIDES, rate_of_return};
use lowtide_model::{AGE_EDGES_S, PAGE};

use serde::{Deserialize, Deserializer, Serialize};

use crate::machine::Target;
use crate::saved::{Kept, ROUNDED_S, moved};

/// How ages are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Terms {
    /// Seconds of a slice.
    pub slice_s: f64,
    /// Seconds for which slices are remembered.
    pub history_s: f64,
    /// Share of them that the age must have done for.
    pub percentile: f64,
    /// Seconds that are watched first, and not remembered.
    pub warm_up_s: f64,
}

/// What is allowed to come back, in bytes a second, given the bytes in use.
pub(super) type Allowed<'a> = &'a dyn Fn(usize, f64) -> f64;

/// Windows, in seconds: the upper edges of histograms.
const WINDOWS: usize = AGE_EDGES_S.len() - 1;
/// A slice that nobody told anything of for so many times its length is begun anew, and a window that nobody told of for so
/// long is not known any more.
const LONGEST: f64 = 20.0;
/// Sizes are kept so often, seconds, for as long as the longest window.
const SIZES_S: f64 = 5.0;

/// By how much the working set of a window is larger than that of the next shorter one that was told in the same look. Looks
/// have errors of their own, so levels of different looks must not be compared.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Step {
    /// Which that is: its place and one; 0 = none.
    over: usize,
    sum: f64,
    times: u32,
}

/// The slice under way.
#[derive(Debug, Clone, Default)]
struct Slice {
    from_s: f64,
    /// By window.
    steps: [[Step; WINDOWS]; SIDES],
    /// Pages that came back.
    back: [f64; SIDES],
}

/// What is remembered of one target.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Threshold {
    /// When it was first seen.
    from_s: Option<f64>,
    #[serde(skip)]
    slice: Option<Slice>,
    /// When, and what there was in all that did not come back.
    #[serde(skip)]
    sizes: VecDeque<(f64, [f64; SIDES])>,
    /// Bytes of files that came back so far.
    #[serde(skip)]
    back: f64,
    /// When each window was told of last, and its step.
    steps: [[Option<(f64, Step)>; WINDOWS]; SIDES],
    /// What would have done in past slices, and when these ended; infinite where nothing would.
    #[serde(deserialize_with = "past_ages")]
    best_s: VecDeque<(f64, [f64; SIDES])>,
    /// In use; infinite = nothing goes.
    #[serde(deserialize_with = "ages")]
    age_s: Option<[f64; SIDES]>,
}

/// Ages as they stand in a file, where infinity is null.
type Written = [Option<f64>; SIDES];

fn read(ages_s: Written) -> [f64; SIDES] {
    ages_s.map(|age_s| age_s.unwrap_or(f64::INFINITY))
}

fn ages<'de, D: Deserializer<'de>>(file: D) -> Result<Option<[f64; SIDES]>, D::Error> {
    Ok(Option::<Written>::deserialize(file)?.map(read))
}

fn past_ages<'de, D: Deserializer<'de>>(file: D) -> Result<VecDeque<(f64, [f64; SIDES])>, D::Error> {
    let ages = Vec::<(f64, Written)>::deserialize(file)?;
    Ok(ages.into_iter().map(|(at_s, ages_s)| (at_s, read(ages_s))).collect())
}

/// The slice under way is begun anew, and so are the sizes: how the target grew meanwhile nobody saw.
impl Kept for Threshold {
    fn shift(&mut self, by_s: f64) {
        self.from_s = self.from_s.map(|from_s| moved(from_s, by_s));
        for (told_s, _) in self.steps.iter_mut().flatten().flatten() {
            *told_s = moved(*told_s, by_s);
        }
        for (at_s, _) in &mut self.best_s {
            *at_s = moved(*at_s, by_s);
        }
    }

    fn resume(&mut self, now_s: f64) -> bool {
        let past = |at_s: f64| at_s <= now_s + ROUNDED_S;
        let window = |age_s: &f64| AGE_EDGES_S[1..].iter().any(|edge| f64::from(*edge).total_cmp(age_s).is_eq());
        let ages = |ages_s: &[f64; SIDES]| ages_s.iter().all(|age_s| age_s.is_infinite() || window(age_s));
        let shorter = |(at, (told_s, step)): (usize, &(f64, Step))| {
            past(*told_s) && step.over <= at && step.times > 0 && step.sum >= 0.0
        };
        let known = |steps: &[Option<(f64, Step)>; WINDOWS]| {
            steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.as_ref()?))).all(shorter)
        };
        self.from_s.is_none_or(past)
            && self.steps.iter().all(known)
            && self.best_s.iter().all(|(at_s, ages_s)| past(*at_s) && ages(ages_s))
            && self.age_s.as_ref().is_none_or(ages)
    }
}

impl Threshold {
    /// Takes in a look at the target; ages that are in use from now on.
    pub(super) fn see(&mut self, terms: &Terms, target: &Target, now_s: f64, allowed: Allowed) -> [Option<f64>; SIDES] {
        let from_s = *self.from_s.get_or_insert(now_s);
        let usable = |slice: &Slice| (0.0..LONGEST * terms.slice_s).contains(&(now_s - slice.from_s));
        let begun = || Slice { from_s: now_s, ..Slice::default() };
        let mut slice = self.slice.take().filter(usable).unwrap_or_else(begun);
        self.note_size(target, now_s);
        self.add(&mut slice, target, now_s);
        // Generations tell of idle ages once in half a minute or so: until then the slice goes on.
        if now_s - slice.from_s >= terms.slice_s - 0.05 && slice.is_told() {
            // A clock that was set back is past the warm-up.
            if now_s - from_s > terms.warm_up_s + 0.05 || slice.from_s < from_s {
                self.close(&slice, terms, now_s, allowed);
            }
            slice = begun();
        }
        self.slice = Some(slice);
        self.age_s.unwrap_or([f64::INFINITY; SIDES]).map(|age_s| age_s.is_finite().then_some(age_s))
    }

    fn note_size(&mut self, target: &Target, now_s: f64) {
        // Files that come back are in memory again, and not new; what is paged out is still there.
        self.back += target.refaults[1] * page();
        let longest_s = f64::from(AGE_EDGES_S[WINDOWS]) + SIZES_S;
        // A clock that jumped makes all of them worthless.
        self.sizes.retain(|(at_s, _)| (0.0..=longest_s).contains(&(now_s - at_s)));
        if self.sizes.back().is_none_or(|(at_s, _)| now_s - at_s >= SIZES_S - 0.05) {
            self.sizes.push_back((now_s, self.size(target)));
        }
    }

    fn size(&self, target: &Target) -> [f64; SIDES] {
        [target.resident[0] + target.swapped, target.resident[1] - self.back]
    }

    /// Adds a look. What is not told of ages says nothing of them.
    fn add(&self, slice: &mut Slice, target: &Target, now_s: f64) {
        let size = self.size(target);
        let watched_s = self.from_s.map_or(0.0, |from_s| now_s - from_s);
        for (side, size_now) in size.into_iter().enumerate() {
            slice.back[side] += target.refaults[side];
            let bins = || target.ages.iter().filter(|bin| bin.anon == (side == 0));
            let mut reached = (0, 0.0);
            for (at, step) in slice.steps[side].iter_mut().enumerate() {
                let window_s = f64::from(AGE_EDGES_S[at + 1]);
                // What was there at the first look may have been new then.
                let known = used_within(bins(), window_s).filter(|_| window_s <= watched_s + 0.05);
                if let Some(used) = known {
                    let before = self.sizes.iter().rev().find(|(at_s, _)| now_s - at_s >= window_s - 0.05);
                    let before = before.or(self.sizes.front()).map_or(size_now, |(_, size)| size[side]);
                    let new = (size_now - before).max(0.0);
                    let used = f64::max(used - new, reached.1);
                    if step.over != reached.0 {
                        *step = Step { over: reached.0, ..Step::default() };
                    }
                    (step.sum, step.times) = (step.sum + used - reached.1, step.times + 1);
                    reached = (at + 1, used);
                }
            }
        }
    }

    fn close(&mut self, slice: &Slice, terms: &Terms, now_s: f64, allowed: Allowed) {
        let elapsed_s = now_s - slice.from_s;
        let mut best_s = [f64::INFINITY; SIDES];
        for (side, best) in best_s.iter_mut().enumerate() {
            for (known, step) in self.steps[side].iter_mut().zip(slice.steps[side]) {
                if step.times > 0 {
                    *known = Some((now_s, step));
                }
                *known = known.filter(|(told_s, _)| (0.0..LONGEST * terms.slice_s).contains(&(now_s - told_s)));
            }
            let sets = envelope(&sets(&self.steps[side]));
            let used = sets.last().map_or(0.0, |(_, used)| *used);
            let does = |at: &usize| rate_of_return(&sets, *at).at <= allowed(side, used);
            *best = (0..sets.len()).find(does).map_or(f64::INFINITY, |at| sets[at].0);
            if slice.back[side] * page() / elapsed_s > allowed(side, used) {
                // Whatever the histograms say, the age in use did not do.
                *best = best.max(self.age_s.map_or(0.0, |age_s| older_than(age_s[side])));
            }
        }
        self.best_s.push_back((now_s, best_s));
        self.best_s.retain(|(at_s, _)| (0.0..=terms.history_s).contains(&(now_s - at_s)));
        let past = |side: usize| percentile(self.best_s.iter().map(|(_, best_s)| best_s[side]), terms.percentile);
        self.age_s = Some([0, 1].map(|side| past(side).max(best_s[side])));
    }
}

impl Slice {
    fn is_told(&self) -> bool {
        self.steps.iter().flatten().any(|step| step.times > 0)
    }
}

/// Working sets by window, those that are known.
fn sets(steps: &[Option<(f64, Step)>; WINDOWS]) -> Vec<(f64, f64)> {
    let mut levels = [Some(0.0); WINDOWS + 1];
    for (at, step) in steps.iter().enumerate() {
        levels[at + 1] = step.and_then(|(_, step)| Some(levels[step.over]? + step.sum / f64::from(step.times)));
    }
    let windows = AGE_EDGES_S[1..].iter().map(|window| f64::from(*window));
    windows.zip(&levels[1..]).filter_map(|(window, level)| Some((window, (*level)?))).collect()
}

/// The same, raised where they are not concave.
fn envelope(known: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let slope = |from: (f64, f64), to: (f64, f64)| (to.1 - from.1) / (to.0 - from.0);
    let mut corners = vec![(0.0, 0.0)];
    for point in known {
        while let [.., before, last] = corners[..]
            && slope(before, last) <= slope(last, *point)
        {
            corners.pop();
        }
        corners.push(*point);
    }
    let raised = |(window, used): &(f64, f64)| {
        let at = corners.partition_point(|corner| corner.0 < *window);
        let (from, to) = (corners[at - 1], corners[at]);
        (*window, used.max(from.1 + slope(from, to) * (window - from.0)))
    };
    let mut least = 0.0f64;
    // A longer window holds no less.
    known
        .iter()
        .map(raised)
        .map(|(window, used)| {
            (window, {
                least = least.max(used);
                least
            })
        })
        .collect()
}

/// The next age.
fn older_than(age_s: f64) -> f64 {
    AGE_EDGES_S.iter().map(|edge| f64::from(*edge)).find(|edge| *edge > age_s).unwrap_or(f64::INFINITY)
}

/// The value that so large a share lies at or below.
fn percentile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place")]
    let at = ((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(f64::INFINITY)
}

#[expect(clippy::cast_precision_loss, reason = "4096")]
fn page() -> f64 {
    PAGE as f64
}

/// Bytes of a side that have been idle for at least so long.
pub(super) fn colder(target: &Target, side: usize, age_s: Option<f64>) -> f64 {
    let bins = target.ages.iter().filter(|bin| bin.anon == (side == 0));
    age_s.map_or(0.0, |age_s| bins.filter(|bin| bin.min_s >= age_s).map(|bin| bin.size.bytes).sum())
}
