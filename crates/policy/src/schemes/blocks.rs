//! What is known of the blocks of memory that a scheme has tried.

use std::collections::BTreeMap;

use lowtide_model::random::Random;

use crate::machine::{self, BlockDone, Candidate};

/// A block that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Block {
    /// The part of it that is the candidate's.
    range: (u64, u64),
    /// When.
    tried_s: f64,
    /// Not before.
    again_s: f64,
    /// Pages that were evicted, and those of them that are back.
    evicted: u32,
    back: u32,
    /// How often in a row it was found in use, or gone.
    in_use: u32,
    gone: u32,
    /// Whether its pages are still waited for.
    watched: bool,
}

impl Block {
    /// Its pages came back: it is left alone for longer each time.
    fn found_in_use(&mut self, now_s: f64, age_s: f64) {
        (self.in_use, self.gone, self.watched) = (self.in_use + 1, 0, false);
        self.again_s = now_s + ages(self.in_use, LONGEST) * age_s;
    }
}

/// A block is in use if this share of what was evicted comes back within the age that it was idle for.
const IN_USE: f64 = 0.125;
/// A block that is found in use again and again is left alone for twice as many ages each time, at most so many; one
/// that is gone, for fewer: it may have come back meanwhile, and been idle since.
const LONGEST: f64 = 64.0;
const LONGEST_GONE: f64 = 16.0;

/// Blocks of which one is tried first.
const GROUP: u64 = 16;
/// What was evicted and was not back after so many seconds will stay away, by all likelihood.
const STAYED_S: f64 = 0.9;

/// What is known of a group of blocks; the lowest is taken first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// What was evicted stayed away.
    Idle,
    /// None was tried.
    Unknown,
    /// One was tried, and it is too early to say.
    Waiting,
    /// Some came back.
    InUse,
}

/// Ages to wait after so many times.
fn ages(times: u32, longest: f64) -> f64 {
    2f64.powi(i32::try_from(times.min(16)).unwrap_or(16)).min(longest)
}

/// Blocks of all processes, by process and address.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    /// Bytes of one.
    pub(super) bytes: u64,
    /// Whether one block of a group is tried before the others: what is done to it can hurt.
    sample: bool,
    known: BTreeMap<(u32, u64), Block>,
    random: Random,
}

