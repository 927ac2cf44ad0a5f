//! Reclaim by age: everything colder than a threshold, every so often, with thresholds of their own for anonymous and
//! file memory (WMO's agent: 10 s, every 40 s; Google's kreclaimd has both thresholds).

use std::time::Duration;

use lowtide_model::units::{Share, Size, Span};
use serde::Deserialize;

use crate::machine::{Action, Observation, Policy, Reclaim, Target};
use crate::schemes::Limits;

/// Settings.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Anonymous memory idle for so long goes; `None` = none.
    #[serde(default)]
    pub anon: Option<Span>,
    /// File memory idle for so long goes; `None` = none.
    #[serde(default)]
    pub file: Option<Span>,
    /// Time between two rounds.
    pub every: Span,
    /// No round while some task stalls on memory for more than this share of the time.
    pub pressure: Share,
    /// Swap that is left alone.
    pub swap_free: Size,
    /// Bytes of one round, at most, by target.
    pub quota: Option<Size>,
}

impl Default for Settings {
    /// WMO's thresholds; the limits are those of [`Limits`].
    fn default() -> Self {
        let seconds = |seconds| Span(Duration::from_secs(seconds));
        let limits = Limits::default();
        Self {
            anon: Some(seconds(10)),
            file: Some(seconds(10)),
            every: seconds(40),
            pressure: Share(limits.pressure),
            swap_free: Size(limits.swap_free),
            quota: None,
        }
    }
}

/// The policy.
#[derive(Debug, Clone)]
pub struct Age {
    settings: Settings,
    last_s: Option<f64>,
}

impl Age {
    /// A policy with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, last_s: None }
    }

    fn reclaim(&self, target: &Target, swap_free: f64) -> Option<Reclaim> {
        let settings = &self.settings;
        if target.pressure.is_some_and(|pressure| pressure > settings.pressure.0) {
            return None;
        }
        let older_s = [settings.anon, settings.file].map(|age| age.map(|age| age.0.as_secs_f64()));
        let colder = |anon: bool, age_s: Option<f64>| -> f64 {
            let bins = target.ages.iter().filter(|bin| bin.anon == anon);
            age_s.map_or(0.0, |age_s| bins.filter(|bin| bin.min_s >= age_s).map(|bin| bin.size.bytes).sum())
        };
        let spare = (target.resident.iter().sum::<f64>() - target.floor).max(0.0);
        #[expect(clippy::cast_precision_loss, reason = "a size of memory")]
        let quota = settings.quota.map_or(f64::INFINITY, |quota| quota.0 as f64);
        let left = spare.min(quota);
        // Files first: to drop them needs no room in swap.
        let file = colder(false, older_s[1]).min(left);
        let anon = colder(true, older_s[0]).min(swap_free).min(left - file);
        let reason = "colder than its age".to_owned();
        (file + anon > 0.0).then_some(Reclaim { target: target.id, bytes: [anon, file], older_s, reason })
    }
}

impl Policy for Age {
    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        let every_s = self.settings.every.0.as_secs_f64();
        // A clock that was set back must not stop it for ever.
        let due = self.last_s.is_none_or(|last_s| !(last_s..last_s + every_s).contains(&seen.now_s));
        let pressed = seen.pressure.is_some_and(|pressure| pressure > self.settings.pressure.0);
        if !due || pressed {
            return Vec::new();
        }
        self.last_s = Some(seen.now_s);
        #[expect(clippy::cast_precision_loss, reason = "a size of memory")]
        let mut swap_free = seen.swap_free.unwrap_or(0).saturating_sub(self.settings.swap_free.0) as f64;
        let mut actions = Vec::new();
        for target in &seen.targets {
            if let Some(reclaim) = self.reclaim(target, swap_free) {
                swap_free = (swap_free - reclaim.bytes[0]).max(0.0);
                actions.push(Action::Reclaim(reclaim));
            }
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::cohort::{AgeBin, Estimate};

    fn seen(now_s: f64, floor: f64, pressure: f64) -> Observation {
        let bin = |anon, min_s, bytes| AgeBin { anon, min_s, max_s: None, size: Estimate { bytes, ci95: 0.0 } };
        let ages = vec![bin(true, 0.0, 60.0), bin(true, 10.0, 40.0), bin(false, 20.0, 50.0), bin(false, 5.0, 50.0)];
        let target = Target { id: 1, resident: [100.0, 100.0], swapped: 0.0, floor, ages, pressure: Some(pressure) };
        Observation { now_s, targets: vec![target], swap_free: Some(1 << 30), ..Observation::default() }
    }

    fn bytes(actions: &[Action]) -> Vec<f64> {
        let reclaim =
            |action: &Action| if let Action::Reclaim(reclaim) = action { reclaim.bytes.iter().sum() } else { f64::NAN };
        actions.iter().map(reclaim).collect()
    }

    #[test]
    fn what_is_colder_goes_every_so_often() {
        let mut policy = Age::new(Settings::default());
        assert_eq!(bytes(&policy.decide(&seen(0.0, 0.0, 0.0))), [90.0]);
        assert!(policy.decide(&seen(39.0, 0.0, 0.0)).is_empty());
        assert_eq!(bytes(&policy.decide(&seen(40.0, 0.0, 0.0))), [90.0]);
        // The clock was set back.
        assert_eq!(bytes(&policy.decide(&seen(3.0, 0.0, 0.0))), [90.0]);
    }

    #[test]
    fn floors_quotas_pressure_and_full_swap_hold_it_back() {
        let fresh = || Age::new(Settings::default());
        assert_eq!(bytes(&fresh().decide(&seen(0.0, 170.0, 0.0))), [30.0]);
        assert!(fresh().decide(&seen(0.0, 300.0, 0.0)).is_empty());
        assert!(fresh().decide(&seen(0.0, 0.0, 0.2)).is_empty());
        let quota = Settings { quota: Some(Size(7)), ..Settings::default() };
        assert_eq!(bytes(&Age::new(quota).decide(&seen(0.0, 0.0, 0.0))), [7.0]);
        let full = Observation { swap_free: Some(0), ..seen(0.0, 0.0, 0.0) };
        assert_eq!(bytes(&fresh().decide(&full)), [50.0], "file memory needs no swap");
    }
}
