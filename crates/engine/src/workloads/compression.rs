//! How far what was paged out compresses in zram.

use lowtide_model::units::float;
use serde::{Deserialize, Serialize};

/// Bytes that must have been stored for a share.
const LEAST: f64 = 1_048_576.0;
/// Where more than this was stored, bytes, all that was counted before a request counts for half.
const RECENT: f64 = 32.0 * 1_048_576.0;

/// What zram stored and what it took for that, as far as that is known. Sums, as small requests are off by more: zsmalloc begins
/// new pages for each size of object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Compression {
    stored: f64,
    taken: f64,
}

impl Compression {
    /// Takes in the bytes that zram stored and used before a request and after it.
    pub fn learn(&mut self, before: (u64, u64), after: (u64, u64)) {
        if after.0 <= before.0 {
            return;
        }
        if self.stored > RECENT {
            (self.stored, self.taken) = (0.5 * self.stored, 0.5 * self.taken);
        }
        self.stored += float(after.0 - before.0);
        self.taken += float(after.1.saturating_sub(before.1));
    }

    /// Bytes that keeping a byte takes; `None` where too little was stored.
    pub fn share(&self) -> Option<f64> {
        (self.stored >= LEAST).then(|| self.taken / self.stored)
    }

    /// Nothing, where it cannot be true: it may have been read from a damaged file.
    #[must_use]
    pub fn checked(self) -> Self {
        if self.stored >= 0.0 && self.taken >= 0.0 { self } else { Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn how_far_memory_compresses_is_learnt() {
        let mut of = Compression::default();
        of.learn((0, 0), (4096, 4096));
        assert_eq!(of.share(), None);
        let mut of = Compression::default();
        of.learn((0, 0), (4 * MIB, MIB));
        assert_eq!(of.share(), Some(0.25));
        of.learn((4 * MIB, MIB), (8 * MIB, 5 * MIB));
        assert_eq!(of.share(), Some(0.625));
        // Another program's memory came back meanwhile.
        of.learn((8 * MIB, 5 * MIB), (7 * MIB, 4 * MIB));
        assert_eq!(of.share(), Some(0.625));
    }

    /// A first request of 1.5 MiB for which zsmalloc begins 1.5 MiB of pages, and then memory that takes a third.
    #[test]
    fn a_small_request_says_little() {
        let mut of = Compression::default();
        of.learn((0, 0), (3 * MIB / 2, 2 * MIB));
        of.learn((3 * MIB / 2, 2 * MIB), (21 * MIB / 2, 5 * MIB));
        assert!(of.share().unwrap() < 0.5);
        (0..8).for_each(|_| of.learn((0, 0), (16 * MIB, 5 * MIB)));
        assert!((of.share().unwrap() - 5.0 / 16.0).abs() < 0.01);
    }
}