impl Blocks {
    pub(super) fn new(bytes: u64, sample: bool, seed: u64) -> Self {
        Self { bytes, sample, known: BTreeMap::new(), random: Random::new(seed) }
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = (u32, (u64, u64))> {
        self.known.iter().filter(|(_, block)| block.watched).map(|((pid, _), block)| (*pid, block.range))
    }

    fn known_at(&mut self, pid: u32, address: u64) -> Option<&mut Block> {
        self.known.get_mut(&(pid, address - address % self.bytes))
    }

    /// At most `count` blocks of a candidate that may be tried now, as ranges clipped to it.
    ///
    /// Memory in use lies together, as a rule. So of every group of blocks one is tried first, anywhere in it. If what
    /// was evicted stays away, the rest of the group follows; if it comes back, the rest is tried last, one at a time, and only
    /// once nothing is waited for: there may be idle memory to take instead.
    pub(super) fn choose(&mut self, candidate: &Candidate, count: usize, now_s: f64, again_s: f64) -> Vec<(u64, u64)> {
        let (first, end) = (candidate.start / self.bytes, candidate.end.div_ceil(self.bytes));
        if count == 0 || first >= end {
            return Vec::new();
        }
        let groups: Vec<(u64, u64)> = (first / GROUP..end.div_ceil(GROUP))
            .map(|group| ((group * GROUP).max(first), ((group + 1) * GROUP).min(end)))
            .collect();
        let mut ranks: Vec<(Rank, (u64, u64))> =
            groups.into_iter().map(|group| (self.rank(candidate.pid, group, now_s), group)).collect();
        // Groups of one rank from a random one on, so that none is always first.
        let turn = self.random.index(ranks.len());
        ranks.rotate_left(turn);
        ranks.sort_by_key(|(rank, _)| *rank);
        let waits = ranks.iter().any(|(rank, _)| *rank == Rank::Waiting);
        let mut chosen = Vec::new();
        for (rank, (from, to)) in ranks {
            let left = count - chosen.len();
            let most = match rank {
                Rank::Idle => left,
                Rank::InUse if waits => 0,
                Rank::Unknown | Rank::InUse => left.min(1),
                Rank::Waiting => 0,
            };
            let start = if rank == Rank::Idle { 0 } else { self.random.below(to - from) };
            let blocks = (0..to - from).map(|step| (from + (start + step) % (to - from)) * self.bytes);
            let free: Vec<u64> = blocks.filter(|at| self.may_try(candidate.pid, *at, now_s)).take(most).collect();
            chosen.extend(free.into_iter().map(|at| self.take(candidate, at, now_s, again_s)));
            if chosen.len() == count {
                break;
            }
        }
        chosen.sort_unstable();
        chosen
    }

    fn may_try(&self, pid: u32, at: u64, now_s: f64) -> bool {
        self.known.get(&(pid, at)).is_none_or(|block| now_s >= block.again_s)
    }

    /// What is known of a group of blocks, by number.
    fn rank(&self, pid: u32, (from, to): (u64, u64), now_s: f64) -> Rank {
        let mut rank = if self.sample { Rank::Unknown } else { Rank::Idle };
        for (_, block) in self.known.range((pid, from * self.bytes)..(pid, to * self.bytes)) {
            if block.in_use > 0 {
                return Rank::InUse;
            }
            let stayed = block.watched && block.back == 0 && now_s - block.tried_s > STAYED_S;
            if stayed || block.gone > 0 {
                rank = Rank::Idle;
            } else if block.watched && rank == Rank::Unknown {
                rank = Rank::Waiting;
            }
        }
        rank
    }

    /// Notes that a block is tried; its part of the candidate.
    fn take(&mut self, candidate: &Candidate, at: u64, now_s: f64, again_s: f64) -> (u64, u64) {
        let (in_use, gone) = self.known.get(&(candidate.pid, at)).map_or((0, 0), |block| (block.in_use, block.gone));
        let range = (at.max(candidate.start), (at + self.bytes).min(candidate.end));
        let again_s = now_s + again_s;
        let block = Block { range, tried_s: now_s, again_s, evicted: 0, back: 0, in_use, gone, watched: false };
        self.known.insert((candidate.pid, at), block);
        range
    }

    /// These were not tried after all: they may be at once.
    pub(super) fn skipped(&mut self, now_s: f64, skipped: &[machine::Block]) {
        for (pid, (start, _)) in skipped {
            if let Some(block) = self.known_at(*pid, *start) {
                block.again_s = now_s;
            }
        }
    }

    /// The results of what was tried.
    pub(super) fn evicted(&mut self, now_s: f64, age_s: f64, blocks: &[BlockDone]) {
        for BlockDone { pid, start, evicted, left } in blocks {
            if let Some(block) = self.known_at(*pid, *start) {
                (block.tried_s, block.evicted, block.watched) = (now_s, *evicted, *evicted > 0);
                if *evicted == 0 && *left > 0 {
                    // Memory in constant use is back before it is counted.
                    block.found_in_use(now_s, age_s);
                } else if *evicted == 0 {
                    block.gone += 1;
                    block.again_s = now_s + ages(block.gone, LONGEST_GONE) * age_s;
                }
            }
        }
    }

    /// So many pages of these blocks are back, within `age_s` or later. Returns how many came back since the last call.
    pub(super) fn refaulted(&mut self, now_s: f64, age_s: f64, back: &[(u32, u64, u32)]) -> u64 {
        let mut more = 0;
        for (pid, at, pages) in back {
            let Some(block) = self.known_at(*pid, *at).filter(|block| block.watched) else { continue };
            let pages = (*pages).min(block.evicted);
            more += u64::from(pages.saturating_sub(block.back));
            block.back = pages;
            if f64::from(pages) > IN_USE * f64::from(block.evicted) {
                block.found_in_use(now_s, age_s);
            } else if now_s - block.tried_s > age_s {
                // It was idle indeed.
                (block.in_use, block.gone, block.watched) = (0, block.gone + 1, false);
                block.again_s = now_s + ages(block.gone, LONGEST_GONE) * age_s;
            }
        }
        // Old ones are as good as unknown.
        self.known.retain(|_, block| block.watched || now_s < block.again_s + LONGEST * age_s);
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_back_at_once_is_in_use_and_one_that_is_empty_is_gone() {
        let block = 128 << 10;
        let candidate = Candidate {
            pid: 1,
            start: 0,
            end: 16 * block,
            access_rate: 0.0,
            age_s: 5.0,
            resident: 1e6,
            idle: 1e6,
            huge: 0.0,
        };
        let rank = |left: u32| {
            let mut blocks = Blocks::new(block, true, 1);
            let tried = blocks.choose(&candidate, 1, 0.0, 5.0);
            let done = |range: &(u64, u64)| BlockDone { pid: 1, start: range.0, evicted: 0, left };
            blocks.evicted(1.0, 5.0, &tried.iter().map(done).collect::<Vec<_>>());
            blocks.rank(1, (0, 16), 2.0)
        };
        assert_eq!([rank(32), rank(0)], [Rank::InUse, Rank::Idle]);
        let mut blocks = Blocks::new(block, false, 1);
        let tried = blocks.choose(&candidate, 16, 0.0, 5.0);
        assert_eq!((tried.len(), blocks.choose(&candidate, 16, 1.0, 5.0)), (16, Vec::new()));
        blocks.skipped(1.0, &[(1, tried[3])]);
        assert_eq!(blocks.choose(&candidate, 16, 1.0, 5.0), [tried[3]], "what was not reached may be tried at once");
    }
}
