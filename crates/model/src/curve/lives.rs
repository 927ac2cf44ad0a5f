//! The curve from watched pages: how long each lay idle, and whether it was used again.
//!
//! A page speaks for an age from when it has been watched for that long, or from its allocation if that was seen: when
//! that is depends on the hash that chose it and never on how it behaves. More pages speak at some times than at others, so
//! shares are taken slice by slice of the run, each multiplied by the size that the target's accounts tell of it (a separate
//! ratio estimator). Its error follows from the differences between neighbours in address order, page by page, as in
//! [`crate::cohort`]: one page's uses over the run are one sample, not many.

use super::{Band, Basis, CURVE_AGES_S, Curve, Point, SIDES, mean_total, totals};
use crate::PAGE_BYTES;
use crate::cohort::AgeRow;
use crate::episode::{Episode, PageKind};
use crate::stats::Z95;
use crate::units::{float, index};

/// Slices of the run, at most; none is shorter than a tick.
const SLICES: usize = 600;
/// An age of which nothing is known for most of the run is left out.
const SPEAKS: f64 = 0.5;

/// What was told of one age in one slice, by one page or by all: byte-seconds, and bytes that came back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    pub(super) cold: f64,
    pub(super) known: f64,
    pub(super) back: f64,
    /// Byte-seconds of pages that are used tick after tick: not those that were used once.
    pub(super) busy: f64,
}

/// A slice of the run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slice {
    /// Seconds of it that lie in the run.
    pub(super) seconds: f64,
    /// Bytes of each side: mean and highest.
    pub(super) mean: [f64; SIDES],
    pub(super) highest: [f64; SIDES],
}

/// A page that was watched.
struct Page {
    weight: f64,
    spans: Vec<Span>,
}

/// A span of one page's life.
#[derive(Debug, Clone, Copy)]
struct Span {
    from_s: f64,
    to_s: f64,
    /// It was idle in it.
    idle: bool,
    /// It was used at its end.
    to_use: bool,
    /// Since when the page has been watched; an allocation that was seen is as good as watching from ever.
    since_s: f64,
    weight: f64,
}

/// The curve of the run after `from_s`; `None` where no pages were watched. `ages` are those of that part.
pub(super) fn curve(from_s: f64, ages: &[AgeRow], episodes: &[Episode], tick_s: f64) -> Option<Curve> {
    let totals = totals(ages);
    let run = Run::of(&totals, from_s, episodes, tick_s)?;
    let asked = CURVE_AGES_S.iter().filter(|age_s| **age_s >= tick_s);
    let points: Vec<Point> = asked.filter_map(|age_s| run.point(*age_s)).collect();
    let total = [0, 1].map(|side| mean_total(&totals, side));
    (!points.is_empty()).then_some(Curve { basis: Basis::Pages, total, points })
}

/// A run, cut into slices, with the pages that were watched in it.
pub(super) struct Run {
    pages: [Vec<Page>; SIDES],
    pub(super) slices: Vec<Slice>,
    pub(super) slice_s: f64,
    tick_s: f64,
}

impl Run {
    /// Of sizes and pages; `None` where nothing was watched.
    pub(super) fn of(totals: &[(f64, [f64; SIDES])], from_s: f64, episodes: &[Episode], tick_s: f64) -> Option<Self> {
        let end_s = episodes.iter().map(|episode| episode.end_s).fold(0.0, f64::max);
        if totals.is_empty() || end_s <= 0.0 {
            return None;
        }
        let slice_s = (end_s / float(SLICES)).max(tick_s);
        Some(Self { pages: pages(episodes), slices: slices(totals, slice_s, (from_s, end_s)), slice_s, tick_s })
    }

    /// What all pages tell of an age, side by side and slice by slice.
    pub(super) fn told(&self, age_s: f64) -> [Vec<Told>; SIDES] {
        [0, 1].map(|side| tell(&self.pages[side], self.slices.len(), age_s, self.tick_s, self.slice_s))
    }
}

/// The watched pages of each side, in address order.
fn pages(episodes: &[Episode]) -> [Vec<Page>; SIDES] {
    let mut rows: Vec<&Episode> = episodes.iter().collect();
    rows.sort_by(|a, b| a.key.cmp(&b.key).then(a.start_s.total_cmp(&b.start_s)).then(a.end_s.total_cmp(&b.end_s)));
    let mut pages = [Vec::new(), Vec::new()];
    for page in rows.chunk_by(|a, b| a.key == b.key && a.kind == b.kind) {
        let side = usize::from(page[0].kind != PageKind::Anon);
        pages[side].push(Page { weight: page[0].weight_bytes, spans: spans(page) });
    }
    pages
}

