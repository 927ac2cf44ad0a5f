//! The curve from watched pages: how long each lay idle, and whether it was used again.
//!
//! A page speaks for an age from when it has been watched for that long, or from its allocation if that was seen: when
//! that is depends on the hash that chose it and never on how it behaves. Shares of what speaks are multiplied by the sizes
//! that the target's accounts tell (a ratio estimator). Its error follows from the differences between neighbours in address
//! order, page by page, as in [`crate::cohort`]: one page's uses over the run are one sample, not many.

use super::{Band, Basis, CURVE_AGES_S, Curve, Point, SIDES, mean_total, totals};
use crate::PAGE;
use crate::cohort::AgeRow;
use crate::episode::{Episode, Kind};
use crate::stats::Z95;

/// Parts of the run of which the highest is told, at most; none is shorter than a tick.
const SLICES: usize = 600;
/// An age of which so small a part of the watched time speaks is left out.
const SPEAKS: f64 = 0.15;

/// What one page, or all of them, told of one age: byte-seconds, bytes that came back, and bytes that it stands for.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    cold: f64,
    known: f64,
    back: f64,
    weight: f64,
}

/// All that was told of one age on one side.
#[derive(Debug, Clone, Default)]
struct Age {
    pages: Vec<Told>,
    sum: Told,
    /// Cold and known byte-seconds by part of the run.
    slices: Vec<(f64, f64)>,
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

/// The curve; `None` where no pages were watched.
pub(super) fn curve(ages: &[AgeRow], episodes: &[Episode], tick_s: f64) -> Option<Curve> {
    let totals = totals(ages);
    let end_s = episodes.iter().map(|episode| episode.end_s).fold(0.0, f64::max);
    if totals.is_empty() || end_s <= 0.0 {
        return None;
    }
    let slice_s = (end_s / cast(SLICES)).max(tick_s);
    let told = tell(episodes, tick_s, slice_s);
    let total = [0, 1].map(|side| mean_total(&totals, side));
    let by_slice = sizes(&totals, slice_s);
    let watched = |side: usize| told[side][0].sum.known;
    let points = CURVE_AGES_S.iter().enumerate().filter(|(at, age_s)| {
        **age_s >= tick_s && (0..SIDES).all(|side| told[side][*at].sum.known >= SPEAKS * watched(side))
    });
    let points: Vec<Point> = points
        .map(|(at, age_s)| {
            let sides = [0, 1].map(|side| told[side][at].bands(total[side]));
            Point {
                age_s: *age_s,
                cold: sides.map(|(cold, _)| cold),
                back: sides.map(|(_, back)| back),
                kept: (0..SIDES).map(|side| (total[side] - sides[side].0.at).max(0.0)).sum(),
                kept_peak: kept_peak([&told[0][at], &told[1][at]], &by_slice),
            }
        })
        .collect();
    (!points.is_empty()).then_some(Curve { basis: Basis::Pages, total, points })
}

/// What each page tells of each age, by side.
fn tell(episodes: &[Episode], tick_s: f64, slice_s: f64) -> [Vec<Age>; SIDES] {
    let mut rows: Vec<&Episode> = episodes.iter().collect();
    rows.sort_by(|a, b| a.key.cmp(&b.key).then(a.start_s.total_cmp(&b.start_s)).then(a.end_s.total_cmp(&b.end_s)));
    let mut told: [Vec<Age>; SIDES] = [0, 1].map(|_| vec![Age::default(); CURVE_AGES_S.len()]);
    for page in rows.chunk_by(|a, b| a.key == b.key && a.kind == b.kind) {
        let side = usize::from(page[0].kind != Kind::Anon);
        let spans = spans(page);
        for (age_s, age) in CURVE_AGES_S.iter().zip(&mut told[side]) {
            let mut told = Told { weight: page[0].weight_bytes, ..Told::default() };
            for span in &spans {
                span.tell(*age_s, tick_s, &mut told, |from_s, to_s, cold, known| {
                    age.spread(from_s, to_s, slice_s, (cold, known));
                });
            }
            age.sum = Told {
                cold: age.sum.cold + told.cold,
                known: age.sum.known + told.known,
                back: age.sum.back + told.back,
                weight: age.sum.weight + told.weight,
            };
            age.pages.push(told);
        }
    }
    told
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

impl Span {
    /// What it tells of an age.
    fn tell(&self, age_s: f64, tick_s: f64, told: &mut Told, mut spread: impl FnMut(f64, f64, f64, f64)) {
        let known_from_s = self.from_s.max(self.since_s + age_s).min(self.to_s);
        told.known += self.weight * (self.to_s - known_from_s);
        spread(known_from_s, self.to_s, 0.0, self.weight);
        if !self.idle {
            return;
        }
        let cold_from_s = (self.from_s + age_s).clamp(known_from_s, self.to_s.max(known_from_s));
        told.cold += self.weight * (self.to_s - cold_from_s);
        spread(cold_from_s, self.to_s, self.weight, 0.0);
        if self.to_use {
            // Both uses lie somewhere in the tick that saw them, so the time between is known to a tick either way.
            let over = (self.to_s - self.from_s - age_s) / (2.0 * tick_s) + 0.5;
            told.back += self.weight * over.clamp(0.0, 1.0);
        }
    }
}

impl Age {
    /// Adds bytes that were cold and known from one time to another to the parts of the run.
    fn spread(&mut self, from_s: f64, to_s: f64, slice_s: f64, (cold, known): (f64, f64)) {
        let mut at_s = from_s.max(0.0);
        let mut slice = whole(at_s / slice_s);
        while at_s < to_s && slice <= SLICES {
            let until_s = to_s.min(slice_s * cast(slice + 1)).max(at_s);
            if self.slices.len() <= slice {
                self.slices.resize(slice + 1, (0.0, 0.0));
            }
            self.slices[slice].0 += cold * (until_s - at_s);
            self.slices[slice].1 += known * (until_s - at_s);
            at_s = until_s;
            slice += 1;
        }
    }

    /// Bytes that are cold and bytes a second that come back, of a side of that size.
    fn bands(&self, total: f64) -> (Band, Band) {
        if self.sum.known <= 0.0 {
            return (Band::around(0.0, 0.0), Band::around(0.0, 0.0));
        }
        let band = |value: fn(&Told) -> f64, one_page: f64| {
            let ratio = value(&self.sum) / self.sum.known;
            Band::around(total * ratio, total * self.half(value, ratio, one_page))
        };
        // What no page showed, one more may have shown: idle all the time, or used once.
        let count = cast(self.pages.len());
        (band(|told| told.cold, self.sum.known / count), band(|told| told.back, self.sum.weight / count))
    }

    /// Half of the 95 % interval of a ratio.
    fn half(&self, value: fn(&Told) -> f64, ratio: f64, one_page: f64) -> f64 {
        let residual = |told: &Told| value(told) - ratio * told.known;
        let differences = self.pages.windows(2).map(|pair| (residual(&pair[1]) - residual(&pair[0])).powi(2));
        let within = 0.5 * (differences.sum::<f64>() + one_page.powi(2));
        // A page that stands for itself alone is no sample.
        #[expect(clippy::cast_precision_loss, reason = "4096")]
        let not_sampled = (1.0 - PAGE as f64 * cast(self.pages.len()) / self.sum.weight).max(0.0);
        Z95 * (within * not_sampled).sqrt() / self.sum.known
    }
}

/// Sizes of both sides by part of the run: the highest in each.
fn sizes(totals: &[(f64, [f64; SIDES])], slice_s: f64) -> Vec<[f64; SIDES]> {
    let mut list: Vec<[f64; SIDES]> = Vec::new();
    for (t_s, total) in totals {
        // A tick tells of the time before it.
        let slice = whole((t_s / slice_s - 1e-9).max(0.0)).min(SLICES);
        if list.len() <= slice {
            list.resize(slice + 1, [0.0; SIDES]);
        }
        for (most, bytes) in list[slice].iter_mut().zip(total) {
            *most = most.max(*bytes);
        }
    }
    list
}

fn kept_peak(ages: [&Age; SIDES], sizes: &[[f64; SIDES]]) -> f64 {
    let kept = |(slice, size): (usize, &[f64; SIDES])| -> f64 {
        let side = |side: usize| {
            let (cold, known) = ages[side].slices.get(slice).copied().unwrap_or_default();
            // Of what nothing is known, all is kept.
            if known > 0.0 { size[side] * (1.0 - cold / known) } else { size[side] }
        };
        side(0) + side(1)
    };
    sizes.iter().enumerate().map(kept).fold(0.0, f64::max)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn cast(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and far below 2^52")]
fn whole(value: f64) -> usize {
    value.floor() as usize
}
