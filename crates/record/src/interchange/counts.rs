//! A record's map in DAMON's own units, in which other tools have it: nanoseconds, samples and aggregations.

use std::collections::BTreeMap;

use lowtide_model::meta::Monitor;
use lowtide_model::units::rounded;

use crate::RegionRow;

/// The intervals that the map was made with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intervals {
    /// Microseconds between two samples.
    pub sampling_us: u64,
    /// Microseconds over which accesses are counted.
    pub aggregation_us: u64,
    samples: f64,
    aggregation_s: f64,
}

/// A region of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Samples that found an access.
    pub nr_accesses: u64,
    /// Aggregations for which it has been like this.
    pub age: u64,
}

/// One target at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregation {
    /// The process, or the number of an imported target.
    pub pid: u32,
    /// Nanoseconds since the record's start.
    pub start_ns: u64,
    /// The same, at the end.
    pub end_ns: u64,
    /// In the order of the record.
    pub regions: Vec<Counted>,
}

impl Intervals {
    /// As long as that, in seconds.
    #[must_use]
    pub fn new(sampling_s: f64, aggregation_s: f64) -> Self {
        let aggregation_s = aggregation_s.max(1e-6);
        let samples = (aggregation_s / sampling_s).max(1.0);
        let (sampling_us, aggregation_us) = (rounded(sampling_s * 1e6), rounded(aggregation_s * 1e6));
        Self { sampling_us, aggregation_us, samples, aggregation_s }
    }

    /// Those of a record. The sampling interval in `meta.json` can be the cohort's; the map takes ten samples an
    /// aggregation then, as imports show.
    #[must_use]
    pub fn of(monitor: &Monitor) -> Self {
        let given = monitor.sampling_s < monitor.aggregation_s;
        let sampling_s = if given { monitor.sampling_s } else { monitor.aggregation_s / 10.0 };
        Self::new(sampling_s, monitor.aggregation_s)
    }

    fn counted(&self, row: &RegionRow) -> Counted {
        Counted {
            start: row.start,
            end: row.end,
            nr_accesses: rounded(f64::from(row.access_rate) * self.samples),
            age: rounded(f64::from(row.age_s) / self.aggregation_s),
        }
    }
}

/// The snapshots that rows make up. A record has when each ended. It began where the one before ended: aggregations
/// follow each other, late by what the timer takes. Where that is two aggregations ago or more, some were not read,
/// and it began one aggregation before its end.
pub fn aggregations<R>(rows: R, intervals: Intervals) -> impl Iterator<Item = Aggregation>
where
    R: Iterator<Item = RegionRow>,
{
    let mut rows = rows.peekable();
    let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
    let aggregation_ns = intervals.aggregation_us.saturating_mul(1000);
    std::iter::from_fn(move || {
        let first = rows.next()?;
        let mut regions = vec![intervals.counted(&first)];
        let same = |row: &RegionRow| row.pid == first.pid && row.t_s.to_bits() == first.t_s.to_bits();
        while let Some(row) = rows.next_if(same) {
            regions.push(intervals.counted(&row));
        }
        let end_ns = rounded(first.t_s * 1e9);
        let last_ns = ends.insert(first.pid, end_ns).unwrap_or(0);
        let follows = end_ns.saturating_sub(last_ns) < aggregation_ns.saturating_mul(2);
        let start_ns = if follows { last_ns.min(end_ns) } else { end_ns.saturating_sub(aggregation_ns) };
        Some(Aggregation { pid: first.pid, start_ns, end_ns, regions })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_follow_each_other_unless_some_were_not_read() {
        let row = |t_s, pid, start| RegionRow {
            t_s,
            pid,
            start,
            end: start + 1,
            access_rate: 0.35,
            age_s: 0.3,
            ..RegionRow::default()
        };
        let rows = [row(0.1, 1, 0), row(0.1, 1, 5), row(0.1, 2, 0), row(0.203, 1, 0), row(1.0, 1, 0), row(1.3, 2, 7)];
        let all: Vec<Aggregation> = aggregations(rows.into_iter(), Intervals::new(0.005, 0.1)).collect();
        let times: Vec<_> = all.iter().map(|a| (a.pid, a.start_ns, a.end_ns, a.regions.len())).collect();
        let ms = 1_000_000;
        assert_eq!(
            times,
            [
                (1, 0, 100 * ms, 2),
                (2, 0, 100 * ms, 1),
                (1, 100 * ms, 203 * ms, 1),
                (1, 900 * ms, 1000 * ms, 1),
                (2, 1200 * ms, 1300 * ms, 1)
            ]
        );
        assert_eq!(all[4].regions, [Counted { start: 7, end: 8, nr_accesses: 7, age: 3 }]);
    }
}
