//! The curve from watched pages: how long each lay idle, and whether it was used again.
//!
//! A page counts for an age from when it has been watched for that long, or from its allocation if that was observed: when
//! that is depends on the hash that chose it and never on how it behaves. More pages count at some times than at others, so
//! shares are taken slice by slice of the run, each multiplied by the size that the target's accounts have (a separate
//! ratio estimator). Its error follows from the differences between neighbours in address order, page by page, as in
//! [`crate::cohort`]: one page's uses over the run are one sample, not many.

use super::{Band, Basis, CURVE_AGES_S, Curve, Point, mean, totals};
use crate::PAGE_BYTES;
use crate::cohort::AgeRow;
use crate::episode::{Episode, PageKind};
use crate::kind::{Kind, PerKind};
use crate::stats::Z95;
use crate::units::{float, index};

/// Slices of the run, at most; none is shorter than a tick.
const SLICES: usize = 600;
/// An age of which nothing is known for most of the run is left out.
const SPEAKS: f64 = 0.5;

/// What the pages of one slice say of one age: byte-seconds, and bytes that came back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Exposure {
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
    /// Bytes held: mean and highest.
    pub(super) mean: PerKind<f64>,
    pub(super) highest: PerKind<f64>,
}

/// How finely time is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    pub(super) tick_s: f64,
    pub(super) slice_s: f64,
}

/// A page that was watched.
struct Page {
    /// Bytes that it stood for in the end.
    bytes: f64,
    /// What it counted then beside other pages at the same time.
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
    /// Since when the page has been watched; an allocation that was observed is as good as watching from ever.
    since_s: f64,
    /// Beside that of other pages at the same time.
    weight: f64,
}

/// The curve of the run after `from_s`; `None` where no pages were watched. `ages` are those of that part.
pub(super) fn curve(from_s: f64, ages: &[AgeRow], episodes: &[Episode], tick_s: f64) -> Option<Curve> {
    let totals = totals(ages);
    let run = Run::of(&totals, from_s, episodes, tick_s)?;
    let asked = CURVE_AGES_S.iter().filter(|age_s| **age_s >= tick_s);
    let points: Vec<Point> = asked.filter_map(|age_s| run.point(*age_s)).collect();
    let total = mean(totals.iter().map(|(_, total)| *total));
    (!points.is_empty()).then_some(Curve { basis: Basis::Pages, total, points })
}

/// A run, cut into slices, with the pages that were watched in it.
pub(super) struct Run {
    pages: PerKind<Vec<Page>>,
    pub(super) slices: Vec<Slice>,
    pub(super) steps: Steps,
}

impl Run {
    /// Of sizes and pages; `None` where nothing was watched.
    pub(super) fn of(totals: &[(f64, PerKind<f64>)], from_s: f64, episodes: &[Episode], tick_s: f64) -> Option<Self> {
        let end_s = episodes.iter().map(|episode| episode.end_s).fold(0.0, f64::max);
        if totals.is_empty() || end_s <= 0.0 {
            return None;
        }
        let slice_s = (end_s / float(SLICES)).max(tick_s);
        let slices = slices(totals, slice_s, (from_s, end_s));
        Some(Self { pages: pages(episodes), slices, steps: Steps { tick_s, slice_s } })
    }

    /// What all pages say of an age, slice by slice.
    pub(super) fn exposures(&self, age_s: f64) -> PerKind<Vec<Exposure>> {
        PerKind::from_fn(|kind| {
            let mut sums = vec![Exposure::default(); self.slices.len()];
            for page in &self.pages[kind] {
                page.expose(age_s, self.steps, |slice, some| {
                    if let Some(sum) = sums.get_mut(slice) {
                        sum.cold += some.cold;
                        sum.known += some.known;
                        sum.back += some.back;
                        sum.busy += some.busy;
                    }
                });
            }
            sums
        })
    }

