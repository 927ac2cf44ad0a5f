//! What a limit would cost: the curve once more, slice by slice of the run, as a limit bites only while more is in use.
//!
//! Within a slice, a list of least recently used pages that is as long as the limit holds just what was used within some age
//! (Hu et al., as in [`super`]): the age for which so much is kept. What was idle for longer comes back from outside. Where a
//! slice holds no more than the limit, nothing does.

use super::lives::{self, Exposure};
use super::{CURVE_AGES_S, RefaultCosts, totals};
use crate::PAGE_BYTES;
use crate::cohort::AgeRow;
use crate::episode::Episode;
use crate::kind::{Kind, PerKind};
use crate::units::float;

/// What one age would mean in one slice.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    age_s: f64,
    /// Bytes kept.
    kept: f64,
    /// Of them of files.
    file: f64,
    /// Bytes a second that come back.
    back: PerKind<f64>,
    /// Bytes that are used over and over.
    busy: f64,
}

/// A slice of the run.
#[derive(Debug, Clone, PartialEq)]
struct Slice {
    start_s: f64,
    seconds: f64,
    /// Bytes that it held at most.
    held: f64,
    /// Bytes of them that cannot be evicted: with less, the kernel kills.
    pinned: f64,
    /// By ascending age, and so by what is kept.
    levels: Vec<Level>,
}

/// What any limit would cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    slices: Vec<Slice>,
}

impl Limits {
    /// Of a record's watched pages; `None` where none were watched. Without swap anonymous memory stays, however idle it is.
    #[must_use]
    pub fn of(ages: &[AgeRow], episodes: &[Episode], tick_s: f64, swap: bool) -> Option<Self> {
        let totals = totals(ages);
        let run = lives::Run::of(&totals, f64::NEG_INFINITY, episodes, tick_s)?;
        let asked = CURVE_AGES_S.into_iter().filter(|age_s| *age_s >= tick_s);
        let exposures: Vec<(f64, PerKind<Vec<Exposure>>)> = asked.map(|age_s| (age_s, run.exposures(age_s))).collect();
        let slice = |(at, of): (usize, &lives::Slice)| {
            let level = |(age_s, exposures): &(f64, PerKind<Vec<Exposure>>)| {
                // Memory of unknown use is all kept, and nothing of it is refaulted.
                let share = |kind: Kind, get: fn(&Exposure) -> f64| {
                    let exposure = &exposures[kind][at];
                    let stays = kind == Kind::Anon && !swap;
                    if stays || exposure.known <= 0.0 { 0.0 } else { get(exposure) / exposure.known }
                };
                let kept = PerKind::from_fn(|kind| of.highest[kind] * (1.0 - share(kind, |of| of.cold)).max(0.0));
                let back = PerKind::from_fn(|kind| of.mean[kind] * share(kind, |of| of.back));
                let busy = PerKind::from_fn(|kind| of.mean[kind] * share(kind, |of| of.busy));
                Level { age_s: *age_s, kept: kept.total(), file: kept.file, back, busy: busy.total() }
            };
            let mut levels: Vec<Level> = exposures.iter().map(level).collect();
            // More is kept for longer, and less comes back; samples may say otherwise by a little.
            for at in 1..levels.len() {
                levels[at].kept = levels[at].kept.max(levels[at - 1].kept);
                levels[at].back = levels[at].back.zip(levels[at - 1].back).map(|(longer, shorter)| longer.min(shorter));
            }
            let pinned = if swap { 0.0 } else { of.highest.anon };
            let start_s = run.steps.slice_s * float(at);
            Slice { start_s, seconds: of.seconds, held: of.highest.total(), pinned, levels }
        };
        let slices: Vec<Slice> = run.slices.iter().enumerate().map(slice).filter(|slice| slice.seconds > 0.0).collect();
        (!slices.is_empty()).then_some(Self { slices })
    }

    /// The most anonymous and file memory that it held at a time, bytes.
    #[must_use]
    pub fn held(&self) -> f64 {
        self.slices.iter().map(|slice| slice.held).fold(0.0, f64::max)
    }

