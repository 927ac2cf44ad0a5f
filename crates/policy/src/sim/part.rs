//! Parts of a workload's memory, and when they are used.

use lowtide_model::kind::Kind;
use lowtide_model::random::Random;

/// When the groups of a part are used.
#[derive(Debug, Clone, PartialEq)]
pub enum AccessPattern {
    /// Each group by itself, at random, so many seconds apart on average.
    Steady(f64),
    /// All groups one after the other, over and over; seconds for one sweep.
    Sweep(f64),
    /// As steady, but the first group is used every so many seconds, the second half as often, the third a third.
    Zipf(f64),
    /// Once, when it is allocated.
    Idle,
    /// At these times, by group, ascending: a recording.
    Trace(Vec<Vec<f64>>),
}

/// A part of a workload's memory, in groups of equal size.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// What backs it.
    pub kind: Kind,
    /// When its groups are used.
    pub uses: AccessPattern,
    /// Pages of a group.
    pub group_pages: u32,
    /// Groups.
    pub groups: u32,
    /// How far its pages can be compressed: 3 = to a third.
    pub ratio: f64,
    /// When it is allocated, seconds of the workload's clock.
    pub from_s: f64,
    /// Seconds over which it is allocated.
    pub grow_s: f64,
    /// When its use ends.
    pub idle_after_s: f64,
    /// When it is freed.
    pub until_s: f64,
    /// It is allocated again so long after its allocation, if freed by then; infinite = never.
    pub again_s: f64,
    /// Its first group among those of the workload.
    pub(super) first: usize,
}

impl Part {
    /// A part that is there for the entire run.
    pub fn new(kind: Kind, uses: AccessPattern, group_pages: u32, groups: u32) -> Self {
        let never = f64::INFINITY;
        Self {
            kind,
            uses,
            group_pages,
            groups,
            ratio: 3.0,
            from_s: 0.0,
            grow_s: 0.0,
            idle_after_s: never,
            until_s: never,
            again_s: never,
            first: 0,
        }
    }

    /// Shifts all its times.
    pub(super) fn shift(&mut self, by_s: f64) {
        for at_s in [&mut self.from_s, &mut self.idle_after_s, &mut self.until_s] {
            *at_s += by_s;
        }
    }

    /// When a group is used for the first time, which allocates it.
    pub(super) fn first_s(&self, group: u32) -> f64 {
        match &self.uses {
            AccessPattern::Trace(times) => first(times.get(place(group))),
            _ => self.from_s + self.grow_s * f64::from(group) / f64::from(self.groups.max(1)),
        }
    }

    /// When a group is used next after `now_s`.
    pub(super) fn next_s(&self, group: u32, now_s: f64, random: &mut Random) -> f64 {
        let exponential = |mean_s: f64, random: &mut Random| -mean_s * (1.0 - random.chance()).ln();
        let next_s = match &self.uses {
            AccessPattern::Steady(every_s) => now_s + exponential(*every_s, random),
            AccessPattern::Zipf(every_s) => now_s + exponential(every_s * f64::from(group + 1), random),
            AccessPattern::Sweep(period_s) => {
                let phase = self.from_s + period_s * f64::from(group) / f64::from(self.groups.max(1));
                let next_s = phase + (((now_s - phase) / period_s).floor() + 1.0) * period_s;
                // Rounding must not stop it.
                if next_s > now_s { next_s } else { next_s + period_s }
            }
            AccessPattern::Idle => f64::INFINITY,
            AccessPattern::Trace(times) => times.get(place(group)).map_or(f64::INFINITY, |times| {
                times.get(times.partition_point(|time| *time <= now_s)).copied().unwrap_or(f64::INFINITY)
            }),
        };
        if next_s < self.idle_after_s { next_s } else { f64::INFINITY }
    }
}

/// A number of groups as an index.
pub(super) fn place(groups: u32) -> usize {
    usize::try_from(groups).unwrap_or(usize::MAX)
}

pub(super) fn number(place: usize) -> u64 {
    u64::try_from(place).unwrap_or(u64::MAX)
}

fn first(times: Option<&Vec<f64>>) -> f64 {
    times.and_then(|times| times.first()).copied().unwrap_or(f64::INFINITY)
}
