//! The needs of a workload over days, older ones with less weight, for a recommendation that follows slowly.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::integer;

/// Needs of up to so many bytes are alike, and others by steps of a twentieth, as in the recommender of Kubernetes' vertical
/// pod autoscaler.
const FIRST: f64 = 1_048_576.0;
const STEP: f64 = 1.05;

/// Share of the (decayed) time in which a recommendation is enough: an hour a day is more than the rest of it.
const ENOUGH: f64 = 0.98;

/// How much was lacking at a kill is not known: this factor is assumed, as in that recommender.
const AFTER_KILL: f64 = 1.2;

/// A workload that is held at its limit and loses time needs more than it may have: so much more is tried.
const AT_LIMIT: f64 = 1.1;
/// It is at its limit with so much of it.
const NEAR: f64 = 0.98;

/// Rescaled before weights grow beyond this power of two.
const POWERS: f64 = 100.0;

/// One reading of a workload.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Need {
    /// Bytes with which it would stay within the stated slowdown, as far as is known.
    pub bytes: f64,
    /// Bytes that it has.
    pub held: f64,
    /// Bytes that it may have; `None` without a limit.
    pub limit: Option<f64>,
    /// It was killed for its limit since the last reading.
    pub killed: bool,
    /// It loses more time to memory than is allowed.
    pub slow: bool,
}

impl Need {
    /// Bytes that count. What a limit kept from being measured must not make the next limit smaller still: a workload that is
    /// slow at its limit, or was killed there, counts as in need of more than that.
    #[must_use]
    pub fn counted(&self) -> f64 {
        let Some(limit) = self.limit else { return self.bytes };
        if self.killed {
            self.bytes.max(AFTER_KILL * limit)
        } else if self.slow && self.held >= NEAR * limit {
            self.bytes.max(AT_LIMIT * limit)
        } else {
            self.bytes
        }
    }
}

/// Needs over time; each counts half after every half-life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decaying {
    half_life_s: f64,
    /// Weights are relative to this time.
    since_s: f64,
    /// By step.
    weights: BTreeMap<u32, f64>,
    /// Readings so far.
    #[serde(rename = "looks")]
    pub readings: u64,
}

impl Decaying {
    /// Without a reading yet.
    #[must_use]
    pub fn new(half_life_s: f64) -> Self {
        Self { half_life_s, since_s: f64::NAN, weights: BTreeMap::new(), readings: 0 }
    }

    /// Takes in a need at this time; a clock that was set back makes it count less, and nothing worse.
    pub fn add(&mut self, bytes: f64, at_s: f64) {
        if self.since_s.is_nan() {
            self.since_s = at_s;
        }
        let powers = (at_s - self.since_s) / self.half_life_s;
        if powers > POWERS {
            let all = (-powers).exp2();
            self.weights.values_mut().for_each(|weight| *weight *= all);
            // What counts for nothing is forgotten.
            self.weights.retain(|_, weight| *weight > 1e-12);
            self.since_s = at_s;
        }
        let weight = ((at_s - self.since_s) / self.half_life_s).exp2();
        *self.weights.entry(step(bytes)).or_insert(0.0) += weight;
        self.readings += 1;
    }

    /// The least that was enough for most of the time; `None` before the first reading.
    #[must_use]
    pub fn recommended(&self) -> Option<f64> {
        let all: f64 = self.weights.values().sum();
        let mut reached = 0.0;
        for (step, weight) in &self.weights {
            reached += weight;
            if reached >= ENOUGH * all {
                return Some(FIRST * STEP.powf(f64::from(*step)));
            }
        }
        self.weights.keys().next_back().map(|step| FIRST * STEP.powf(f64::from(*step)))
    }
}

/// The step that holds so many bytes.
fn step(bytes: f64) -> u32 {
    // What is a step but for rounding is that step.
    let step = ((bytes.max(FIRST) / FIRST).log(STEP) - 1e-9).ceil();
    u32::try_from(integer(step)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: f64 = 1_048_576.0;
    const DAY: f64 = 86_400.0;

    #[test]
    fn a_peak_of_an_hour_a_day_counts_and_one_of_minutes_does_not() {
        for (minutes, enough) in [(60, 500.0), (5, 100.0)] {
            let mut decaying = Decaying::new(DAY);
            for minute in 0..3 * 1440 {
                let need = if minute % 1440 < minutes { 500.0 } else { 100.0 };
                decaying.add(need * MIB, 60.0 * f64::from(minute));
            }
            let recommended = decaying.recommended().unwrap() / MIB;
            assert!((enough..enough * 1.06).contains(&recommended), "{minutes} min: {recommended}");
        }
    }

    #[test]
    fn what_is_long_ago_is_forgotten_slowly() {
        let mut decaying = Decaying::new(DAY);
        decaying.add(1000.0 * MIB, 0.0);
        let mut day_of = None;
        for day in 1..400 {
            decaying.add(100.0 * MIB, f64::from(day) * DAY);
            if day_of.is_none() && decaying.recommended().unwrap() < 200.0 * MIB {
                day_of = Some(day);
            }
        }
        assert!((4..9).contains(&day_of.unwrap()), "{day_of:?}");
    }

    #[test]
    fn a_limit_does_not_feed_back_on_itself() {
        let of = |need: Need| need.counted() / MIB;
        let need = Need { bytes: 90.0 * MIB, held: 100.0 * MIB, limit: Some(100.0 * MIB), killed: false, slow: false };
        assert!((of(need) - 90.0).abs() < 1e-9);
        assert!((of(Need { slow: true, ..need }) - 110.0).abs() < 1e-9);
        assert!((of(Need { killed: true, ..need }) - 120.0).abs() < 1e-9);
        assert!((of(Need { slow: true, held: 50.0 * MIB, ..need }) - 90.0).abs() < 1e-9);
        assert!((of(Need { limit: None, slow: true, ..need }) - 90.0).abs() < 1e-9);
        // A workload that needs 300 MiB and is limited to what is recommended: it grows until it is not slow any more.
        let (mut decaying, mut limit) = (Decaying::new(DAY), 100.0 * MIB);
        for minute in 0..14 * 1440 {
            let held = limit.min(300.0 * MIB);
            let (slow, bytes) = (held < 295.0 * MIB, 0.9 * held);
            decaying
                .add(Need { bytes, held, limit: Some(limit), killed: false, slow }.counted(), 60.0 * f64::from(minute));
            if minute % 60 == 0 {
                limit = decaying.recommended().unwrap();
            }
        }
        assert!((250.0..340.0).contains(&(limit / MIB)), "{}", limit / MIB);
    }

    proptest! {
        #[test]
        fn what_is_recommended_is_among_what_was_needed(
            needs in prop::collection::vec((1.0f64..1e6, 0.0f64..1e7), 1..100),
        ) {
            let mut decaying = Decaying::new(3600.0);
            needs.iter().for_each(|(mib, at_s)| decaying.add(mib * MIB, *at_s));
            let recommended = decaying.recommended().unwrap();
            let most = needs.iter().map(|(mib, _)| mib * MIB).fold(0.0, f64::max);
            prop_assert!(recommended >= MIB && recommended <= most * 1.0501, "{recommended} of {most}");
        }
    }
}
