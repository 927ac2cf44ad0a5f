//! `cohort.parquet`: what was seen of the sampled pages, one row per stretch of use or idleness.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, Float32Array, Float64Array, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field};
use lowtide_model::PAGE;
use lowtide_model::episode::{Episode, Kind, PageKey};

use super::columns::{Columns, Missing};
use super::table::{Table, column, nullable};

/// The table.
#[derive(Debug)]
pub struct Cohort;

impl Table for Cohort {
    const NAME: &'static str = "cohort";
    const REPEATED: &'static [&'static str] =
        &["t_start_s", "t_end_s", "pid", "page_address", "kind", "weight_bytes", "reuse_s"];
    const COMPRESS_PARTS: bool = true;
    type Row = Episode;

    fn fields() -> Vec<Field> {
        vec![
            column("t_start_s", DataType::Float64, "Start of the stretch, seconds since the start of the record."),
            column("t_end_s", DataType::Float64, "End of the stretch."),
            column("pid", DataType::UInt32, "Process; 0 for a frame of the page cache."),
            column("page_address", DataType::UInt64, "First byte of the page: virtual, or physical where pid is 0."),
            column("kind", DataType::Utf8, "anon, file (mapped) or cache (not mapped)."),
            column("weight_bytes", DataType::Float64, "Bytes this sampled page stands for."),
            column("touched", DataType::Boolean, "Touched in every tick of the stretch, or untouched in all of it."),
            nullable(
                "reuse_s",
                DataType::Float32,
                "Seconds from the touch before to the start; 0 = goes on; null = none.",
            ),
        ]
    }

    fn columns(rows: &[Episode]) -> Vec<ArrayRef> {
        #[expect(clippy::cast_possible_truncation, reason = "single precision is a millionth of a reuse time")]
        let reuse = |row: &Episode| row.reuse_s.map(|reuse| reuse as f32);
        vec![
            Arc::new(rows.iter().map(|row| row.start_s).collect::<Float64Array>()),
            Arc::new(rows.iter().map(|row| row.end_s).collect::<Float64Array>()),
            Arc::new(rows.iter().map(|row| row.key.space).collect::<UInt32Array>()),
            Arc::new(rows.iter().map(|row| row.key.address()).collect::<UInt64Array>()),
            Arc::new(rows.iter().map(|row| Some(row.kind.name())).collect::<StringArray>()),
            Arc::new(rows.iter().map(|row| row.weight_bytes).collect::<Float64Array>()),
            Arc::new(rows.iter().map(|row| Some(row.touched)).collect::<BooleanArray>()),
            Arc::new(rows.iter().map(reuse).collect::<Float32Array>()),
        ]
    }

    fn rows(columns: &Columns) -> Result<Vec<Episode>, Missing> {
        let (start, end) = (columns.f64("t_start_s")?, columns.f64("t_end_s")?);
        let (pid, address, kind) = (columns.u32("pid")?, columns.u64("page_address")?, columns.text("kind")?);
        let (weight, touched, reuse) =
            (columns.f64("weight_bytes")?, columns.bool("touched")?, columns.f32("reuse_s")?);
        let row = |at: usize| Episode {
            key: PageKey { space: pid.value(at), page: address.value(at) / PAGE },
            kind: Kind::from_name(kind.get(at)).unwrap_or(Kind::Anon),
            weight_bytes: weight.value(at),
            touched: touched.value(at),
            start_s: start.value(at),
            end_s: end.value(at),
            reuse_s: reuse.is_valid(at).then(|| f64::from(reuse.value(at))),
        };
        Ok((0..columns.len()).map(row).collect())
    }
}
