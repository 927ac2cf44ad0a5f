//! Workloads made of recordings, so that what was measured once can be tried with less memory.

use lowtide_model::PAGE_BYTES;
use lowtide_model::cohort::AgeRow;
use lowtide_model::curve::{Basis, Curve, totals};
use lowtide_model::episode::{Episode, PageKind};
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::stats;
use lowtide_model::units::rounded;

use super::load::{AccessPattern, Load, Part};

/// Seconds between two uses of memory that was used in every tick of the recording.
const AT_ONCE_S: f64 = 1.0;

/// A workload, of id 1, that repeats a recording. Each sampled page represents those it was drawn from and is used at the
/// recorded times. With histograms alone, memory follows the recorded size and is used as regularly as they allow. `None`
/// without either.
pub fn load(name: &str, ages: &[AgeRow], episodes: &[Episode], tick_s: f64) -> Option<Load> {
    let parts = if episodes.is_empty() { regular(ages)? } else { traces(episodes, tick_s) };
    (!parts.is_empty()).then(|| Load::new(1, name, parts))
}

/// Each watched page as a group of its own.
fn traces(episodes: &[Episode], tick_s: f64) -> Vec<Part> {
    let mut rows: Vec<&Episode> = episodes.iter().collect();
    rows.sort_by(|a, b| a.key.cmp(&b.key).then(a.start_s.total_cmp(&b.start_s)));
    let mut parts = Vec::new();
    for page in rows.chunk_by(|a, b| a.key == b.key && a.kind == b.kind) {
        let mut times = Vec::new();
        for row in page {
            if let Some(reuse_s) = row.reuse_s.filter(|_| times.is_empty()) {
                // When it was allocated.
                times.push(row.start_s - reuse_s);
            }
            if row.touched {
                let mut at_s = row.start_s;
                while at_s <= row.end_s {
                    times.push(at_s);
                    at_s += tick_s.max(1e-3);
                }
            } else if times.is_empty() {
                // It was there when watching began.
                times.push(row.start_s);
            }
        }
        let until_s = page.last().map_or(0.0, |row| row.end_s);
        let weight = page.last().map_or(0.0, |row| row.weight_bytes);
        let from_s = times.first().copied().unwrap_or(0.0);
        let uses = AccessPattern::Trace(vec![times]);
        let mut part = Part::new(Kind::of(page[0].kind == PageKind::Anon), uses, pages(weight), 1);
        // Another page takes its place in the sample then.
        (part.from_s, part.until_s) = (from_s, until_s + tick_s);
        parts.push(part);
    }
    parts
}

/// A share of a side's memory, and how often it is used; `None` = not again.
type Rhythm = (f64, Option<f64>);

/// Memory that is allocated and freed as recorded, used in the rhythms that the histograms show.
fn regular(ages: &[AgeRow]) -> Option<Vec<Part>> {
    let curve = Curve::of(ages, &[], 1.0)?;
    debug_assert_eq!(curve.basis, Basis::Histograms);
    let totals = totals(ages);
    let mut parts = Vec::new();
    for kind in Kind::ALL {
        let rhythms = rhythms(&curve, kind);
        for layer in layers(&totals, kind) {
            parts.extend(rhythms.iter().filter_map(|rhythm| part(kind, &layer, *rhythm)));
        }
    }
    Some(parts)
}

/// Rhythms such that the working sets of all windows are the recorded ones: of a working set whose slope falls from `a` to
/// `b` at window `T`, `T (a - b)` bytes are used every `T`.
fn rhythms(curve: &Curve, kind: Kind) -> Vec<Rhythm> {
    let total = curve.total[kind];
    if total <= 0.0 {
        return Vec::new();
    }
    let used = |at: usize| (total - curve.points[at].cold[kind].at).max(0.0);
    let slope = |at: usize| {
        let (from_s, from) = at.checked_sub(1).map_or((0.0, 0.0), |before| (curve.points[before].age_s, used(before)));
        (used(at) - from) / (curve.points[at].age_s - from_s)
    };
    // A slope that rises is noise: a working set grows ever slower with its window.
    let mut below = f64::INFINITY;
    let falling = (0..curve.points.len()).map(|at| {
        below = below.min(slope(at)).max(0.0);
        below
    });
    let slopes: Vec<f64> = falling.collect();
    let mut left = 1.0;
    let mut rhythms = Vec::new();
    for (at, point) in curve.points.iter().enumerate() {
        let after = slopes.get(at + 1).copied().unwrap_or(0.0);
        let share = (point.age_s * (slopes[at] - after) / total).min(left);
        left -= share;
        rhythms.push((share, Some(point.age_s.max(AT_ONCE_S))));
    }
    rhythms.push((left, None));
    rhythms
}

/// Memory that is there for some time.
struct Layer {
    bytes: f64,
    from_s: f64,
    until_s: f64,
}

/// Steps in which a side's size is followed, and seconds, at least, between two samples of it.
const STEPS: u32 = 16;
const SLICE_S: f64 = 5.0;

/// A side's size over time as layers, each there while the size reaches up to it.
fn layers(totals: &[(f64, PerKind<f64>)], kind: Kind) -> Vec<Layer> {
    let end_s = totals.last().map_or(0.0, |(t_s, _)| *t_s);
    let slice_s = (end_s / 120.0).max(SLICE_S);
    let mut slices: Vec<(f64, Vec<f64>)> = Vec::new();
    for (t_s, total) in totals {
        let from_s = (t_s / slice_s).floor() * slice_s;
        match slices.last_mut().filter(|(last_s, _)| (*last_s - from_s).abs() < 1e-9) {
            Some((_, sizes)) => sizes.push(total[kind]),
            None => slices.push((from_s, vec![total[kind]])),
        }
    }
    let sizes: Vec<(f64, f64)> =
        slices.into_iter().map(|(from_s, sizes)| (from_s, stats::mean(&sizes).unwrap_or(0.0))).collect();
    let most = sizes.iter().map(|(_, size)| *size).fold(0.0, f64::max);
    let bytes = most / f64::from(STEPS);
    let mut layers = Vec::new();
    for step in 0..STEPS {
        let reached = |size: f64| size >= bytes * (f64::from(step) + 0.5);
        let mut since = None;
        for (from_s, size) in sizes.iter().copied().chain([(f64::INFINITY, 0.0)]) {
            match since {
                None if bytes > 0.0 && reached(size) => since = Some(from_s),
                Some(begun_s) if !reached(size) => {
                    layers.push(Layer { bytes, from_s: begun_s, until_s: from_s });
                    since = None;
                }
                _ => {}
            }
        }
    }
    layers
}

/// Groups of a part, at most: enough that their uses are spread over time.
const GROUPS: u32 = 8;

fn part(kind: Kind, layer: &Layer, (share, every_s): Rhythm) -> Option<Part> {
    let all = pages(layer.bytes * share);
    let groups = all.min(GROUPS);
    // In turn rather than at random: the histograms show how long ago, and not by chance.
    let uses = every_s.map_or(AccessPattern::Idle, AccessPattern::Sweep);
    let part = Part::new(kind, uses, all.checked_div(groups)?, groups);
    Some(Part { from_s: layer.from_s, until_s: layer.until_s, ..part })
}

fn pages(bytes: f64) -> u32 {
    u32::try_from(rounded(bytes / PAGE_BYTES)).unwrap_or(u32::MAX)
}
