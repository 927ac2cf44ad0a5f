//! The cohort's arithmetic: idle ages of sampled pages, and from them working sets with confidence intervals.
//!
//! Every tick tells for each sampled page whether it was touched since the tick before. A page counts for a window
//! only if it was watched for the whole window (or was seen to be allocated, which is a touch); whether it was
//! watched depends on the hash that chose it and never on how it behaves, so leaving the others out keeps the
//! estimate unbiased.
//!
//! Shares are taken per [`Kind`] and multiplied by that kind's known size (a ratio estimator). The interval comes
//! from differences between neighbours in address order, the standard variance estimator for a sample of one unit per
//! stratum (Wolter, *Introduction to Variance Estimation*, §8.2, estimator v2): it equals the binomial one where hot
//! pages are scattered at random and is as narrow as it should be where they lie together.

use std::collections::BTreeMap;

use crate::episode::{Episode, Kind, PageKey};
use crate::sharpen::Sample;
use crate::stats::Z95;
use crate::{AGE_EDGES_S, PAGE, WINDOWS_S};

/// A page as a refresh found it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Which page.
    pub key: PageKey,
    /// What backs it.
    pub kind: Kind,
    /// The physical frame that holds it now.
    pub frame: u64,
    /// 1 / number of mappings: a page shared by m processes is found m times.
    pub weight: f64,
    /// When it was allocated, if that is known (it is where an earlier refresh would have found it).
    pub allocated_s: Option<f64>,
}

/// A page under watch.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// What backs it.
    pub kind: Kind,
    /// The physical frame that holds it.
    pub frame: u64,
    /// 1 / number of mappings.
    pub weight: f64,
    /// Watched since (s); `NEG_INFINITY` if watched since it was allocated.
    since_s: f64,
    /// Last seen touched (s); `None` if not yet.
    last_touch_s: Option<f64>,
    /// The stretch of use that is going on: its start and its reuse time.
    run: Option<(f64, Option<f64>)>,
    /// The stretch was cut to be written down; the next one, if it follows at once, goes on from it.
    was_cut: bool,
    /// The monitor has looked at it at least once. A page that joined is looked at from the next look on; what came
    /// before is known from how it joined.
    looked_at: bool,
}

/// Sizes by kind, in bytes, in the order of [`Kind::ALL`].
pub type Totals = [f64; 3];

/// An estimated number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub bytes: f64,
    /// Half-width of its 95 % interval.
    pub ci95: f64,
}

impl Estimate {
    /// The sum of independent estimates: half-widths add in quadrature.
    fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, ci95: self.ci95.hypot(other.ci95) }
    }
}

/// One bin of the idle-age histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AgeBin {
    /// Anonymous, or file (mapped and unmapped together).
    pub anon: bool,
    /// Idle at least so many seconds.
    pub min_s: f64,
    /// Idle less than so many seconds; `None` = no upper bound known.
    pub max_s: Option<f64>,
    /// Bytes.
    pub size: Estimate,
}

/// What one tick says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Picture {
    /// Working set for each of [`WINDOWS_S`]; `None` while no page was watched for so long.
    pub working_set: [Option<Estimate>; WINDOWS_S.len()],
    /// The idle-age histogram.
    pub ages: Vec<AgeBin>,
    /// Pages that the shortest measured window rests on.
    pub pages: usize,
}

/// The cohort.
#[derive(Debug, Clone, Default)]
pub struct Cohort {
    pages: BTreeMap<PageKey, Watched>,
    /// Pages of the target that stand behind one sampled page, by kind.
    pages_each: Totals,
    totals_at_refresh: Totals,
    /// The target's sizes since the last refresh: what it has grown by is not in the sample yet.
    grown: Vec<(f64, Totals)>,
    previous_tick_s: f64,
    tick_s: f64,
}

impl Cohort {
    /// An empty cohort; `tick_s` is the time between two looks at the pages.
    #[must_use]
    pub fn new(tick_s: f64) -> Self {
        Self { tick_s, pages_each: [1.0; 3], ..Self::default() }
    }

    /// Number of pages under watch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether no page is under watch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The pages under watch, in address order.
    pub fn pages(&self) -> impl Iterator<Item = (&PageKey, &Watched)> {
        self.pages.iter()
    }

    /// Whether that page is under watch in that frame.
    #[must_use]
    pub fn frame_of(&self, key: PageKey) -> Option<u64> {
        self.pages.get(&key).map(|page| page.frame)
    }

