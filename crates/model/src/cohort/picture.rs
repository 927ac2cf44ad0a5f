//! Estimates from the cohort: working sets and idle ages with confidence intervals.
//!
//! Shares are taken per [`PageKind`] and multiplied by that kind's known size (a ratio estimator). The interval comes
//! from differences between neighbours in address order, the standard variance estimator for a sample of one unit per
//! stratum (Wolter, *Introduction to Variance Estimation*, §8.2, estimator v2): it equals the binomial one where hot
//! pages are scattered at random and is as narrow as it should be where they lie together.

use super::{Cohort, Totals};
use crate::episode::PageKind;
use crate::stats::Z95;
use crate::{AGE_EDGES_S, WINDOWS_S};

/// A window may be shorter than the time between the samples that bound it, but not by more than this.
const SHORTEST: f64 = 0.75;

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
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AgeBin {
    /// Anonymous, or file (mapped and unmapped together).
    pub anon: bool,
    /// Idle at least so many seconds.
    pub min_s: f64,
    /// Idle less than so many seconds; `None` = no upper bound known.
    pub max_s: Option<f64>,
    /// Bytes.
    pub size: Estimate,
    /// Of them, bytes that came into being within the bin's time, as far as the growth of the target shows it: used for
    /// the first time, not again. `None` where the monitor does not report it; of windows that share their start only.
    pub first_touched: Option<f64>,
}

/// A bin of the histogram of one tick.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AgeRow {
    /// Seconds since the start of the record.
    pub t_s: f64,
    /// The bin.
    pub bin: AgeBin,
}

/// Bytes of these bins that were used within `window_s`; `None` where none of them ends there.
#[must_use]
pub fn used_within<'a>(bins: impl Iterator<Item = &'a AgeBin>, window_s: f64) -> Option<f64> {
    let (mut known, mut bytes) = (false, 0.0);
    for (bin, max_s) in bins.filter_map(|bin| Some((bin, bin.max_s?))).filter(|(_, max_s)| *max_s <= window_s) {
        known |= max_s >= window_s;
        bytes += bin.size.bytes;
    }
    known.then_some(bytes)
}

/// Estimates at one tick.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Picture {
    /// Working set for each of [`WINDOWS_S`]; `None` while no page was watched for so long.
    pub working_set: [Option<Estimate>; WINDOWS_S.len()],
    /// The idle-age histogram.
    pub ages: Vec<AgeBin>,
    /// Of a cycle of windows that goes on: what was read so far, to be shown but not recorded.
    pub is_partial: bool,
    /// When its longest window was read, seconds, where that was before this picture.
    pub ages_read_s: Option<f64>,
    /// Pages that the shortest measured window rests on.
    pub pages: usize,
}

/// A window bounded by samples.
#[derive(Debug, Clone, Copy)]
struct Window {
    /// Touches dated after this lie in it.
    from_s: f64,
    /// Its true length.
    length_s: f64,
}

impl Cohort {
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

    /// Bytes touched within the last `window_s`: anonymous, and file of both kinds.
    ///
    /// Samples are not exactly a tick apart, so they rarely bound a window of that length. The estimate of the nearest window
    /// is extrapolated to `window_s` along the straight line through it and the window that is one sample longer.
    fn touched_within(&self, now_s: f64, window_s: f64, totals: Totals) -> [Option<Estimate>; 2] {
        let Some((window, longer)) = self.windows(now_s, window_s) else { return [None, None] };
        let mut list = self.touched_in(now_s, &window, totals);
        let missing_s = window_s - window.length_s;
        let Some(longer) = longer.filter(|_| missing_s.abs() > 1e-3 * window_s) else { return list };
        for (estimate, beyond) in list.iter_mut().zip(self.touched_in(now_s, &longer, totals)) {
            let Some((estimate, beyond)) = estimate.as_mut().zip(beyond) else { continue };
            let per_s = (beyond.bytes - estimate.bytes).max(0.0) / (longer.length_s - window.length_s);
            // How use is spread between two samples is not known: half of the correction is added to the interval.
            estimate.ci95 += 0.5 * (per_s * missing_s).abs();
            estimate.bytes = (estimate.bytes + per_s * missing_s).max(0.0);
        }
        list
    }

