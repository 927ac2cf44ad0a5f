//! The working set as `damo report wss` has it: bytes in regions of the map with any access, per aggregation.

use std::collections::BTreeMap;
use std::io::{self, Write};

use lowtide_model::units::{count, float, index, integer};
use serde::Serialize;

use super::damo::{Choices, Sort};
use super::data::RecordData;
use super::text::{Grid, bytes};
use super::{Missing, Report, ReportOptions, pretty};
use lowtide_record::interchange::counts::{Aggregation, Intervals, aggregations};

/// damo leaves out so many snapshots at the start, in which DAMON is still finding its regions.
const LEFT_OUT: usize = 20;

/// A distribution.
#[derive(Debug, PartialEq, Serialize)]
struct Distribution {
    /// Nothing if all targets are in it.
    pid: Option<u32>,
    snapshots: usize,
    average_bytes: u64,
    /// Percent and bytes, or the snapshot's number and bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    percentiles: Option<Vec<(u32, u64)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<Vec<(u32, u64)>>,
}

/// The view.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Wss {
    rule: &'static str,
    targets: Vec<Distribution>,
}

impl Wss {
    pub(super) fn of(data: &RecordData, options: &ReportOptions) -> Result<Self, Missing> {
        let rows = data.record.regions().flatten().filter(|row| options.pid.is_none_or(|pid| row.pid == pid));
        let rule = Rule::of(&options.damo);
        let all = working_sets(aggregations(rows, Intervals::of(&data.meta().monitor)), &rule);
        if all.is_empty() {
            return Err(Missing::Unmeasured("map of regions"));
        }
        let choices = &options.damo;
        let targets: Vec<Distribution> =
            distributions(all, choices).into_iter().filter_map(|(pid, sets)| shown(pid, &sets, choices)).collect();
        if targets.is_empty() {
            let left_out = rule.left_out;
            let why = format!("damo's rule leaves out the first {left_out} snapshots, and there are no more");
            return Err(Missing::Other(why));
        }
        Ok(Self { rule: "damo", targets })
    }
}

/// What is a working set.
struct Rule {
    left_out: usize,
    least_accesses: u64,
    least_bytes: u64,
    join_ns: u64,
}

impl Rule {
    fn of(choices: &Choices) -> Self {
        // damo takes integer microseconds, one if none are given.
        let join_us = choices.join.map_or(1, |span| u64::try_from(span.0.as_micros()).unwrap_or(u64::MAX));
        Self {
            left_out: choices.leave_out.unwrap_or(LEFT_OUT),
            least_accesses: choices.least_accesses.unwrap_or(1),
            least_bytes: choices.least_size.map_or(1, |size| size.0),
            join_ns: join_us.saturating_mul(1000),
        }
    }

    fn working_set(&self, joined: &Joined) -> u64 {
        let regions = joined.regions.iter().map(|(start, (end, accesses))| (end - start, *accesses));
        regions
            .filter(|(bytes, accesses)| *accesses >= self.least_accesses && *bytes >= self.least_bytes)
            .fold(0, |sum, (bytes, _)| sum.saturating_add(bytes))
    }
}

/// Snapshots joined to one. Its regions are those of the first, and of later ones what no earlier had. To each is added
/// in every snapshot the most accessed region that overlaps it.
#[derive(Default)]
struct Joined {
    start_ns: u64,
    /// Ends and accesses by start; they do not overlap.
    regions: BTreeMap<u64, (u64, u64)>,
}

impl Joined {
    fn add(&mut self, snapshot: &Aggregation) {
        let mut added: BTreeMap<u64, u64> = BTreeMap::new();
        for region in snapshot.regions.iter().filter(|region| region.start < region.end) {
            let before = self.regions.range(..region.end).rev();
            let mut over: Vec<(u64, u64)> =
                before.map(|(start, (end, _))| (*start, *end)).take_while(|(_, end)| *end > region.start).collect();
            over.reverse();
            let mut at = region.start;
            for (start, end) in over {
                let most = added.entry(start).or_default();
                *most = region.nr_accesses.max(*most);
                if at < start {
                    self.regions.insert(at, (start, region.nr_accesses));
                }
                at = end;
            }
            if at < region.end {
                self.regions.insert(at, (region.end, region.nr_accesses));
            }
        }
        for (start, most) in added {
            if let Some((_, accesses)) = self.regions.get_mut(&start) {
                *accesses = accesses.saturating_add(most);
            }
        }
    }
}

