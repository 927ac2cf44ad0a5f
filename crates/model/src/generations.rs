//! Generations of the multi-generational LRU as idle ages.
//!
//! A walk over the page tables makes a new generation, and pages found used since the walk before go to the generation
//! that was the youngest until then. So what is in generation g was last used between its birth and the birth of g + 1;
//! what is in the youngest came since the last walk; what is in the oldest may be of any age beyond.

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
/// born near that time: then nobody looked.
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

/// The histogram of several cgroups and nodes together, with edges at `windows_s` (ascending), as far as all of them tell.
/// Small ones (below a hundredth of the bytes) that do not tell are taken to be like the rest.
#[must_use]
pub fn histogram(all: &[Vec<Generation>], windows_s: &[u32]) -> Vec<AgeBin> {
    let size = |list: &[Generation]| list.iter().fold([0.0; 2], |sum, g| [sum[0] + g.anon, sum[1] + g.file]);
    let total = all.iter().map(|list| size(list)).fold([0.0; 2], |sum, of| [sum[0] + of[0], sum[1] + of[1]]);
    let mut known = Vec::new();
    for window in windows_s {
        let (mut used, mut telling) = ([0.0; 2], [0.0; 2]);
        for list in all {
            if let Some(of) = used_within(list, f64::from(*window)) {
                let whole = size(list);
                for side in 0..2 {
                    used[side] += of[side];
                    telling[side] += whole[side];
                }
            }
        }
        if (0..2).all(|side| telling[side] >= 0.99 * total[side]) {
            let scaled = |side: usize| if telling[side] > 0.0 { used[side] * total[side] / telling[side] } else { 0.0 };
            known.push((f64::from(*window), [scaled(0), scaled(1)]));
        }
    }
    let mut bins = Vec::new();
    for (side, total) in total.into_iter().enumerate() {
        let bin = |min_s, max_s, bytes: f64| AgeBin {
            anon: side == 0,
            min_s,
            max_s,
            size: Estimate { bytes: bytes.max(0.0), ci95: 0.0 },
        };
        let (mut reached, mut min_s) = (0.0, 0.0);
        for (edge, used) in &known {
            bins.push(bin(min_s, Some(*edge), used[side] - reached));
            (reached, min_s) = (used[side].max(reached), *edge);
        }
        bins.push(bin(min_s, None, total - reached));
    }
    bins
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
        assert_eq!(used_within(&list, 2.0), None, "nobody looked two seconds ago");
        let old = [generation(1, 60.0, 100.0), list[1], list[2], list[3]];
        assert_eq!(used_within(&old, 60.0), None, "the oldest of four holds what is older, too");
        assert_eq!(used_within(&list[2..], 1.0), Some([9.0, 2.0]), "older ones are empty");
        let bins = histogram(&[list.to_vec()], &[1, 5, 10]);
        let anon: Vec<_> = bins.iter().filter(|b| b.anon).map(|b| (b.min_s, b.max_s, b.size.bytes)).collect();
        assert_eq!(anon, [(0.0, Some(1.0), 9.0), (1.0, Some(5.0), 30.0), (5.0, None, 100.0)]);
    }

    #[test]
    fn an_edge_that_only_some_know_is_left_out() {
        let knows = vec![generation(1, 9.0, 50.0), generation(2, 1.0, 50.0)];
        let not = vec![generation(1, 9.0, 50.0), generation(2, 4.0, 50.0)];
        assert_eq!(histogram(&[knows.clone(), not.clone()], &[1]).len(), 2, "one bin a side");
        let tiny = [generation(1, 9.0, 0.4), generation(2, 4.0, 0.4)];
        let bins = histogram(
            &[
                knows.iter().map(|g| Generation { file: 0.0, ..*g }).collect(),
                tiny.iter().map(|g| Generation { file: 0.0, ..*g }).collect(),
            ],
            &[1],
        );
        assert_eq!(bins.len(), 4);
    }

    proptest! {
        /// No byte is lost or made, whatever the kernel says.
        #[test]
        fn bins_add_up(lists in prop::collection::vec(prop::collection::vec((0.0f64..100.0, 0.0f64..1e9, 0.0f64..1e9), 0..5), 0..5)) {
            let all: Vec<Vec<Generation>> = lists.into_iter().map(|mut list| {
                list.sort_by(|a, b| b.0.total_cmp(&a.0));
                (0u64..).zip(list).map(|(seq, (age_s, anon, file))| Generation { seq, age_s, anon, file }).collect()
            }).collect();
            let bins = histogram(&all, &[1, 5, 10, 30, 60]);
            for anon in [true, false] {
                let total: f64 = all.iter().flatten().map(|g| if anon { g.anon } else { g.file }).sum();
                let sum: f64 = bins.iter().filter(|b| b.anon == anon).map(|b| b.size.bytes).sum();
                prop_assert!((sum - total).abs() <= 1e-6 * total.max(1.0), "{} of {}", sum, total);
            }
        }
    }
}