    /// The window between two samples that is closest to `window_s`, and the one that is a sample longer. `None` where
    /// samples are too far apart for such a window.
    fn windows(&self, now_s: f64, window_s: f64) -> Option<(Window, Option<Window>)> {
        let earlier = &self.sampled_s[..self.sampled_s.partition_point(|sampled_s| *sampled_s < now_s)];
        let off = |sampled_s: f64| (now_s - sampled_s - window_s).abs();
        let nearest = (0..earlier.len()).min_by(|a, b| off(earlier[*a]).total_cmp(&off(earlier[*b])));
        // Before the first sample only allocations and their times are known.
        let Some(at) = nearest.filter(|at| *at > 0 || off(earlier[*at]) <= self.tick_s) else {
            let from_s = now_s - window_s + 0.5 * self.tick_s;
            return (window_s >= SHORTEST * self.tick_s).then_some((Window { from_s, length_s: window_s }, None));
        };
        let window = |at: usize| {
            let next = earlier.get(at + 1).copied().unwrap_or(now_s);
            // Touches are dated by the sample that found them.
            Window { from_s: 0.5 * (earlier[at] + next), length_s: now_s - earlier[at] }
        };
        let nearest = window(at);
        (window_s >= SHORTEST * nearest.length_s).then(|| (nearest, at.checked_sub(1).map(window)))
    }

    /// Bytes touched within a window.
    fn touched_in(&self, now_s: f64, window: &Window, totals: Totals) -> [Option<Estimate>; 2] {
        let from = window.from_s;
        let mut tallies = [Tally::default(); 3];
        for page in self.pages.values() {
            let touched = page.touched_since(from);
            if page.is_known(from, touched) {
                tallies[page.kind.index()].add(page.share, touched);
            } else {
                tallies[page.kind.index()].unknown += 1;
                tallies[page.kind.index()].unsampled += if page.may_be_new() { page.share } else { 0.0 };
            }
        }
        // What came since the last refresh is not in the sample. What came within the window was touched in it; of the
        // rest nothing is known: it is taken to be like the sample, and may be anything.
        let then = self.grown.partition_point(|(at_s, _)| *at_s <= now_s - window.length_s).saturating_sub(1);
        let then = self.grown.get(then).map_or(totals, |(_, totals)| *totals);
        let came = PageKind::ALL.map(|kind| (then[kind.index()] - self.totals_at_refresh[kind.index()]).max(0.0));
        if came.iter().sum::<f64>() > UNSAMPLED_MAX * totals.iter().sum::<f64>() {
            return [None, None];
        }
        let each = |kind: PageKind| {
            let (total, then) = (totals[kind.index()], then[kind.index()]);
            let recent = (total - then).max(0.0);
            let mut estimate = tallies[kind.index()].touched_share(self.pages_each[kind.index()])?;
            let came = came[kind.index()].min(total) * estimate.bytes.max(1.0 - estimate.bytes);
            estimate.ci95 = estimate.ci95 * (total - recent) + came;
            estimate.bytes = (estimate.bytes * (total - recent) + recent).min(total);
            Some(estimate)
        };
        [each(PageKind::Anon), each(PageKind::File).zip(each(PageKind::Cache)).map(|(a, b)| a.plus(b))]
    }
}

/// Share of the sample that may be unread yet where there is an estimate.
const UNSAMPLED_MAX: f64 = 0.3;

/// Counts of one kind in address order.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    count: f64,
    sampled: f64,
    touched: f64,
    neighbours_differ: f64,
    last: Option<bool>,
    unknown: usize,
    /// Pages that came into being and were not sampled yet. They are no random part of the sample, which those are that joined
    /// as it became denser.
    unsampled: f64,
}

impl Tally {
    fn add(&mut self, share: f64, touched: bool) {
        self.count += 1.0;
        self.sampled += share;
        self.touched += if touched { share } else { 0.0 };
        self.neighbours_differ += f64::from(u8::from(self.last.is_some_and(|last| last != touched)));
        self.last = Some(touched);
    }

    /// The touched share (in `bytes`) and its interval. Too little known of a kind that has pages: `None`. A kind
    /// without pages has nothing touched.
    fn touched_share(&self, pages_each: f64) -> Option<Estimate> {
        if self.count == 0.0 {
            return (self.unknown == 0).then_some(Estimate::default());
        }
        let unsampled = self.unsampled / (self.sampled + self.unsampled);
        if unsampled > UNSAMPLED_MAX {
            return None;
        }
        let share = self.touched / self.sampled;
        // Half the mean squared difference of neighbours estimates the variance within strata. One more difference is
        // assumed than was sampled: zero of n does not prove zero (Agresti-Coull adds trials for the same reason).
        let within = ((self.neighbours_differ + 1.0) / (2.0 * self.count)).min(0.25);
        let not_sampled = 1.0 - 1.0 / pages_each.max(1.0);
        // What was not sampled may be anything.
        let ci95 = Z95 * (within / self.count * not_sampled).sqrt() + unsampled * share.max(1.0 - share);
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
        list.push(AgeBin { anon, min_s, max_s: Some(f64::from(*edge)), size, first_touched: None });
        reached = Estimate { bytes: reached.bytes.max(upto.bytes), ci95: upto.ci95 };
        min_s = f64::from(*edge);
    }
    let size = Estimate { bytes: (total - reached.bytes).max(0.0), ci95: reached.ci95 };
    list.push(AgeBin { anon, min_s, max_s: None, size, first_touched: None });
    list
}
