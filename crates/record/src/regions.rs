//! `regions.parquet`: the map, one row per region and snapshot.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Float32Array, Float64Array, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field};
use lowtide_model::region::Region;

use super::columns::{Columns, Missing};
use super::table::{Table, column};

/// The table.
#[derive(Debug)]
pub struct Regions;

/// One row.
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
    /// Share of the samples that saw an access, 0..=1.
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
        #[expect(clippy::cast_possible_truncation, reason = "rates are ratios of small counts, ages rounded to a tick")]
        let (access_rate, age_s) = (region.access_rate as f32, region.age_s as f32);
        Self { t_s, pid, start: region.start, end: region.end, access_rate, age_s, mapping: mapping.into() }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> Region {
        Region {
            start: self.start,
            end: self.end,
            access_rate: f64::from(self.access_rate),
            age_s: f64::from(self.age_s),
        }
    }
}

impl Table for Regions {
    const NAME: &'static str = "regions";
    const REPEATED: &'static [&'static str] = &["t_s", "pid", "start", "end", "access_rate", "age_s", "mapping"];
    const COMPRESS_PARTS: bool = true;
    type Row = RegionRow;

    fn fields() -> Vec<Field> {
        let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        vec![
            column("t_s", DataType::Float64, "Time since the start of the record, at the end of the aggregation."),
            column("pid", DataType::UInt32, "Process; 0 for physical addresses."),
            column("start", DataType::UInt64, "First byte."),
            column("end", DataType::UInt64, "One past the last byte."),
            column("access_rate", DataType::Float32, "Share of the samples that saw an access, 0 to 1."),
            column("age_s", DataType::Float32, "Seconds for which the rate has been like this."),
            column("mapping", text, "Name of the mapping; empty for nameless memory."),
        ]
    }

    fn columns(rows: &[RegionRow]) -> Vec<ArrayRef> {
        vec![
            Arc::new(rows.iter().map(|row| row.t_s).collect::<Float64Array>()),
            Arc::new(rows.iter().map(|row| row.pid).collect::<UInt32Array>()),
            Arc::new(rows.iter().map(|row| row.start).collect::<UInt64Array>()),
            Arc::new(rows.iter().map(|row| row.end).collect::<UInt64Array>()),
            Arc::new(rows.iter().map(|row| row.access_rate).collect::<Float32Array>()),
            Arc::new(rows.iter().map(|row| row.age_s).collect::<Float32Array>()),
            Arc::new(rows.iter().map(|row| row.mapping.as_str()).collect::<DictionaryArray<Int32Type>>()),
        ]
    }

    fn rows(columns: &Columns) -> Result<Vec<RegionRow>, Missing> {
        let (t_s, pid, start, end) =
            (columns.f64("t_s")?, columns.u32("pid")?, columns.u64("start")?, columns.u64("end")?);
        let (rate, age, mapping) = (columns.f32("access_rate")?, columns.f32("age_s")?, columns.text("mapping")?);
        let row = |at: usize| RegionRow {
            t_s: t_s.value(at),
            pid: pid.value(at),
            start: start.value(at),
            end: end.value(at),
            access_rate: rate.value(at),
            age_s: age.value(at),
            mapping: mapping.get(at).to_owned(),
        };
        Ok((0..columns.len()).map(row).collect())
    }
}