    /// Changes the time between two looks.
    pub fn set_tick(&mut self, tick_s: f64) {
        self.tick_s = tick_s;
    }

    /// Takes over what a walk over the target found: new pages join, missing ones leave, moved ones are followed.
    /// `totals` are the sizes by kind where the target's accounts tell them; elsewhere the sample's own estimate serves.
    ///
    /// A page whose frame changed was copied on write, freed and allocated again, or swapped in, each of which is a
    /// touch; the rare migration that is not is counted as one.
    pub fn refresh(
        &mut self,
        now_s: f64,
        found: &[Found],
        pages_each: [u64; 3],
        totals: [Option<f64>; 3],
        out: &mut Vec<Episode>,
    ) {
        let mut next = BTreeMap::new();
        for page in found {
            let watched = match self.pages.remove(&page.key) {
                Some(mut old) if old.kind == page.kind => {
                    if old.frame != page.frame {
                        old.frame = page.frame;
                        old.looked_at = false;
                        old.touch(page.key, now_s, self.previous_tick_s, self.weight(page.kind, old.weight), out);
                    }
                    old.weight = page.weight;
                    old
                }
                _ => Watched::join(page, now_s),
            };
            next.insert(page.key, watched);
        }
        let gone = std::mem::replace(&mut self.pages, next);
        self.close(gone, out);
        #[expect(clippy::cast_precision_loss, reason = "powers of two far below 2^52")]
        let each = pages_each.map(|pages| pages as f64);
        self.pages_each = each;
        let sampled = self.sampled_totals();
        self.totals_at_refresh = Kind::ALL.map(|kind| totals[kind.index()].unwrap_or(sampled[kind.index()]));
        self.grown = vec![(now_s, self.totals_at_refresh)];
    }

    /// Notes how large the target is now, between refreshes.
    pub fn note_totals(&mut self, now_s: f64, totals: Totals) {
        self.grown.push((now_s, totals));
    }

    /// One look at the pages: `touched(frame)` tells whether the frame was touched since the last look, `None` where
    /// the monitor did not look at it.
    pub fn tick(&mut self, now_s: f64, touched: impl Fn(u64) -> Option<bool>, out: &mut Vec<Episode>) {
        let (previous, each) = (self.previous_tick_s, self.pages_each);
        for (key, page) in &mut self.pages {
            let weight = each[page.kind.index()] * page.weight * PAGE_F;
            let seen = touched(page.frame);
            let was_looked_at = page.looked_at;
            if seen.is_some() && !was_looked_at {
                page.looked_at = true;
                // What was not seen to be allocated is watched from the look before on.
                page.since_s = page.since_s.max(if page.since_s.is_finite() { previous } else { f64::NEG_INFINITY });
            }
            match seen {
                Some(true) => page.touch(*key, now_s, previous, weight, out),
                Some(false) => page.rest(*key, weight, out),
                None => {
                    page.rest(*key, weight, out);
                    if was_looked_at {
                        page.since_s = now_s;
                    }
                }
            }
        }
        self.previous_tick_s = now_s;
    }

    /// Cuts the stretches of use that are going on, so that everything seen so far is in the record.
    pub fn cut(&mut self, out: &mut Vec<Episode>) {
        let each = self.pages_each;
        for (key, page) in &mut self.pages {
            page.was_cut |= page.run.is_some();
            page.rest(*key, each[page.kind.index()] * page.weight * PAGE_F, out);
        }
    }

    /// Ends the watch: every page's last stretch is written down.
    pub fn finish(&mut self, out: &mut Vec<Episode>) {
        let pages = std::mem::take(&mut self.pages);
        self.close(pages, out);
    }

    fn weight(&self, kind: Kind, weight: f64) -> f64 {
        self.pages_each[kind.index()] * weight * PAGE_F
    }

    fn close(&self, pages: BTreeMap<PageKey, Watched>, out: &mut Vec<Episode>) {
        for (key, mut page) in pages {
            let weight = self.weight(page.kind, page.weight);
            page.rest(key, weight, out);
            let start = page.last_touch_s.unwrap_or(page.since_s);
            if start.is_finite() && self.previous_tick_s > start {
                out.push(Episode {
                    key,
                    kind: page.kind,
                    weight_bytes: weight,
                    touched: false,
                    start_s: start,
                    end_s: self.previous_tick_s,
                    reuse_s: None,
                });
            }
        }
    }

