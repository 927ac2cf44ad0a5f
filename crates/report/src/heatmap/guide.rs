//! The ranges of time and addresses that a recording covers, as `damo report heatmap --guide` finds them.

use lowtide_model::units::float;
use serde::Serialize;

use super::damo::nanoseconds;
use lowtide_record::interchange::counts::Aggregation;

/// Addresses without a gap that is there in every snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Range {
    pub start: u64,
    pub end: u64,
    /// Bytes times samples with an access, of all regions that reach into it or end where it begins.
    #[serde(skip)]
    pub heat: u128,
}

/// What a target covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Guide {
    pub pid: u32,
    /// The oldest region of the first snapshot is that old.
    pub start_ns: i64,
    pub end_ns: i64,
    pub ranges: Vec<Range>,
}

impl Range {
    fn heat_per_byte(&self) -> f64 {
        float(self.heat) / float((self.end - self.start).max(1))
    }
}

impl Guide {
    /// The hottest by byte, the first of several.
    pub(super) fn hottest(&self) -> Option<Range> {
        let hotter = |a: &&Range, b: &&Range| a.heat_per_byte().total_cmp(&b.heat_per_byte());
        self.ranges.iter().rev().max_by(hotter).cloned()
    }

    fn bytes(&self) -> u128 {
        self.ranges.iter().map(|range| u128::from(range.end - range.start)).sum()
    }
}

/// A target whose snapshots are being read.
struct Survey {
    pid: u32,
    start_ns: i64,
    end_ns: i64,
    lowest: u64,
    highest: u64,
    gaps: Vec<(u64, u64)>,
}

impl Survey {
    fn of(first: &Aggregation, aggregation_ns: i64) -> Self {
        let oldest = first.regions.iter().map(|region| region.age).max().unwrap_or(0);
        let start_ns = nanoseconds(first.start_ns).saturating_sub(nanoseconds(oldest).saturating_mul(aggregation_ns));
        Self { pid: first.pid, start_ns, end_ns: 0, lowest: u64::MAX, highest: 0, gaps: Vec::new() }
    }

    /// A gap shrinks to what of it is a gap now; one that is closed altogether stays as it was last.
    fn add(&mut self, snapshot: &Aggregation) {
        self.end_ns = nanoseconds(snapshot.end_ns);
        for region in &snapshot.regions {
            self.lowest = self.lowest.min(region.start);
            self.highest = self.highest.max(region.end);
        }
        let pairs = snapshot.regions.windows(2).filter(|pair| pair[0].end != pair[1].start);
        let now: Vec<(u64, u64)> = pairs.map(|pair| (pair[0].end, pair[1].start)).collect();
        if self.gaps.is_empty() {
            self.gaps = now;
            return;
        }
        for gap in &mut self.gaps {
            for (start, end) in &now {
                if gap.1 >= *start && *end >= gap.0 {
                    *gap = (gap.0.max(*start), gap.1.min(*end));
                }
            }
        }
    }

    fn guide(self) -> Guide {
        let starts = [self.lowest].into_iter().chain(self.gaps.iter().map(|gap| gap.1));
        let ends = self.gaps.iter().map(|gap| gap.0).chain([self.highest]);
        let ranges = starts.zip(ends).map(|(start, end)| Range { start, end: end.max(start), heat: 0 }).collect();
        Guide { pid: self.pid, start_ns: self.start_ns, end_ns: self.end_ns, ranges }
    }
}

/// The guides of all targets, the largest first. Reads twice: for the ranges, and for their heat.
pub(super) fn guides<I: Iterator<Item = Aggregation>>(read: impl Fn() -> I, aggregation_ns: i64) -> Vec<Guide> {
    let mut surveys: Vec<Survey> = Vec::new();
    for snapshot in read() {
        let at = surveys.iter().position(|survey| survey.pid == snapshot.pid).unwrap_or_else(|| {
            surveys.push(Survey::of(&snapshot, aggregation_ns));
            surveys.len() - 1
        });
        surveys[at].add(&snapshot);
    }
    let mut guides: Vec<Guide> = surveys.into_iter().map(Survey::guide).collect();
    for snapshot in read() {
        let Some(guide) = guides.iter_mut().find(|guide| guide.pid == snapshot.pid) else { continue };
        for region in snapshot.regions.iter().filter(|region| region.nr_accesses > 0) {
            let heat = u128::from(region.end.saturating_sub(region.start)) * u128::from(region.nr_accesses);
            let touching = |range: &&mut Range| region.end >= range.start && range.end >= region.start;
            guide.ranges.iter_mut().filter(touching).for_each(|range| range.heat = range.heat.saturating_add(heat));
        }
    }
    guides.sort_by_key(|guide| std::cmp::Reverse(guide.bytes()));
    guides
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_record::interchange::counts::Counted;

    fn snapshot(pid: u32, at: u64, regions: &[(u64, u64, u64, u64)]) -> Aggregation {
        let region = |&(start, end, nr_accesses, age): &_| Counted { start, end, nr_accesses, age };
        Aggregation { pid, start_ns: at, end_ns: at + 10, regions: regions.iter().map(region).collect() }
    }

    fn of(list: &[Aggregation]) -> Vec<Guide> {
        guides(|| list.iter().cloned(), 10)
    }

    #[test]
    fn times_reach_back_and_the_largest_target_is_first() {
        let list = [
            snapshot(1, 100, &[(10, 20, 0, 15)]),
            snapshot(2, 100, &[(10, 50, 0, 0)]),
            snapshot(1, 110, &[(5, 20, 0, 90)]),
        ];
        let got: Vec<_> = of(&list).into_iter().map(|guide| (guide.pid, guide.start_ns, guide.end_ns)).collect();
        assert_eq!(got, [(2, 100, 110), (1, -50, 120)]);
    }

    #[test]
    fn gaps_are_those_of_every_snapshot() {
        let list = [
            snapshot(1, 0, &[(0, 10, 0, 0), (50, 60, 0, 0), (90, 100, 1, 0)]),
            snapshot(1, 10, &[(0, 20, 3, 0), (40, 60, 0, 0), (60, 100, 0, 0)]),
        ];
        let ranges: Vec<_> = of(&list)[0].ranges.iter().map(|range| (range.start, range.end, range.heat)).collect();
        // The second gap was closed, and is shown all the same.
        assert_eq!(ranges, [(0, 20, 60), (40, 60, 0), (90, 100, 10)]);
        assert_eq!(of(&list)[0].hottest().unwrap().start, 0);
    }
}
