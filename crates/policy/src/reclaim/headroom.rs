//! Keeps what was used within a window and a share more, whatever a workload has touched in its life: its budget, followed as
//! it changes.

use std::time::Duration;

use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::used_within;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::{Share, Span};
use serde::{Deserialize, Serialize};

use super::brakes::{Brakes, seconds};
use super::threshold::colder;
use super::{Lost, Reclaimer, Rule, Want};
use crate::machine::{Observation, WorkloadState};
use crate::policies::{AnyPolicy, PolicyError, PolicySettings, often};
use crate::replay::Replayed;

/// Settings of `headroom`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeadroomSettings {
    /// Memory used within it is kept.
    pub window: Span,
    /// And so much more, as a share of it.
    pub headroom: Share,
    /// Time between two rounds.
    pub every: Span,
    /// What holds it back.
    pub brakes: Brakes,
}

impl Default for HeadroomSettings {
    fn default() -> Self {
        Self { window: seconds(30), headroom: Share(0.1), every: seconds(10), brakes: Brakes::default() }
    }
}

impl Rule for HeadroomSettings {
    /// When the last round was.
    type Past = Option<f64>;

    fn want(&self, past: &mut Self::Past, target: &WorkloadState, frame: &Observation, _: &Lost) -> Option<Want> {
        let (now_s, window_s) = (frame.now_s, self.window.0.as_secs_f64());
        // A clock that was set back must not stop it for ever.
        if past.is_some_and(|last_s| (last_s..last_s + self.every.0.as_secs_f64()).contains(&now_s)) {
            return None;
        }
        let used = |kind: Kind| used_within(target.ages_of(kind), window_s);
        let used = used(Kind::Anon)? + used(Kind::File)?;
        *past = Some(now_s);
        let excess = (target.resident.total() - (1.0 + self.headroom.0) * used).max(0.0);
        let cold = PerKind::from_fn(|kind| colder(target, kind, Some(window_s)));
        // Files first: evicting them needs no room in swap.
        let file = cold.file.min(excess);
        let bytes = PerKind { anon: cold.anon.min(excess - file), file };
        let reason = format!("beyond what was used in {} and {} more", self.window, self.headroom);
        Some(Want { bytes, older_s: PerKind::both(Some(window_s)), reason })
    }
}

impl PolicySettings for HeadroomSettings {
    fn usual() -> Option<Self> {
        Some(Self::default())
    }

    fn build(&self, _: u64) -> Result<AnyPolicy, PolicyError> {
        often(self.every)?;
        if !WINDOWS_S.iter().any(|window| Duration::from_secs(u64::from(*window)) == self.window.0) {
            let windows = WINDOWS_S.map(|window| format!("{window}s")).join(", ");
            return Err(PolicyError(format!("window = {}: none of {windows}", self.window)));
        }
        Ok(AnyPolicy::workloads(Reclaimer::new(self.clone(), self.brakes.clone())))
    }

    fn replayed(&self) -> Result<Replayed, &'static str> {
        Err("headroom depends on what is used together with what is resident, which a minute's means do not keep")
    }

    fn ages(&self) -> Vec<Span> {
        vec![self.window]
    }

    #[cfg(test)]
    fn trial(quota: Option<u64>, seed: u64) -> Option<AnyPolicy> {
        Self { every: seconds(1), brakes: Brakes::of_quota(quota), ..Self::default() }.build(seed).ok()
    }
}

#[cfg(test)]
mod tests {
    use lowtide_model::cohort::{AgeBin, Estimate};

    use super::*;

    fn state(bins: &[(bool, f64, Option<f64>, f64)]) -> WorkloadState {
        let ages = bins.iter().map(|(anon, min_s, max_s, bytes)| AgeBin {
            anon: *anon,
            min_s: *min_s,
            max_s: *max_s,
            size: Estimate { bytes: *bytes, ci95: 0.0 },
            first_touched: None,
        });
        let of = |kind: Kind| bins.iter().filter(|bin| Kind::of(bin.0) == kind).map(|bin| bin.3).sum();
        WorkloadState { ages: ages.collect(), resident: PerKind::from_fn(of), ..WorkloadState::default() }
    }

    fn want(past: &mut Option<f64>, now_s: f64, state: &WorkloadState) -> Option<PerKind<f64>> {
        let frame = Observation { now_s, ..Observation::default() };
        HeadroomSettings::default().want(past, state, &frame, &Lost::default()).map(|want| want.bytes.map(f64::round))
    }

    #[test]
    fn what_was_used_and_a_tenth_more_is_kept() {
        let of = |anon, file| {
            state(&[
                (true, 0.0, Some(30.0), 80.0),
                (true, 30.0, None, anon),
                (false, 0.0, Some(30.0), 20.0),
                (false, 30.0, None, file),
            ])
        };
        assert_eq!(want(&mut None, 0.0, &of(50.0, 30.0)), Some(PerKind { anon: 40.0, file: 30.0 }), "files first");
        assert_eq!(want(&mut None, 0.0, &of(0.0, 30.0)), Some(PerKind { anon: 0.0, file: 20.0 }), "the headroom stays");
        assert_eq!(want(&mut None, 0.0, &of(5.0, 5.0)), Some(PerKind { anon: 0.0, file: 0.0 }));
        let mut past = Some(0.0);
        assert_eq!(want(&mut past, 9.0, &of(50.0, 30.0)), None, "not before the next round");
        assert_eq!(want(&mut None, 0.0, &state(&[(true, 0.0, Some(10.0), 80.0)])), None, "the window is not known yet");
    }
}
