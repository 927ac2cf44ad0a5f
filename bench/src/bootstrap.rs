//! How sure a median is: the percentile bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*, §13.3). Pure.

use lowtide_model::stats::quantile;

/// Enough that the interval's ends no longer move in the first three digits.
const RESAMPLES: usize = 10_000;

/// The 95 % interval of the median of `values`; `None` when there are none. The same values give the same interval.
#[must_use]
pub fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let count = u64::try_from(values.len()).ok().filter(|count| *count > 0)?;
    let mut state = 0x5eed_u64;
    let mut medians = Vec::with_capacity(RESAMPLES);
    let mut draw = Vec::with_capacity(values.len());
    for _ in 0..RESAMPLES {
        draw.clear();
        for _ in values {
            let at = usize::try_from(next(&mut state) % count).unwrap_or(0);
            draw.push(values[at]);
        }
        medians.push(quantile(&draw, 0.5)?);
    }
    Some((quantile(&medians, 0.025)?, quantile(&medians, 0.975)?))
}

/// The next number of `SplitMix64`.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
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
