//! Whether what is evicted is out for long enough to be worth its two trips, however little they cost.

use crate::reclaim::mean::Mean;

/// What is out for less than so many seconds on average is not worth it: to page out and refault a page of zram takes 20 us of a CPU, and
/// at the prices of clouds a GiB costs an eighth to a quarter of one, which pays after 20 to 40 s.
const WORTH_S: f64 = 30.0;
/// This part of what may be lost is spent nevertheless, so that a little is tried again after some minutes.
const TRIED: f64 = 0.1;
/// The past counts half after so many seconds.
const HALF_LIFE_S: f64 = 60.0;

/// What the last minutes cost of one target, beside what was out in them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Worth {
    /// What was lost each second.
    lost: Mean,
    /// What it would have cost to refault all that was out.
    out: Mean,
}

impl Worth {
    /// Takes in what was lost in so many seconds, and what it would cost now to refault all that is out; seconds.
    pub fn observe(&mut self, elapsed_s: f64, lost_s: f64, out_s: f64) {
        self.lost.add(lost_s, elapsed_s, HALF_LIFE_S);
        self.out.add((out_s + lost_s) * elapsed_s, elapsed_s, HALF_LIFE_S);
    }

    /// Whether it costs more than it is worth, where this share of the time may be lost.
    pub fn is_dear(&self, allowed: f64) -> bool {
        let worth = self.out.get().map(|out_s| out_s / WORTH_S + TRIED * allowed);
        self.lost.get() > worth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_returns_soon_is_dear_until_it_is_forgotten() {
        let mut worth = Worth::default();
        assert!(!worth.is_dear(0.01));
        let mut after = |seconds: u32, lost_s: f64, out_s: f64| {
            (0..seconds).for_each(|_| worth.observe(1.0, lost_s, out_s));
            worth.is_dear(0.01)
        };
        // Half a second of refaults is out, and comes back within 50 s, then within 20.
        assert_eq!([after(60, 0.01, 0.5), after(60, 0.025, 0.5)], [false, true]);
        // Nothing is taken any more: after some minutes it is tried again.
        assert_eq!([after(60, 0.0, 0.0), after(240, 0.0, 0.0)], [true, false]);
        // So little may always be lost.
        assert!(!after(600, 0.0009, 0.0));
    }
}
