//! Adaptive regions: where accesses are, at a cost that does not depend on the size of memory.
//!
//! One page of each region is sampled in turn and stands for all of it. Regions that are alike are merged, all are
//! split at random, and regions that differ stay separate: DAMON's method (S. Park et al., Middleware'19), for kernels that
//! have page idle tracking instead.

use crate::PAGE;
use crate::random::Random;
use crate::region::Region;
use crate::units::{count, integer};

/// Two neighbours are alike, and a rate is unchanged, if the counts differ by at most this share of the samples (DAMON's
/// choice).
const ALIKE: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    start: u64,
    end: u64,
    /// Samples of this aggregation that found an access.
    accessed: u32,
    /// The same of the aggregation before.
    before: u32,
    /// Aggregations for which the rate has been like this.
    age: u32,
}

impl Part {
    fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE
    }
}

/// The regions of one address space.
#[derive(Debug, Clone)]
pub struct Adaptive {
    parts: Vec<Part>,
    fewest: usize,
    most: usize,
    samples: u32,
    random: Random,
}

impl Adaptive {
    /// Between `fewest` and `most` regions, as far as there are so many pages. `seed`: what is chosen at random follows
    /// from it.
    #[must_use]
    pub fn new(fewest: usize, most: usize, seed: u64) -> Self {
        Self { parts: Vec::new(), fewest: fewest.max(1), most: most.max(3), samples: 0, random: Random::new(seed) }
    }

    /// Sets the ranges of pages to monitor, ascending, not overlapping. Regions in ranges that stay keep what is
    /// known of them.
    pub fn set_ranges(&mut self, ranges: &[(u64, u64)]) {
        let mut parts = Vec::new();
        for &(start, end) in ranges {
            let mut at = start;
            let first = self.parts.partition_point(|part| part.end <= start);
            for part in self.parts[first..].iter().take_while(|part| part.start < end) {
                let cut = Part { start: part.start.max(start), end: part.end.min(end), ..*part };
                if cut.start > at {
                    parts.push(Part { start: at, end: cut.start, accessed: 0, before: 0, age: 0 });
                }
                at = cut.end;
                parts.push(cut);
            }
            if at < end {
                parts.push(Part { start: at, end, accessed: 0, before: 0, age: 0 });
            }
        }
        self.parts = parts;
        // Few large regions would take many rounds to differ.
        let total: u64 = self.parts.iter().map(Part::pages).sum();
        let largest = total.div_ceil(count(self.fewest)).max(1) * PAGE;
        let mut even = Vec::new();
        for part in &self.parts {
            let mut at = part.start;
            while at < part.end {
                let end = part.end.min(at.saturating_add(largest));
                even.push(Part { start: at, end, ..*part });
                at = end;
            }
        }
        self.parts = even;
    }

    /// Number of regions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there is nothing to watch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// One page of each region, by address, in their order: the next sample reads these.
    pub fn choose(&mut self) -> Vec<u64> {
        let mut parts = std::mem::take(&mut self.parts);
        let chosen = parts.iter_mut().map(|part| part.start + self.random.below(part.pages()) * PAGE).collect();
        self.parts = parts;
        chosen
    }

    /// Takes in the result of a sample, in the order of [`Adaptive::choose`].
    pub fn sample(&mut self, accessed: impl IntoIterator<Item = bool>) {
        self.samples += 1;
        for (part, found) in self.parts.iter_mut().zip(accessed) {
            part.accessed += u32::from(found);
        }
    }

    /// Ends an aggregation of so many seconds: the regions as they were sampled; then they are merged and split.
    pub fn aggregate(&mut self, aggregation_s: f64) -> Vec<Region> {
        let samples = f64::from(self.samples.max(1));
        let alike = u32::try_from(integer(samples * ALIKE)).unwrap_or(u32::MAX).max(1);
        for part in &mut self.parts {
            part.age = if part.accessed.abs_diff(part.before) > alike { 0 } else { part.age.saturating_add(1) };
        }
        let region = |part: &Part| Region {
            start: part.start,
            end: part.end,
            access_rate: (f64::from(part.accessed) / samples).min(1.0),
            age_s: f64::from(part.age) * aggregation_s,
        };
        let regions = self.parts.iter().map(region).collect();
        self.merge(alike);
        self.split();
        for part in &mut self.parts {
            (part.before, part.accessed) = (part.accessed, 0);
        }
        self.samples = 0;
        regions
    }

    /// Merges neighbours with similar rates, as long as enough regions are left; beyond the maximum, with less and less similar ones.
    fn merge(&mut self, alike: u32) {
        let total: u64 = self.parts.iter().map(Part::pages).sum();
        let largest = (total / count(self.fewest)).max(1);
        let mut alike = alike;
        loop {
            let mut merged: Vec<Part> = Vec::with_capacity(self.parts.len());
            for part in &self.parts {
                match merged.last_mut() {
                    Some(last)
                        if last.end == part.start
                            && last.accessed.abs_diff(part.accessed) <= alike
                            && last.pages() + part.pages() <= largest =>
                    {
                        *last = joined(last, part);
                    }
                    _ => merged.push(*part),
                }
            }
            self.parts = merged;
            if self.parts.len() <= self.most || alike > self.samples {
                return;
            }
            alike *= 2;
        }
    }

