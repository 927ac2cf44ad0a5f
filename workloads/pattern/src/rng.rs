//! A small random number generator: a pattern is the same on every run, fixed by its seed.

/// Marsaglia's xorshift with a multiplied output: one word of state, good enough to scatter touches.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose sequence is fixed by `seed`.
    pub fn new(seed: u64) -> Self {
        // Xorshift cannot leave the state 0, and seeds that are near must not give near sequences.
        let spread = (seed ^ 0x6c6f_7774_6964_6531).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = Rng(spread | 1);
        for _ in 0..8 {
            rng.next();
        }
        rng
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number in `0..limit` (0 when `limit` is 0), for limits below 2^32.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 32).wrapping_mul(limit) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_covers_its_range_evenly() {
        let mut rng = Rng::new(7);
        let mut counts = [0u32; 10];
        for _ in 0..10_000 {
            counts[crate::units::usize_of(rng.below(10))] += 1;
        }
        assert!(counts.iter().all(|&n| (800..1200).contains(&n)), "{counts:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(Rng::new(1).next(), Rng::new(2).next());
        assert_eq!(Rng::new(1).next(), Rng::new(1).next());
    }
}
