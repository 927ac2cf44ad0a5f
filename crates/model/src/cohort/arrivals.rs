//! When pages came that a walk over the target found later.

/// The sizes of a kind since the last refresh: when, seconds, and bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    pub(super) sizes: Vec<(f64, f64)>,
}

impl Arrivals {
    /// When the page came that is at `share` (0 to 1) of `bytes` that are new.
    #[must_use]
    pub fn at_s(&self, share: f64, bytes: f64) -> f64 {
        let rises = || self.sizes.windows(2).map(|pair| (pair[0].0, pair[1].0, (pair[1].1 - pair[0].1).max(0.0)));
        let grown: f64 = rises().map(|(.., bytes)| bytes).sum();
        // The first of what is new is the growth.
        let mut left = share * bytes.max(grown);
        for (from_s, to_s, bytes) in rises().filter(|(.., bytes)| *bytes > 0.0) {
            if left <= bytes {
                return from_s + (to_s - from_s) * left / bytes;
            }
            left -= bytes;
        }
        let (first_s, last_s) = (self.sizes.first().map_or(0.0, |at| at.0), self.sizes.last().map_or(0.0, |at| at.0));
        first_s + (last_s - first_s) * (left / (bytes - grown).max(1.0)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_came_when_the_target_grew() {
        // 100 bytes from 1 to 2 s; nothing after that, until a walk at 10 s.
        let arrivals = Arrivals { sizes: vec![(0.0, 50.0), (1.0, 50.0), (2.0, 150.0), (10.0, 150.0)] };
        assert_eq!([0.0, 0.5, 1.0].map(|share| arrivals.at_s(share, 100.0)), [1.0, 1.5, 2.0]);
        // Twice as much is new: half of it in place of what was given back.
        assert_eq!([0.25, 0.5, 0.75, 1.0].map(|share| arrivals.at_s(share, 200.0)), [1.5, 2.0, 5.0, 10.0]);
        let steady = Arrivals { sizes: vec![(4.0, 50.0), (6.0, 50.0)] };
        assert_eq!([0.0, 0.5, 1.0].map(|share| steady.at_s(share, 10.0)), [4.0, 5.0, 6.0]);
    }

    proptest! {
        #[test]
        fn they_came_since_the_last_refresh(
            sizes in prop::collection::vec(0.0f64..1e9, 1..20), share in 0.0f64..1.0, bytes in 0.0f64..1e9,
        ) {
            let sizes: Vec<(f64, f64)> = sizes.into_iter().zip(3u32..).map(|(size, at)| (f64::from(at), size)).collect();
            let last_s = sizes.last().map_or(0.0, |at| at.0);
            let at_s = Arrivals { sizes }.at_s(share, bytes);
            prop_assert!((3.0..=last_s).contains(&at_s), "{}", at_s);
        }
    }
}
