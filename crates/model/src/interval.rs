//! How sure a figure is: 95 % intervals of the mean of a few runs, of how two kinds of runs compare, and of a mean over time.
//!
//! Pure. How often each of them holds the truth is counted by `lowtide-bench coverage`.

use crate::stats::{mean, stdev};
use crate::units::float;

/// Fewer independent values than this have no interval: two are off to the same side half of the time, and the interval that
/// allows for that (12.7 standard errors) says nothing.
pub const FEWEST: usize = 3;

/// The error that a 95 % interval allows for, both sides together.
const ERROR: f64 = 0.05;

/// An estimate and the half-width of its 95 % interval, both in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub at: f64,
    /// Half the width of its 95 % interval.
    pub half: f64,
}

impl Interval {
    /// The ends, the lower first.
    #[must_use]
    pub fn ends(self) -> [f64; 2] {
        [self.at - self.half, self.at + self.half]
    }

    /// The same where all values rest on one sample of pages whose own half-width is `sampling`, in the unit of the values.
    /// That error is the same in every value, so that it does not average out over time; the two are independent, and add in
    /// quadrature.
    #[must_use]
    pub fn with_sampling(self, sampling: f64) -> Self {
        Self { half: self.half.hypot(sampling), ..self }
    }
}

/// The value that Student's t with so many degrees of freedom exceeds, on either side, with probability `error` (0..1).
/// Infinite without a degree of freedom.
///
/// The distribution in closed form (Abramowitz and Stegun, *Handbook of Mathematical Functions*, 26.7.3 and 26.7.4), inverted
/// by bisection. Beyond a thousand degrees it is that of a thousand: 0.1 % too wide at most.
#[must_use]
pub fn t_quantile(error: f64, degrees: usize) -> f64 {
    const MOST: usize = 1000;
    if degrees == 0 {
        return f64::INFINITY;
    }
    let degrees = degrees.min(MOST);
    // Over the angle of which t is the tangent, times the root of the degrees: between 0 and a right angle.
    let (mut low, mut high) = (0.0, std::f64::consts::FRAC_PI_2);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if within_angle(middle, degrees) < 1.0 - error { low = middle } else { high = middle }
    }
    low.tan() * float(degrees).sqrt()
}

/// The probability that Student's t lies within plus or minus `tan(angle) * sqrt(degrees)`.
fn within_angle(angle: f64, degrees: usize) -> f64 {
    let (sin, cos) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    let mut term = if odd { cos } else { 1.0 };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    for k in (if odd { 2 } else { 1 }..degrees.saturating_sub(1)).step_by(2) {
        term *= float(k) / float(k + 1) * cos * cos;
        sum += term;
    }
    if odd { std::f64::consts::FRAC_2_PI * (angle + sin * sum) } else { sin * sum }
}

/// Half-width of a 95 % interval in standard errors that were estimated with so many degrees of freedom.
#[must_use]
pub fn t95(degrees: usize) -> f64 {
    t_quantile(ERROR, degrees)
}

/// The mean of independent values and its 95 % interval (Student's t). `None` of fewer than [`FEWEST`].
#[must_use]
pub fn mean_interval(values: &[f64]) -> Option<Interval> {
    if values.len() < FEWEST {
        return None;
    }
    let error = stdev(values)? / float(values.len()).sqrt();
    Some(Interval { at: mean(values)?, half: t95(values.len() - 1) * error })
}

/// Half-width of the 95 % interval of a figure, from what it is when one of several random groups of what it rests on is left
/// out at a time (the delete-a-group jackknife; Kott, *Journal of Official Statistics* 2001; Student's t with one degree of
/// freedom less than groups). `None` of fewer than [`FEWEST`] groups.
#[must_use]
pub fn half_by_leaving_out(without_each: &[f64]) -> Option<f64> {
    // The mean's own standard error, times how much closer to each other figures of nearly all groups are.
    let others = float(without_each.len().saturating_sub(1));
    mean_interval(without_each).map(|interval| interval.half * others)
}

