//! The map made sharper by the cohort: where neighbouring sampled pages were used and the next ones were not, it is cut
//! between them.
//!
//! Problem: DAMON finds the shape of an address space by splitting regions at random and merging similar ones.
//! Within a price cap that takes minutes where use lies in many small islands, and until then an island and its
//! surroundings share one rate. The cohort samples pages all over the region anyway, at no extra cost.

use crate::PAGE;
use crate::region::Region;
use crate::units::float;

/// What the cohort knows of one page over the time that a snapshot of the map counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The page's first byte.
    pub address: u64,
    /// It was touched.
    pub touched: bool,
    /// Seconds since it was last touched, or for which it was watched and not touched.
    pub idle_s: f64,
}

/// The sampled pages of one process.
#[derive(Debug, Clone, Copy)]
pub struct Samples<'a> {
    /// Ascending by address.
    pub list: &'a [Sample],
    /// Bytes of a block: one page of every block that is in memory is sampled.
    pub block: u64,
    /// The rate of a page that is touched once between two samples of the cohort.
    pub floor: f64,
}

/// So many neighbours must agree before anything is cut for them: a lone page says nothing of those around it.
const AGREE: usize = 2;

/// A stretch of addresses whose samples agree.
#[derive(Debug, Clone, Copy)]
struct Run {
    touched: bool,
    count: usize,
    start: u64,
    end: u64,
    idle_s: f64,
}

/// `regions` cut where the samples show that use begins or ends. What lies among untouched samples has rate 0. A region's
/// rate goes to the pieces that are left, so that its mean stays; among touched samples it is `floor` at least.
///
/// `drawn`: DAMON drew the regions on these addresses, so that one smaller than a block shows what the samples are too
/// far apart to see. Regions of frames are cut into small ones merely by being mapped back.
#[must_use]
pub fn sharpen(regions: &[Region], drawn: bool, of: &Samples<'_>) -> Vec<Region> {
    let Samples { list, block, floor } = *of;
    let runs = runs(list, block.max(PAGE));
    let mut out = Vec::with_capacity(regions.len());
    for region in regions {
        if drawn && region.access_rate > 0.0 && region.end - region.start < block {
            out.push(*region);
            continue;
        }
        let first = runs.partition_point(|run| run.end <= region.start);
        let end = runs.partition_point(|run| run.start < region.end);
        pieces(region, &runs[first..end.max(first)], floor.clamp(0.0, 1.0), &mut out);
    }
    out
}

/// Neighbours that agree; those too few to be believed are taken to the run before, or else after them.
fn runs(samples: &[Sample], block: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    // In blocks next to each other, samples are at most two blocks apart.
    for stretch in samples.chunk_by(|a, b| b.address - a.address < 2 * block) {
        let from = runs.len();
        for alike in stretch.chunk_by(|a, b| a.touched == b.touched) {
            let (head, last) = (alike[0], alike[alike.len() - 1]);
            let idle_s = alike.iter().map(|sample| sample.idle_s).fold(f64::INFINITY, f64::min);
            let end = (last.address / block + 1) * block;
            match runs[from..].last_mut() {
                Some(run) if alike.len() < AGREE || run.touched == head.touched => {
                    (run.count, run.end) = (run.count + alike.len(), end);
                    if run.touched == head.touched {
                        run.idle_s = run.idle_s.min(idle_s);
                    }
                }
                Some(run) if run.count < AGREE => {
                    *run = Run { touched: head.touched, count: run.count + alike.len(), end, idle_s, ..*run };
                }
                before => {
                    // Use begins or ends somewhere between two sampled pages: in the middle, for want of knowing better.
                    let start = before.map_or(head.address / block * block, |run| {
                        let at = stretch.partition_point(|sample| sample.address < head.address);
                        let middle = stretch[at.saturating_sub(1)].address.midpoint(head.address) / PAGE * PAGE;
                        run.end = middle;
                        middle
                    });
                    runs.push(Run { touched: head.touched, count: alike.len(), start, end, idle_s });
                }
            }
        }
    }
    runs.retain(|run| run.count >= AGREE);
    runs
}

