//! What can go wrong: reads and actions that fail, are late, partial or lies; clocks that jump; workloads that vanish.

use lowtide_model::random::Random;
use lowtide_model::units::{Share, Span};
use serde::Deserialize;

use crate::machine::{Done, Observation, Order, Reclaimed, RegionObservation, WorkloadAction};

/// Rates of injected faults; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InjectedFaults {
    /// Observations that cannot be made.
    pub unreadable: Option<Share>,
    /// Observations that are the one before, with a new time.
    pub stale: Option<Share>,
    /// Actions that fail: nothing is done, and nothing said.
    pub fail: Option<Share>,
    /// Actions of which only a part is done (EAGAIN).
    pub partial: Option<Share>,
    /// Actions that are carried out only at the next turn.
    pub late: Option<Share>,
    /// Actions that are said to be done and are not.
    pub lie: Option<Share>,
    /// Seconds, on average, after which some workload vanishes; its process id is reused by an unrelated process.
    pub vanish: Option<Span>,
    /// Seconds between two jumps of the clock that observations carry, on average, and how far it jumps, to and fro.
    pub clock: Option<Span>,
    /// The swap is full from then on.
    pub swap_fills: Option<Span>,
}

/// What is known of the machine at one time, for policies of either kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Sensed {
    pub workloads: Observation,
    pub regions: RegionObservation,
}

/// An action of either kind.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Workload(WorkloadAction),
    Region(Order),
}

/// The result of an action.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fate {
    Done,
    Failed,
    /// Only this share of it.
    Partial(f64),
    Late,
    Lied,
}

/// InjectedFaults as they happen.
#[derive(Debug, Clone)]
pub(super) struct Misfortune {
    faults: InjectedFaults,
    random: Random,
    last: Option<Sensed>,
    /// The result of actions, while nothing could be observed.
    done: Vec<Done>,
    reclaimed: Vec<Reclaimed>,
    /// Seconds by which the clock is off.
    off_s: f64,
    late: Vec<Ask>,
}

impl Misfortune {
    pub(super) fn new(faults: InjectedFaults, seed: u64) -> Self {
        let random = Random::new(seed ^ 0xfa17);
        Self { faults, random, last: None, done: vec![], reclaimed: vec![], off_s: 0.0, late: vec![] }
    }

    fn strikes(&mut self, share: Option<Share>) -> bool {
        share.is_some_and(|share| self.random.chance() < share.0)
    }

    /// Whether something that happens so often on average happens within a time.
    fn happens(&mut self, every: Option<Span>, within_s: f64) -> bool {
        every.is_some_and(|every| self.random.chance() < within_s / every.0.as_secs_f64().max(1e-9))
    }

    /// Whether a workload vanishes within a step.
    pub(super) fn vanishes(&mut self, step_s: f64) -> bool {
        self.happens(self.faults.vanish, step_s)
    }

    /// Whether the swap is full by now.
    pub(super) fn swap_is_full(&self, now_s: f64) -> bool {
        self.faults.swap_fills.is_some_and(|from| now_s >= from.0.as_secs_f64())
    }

    /// One of so many.
    pub(super) fn one_of(&mut self, len: usize) -> usize {
        self.random.index(len)
    }

    /// What is read instead of the truth.
    pub(super) fn sensed(&mut self, mut truth: Sensed, since_s: f64) -> Option<Sensed> {
        if self.happens(self.faults.clock, since_s) {
            let by_s = self.faults.clock.map_or(0.0, |clock| clock.0.as_secs_f64());
            self.off_s += if self.random.chance() < 0.5 { by_s } else { -by_s };
        }
        let now_s = truth.workloads.now_s + self.off_s;
        // The result of actions is lowtide's own knowledge, and no reading that could fail or be stale.
        self.done.append(&mut truth.regions.done);
        self.reclaimed.append(&mut truth.workloads.reclaimed);
        if self.strikes(self.faults.unreadable) {
            return None;
        }
        let is_stale = self.strikes(self.faults.stale);
        let mut sensed = self.last.clone().filter(|_| is_stale).unwrap_or_else(|| truth.clone());
        if !is_stale && self.faults.stale.is_some() {
            self.last = Some(truth);
        }
        (sensed.workloads.now_s, sensed.regions.now_s) = (now_s, now_s);
        sensed.regions.done = std::mem::take(&mut self.done);
        sensed.workloads.reclaimed = std::mem::take(&mut self.reclaimed);
        Some(sensed)
    }

    /// The result of the next action.
    pub(super) fn fate(&mut self) -> Fate {
        if self.strikes(self.faults.fail) {
            Fate::Failed
        } else if self.strikes(self.faults.lie) {
            Fate::Lied
        } else if self.strikes(self.faults.late) {
            Fate::Late
        } else if self.strikes(self.faults.partial) {
            Fate::Partial(self.random.chance())
        } else {
            Fate::Done
        }
    }

    /// Keeps an action for the next turn.
    pub(super) fn delay(&mut self, ask: Ask) {
        self.late.push(ask);
    }

    /// Actions of the turn before that are due now.
    pub(super) fn overdue(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.late)
    }
}
