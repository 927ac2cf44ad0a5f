//! A little at a time, as long as nothing stalls (Senpai; Weiner et al., "TMO: Transparent memory offloading in
//! datacenters", ASPLOS'22).

use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::{Share, Span};
use serde::{Deserialize, Serialize};

use super::brakes::{Brakes, seconds};
use super::{Lost, Reclaimer, Rule, Want};
use crate::machine::{Observation, WorkloadState};
use crate::policies::{AnyPolicy, PolicyError, PolicySettings, often};
use crate::replay::Replayed;
use crate::saved::Resume;

/// PressureSettings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PressureSettings {
    /// Share of the time that some task may stall, on memory or on I/O.
    pub threshold: Share,
    /// Share of resident memory that is evicted in one step without any pressure.
    pub step: Share,
    /// Time between two steps.
    pub every: Span,
    /// What holds it back.
    pub brakes: Brakes,
}

impl Default for PressureSettings {
    /// TMO's threshold and interval. Its step of 0.05 % takes hours; this is oomd's `max_probe`.
    fn default() -> Self {
        Self { threshold: Share(0.001), step: Share(0.01), every: seconds(6), brakes: Brakes::default() }
    }
}

/// Steps are at most so many times further apart where memory is found to be needed again and again.
const RAREST: f64 = 16.0;

/// What it remembers of a target.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PressureState {
    #[serde(skip)]
    last_s: Option<f64>,
    /// Since the last step: seconds, and of them those in which some task stalled.
    #[serde(skip)]
    seconds: f64,
    #[serde(skip)]
    stalled_s: f64,
    /// How many times further apart steps are now.
    rarer: f64,
}

impl Resume for PressureState {
    /// The time to the next step begins again.
    fn resume(&mut self, _: f64) -> bool {
        (0.0..=2.0 * RAREST).contains(&self.rarer)
    }
}

impl Rule for PressureSettings {
    type Past = PressureState;

    fn want(&self, past: &mut PressureState, target: &WorkloadState, frame: &Observation, _: &Lost) -> Option<Want> {
        let now_s = frame.now_s;
        let elapsed_s = past.last_s.replace(now_s).map_or(0.0, |last_s| (now_s - last_s).max(0.0));
        let stalls = [target.pressure, target.io_pressure].into_iter().flatten().fold(0.0, f64::max);
        past.seconds += elapsed_s;
        past.stalled_s += stalls * elapsed_s;
        past.rarer = past.rarer.clamp(1.0, RAREST);
        // Without pressure stall information nothing would ever hold it.
        target.pressure?;
        if past.seconds <= 0.0 || past.seconds + 1e-6 < past.rarer * self.every.0.as_secs_f64() {
            return None;
        }
        let stalled = past.stalled_s / past.seconds;
        (past.seconds, past.stalled_s) = (0.0, 0.0);
        let calm = 1.0 - stalled / self.threshold.0.max(1e-9);
        past.rarer *= if calm > 0.0 { 0.5 } else { 2.0 };
        if calm <= 0.0 {
            return None;
        }
        let bytes = self.step.0 * calm * target.resident.total();
        let reason = format!("stalled {:.2} % of the time, {} is allowed", 100.0 * stalled, self.threshold);
        Some(Want { bytes: oldest(target, bytes), older_s: PerKind::both(Some(0.0)), reason })
    }
}

/// So many bytes, by kind, as they lie from the oldest on.
fn oldest(target: &WorkloadState, bytes: f64) -> PerKind<f64> {
    let mut bins: Vec<(f64, Kind, f64)> =
        target.ages.iter().map(|bin| (bin.min_s, Kind::of(bin.anon), bin.size.bytes)).collect();
    if bins.is_empty() {
        bins = target.resident.iter().map(|(kind, bytes)| (0.0, kind, *bytes)).collect();
    }
    bins.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut left = bytes.max(0.0);
    let mut taken = PerKind::default();
    // Bins of one age give in proportion.
    for same in bins.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let all: f64 = same.iter().map(|(_, _, bytes)| bytes).sum();
        let share = if all > 0.0 { (left / all).min(1.0) } else { 0.0 };
        same.iter().for_each(|(_, kind, bytes)| taken[*kind] += share * bytes);
        left -= share * all;
    }
    taken
}

impl PolicySettings for PressureSettings {
    fn usual() -> Option<Self> {
        Some(Self::default())
    }

    fn build(&self, _: u64) -> Result<AnyPolicy, PolicyError> {
        often(self.every)?;
        Ok(AnyPolicy::workloads(Reclaimer::new(self.clone(), self.brakes.clone())))
    }

    fn replayed(&self) -> Result<Replayed, &'static str> {
        Err("pressure goes by the pressure that it causes, which no recording has")
    }

    #[cfg(test)]
    fn trial(quota: Option<u64>, seed: u64) -> Option<AnyPolicy> {
        // Hours of little steps are no part of what is tried.
        let brakes = Brakes::of_quota(quota);
        Self { every: seconds(5), step: Share(0.02), brakes, ..Self::default() }.build(seed).ok()
    }
}