/// The working sets of every target in the order of time. Snapshots at the end that do not span the time are dropped.
fn working_sets(snapshots: impl Iterator<Item = Aggregation>, rule: &Rule) -> Vec<(u32, Vec<u64>)> {
    let mut all: Vec<(u32, usize, Option<Joined>, Vec<u64>)> = Vec::new();
    for snapshot in snapshots {
        let at = all.iter().position(|(pid, ..)| *pid == snapshot.pid).unwrap_or_else(|| {
            all.push((snapshot.pid, 0, None, Vec::new()));
            all.len() - 1
        });
        let (_, read, open, sets) = &mut all[at];
        *read += 1;
        if *read <= rule.left_out {
            continue;
        }
        let mut joined = open.take().unwrap_or(Joined { start_ns: snapshot.start_ns, ..Joined::default() });
        joined.add(&snapshot);
        if snapshot.end_ns.saturating_sub(joined.start_ns) >= rule.join_ns {
            sets.push(rule.working_set(&joined));
        } else {
            *open = Some(joined);
        }
    }
    all.into_iter().map(|(pid, _, _, sets)| (pid, sets)).collect()
}

/// Sorted as asked for, and of all targets together unless each is asked for. damo sorts before it adds, so that the
/// largest working sets meet the largest.
fn distributions(mut all: Vec<(u32, Vec<u64>)>, choices: &Choices) -> Vec<(Option<u32>, Vec<u64>)> {
    if choices.sort.unwrap_or_default() == Sort::Size {
        all.iter_mut().for_each(|(_, sets)| sets.sort_unstable());
    }
    if choices.each_target {
        return all.into_iter().map(|(pid, sets)| (Some(pid), sets)).collect();
    }
    let mut sums = Vec::new();
    for (_, sets) in all {
        sums.resize(sums.len().max(sets.len()), 0u64);
        sums.iter_mut().zip(&sets).for_each(|(sum, set)| *sum = sum.saturating_add(*set));
    }
    vec![(None, sums)]
}

/// Percentiles by the nearest rank below, without interpolation.
fn shown(pid: Option<u32>, sets: &[u64], choices: &Choices) -> Option<Distribution> {
    let last = sets.len().checked_sub(1)?;
    let numbered = || (0..).zip(sets.iter().copied()).collect();
    let percentiles = || {
        let list = choices.percentiles.clone().unwrap_or_default();
        list.0.into_iter().map(|percent| (percent, sets[rank(percent, sets.len()).min(last)])).collect()
    };
    Some(Distribution {
        pid,
        snapshots: sets.len(),
        average_bytes: average(sets),
        percentiles: (!choices.every).then(percentiles),
        every: choices.every.then(numbered),
    })
}

/// In fractions as damo does it: 29 % of 100 is rank 28 then.
fn rank(percent: u32, count: usize) -> usize {
    index(f64::from(percent) / 100.0 * float(count))
}

/// Rounded down, but for the last digit of a fraction.
fn average(sets: &[u64]) -> u64 {
    let (sum, count) = (sets.iter().copied().map(u128::from).sum::<u128>(), u128::from(count(sets.len())));
    integer(float(sum / count) + float(sum % count) / float(count))
}

impl Distribution {
    fn rows(&self) -> &[(u32, u64)] {
        self.percentiles.as_deref().or(self.every.as_deref()).unwrap_or_default()
    }
}

impl Report for Wss {
    fn grids(&self) -> Vec<Grid> {
        let size = |value: Option<u64>| bytes(value.map(float));
        let every = self.targets.iter().any(|target| target.every.is_some());
        let title = "Working set by damo's rule: bytes in regions with accesses, per aggregation";
        let mut grid = Grid::new(title, &[if every { "snapshot" } else { "percentile" }]);
        grid.head.extend(self.targets.iter().map(|target| target.pid.map_or("all".to_owned(), |pid| pid.to_string())));
        let longest = self.targets.iter().map(Distribution::rows).max_by_key(|rows| rows.len()).unwrap_or_default();
        for (at, (number, _)) in longest.iter().enumerate() {
            let cells = self.targets.iter().map(|target| size(target.rows().get(at).map(|(_, value)| *value)));
            let name = if every { number.to_string() } else { format!("{number} %") };
            grid.row([name].into_iter().chain(cells));
        }
        let averages = self.targets.iter().map(|target| size(Some(target.average_bytes)));
        grid.row(["average".to_owned()].into_iter().chain(averages));
        vec![grid]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        pretty(self, out)
    }