/// A share of sums over independent parts, each given as what it has of something and of everything, and its 95 % interval:
/// how much each part is off the share, added up (the ratio estimator of Cochran, *Sampling Techniques*, §6.3). Parts of unlike
/// size say less than as many alike: Student's t has one degree of freedom less than there are parts by Kish's count (the
/// square of the sum of sizes over the sum of their squares). `None` of fewer than [`FEWEST`] by that count.
#[must_use]
pub fn of_sums(parts: &[(f64, f64)]) -> Option<Interval> {
    let total = parts.iter().map(|(_, size)| size).sum::<f64>();
    let squares = parts.iter().map(|(_, size)| size * size).sum::<f64>();
    let alike = (1..=parts.len()).rfind(|alike| float(*alike) * squares <= total * total * (1.0 + 1e-9))?;
    if alike < FEWEST || total <= 0.0 {
        return None;
    }
    let at = parts.iter().map(|(some, _)| some).sum::<f64>() / total;
    let off: Vec<f64> = parts.iter().map(|(some, of)| some - at * of).collect();
    let error = stdev(&off)? * float(parts.len()).sqrt() / total;
    Some(Interval { at, half: t95(alike - 1) * error })
}

/// By how much one kind of runs is above another, from runs in pairs.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Change {
    /// The geometric mean of the ratios, less one: a share.
    pub mean: f64,
    /// Its 95 % interval, shares; `None` of fewer than [`FEWEST`] pairs.
    pub interval: Option<[f64; 2]>,
    /// Pairs of runs.
    pub pairs: usize,
}

impl Change {
    /// Of pairs of figures, the second of which is what the first is compared with. The interval is Student's on the
    /// logarithms of the ratios: twice as much is as far from one as half as much. `None` without any pair, or where a figure
    /// is not above zero and so has no ratio.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let logs: Vec<f64> = pairs.iter().map(|(this, other)| (this / other).ln()).collect();
        let positive = |(this, other): &(f64, f64)| *this > 0.0 && *other > 0.0;
        if !pairs.iter().all(positive) || !logs.iter().all(|log| log.is_finite()) {
            return None;
        }
        let interval = mean_interval(&logs).map(|interval| interval.ends().map(f64::exp_m1));
        Some(Self { mean: mean(&logs)?.exp_m1(), interval, pairs: logs.len() })
    }
}

/// Values for each wave. The shortest then last 40 to 60 values: bursts of up to 20 are short beside them.
const EACH_WAVE: usize = 30;
/// More would make the interval hardly narrower, and bursts may be longer in a long record.
const WAVES: usize = 8;

/// The mean of values that were taken at equal steps of time and depend on those before, and its 95 % interval: between which
/// ends the mean of a longer run of the same kind would lie. Where the values drift, of the mean over this run.
/// `None` of fewer than 60: shorter series do not separate a burst from a steady program, and no interval would hold for both.
///
/// How much the mean varies is how strong the longest waves in the series are, after a straight line through it has been taken
/// away (equal-weighted cosines; Müller, *Journal of Econometrics* 2007; Lazarus, Lewis, Stock and Watson, *Journal of Business
/// and Economic Statistics* 2018). Each wave is a degree of freedom of Student's t, and there is one for every 30 values, 8 at
/// most: far fewer than published for economies, whose values are less dependent than seconds of a bursty program.
#[must_use]
pub fn series_interval(values: &[f64]) -> Option<Interval> {
    let waves = (values.len() / EACH_WAVE).min(WAVES);
    if waves + 1 < FEWEST {
        return None;
    }
    let at = mean(values)?;
    let length = float(values.len());
    let middle = 0.5 * (length - 1.0);
    let from_middle = |place: usize| float(place) - middle;
    let rise = values.iter().enumerate().map(|(place, value)| from_middle(place) * (value - at)).sum::<f64>()
        / values.iter().enumerate().map(|(place, _)| from_middle(place).powi(2)).sum::<f64>();
    let wave = |half_waves: usize| {
        let angle = std::f64::consts::PI * float(half_waves) / length;
        let terms = values
            .iter()
            .enumerate()
            .map(|(place, value)| (value - at - rise * from_middle(place)) * (angle * (float(place) + 0.5)).cos());
        2.0 / length * terms.sum::<f64>().powi(2)
    };
    // The first cosine is almost a straight line, of which nothing is left.
    let power = (2..waves + 2).map(wave).sum::<f64>() / float(waves);
    Some(Interval { at, half: t95(waves) * (power / length).sqrt() })
}

