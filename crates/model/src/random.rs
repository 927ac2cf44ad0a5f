//! Random numbers that are the same for the same seed, wherever they are drawn.

use crate::units::{count, float};

/// `SplitMix64`'s finaliser: a bijection of u64 whose output bits are well mixed.
#[must_use]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Fills words of 8 bytes; what is left over stays as it was.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.number().to_ne_bytes());
        }
    }

    /// A number below `end`, which is not 0. All are as good as equally likely while `end` is far below 2^64.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// A number from 0 up to, but without, 1; 53 bits of it are random.
    pub fn chance(&mut self) -> f64 {
        float(self.number() >> 11) / float(1u64 << 53)
    }

    /// A number of the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.chance(), self.chance());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// A place in a list of so many.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(count(len))).unwrap_or(0)
    }

    /// Puts a list into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.index(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_reference() {
        // From the reference implementation, https://prng.di.unimi.it/splitmix64.c, seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!([random.number(), random.number()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn shuffles_keep_everything() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<u32>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<u32>>());
    }
}