    /// The process is empty where all targets are together.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        let every = self.targets.iter().any(|target| target.every.is_some());
        csv.write_record(["pid", if every { "snapshot" } else { "percent" }, "bytes"])?;
        for target in &self.targets {
            for (number, value) in target.rows() {
                csv.serialize((target.pid, number, value))?;
            }
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damo::Percentiles;
    use lowtide_record::interchange::counts::Counted;

    fn snapshot(pid: u32, at: u64, regions: &[(u64, u64, u64)]) -> Aggregation {
        let region = |(start, end, nr_accesses): &(u64, u64, u64)| Counted {
            start: *start,
            end: *end,
            nr_accesses: *nr_accesses,
            age: 0,
        };
        let regions = regions.iter().map(region).collect();
        Aggregation { pid, start_ns: at * 1_000_000, end_ns: (at + 1) * 1_000_000, regions }
    }

    #[test]
    fn ranks_are_rounded_down_as_fractions_are() {
        let sets: Vec<u64> = (20..30).collect();
        let target = shown(Some(7), &sets, &Choices::default()).unwrap();
        assert_eq!((target.snapshots, target.average_bytes), (10, 24));
        assert_eq!(target.rows(), [(0, 20), (25, 22), (50, 25), (75, 27), (100, 29)]);
        assert_eq!([rank(29, 100), rank(50, 7)], [28, 3]);
        assert_eq!(shown(None, &[], &Choices::default()), None);
        let choices = Choices { percentiles: Some(Percentiles(vec![90])), ..Choices::default() };
        assert_eq!(shown(None, &sets, &choices).unwrap().rows(), [(90, 29)]);
        let choices = Choices { every: true, ..Choices::default() };
        assert_eq!(shown(None, &sets[..2], &choices).unwrap().rows(), [(0, 20), (1, 21)]);
    }

    #[test]
    fn averages_are_rounded_down_where_a_fraction_can_tell() {
        assert_eq!(average(&[1, 2, 2]), 1);
        assert_eq!(average(&[u64::MAX / 2; 3]), 1 << 63, "nearest fraction");
        assert_eq!(average(&[(1 << 40) + 1; 100_000]), (1 << 40) + 1);
    }

    #[test]
    fn regions_with_enough_accesses_and_size_count() {
        let rule = |choices: Choices| Rule::of(&Choices { leave_out: Some(1), ..choices });
        let list = || {
            let two = [(0, 10, 2), (10, 40, 0), (40, 44, 1)];
            [snapshot(1, 0, &two), snapshot(1, 1, &two), snapshot(2, 1, &two), snapshot(1, 2, &[(0, 5, 1)])].into_iter()
        };
        assert_eq!(working_sets(list(), &rule(Choices::default())), [(1, vec![14, 5]), (2, vec![])]);
        let least = Choices { least_accesses: Some(2), ..Choices::default() };
        assert_eq!(working_sets(list(), &rule(least)), [(1, vec![10, 0]), (2, vec![])]);
        let least = Choices { least_size: Some(lowtide_model::units::Size(5)), ..Choices::default() };
        assert_eq!(working_sets(list(), &rule(least)), [(1, vec![10, 5]), (2, vec![])]);
    }

    #[test]
    fn joined_snapshots_keep_the_first_regions_and_add_the_most() {
        let mut joined = Joined::default();
        joined.add(&snapshot(1, 0, &[(10, 20, 0), (30, 40, 1)]));
        joined.add(&snapshot(1, 1, &[(0, 12, 3), (12, 35, 2), (35, 50, 0)]));
        let regions: Vec<_> = joined.regions.iter().map(|(start, (end, accesses))| (*start, *end, *accesses)).collect();
        assert_eq!(regions, [(0, 10, 3), (10, 20, 3), (20, 30, 2), (30, 40, 3), (40, 50, 0)]);
        let rule = Rule { left_out: 0, least_accesses: 1, least_bytes: 1, join_ns: 2_000_000 };
        let list = (0..5).map(|at| snapshot(1, at, &[(at, at + 1, 1)]));
        assert_eq!(working_sets(list, &rule), [(1, vec![2, 2])], "the fifth does not span 2 ms");
    }

    #[test]
    fn targets_are_added_rank_by_rank() {
        let all = || vec![(1, vec![5, 1, 3]), (2, vec![20, 10])];
        assert_eq!(distributions(all(), &Choices::default()), [(None, vec![11, 23, 5])]);
        let choices = Choices { sort: Some(Sort::Time), ..Choices::default() };
        assert_eq!(distributions(all(), &choices), [(None, vec![25, 11, 3])]);
        let choices = Choices { each_target: true, ..Choices::default() };
        assert_eq!(distributions(all(), &choices), [(Some(1), vec![1, 3, 5]), (Some(2), vec![10, 20])]);
    }
}
