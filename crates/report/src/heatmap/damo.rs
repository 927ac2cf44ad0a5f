//! The heatmap as `damo report heatmap` has it: which ranges there are, and mean access frequencies of their cells.
//!
//! Sums are taken in the same order and with the same roundings, so that cells are the same to the last digit.

use std::io::{self, Write};

use lowtide_model::units::{count, float, index, signed};
use serde::Serialize;

use super::guide::{Guide, Range, guides};
use crate::damo::Cells;
use crate::data::RecordData;
use crate::text::{Grid, bytes};
use crate::{Missing, Report, ReportOptions};
use lowtide_record::interchange::counts::{Aggregation, Counted, Intervals, aggregations};

/// The view.
#[derive(Serialize)]
pub(super) struct Heatmaps {
    rule: &'static str,
    /// Of every target, the largest first.
    targets: Vec<Guide>,
    /// Of the ranges that were asked for, of one target.
    maps: Vec<Map>,
}

/// The heatmap of a range.
#[derive(Debug, PartialEq, Serialize)]
struct Map {
    pid: u32,
    start_ns: i64,
    /// Nanoseconds of a cell.
    cell_ns: i64,
    start: u64,
    /// Bytes of a cell.
    cell_bytes: u64,
    /// By time, then address: accesses a second, nothing where nothing was monitored.
    hz: Vec<Vec<Option<f64>>>,
}

impl Heatmaps {
    pub(super) fn of(data: &RecordData, options: &ReportOptions) -> Result<Self, Missing> {
        let intervals = Intervals::of(&data.meta().monitor);
        let read = || {
            let rows = data.record.regions().flatten();
            aggregations(rows.filter(|row| options.pid.is_none_or(|pid| row.pid == pid)), intervals)
        };
        let aggregation_ns = nanoseconds(intervals.aggregation_us.saturating_mul(1000));
        let targets = guides(read, aggregation_ns);
        let target = targets.first().ok_or(Missing::Unmeasured("map of regions"))?;
        let cells = options.damo.cells.unwrap_or_default();
        let ranges =
            if options.damo.all_ranges { target.ranges.clone() } else { target.hottest().into_iter().collect() };
        let mut maps: Vec<Map> =
            ranges.iter().map(|range| Map::empty(target, range, cells)).collect::<Result<_, _>>()?;
        let mut last_ns = None;
        for snapshot in read().filter(|snapshot| snapshot.pid == target.pid) {
            maps.iter_mut().for_each(|map| map.add(&snapshot, last_ns, intervals.aggregation_us));
            last_ns = Some(nanoseconds(snapshot.end_ns));
        }
        Ok(Self { rule: "damo", targets, maps })
    }
}

