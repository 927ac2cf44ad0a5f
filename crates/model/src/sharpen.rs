//! The map made sharper by the cohort: where a region holds sampled pages of which neighbours were used and others were
//! not, it is cut between them.
//!
//! Problem: DAMON finds the shape of an address space by splitting regions at random and merging those that look alike.
//! Within a price cap that takes minutes where use lies in many small islands, and until then an island and its
//! surroundings share one rate. The cohort has looked at pages all over the region meanwhile, at no further price.

use crate::PAGE;
use crate::region::Region;

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

/// So many neighbours must agree before a region is cut for them: a lone page says nothing of those around it.
const AGREE: usize = 2;

/// A run of samples that agree.
#[derive(Debug, Clone, Copy)]
struct Run {
    touched: bool,
    count: usize,
    start: u64,
    idle_s: f64,
}

/// `regions` cut where `samples` (ascending by address) say that use begins or ends. Each piece's rate is the region's,
/// shared out to the pieces that were used, so that the mean over the region stays; where the map saw nothing at all but
/// the cohort did, it is `floor`: the rate of a page touched once between two looks of the cohort.
#[must_use]
pub fn sharpen(regions: &[Region], samples: &[Sample], floor: f64) -> Vec<Region> {
    let mut out = Vec::with_capacity(regions.len());
    for region in regions {
        let first = samples.partition_point(|sample| sample.address < region.start);
        let end = samples.partition_point(|sample| sample.address < region.end);
        pieces(region, &runs(&samples[first..end.max(first)]), floor, &mut out);
    }
    out
}

/// The runs of a region: neighbours that agree, those too few to be believed taken to their predecessor.
fn runs(samples: &[Sample]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0;
    let mut last = 0;
    while let Some(head) = samples.get(at) {
        let count = samples[at..].iter().take_while(|sample| sample.touched == head.touched).count();
        let idle_s = samples[at..at + count].iter().map(|sample| sample.idle_s).fold(f64::INFINITY, f64::min);
        match runs.last_mut() {
            Some(run) if count < AGREE || run.touched == head.touched => {
                run.count += count;
                if run.touched == head.touched {
                    run.idle_s = run.idle_s.min(idle_s);
                }
            }
            _ => {
                // Use begins or ends somewhere between two sampled pages: in the middle, for want of knowing better.
                let middle = last + (head.address - last) / 2;
                runs.push(Run { touched: head.touched, count, start: middle / PAGE * PAGE, idle_s });
            }
        }
        at += count;
        last = samples[at - 1].address;
    }
    // The first run was not preceded by anything; if it is a lone page, it goes to the one after.
    if runs.len() > 1 && runs[0].count < AGREE {
        runs.remove(0);
    }
    runs
}

fn pieces(region: &Region, runs: &[Run], floor: f64, out: &mut Vec<Region>) {
    let used = runs.iter().any(|run| run.touched);
    if runs.len() < 2 && !(used && region.access_rate < floor) {
        out.push(*region);
        return;
    }
    let end_of = |at: usize| runs.get(at + 1).map_or(region.end, |next| next.start.clamp(region.start, region.end));
    let start_of = |at: usize| if at == 0 { region.start } else { runs[at].start.clamp(region.start, region.end) };
    #[expect(clippy::cast_precision_loss, reason = "region sizes are far below 2^53")]
    let size = |at: usize| (end_of(at) - start_of(at)) as f64;
    let used_bytes: f64 = (0..runs.len()).filter(|at| runs[*at].touched).map(size).sum();
    let all: f64 = (0..runs.len()).map(size).sum();
    let rate = if used_bytes > 0.0 { (region.access_rate * all / used_bytes).clamp(floor.min(1.0), 1.0) } else { 0.0 };
    for (at, run) in runs.iter().enumerate().filter(|(at, _)| size(*at) > 0.0) {
        let (access_rate, age_s) = if run.touched { (rate, region.age_s) } else { (0.0, run.idle_s) };
        out.push(Region { start: start_of(at), end: end_of(at), access_rate, age_s });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(start: u64, end: u64, access_rate: f64) -> Region {
        Region { start: start * PAGE, end: end * PAGE, access_rate, age_s: 4.0 }
    }

    fn sample(page: u64, touched: bool) -> Sample {
        Sample { address: page * PAGE, touched, idle_s: if touched { 0.0 } else { 9.0 } }
    }

    #[test]
    fn an_island_is_cut_out_and_keeps_the_mean_rate() {
        let samples: Vec<Sample> = (0..10).map(|n| sample(n * 10 + 5, (4..6).contains(&n))).collect();
        let cut = sharpen(&[region(0, 100, 0.1)], &samples, 0.2);
        let at: Vec<(u64, u64, f64)> = cut.iter().map(|r| (r.start / PAGE, r.end / PAGE, r.access_rate)).collect();
        assert_eq!(at, [(0, 40, 0.0), (40, 60, 0.5), (60, 100, 0.0)]);
        assert_eq!((cut[0].age_s, cut[1].age_s), (9.0, 4.0));
    }

    #[test]
    fn a_lone_page_cuts_nothing() {
        let samples: Vec<Sample> = (0..10).map(|n| sample(n * 10 + 5, n == 4)).collect();
        let whole = [region(0, 100, 0.0)];
        assert_eq!(sharpen(&whole, &samples, 0.2), whole);
        assert_eq!(sharpen(&whole, &[], 0.2), whole);
    }

    #[test]
    fn what_the_map_missed_gets_the_floor() {
        let samples = [sample(10, true), sample(20, true)];
        let cut = sharpen(&[region(0, 40, 0.0)], &samples, 0.2);
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
        fn pieces_tile_the_regions(regions in any_regions(), pages in prop::collection::btree_map(0u64..600, any::<bool>(), 0..80), floor in 0.0f64..1.0) {
            let samples: Vec<Sample> = pages.into_iter().map(|(page, touched)| sample(page, touched)).collect();
            let cut = sharpen(&regions, &samples, floor);
            let mut rest = cut.iter();
            for whole in &regions {
                let mut at = whole.start;
                while at < whole.end {
                    let piece = rest.next().unwrap();
                    prop_assert_eq!(piece.start, at);
                    prop_assert!(piece.end > piece.start && (0.0..=1.0).contains(&piece.access_rate));
                    at = piece.end;
                }
                prop_assert_eq!(at, whole.end);
            }
            prop_assert!(rest.next().is_none());
        }
    }
}