    /// What is known of the pages of one process over the `window_s` before the last look, in address order. Pages that
    /// were not watched for so long are left out.
    #[must_use]
    pub fn samples(&self, process: u32, window_s: f64) -> Vec<Sample> {
        let from = self.window_start(self.previous_tick_s, window_s);
        let range = PageKey { space: process, page: 0 }..=PageKey { space: process, page: u64::MAX };
        let known = self.pages.range(range).filter_map(|(key, page)| {
            let touched = page.touched_since(from);
            let watched = page.is_known(from, touched) && page.kind != Kind::Cache;
            let idle_s = self.previous_tick_s - page.last_touch_s.unwrap_or(page.since_s);
            watched.then_some(Sample { address: key.address(), touched, idle_s })
        });
        known.collect()
    }

    /// Bytes the sample stands for, by kind: the Horvitz-Thompson estimate of the target's size, for where the
    /// target's own accounts do not tell it.
    #[must_use]
    pub fn sampled_totals(&self) -> Totals {
        let mut totals = Totals::default();
        for page in self.pages.values() {
            totals[page.kind.index()] += self.weight(page.kind, page.weight);
        }
        totals
    }

    /// Sizes by kind at the last refresh.
    #[must_use]
    pub fn totals_at_refresh(&self) -> Totals {
        self.totals_at_refresh
    }

    /// The picture at `now_s` for a target whose kinds have these sizes.
    #[must_use]
    pub fn picture(&self, now_s: f64, totals: Totals) -> Picture {
        let mut picture = Picture { pages: self.pages.len(), ..Picture::default() };
        let mut below = [[Some(Estimate::default()); 2]; AGE_EDGES_S.len()];
        for (edge, at) in AGE_EDGES_S.iter().zip(&mut below).skip(1) {
            *at = self.touched_within(now_s, f64::from(*edge), totals);
        }
        for (window, at) in WINDOWS_S.iter().zip(&mut picture.working_set) {
            let edge = AGE_EDGES_S.iter().position(|edge| edge == window);
            *at = edge.and_then(|edge| Some(below[edge][0]?.plus(below[edge][1]?)));
        }
        for (anon, side) in [(true, 0), (false, 1)] {
            let total = if anon { totals[0] } else { totals[1] + totals[2] };
            picture.ages.extend(bins(anon, side, total, &below));
        }
        picture
    }

    /// When a window begins. Half a tick of slack: looks are not exactly a tick apart, and a window of n ticks holds n
    /// looks.
    fn window_start(&self, now_s: f64, window_s: f64) -> f64 {
        now_s - window_s + 0.5 * self.tick_s
    }

    /// Bytes touched within the last `window_s`: anonymous, and file of both kinds.
    fn touched_within(&self, now_s: f64, window_s: f64, totals: Totals) -> [Option<Estimate>; 2] {
        if window_s < 0.75 * self.tick_s {
            return [None, None];
        }
        let from = self.window_start(now_s, window_s);
        let mut tallies = [Tally::default(); 3];
        for page in self.pages.values() {
            let touched = page.touched_since(from);
            if page.is_known(from, touched) {
                tallies[page.kind.index()].add(page.weight, touched);
            } else {
                tallies[page.kind.index()].unknown += 1;
                tallies[page.kind.index()].unlooked += if page.looked_at { 0.0 } else { page.weight };
            }
        }
        // What came since the last refresh is not in the sample. What came within the window was touched in it; of the
        // rest nothing is known, and it is taken to be like the sample.
        let then = self.grown.partition_point(|(at_s, _)| *at_s <= now_s - window_s).saturating_sub(1);
        let then = self.grown.get(then).map_or(totals, |(_, totals)| *totals);
        let each = |kind: Kind| {
            let (total, then) = (totals[kind.index()], then[kind.index()]);
            let recent = (total - then).max(0.0);
            let mut estimate = tallies[kind.index()].share(self.pages_each[kind.index()])?;
            estimate.bytes = (estimate.bytes * (total - recent) + recent).min(total);
            estimate.ci95 *= total - recent;
            Some(estimate)
        };
        [each(Kind::Anon), each(Kind::File).zip(each(Kind::Cache)).map(|(a, b)| a.plus(b))]
    }
}

/// Bytes of a page, for arithmetic.
#[expect(clippy::cast_precision_loss, reason = "4096")]
const PAGE_F: f64 = PAGE as f64;

impl Watched {
    fn join(page: &Found, now_s: f64) -> Self {
        Self {
            kind: page.kind,
            frame: page.frame,
            weight: page.weight,
            since_s: if page.allocated_s.is_some() { f64::NEG_INFINITY } else { now_s },
            last_touch_s: page.allocated_s,
            run: None,
            was_cut: false,
            looked_at: false,
        }
    }