/// Times can lie before the record's start: ages reach back.
pub(super) fn nanoseconds(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// How many units there are in a distance, rounded toward zero.
fn cell(distance: i128, unit: i128) -> i64 {
    signed((float(distance) / float(unit)).trunc())
}

impl Map {
    fn empty(target: &Guide, range: &Range, cells: Cells) -> Result<Self, Missing> {
        let cell_ns = target.end_ns.saturating_sub(target.start_ns) / i64::from(cells.time);
        let cell_bytes = (range.end - range.start) / u64::from(cells.addresses);
        if cell_ns == 0 || cell_bytes == 0 {
            let why = "there are more cells than bytes or nanoseconds; choose fewer with --cells";
            return Err(Missing::Other(why.to_owned()));
        }
        let hz = vec![vec![None; index(cells.addresses.into())]; index(cells.time.into())];
        Ok(Self { pid: target.pid, start_ns: target.start_ns, cell_ns, start: range.start, cell_bytes, hz })
    }

    /// The cells, of so many along an axis, that lie between two distances from its start.
    fn between(from: i128, to: i128, unit: i128, count: usize) -> std::ops::Range<usize> {
        let from = usize::try_from(cell(from, unit)).unwrap_or(0);
        let to = usize::try_from(cell(to, unit).saturating_add(1)).unwrap_or(0);
        from.min(count)..to.min(count)
    }

    fn time(&self, column: usize) -> i64 {
        self.start_ns.saturating_add(nanoseconds(count(column)).saturating_mul(self.cell_ns))
    }

    fn address(&self, row: usize) -> u64 {
        self.start + count(row) * self.cell_bytes
    }

    /// Each region counts from its age on, but not for time that an earlier snapshot covers.
    fn add(&mut self, snapshot: &Aggregation, last_ns: Option<i64>, aggregation_us: u64) {
        let rows = self.hz.first().map_or(0, Vec::len);
        let (start, end) = (self.start, self.address(rows));
        let end_ns = nanoseconds(snapshot.end_ns);
        for region in snapshot.regions.iter().filter(|region| region.end >= start && region.start <= end) {
            let age_ns = nanoseconds(region.age.saturating_mul(aggregation_us).saturating_mul(1000));
            let from_ns = nanoseconds(snapshot.start_ns).saturating_sub(age_ns).max(last_ns.unwrap_or(i64::MIN));
            let since = |ns: i64| i128::from(ns) - i128::from(self.start_ns);
            let above = |address: u64| i128::from(address) - i128::from(self.start);
            let columns = Self::between(since(from_ns), since(end_ns), self.cell_ns.into(), self.hz.len());
            let rows = Self::between(above(region.start), above(region.end), self.cell_bytes.into(), rows);
            for column in columns {
                for row in rows.clone() {
                    self.add_to((column, row), region, (from_ns, end_ns), aggregation_us);
                }
            }
        }
    }

    fn add_to(&mut self, (column, row): (usize, usize), region: &Counted, (from_ns, end_ns): (i64, i64), us: u64) {
        let (time, address) = (self.time(column), self.address(row));
        let ns = end_ns.min(time.saturating_add(self.cell_ns)).saturating_sub(from_ns.max(time));
        let bytes = i128::from(region.end.min(address + self.cell_bytes)) - i128::from(region.start.max(address));
        let hz = float(region.nr_accesses) / (float(us) / 1e6);
        let space = float(i128::from(self.cell_ns) * i128::from(self.cell_bytes));
        let sum = hz * float(ns) * float(bytes) + self.hz[column][row].unwrap_or(0.0) * space;
        self.hz[column][row] = Some(sum / space);
    }
}

impl Report for Heatmaps {
    fn lead(&self) -> String {
        "Ranges by damo's rule. The cells are in the formats json and csv.".to_owned()
    }

    fn grids(&self) -> Vec<Grid> {
        let mut grid = Grid::new("", &["target", "from", "to", "first byte", "end", "size"]);
        for target in &self.targets {
            for range in &target.ranges {
                let (seconds, size) =
                    (|ns: i64| format!("{:.1} s", float(ns) / 1e9), bytes(Some(float(range.end - range.start))));
                let (start, end) = (format!("{:#x}", range.start), format!("{:#x}", range.end));
                grid.row([target.pid.to_string(), seconds(target.start_ns), seconds(target.end_ns), start, end, size]);
            }
        }
        vec![grid]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    /// One line per cell. A frequency is empty where nothing was monitored.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["pid", "t_ns", "start", "hz"])?;
        for map in &self.maps {
            for (column, cells) in map.hz.iter().enumerate() {
                for (row, hz) in cells.iter().enumerate() {
                    csv.serialize((map.pid, map.time(column), map.address(row), hz))?;
                }
            }
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start_ns: i64, end_ns: i64, cells: Cells) -> Map {
        let guide = Guide { pid: 1, start_ns, end_ns, ranges: Vec::new() };
        Map::empty(&guide, &Range { start: 100, end: 120, heat: 0 }, cells).unwrap()
    }

    fn snapshot(start_ns: u64, end_ns: u64, regions: &[(u64, u64, u64, u64)]) -> Aggregation {
        let region = |&(start, end, nr_accesses, age): &_| Counted { start, end, nr_accesses, age };
        Aggregation { pid: 1, start_ns, end_ns, regions: regions.iter().map(region).collect() }
    }

    #[test]
    fn cells_are_means_over_time_and_addresses() {
        let mut map = map(0, 4000, Cells { time: 2, addresses: 2 });
        map.add(&snapshot(0, 1000, &[(95, 105, 4, 0)]), None, 1);
        map.add(&snapshot(1000, 3000, &[(100, 110, 2, 9)]), Some(1000), 1);
        // Half of the bytes for half of the time at 4 MHz, and all of both at 2 MHz less the first 1000 ns.
        assert_eq!(map.hz[0], [Some(2e6), Some(0.0)]);
        assert_eq!(map.hz[1], [Some(1e6), Some(0.0)]);
        assert_eq!([map.time(1), nanoseconds(map.address(1))], [2000, 110]);
    }

    #[test]
    fn ages_reach_back_and_what_was_not_monitored_is_empty() {
        let mut map = map(-2000, 2000, Cells { time: 4, addresses: 1 });
        map.add(&snapshot(0, 1000, &[(100, 120, 1, 1)]), None, 1);
        let hz: Vec<Option<f64>> = map.hz.iter().map(|cells| cells[0]).collect();
        assert_eq!(hz, [None, Some(1e6), Some(1e6), Some(0.0)]);
    }

    #[test]
    fn cells_smaller_than_a_byte_are_refused() {
        let guide = Guide { pid: 1, start_ns: 0, end_ns: 10, ranges: Vec::new() };
        let cells = Cells { time: 2, addresses: 30 };
        assert!(matches!(Map::empty(&guide, &Range { start: 0, end: 20, heat: 0 }, cells), Err(Missing::Other(_))));
    }
}
