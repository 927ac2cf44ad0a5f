//! The little statistics lowtide needs: percentiles and standard normal quantile.

use crate::units::{float, index};

/// The 97.5th percentile of the standard normal distribution: half-width of a 95 % interval in standard deviations.
pub const Z95: f64 = 1.959_964;

/// The `q`-quantile (0..=1) of `values` by linear interpolation between closest ranks (type 7, the default of R and `NumPy`).
/// `None` when there are no values. `values` need not be sorted; values that are not finite are left out.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let rank = q.clamp(0.0, 1.0) * float(last);
    let (low, high) = (index(rank.floor()), index(rank.ceil()));
    Some(sorted[low] + (sorted[high] - sorted[low]) * (rank - rank.floor()))
}

/// The arithmetic mean, `None` when there are no values.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / float(values.len()))
}

/// Standard deviation of a sample; `None` of less than two values.
#[must_use]
pub fn stdev(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    Some((values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / float(freedom)).sqrt())
}

/// The largest value, `None` when there are no values.
#[must_use]
pub fn max(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_a_known_list() {
        let list = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&list, 0.5), Some(2.5));
        assert_eq!(quantile(&list, 1.0), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(mean(&list), Some(2.5));
    }

    proptest! {
        #[test]
        fn quantiles_are_monotone_and_within(list in prop::collection::vec(-1e9f64..1e9, 1..50), a in 0.0f64..1.0, b in 0.0f64..1.0) {
            let (low, high) = (a.min(b), a.max(b));
            let (at_low, at_high) = (quantile(&list, low).unwrap(), quantile(&list, high).unwrap());
            prop_assert!(at_low <= at_high);
            prop_assert!(quantile(&list, 0.0).unwrap() <= at_low && at_high <= max(&list).unwrap());
        }
    }
}
