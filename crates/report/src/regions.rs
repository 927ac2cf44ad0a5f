//! The regions of one snapshot, or all rows of the map for programs.

use std::io::{self, Write};

use lowtide_model::units::float;
use serde::Serialize;

use super::data::RecordData;
use super::text::{Grid, bytes, printable};
use super::{Missing, Report, ReportOptions, TABLES, View};
use lowtide_record::{Record, RegionRow};

pub(super) const VIEW: View = View {
    name: "regions",
    help: "The regions of one snapshot",
    title: "Regions",
    meaning: "The map at one moment: ranges of addresses with one access rate each, the most used first. Access rate: share \
              of samples with an access. Age: how long the rate has been the same.",
    formats: TABLES,
    damo: false,
    optional: false,
    make: |data, options| Ok(Box::new(Regions::of(data, options.clone())?)),
};

/// Rows of a table meant for eyes.
const SHOWN: usize = 40;

/// The view.
struct Regions<'a> {
    record: &'a Record,
    options: ReportOptions,
    /// The last snapshot of every process at or before the time asked for.
    snapshot: Vec<RegionRow>,
}

/// One row for programs.
#[derive(Serialize)]
struct Row<'a> {
    t_s: f64,
    pid: u32,
    start: u64,
    end: u64,
    access_rate: f32,
    age_s: f32,
    mapping: &'a str,
}

/// Keeps the last snapshot of each process while rows stream by in the order of time.
fn last_snapshots(rows: impl Iterator<Item = RegionRow>, options: &ReportOptions) -> Vec<RegionRow> {
    let mut kept: Vec<RegionRow> = Vec::new();
    let mut current: Vec<(u32, f64)> = Vec::new();
    for row in rows.filter(|row| wanted(row, options) && options.at_s.is_none_or(|at| row.t_s <= at)) {
        match current.iter_mut().find(|(pid, _)| *pid == row.pid) {
            Some((_, t_s)) if t_s.to_bits() == row.t_s.to_bits() => {}
            Some((pid, t_s)) => {
                kept.retain(|old| old.pid != *pid);
                *t_s = row.t_s;
            }
            None => current.push((row.pid, row.t_s)),
        }
        kept.push(row);
    }
    // A process that ended keeps its last snapshot; what is long past is not the picture of this moment.
    let newest = current.iter().map(|(_, t_s)| *t_s).fold(0.0, f64::max);
    kept.retain(|row| row.t_s >= newest - 5.0);
    kept
}

fn wanted(row: &RegionRow, options: &ReportOptions) -> bool {
    options.pid.is_none_or(|pid| row.pid == pid)
}

impl<'a> Regions<'a> {
    fn of(data: &RecordData<'a>, options: ReportOptions) -> Result<Self, Missing> {
        let record = data.record;
        let snapshot = last_snapshots(record.regions().flatten(), &options);
        if !snapshot.is_empty() {
            return Ok(Self { record, options, snapshot });
        }
        Err(if record.regions().next().is_none() {
            Missing::Unmeasured("map of regions")
        } else {
            Missing::Other("no snapshot of the map is that early, or of that process".to_owned())
        })
    }

    /// Every row of the map that was asked for: with a time, the snapshot shown; else all of them.
    fn each(&self, mut row: impl FnMut(Row) -> io::Result<()>) -> io::Result<()> {
        let mut give = |r: &RegionRow| {
            let RegionRow { t_s, pid, start, end, access_rate, age_s, mapping } = r;
            row(Row {
                t_s: *t_s,
                pid: *pid,
                start: *start,
                end: *end,
                access_rate: *access_rate,
                age_s: *age_s,
                mapping,
            })
        };
        if self.options.at_s.is_some() {
            return self.snapshot.iter().try_for_each(give);
        }
        for batch in self.record.regions() {
            batch.iter().filter(|row| wanted(row, &self.options)).try_for_each(&mut give)?;
        }
        Ok(())
    }
}

fn size(row: &RegionRow) -> f64 {
    float(row.end.saturating_sub(row.start))
}

impl Report for Regions<'_> {
    fn lead(&self) -> String {
        let t_s = self.snapshot.iter().map(|row| row.t_s).fold(0.0, f64::max);
        let used: f64 = self.snapshot.iter().filter(|row| row.access_rate > 0.0).map(size).sum();
        let all: f64 = self.snapshot.iter().map(size).sum();
        let (count, used, all) = (self.snapshot.len(), bytes(Some(used)), bytes(Some(all)));
        format!("Snapshot at {t_s:.1} s: {count} regions of {all}, {used} of them with accesses.")
    }

    fn grids(&self) -> Vec<Grid> {
        let mut rows: Vec<&RegionRow> = self.snapshot.iter().collect();
        let use_of = |row: &RegionRow| f64::from(row.access_rate) * size(row);
        rows.sort_by(|a, b| use_of(b).total_cmp(&use_of(a)));
        rows.truncate(SHOWN);
        rows.sort_by_key(|row| (row.pid, row.start));
        let left_out = self.snapshot.len() - rows.len();
        let title = match left_out {
            0 => "All of them".to_owned(),
            _ => format!("The {} with the most accesses, {left_out} more in --format csv", rows.len()),
        };
        let mut grid = Grid::new(&title, &["mapping", "pid", "start", "size", "rate", "age"]);
        for row in rows {
            let name = if row.mapping.is_empty() { "(nameless)".to_owned() } else { file_name(&row.mapping) };
            grid.row([
                name,
                row.pid.to_string(),
                format!("{:#x}", row.start),
                bytes(Some(size(row))),
                format!("{:.0} %", 100.0 * row.access_rate),
                format!("{:.0} s", row.age_s),
            ]);
        }
        vec![grid]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"[")?;
        let mut first = true;
        self.each(|row| {
            if !std::mem::take(&mut first) {
                out.write_all(b",\n")?;
            }
            Ok(serde_json::to_writer(&mut *out, &row)?)
        })?;
        out.write_all(b"]\n")
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        self.each(|row| csv.serialize(row).map_err(io::Error::from))?;
        csv.flush()
    }
}

/// The last part of a path, for a narrow column.
pub(super) fn file_name(mapping: &str) -> String {
    let deleted = mapping.strip_suffix(" (deleted)").unwrap_or(mapping);
    printable(deleted.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_snapshot_of_each_process_by_the_time_asked_for() {
        let row = |t_s, pid, start| RegionRow { t_s, pid, start, end: start + 1, ..RegionRow::default() };
        let rows = [row(1.0, 7, 0), row(1.0, 7, 1), row(1.5, 8, 0), row(2.0, 7, 5), row(3.0, 7, 6), row(3.0, 8, 9)];
        let take = |options: ReportOptions| {
            last_snapshots(rows.iter().cloned(), &options).iter().map(|row| (row.pid, row.start)).collect::<Vec<_>>()
        };
        assert_eq!(take(ReportOptions::default()), [(7, 6), (8, 9)]);
        assert_eq!(take(ReportOptions { at_s: Some(1.6), ..ReportOptions::default() }), [(7, 0), (7, 1), (8, 0)]);
        assert_eq!(take(ReportOptions { pid: Some(8), ..ReportOptions::default() }), [(8, 9)]);
    }
}
