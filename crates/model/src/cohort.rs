//! The cohort's arithmetic: idle ages of sampled pages, and from them working sets with confidence intervals.
//!
//! Every tick reports for each chosen page whether it was touched since the tick before. A page counts for a window
//! only if it was watched for all of it (or was allocated within it, which is a touch); whether it was watched depends
//! on the hash that chose it and never on how it behaves, so leaving the others out keeps the estimate unbiased.

use std::collections::{BTreeMap, BTreeSet};

use crate::episode::{Episode, PageKey, PageKind};
use crate::sharpen::Sample;
use crate::units::float;
use crate::{PAGE_BYTES, WINDOWS_S};

pub use arrivals::Arrivals;
pub use picture::{AgeBin, AgeRow, Estimate, Picture, used_within};

/// A page as a refresh found it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Which page.
    pub key: PageKey,
    /// What backs it.
    pub kind: PageKind,
    /// The physical frame that holds it now.
    pub frame: u64,
    /// The NUMA node of that frame; 0 where nodes are not known.
    pub node: u32,
    /// 1 / number of mappings: a page shared by m processes is found m times.
    pub share: f64,
    /// When it was allocated, if that is known (it is where an earlier refresh would have found it).
    pub allocated_s: Option<f64>,
}

/// Result of a walk over the target.
#[derive(Debug, Clone, Copy)]
pub struct Walk<'a> {
    /// The chosen pages.
    pub found: &'a [Found],
    /// Pages of the target that stand behind one chosen page, in the order of [`PageKind::ALL`].
    pub pages_each: [u64; 3],
    /// Sizes by kind, bytes, where the target's accounts have them; elsewhere the sample's own estimate serves.
    pub totals: [Option<f64>; 3],
}

/// A page under watch.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// What backs it.
    pub kind: PageKind,
    /// The physical frame that holds it.
    pub frame: u64,
    /// The NUMA node of that frame.
    node: u32,
    /// 1 / number of mappings.
    pub share: f64,
    /// Watched since (s); `NEG_INFINITY` if watched since it was allocated.
    since_s: f64,
    /// When it came into being (s), if that is known.
    allocated_s: Option<f64>,
    /// Last sampled touched, or allocated (s); `None` if not yet, or if it was first sampled late.
    last_touch_s: Option<f64>,
    /// The stretch of use that is going on: its start and its reuse time.
    run: Option<(f64, Option<f64>)>,
    /// Last touch and stretch of use as of the last walk, when the page was in its frame for certain.
    at_walk: (Option<f64>, Option<(f64, Option<f64>)>),
    /// The stretch was cut to be written down; the next one, if it follows at once, goes on from it.
    was_cut: bool,
    /// It was sampled at least once. A page that joined is sampled from the next time on; what came before is known from
    /// how it joined.
    is_sampled: bool,
    /// It was moved to another node and not sampled since: what was known of it stays known.
    was_moved: bool,
}

/// A page that is first sampled so many seconds after it was allocated may have been used in between. Less is the time between
/// two walks over a target and until the monitor samples what they find, for which pages count as idle.
const LATE_S: f64 = 6.0;

/// Sizes by kind, in bytes, in the order of [`PageKind::ALL`].
pub type Totals = [f64; 3];

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
    /// When the pages were sampled, ascending: as far back as the longest window reaches.
    sampled_s: Vec<f64>,
    /// Rows since the last walk, which the next one confirms.
    held: Vec<Episode>,
}

impl Cohort {
    /// An empty cohort; `tick_s` is the time between two samples.
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

    /// Changes the time between two samples.
    pub fn set_tick(&mut self, tick_s: f64) {
        self.tick_s = tick_s;
    }

    /// Takes over what a walk over the target found: new pages join, missing ones leave, moved ones are followed.
    ///
    /// A page whose frame changed on its node was copied on write, freed and allocated again, or swapped in, each of which is a
    /// touch; the rare compaction that is not is counted as one. One that is on another node now was moved there: tiering moves
    /// what is idle, and what it moves because it is in use is soon sampled touched. What was sampled since the last walk may have
    /// been of somebody who was given its old frame, and is dropped.
    pub fn refresh(&mut self, now_s: f64, walk: &Walk<'_>, out: &mut Vec<Episode>) {
        let moved: BTreeSet<PageKey> =
            walk.found.iter().filter(|page| self.was_moved(page)).map(|page| page.key).collect();
        self.held.retain(|row| !moved.contains(&row.key));
        out.append(&mut self.held);
        let mut next = BTreeMap::new();
        for page in walk.found {
            let watched = match self.pages.remove(&page.key) {
                Some(mut old) if old.kind == page.kind => {
                    if old.frame != page.frame {
                        old.frame = page.frame;
                        old.was_moved = old.node != page.node;
                        old.node = page.node;
                        if old.was_moved {
                            (old.last_touch_s, old.run) = old.at_walk;
                        } else {
                            old.is_sampled = false;
                            old.touch(&old.row(page.key, &self.pages_each), now_s, self.previous_tick_s, out);
                        }
                    }
                    old.share = page.share;
                    old
                }
                _ => Watched::join(page, now_s),
            };
            next.insert(page.key, watched);
        }
        let gone = std::mem::replace(&mut self.pages, next);
        self.close(gone, out);
        self.pages.values_mut().for_each(Watched::confirm);
        self.pages_each = walk.pages_each.map(float);
        let sampled = self.sampled_totals();
        self.totals_at_refresh = PageKind::ALL.map(|kind| walk.totals[kind.index()].unwrap_or(sampled[kind.index()]));
        self.grown = vec![(now_s, self.totals_at_refresh)];
    }

