//! How a workload performs by its own metric (its latency, say): compared with how it performed while nothing was taken.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Evicted memory that was needed is back by then, and values are the workload's own again.
const CALM_S: f64 = 60.0;
/// Values of calm times that are kept: the median of so many is not moved by a few odd ones.
const KEPT: usize = 15;
/// Fewer say nothing yet.
const TELLING: usize = 3;
/// Values are taken no more often, seconds.
const EVERY_S: f64 = 5.0;

/// What the measure was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Metric {
    /// While nothing was taken lately, the newest last.
    calm: VecDeque<f64>,
    /// When something was taken last, and when a value was last kept.
    #[serde(skip)]
    taken_s: Option<f64>,
    #[serde(skip)]
    kept_s: Option<f64>,
}

/// What the measure says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// There is none, or it is as it was.
    Fine,
    /// It is not known yet how it is while nothing is taken.
    TooEarly,
    /// It is worse than then.
    Worse,
}

impl Metric {
    /// Something was taken of the workload.
    pub(super) fn taken(&mut self, now_s: f64) {
        self.taken_s = Some(now_s);
    }

    /// Takes in a value; worse is what exceeds the median of calm times by more than that share.
    pub(super) fn observe(&mut self, value: Option<f64>, share: f64, now_s: f64) -> Says {
        let Some(value) = value.filter(|value| value.is_finite()) else { return Says::Fine };
        let lately = |since_s: Option<f64>, seconds: f64| since_s.is_some_and(|at| (at..at + seconds).contains(&now_s));
        let calm = !lately(self.taken_s, CALM_S);
        if calm && !lately(self.kept_s, EVERY_S) {
            self.kept_s = Some(now_s);
            self.calm.push_back(value);
            let old = self.calm.len().saturating_sub(KEPT);
            self.calm.drain(..old);
        }
        if self.calm.len() < TELLING {
            return Says::TooEarly;
        }
        let mut sorted: Vec<f64> = self.calm.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let usual = sorted[sorted.len() / 2];
        // Of its size, whatever its sign.
        if !calm && value > usual + share * usual.abs() { Says::Worse } else { Says::Fine }
    }

    /// Whether a file can hold it.
    pub(super) fn is_sound(&self) -> bool {
        self.calm.len() <= KEPT && self.calm.iter().all(|value| value.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worse_is_what_exceeds_calm_times_while_something_is_taken() {
        let mut metric = Metric::default();
        assert_eq!(metric.observe(None, 0.1, 0.0), Says::Fine);
        let first: Vec<Says> = [0.0, 1.0, 5.0, 10.0].map(|now_s| metric.observe(Some(100.0), 0.1, now_s)).into();
        assert_eq!(first, [Says::TooEarly, Says::TooEarly, Says::TooEarly, Says::Fine]);
        metric.taken(10.0);
        let later =
            [(15.0, 109.0), (20.0, 111.0), (69.0, 130.0)].map(|(now_s, value)| metric.observe(Some(value), 0.1, now_s));
        assert_eq!(later, [Says::Fine, Says::Worse, Says::Worse]);
        // It stays worse though nothing was taken for long: this is how it is now.
        assert_eq!(metric.observe(Some(130.0), 0.1, 71.0), Says::Fine);
        assert_eq!(metric.observe(Some(f64::NAN), 0.1, 80.0), Says::Fine);
        assert!(metric.is_sound());
    }

    #[test]
    fn a_measure_below_zero_has_a_size_too() {
        let mut metric = Metric::default();
        for turn in 0..4u8 {
            metric.observe(Some(-100.0), 0.1, 10.0 * f64::from(turn));
        }
        metric.taken(40.0);
        assert_eq!([-95.0, -85.0].map(|value| metric.observe(Some(value), 0.1, 41.0)), [Says::Fine, Says::Worse]);
    }
}