    fn touched_since(&self, from_s: f64) -> bool {
        self.last_touch_s.is_some_and(|last| last >= from_s)
    }

    /// Whether it was watched since `from_s`. Of a page that joined and was not looked at since, only its allocation is
    /// known.
    fn is_known(&self, from_s: f64, touched: bool) -> bool {
        self.since_s <= from_s && (self.looked_at || touched)
    }

    fn touch(&mut self, key: PageKey, now_s: f64, previous_tick_s: f64, weight_bytes: f64, out: &mut Vec<Episode>) {
        let goes_on = self.last_touch_s.is_some_and(|last| last >= previous_tick_s);
        if !(goes_on && self.run.is_some()) {
            self.rest(key, weight_bytes, out);
            let reuse_s = if goes_on && self.was_cut { Some(0.0) } else { self.last_touch_s.map(|last| now_s - last) };
            self.run = Some((now_s, reuse_s));
        }
        self.was_cut = false;
        self.last_touch_s = Some(now_s);
    }

    /// Ends the stretch of use that is going on, if any.
    fn rest(&mut self, key: PageKey, weight_bytes: f64, out: &mut Vec<Episode>) {
        if let (Some((start_s, reuse_s)), Some(end_s)) = (self.run.take(), self.last_touch_s) {
            out.push(Episode { key, kind: self.kind, weight_bytes, touched: true, start_s, end_s, reuse_s });
        }
    }
}

/// Share of the sample that may be not looked at yet before nothing is said.
const UNLOOKED_MAX: f64 = 0.3;

/// Counts of one kind in address order.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    count: f64,
    weight: f64,
    touched: f64,
    neighbours_differ: f64,
    last: Option<bool>,
    unknown: usize,
    /// Weight of pages that joined and were not looked at yet. They are no random part of the sample: new pages are.
    unlooked: f64,
}

impl Tally {
    fn add(&mut self, weight: f64, touched: bool) {
        self.count += 1.0;
        self.weight += weight;
        self.touched += if touched { weight } else { 0.0 };
        self.neighbours_differ += f64::from(u8::from(self.last.is_some_and(|last| last != touched)));
        self.last = Some(touched);
    }

    /// The touched share (in `bytes`) and its interval. Too little known of a kind that has pages: `None`. A kind
    /// without pages has nothing touched.
    fn share(&self, pages_each: f64) -> Option<Estimate> {
        if self.count == 0.0 {
            return (self.unknown == 0).then_some(Estimate::default());
        }
        let unlooked = self.unlooked / (self.weight + self.unlooked);
        if unlooked > UNLOOKED_MAX {
            return None;
        }
        let share = self.touched / self.weight;
        // Half the mean squared difference of neighbours estimates the variance within strata. One more difference is
        // assumed than was seen: zero of n seen does not prove zero (Agresti-Coull adds trials for the same reason).
        let within = ((self.neighbours_differ + 1.0) / (2.0 * self.count)).min(0.25);
        let not_sampled = 1.0 - 1.0 / pages_each.max(1.0);
        // What was not looked at may be anything.
        let ci95 = Z95 * (within / self.count * not_sampled).sqrt() + unlooked / 2.0;
        Some(Estimate { bytes: share, ci95 })
    }
}

/// The histogram of one side (0 anonymous, 1 file) as differences of the cumulative estimates, kept monotone: windows
/// rest on different sets of pages, so their estimates may cross by sampling noise.
fn bins(anon: bool, side: usize, total: f64, below: &[[Option<Estimate>; 2]]) -> Vec<AgeBin> {
    let mut list = Vec::new();
    let mut reached = Estimate::default();
    let mut min_s = 0.0;
    for (edge, at) in AGE_EDGES_S.iter().zip(below).skip(1) {
        let Some(upto) = at[side] else { continue };
        let size = Estimate { bytes: (upto.bytes - reached.bytes).max(0.0), ci95: upto.ci95.hypot(reached.ci95) };
        list.push(AgeBin { anon, min_s, max_s: Some(f64::from(*edge)), size });
        reached = Estimate { bytes: reached.bytes.max(upto.bytes), ci95: upto.ci95 };
        min_s = f64::from(*edge);
    }
    let size = Estimate { bytes: (total - reached.bytes).max(0.0), ci95: reached.ci95 };
    list.push(AgeBin { anon, min_s, max_s: None, size });
    list
}

#[cfg(test)]
mod tests;
