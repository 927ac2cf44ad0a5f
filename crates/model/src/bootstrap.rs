//! How sure a median is: the percentile bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*, §13.3). Pure.

use crate::random::Random;
use crate::stats::quantile;

/// Enough that the interval's ends no longer move in the first three digits.
const RESAMPLES: usize = 10_000;

/// The 95 % interval of the median of `values`; `None` when there are none. The same values give the same interval.
#[must_use]
pub fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let mut random = Random::new(0x5eed);
    let mut medians = Vec::with_capacity(RESAMPLES);
    let mut draw = Vec::with_capacity(values.len());
    for _ in 0..RESAMPLES {
        draw.clear();
        for _ in values {
            draw.push(values[random.index(values.len())]);
        }
        medians.push(quantile(&draw, 0.5)?);
    }
    Some((quantile(&medians, 0.025)?, quantile(&medians, 0.975)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_constant_is_sure_and_nothing_is_nothing() {
        assert_eq!(median_interval(&[2.0; 7]), Some((2.0, 2.0)));
        assert_eq!(median_interval(&[]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn intervals_lie_within_the_values_and_scale_with_them(values in prop::collection::vec(0.1f64..10.0, 1..20)) {
            let (low, high) = median_interval(&values).unwrap();
            let (min, max) = (quantile(&values, 0.0).unwrap(), quantile(&values, 1.0).unwrap());
            prop_assert!(min <= low && low <= high && high <= max);
            let doubled: Vec<f64> = values.iter().map(|value| 2.0 * value).collect();
            prop_assert_eq!(median_interval(&doubled), Some((2.0 * low, 2.0 * high)));
        }
    }
}
