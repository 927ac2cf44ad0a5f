//! How much is taken of cold memory at a turn, by feedback: what it costs is measured, and what it could cost is bounded.
//!
//! Problem: a prediction of what will be refaulted is wrong wherever the use changes. Approach: start with a small share of what
//! is cold and double it every second while the measured cost stays under a quarter of what is allowed, halve it above. A cost
//! that has not come yet cannot be measured, so it is bounded too: each second that a workload runs earns a credit, and what is
//! out never costs more than that credit, should all of it be refaulted at once. A workload that uses its memory in cycles of
//! any length, and is found out only when its memory is refaulted, loses no more than the rate of that credit.

use lowtide_model::PAGE_BYTES;
use lowtide_model::kind::{Kind, PerKind};
use serde::{Deserialize, Serialize};

use super::losses::Losses;
use crate::machine::{Brake, Observation, WorkloadState, per_kind};
use crate::saved::Resume;

/// Share of cold memory that is taken in the first second, and the least in any other.
const FIRST_SHARE: f64 = 0.02;
const LEAST_SHARE: f64 = 0.001;
/// Part of the allowance below which more is taken.
const CALM: f64 = 0.25;
/// The cost is a mean over the last seconds, half of it over so many.
const COST_S: f64 = 3.0;
/// Credit of a second, as a multiple of the slowdown that the brakes allow.
const CREDIT: f64 = 2.5;
/// Credit that a workload has from the start, seconds of it.
const ADVANCE_S: f64 = 10.0;
/// A minute that cost more than the brakes allow halves the credit of a second; so long without one doubles it, seconds.
const FORGIVEN_S: f64 = 300.0;
/// The least part of the credit that is left.
const LEAST_TRUST: f64 = 0.125;
const MINUTE_S: f64 = 60.0;

/// Lost time over elapsed time, both decaying.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    elapsed_s: f64,
    lost_s: f64,
}

impl Recent {
    fn add(&mut self, elapsed_s: f64, lost_s: f64, half_s: f64) {
        let kept = 0.5f64.powf(elapsed_s / half_s);
        *self = Self { elapsed_s: self.elapsed_s * kept + elapsed_s, lost_s: self.lost_s * kept + lost_s };
    }

    fn share(&self) -> f64 {
        if self.elapsed_s > 0.0 { self.lost_s / self.elapsed_s } else { 0.0 }
    }
}

/// What is remembered of one target.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pace {
    losses: Losses,
    /// When ages were last known.
    #[serde(skip)]
    ages_s: Option<f64>,
    #[serde(skip)]
    cost: Recent,
    /// It costs more than is allowed now.
    #[serde(skip)]
    is_dear: bool,
    /// What held it back when it was last asked.
    #[serde(skip)]
    pub(super) held: Option<Brake>,
    /// Share of cold memory that is taken in a second.
    share: f64,
    /// Seconds that may be lost if all that is out is refaulted.
    credit_s: f64,
    /// Part of the credit of a second that is given.
    trust: f64,
    /// Seconds since trust was last changed, and seconds lost in the current minute.
    #[serde(skip)]
    since_s: f64,
    #[serde(skip)]
    minute: Recent,
    /// It was found to cost too much.
    #[serde(skip)]
    is_bad: bool,
    /// Bytes that were evicted on request and not refaulted.
    out: PerKind<f64>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            losses: Losses::default(),
            ages_s: None,
            cost: Recent::default(),
            is_dear: false,
            held: None,
            share: FIRST_SHARE,
            credit_s: 0.0,
            trust: 1.0,
            since_s: 0.0,
            minute: Recent::default(),
            is_bad: false,
            out: PerKind::default(),
        }
    }
}

/// Begins with the first share again: what was refaulted in between was not observed.
impl Resume for Pace {
    fn resume(&mut self, _: f64) -> bool {
        self.share = FIRST_SHARE;
        let known = |bytes: f64| bytes.is_finite() && bytes >= 0.0;
        known(self.credit_s)
            && self.out.iter().all(|(_, bytes)| known(*bytes))
            && (LEAST_TRUST..=1.0).contains(&self.trust)
            && self.losses.is_sound()
    }
}

impl Pace {
    /// Takes in a reading of the target, of whose time a share may be lost, and another at most.
    pub(super) fn observe(&mut self, (allowed, most): (f64, f64), target: &WorkloadState, frame: &Observation) {
        let (elapsed_s, lost_s) = self.losses.observe(target, frame);
        if self.credit_s <= 0.0 && self.out.total() <= 0.0 {
            self.credit_s = CREDIT * most * ADVANCE_S;
        }
        self.cost.add(elapsed_s, lost_s, COST_S);
        self.judge_minute(most, elapsed_s, lost_s);
        self.credit_s = (self.credit_s + CREDIT * self.trust * most * elapsed_s - lost_s).max(0.0);
        let (evicted, refaulted) = (frame.evicted(target.id), target.refaults.map(|pages| pages * PAGE_BYTES));
        self.out = PerKind::from_fn(|kind| (self.out[kind] + evicted[kind] - refaulted[kind]).max(0.0));
        self.out.anon = self.out.anon.min(target.swapped);
        let factor = 2f64.powf(elapsed_s);
        self.share = if self.cost.share() < CALM * allowed { self.share * factor } else { self.share / factor };
        self.share = self.share.clamp(LEAST_SHARE, 1.0);
        self.is_dear = self.cost.share() > allowed;
    }

    /// Whether this minute cost too much, and what follows.
    fn judge_minute(&mut self, most: f64, elapsed_s: f64, lost_s: f64) {
        self.minute.elapsed_s += elapsed_s;
        self.minute.lost_s += lost_s;
        self.since_s += elapsed_s;
        if self.minute.lost_s > most * MINUTE_S && !self.is_bad {
            (self.trust, self.since_s, self.is_bad) = ((0.5 * self.trust).max(LEAST_TRUST), 0.0, true);
        } else if self.since_s > FORGIVEN_S {
            (self.trust, self.since_s) = ((2.0 * self.trust).min(1.0), 0.0);
        }
        if self.minute.elapsed_s >= MINUTE_S {
            (self.minute, self.is_bad) = (Recent::default(), false);
        }
    }

    /// Whether no minute of late cost too much.
    pub(super) fn is_trusted(&self) -> bool {
        self.trust >= 1.0
    }

    /// Bytes to take now of those that are cold, files first.
    pub(super) fn take(&mut self, cold: PerKind<f64>, frame: &Observation) -> PerKind<f64> {
        let elapsed_s = self.ages_s.replace(frame.now_s).map_or(1.0, |ages_s| frame.now_s - ages_s);
        let share = 1.0 - (1.0 - self.share).powf(elapsed_s.clamp(0.0, MINUTE_S));
        let byte_s = per_kind(&frame.costs).map(|cost_s| self.losses.price() * cost_s.max(1e-9) / PAGE_BYTES);
        let credit_s = if self.is_dear { 0.0 } else { self.credit_s };
        let mut left_s = credit_s - self.out.zip(byte_s).map(|(bytes, cost_s)| bytes * cost_s).total();
        let mut taken = PerKind::default();
        for kind in [Kind::File, Kind::Anon] {
            taken[kind] = (share * cold[kind]).min(left_s / byte_s[kind]).max(0.0);
            left_s -= taken[kind] * byte_s[kind];
        }
        let nothing = cold.total() >= PAGE_BYTES && taken.total() < PAGE_BYTES;
        self.held = nothing.then_some(if self.is_dear { Brake::Slowdown } else { Brake::Credit });
        taken
    }
}
