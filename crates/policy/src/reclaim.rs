//! Reclaim from workloads as a whole: a rule says what of a workload may go, and brakes say whether it may go now.
//!
//! A new rule is a file in this folder and a line in [`crate::policies`].

pub mod age;
pub mod auto;
pub mod brakes;
pub mod pressure;
pub mod promotion;
mod threshold;

use std::collections::BTreeMap;

use lowtide_model::curve::{RefaultCosts, SIDES};

use crate::machine::{Action, Brake, Observation, Policy, Reclaim, Target};
use brakes::{Brakes, Held, Whole};

/// What a rule wants of one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Want {
    /// Bytes: anonymous, file.
    pub bytes: [f64; SIDES],
    /// Only what has been idle for at least so many seconds; `None` = none of that side.
    pub older_s: [Option<f64>; SIDES],
    /// Why.
    pub reason: String,
}

/// What of a workload may go.
pub trait Rule {
    /// What it remembers of one target.
    type Past: Default;

    /// Looks at a target, as it does at every turn, and says what of it shall go.
    fn want(&self, past: &mut Self::Past, target: &Target, costs: &RefaultCosts, now_s: f64) -> Option<Want>;
}

/// A target that was not seen for so many seconds is forgotten.
const FORGET_S: f64 = 60.0;

/// What is known of one target.
#[derive(Debug, Clone, Default)]
struct State<P> {
    past: P,
    held: Held,
    seen_s: f64,
}

/// A rule under brakes, for all targets.
#[derive(Debug, Clone)]
pub struct Reclaimer<R: Rule> {
    rule: R,
    brakes: Brakes,
    whole: Whole,
    targets: BTreeMap<u64, State<R::Past>>,
}

impl<R: Rule> Reclaimer<R> {
    /// A policy that holds this rule under these brakes.
    #[must_use]
    pub fn new(rule: R, brakes: Brakes) -> Self {
        Self { rule, brakes, whole: Whole::default(), targets: BTreeMap::new() }
    }

    fn reclaim(&mut self, target: &Target, seen: &Observation) -> Option<Reclaim> {
        let state = self.targets.entry(target.id).or_default();
        state.seen_s = seen.now_s;
        let want = self.rule.want(&mut state.past, target, &seen.costs, seen.now_s);
        let most = state.held.most(&self.brakes, target, seen);
        let want = want?;
        // Files first: to drop them needs no room in swap.
        let file = want.bytes[1].min(most.file).min(most.both);
        let anon = want.bytes[0].min(most.anon).min(most.both - file).min(self.whole.anon_left());
        if file + anon <= 0.0 {
            return None;
        }
        self.whole.takes(anon);
        Some(Reclaim { target: target.id, bytes: [anon, file], older_s: want.older_s, reason: want.reason })
    }
}

impl<R: Rule> Policy for Reclaimer<R> {
    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        let may = self.whole.begin(&self.brakes, seen);
        let orders: Vec<Option<Reclaim>> = seen.targets.iter().map(|target| self.reclaim(target, seen)).collect();
        // A clock that was set back must not keep what is gone.
        self.targets.retain(|_, state| (seen.now_s - state.seen_s).abs() < FORGET_S);
        if !may {
            return Vec::new();
        }
        orders.into_iter().flatten().map(Action::Reclaim).collect()
    }

    fn held(&self) -> Vec<(Option<u64>, Brake)> {
        let each = self.targets.iter().filter_map(|(id, state)| Some((Some(*id), state.held.by?)));
        self.whole.by.or(self.whole.full()).map(|brake| (None, brake)).into_iter().chain(each).collect()
    }
}

#[cfg(test)]
mod tests;
