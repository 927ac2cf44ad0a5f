//! The youngest age for which what is refaulted stays under a share of the working set a minute, chosen for each workload
//! and side from its last hours (Lagar-Cavilla et al., "Software-defined far memory in warehouse-scale computers",
//! ASPLOS'19).

use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::{Share, Span};
use serde::{Deserialize, Serialize};

use super::brakes::{Brakes, seconds};
use super::threshold::{Terms, Threshold, colder};
use super::{ChoosesAge, Lost, Reclaimer, Rule, Want};
use crate::machine::{Observation, WorkloadState};
use crate::policies::{AnyPolicy, PolicyError, PolicySettings};
use crate::replay::{ReplayRule, Replayed};

/// PromotionSettings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromotionSettings {
    /// Share of the working set that may be refaulted in a minute.
    pub limit: Share,
    /// Of the ages that would have done in past minutes, the one that so many of them lie at or below.
    pub percentile: Share,
    /// How far back these minutes reach.
    pub history: Span,
    /// Time that a workload is observed before anything of it is evicted.
    pub warm_up: Span,
    /// What holds it back.
    pub brakes: Brakes,
}

impl Default for PromotionSettings {
    /// The published share and percentile; hours and warm-up of the published order.
    fn default() -> Self {
        Self {
            limit: Share(0.002),
            percentile: Share(0.98),
            history: seconds(4 * 3600),
            warm_up: seconds(600),
            brakes: Brakes::default(),
        }
    }
}

const MINUTE_S: f64 = 60.0;

impl ChoosesAge for PromotionSettings {
    fn terms(&self) -> Terms {
        Terms {
            slice_s: MINUTE_S,
            history_s: self.history.0.as_secs_f64(),
            percentile: Some(self.percentile.0),
            warm_up_s: self.warm_up.0.as_secs_f64(),
        }
    }

    fn allowed(&self, _: Kind, used: f64, _: &RefaultCosts) -> f64 {
        self.limit.0 * used / MINUTE_S
    }
}

/// Memory of a target that is older than an age for each kind.
pub(super) fn older(target: &WorkloadState, older_s: PerKind<Option<f64>>, why: &str) -> Option<Want> {
    let bytes = PerKind::from_fn(|kind| colder(target, kind, older_s[kind]));
    let named = PerKind { anon: "anonymous", file: "file" };
    let ages = older_s.iter().filter_map(|(kind, age_s)| Some((named[kind], (*age_s)?)));
    let ages: Vec<String> = ages.map(|(kind, age_s)| format!("{kind} memory idle for {age_s:.0} s")).collect();
    (!ages.is_empty()).then(|| Want { bytes, older_s, reason: format!("{}: {why}", ages.join(", ")) })
}

impl Rule for PromotionSettings {
    type Past = Threshold;

    fn want(&self, past: &mut Self::Past, target: &WorkloadState, frame: &Observation, _: &Lost) -> Option<Want> {
        let ages = past.observe(self, target, frame);
        older(target, ages, "few such pages come back")
    }
}

impl PolicySettings for PromotionSettings {
    fn usual() -> Option<Self> {
        Some(Self::default())
    }

    fn build(&self, _: u64) -> Result<AnyPolicy, PolicyError> {
        Ok(AnyPolicy::workloads(Reclaimer::new(self.clone(), self.brakes.clone())))
    }

    fn replayed(&self) -> Result<Replayed, &'static str> {
        Ok(Replayed { rule: ReplayRule::ChoosesAge(Box::new(self.clone())), brakes: self.brakes.clone() })
    }

    #[cfg(test)]
    fn trial(quota: Option<u64>, seed: u64) -> Option<AnyPolicy> {
        // Hours of warm-up are no part of what is tried.
        Self { warm_up: seconds(60), brakes: Brakes::of_quota(quota), ..Self::default() }.build(seed).ok()
    }
}