    /// What one age means; `None` where too little is known of it.
    fn point(&self, age_s: f64) -> Option<Point> {
        let exposures = self.exposures(age_s);
        let (mut cold, mut back) = (PerKind::<Band>::default(), PerKind::<Band>::default());
        for kind in Kind::ALL {
            let pages = &self.pages[kind];
            if let Some(weights) = Weights::of(&exposures[kind], &self.slices, kind) {
                (cold[kind], back[kind]) = weights.bands(pages, age_s, self.steps);
            } else if !pages.is_empty() && self.slices.iter().any(|slice| slice.mean[kind] > 0.0) {
                return None;
            }
        }
        let kept = |at: usize, bytes: &PerKind<f64>| -> f64 {
            let of = |kind: Kind| {
                let exposure = exposures[kind][at];
                // Of what nothing is known, all is kept.
                let cold = if exposure.known > 0.0 { exposure.cold / exposure.known } else { 0.0 };
                bytes[kind] * (1.0 - cold).max(0.0)
            };
            of(Kind::Anon) + of(Kind::File)
        };
        let (mut kept_s, mut seconds, mut kept_peak) = (0.0, 0.0, 0.0f64);
        for (at, slice) in self.slices.iter().enumerate().filter(|(_, slice)| slice.seconds > 0.0) {
            kept_s += kept(at, &slice.mean) * slice.seconds;
            seconds += slice.seconds;
            kept_peak = kept_peak.max(kept(at, &slice.highest));
        }
        Some(Point { age_s, cold, back, kept: kept_s / seconds.max(1e-9), kept_peak })
    }
}

/// The watched pages, in address order.
fn pages(episodes: &[Episode]) -> PerKind<Vec<Page>> {
    let mut rows: Vec<&Episode> = episodes.iter().collect();
    rows.sort_by(|a, b| a.key.cmp(&b.key).then(a.start_s.total_cmp(&b.start_s)).then(a.end_s.total_cmp(&b.end_s)));
    let mut pages = PerKind::<Vec<Page>>::default();
    for page in rows.chunk_by(|a, b| a.key == b.key && a.kind == b.kind) {
        let kind = Kind::of(page[0].kind == PageKind::Anon);
        let last = page[page.len() - 1];
        pages[kind].push(Page { bytes: last.weight_bytes, weight: last.relative_weight(), spans: spans(page) });
    }
    pages
}

/// Sizes by slice. One in which no tick lies is like the one before.
fn slices(totals: &[(f64, PerKind<f64>)], slice_s: f64, (from_s, end_s): (f64, f64)) -> Vec<Slice> {
    let count = (index(end_s / slice_s) + 1).min(SLICES + 1);
    let mut sums = vec![(0.0, PerKind::<f64>::default(), PerKind::<f64>::default()); count];
    for (t_s, total) in totals {
        // A tick reports the time before it.
        let (ticks, sum, highest) = &mut sums[index(t_s / slice_s - 1e-9).min(count - 1)];
        *ticks += 1.0;
        *sum += *total;
        *highest = highest.zip(*total).map(|(one, other)| one.max(other));
    }
    let mut before = Slice::default();
    let slice = |(at, (ticks, sum, highest)): (usize, (f64, PerKind<f64>, PerKind<f64>))| {
        let start_s = slice_s * float(at);
        before.seconds = (end_s.min(start_s + slice_s) - start_s.max(from_s)).max(0.0);
        if ticks > 0.0 {
            (before.mean, before.highest) = (sum.map(|sum| sum / ticks), highest);
        }
        before
    };
    sums.into_iter().enumerate().map(slice).collect()
}

/// How much what is known of each slice counts.
struct Weights {
    /// By slice: bytes held for each byte known of, by the slice's part of the time; 0 where nothing is known.
    each: Vec<f64>,
    /// By slice: the ratios themselves.
    cold: Vec<f64>,
    back: Vec<f64>,
    /// The sums over the run.
    sum_cold: f64,
    sum_back: f64,
}