    /// Cuts every region in two at random, while there may be so many.
    fn split(&mut self) {
        if self.parts.len() > self.most / 2 {
            return;
        }
        let parts = std::mem::take(&mut self.parts);
        for part in parts {
            if part.pages() < 2 {
                self.parts.push(part);
                continue;
            }
            let cut = part.start + (1 + self.random.below(part.pages() - 1)) * PAGE;
            self.parts.extend([Part { end: cut, ..part }, Part { start: cut, ..part }]);
        }
    }
}

/// Two regions as one: counts and ages weigh with the size.
fn joined(a: &Part, b: &Part) -> Part {
    let (x, y) = (a.pages(), b.pages());
    let mean = |of_a: u32, of_b: u32| {
        let sum = u128::from(of_a) * u128::from(x) + u128::from(of_b) * u128::from(y);
        u32::try_from(sum / u128::from((x + y).max(1))).unwrap_or(u32::MAX)
    };
    Part {
        start: a.start,
        end: b.end,
        accessed: mean(a.accessed, b.accessed),
        before: mean(a.before, b.before),
        age: mean(a.age, b.age),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Simulated pages: of 4,096 pages from `base`, those in `hot` are used between any two samples.
    fn watch(hot: &[(u64, u64)], aggregations: usize) -> Vec<Region> {
        let mut adaptive = Adaptive::new(10, 200, 7);
        adaptive.set_ranges(&[(0, 4096 * PAGE)]);
        let mut last = Vec::new();
        for _ in 0..aggregations {
            for _ in 0..10 {
                let chosen = adaptive.choose();
                let is_hot = |at: &u64| hot.iter().any(|(a, b)| (a * PAGE..b * PAGE).contains(at));
                adaptive.sample(chosen.iter().map(is_hot).collect::<Vec<_>>());
            }
            last = adaptive.aggregate(1.0);
        }
        last
    }

    #[test]
    fn hot_islands_are_found() {
        let hot = [(100, 300), (1000, 1200), (3000, 3400)];
        let regions = watch(&hot, 60);
        let mut found = 0.0;
        let mut wrong = 0.0;
        for region in &regions {
            let inside: u64 = hot
                .iter()
                .map(|(a, b)| region.end.min(b * PAGE).saturating_sub(region.start.max(a * PAGE)) / PAGE)
                .sum();
            let pages = (region.end - region.start) / PAGE;
            #[expect(clippy::cast_precision_loss, reason = "thousands")]
            let (inside, outside) = (inside as f64, (pages - inside) as f64);
            if region.access_rate > 0.5 {
                (found, wrong) = (found + inside, wrong + outside);
            }
        }
        assert!(found >= 0.95 * 800.0 && wrong <= 0.05 * 800.0, "{found} of 800 found, {wrong} too many");
        assert!(regions.iter().any(|region| region.access_rate == 0.0 && region.age_s > 20.0), "the cold grows old");
    }

    #[test]
    fn a_change_makes_a_region_young() {
        let mut adaptive = Adaptive::new(3, 3, 1);
        adaptive.set_ranges(&[(0, 3 * PAGE)]);
        let round = |adaptive: &mut Adaptive, hot: bool| {
            for _ in 0..10 {
                let count = adaptive.choose().len();
                adaptive.sample(vec![hot; count]);
            }
            adaptive.aggregate(2.0)[0].age_s
        };
        assert_eq!([round(&mut adaptive, false), round(&mut adaptive, false)], [2.0, 4.0]);
        assert_eq!([round(&mut adaptive, true), round(&mut adaptive, true)], [0.0, 2.0]);
    }

    fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((1u64..50, 1u64..400), 0..6).prop_map(|list| {
            let mut at = 0;
            let range = |(gap, pages): (u64, u64)| {
                let start = at + gap * PAGE;
                at = start + pages * PAGE;
                (start, at)
            };
            list.into_iter().map(range).collect()
        })
    }

    proptest! {
        /// Whatever is accessed, regions cover the ranges exactly, in order, and are not more than allowed.
        #[test]
        fn regions_partition_the_ranges(first in ranges(), then in ranges(), seed: u64, most in 3usize..60, rounds in 1usize..8) {
            let mut adaptive = Adaptive::new(3, most, seed);
            for ranges in [&first, &then] {
                adaptive.set_ranges(ranges);
                for round in 0..rounds {
                    for _ in 0..4 {
                        let chosen = adaptive.choose();
                        for (at, region) in chosen.iter().zip(&adaptive.parts) {
                            prop_assert!((region.start..region.end).contains(at) && at % PAGE == 0);
                        }
                        adaptive.sample(chosen.iter().map(|at| (at >> 14) % 3 == round as u64 % 3).collect::<Vec<_>>());
                    }
                    let regions = adaptive.aggregate(1.0);
                    let mut covered: Vec<(u64, u64)> = Vec::new();
                    for region in &regions {
                        prop_assert!(region.start < region.end && (0.0..=1.0).contains(&region.access_rate));
                        match covered.last_mut() {
                            Some(last) if last.1 == region.start => last.1 = region.end,
                            _ => covered.push((region.start, region.end)),
                        }
                    }
                    prop_assert_eq!(&covered, ranges);
                    prop_assert!(adaptive.len() <= most.max(2 * ranges.len() + 4) + 10, "{} regions", adaptive.len());
                }
            }
        }
    }
}
