//! What is known of the blocks of memory that a scheme has tried.

use std::collections::BTreeMap;

use super::Candidate;

/// A block that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Block {
    /// When.
    tried_s: f64,
    /// Not before.
    again_s: f64,
    /// Pages that went, and those of them that are back.
    went: u32,
    back: u32,
    /// How often in a row it was found in use, or gone.
    in_use: u32,
    gone: u32,
    /// Whether its pages are still waited for.
    watched: bool,
}

/// A block is in use if this share of what went comes back within the age that it was idle for.
const IN_USE: f64 = 0.125;
/// A block that is found in use again and again is left alone for twice as many ages each time, at most so many; one
/// that is gone, for fewer: it may have come back meanwhile, and been idle since.
const LONGEST: f64 = 64.0;
const LONGEST_GONE: f64 = 16.0;

/// Ages to wait after so many times.
fn ages(times: u32, longest: f64) -> f64 {
    2f64.powi(i32::try_from(times.min(16)).unwrap_or(16)).min(longest)
}

/// Blocks of all processes, by process and address.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    /// Bytes of one.
    pub(super) bytes: u64,
    known: BTreeMap<(u32, u64), Block>,
    random: u64,
}

impl Blocks {
    pub(super) fn new(bytes: u64, seed: u64) -> Self {
        Self { bytes, known: BTreeMap::new(), random: seed | 1 }
    }

    /// xorshift64* (Vigna, 2016).
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn watched(&self) -> Vec<(u32, u64)> {
        self.known.iter().filter(|(_, block)| block.watched).map(|(at, _)| *at).collect()
    }

    /// At most `count` blocks of a candidate that may be tried now, from a random place on, as ranges clipped to it.
    pub(super) fn choose(&mut self, candidate: &Candidate, count: usize, now_s: f64, again_s: f64) -> Vec<(u64, u64)> {
        let (first, end) = (candidate.start / self.bytes, candidate.end.div_ceil(self.bytes));
        let blocks = end.saturating_sub(first);
        if count == 0 || blocks == 0 {
            return Vec::new();
        }
        // Whole regions in order, so that neighbours go to neighbouring swap; else anywhere, as the idle part may be.
        let whole = candidate.idle >= candidate.resident;
        let from = if whole { 0 } else { self.random() % blocks };
        let mut chosen = Vec::new();
        for step in 0..blocks {
            if chosen.len() == count {
                break;
            }
            let at = (first + (from + step) % blocks) * self.bytes;
            let known = self.known.get(&(candidate.pid, at));
            if known.is_some_and(|block| now_s < block.again_s) {
                continue;
            }
            let (in_use, gone) = known.map_or((0, 0), |block| (block.in_use, block.gone));
            let again_s = now_s + again_s;
            let block = Block { tried_s: now_s, again_s, went: 0, back: 0, in_use, gone, watched: false };
            self.known.insert((candidate.pid, at), block);
            chosen.push((at.max(candidate.start), (at + self.bytes).min(candidate.end)));
        }
        chosen.sort_unstable();
        chosen
    }

    /// So many pages of these blocks went.
    pub(super) fn went(&mut self, now_s: f64, age_s: f64, blocks: &[(u32, u64, u32)]) {
        for (pid, at, pages) in blocks {
            if let Some(block) = self.known.get_mut(&(*pid, *at)) {
                (block.tried_s, block.went, block.watched) = (now_s, *pages, *pages > 0);
                if *pages == 0 {
                    block.gone += 1;
                    block.again_s = now_s + ages(block.gone, LONGEST_GONE) * age_s;
                }
            }
        }
    }

    /// So many pages of these blocks are back, within `age_s` or later. Returns how many came back since the last call.
    pub(super) fn came_back(&mut self, now_s: f64, age_s: f64, back: &[(u32, u64, u32)]) -> u64 {
        let mut more = 0;
        for (pid, at, pages) in back {
            let Some(block) = self.known.get_mut(&(*pid, *at)).filter(|block| block.watched) else { continue };
            let pages = (*pages).min(block.went);
            more += u64::from(pages.saturating_sub(block.back));
            block.back = pages;
            if f64::from(pages) > IN_USE * f64::from(block.went) {
                (block.in_use, block.gone, block.watched) = (block.in_use + 1, 0, false);
                block.again_s = now_s + ages(block.in_use, LONGEST) * age_s;
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