    /// Whether a page is on another node than at the last walk.
    fn was_moved(&self, page: &Found) -> bool {
        let old = self.pages.get(&page.key).filter(|old| old.kind == page.kind);
        old.is_some_and(|old| old.frame != page.frame && old.node != page.node)
    }

    /// Notes how large the target is now, between refreshes.
    pub fn note_totals(&mut self, now_s: f64, totals: Totals) {
        self.grown.push((now_s, totals));
    }

    /// When pages that a walk at `now_s` finds came, spread over the time since the last refresh as the sizes grew. What is more
    /// than the growth replaces what was given back, at any time.
    #[must_use]
    pub fn arrivals(&self, kind: PageKind, now_s: f64, totals: Totals) -> Arrivals {
        let sizes = self.grown.iter().copied().chain([(now_s, totals)]);
        let sizes: Vec<(f64, f64)> = sizes.map(|(at_s, totals)| (at_s, totals[kind.index()])).collect();
        Arrivals { sizes }
    }

    /// One sample of the pages: `touched(frame)` is whether the frame was touched since the last one, `None` where
    /// the monitor did not read it.
    pub fn tick(&mut self, now_s: f64, touched: impl Fn(u64) -> Option<bool>) {
        let (previous, each, out) = (self.previous_tick_s, self.pages_each, &mut self.held);
        for (key, page) in &mut self.pages {
            let row = page.row(*key, &each);
            let sampled = touched(page.frame);
            let was_sampled = page.is_sampled;
            if sampled.is_some() && !was_sampled {
                page.first_sample(previous);
            }
            if sampled == Some(true) {
                page.touch(&row, now_s, previous, out);
            } else {
                page.rest(&row, out);
                if sampled.is_none() && was_sampled && !page.was_moved {
                    page.since_s = now_s;
                }
            }
            page.was_moved &= sampled.is_none();
        }
        self.previous_tick_s = now_s;
        self.sampled_s.push(now_s);
        let longest = 1.5 * f64::from(WINDOWS_S[WINDOWS_S.len() - 1]);
        let old = self.sampled_s.partition_point(|sampled_s| *sampled_s < now_s - longest);
        self.sampled_s.drain(..old.saturating_sub(1));
    }

    /// Cuts the stretches of use that are going on, so that everything sampled so far is in the record.
    pub fn cut(&mut self, out: &mut Vec<Episode>) {
        out.append(&mut self.held);
        let each = self.pages_each;
        for (key, page) in &mut self.pages {
            page.was_cut |= page.run.is_some();
            page.rest(&page.row(*key, &each), out);
            page.confirm();
        }
    }

    /// Ends the watch: every page's last stretch is written down.
    pub fn finish(&mut self, out: &mut Vec<Episode>) {
        out.append(&mut self.held);
        let pages = std::mem::take(&mut self.pages);
        self.close(pages, out);
    }

    fn close(&self, pages: BTreeMap<PageKey, Watched>, out: &mut Vec<Episode>) {
        for (key, mut page) in pages {
            let row = page.row(key, &self.pages_each);
            page.rest(&row, out);
            let (start_s, end_s) = (page.last_touch_s.unwrap_or(page.since_s), self.previous_tick_s);
            if start_s.is_finite() && end_s > start_s {
                out.push(Episode { start_s, end_s, reuse_s: page.last_touch_s.map(|_| 0.0), ..row });
            }
        }
    }

    /// What is known of the pages of one process over the `window_s` before the last sample, in address order. Pages that
    /// were not watched for so long are left out.
    #[must_use]
    pub fn samples(&self, process: u32, window_s: f64) -> Vec<Sample> {
        // Half a tick of slack: samples are not exactly a tick apart, and a window of n ticks holds n samples.
        let from = self.previous_tick_s - window_s + 0.5 * self.tick_s;
        let range = PageKey { space: process, page: 0 }..=PageKey { space: process, page: u64::MAX };
        let known = self.pages.range(range).filter_map(|(key, page)| {
            let touched = page.touched_since(from);
            let watched = page.is_known(from, touched) && page.kind != PageKind::Cache;
            let idle_s = self.previous_tick_s - page.last_touch_s.unwrap_or(page.since_s);
            watched.then_some(Sample { address: key.address(), touched, idle_s })
        });
        known.collect()
    }

