//! The common part of reclaim policies: a rule decides what of a workload may be evicted, and brakes whether it may be now.
//!
//! A new rule is a file in this folder and a line in [`crate::policies`].

pub mod age;
pub mod auto;
pub mod brakes;
pub mod headroom;
pub(crate) mod losses;
pub(crate) mod mean;
mod metric;
pub mod pace;
pub mod pressure;
pub mod promotion;
pub mod returns;
pub(crate) mod threshold;

use std::collections::BTreeMap;

use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::target::TargetId;

use serde::{Deserialize, Serialize};

use crate::machine::{Brake, Observation, Policy, Reclaim, WorkloadAction, WorkloadState};
use crate::saved::{self, Resume, Saved};
use brakes::{Brakes, Common, Held};
use losses::Losses;
pub use losses::Lost;
pub use threshold::Terms;

/// What a rule wants of one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Want {
    /// Bytes.
    pub bytes: PerKind<f64>,
    /// Only what has been idle for at least so many seconds; `None` = none of it.
    pub older_s: PerKind<Option<f64>>,
    /// Why.
    pub reason: String,
}

/// What of a workload may go.
pub trait Rule {
    /// What it remembers of one target.
    type Past: Resume;

    /// Decides what of an observed target is to be evicted; called at every turn.
    fn want(&self, past: &mut Self::Past, target: &WorkloadState, frame: &Observation, lost: &Lost) -> Option<Want>;

    /// What of its own held it back at the last turn.
    fn held(&self, _past: &Self::Past) -> Option<Brake> {
        None
    }
}

/// A rule whose ages follow from what would be refaulted.
pub trait ChoosesAge {
    /// How ages are chosen.
    fn terms(&self) -> Terms;

    /// Bytes a second that may be refaulted of one kind, given the bytes of it in use.
    fn allowed(&self, kind: Kind, used: f64, costs: &RefaultCosts) -> f64;
}

/// A target that was not observed for so many seconds is forgotten.
const FORGET_S: f64 = 60.0;

/// What is known of one target.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct State<P> {
    past: P,
    held: Held,
    #[serde(default)]
    losses: Losses,
    observed_s: f64,
}

impl<P: Resume> Resume for State<P> {
    fn resume(&mut self, now_s: f64) -> bool {
        let sound = self.past.resume(now_s) && self.held.resume(now_s) && self.losses.is_sound();
        sound && saved::is_past(self.observed_s, now_s)
    }
}

/// A rule under brakes, for all targets.
#[derive(Debug, Clone)]
pub struct Reclaimer<R: Rule> {
    rule: R,
    brakes: Brakes,
    common: Common,
    /// Boxed: a state is 2 KiB, and half of a map's room is empty.
    targets: BTreeMap<TargetId, Box<State<R::Past>>>,
    now_s: f64,
}

impl<R: Rule> Reclaimer<R> {
    /// A policy that holds this rule under these brakes.
    pub fn new(rule: R, brakes: Brakes) -> Self {
        Self { rule, brakes, common: Common::default(), targets: BTreeMap::new(), now_s: 0.0 }
    }

    fn reclaim(&mut self, target: &WorkloadState, frame: &Observation) -> Option<Reclaim> {
        let state = self.targets.entry(target.id).or_default();
        state.observed_s = frame.now_s;
        let lost = state.losses.observe(target, frame);
        let want = self.rule.want(&mut state.past, target, frame, &lost);
        let most = state.held.most(&self.brakes, target, frame, &lost);
        // What holds everything holds this one, and nothing is counted as taken.
        let want = want.filter(|_| self.common.by.is_none())?;
        // Files first: to drop them needs no room in swap.
        let file = want.bytes.file.min(most.file).min(most.both);
        let anon = want.bytes.anon.min(most.anon).min(most.both - file).min(self.common.anon_left());
        if file + anon <= 0.0 {
            return None;
        }
        self.common.takes(anon);
        Some(Reclaim { target: target.id, bytes: PerKind { anon, file }, older_s: want.older_s, reason: want.reason })
    }
}

impl<R: Rule> Policy for Reclaimer<R> {
    type Frame = Observation;
    type Action = WorkloadAction;

    fn decide(&mut self, frame: &Observation) -> Vec<WorkloadAction> {
        self.common.begin(&self.brakes, frame);
        self.now_s = frame.now_s;
        let orders = frame.targets.iter().filter_map(|target| self.reclaim(target, frame));
        let actions = orders.map(WorkloadAction::Reclaim).collect();
        // A clock that was set back must not keep what is gone.
        self.targets.retain(|_, state| (frame.now_s - state.observed_s).abs() < FORGET_S);
        actions
    }

    fn held(&self) -> Vec<(Option<TargetId>, Brake)> {
        // One that was not there at the last turn is held by nothing.
        let there = self.targets.iter().filter(|(_, state)| state.observed_s.total_cmp(&self.now_s).is_eq());
        let each =
            there.filter_map(|(id, state)| Some((Some(*id), state.held.by.or_else(|| self.rule.held(&state.past))?)));
        self.common.by.or(self.common.full()).map(|brake| (None, brake)).into_iter().chain(each).collect()
    }

    fn save(&self) -> Saved {
        let targets = self.targets.iter().map(|(id, state)| (*id, saved::save(&**state)));
        Saved { common: saved::save(&self.common), targets: targets.collect() }
    }

    fn restore(&mut self, saved: &Saved, now_s: f64) -> usize {
        self.common = saved::restore(&saved.common, now_s).unwrap_or_default();
        let each = saved.targets.iter();
        self.targets = each.filter_map(|(id, state)| Some((*id, Box::new(saved::restore(state, now_s)?)))).collect();
        self.targets.len()
    }
}

#[cfg(test)]
mod tests;
