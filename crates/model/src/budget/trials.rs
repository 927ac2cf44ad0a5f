//! Trials of budgets: whether one holds, and the least that does, from the times of runs.

use crate::interval::{Change, FEWEST, error_per_test, t_quantile, t95};

/// How much longer runs took under a budget than without a limit, from pairs made one shortly after the other.
pub type Slowdown = Change;

impl Change {
    /// Whether more pairs would change nothing about being within what is allowed (a share), with 95 % certainty where the
    /// question is asked after every pair, up to `tests` times, until the answer is yes. Never of fewer than three pairs.
    ///
    /// Each answer is as much surer than 95 % as it takes for all of them together ([`error_per_test`]). So a slowdown
    /// whose own interval lies beside what is allowed may not be certain yet.
    #[must_use]
    pub fn is_certain(&self, allowed: f64, tests: usize) -> bool {
        let Some([low, high]) = self.interval.filter(|_| self.pairs >= FEWEST) else { return false };
        let degrees = self.pairs - 1;
        let half = 0.5 * (high.ln_1p() - low.ln_1p());
        let half = half * t_quantile(error_per_test(tests), degrees) / t95(degrees);
        let (mean, allowed) = (self.mean.ln_1p(), allowed.ln_1p());
        mean + half <= allowed || mean - half > allowed
    }
}

/// Number of tests of whether a slowdown is certain with at most so many pairs: one after each from the third on.
#[must_use]
pub fn planned_tests(pairs: usize) -> usize {
    (pairs + 1).saturating_sub(FEWEST).max(1)
}

/// A bisection ends when it knows the least to within this share.
const CLOSE: f64 = 0.05;

/// The least bytes that hold, closer and closer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bisection {
    low: f64,
    high: f64,
}

impl Bisection {
    /// Between what does not hold and what does, bytes.
    #[must_use]
    pub fn between(low: f64, high: f64) -> Self {
        Self { low: low.min(high), high }
    }

    /// What to try next; `None` if the least is known well enough.
    #[must_use]
    pub fn next(&self) -> Option<f64> {
        (self.high - self.low > CLOSE * self.high).then_some(0.5 * (self.low + self.high))
    }

    /// Records whether so many bytes held.
    pub fn record(&mut self, bytes: f64, holds: bool) {
        if holds { self.high = self.high.min(bytes) } else { self.low = self.low.max(bytes).min(self.high) }
    }

    /// The least that is known to hold.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.high
    }
}

/// Performance per GB as published (Garg, Parashar and Kannan, equation 3): `(MinMemoryUsed x MinRuntime) / (MemoryUsed x
/// Runtime)`, where the least are App-MaxRSS and the unlimited runtime. Memory in bytes, times in seconds.
#[must_use]
pub fn perf_per_gb((least_bytes, least_s): (f64, f64), (bytes, runtime_s): (f64, f64)) -> f64 {
    least_bytes * least_s / (bytes * runtime_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slowdown_is_that_of_pairs_with_its_interval() {
        let slowdown = Slowdown::of(&[(11.0, 10.0), (22.0, 20.0), (33.0, 30.0)]).unwrap();
        assert!((slowdown.mean - 0.1).abs() < 1e-9 && slowdown.pairs == 3);
        assert!(slowdown.is_certain(0.2, 8) && slowdown.is_certain(0.05, 8));
        let unsure = Slowdown::of(&[(11.0, 10.0), (10.0, 11.0), (10.5, 10.4)]).unwrap();
        assert!(!unsure.is_certain(0.02, 1));
        assert_eq!(Slowdown::of(&[]), None);
        assert!((perf_per_gb((1e9, 10.0), (2e9, 20.0)) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn fewer_than_three_pairs_are_never_certain() {
        for pairs in 1..3 {
            let few = Slowdown::of(&[(1.0, 2.0), (1.0, 2.0)][..pairs]).unwrap();
            assert_eq!(few.interval, None);
            assert!(!few.is_certain(0.02, 1));
            assert!(!Slowdown { interval: Some([-0.5; 2]), ..few }.is_certain(0.02, 1), "as older records have it");
        }
    }

    #[test]
    fn asking_often_makes_certain_late() {
        // Within 5 % by four standard errors: enough for three degrees of freedom for one test, not for ten.
        let slowdown = Slowdown::of(&[(1.02, 1.0), (1.03, 1.0), (1.04, 1.0), (1.035, 1.0)]).unwrap();
        assert!(slowdown.is_certain(0.05, 1));
        assert!(!slowdown.is_certain(0.05, 10));
        assert_eq!([1, 3, 5, 10].map(planned_tests), [1, 1, 3, 8]);
    }

    /// Of 1,000 programs that are slowed down by just what is allowed: how many are called certain within ten rounds.
    fn called_certain(tests: usize) -> usize {
        let mut random = crate::random::Random::new(3);
        let mut ends = || {
            let mut pairs = Vec::new();
            (0..10).any(|_| {
                pairs.push((1.02 * (0.05 * random.normal()).exp(), 1.0));
                Slowdown::of(&pairs).is_some_and(|of| of.is_certain(0.02, tests))
            })
        };
        (0..1000).filter(|_| ends()).count()
    }

    #[test]
    fn certainty_is_wrong_once_in_twenty_times_however_often_it_is_asked() {
        assert!(called_certain(planned_tests(10)) <= 60, "{}", called_certain(planned_tests(10)));
        assert!(called_certain(1) > 100, "uncorrected, it would be wrong often: {}", called_certain(1));
    }

    proptest! {
        #[test]
        fn the_least_that_holds_is_found(least in 1e6f64..1e9, above in 1.0f64..10.0) {
            let mut bisection = Bisection::between(0.0, least * above);
            let mut tries = 0;
            while let Some(bytes) = bisection.next() {
                bisection.record(bytes, bytes >= least);
                tries += 1;
            }
            prop_assert!(bisection.least() >= least && bisection.least() <= least * 1.06, "{bisection:?}");
            prop_assert!(tries <= 10);
        }

        #[test]
        fn the_interval_holds_the_mean(times in prop::collection::vec((1.0f64..100.0, 1.0f64..100.0), 3..20)) {
            let slowdown = Slowdown::of(&times).unwrap();
            let [low, high] = slowdown.interval.unwrap();
            prop_assert!(low <= slowdown.mean && slowdown.mean <= high);
        }
    }
}
