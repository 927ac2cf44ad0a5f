//! Snapshots of the map: where memory was accessed lately.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use lowtide_record::RegionRow;
use lowtide_report::{HeatCells, Stripe, cells};

/// Snapshots that are kept, one a second.
const MOST_SNAPSHOTS: usize = 240;

/// The regions of one second, by process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MapSecond {
    /// When, seconds since the start.
    pub t_s: f64,
    by_process: BTreeMap<u32, (f64, Vec<Stripe>)>,
}

/// Snapshots, ascending in time. Copies share them.
#[derive(Debug, Clone, Default)]
pub struct MapHistory(VecDeque<Rc<MapSecond>>);

impl MapHistory {
    /// Adds regions; of several snapshots of a process within a second, the first is kept.
    pub fn add(&mut self, regions: &[RegionRow]) {
        for row in regions {
            if self.0.back().is_none_or(|last| row.t_s >= last.t_s.floor() + 1.0) {
                self.0.push_back(Rc::new(MapSecond { t_s: row.t_s, ..MapSecond::default() }));
            }
            let Some(last) = self.0.back_mut() else { continue };
            let of = Rc::make_mut(last).by_process.entry(row.pid).or_insert((row.t_s, Vec::new()));
            if of.0.total_cmp(&row.t_s).is_eq() {
                of.1.push((row.start, row.end, row.region().access_rate));
            }
        }
        while self.0.len() > MOST_SNAPSHOTS {
            self.0.pop_front();
        }
    }

    /// Whether there is none: the source knows no addresses, or has not reported any yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The process of which most addresses are known.
    #[must_use]
    pub fn largest(&self) -> Option<u32> {
        let newest = self.0.back()?;
        let bytes = |stripes: &[Stripe]| stripes.iter().map(|(start, end, _)| end - start).sum::<u64>();
        newest.by_process.iter().max_by_key(|(_, (_, stripes))| bytes(stripes)).map(|(pid, _)| *pid)
    }

    /// The heatmap of a process over the last `columns` snapshots, and the seconds that they span.
    #[must_use]
    pub fn cells(&self, pid: u32, columns: usize, rows: usize) -> (HeatCells, f64) {
        let shown: Vec<&Rc<MapSecond>> = self.0.iter().skip(self.0.len().saturating_sub(columns)).collect();
        let of = |second: &&Rc<MapSecond>| second.by_process.get(&pid).map(|(_, s)| s.clone()).unwrap_or_default();
        let stripes: Vec<Vec<Stripe>> = shown.iter().map(of).collect();
        let span_s = shown.first().zip(shown.last()).map_or(0.0, |(first, last)| last.t_s - first.t_s);
        (cells(&stripes, rows), span_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(t_s: f64, pid: u32, end: u64) -> RegionRow {
        RegionRow { t_s, pid, start: 0, end, access_rate: 1.0, ..RegionRow::default() }
    }

    #[test]
    fn one_snapshot_a_second_of_each_process() {
        let mut map = MapHistory::default();
        assert_eq!(map.largest(), None);
        map.add(&[region(1.1, 7, 1 << 20), region(1.2, 8, 1 << 22), region(1.6, 7, 1 << 20)]);
        map.add(&[region(2.1, 7, 1 << 20), region(2.1, 8, 1 << 22)]);
        assert_eq!((map.0.len(), map.largest()), (2, Some(8)));
        let (cells, span_s) = map.cells(8, 60, 4);
        assert!((span_s - 1.0).abs() < 1e-9);
        assert_eq!(cells.rows[0], [Some(1.0), Some(1.0)]);
        (3..1000).for_each(|t_s| map.add(&[region(f64::from(t_s), 7, 4096)]));
        assert_eq!(map.0.len(), MOST_SNAPSHOTS);
    }
}