impl Weights {
    fn of(exposures: &[Exposure], slices: &[Slice], kind: Kind) -> Option<Self> {
        let knows = |exposure: &Exposure, slice: &Slice| exposure.known > 0.0 && slice.seconds > 0.0;
        let pairs = || exposures.iter().zip(slices);
        let all: f64 = slices.iter().map(|slice| slice.seconds).sum();
        let known: f64 =
            pairs().filter(|(exposure, slice)| knows(exposure, slice)).map(|(_, slice)| slice.seconds).sum();
        if known < SPEAKS * all || known <= 0.0 {
            return None;
        }
        let mut weights = Self { each: vec![], cold: vec![], back: vec![], sum_cold: 0.0, sum_back: 0.0 };
        for (exposure, slice) in pairs() {
            let usable = knows(exposure, slice);
            let ratio = |value: f64| if usable { value / exposure.known } else { 0.0 };
            let part = slice.mean[kind] * slice.seconds / known;
            weights.each.push(ratio(part));
            weights.cold.push(ratio(exposure.cold));
            weights.back.push(ratio(exposure.back));
            weights.sum_cold += part * ratio(exposure.cold);
            weights.sum_back += part * ratio(exposure.back);
        }
        Some(weights)
    }

    /// Bytes that are cold and bytes a second that come back, with their intervals.
    fn bands(&self, pages: &[Page], age_s: f64, steps: Steps) -> (Band, Band) {
        // What each page adds beyond what it would if it were like the others.
        let residual = |page: &Page| {
            let (mut cold, mut back) = (0.0, 0.0);
            page.expose(age_s, steps, |slice, exposure| {
                if let Some(each) = self.each.get(slice) {
                    cold += each * (exposure.cold - self.cold[slice] * exposure.known);
                    back += each * (exposure.back - self.back[slice] * exposure.known);
                }
            });
            (cold, back)
        };
        let (cold, back): (Vec<f64>, Vec<f64>) = pages.iter().map(residual).unzip();
        let mean = |of: fn(&Page) -> f64| pages.iter().map(of).sum::<f64>() / float(pages.len().max(1));
        let (bytes, weight) = (mean(|page| page.bytes), mean(|page| page.weight));
        // A page that stands for itself alone is no sample.
        let not_sampled = (1.0 - PAGE_BYTES / bytes.max(1.0)).max(0.0);
        let half = |residuals: &[f64], one_page: f64| {
            let differences = residuals.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
            Z95 * (0.5 * (differences.sum::<f64>() + one_page.powi(2)) * not_sampled).sqrt()
        };
        // What no page showed, one more may have shown: idle all the time, or used once.
        let slices = self.each.iter().filter(|each| **each > 0.0);
        let often = slices.clone().sum::<f64>() / float(slices.count().max(1));
        (Band::around(self.sum_cold, half(&cold, bytes)), Band::around(self.sum_back, half(&back, weight * often)))
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
            // A reuse time, or idleness after a touch, without a row before: its allocation was observed.
            since_s = if row.reuse_s.is_some() { f64::NEG_INFINITY } else { from_s };
        }
        let span =
            Span { from_s, to_s: row.end_s, idle: !row.touched, to_use: false, since_s, weight: row.relative_weight() };
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
    /// What it says of an age, slice by slice.
    fn expose(&self, age_s: f64, Steps { tick_s, slice_s }: Steps, mut add: impl FnMut(usize, Exposure)) {
        for span in &self.spans {
            let known_from_s = span.from_s.max(span.since_s + age_s).min(span.to_s);
            let known = |seconds: f64| Exposure { known: span.weight * seconds, ..Exposure::default() };
            spread(known_from_s, span.to_s, slice_s, |slice, seconds| add(slice, known(seconds)));
            if !span.idle {
                let busy_from_s = (span.from_s + tick_s).max(known_from_s);
                let busy = |seconds: f64| Exposure { busy: span.weight * seconds, ..Exposure::default() };
                spread(busy_from_s, span.to_s, slice_s, |slice, seconds| add(slice, busy(seconds)));
                continue;
            }
            let cold_from_s = (span.from_s + age_s).max(known_from_s);
            let cold = |seconds: f64| Exposure { cold: span.weight * seconds, ..Exposure::default() };
            spread(cold_from_s, span.to_s, slice_s, |slice, seconds| add(slice, cold(seconds)));
            // Both uses lie somewhere in the tick that sampled them, so the time between is known to a tick either way.
            let over = ((span.to_s - span.from_s - age_s) / (2.0 * tick_s) + 0.5).clamp(0.0, 1.0);
            if span.to_use && over > 0.0 {
                let back = Exposure { back: span.weight * over, ..Exposure::default() };
                add(index(span.to_s / slice_s - 1e-9), back);
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
