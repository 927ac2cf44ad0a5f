//! Which pages join the cohort: one page of every aligned block of 2^level pages, chosen by a hash of the block.
//!
//! Problem: pages appear and vanish while they are watched, and a sample drawn once from those that existed would be
//! blind to growth. Drawing by a fixed hash of the page's number makes the draw independent of when the page appears.
//! One page per block makes the sample *stratified* over the address space, so a contiguous hot range is measured far
//! more exactly than by a plain random sample of the same size.
//!
//! A fixed sample's error would be the same all through a record and never average out. So a quarter of the blocks
//! choose again at every *turn*; the rest keep their pages, and with them ages longer than a turn.
//!
//! The choice is *nested*: at turn 0, and for the blocks that do not take turns, the page chosen at level `k + 1` is one of the two chosen at level `k`, so when memory grows
//! and the sample must get sparser, the pages kept keep their history (as in SHARDS, Waldspurger et al., FAST'15).

use crate::random::mix;

/// The density of a sample and the seed that fixes which pages it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// One page in `2^level` is chosen.
    pub level: u32,
    /// Fixes the choice; two cohorts with different seeds are independent samples.
    pub seed: u64,
    /// How often the blocks that take turns have chosen again.
    pub turn: u64,
}

impl Choice {
    /// The page chosen from block `block`, that is from pages `block << level .. (block + 1) << level`.
    #[must_use]
    pub fn page_of(&self, block: u64) -> u64 {
        let seed = if self.turn > 0 && self.takes_turns(block) { mix(self.seed ^ self.turn) } else { self.seed };
        (1..=self.level).rev().fold(block, |node, level| {
            let bit = mix(node ^ mix(seed ^ u64::from(level))) & 1;
            (node << 1) | bit
        })
    }

    /// Whether a block is one of the quarter that choose again.
    fn takes_turns(&self, block: u64) -> bool {
        mix(block ^ mix(!self.seed)) & 3 == 0
    }

    /// Whether `page` is in the sample.
    #[must_use]
    pub fn holds(&self, page: u64) -> bool {
        self.page_of(page >> self.level) == page
    }

    /// The chosen pages in `first..end` (page numbers), ascending.
    pub fn pages_in(self, first: u64, end: u64) -> impl Iterator<Item = u64> {
        let blocks = (first >> self.level)..(end.saturating_sub(1) >> self.level) + u64::from(end > first);
        blocks.map(move |block| self.page_of(block)).filter(move |page| (first..end).contains(page))
    }

    /// How many pages stand behind one chosen page.
    #[must_use]
    pub fn pages_each(&self) -> u64 {
        1 << self.level
    }
}

/// The smallest level at which `pages` pages give at most `limit` chosen ones (on average).
#[must_use]
pub fn level_for(pages: u64, limit: u64) -> u32 {
    let ratio = pages.div_ceil(limit.max(1)).max(1);
    ratio.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_page_of_each_block_and_nested(block in 0u64..(1 << 40), level in 0u32..20, seed in any::<u64>()) {
            let choice = Choice { level, seed, turn: 0 };
            let page = choice.page_of(block);
            prop_assert_eq!(page >> level, block);
            prop_assert!(choice.holds(page));
            let finer = Choice { level: level.saturating_sub(1), seed, turn: 0 };
            prop_assert!(finer.holds(page), "a page of the coarse sample is in the finer one");
        }

        #[test]
        fn enumeration_agrees_with_membership(
            first in 0u64..5000, len in 0u64..3000, level in 0u32..8, seed in any::<u64>(), turn in 0u64..5,
        ) {
            let choice = Choice { level, seed, turn };
            let listed: Vec<u64> = choice.pages_in(first, first + len).collect();
            let tested: Vec<u64> = (first..first + len).filter(|page| choice.holds(*page)).collect();
            prop_assert_eq!(listed, tested);
        }

        #[test]
        fn the_level_keeps_to_the_limit(pages in 0u64..(1 << 40), limit in 1u64..100_000) {
            let level = level_for(pages, limit);
            prop_assert!(pages >> level <= limit);
            prop_assert!(level == 0 || pages.div_ceil(1 << (level - 1)) > limit);
        }
    }

    #[test]
    fn every_place_in_a_block_is_equally_likely() {
        let choice = Choice { level: 4, seed: 1, turn: 0 };
        let mut counts = [0u32; 16];
        for block in 0..16_000u64 {
            counts[usize::try_from(choice.page_of(block) & 15).unwrap()] += 1;
        }
        // 1000 expected each, standard deviation 31: five of them either way.
        assert!(counts.iter().all(|count| (845..1155).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_turn_changes_a_quarter_of_the_blocks() {
        let (before, after) = (Choice { level: 8, seed: 3, turn: 4 }, Choice { level: 8, seed: 3, turn: 5 });
        let changed = (0..4000).filter(|block| before.page_of(*block) != after.page_of(*block)).count();
        assert!((900..1100).contains(&changed), "{changed}");
    }
}