/// Errors, both sides together, that each of up to ten tests of growing data may allow for so that all of them together are
/// wrong once in twenty times (Pocock, *Biometrika* 1977, table 1).
const EACH_TEST: [f64; 10] = [0.05, 0.0294, 0.0221, 0.0182, 0.0158, 0.0142, 0.0130, 0.0120, 0.0112, 0.0106];

/// The error that each test may allow where up to `tests` are planned and the first certain one ends the trials. Beyond ten
/// tests it falls in proportion to their number, which is stricter than necessary.
#[must_use]
pub fn error_per_test(tests: usize) -> f64 {
    let known = tests.clamp(1, EACH_TEST.len());
    EACH_TEST[known - 1] * float(known) / float(tests.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use proptest::prelude::*;

    #[test]
    fn t_is_that_of_printed_tables() {
        // Two-sided 5 % and 1 %.
        let printed = [
            (1, 12.7062, 63.6567),
            (2, 4.3027, 9.9248),
            (3, 3.1824, 5.8409),
            (4, 2.7764, 4.6041),
            (9, 2.2622, 3.2498),
            (10, 2.2281, 3.1693),
            (29, 2.0452, 2.7564),
            (120, 1.9799, 2.6174),
        ];
        for (degrees, five, one) in printed {
            assert!((t95(degrees) - five).abs() < 1e-4, "{degrees}: {}", t95(degrees));
            assert!((t_quantile(0.01, degrees) - one).abs() < 1e-4, "{degrees}: {}", t_quantile(0.01, degrees));
        }
        assert_eq!(t95(0), f64::INFINITY);
        assert!((t95(1_000_000) / crate::stats::Z95 - 1.0).abs() < 2e-3);
    }

    #[test]
    fn a_mean_has_an_interval_from_three_values_on() {
        assert_eq!(mean_interval(&[1.0, 2.0]), None);
        let of_three = mean_interval(&[1.0, 2.0, 3.0]).unwrap();
        assert!((of_three.at - 2.0).abs() < 1e-12 && (of_three.half - 4.3027 / 3f64.sqrt()).abs() < 1e-4);
        assert_eq!(mean_interval(&[2.0; 4]).unwrap().ends(), [2.0, 2.0]);
        let wider = Interval { at: 5.0, half: 3.0 }.with_sampling(4.0);
        assert_eq!((wider.at, wider.half), (5.0, 5.0));
    }

    #[test]
    fn leaving_groups_out_says_of_a_mean_what_is_known_of_it() {
        let values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0];
        let without: Vec<f64> = values.iter().map(|value| (39.0 - value) / 9.0).collect();
        let (of_mean, half) = (mean_interval(&values).unwrap().half, half_by_leaving_out(&without).unwrap());
        assert!((half - of_mean).abs() < 1e-12, "{half} {of_mean}");
        assert_eq!(half_by_leaving_out(&without[..2]), None);
    }

    #[test]
    fn a_share_of_parts_of_one_size_is_their_mean() {
        let parts = [(1.0, 10.0), (2.0, 10.0), (6.0, 10.0), (3.0, 10.0)];
        let (share, mean) = (of_sums(&parts).unwrap(), mean_interval(&[0.1, 0.2, 0.6, 0.3]).unwrap());
        assert!((share.at - mean.at).abs() < 1e-12 && (share.half - mean.half).abs() < 1e-12);
        assert_eq!((of_sums(&parts[..2]), of_sums(&[(0.0, 0.0); 3])), (None, None));
        // One of four is as large as the others together: they say as much as three alike, with two degrees of freedom.
        let uneven = of_sums(&[(1.0, 10.0), (2.0, 10.0), (3.0, 10.0), (6.0, 30.0)]).unwrap();
        let off = [-1.0, 0.0, 1.0, 0.0];
        assert!((uneven.half - 4.3027 * stdev(&off).unwrap() * 2.0 / 60.0).abs() < 1e-5, "{uneven:?}");
        assert_eq!(of_sums(&[(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (50.0, 100.0)]), None);
    }

    #[test]
    fn changes_are_ratios() {
        let two = Change::of(&[(11.0, 10.0), (22.0, 20.0)]).unwrap();
        assert!((two.mean - 0.1).abs() < 1e-12);
        assert_eq!((two.interval, two.pairs), (None, 2));
        // Twice as much and half as much average to nothing, and so do their certain parts.
        let [low, high] = Change::of(&[(2.0, 1.0), (1.0, 2.0), (1.0, 1.0)]).unwrap().interval.unwrap();
        assert!(((1.0 + low) * (1.0 + high) - 1.0).abs() < 1e-9 && high > 1.0);
        assert_eq!(Change::of(&[]), None);
        for bad in [(0.0, 1.0), (1.0, 0.0), (-1.0, -1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0)] {
            assert_eq!(Change::of(&[(1.0, 1.0), bad]), None, "{bad:?}");
        }
    }

    /// How many of 400 series of this kind have an interval that holds 0.
    fn holding(length: usize, mut series: impl FnMut(&mut Random, usize) -> Vec<f64>) -> usize {
        let mut random = Random::new(7);
        let mut holds = || {
            let interval = series_interval(&series(&mut random, length)).unwrap();
            interval.at.abs() <= interval.half
        };
        (0..400).filter(|_| holds()).count()
    }

    #[test]
    fn a_mean_over_time_holds_whatever_the_program_does() {
        let steady = |random: &mut Random, length: usize| (0..length).map(|_| random.normal()).collect();
        let drifting = |random: &mut Random, length: usize| {
            let noise = (0..length).map(|_| random.normal());
            noise.enumerate().map(|(at, noise)| noise + 9.0 * ((float(at) + 0.5) / float(length) - 0.5)).collect()
        };
        let bursty = |random: &mut Random, length: usize| {
            let mut value = random.normal();
            let next = |_| {
                value = 0.8 * value + 0.6 * random.normal();
                value
            };
            (0..length).map(next).collect()
        };
        for length in [60, 300] {
            // 95 %, and three standard deviations of what 400 draws show.
            assert!((366..=394).contains(&holding(length, steady)), "steady: {}", holding(length, steady));
            assert!((366..=394).contains(&holding(length, drifting)), "drifting: {}", holding(length, drifting));
            assert!((354..=394).contains(&holding(length, bursty)), "bursty: {}", holding(length, bursty));
        }
    }

    #[test]
    fn short_series_have_no_interval() {
        let values: Vec<f64> = (0..59).map(f64::from).collect();
        assert_eq!(series_interval(&values), None);
        assert_eq!(series_interval(&[]), None);
        assert_eq!(series_interval(&[3.0; 60]).unwrap().ends(), [3.0, 3.0]);
    }

    #[test]
    fn more_readings_allow_for_less_each() {
        assert!((error_per_test(1) - 0.05).abs() < 1e-12 && (error_per_test(0) - 0.05).abs() < 1e-12);
        for tests in 1..40 {
            let (fewer, more) = (error_per_test(tests), error_per_test(tests + 1));
            // Never stricter than if the errors of all tests merely added up.
            assert!(more < fewer && more * float(tests + 1) >= 0.05, "{tests}");
        }
    }

    proptest! {
        #[test]
        fn intervals_move_and_scale_with_the_values(
            values in prop::collection::vec(-10.0f64..10.0, 60..100), by in -5.0f64..5.0, times in 0.1f64..10.0,
        ) {
            let moved: Vec<f64> = values.iter().map(|value| times * value + by).collect();
            for interval in [mean_interval, series_interval] {
                let (plain, moved) = (interval(&values).unwrap(), interval(&moved).unwrap());
                prop_assert!((moved.at - times * plain.at - by).abs() < 1e-6);
                prop_assert!((moved.half - times * plain.half).abs() < 1e-6);
            }
        }
    }
}
