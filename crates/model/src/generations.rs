//! Generations of the multi-generational LRU as idle ages.
//!
//! A walk over the page tables makes a new generation, and pages found used since the walk before go to the generation
//! that was the youngest until then. So what is in generation g was last used between its birth and the birth of g + 1;
//! what is in the youngest came since the last walk; what is in the oldest may be of any age beyond.

use crate::WINDOWS_S;
use crate::cohort::{AgeBin, Estimate};

/// One generation of one cgroup on one node.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Generation {
    /// Its number; younger ones have higher numbers.
    pub seq: u64,
    /// Seconds since its birth.
    pub age_s: f64,
    /// Bytes, anonymous.
    pub anon: f64,
    /// Bytes, file.
    pub file: f64,
}

/// Generations that the kernel keeps at most (`MAX_NR_GENS`).
const MOST: usize = 4;

/// A birth is taken for an edge of the histogram if it is at most so far from it, as a share of it and in seconds: walking
/// over a busy machine takes some tenths.
const NEAR: (f64, f64) = (0.15, 0.3);

/// Bytes used within the last `window_s`, anonymous and file. `generations`: oldest first. `None` where no generation was
/// born near that time: then no walk bounds the window.
#[must_use]
pub fn used_within(generations: &[Generation], window_s: f64) -> Option<[f64; 2]> {
    // Where the kernel has no room for another generation, the oldest also holds what is older than its birth. Where
    // fewer are listed, the older ones are empty.
    let bounds_nothing = usize::from(generations.len() >= MOST);
    let near = (NEAR.0 * window_s).max(NEAR.1);
    let born = generations.iter().skip(bounds_nothing).filter(|g| (g.age_s - window_s).abs() <= near);
    let edge = born.min_by(|a, b| (a.age_s - window_s).abs().total_cmp(&(b.age_s - window_s).abs()))?;
    let younger = generations.iter().filter(|g| g.seq >= edge.seq);
    Some(younger.fold([0.0; 2], |sum, g| [sum[0] + g.anon, sum[1] + g.file]))
}

/// Lists of generations taken together: of a cgroup with its descendants, of several nodes, of a machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// All bytes, anonymous and file.
    pub total: [f64; 2],
    /// Bytes used within each of [`WINDOWS_S`], as far as the lists show it.
    used: [[f64; 2]; WINDOWS_S.len()],
    /// Bytes in lists that show the window.
    showing: [[f64; 2]; WINDOWS_S.len()],
}

/// Share of the bytes that must lie in lists that show a window; the others are taken to be like these, and counted as
/// uncertain.
const ENOUGH: f64 = 0.9;

impl Tally {
    /// Adds one list. `still`: nothing in it can have been used, as no process is left that maps it.
    pub fn add(&mut self, list: &[Generation], still: bool) {
        let total = list.iter().fold([0.0; 2], |sum, g| [sum[0] + g.anon, sum[1] + g.file]);
        let plus = |to: &mut [f64; 2], of: [f64; 2]| (0..2).for_each(|side| to[side] += of[side]);
        plus(&mut self.total, total);
        for (at, window) in WINDOWS_S.iter().enumerate() {
            let used = if still { Some([0.0; 2]) } else { used_within(list, f64::from(*window)) };
            if let Some(used) = used {
                plus(&mut self.used[at], used);
                plus(&mut self.showing[at], total);
            }
        }
    }

    /// Adds a list that shows no window.
    pub fn add_silent(&mut self, list: &[Generation]) {
        for generation in list {
            self.total = [self.total[0] + generation.anon, self.total[1] + generation.file];
        }
    }

    /// Bytes used within a window, anonymous and file; `None` where too little of the memory is known.
    #[must_use]
    pub fn used(&self, window_s: u32) -> Option<[Estimate; 2]> {
        let at = WINDOWS_S.iter().position(|window| *window == window_s)?;
        let side = |side: usize| {
            let (used, showing, total) = (self.used[at][side], self.showing[at][side], self.total[side]);
            let bytes = if showing > 0.0 { used * total / showing } else { 0.0 };
            (showing >= ENOUGH * total).then(|| Estimate { bytes, ci95: (total - showing).max(0.0) })
        };
        Some([side(0)?, side(1)?])
    }

    /// The histogram with edges at these windows (ascending), as far as they are known.
    #[must_use]
    pub fn histogram(&self, windows_s: &[u32]) -> Vec<AgeBin> {
        let known: Vec<_> = windows_s.iter().filter_map(|window| Some((*window, self.used(*window)?))).collect();
        let mut bins = Vec::new();
        for (side, total) in self.total.into_iter().enumerate() {
            let bin = |min_s, max_s, bytes: f64, ci95| AgeBin {
                anon: side == 0,
                min_s,
                max_s,
                size: Estimate { bytes: bytes.max(0.0), ci95 },
                first_touched: None,
            };
            let (mut reached, mut min_s, mut unsure) = (0.0, 0.0, 0.0);
            for (window, used) in &known {
                let (edge, used) = (f64::from(*window), used[side]);
                unsure = used.ci95;
                bins.push(bin(min_s, Some(edge), used.bytes - reached, unsure));
                (reached, min_s) = (used.bytes.max(reached), edge);
            }
            bins.push(bin(min_s, None, total - reached, unsure));
        }
        bins
    }
}

