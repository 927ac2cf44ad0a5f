//! Whether a target grows.

/// A target grows where the most that it has had rises by this share
const RISE: f64 = 0.05;
/// within so many seconds, and for as long afterwards.
const WITHIN_S: f64 = 3.0;

/// How a target has grown. Programs touch memory as they start that they use again before they are done with it, and that what is
/// idle then stays so is a bad guess: of a store that is being filled, or a heap that a collector is about to walk over.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Growth {
    /// The most bytes that it had, and when it last had no more; `None` before the first.
    most: Option<(f64, f64)>,
    /// When it last rose fast enough.
    rose_s: Option<f64>,
}

impl Growth {
    /// Takes in how much the target has now, and says whether it grows. What was there at first is no growth.
    pub(super) fn goes_on(&mut self, now_s: f64, bytes: f64) -> bool {
        let (most, at_s) = self.most.unwrap_or((bytes, now_s));
        let rises = bytes > most * (1.0 + RISE);
        if rises && now_s - at_s <= WITHIN_S {
            self.rose_s = Some(now_s);
        }
        self.most = Some(if rises || bytes <= most { (bytes.max(most), now_s) } else { (most, at_s) });
        self.rose_s.is_some_and(|rose_s| now_s - rose_s < WITHIN_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_ends_some_seconds_after_the_last_rise() {
        let mut growth = Growth::default();
        let grows = |growth: &mut Growth, at: &[(f64, f64)]| -> Vec<bool> {
            at.iter().map(|(now_s, bytes)| growth.goes_on(*now_s, *bytes)).collect()
        };
        assert_eq!(grows(&mut growth, &[(0.0, 100.0), (1.0, 104.0), (2.0, 106.0)]), [false, false, true]);
        // What falls and rises again below what was there before is no growth.
        assert_eq!(grows(&mut growth, &[(3.0, 50.0), (4.9, 106.0), (5.0, 106.0)]), [true, true, false]);
        // What rises by one percent a second does not grow fast.
        let slowly: Vec<(f64, f64)> =
            (0..60).map(|second| (6.0 + f64::from(second), 106.0 + f64::from(second))).collect();
        assert!(grows(&mut growth, &slowly).iter().all(|grows| !grows));
        assert_eq!(
            grows(&mut growth, &[(70.0, 160.0), (71.0, 330.0), (73.9, 330.0), (74.0, 330.0)]),
            [false, true, true, false]
        );
    }
}
