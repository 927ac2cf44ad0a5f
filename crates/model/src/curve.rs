//! The tide curve: memory kept against time lost, from one measured run.
//!
//! Problem: what would happen with less memory? Approach: evict whatever was idle for `T`, for every `T` at once, on
//! paper. Bytes idle for at least `T` would be gone; bytes touched again after having been idle for `T` would have to
//! come back, each at the price of a refault. What is kept is the working set of window `T`, so the same points show what
//! a memory of that size costs under LRU: an LRU list that holds what was used within `T` evicts just what is older
//! (the average eviction time of Hu et al., USENIX ATC'16).
//!
//! Where single pages were watched ([`lives`]) both are counted and the band is their sampling error. Where only
//! histograms are known ([`slopes`]) the rate at which memory comes back is the slope of the working set over its window
//! (Denning and Schwartz, CACM 1972), and the band is what the width of the bins leaves open.

mod limit;
mod lives;
pub mod regions;
mod slopes;

pub use limit::{Limits, Tightest};
pub use slopes::rate_of_return;

use serde::{Deserialize, Serialize};

use crate::PAGE_BYTES;
use crate::cohort::AgeRow;
use crate::episode::Episode;
use crate::kind::{Kind, PerKind};
use crate::phase::{Phase, PhaseKind};
use crate::units::float;

/// Ages, in seconds, at which the curve is taken where the record reaches so far: those of the histograms and beyond.
pub const CURVE_AGES_S: [f64; 14] = [1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 900.0];

/// A figure and the 95 % interval in which it lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// The estimate.
    pub at: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Band {
    /// An estimate that is not below zero, with the half-width of its interval.
    #[must_use]
    pub fn around(at: f64, half: f64) -> Self {
        Self { at, low: (at - half).max(0.0), high: at + half }
    }

    /// The sum of figures whose errors have nothing to do with each other: distances add in quadrature.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let at = self.at + other.at;
        let low = at - (self.at - self.low).hypot(other.at - other.low);
        Self { at, low: low.max(0.0), high: at + (self.high - self.at).hypot(other.high - other.at) }
    }

    /// The same in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { at: self.at * factor, low: self.low * factor, high: self.high * factor }
    }
}

/// What one threshold would mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Whatever was idle for so many seconds is gone.
    pub age_s: f64,
    /// Bytes gone, mean over the run.
    pub cold: PerKind<Band>,
    /// Bytes a second that come back, mean over the run.
    pub back: PerKind<Band>,
    /// Bytes kept, mean over the run.
    pub kept: f64,
    /// Bytes kept, at most: the highest tick, or the highest mean over a six-hundredth of a long run. A limit that high evicts
    /// hardly anything that was used within the age.
    pub kept_peak: f64,
}

/// What it costs that a page is evicted and comes back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RefaultCosts {
    /// Seconds for a page of swap, there and back: under a limit, a page that comes back drives another one out.
    pub swap_s: f64,
    /// Seconds for a page of a file.
    pub disk_s: f64,
}

impl Default for RefaultCosts {
    /// What `doctor --calibrate` measures on common machines: zram, and a solid-state disk.
    fn default() -> Self {
        Self { swap_s: 10e-6, disk_s: 100e-6 }
    }
}

/// What was measured of it on one machine; `None` = never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCosts {
    /// Seconds for a page of swap, there and back.
    pub swap_s: Option<f64>,
    /// Of these, seconds to page it out.
    #[serde(default)]
    pub swap_out_s: Option<f64>,
    /// Seconds for a page of a file.
    pub disk_s: Option<f64>,
    /// Seconds for a fault on a mapped file, where the kernel reads so much around it that this takes longer than usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub around_s: Option<f64>,
    /// How much that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub around_bytes: Option<u64>,
}

/// Seconds to page out a page to zram: half of the way there and back.
const USUAL_OUT_S: f64 = 5e-6;

impl MeasuredCosts {
    /// What to calculate with: the usual costs where none were measured.
    #[must_use]
    pub fn or_usual(&self) -> RefaultCosts {
        let usual = RefaultCosts::default();
        RefaultCosts { swap_s: self.swap_s.unwrap_or(usual.swap_s), disk_s: self.disk_s.unwrap_or(usual.disk_s) }
    }

    /// What to size a limit with, of a target with so many bytes of files: pages that come back far from each other each have the
    /// kernel read around them, and what that evicts comes back as well. A page that comes back is among what was read around the
    /// last one as often as that is a part of the files, if all places are equally likely.
    #[must_use]
    pub fn of_limits(&self, file_bytes: f64) -> RefaultCosts {
        let costs = self.or_usual();
        let (around_s, around_bytes) = (self.around_s.unwrap_or(0.0), self.around_bytes.map_or(0.0, float));
        let elsewhere = (1.0 - around_bytes / file_bytes.max(1.0)).max(0.0);
        RefaultCosts { disk_s: costs.disk_s.max(around_s * elsewhere), ..costs }
    }

    /// The same as [`Self::or_usual`] on a machine whose swap is on a disk, or on none: a page from there is taken to cost what
    /// one of a file does if it was not measured.
    #[must_use]
    pub fn with_swap(&self, on_disk: bool) -> RefaultCosts {
        let costs = self.or_usual();
        let swap_s = self.swap_s.unwrap_or(if on_disk { costs.disk_s } else { costs.swap_s });
        RefaultCosts { swap_s, ..costs }
    }

