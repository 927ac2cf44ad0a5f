//! The tide curve proposes, what is refaulted corrects, pressure brakes: the youngest age that is predicted to cost no more
//! than a share of the time, chosen again every few seconds.

use lowtide_model::PAGE_BYTES;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::Kind;
use lowtide_model::units::{Share, Span};
use serde::{Deserialize, Serialize};

use super::brakes::{Brakes, seconds};
use super::promotion::older;
use super::threshold::{Terms, Threshold};
use super::{ChoosesAge, Reclaimer, Rule, Want};
use crate::machine::{Observation, WorkloadState, per_kind};
use crate::policies::{AnyPolicy, PolicyError, PolicySettings};
use crate::replay::{ReplayRule, Replayed};

/// AutoSettings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoSettings {
    /// Share of its time that a workload may lose.
    pub slowdown: Share,
    /// Share of the working set that may be refaulted in a minute; `None` = as much as the time allows.
    pub promotion: Option<Share>,
    /// How far back the ages reach from which the one in use is taken.
    pub history: Span,
    /// Time that a workload is observed before anything of it is evicted.
    pub warm_up: Span,
    /// What holds it back.
    pub brakes: Brakes,
}

impl Default for AutoSettings {
    /// Half of what the brakes allow, so that a prediction that is off by as much still holds.
    fn default() -> Self {
        let brakes = Brakes::default();
        Self {
            slowdown: Share(0.5 * brakes.slowdown.0),
            promotion: None,
            history: seconds(300),
            warm_up: seconds(10),
            brakes,
        }
    }
}

/// Seconds of a slice.
const SLICE_S: f64 = 10.0;
/// Slices of ten in which the age must have done.
const PERCENTILE: f64 = 0.9;

impl ChoosesAge for AutoSettings {
    fn terms(&self) -> Terms {
        Terms {
            slice_s: SLICE_S,
            history_s: self.history.0.as_secs_f64(),
            percentile: PERCENTILE,
            warm_up_s: self.warm_up.0.as_secs_f64(),
        }
    }

    /// Each kind may cost half of the time.
    fn allowed(&self, kind: Kind, used: f64, costs: &RefaultCosts) -> f64 {
        let cost_s = per_kind(costs)[kind].max(1e-9);
        let slowdown = self.slowdown.0.min(self.brakes.slowdown.0);
        let by_time = 0.5 * slowdown * PAGE_BYTES / cost_s;
        self.promotion.map_or(by_time, |share| by_time.min(share.0 * used / 60.0))
    }
}

impl Rule for AutoSettings {
    type Past = Threshold;

    fn want(&self, past: &mut Self::Past, target: &WorkloadState, frame: &Observation) -> Option<Want> {
        let ages = past.observe(self, target, frame);
        older(target, ages, &format!("predicted to cost at most {} of the time", self.slowdown))
    }
}

impl PolicySettings for AutoSettings {
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
        Self { brakes: Brakes::of_quota(quota), ..Self::default() }.build(seed).ok()
    }
}
