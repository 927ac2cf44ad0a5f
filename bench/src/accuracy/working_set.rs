//! The estimated working set against the true one.

use lowtide_model::cohort::Estimate;
use lowtide_model::stats::{mean, quantile};
use lowtide_model::usage::Usage;
use serde::Serialize;

use super::SETTLING_S;
use crate::truth::Truth;

/// An estimate has settled when its error stays within so many percent.
const SETTLED_PERCENT: f64 = 10.0;

/// How exact the working set of one window is.
#[derive(Debug, Default, Serialize)]
pub struct WorkingSetScore {
    pub window_s: u32,
    /// Ticks compared: without the first seconds, and without windows that reach before the first phase.
    pub ticks: usize,
    pub truth_bytes: Option<f64>,
    pub estimate_bytes: Option<f64>,
    /// Median of |estimate - truth| / truth.
    pub error_median_percent: Option<f64>,
    /// 90th percentile of it.
    pub error_p90_percent: Option<f64>,
    /// Mean of (estimate - truth) / truth.
    pub bias_percent: Option<f64>,
    /// Share of the ticks whose 95 % interval holds the truth; `None` where the estimates come without one.
    pub interval_holds_percent: Option<f64>,
    /// Seconds after populating from which on errors stay within 10 %.
    pub settled_s: Option<f64>,
    /// Ticks at which nothing was in use: they have no error in percent.
    pub idle_ticks: usize,
    /// Median of the estimate at those.
    pub idle_estimate_bytes: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    /// Seconds since populating ended.
    since_s: f64,
    estimate: Estimate,
    /// Areas and tables.
    truth: f64,
    /// Nothing of the areas was in use.
    idle: bool,
}

impl Pair {
    fn error_percent(&self) -> f64 {
        100.0 * (self.estimate.bytes - self.truth) / self.truth
    }
}

/// Compares every tick that has an estimate. `epoch_s`: when the record began, `CLOCK_MONOTONIC`.
pub fn score(usage: &[Usage], epoch_s: f64, truth: &Truth, window_s: u32) -> WorkingSetScore {
    let pairs = usage.iter().filter_map(|row| {
        let (estimate, t_s) = (row.working_set(window_s)?, epoch_s + row.t_s?);
        let truth_bytes = truth.at(t_s, |line| line.working_set.get(&window_s).copied())?;
        let idle = truth_bytes <= 0.0;
        let truth_bytes = truth_bytes + truth.header.own_bytes();
        Some(Pair { since_s: t_s - truth.header.start_s, estimate, truth: truth_bytes, idle })
    });
    // Before that, the window includes populating, which is use as well.
    let all: Vec<Pair> = pairs.filter(|pair| pair.since_s >= f64::from(window_s)).collect();
    let late: Vec<Pair> = all.iter().copied().filter(|pair| pair.since_s >= SETTLING_S).collect();
    of_pairs(window_s, &all, &late)
}

fn of_pairs(window_s: u32, all: &[Pair], late: &[Pair]) -> WorkingSetScore {
    let (used, idle): (Vec<Pair>, Vec<Pair>) = late.iter().partition(|pair| !pair.idle);
    let errors: Vec<f64> = used.iter().map(Pair::error_percent).collect();
    let sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    let column = |pairs: &[Pair], get: fn(&Pair) -> f64| quantile(&pairs.iter().map(get).collect::<Vec<f64>>(), 0.5);
    WorkingSetScore {
        window_s,
        ticks: late.len(),
        truth_bytes: column(&used, |pair| pair.truth),
        estimate_bytes: column(&used, |pair| pair.estimate.bytes),
        error_median_percent: quantile(&sizes, 0.5),
        error_p90_percent: quantile(&sizes, 0.9),
        bias_percent: mean(&errors),
        interval_holds_percent: interval_holds(late),
        settled_s: settled(all),
        idle_ticks: idle.len(),
        idle_estimate_bytes: column(&idle, |pair| pair.estimate.bytes),
    }
}

fn interval_holds(pairs: &[Pair]) -> Option<f64> {
    let stated = pairs.iter().any(|pair| pair.estimate.ci95 > 0.0);
    let holds = |pair: &Pair| (pair.estimate.bytes - pair.truth).abs() <= pair.estimate.ci95;
    let shares: Vec<f64> = pairs.iter().map(|pair| if holds(pair) { 100.0 } else { 0.0 }).collect();
    mean(&shares).filter(|_| stated)
}

/// The first time after which no error is too large.
fn settled(pairs: &[Pair]) -> Option<f64> {
    let used: Vec<&Pair> = pairs.iter().filter(|pair| !pair.idle).collect();
    let off = used.iter().rposition(|pair| pair.error_percent().abs() > SETTLED_PERCENT);
    used.get(off.map_or(0, |at| at + 1)).map(|pair| pair.since_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(since_s: f64, bytes: f64, ci95: f64, truth: f64) -> Pair {
        Pair { since_s, estimate: Estimate { bytes, ci95 }, truth, idle: truth <= 0.0 }
    }

    #[test]
    fn errors_intervals_and_settling_of_a_known_run() {
        let all = [
            pair(1.0, 200.0, 10.0, 100.0),
            pair(2.0, 104.0, 10.0, 100.0),
            pair(3.0, 80.0, 10.0, 100.0),
            pair(4.0, 109.0, 10.0, 100.0),
            pair(5.0, 101.0, 10.0, 100.0),
            pair(6.0, 3.0, 4.0, 0.0),
        ];
        let score = of_pairs(1, &all, &all[2..]);
        assert_eq!((score.ticks, score.idle_ticks, score.idle_estimate_bytes), (4, 1, Some(3.0)));
        assert_eq!(score.error_median_percent, Some(9.0));
        assert!((score.bias_percent.unwrap() + 10.0 / 3.0).abs() < 1e-9);
        assert_eq!(score.interval_holds_percent, Some(75.0));
        assert_eq!(score.settled_s, Some(4.0));
    }

    #[test]
    fn estimates_without_intervals_hold_nothing() {
        let all = [pair(4.0, 100.0, 0.0, 100.0)];
        let score = of_pairs(1, &all, &all);
        assert_eq!((score.interval_holds_percent, score.error_median_percent), (None, Some(0.0)));
        assert_eq!(settled(&[pair(1.0, 5.0, 0.0, 1.0)]), None, "never settled");
    }

    proptest! {
        #[test]
        fn after_settling_no_error_is_large(errors in prop::collection::vec(-0.3f64..0.3, 1..40)) {
            let pairs: Vec<Pair> =
                (0u32..).zip(&errors).map(|(t, e)| pair(f64::from(t), 100.0 * (1.0 + e), 1.0, 100.0)).collect();
            match settled(&pairs) {
                Some(t) => {
                    prop_assert!(pairs.iter().filter(|p| p.since_s >= t).all(|p| p.error_percent().abs() <= 10.0));
                    prop_assert!(pairs.iter().rfind(|p| p.since_s < t).is_none_or(|p| p.error_percent().abs() > 10.0));
                }
                None => prop_assert!(pairs.last().unwrap().error_percent().abs() > 10.0),
            }
        }
    }
}
