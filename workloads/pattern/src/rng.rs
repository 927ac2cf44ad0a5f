//! A small random number generator: patterns must be the same on every run, so the seed is theirs.

use crate::units::usize_of;

/// Marsaglia's xorshift with a multiplied output; good enough to scatter touches, and one word of state.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose sequence is fixed by `seed`.
    pub fn new(seed: u64) -> Self {
        // Xorshift cannot leave the state 0, and near seeds must not give near sequences.
        let spread = (seed ^ 0x6c6f_7774_6964_6531).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = Rng(spread | 1);
        for _ in 0..8 {
            rng.next();
        }
        rng
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number in `0..limit` (0 when `limit` is 0), for limits below 2^32.
    pub fn below(&mut self, limit: usize) -> usize {
        usize_of((self.next() >> 32).wrapping_mul(limit as u64) >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_covers_its_range_evenly() {
        let mut rng = Rng::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[rng.below(10)] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(Rng::new(1).next(), Rng::new(2).next());
        assert_eq!(Rng::new(1).next(), Rng::new(1).next());
    }
}