/// The pieces of one region; `runs` are those that reach into it.
fn pieces(region: &Region, runs: &[Run], floor: f64, out: &mut Vec<Region>) {
    let mut list: Vec<(u64, u64, Option<&Run>)> = Vec::new();
    let mut at = region.start;
    for run in runs {
        let (start, end) = (run.start.clamp(at, region.end), run.end.clamp(at, region.end));
        list.extend([(at, start, None), (start, end, Some(run))]);
        at = end;
    }
    list.push((at, region.end, None));
    list.retain(|(start, end, _)| start < end);
    let size = |(start, end, _): &(u64, u64, Option<&Run>)| float(end - start);
    let all: f64 = list.iter().map(size).sum();
    let used: f64 = list.iter().filter(|(.., run)| run.is_none_or(|run| run.touched)).map(size).sum();
    let rate = if used > 0.0 { (region.access_rate * all / used).min(1.0) } else { 0.0 };
    out.extend(list.iter().map(|(start, end, run)| {
        let (access_rate, age_s) = match run {
            None => (rate, region.age_s),
            Some(run) if run.touched => (rate.max(floor), region.age_s),
            Some(run) => (0.0, run.idle_s),
        };
        Region { start: *start, end: *end, access_rate, age_s }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: u64 = 10 * PAGE;

    fn region(start: u64, end: u64, access_rate: f64) -> Region {
        Region { start: start * PAGE, end: end * PAGE, access_rate, age_s: 4.0 }
    }

    fn sample(page: u64, touched: bool) -> Sample {
        Sample { address: page * PAGE, touched, idle_s: if touched { 0.0 } else { 9.0 } }
    }

    #[test]
    fn an_island_is_cut_out_and_keeps_the_mean_rate() {
        let samples: Vec<Sample> = (0..10).map(|n| sample(n * 10 + 5, (4..6).contains(&n))).collect();
        let cut = sharpen(&[region(0, 100, 0.1)], true, &Samples { list: &samples, block: BLOCK, floor: 0.2 });
        let at: Vec<(u64, u64, f64)> = cut.iter().map(|r| (r.start / PAGE, r.end / PAGE, r.access_rate)).collect();
        assert_eq!(at, [(0, 40, 0.0), (40, 60, 0.5), (60, 100, 0.0)]);
        assert_eq!((cut[0].age_s, cut[1].age_s), (9.0, 4.0));
    }

    #[test]
    fn a_lone_page_cuts_nothing() {
        let samples: Vec<Sample> = (0..10).map(|n| sample(n * 10 + 5, n == 4)).collect();
        let uncut = [region(0, 100, 0.0)];
        let cut = sharpen(&uncut, true, &Samples { list: &samples, block: BLOCK, floor: 0.2 });
        assert_eq!((cut.len(), cut[0].access_rate), (1, 0.0));
        assert_eq!(sharpen(&uncut, true, &Samples { list: &[], block: BLOCK, floor: 0.2 }), uncut);
    }

    #[test]
    fn small_regions_follow_the_samples_around_them() {
        // Regions smaller than a block, as those are that were scattered over physical memory.
        let samples: Vec<Sample> = (0..10).map(|n| sample(n * 10 + 5, n < 5)).collect();
        let small: Vec<Region> = (0..25).map(|n| region(n * 4, n * 4 + 4, 0.3)).collect();
        for piece in sharpen(&small, false, &Samples { list: &samples, block: BLOCK, floor: 0.2 }) {
            assert_eq!(piece.access_rate > 0.0, piece.end <= 50 * PAGE, "{piece:?}");
        }
        assert_eq!(
            sharpen(&small, true, &Samples { list: &samples, block: BLOCK, floor: 0.2 }),
            small,
            "as DAMON drew them"
        );
        // Of what no sample is near, nothing is said.
        let far = [region(500, 600, 0.3)];
        assert_eq!(sharpen(&far, false, &Samples { list: &samples, block: BLOCK, floor: 0.2 }), far);
    }

    #[test]
    fn what_the_map_missed_gets_the_floor() {
        let samples = [sample(10, true), sample(20, true)];
        let cut = sharpen(&[region(10, 30, 0.0)], true, &Samples { list: &samples, block: BLOCK, floor: 0.2 });
        assert_eq!((cut.len(), cut[0].access_rate), (1, 0.2));
    }

    fn any_regions() -> impl Strategy<Value = Vec<Region>> {
        prop::collection::vec((0u64..5, 1u64..60, 0.0f64..1.0), 1..10).prop_map(|list| {
            let mut at = 0;
            let place = |(gap, len, rate): (u64, u64, f64)| {
                let start = at + gap;
                at = start + len;
                region(start, at, rate)
            };
            list.into_iter().map(place).collect()
        })
    }

    proptest! {
        /// The pieces cover exactly what the regions covered, in order, and rates stay shares.
        #[test]
        fn pieces_tile_the_regions(regions in any_regions(), pages in prop::collection::btree_map(0u64..600, any::<bool>(), 0..80), drawn in any::<bool>(), block in 0u64..40, floor in 0.0f64..1.0) {
            let samples: Vec<Sample> = pages.into_iter().map(|(page, touched)| sample(page, touched)).collect();
            let cut = sharpen(&regions, drawn, &Samples { list: &samples, block: block * PAGE, floor });
            let mut rest = cut.iter();
            for uncut in &regions {
                let mut at = uncut.start;
                while at < uncut.end {
                    let piece = rest.next().unwrap();
                    prop_assert_eq!(piece.start, at);
                    prop_assert!(piece.end > piece.start && (0.0..=1.0).contains(&piece.access_rate));
                    at = piece.end;
                }
                prop_assert_eq!(at, uncut.end);
            }
            prop_assert!(rest.next().is_none());
        }
    }
}
