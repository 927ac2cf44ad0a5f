//! How much is taken of cold memory at a turn, by feedback: what it costs is measured, and what it could cost is bounded.
//!
//! Problem: a prediction of what will be refaulted is wrong wherever the use changes. Approach: start with a small share of what
//! is cold and double it every second while something is out and the measured cost stays under a quarter of what is allowed,
//! halve it above. A cost that has not come yet cannot be measured, so it is bounded too: each second that a workload runs earns
//! a credit, and what is out never costs more than that credit, should all of it be refaulted at once. A workload that uses its
//! memory in cycles of any length, and is found out only when its memory is refaulted, loses no more than the rate of that
//! credit.

use lowtide_model::PAGE_BYTES;
use lowtide_model::kind::{Kind, PerKind};
use serde::{Deserialize, Serialize};

use super::losses::Lost;
use super::mean::Mean;
use crate::machine::{Brake, Observation};
use crate::saved::Resume;
use crate::worth::Worth;

/// Share of cold memory that is taken in the first second, and the least in any other.
const FIRST_SHARE: f64 = 0.02;
const LEAST_SHARE: f64 = 0.001;
/// Part of what the brakes allow below which more is taken.
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

/// What is remembered of one target.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pace {
    /// When ages were last known.
    #[serde(skip)]
    ages_s: Option<f64>,
    #[serde(skip)]
    cost: Mean,
    #[serde(skip)]
    worth: Worth,
    /// It costs more than is allowed now.
    #[serde(skip)]
    is_dear: bool,
    /// What held it back when it was last asked.
    #[serde(skip)]
    pub(super) held: Option<Brake>,
    /// Share of cold memory that is taken in a second.
    share: f64,
    /// Seconds that may be lost if all that is out is refaulted.
    credit_s: Option<f64>,
    /// Part of the credit of a second that is given.
    trust: f64,
    /// Seconds since trust was last changed.
    #[serde(skip)]
    since_s: f64,
    /// The minute under way: its seconds, and seconds lost in them.
    #[serde(skip)]
    minute: (f64, f64),
    /// It was found to cost too much.
    #[serde(skip)]
    is_bad: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            ages_s: None,
            cost: Mean::default(),
            worth: Worth::default(),
            is_dear: false,
            held: None,
            share: FIRST_SHARE,
            credit_s: None,
            trust: 1.0,
            since_s: 0.0,
            minute: (0.0, 0.0),
            is_bad: false,
        }
    }
}

/// Begins with the first share again: what was refaulted in between was not observed.
impl Resume for Pace {
    fn resume(&mut self, _: f64) -> bool {
        self.share = FIRST_SHARE;
        let known = |bytes: f64| bytes.is_finite() && bytes >= 0.0;
        self.credit_s.is_none_or(known) && (LEAST_TRUST..=1.0).contains(&self.trust)
    }
}

impl Pace {
    /// Takes in a reading of the target, of whose time a share may be lost, and another at most.
    pub(super) fn observe(&mut self, (allowed, most): (f64, f64), frame: &Observation, lost: &Lost) {
        let &Lost { elapsed_s, lost_s, out, .. } = lost;
        self.cost.add(lost_s, elapsed_s, COST_S);
        self.judge_minute(most, elapsed_s, lost_s);
        let credit_s = self.credit_s.unwrap_or(CREDIT * most * ADVANCE_S);
        self.credit_s = Some((credit_s + CREDIT * self.trust * most * elapsed_s - lost_s).max(0.0));
        let (factor, cost) = (2f64.powf(elapsed_s), self.cost.get().unwrap_or(0.0));
        // Where nothing is out, that nothing comes back shows nothing.
        let is_out = out.total() >= PAGE_BYTES;
        let change = if cost >= CALM * most {
            1.0 / factor
        } else if is_out {
            factor
        } else {
            1.0
        };
        self.share = (self.share * change).clamp(LEAST_SHARE, 1.0);
        self.worth.observe(elapsed_s, lost_s, lost.out_s(frame));
        self.is_dear = cost > allowed || self.worth.is_dear(allowed);
    }

    /// Whether this minute cost too much, and what follows.
    fn judge_minute(&mut self, most: f64, elapsed_s: f64, lost_s: f64) {
        self.minute = (self.minute.0 + elapsed_s, self.minute.1 + lost_s);
        self.since_s += elapsed_s;
        if self.minute.1 > most * MINUTE_S && !self.is_bad {
            (self.trust, self.since_s, self.is_bad) = ((0.5 * self.trust).max(LEAST_TRUST), 0.0, true);
        } else if self.since_s > FORGIVEN_S {
            (self.trust, self.since_s) = ((2.0 * self.trust).min(1.0), 0.0);
        }
        if self.minute.0 >= MINUTE_S {
            (self.minute, self.is_bad) = ((0.0, 0.0), false);
        }
    }

    /// Whether no minute of late cost too much.
    pub(super) fn is_trusted(&self) -> bool {
        self.trust >= 1.0
    }

