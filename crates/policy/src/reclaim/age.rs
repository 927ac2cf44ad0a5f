//! Everything colder than a threshold, every so often, with thresholds of their own for anonymous and file memory (WMO's
//! agent: 10 s, every 40 s; Google's kreclaimd has both thresholds).

use std::time::Duration;

use lowtide_model::AGE_EDGES_S;
use lowtide_model::kind::PerKind;
use lowtide_model::units::Span;
use serde::{Deserialize, Serialize};

use super::brakes::{Brakes, seconds};
use super::threshold::colder;
use super::{Lost, Reclaimer, Rule, Want};
use crate::machine::{Observation, WorkloadState};
use crate::policies::{AnyPolicy, PolicyError, PolicySettings, often};
use crate::replay::{ReplayRule, Replayed};

/// AgeSettings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgeSettings {
    /// Anonymous memory idle for so long is evicted; `None` = none.
    #[serde(default)]
    pub anon: Option<Span>,
    /// File memory idle for so long is evicted; `None` = none.
    #[serde(default)]
    pub file: Option<Span>,
    /// Time between two rounds.
    pub every: Span,
    /// What holds it back.
    pub brakes: Brakes,
}

impl Default for AgeSettings {
    /// WMO's.
    fn default() -> Self {
        Self { anon: Some(seconds(10)), file: Some(seconds(10)), every: seconds(40), brakes: Brakes::default() }
    }
}

impl Rule for AgeSettings {
    /// When the last round was.
    type Past = Option<f64>;

    fn want(&self, past: &mut Self::Past, target: &WorkloadState, frame: &Observation, _: &Lost) -> Option<Want> {
        let now_s = frame.now_s;
        // A clock that was set back must not stop it for ever.
        let due = past.is_none_or(|last_s| !(last_s..last_s + self.every.0.as_secs_f64()).contains(&now_s));
        let older_s = PerKind { anon: self.anon, file: self.file }.map(|age| age.map(|age| age.0.as_secs_f64()));
        // A round in which nothing is known of ages is none.
        if !due || target.ages.is_empty() {
            return None;
        }
        let bytes = PerKind::from_fn(|kind| colder(target, kind, older_s[kind]));
        *past = Some(now_s);
        Some(Want { bytes, older_s, reason: "colder than its age".to_owned() })
    }
}

impl PolicySettings for AgeSettings {
    fn usual() -> Option<Self> {
        Some(Self::default())
    }

    fn build(&self, _: u64) -> Result<AnyPolicy, PolicyError> {
        often(self.every)?;
        let longest = AGE_EDGES_S[AGE_EDGES_S.len() - 1];
        if let Some(age) = self.ages().into_iter().find(|age| age.0 > Duration::from_secs(longest.into())) {
            return Err(PolicyError(format!("{age}: ages are known up to {longest}s")));
        }
        if self.ages().is_empty() {
            return Err("neither anon nor file has an age; give at least one".into());
        }
        Ok(AnyPolicy::workloads(Reclaimer::new(self.clone(), self.brakes.clone())))
    }

    fn replayed(&self) -> Result<Replayed, &'static str> {
        Ok(Replayed { rule: ReplayRule::Age(self.clone()), brakes: self.brakes.clone() })
    }

    fn ages(&self) -> Vec<Span> {
        [self.anon, self.file].into_iter().flatten().collect()
    }

    #[cfg(test)]
    fn trial(quota: Option<u64>, seed: u64) -> Option<AnyPolicy> {
        Self { every: seconds(1), brakes: Brakes::of_quota(quota), ..Self::default() }.build(seed).ok()
    }
}
