//! Everything colder than a threshold, every so often, with thresholds of their own for anonymous and file memory (WMO's
//! agent: 10 s, every 40 s; Google's kreclaimd has both thresholds).

use lowtide_model::kind::PerKind;
use lowtide_model::units::Span;
use serde::{Deserialize, Serialize};

use super::brakes::{Brakes, seconds};
use super::threshold::colder;
use super::{Rule, Want};
use crate::machine::{Observation, WorkloadState};

/// AgeSettings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgeSettings {
    /// Anonymous memory idle for so long goes; `None` = none.
    #[serde(default)]
    pub anon: Option<Span>,
    /// File memory idle for so long goes; `None` = none.
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

    fn want(&self, past: &mut Self::Past, target: &WorkloadState, seen: &Observation) -> Option<Want> {
        let now_s = seen.now_s;
        // A clock that was set back must not stop it for ever.
        let due = past.is_none_or(|last_s| !(last_s..last_s + self.every.0.as_secs_f64()).contains(&now_s));
        let older_s = PerKind { anon: self.anon, file: self.file }.map(|age| age.map(|age| age.0.as_secs_f64()));
        // A round in which nothing is told of ages is none.
        if !due || target.ages.is_empty() {
            return None;
        }
        let bytes = PerKind::from_fn(|kind| colder(target, kind, older_s[kind]));
        *past = Some(now_s);
        Some(Want { bytes, older_s, reason: "colder than its age".to_owned() })
    }
}