/// Bytes, anonymous and file, that were idle at the read before and have been used since. `before` and `now`: the list of
/// one cgroup on one node at two reads, oldest first.
///
/// Found by the walk, they have left the generations that were no longer the youngest. Memory that was freed has left them
/// too: what the younger ones have not gained is none. So it is an upper bound, exact where nothing is freed and allocated
/// at the same time.
#[must_use]
pub fn promoted(before: &[Generation], now: &[Generation]) -> [f64; 2] {
    let Some(youngest) = before.last().map(|generation| generation.seq) else { return [0.0; 2] };
    let size = |list: &[Generation], old: bool| {
        let chosen = list.iter().filter(|g| (g.seq < youngest) == old);
        chosen.fold([0.0; 2], |sum, g| [sum[0] + g.anon, sum[1] + g.file])
    };
    let [lost, gained] = [true, false].map(|old| (size(before, old), size(now, old)));
    [0, 1].map(|side| (lost.0[side] - lost.1[side]).min(gained.1[side] - gained.0[side]).max(0.0))
}

/// Use of one cgroup with its descendants, on one node, of one type.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CgroupUse {
    /// Path from the root of the hierarchy; `/` for the root.
    pub cgroup: String,
    /// The node.
    pub node: u64,
    /// Anonymous, or else file.
    pub anon: bool,
    /// Bytes in all.
    pub bytes: f64,
    /// Bytes used within each of [`WINDOWS_S`], where known now.
    pub used: [Option<f64>; WINDOWS_S.len()],
    /// Bytes that were idle at one read and had been used by the next, since the row before; an upper bound.
    pub promoted: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn generation(seq: u64, age_s: f64, anon: f64) -> Generation {
        Generation { seq, age_s, anon, file: 1.0 }
    }

    #[test]
    fn births_are_edges() {
        let list =
            [generation(1, 5.1, 100.0), generation(2, 5.0, 30.0), generation(3, 1.02, 7.0), generation(4, 0.01, 2.0)];
        assert_eq!(used_within(&list, 1.0), Some([9.0, 2.0]));
        assert_eq!(used_within(&list, 5.0), Some([39.0, 3.0]));
        assert_eq!(used_within(&list, 2.0), None, "no walk two seconds ago");
        let old = [generation(1, 60.0, 100.0), list[1], list[2], list[3]];
        assert_eq!(used_within(&old, 60.0), None, "the oldest of four holds what is older, too");
        assert_eq!(used_within(&list[2..], 1.0), Some([9.0, 2.0]), "older ones are empty");
        let bins = tally(&[list.to_vec()]).histogram(&[1, 5, 10]);
        let anon: Vec<_> = bins.iter().filter(|b| b.anon).map(|b| (b.min_s, b.max_s, b.size.bytes)).collect();
        assert_eq!(anon, [(0.0, Some(1.0), 9.0), (1.0, Some(5.0), 30.0), (5.0, None, 100.0)]);
    }

    fn tally(all: &[Vec<Generation>]) -> Tally {
        all.iter().fold(Tally::default(), |mut tally, list| {
            tally.add(list, false);
            tally
        })
    }

    fn anon(seq: u64, age_s: f64, anon: f64) -> Generation {
        Generation { seq, age_s, anon, file: 0.0 }
    }

    #[test]
    fn an_edge_that_only_some_know_is_left_out() {
        let knows = vec![anon(1, 9.0, 50.0), anon(2, 1.0, 50.0)];
        let not = vec![anon(1, 9.0, 50.0), anon(2, 4.0, 50.0)];
        assert_eq!(tally(&[knows.clone(), not.clone()]).histogram(&[1]).len(), 2, "one bin a side");
        let little = vec![anon(1, 9.0, 4.0), anon(2, 4.0, 4.0)];
        let set = tally(&[knows.clone(), little]).used(1).unwrap()[0];
        assert_eq!((set.bytes, set.ci95), (54.0, 8.0), "a little is taken to be like the rest");
        let mut with_dead = tally(&[knows]);
        with_dead.add(&not, true);
        assert_eq!(with_dead.used(1).unwrap()[0], Estimate { bytes: 50.0, ci95: 0.0 }, "nobody is left to use it");
    }

    #[test]
    fn what_left_the_old_generations_for_the_young_was_used() {
        let before = [anon(1, 9.0, 50.0), anon(2, 5.0, 30.0), anon(3, 1.0, 20.0)];
        // 10 of the old were used, 5 were freed, 7 of the young, too; a walk made generation 4.
        let now = [anon(1, 10.0, 40.0), anon(2, 6.0, 25.0), anon(3, 2.0, 23.0), anon(4, 0.0, 0.0)];
        assert_eq!(promoted(&before, &now)[0], 3.0);
        let merged = [anon(2, 6.0, 70.0), anon(3, 2.0, 30.0), anon(4, 0.0, 0.0)];
        assert_eq!(promoted(&before, &merged)[0], 10.0, "the oldest is given up: what it held goes to the next");
        assert_eq!(promoted(&[], &now), [0.0; 2]);
        assert_eq!(promoted(&before, &[]), [0.0; 2]);
    }

    proptest! {
        /// No byte is lost or made, whatever the kernel says.
        #[test]
        fn bins_add_up(lists in prop::collection::vec(prop::collection::vec((0.0f64..100.0, 0.0f64..1e9, 0.0f64..1e9), 0..5), 0..5)) {
            let all: Vec<Vec<Generation>> = lists.into_iter().map(|mut list| {
                list.sort_by(|a, b| b.0.total_cmp(&a.0));
                (0u64..).zip(list).map(|(seq, (age_s, anon, file))| Generation { seq, age_s, anon, file }).collect()
            }).collect();
            let bins = tally(&all).histogram(&[1, 5, 10, 30, 60]);
            for anon in [true, false] {
                let total: f64 = all.iter().flatten().map(|g| if anon { g.anon } else { g.file }).sum();
                let sum: f64 = bins.iter().filter(|b| b.anon == anon).map(|b| b.size.bytes).sum();
                prop_assert!((sum - total).abs() <= 1e-6 * total.max(1.0), "{} of {}", sum, total);
            }
        }
    }
}
