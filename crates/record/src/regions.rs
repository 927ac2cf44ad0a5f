//! `regions.parquet`: the map, one row per region and snapshot.

use lowtide_model::region::Region;
use lowtide_model::units::single;

use super::columns::{Column, column};
use super::table::Table;

/// A region of a snapshot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegionRow {
    /// Seconds since the start of the record, at the end of the aggregation.
    pub t_s: f64,
    /// The process whose addresses these are; 0 for physical addresses.
    pub pid: u32,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Share of the samples that found an access, 0..=1.
    pub access_rate: f32,
    /// Seconds for which the rate has been like this.
    pub age_s: f32,
    /// Name of the mapping: `[heap]`, a file's path; empty for nameless memory.
    pub mapping: String,
}

impl RegionRow {
    /// A region of a snapshot, with the name of the mapping it lies in.
    #[must_use]
    pub fn new(t_s: f64, pid: u32, region: &Region, mapping: impl Into<String>) -> Self {
        let (access_rate, age_s) = (single(region.access_rate), single(region.age_s));
        Self { t_s, pid, start: region.start, end: region.end, access_rate, age_s, mapping: mapping.into() }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> Region {
        let (access_rate, age_s) = (f64::from(self.access_rate), f64::from(self.age_s));
        Region { start: self.start, end: self.end, access_rate, age_s }
    }
}

impl Table for RegionRow {
    const NAME: &'static str = "regions";
    const REPEATED: &'static [&'static str] = &["t_s", "pid", "start", "end", "access_rate", "age_s", "mapping"];
    const COMPRESS_PARTS: bool = true;

    fn columns() -> Vec<Column<Self>> {
        vec![
            column!(Plain row.t_s, "t_s", "Time since the start of the record, at the end of the aggregation."),
            column!(Plain row.pid, "pid", "Process; 0 for physical addresses."),
            column!(Plain row.start, "start", "First byte."),
            column!(Plain row.end, "end", "One past the last byte."),
            column!(Plain row.access_rate, "access_rate", "Share of the samples that saw an access, 0 to 1."),
            column!(Plain row.age_s, "age_s", "Seconds for which the rate has been like this."),
            column!(Plain row.mapping, "mapping", "Name of the mapping; empty for nameless memory."),
        ]
    }
}
