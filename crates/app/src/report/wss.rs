//! The working set as `damo report wss` has it: bytes in regions of the map with any access, per aggregation.

use std::io::{self, Write};

use serde::Serialize;

use super::text::{Grid, bytes};
use super::{Missing, Options, Report, Source};
use crate::store::RegionRow;

/// damo leaves out so many snapshots at the start, in which DAMON is still finding its regions.
const LEFT_OUT: usize = 20;

/// Percentiles shown, as damo's default.
const PERCENTS: [usize; 5] = [0, 25, 50, 75, 100];

/// One target.
#[derive(Debug, PartialEq, Serialize)]
struct Target {
    pid: u32,
    snapshots: usize,
    average_bytes: u64,
    /// By percent.
    percentiles: Vec<(usize, u64)>,
}

/// The view.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Wss {
    rule: &'static str,
    targets: Vec<Target>,
}

impl Wss {
    pub(super) fn of(source: &Source, options: &Options) -> Result<Self, Missing> {
        let wanted = |row: &RegionRow| options.pid.is_none_or(|pid| row.pid == pid);
        let all = working_sets(source.record().regions().flatten().filter(wanted));
        if all.is_empty() {
            return Err(Missing::Unmeasured("map of regions"));
        }
        let targets: Vec<Target> = all.into_iter().filter_map(|(pid, sets)| target(pid, &sets)).collect();
        if targets.is_empty() {
            let why = format!("damo's rule leaves out the first {LEFT_OUT} snapshots, and there are no more");
            return Err(Missing::Other(why));
        }
        Ok(Self { rule: "damo", targets })
    }
}

/// The working set of every snapshot, by process. Rows come in the order of time.
fn working_sets(rows: impl Iterator<Item = RegionRow>) -> Vec<(u32, Vec<u64>)> {
    let mut all: Vec<(u32, u64, Vec<u64>)> = Vec::new();
    for row in rows {
        let size = if row.access_rate > 0.0 { row.end.saturating_sub(row.start) } else { 0 };
        let at = all.iter().position(|(pid, ..)| *pid == row.pid).unwrap_or_else(|| {
            all.push((row.pid, u64::MAX, Vec::new()));
            all.len() - 1
        });
        let (_, time, sets) = &mut all[at];
        if *time != row.t_s.to_bits() {
            *time = row.t_s.to_bits();
            sets.push(0);
        }
        if let Some(last) = sets.last_mut() {
            *last += size;
        }
    }
    all.into_iter().map(|(pid, _, sets)| (pid, sets)).collect()
}

/// Percentiles by the nearest rank below, without interpolation.
fn target(pid: u32, sets: &[u64]) -> Option<Target> {
    let mut kept = sets.get(LEFT_OUT..).filter(|kept| !kept.is_empty())?.to_vec();
    kept.sort_unstable();
    let count = kept.len();
    let average_bytes = kept.iter().sum::<u64>() / count as u64;
    let percentiles = PERCENTS.iter().map(|percent| (*percent, kept[(percent * count / 100).min(count - 1)])).collect();
    Some(Target { pid, snapshots: count, average_bytes, percentiles })
}

impl Report for Wss {
    fn grids(&self) -> Vec<Grid> {
        let mut grid =
            Grid::new("Working set by damo's rule: bytes in regions with any access, per aggregation", &["pid"]);
        grid.head.extend(PERCENTS.iter().map(|percent| format!("{percent} %")));
        grid.head.push("average".to_owned());
        for target in &self.targets {
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let size = |value: u64| bytes(Some(value as f64));
            let percentiles = target.percentiles.iter().map(|(_, value)| size(*value));
            let cells = std::iter::once(target.pid.to_string()).chain(percentiles);
            grid.row(cells.chain([size(target.average_bytes)]));
        }
        vec![grid]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["pid", "percent", "bytes"])?;
        for target in &self.targets {
            for (percent, value) in &target.percentiles {
                csv.write_record([target.pid.to_string(), percent.to_string(), value.to_string()])?;
            }
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_rounded_down_and_the_start_is_left_out() {
        let sets: Vec<u64> = (0..30).collect();
        let target = target(7, &sets).unwrap();
        assert_eq!((target.snapshots, target.average_bytes), (10, 24));
        assert_eq!(target.percentiles, [(0, 20), (25, 22), (50, 25), (75, 27), (100, 29)]);
        assert_eq!(super::target(7, &sets[..20]), None);
    }

    #[test]
    fn regions_with_any_access_count() {
        let row = |t_s: f64, pid, start, access_rate| RegionRow {
            t_s,
            pid,
            start,
            end: start + 10,
            access_rate,
            ..RegionRow::default()
        };
        let rows =
            [row(1.0, 1, 0, 0.1), row(1.0, 1, 10, 0.0), row(1.0, 2, 0, 1.0), row(2.0, 1, 0, 0.5), row(2.0, 1, 10, 0.5)];
        assert_eq!(working_sets(rows.into_iter()), [(1, vec![10, 20]), (2, vec![10])]);
    }
}