    /// Bytes of a process' memory of which one page is in the sample.
    #[must_use]
    pub fn block_bytes(&self) -> f64 {
        self.pages_each[PageKind::Anon.index()] * PAGE_BYTES
    }

    /// Bytes the sample stands for, by kind: the Horvitz-Thompson estimate of the target's size, for where the
    /// target's own accounts do not have it.
    #[must_use]
    pub fn sampled_totals(&self) -> Totals {
        let mut totals = Totals::default();
        for page in self.pages.values() {
            totals[page.kind.index()] += page.weight_bytes(&self.pages_each);
        }
        totals
    }

    /// Sizes by kind at the last refresh.
    #[must_use]
    pub fn totals_at_refresh(&self) -> Totals {
        self.totals_at_refresh
    }
}

impl Watched {
    fn join(page: &Found, now_s: f64) -> Self {
        Self {
            kind: page.kind,
            frame: page.frame,
            node: page.node,
            share: page.share,
            since_s: if page.allocated_s.is_some() { f64::NEG_INFINITY } else { now_s },
            allocated_s: page.allocated_s,
            last_touch_s: page.allocated_s,
            run: None,
            at_walk: (None, None),
            was_cut: false,
            is_sampled: false,
            was_moved: false,
        }
    }

    /// What was sampled so far holds, or was written down.
    fn confirm(&mut self) {
        self.at_walk = (self.last_touch_s, self.run);
    }

    /// It is sampled for the first time; the sample before was at `previous_tick_s`. What was not observed to be allocated is
    /// watched from then on, and so is what was allocated long before.
    fn first_sample(&mut self, previous_tick_s: f64) {
        self.is_sampled = true;
        let is_late = self.last_touch_s.is_some_and(|last_s| previous_tick_s - last_s > LATE_S);
        if is_late {
            self.last_touch_s = None;
        }
        if is_late || self.since_s.is_finite() {
            self.since_s = self.since_s.max(previous_tick_s);
        }
    }

    fn touched_since(&self, from_s: f64) -> bool {
        self.last_touch_s.into_iter().chain(self.allocated_s).any(|touched_s| touched_s >= from_s)
    }

    /// Whether what it did since `from_s` is known: it was allocated since, or watched. Of a page that joined and was not sampled
    /// since, only its allocation is known.
    fn is_known(&self, from_s: f64, touched: bool) -> bool {
        let allocated = self.allocated_s.is_some_and(|allocated_s| allocated_s >= from_s);
        allocated || (self.since_s <= from_s && (self.is_sampled || touched))
    }

    /// Whether it is unknown since it is new, not since the sample became denser. When page cache came is not known.
    fn may_be_new(&self) -> bool {
        self.allocated_s.is_some()
            || (!self.is_sampled && (self.last_touch_s.is_some() || self.kind == PageKind::Cache))
    }

    /// Bytes that it stands for.
    fn weight_bytes(&self, pages_each: &Totals) -> f64 {
        pages_each[self.kind.index()] * self.share * PAGE_BYTES
    }

    /// A row of the record about it, of a stretch without use.
    fn row(&self, key: PageKey, pages_each: &Totals) -> Episode {
        let weight_bytes = self.weight_bytes(pages_each);
        Episode { key, kind: self.kind, weight_bytes, share: Some(self.share), ..Episode::default() }
    }

    fn touch(&mut self, row: &Episode, now_s: f64, previous_tick_s: f64, out: &mut Vec<Episode>) {
        let goes_on = self.last_touch_s.is_some_and(|last| last >= previous_tick_s);
        if !(goes_on && self.run.is_some()) {
            self.rest(row, out);
            let reuse_s = if goes_on && self.was_cut { Some(0.0) } else { self.last_touch_s.map(|last| now_s - last) };
            if reuse_s.is_none() && self.since_s.is_finite() && self.since_s < previous_tick_s {
                // Idleness whose beginning was not sampled.
                out.push(Episode { start_s: self.since_s, end_s: now_s, ..row.clone() });
            }
            self.run = Some((now_s, reuse_s));
        }
        self.was_cut = false;
        self.last_touch_s = Some(now_s);
    }

    /// Ends the stretch of use that is going on, if any.
    fn rest(&mut self, row: &Episode, out: &mut Vec<Episode>) {
        if let (Some((start_s, reuse_s)), Some(end_s)) = (self.run.take(), self.last_touch_s) {
            out.push(Episode { touched: true, start_s, end_s, reuse_s, ..row.clone() });
        }
    }
}

mod arrivals;
mod picture;

#[cfg(test)]
mod tests;
