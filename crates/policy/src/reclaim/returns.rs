//! What would be refaulted for every idle age, slice by slice (Denning: the slope of the working set over its window).
//!
//! Memory that is new within a window is in its working set without having been used again, so it is left out. Working
//! sets are concave in their window where the use is steady; where a reading says otherwise, the use comes in bursts that
//! this slice has not observed entirely, and the concave envelope stands for them.

use std::collections::VecDeque;

use lowtide_model::cohort::used_within;
use lowtide_model::curve::rate_of_return;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::{AGE_EDGES_S, PAGE_BYTES};

use serde::{Deserialize, Serialize};

use crate::machine::WorkloadState;
use crate::saved::{Resume, is_past};

/// Windows, in seconds: the upper edges of histograms.
pub const WINDOWS: usize = AGE_EDGES_S.len() - 1;
/// A slice without readings for so many times its length, and no less than so many seconds, is begun again, and a window without
/// readings for so long is not known any more.
const LONGEST: f64 = 20.0;
const LONGEST_S: f64 = 200.0;
/// A window may have begun so long before the first reading, seconds: a monitor clears bits, and then the agent observes.
const LATE_S: f64 = 0.5;
/// Sizes are kept so often, seconds, for as long as the longest window and a reading that is late.
const SIZES_S: f64 = 2.0;

/// By how much the working set of a window is larger than that of the next shorter one that is known from the same reading. Readings
/// have errors of their own, so levels of different readings must not be compared.
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
    steps: PerKind<[Step; WINDOWS]>,
    /// Pages that were refaulted.
    back: PerKind<f64>,
}

/// What a slice showed of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Returned {
    /// Bytes a second that would be refaulted if all were evicted that is older than each window; `None` = not known.
    pub back: [Option<f64>; WINDOWS],
    /// Bytes that were used within the longest window that is known, without what is new.
    pub used: f64,
    /// Bytes a second that was refaulted.
    pub refaulted: f64,
}

/// What is remembered of one target.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Returns {
    /// When it was first observed.
    from_s: Option<f64>,
    #[serde(skip)]
    slice: Option<Slice>,
    /// When, and what there was in all, gone or not.
    #[serde(skip)]
    sizes: VecDeque<(f64, PerKind<f64>)>,
    /// Bytes of files that were evicted so far and did not come back.
    #[serde(skip)]
    gone: f64,
    /// When each window was last known, and its step.
    steps: PerKind<[Option<(f64, Step)>; WINDOWS]>,
}

/// Starts the slice and the sizes again: growth in between was not observed.
impl Resume for Returns {
    fn resume(&mut self, now_s: f64) -> bool {
        let past = |at_s: f64| is_past(at_s, now_s);
        let shorter = |(at, (known_s, step)): (usize, &(f64, Step))| {
            past(*known_s) && step.over <= at && step.times > 0 && step.sum >= 0.0
        };
        let known = |steps: &[Option<(f64, Step)>; WINDOWS]| {
            steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.as_ref()?))).all(shorter)
        };
        self.from_s.is_none_or(past) && self.steps.iter().all(|(_, steps)| known(steps))
    }
}

impl Returns {
    /// When the target was first observed.
    pub fn from_s(&self) -> Option<f64> {
        self.from_s
    }

    /// Forgets what was known of the use; the slice under way begins again.
    pub(super) fn forget(&mut self) {
        (self.slice, self.steps) = (None, PerKind::default());
    }

    /// Takes in a reading of the target, of whose files so many bytes were evicted on request since the last. At the end of a slice of so
    /// many seconds: its result, and when it began.
    pub fn observe(
        &mut self,
        slice_s: f64,
        target: &WorkloadState,
        evicted: f64,
        now_s: f64,
    ) -> Option<(PerKind<Returned>, f64)> {
        self.from_s.get_or_insert(now_s - target.watched_s);
        let usable = |slice: &Slice| (0.0..longest_s(slice_s)).contains(&(now_s - slice.from_s));
        let begun = || Slice { from_s: now_s, ..Slice::default() };
        let mut slice = self.slice.take().filter(usable).unwrap_or_else(begun);
        self.note_size(target, evicted, now_s);
        self.add(&mut slice, target, now_s);
        // Generations show idle ages once in half a minute or so: until then the slice goes on, and it ends with a reading, so that
        // what that shows is acted on at once.
        let ends = !target.ages.is_empty() && now_s - slice.from_s >= slice_s - 0.05 && slice.is_known();
        let returned = ends.then(|| (self.close(&slice, slice_s, now_s), slice.from_s));
        self.slice = Some(if ends { begun() } else { slice });
        returned
    }

    fn note_size(&mut self, target: &WorkloadState, evicted: f64, now_s: f64) {
        // What is paged out is still counted; of files that were evicted nothing else reports, and those that are refaulted are not new.
        self.gone += evicted - target.refaults.file * PAGE_BYTES;
        let longest_s = f64::from(AGE_EDGES_S[WINDOWS]) + 5.0 * SIZES_S;
        // A clock that jumped makes all of them worthless.
        self.sizes.retain(|(at_s, _)| (0.0..=longest_s).contains(&(now_s - at_s)));
        if self.sizes.back().is_none_or(|(at_s, _)| now_s - at_s >= SIZES_S - 0.05) {
            self.sizes.push_back((now_s, self.size(target)));
        }
    }