/// Sizes of both sides by slice. One in which no tick lies is like the one before.
fn slices(totals: &[(f64, [f64; SIDES])], slice_s: f64, (from_s, end_s): (f64, f64)) -> Vec<Slice> {
    let count = (index(end_s / slice_s) + 1).min(SLICES + 1);
    let mut sums = vec![(0.0, [0.0; SIDES], [0.0f64; SIDES]); count];
    for (t_s, total) in totals {
        // A tick tells of the time before it.
        let at = index((t_s / slice_s - 1e-9).max(0.0)).min(count - 1);
        sums[at].0 += 1.0;
        for (side, bytes) in total.iter().enumerate() {
            sums[at].1[side] += bytes;
            sums[at].2[side] = sums[at].2[side].max(*bytes);
        }
    }
    let mut before = Slice::default();
    let slice = |(at, (ticks, sum, highest)): (usize, (f64, [f64; SIDES], [f64; SIDES]))| {
        let start_s = slice_s * float(at);
        before.seconds = (end_s.min(start_s + slice_s) - start_s.max(from_s)).max(0.0);
        if ticks > 0.0 {
            (before.mean, before.highest) = (sum.map(|sum| sum / ticks), highest);
        }
        before
    };
    sums.into_iter().enumerate().map(slice).collect()
}

impl Run {
    /// What one age means; `None` where too little is known of it.
    fn point(&self, age_s: f64) -> Option<Point> {
        let Self { pages, slices, slice_s, tick_s } = self;
        let told = self.told(age_s);
        let (mut cold, mut back) = ([Band::default(); SIDES], [Band::default(); SIDES]);
        for side in 0..SIDES {
            let Some(weights) = Weights::of(&told[side], slices, side) else {
                // Nothing is known of a side that holds nothing.
                let holds = slices.iter().any(|slice| slice.mean[side] > 0.0) && !pages[side].is_empty();
                if holds {
                    return None;
                }
                continue;
            };
            (cold[side], back[side]) = weights.bands(&pages[side], age_s, *tick_s, *slice_s);
        }
        let kept = |slice: &Slice, at: usize, bytes: &[f64; SIDES]| -> f64 {
            let side = |side: usize| {
                let told = told[side].get(at).copied().unwrap_or_default();
                // Of what nothing is known, all is kept.
                if told.known > 0.0 { bytes[side] * (1.0 - told.cold / told.known).max(0.0) } else { bytes[side] }
            };
            if slice.seconds > 0.0 { side(0) + side(1) } else { 0.0 }
        };
        let (mut kept_s, mut seconds, mut peak) = (0.0, 0.0, 0.0f64);
        for (at, slice) in slices.iter().enumerate() {
            kept_s += kept(slice, at, &slice.mean) * slice.seconds;
            seconds += slice.seconds;
            peak = peak.max(kept(slice, at, &slice.highest));
        }
        Some(Point { age_s, cold, back, kept: kept_s / seconds.max(1e-9), kept_peak: peak })
    }
}

/// What all pages tell of an age, by slice.
fn tell(pages: &[Page], slices: usize, age_s: f64, tick_s: f64, slice_s: f64) -> Vec<Told> {
    let mut told = vec![Told::default(); slices];
    for page in pages {
        page.tell(age_s, tick_s, slice_s, |slice, some| {
            if let Some(told) = told.get_mut(slice) {
                told.cold += some.cold;
                told.known += some.known;
                told.back += some.back;
                told.busy += some.busy;
            }
        });
    }
    told
}

/// How much what was told in each slice counts.
struct Weights {
    /// By slice: bytes of the side for each byte that told, by the slice's part of the time; 0 where nothing was told.
    each: Vec<f64>,
    /// By slice: the ratios themselves.
    cold: Vec<f64>,
    back: Vec<f64>,
    /// The figures.
    sums: (f64, f64),
}

impl Weights {
    fn of(told: &[Told], slices: &[Slice], side: usize) -> Option<Self> {
        let knows = |(told, slice): &(&Told, &Slice)| told.known > 0.0 && slice.seconds > 0.0;
        let all: f64 = slices.iter().map(|slice| slice.seconds).sum();
        let known: f64 = told.iter().zip(slices).filter(knows).map(|(_, slice)| slice.seconds).sum();
        if known < SPEAKS * all || known <= 0.0 {
            return None;
        }
        let mut weights = Self { each: vec![], cold: vec![], back: vec![], sums: (0.0, 0.0) };
        for pair in told.iter().zip(slices) {
            let (told, slice) = pair;
            let usable = knows(&pair);
            let ratio = |value: f64| if usable { value / told.known } else { 0.0 };
            let part = slice.mean[side] * slice.seconds / known;
            weights.each.push(ratio(part));
            weights.cold.push(ratio(told.cold));
            weights.back.push(ratio(told.back));
            weights.sums.0 += part * ratio(told.cold);
            weights.sums.1 += part * ratio(told.back);
        }
        Some(weights)
    }

