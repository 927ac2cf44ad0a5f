//! What runs under a budget say: whether it holds, and which the least is that does. Pure functions of their times.

/// Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom; beyond, the last.
const T95: [f64; 15] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131];

/// How much longer runs took than unlimited ones, as a share.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Slowdown {
    /// The geometric mean over the pairs.
    pub mean: f64,
    /// Its 95 % interval; `None` of a single pair.
    pub interval: Option<[f64; 2]>,
    /// Pairs of runs.
    pub pairs: usize,
}

impl Slowdown {
    /// Of pairs of times: under the budget, and without a limit, made one shortly after the other. `None` without any.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a handful of runs")]
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let logs: Vec<f64> = pairs.iter().map(|(under, free)| (under / free).ln()).collect();
        let mean = crate::stats::mean(&logs)?;
        let interval = crate::stats::stdev(&logs).map(|stdev| {
            let freedom = logs.len() - 1;
            let half = T95[freedom.min(T95.len()) - 1] * stdev / (logs.len() as f64).sqrt();
            [mean - half, mean + half].map(f64::exp_m1)
        });
        Some(Self { mean: mean.exp_m1(), interval, pairs: logs.len() })
    }

    /// Whether more pairs would change nothing about being within what is allowed, with 95 % certainty.
    #[must_use]
    pub fn is_certain(&self, allowed: f64) -> bool {
        self.interval.is_some_and(|[low, high]| high <= allowed || low > allowed)
    }
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

    /// Takes note of whether so many bytes held.
    pub fn told(&mut self, bytes: f64, holds: bool) {
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
        let slowdown = Slowdown::of(&[(11.0, 10.0), (22.0, 20.0)]).unwrap();
        assert!((slowdown.mean - 0.1).abs() < 1e-9 && slowdown.pairs == 2);
        assert!(slowdown.is_certain(0.2) && slowdown.is_certain(0.05));
        let unsure = Slowdown::of(&[(11.0, 10.0), (10.0, 11.0), (10.5, 10.4)]).unwrap();
        assert!(!unsure.is_certain(0.02));
        assert!(!Slowdown::of(&[(1.0, 1.0)]).unwrap().is_certain(0.02));
        assert_eq!(Slowdown::of(&[]), None);
        assert!((perf_per_gb((1e9, 10.0), (2e9, 20.0)) - 0.25).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn the_least_that_holds_is_found(least in 1e6f64..1e9, above in 1.0f64..10.0) {
            let mut bisection = Bisection::between(0.0, least * above);
            let mut tries = 0;
            while let Some(bytes) = bisection.next() {
                bisection.told(bytes, bytes >= least);
                tries += 1;
            }
            prop_assert!(bisection.least() >= least && bisection.least() <= least * 1.06, "{bisection:?}");
            prop_assert!(tries <= 10);
        }

        #[test]
        fn the_interval_holds_the_mean(times in prop::collection::vec((1.0f64..100.0, 1.0f64..100.0), 2..20)) {
            let slowdown = Slowdown::of(&times).unwrap();
            let [low, high] = slowdown.interval.unwrap();
            prop_assert!(low <= slowdown.mean && slowdown.mean <= high);
        }
    }
}