    /// Bytes of a kind that are new within a window: as the monitor counted them where it did, as readings may be some
    /// seconds old; elsewhere what the target has grown by.
    pub fn new_within(&self, target: &WorkloadState, kind: Kind, window_s: f64, now_s: f64) -> f64 {
        let within = target.ages_of(kind).filter(|bin| bin.max_s.is_some_and(|max_s| max_s <= window_s));
        let counted: Option<f64> = within.map(|bin| bin.first_touched).sum();
        let is_known = target.ages_of(kind).next().is_some();
        counted.filter(|_| is_known).unwrap_or_else(|| self.grown(target, window_s, now_s)[kind])
    }

    /// Bytes by which a target has grown within a window that ended when its ages were sampled.
    fn grown(&self, target: &WorkloadState, window_s: f64, now_s: f64) -> PerKind<f64> {
        let size = self.size(target);
        let from_s = now_s - target.ages_lag_s - window_s;
        let after = self.sizes.partition_point(|(at_s, _)| *at_s <= from_s);
        // Sizes are kept now and then: between two of them it is taken to have grown evenly.
        let (next_s, next) = self.sizes.get(after).copied().unwrap_or((now_s, size));
        let before = match after.checked_sub(1).map(|at| self.sizes[at]) {
            Some((last_s, last)) if next_s > last_s => {
                let part = (from_s - last_s) / (next_s - last_s);
                last.zip(next).map(|(last, next)| last + part * (next - last))
            }
            _ => next,
        };
        size.zip(before).map(|(size, before)| (size - before).max(0.0))
    }

    fn size(&self, target: &WorkloadState) -> PerKind<f64> {
        target.resident + PerKind { anon: target.swapped, file: self.gone }
    }

    /// Adds a reading. What is not known of ages says nothing of them.
    fn add(&self, slice: &mut Slice, target: &WorkloadState, now_s: f64) {
        let watched_s = self.from_s.map_or(0.0, |from_s| now_s - from_s);
        for kind in Kind::ALL {
            slice.back[kind] += target.refaults[kind];
            let mut reached = (0, 0.0);
            for (at, step) in slice.steps[kind].iter_mut().enumerate() {
                let window_s = f64::from(AGE_EDGES_S[at + 1]);
                // What was there at the first reading may have been new then.
                let begun = window_s + target.ages_lag_s <= watched_s + LATE_S;
                let known = used_within(target.ages_of(kind), window_s).filter(|_| begun);
                if let Some(used) = known {
                    let used = f64::max(used - self.new_within(target, kind, window_s, now_s), reached.1);
                    if step.over != reached.0 {
                        *step = Step { over: reached.0, ..Step::default() };
                    }
                    (step.sum, step.times) = (step.sum + used - reached.1, step.times + 1);
                    reached = (at + 1, used);
                }
            }
        }
    }

    fn close(&mut self, slice: &Slice, slice_s: f64, now_s: f64) -> PerKind<Returned> {
        let elapsed_s = now_s - slice.from_s;
        PerKind::from_fn(|kind| {
            let mut returned = Returned::default();
            for (known, step) in self.steps[kind].iter_mut().zip(slice.steps[kind]) {
                if step.times > 0 {
                    *known = Some((now_s, step));
                }
                *known = known.filter(|(known_s, _)| (0.0..longest_s(slice_s)).contains(&(now_s - known_s)));
            }
            let (places, sets): (Vec<usize>, Vec<(f64, f64)>) = sets(&self.steps[kind]).into_iter().unzip();
            let sets = envelope(&sets);
            returned.used = sets.last().map_or(0.0, |(_, used)| *used);
            returned.refaulted = slice.back[kind] * PAGE_BYTES / elapsed_s;
            for (at, place) in places.into_iter().enumerate() {
                returned.back[place] = Some(rate_of_return(&sets, at).at);
            }
            returned
        })
    }
}

fn longest_s(slice_s: f64) -> f64 {
    (LONGEST * slice_s).max(LONGEST_S)
}

impl Slice {
    fn is_known(&self) -> bool {
        self.steps.iter().any(|(_, steps)| steps.iter().any(|step| step.times > 0))
    }
}

/// Working sets by window, those that are known, each with the window's place.
fn sets(steps: &[Option<(f64, Step)>; WINDOWS]) -> Vec<(usize, (f64, f64))> {
    let mut levels = [Some(0.0); WINDOWS + 1];
    for (at, step) in steps.iter().enumerate() {
        levels[at + 1] = step.and_then(|(_, step)| Some(levels[step.over]? + step.sum / f64::from(step.times)));
    }
    let windows = AGE_EDGES_S[1..].iter().map(|window| f64::from(*window)).enumerate();
    windows.zip(&levels[1..]).filter_map(|((at, window), level)| Some((at, (window, (*level)?)))).collect()
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