    /// Of [`Self::with_swap`], seconds to page a page of swap out: those are not a workload's where somebody else pages it out.
    #[must_use]
    pub fn swap_out_s(&self, on_disk: bool) -> f64 {
        let usual = if self.swap_s.is_none() && !on_disk { USUAL_OUT_S } else { 0.0 };
        self.swap_out_s.unwrap_or(usual).min(self.with_swap(on_disk).swap_s)
    }
}

/// From what the curve was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Watched pages: reuse times.
    Pages,
    /// Histograms of idle ages.
    Histograms,
}

/// The tide curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// From what it was taken.
    pub basis: Basis,
    /// Bytes held, mean over the run.
    pub total: PerKind<f64>,
    /// By ascending age.
    pub points: Vec<Point>,
}

impl Point {
    /// Bytes gone, anonymous and file.
    #[must_use]
    pub fn gone(&self) -> Band {
        self.cold.anon.plus(self.cold.file)
    }

    /// The point that lies so far of the way to another, in a straight line.
    fn towards(&self, other: &Self, part: f64) -> Self {
        let between = |a: f64, b: f64| a + part * (b - a);
        let band = |(a, b): (Band, Band)| Band {
            at: between(a.at, b.at),
            low: between(a.low, b.low),
            high: between(a.high, b.high),
        };
        Self {
            age_s: between(self.age_s, other.age_s),
            cold: self.cold.zip(other.cold).map(band),
            back: self.back.zip(other.back).map(band),
            kept: between(self.kept, other.kept),
            kept_peak: between(self.kept_peak, other.kept_peak),
        }
    }

    /// Time lost, as a share of the time that the program runs: every page that comes back is waited for, one after the
    /// other. A program of many threads that go on meanwhile loses less.
    #[must_use]
    pub fn slowdown(&self, costs: &RefaultCosts) -> Band {
        self.back.anon.times(costs.swap_s / PAGE_BYTES).plus(self.back.file.times(costs.disk_s / PAGE_BYTES))
    }
}

impl Curve {
    /// The curve of a record: of its watched pages if there are any, else of its histograms. `None` where neither is enough.
    #[must_use]
    pub fn of(ages: &[AgeRow], episodes: &[Episode], tick_s: f64) -> Option<Self> {
        Self::since(f64::NEG_INFINITY, ages, episodes, tick_s)
    }

    /// The same of the part of the run after `from_s`: a start that is not like the rest is left out.
    #[must_use]
    pub fn since(from_s: f64, ages: &[AgeRow], episodes: &[Episode], tick_s: f64) -> Option<Self> {
        let ages = &ages[ages.partition_point(|row| row.t_s <= from_s)..];
        lives::curve(from_s, ages, episodes, tick_s).or_else(|| slopes::curve(ages, &[(from_s, f64::INFINITY)]))
    }

    /// The curve of a run with these phases. Watched pages report first touches by themselves. Histograms do not, so that of
    /// them only those count that lie in a steady phase.
    #[must_use]
    pub fn of_phases(phases: &[Phase], ages: &[AgeRow], episodes: &[Episode], tick_s: f64) -> Option<Self> {
        let steady = phases.iter().filter(|phase| phase.kind == PhaseKind::Steady);
        let spans: Vec<(f64, f64)> = steady.map(|phase| (phase.from_s, phase.to_s)).collect();
        lives::curve(f64::NEG_INFINITY, ages, episodes, tick_s).or_else(|| slopes::curve(ages, &spans))
    }

    /// What any threshold would mean, between those that the curve knows; `None` outside of them.
    #[must_use]
    pub fn at(&self, age_s: f64) -> Option<Point> {
        let after = self.points.partition_point(|point| point.age_s < age_s);
        let next = self.points.get(after)?;
        let Some(before) = after.checked_sub(1).map(|before| &self.points[before]) else {
            return ((next.age_s - age_s).abs() < 1e-9).then_some(*next);
        };
        Some(before.towards(next, (age_s - before.age_s) / (next.age_s - before.age_s)))
    }

    /// The smallest memory, of what the curve knows, that costs at most that share of the time with all of its interval;
    /// anonymous and file memory, at its peak.
    #[must_use]
    pub fn within(&self, slowdown: f64, costs: &RefaultCosts) -> Option<&Point> {
        self.within_by(|band| band.high, slowdown, costs)
    }

    /// The same with only one end of the interval, or what is most likely of it.
    #[must_use]
    pub fn within_by(&self, of: fn(&Band) -> f64, slowdown: f64, costs: &RefaultCosts) -> Option<&Point> {
        self.points.iter().find(|point| of(&point.slowdown(costs)) <= slowdown)
    }
}

/// Bytes held at every tick, with its time.
#[must_use]
pub fn totals(ages: &[AgeRow]) -> Vec<(f64, PerKind<f64>)> {
    let ticks = ages.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits());
    let sum = |tick: &[AgeRow], kind: Kind| -> f64 {
        tick.iter().filter(|row| Kind::of(row.bin.anon) == kind).map(|row| row.bin.size.bytes).sum()
    };
    ticks.map(|tick| (tick[0].t_s, PerKind::from_fn(|kind| sum(tick, kind)))).collect()
}

/// The mean of values of each kind; 0 without any.
fn mean(values: impl Iterator<Item = PerKind<f64>>) -> PerKind<f64> {
    let (count, sum) = values.fold((0.0, PerKind::default()), |(count, sum), value| (count + 1.0, sum + value));
    sum.map(|sum: f64| sum / f64::max(count, 1.0))
}

#[cfg(test)]
pub(crate) mod tests;