    /// Bytes that are cold and bytes a second that come back, with their intervals.
    fn bands(&self, pages: &[Page], age_s: f64, tick_s: f64, slice_s: f64) -> (Band, Band) {
        // What each page adds beyond what it would if it were like the others.
        let residual = |page: &Page| {
            let mut sums = [0.0; 2];
            page.tell(age_s, tick_s, slice_s, |slice, told| {
                if let Some(each) = self.each.get(slice) {
                    sums[0] += each * (told.cold - self.cold[slice] * told.known);
                    sums[1] += each * (told.back - self.back[slice] * told.known);
                }
            });
            sums
        };
        let residuals: Vec<[f64; 2]> = pages.iter().map(residual).collect();
        let count = float(pages.len().max(1));
        let weight = pages.iter().map(|page| page.weight).sum::<f64>() / count;
        // A page that stands for itself alone is no sample.
        let not_sampled = (1.0 - PAGE_BYTES / weight.max(1.0)).max(0.0);
        let half = |which: usize, one_page: f64| {
            let differences = residuals.windows(2).map(|pair| (pair[1][which] - pair[0][which]).powi(2));
            Z95 * (0.5 * (differences.sum::<f64>() + one_page.powi(2)) * not_sampled).sqrt()
        };
        // What no page showed, one more may have shown: idle all the time, or used once.
        let slices = self.each.iter().filter(|each| **each > 0.0);
        let often = slices.clone().sum::<f64>() / float(slices.count().max(1));
        let (cold, back) = self.sums;
        (Band::around(cold, half(0, weight)), Band::around(back, half(1, weight * often)))
    }
}

/// The rows of one page as spans of use and idleness. What does not follow on the row before begins another life.
fn spans(page: &[&Episode]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut since_s = f64::NEG_INFINITY;
    for (at, row) in page.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| page[before]);
        let from_s = match row.reuse_s {
            // It goes on from the row before.
            Some(reuse_s) if reuse_s <= 0.0 && row.touched => {
                before.filter(|before| before.touched).map_or(row.start_s, |before| before.end_s)
            }
            Some(reuse_s) if row.touched => row.start_s - reuse_s,
            _ => row.start_s,
        };
        let follows = before.is_some_and(|before| (before.end_s - from_s).abs() < JOINT_S);
        if !follows {
            // A reuse time, or idleness after a touch, without a row before: it was seen to be allocated.
            since_s = if row.reuse_s.is_some() { f64::NEG_INFINITY } else { from_s };
        }
        let span =
            Span { from_s, to_s: row.end_s, idle: !row.touched, to_use: false, since_s, weight: row.weight_bytes };
        match row.reuse_s {
            Some(reuse_s) if row.touched && reuse_s > 0.0 => {
                spans.push(Span { to_s: row.start_s, idle: true, to_use: true, ..span });
                spans.push(Span { from_s: row.start_s, ..span });
            }
            _ if row.touched => spans.push(span),
            _ => {
                let next = page.get(at + 1);
                let to_use = next.is_some_and(|next| {
                    next.touched && next.reuse_s.is_none() && (next.start_s - row.end_s).abs() < JOINT_S
                });
                spans.push(Span { to_use, ..span });
            }
        }
    }
    spans
}

/// Times that differ by less are the same: reuse times are written as single floats.
const JOINT_S: f64 = 0.01;

impl Page {
    /// What it tells of an age, slice by slice.
    fn tell(&self, age_s: f64, tick_s: f64, slice_s: f64, mut add: impl FnMut(usize, Told)) {
        for span in &self.spans {
            let known_from_s = span.from_s.max(span.since_s + age_s).min(span.to_s);
            let known = |seconds: f64| Told { known: span.weight * seconds, ..Told::default() };
            spread(known_from_s, span.to_s, slice_s, |slice, seconds| add(slice, known(seconds)));
            if !span.idle {
                let busy_from_s = (span.from_s + tick_s).max(known_from_s);
                let busy = |seconds: f64| Told { busy: span.weight * seconds, ..Told::default() };
                spread(busy_from_s, span.to_s, slice_s, |slice, seconds| add(slice, busy(seconds)));
                continue;
            }
            let cold_from_s = (span.from_s + age_s).max(known_from_s);
            let cold = |seconds: f64| Told { cold: span.weight * seconds, ..Told::default() };
            spread(cold_from_s, span.to_s, slice_s, |slice, seconds| add(slice, cold(seconds)));
            // Both uses lie somewhere in the tick that saw them, so the time between is known to a tick either way.
            let over = ((span.to_s - span.from_s - age_s) / (2.0 * tick_s) + 0.5).clamp(0.0, 1.0);
            if span.to_use && over > 0.0 {
                let back = Told { back: span.weight * over, ..Told::default() };
                add(index((span.to_s / slice_s - 1e-9).max(0.0)), back);
            }
        }
    }
}

/// The seconds of a time that lie in each slice.
fn spread(from_s: f64, to_s: f64, slice_s: f64, mut add: impl FnMut(usize, f64)) {
    let mut at_s = from_s.max(0.0);
    let mut slice = index(at_s / slice_s);
    while at_s < to_s && slice <= SLICES {
        let until_s = to_s.min(slice_s * float(slice + 1)).max(at_s);
        add(slice, until_s - at_s);
        at_s = until_s;
        slice += 1;
    }
}