    /// Share of the time lost with so many bytes of anonymous and file memory.
    #[must_use]
    pub fn slowdown(&self, bytes: f64, costs: &RefaultCosts) -> f64 {
        self.slowdown_after(f64::NEG_INFINITY, bytes, costs)
    }

    /// The same of the slices that begin after that time.
    #[must_use]
    pub fn slowdown_after(&self, from_s: f64, bytes: f64, costs: &RefaultCosts) -> f64 {
        let slices = || self.slices.iter().filter(|slice| slice.start_s >= from_s);
        let seconds: f64 = slices().map(|slice| slice.seconds).sum();
        let lost: f64 = slices().map(|slice| slice.seconds * slice.lost(bytes, costs)).sum();
        lost / seconds.max(1e-9)
    }

    /// The least bytes with which no more than that share of the time is lost.
    #[must_use]
    pub fn least(&self, slowdown: f64, costs: &RefaultCosts) -> f64 {
        self.least_that(|bytes| self.slowdown(bytes, costs) <= slowdown)
    }

    /// The least bytes that suffice, where more always do if less does; what it held at most where nothing less is enough.
    #[must_use]
    pub fn least_that(&self, suffices: impl Fn(f64) -> bool) -> f64 {
        let (mut low, mut high) = (0.0, self.held());
        while high - low > PAGE_BYTES {
            let middle = 0.5 * (low + high);
            if suffices(middle) { high = middle } else { low = middle }
        }
        high
    }

    /// When it is that a limit costs most, or where nothing costs anything, that most is held.
    #[must_use]
    pub fn tightest(&self, bytes: f64, costs: &RefaultCosts) -> Option<Tightest> {
        let by = |slice: &&Slice| (slice.lost(bytes, costs), slice.held);
        let worst = self.slices.iter().max_by(|a, b| {
            let (a, b) = (by(a), by(b));
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        })?;
        let level = worst.levels.iter().rev().find(|level| level.kept <= bytes).or(worst.levels.first())?;
        Some(Tightest {
            from_s: worst.start_s,
            to_s: worst.start_s + worst.seconds,
            file_share: (level.file / level.kept.max(1.0)).clamp(0.0, 1.0),
        })
    }
}

/// Where a limit costs most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tightest {
    /// Its start, seconds since the start of the record.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// Share of file memory in what is kept then.
    pub file_share: f64,
}

impl Slice {
    /// Share of its time lost with so many bytes.
    fn lost(&self, bytes: f64, costs: &RefaultCosts) -> f64 {
        if bytes >= self.held {
            return 0.0;
        }
        if bytes < self.pinned {
            return f64::INFINITY;
        }
        let price = |back: PerKind<f64>| (back.anon * costs.swap_s + back.file * costs.disk_s) / PAGE_BYTES;
        let after = self.levels.partition_point(|level| level.kept <= bytes);
        let Some(before) = after.checked_sub(1).map(|before| &self.levels[before]) else {
            let Some(first) = self.levels.first() else { return 0.0 };
            // Of what is used over and over, neither frequency nor order is known: from first to last, each would be gone
            // when it is its turn. So all of it comes back once within the shortest age, at least, if there is less room.
            let over_and_over = if bytes < first.busy { first.busy / first.age_s } else { 0.0 };
            return price(first.back).max(over_and_over * costs.swap_s.max(costs.disk_s) / PAGE_BYTES);
        };
        let at = price(before.back);
        // What is idle for longer than any age is out without a price that is known.
        let Some(next) = self.levels.get(after) else { return at };
        let part = ((bytes - before.kept) / (next.kept - before.kept).max(1.0)).clamp(0.0, 1.0);
        let then = price(next.back);
        // It falls by so many percent a page, as a rule, and to nothing in a straight line.
        if at > 0.0 && then > 0.0 { at * (then / at).powf(part) } else { at + part * (then - at) }
    }
}

#[cfg(test)]
mod tests;