    /// Bytes to take now of those that are cold, files first.
    pub(super) fn take(&mut self, cold: PerKind<f64>, frame: &Observation, lost: &Lost) -> PerKind<f64> {
        let elapsed_s = self.ages_s.replace(frame.now_s).map_or(1.0, |ages_s| frame.now_s - ages_s);
        let share = 1.0 - (1.0 - self.share).powf(elapsed_s.clamp(0.0, MINUTE_S));
        let byte_s = lost.byte_s(frame);
        let credit_s = self.credit_s.filter(|_| !self.is_dear).unwrap_or(0.0);
        let mut left_s = credit_s - lost.out_s(frame);
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;
    /// Half a percent is allowed, one at most.
    const LIMITS: (f64, f64) = (0.005, 0.01);

    fn anon(bytes: f64) -> PerKind<f64> {
        PerKind { anon: bytes, file: 0.0 }
    }

    /// A turn in which so many pages are refaulted, after which as much is taken of what is cold as may be.
    fn turn(pace: &mut Pace, (now_s, pages, cold): (u32, f64, f64), out: &mut f64, taken: &mut f64) {
        *out = (*out + *taken - pages * PAGE_BYTES).max(0.0);
        let frame = Observation { now_s: f64::from(now_s), ..Observation::default() };
        let elapsed_s = if now_s > 0 { 1.0 } else { 0.0 };
        let lost = Lost { elapsed_s, lost_s: pages * 10e-6, price: PerKind::both(1.0), out: anon(*out) };
        pace.observe(LIMITS, &frame, &lost);
        *taken = pace.take(anon(cold), &frame, &lost).anon;
    }

    #[test]
    fn what_is_out_never_costs_more_than_the_credit() {
        let (mut pace, mut out, mut taken) = (Pace::default(), 0.0, 0.0);
        let mut first = None;
        for now_s in 0..100u32 {
            turn(&mut pace, (now_s, 0.0, 1e4 * MIB), &mut out, &mut taken);
            let cost_s = (out + taken) / PAGE_BYTES * 10e-6;
            let credit_s = CREDIT * 0.01 * (ADVANCE_S + f64::from(now_s));
            assert!(cost_s <= credit_s + 1e-9, "{now_s} s: {cost_s} of {credit_s}");
            first = first.or((cost_s > 0.99 * credit_s).then_some(now_s));
        }
        assert!(first.is_some_and(|now_s| now_s < 6), "{first:?}: it is used up soon");
        assert_eq!(pace.held, None, "a little more each second");
    }

    #[test]
    fn more_is_taken_each_second_until_it_costs_too_much() {
        let (mut pace, mut out, mut taken) = (Pace::default(), 0.0, 0.0);
        let mut took = Vec::new();
        for now_s in 0..4 {
            turn(&mut pace, (now_s, 0.0, 10.0 * MIB), &mut out, &mut taken);
            took.push(taken / MIB);
        }
        assert!(took.windows(2).all(|pair| pair[1] > 1.5 * pair[0]) && took[0] < 0.5, "{took:?}");
        // A thousand pages a second are twice what is allowed.
        for now_s in 4..10 {
            turn(&mut pace, (now_s, 1000.0, 10.0 * MIB), &mut out, &mut taken);
        }
        assert_eq!((taken, pace.held), (0.0, Some(Brake::Slowdown)));
        // All of it was refaulted. Some minutes later a little is tried again.
        let again = (10..600).find(|now_s| {
            turn(&mut pace, (*now_s, 0.0, 10.0 * MIB), &mut out, &mut taken);
            taken > 0.0
        });
        assert!(again.is_some_and(|now_s| (60..300).contains(&now_s)) && taken < 0.2 * MIB, "{again:?}: {taken}");
    }

    #[test]
    fn what_is_soon_refaulted_is_not_worth_it_however_little_it_costs() {
        const COLD: f64 = 20.0 * MIB;
        let share_out = |out_for_s: f64| {
            let (mut pace, mut out, mut taken) = (Pace::default(), 0.0, 0.0);
            for now_s in 0..200u32 {
                let pages = out / out_for_s / PAGE_BYTES;
                turn(&mut pace, (now_s, pages, (COLD - out - taken).max(0.0)), &mut out, &mut taken);
            }
            out / COLD
        };
        // The share of two seconds costs 0.5 % of the time, which is all that may be lost.
        let shares = [2.0, 20.0, 100.0, 1000.0].map(share_out);
        assert!(shares[0] < 0.05 && shares[1] < 0.7, "{shares:?}");
        assert!(shares[2] > 0.9 && shares[3] > 0.95, "{shares:?}");
    }

    #[test]
    fn what_has_started_up_is_not_taken_at_once() {
        let (mut pace, mut out, mut taken) = (Pace::default(), 0.0, 0.0);
        for now_s in 0..30 {
            turn(&mut pace, (now_s, 0.0, 0.0), &mut out, &mut taken);
        }
        turn(&mut pace, (30, 0.0, 100.0 * MIB), &mut out, &mut taken);
        assert!((taken - FIRST_SHARE * 100.0 * MIB).abs() < 1.0, "{taken}");
    }

    #[test]
    fn a_minute_that_cost_too_much_halves_the_credit_for_a_time() {
        let (mut pace, mut out, mut taken) = (Pace::default(), 0.0, 0.0);
        let mut trust = Vec::new();
        for now_s in 0..700 {
            let pages = if (50..55).contains(&now_s) { 20_000.0 } else { 0.0 };
            turn(&mut pace, (now_s, pages, 0.0), &mut out, &mut taken);
            trust.push(pace.trust);
        }
        assert_eq!([trust[40], trust[60], trust[340], trust[400]], [1.0, 0.5, 0.5, 1.0]);
    }
}
