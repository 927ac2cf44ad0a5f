//! `ages.parquet`: the idle-age histogram of every tick, one row per bin.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, StringArray};
use arrow_schema::{DataType, Field};
use lowtide_model::AGE_EDGES_S;
pub use lowtide_model::cohort::AgeRow;
use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::summary::ColdRow;

use super::columns::{Columns, Missing, figure, whole};
use super::table::{Table, column, nullable};

/// The table.
#[derive(Debug)]
pub struct Ages;

impl Table for Ages {
    const NAME: &'static str = "ages";
    const REPEATED: &'static [&'static str] = &["t_s", "kind", "min_s", "max_s"];
    const COMPRESS_PARTS: bool = false;
    type Row = AgeRow;

    fn fields() -> Vec<Field> {
        vec![
            column("t_s", DataType::Float64, "Time since the start of the record."),
            column("kind", DataType::Utf8, "anon, or file (mapped and unmapped together)."),
            column("min_s", DataType::Float64, "Idle at least so many seconds."),
            nullable("max_s", DataType::Float64, "Idle less than so many seconds; null = no upper bound known."),
            column("bytes", DataType::Int64, "Estimated bytes."),
            column("ci95_bytes", DataType::Int64, "Half-width of the 95 % interval."),
            nullable(
                "first_touched_bytes",
                DataType::Int64,
                "Of them, bytes first touched within the bin's time (smaps); null = not known.",
            ),
        ]
    }

    fn columns(rows: &[AgeRow]) -> Vec<ArrayRef> {
        let bins = || rows.iter().map(|row| row.bin);
        vec![
            Arc::new(rows.iter().map(|row| row.t_s).collect::<Float64Array>()),
            Arc::new(bins().map(|bin| Some(if bin.anon { "anon" } else { "file" })).collect::<StringArray>()),
            Arc::new(bins().map(|bin| bin.min_s).collect::<Float64Array>()),
            Arc::new(bins().map(|bin| bin.max_s).collect::<Float64Array>()),
            Arc::new(bins().map(|bin| whole(bin.size.bytes)).collect::<Int64Array>()),
            Arc::new(bins().map(|bin| whole(bin.size.ci95)).collect::<Int64Array>()),
            Arc::new(bins().map(|bin| bin.first_touched.map(whole)).collect::<Int64Array>()),
        ]
    }

    fn rows(columns: &Columns) -> Result<Vec<AgeRow>, Missing> {
        let (t_s, kind, min_s) = (columns.f64("t_s")?, columns.text("kind")?, columns.f64("min_s")?);
        let (max_s, bytes, ci95) = (columns.f64("max_s")?, columns.i64("bytes")?, columns.i64("ci95_bytes")?);
        // Records of version 0.1 have no such column.
        let first_touched = columns.i64("first_touched_bytes").ok();
        let row = |at: usize| AgeRow {
            t_s: t_s.value(at),
            bin: AgeBin {
                anon: kind.get(at) == "anon",
                min_s: min_s.value(at),
                max_s: max_s.is_valid(at).then(|| max_s.value(at)),
                size: Estimate { bytes: figure(bytes.value(at)), ci95: figure(ci95.value(at)) },
                first_touched: first_touched.filter(|of| of.is_valid(at)).map(|of| figure(of.value(at))),
            },
        };
        Ok((0..columns.len()).map(row).collect())
    }
}

/// The histograms of every tick as bytes idle at least so long. An edge inside a bin is not known.
#[must_use]
pub fn cold_rows(rows: &[AgeRow]) -> Vec<ColdRow> {
    let mut list: Vec<ColdRow> = Vec::new();
    for tick in rows.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits()) {
        let idle_for = |anon: bool, edge: f64| {
            let side = || tick.iter().map(|row| row.bin).filter(move |bin| bin.anon == anon);
            let known = side().any(|bin| (bin.min_s - edge).abs() < 1e-9);
            known.then(|| side().filter(|bin| bin.min_s >= edge - 1e-9).map(|bin| bin.size.bytes).sum::<f64>())
        };
        let edges = AGE_EDGES_S.map(f64::from);
        list.push(ColdRow {
            t_s: tick.first().map_or(0.0, |row| row.t_s),
            anon: edges.map(|edge| idle_for(true, edge)),
            file: edges.map(|edge| idle_for(false, edge)),
        });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_is_known_where_a_bin_begins() {
        let bin = |anon, min_s: f64, max_s, bytes| AgeRow {
            t_s: 1.0,
            bin: AgeBin { anon, min_s, max_s, size: Estimate { bytes, ci95: 0.0 }, first_touched: None },
        };
        let rows = [
            bin(true, 0.0, Some(1.0), 10.0),
            bin(true, 1.0, Some(5.0), 20.0),
            bin(true, 5.0, None, 30.0),
            bin(false, 0.0, None, 7.0),
        ];
        let cold = cold_rows(&rows);
        assert_eq!(cold.len(), 1);
        // Edges 0, 1, 2, 5, 10, ...
        assert_eq!(cold[0].anon[..5], [Some(60.0), Some(50.0), None, Some(30.0), None]);
        assert_eq!(cold[0].file[..2], [Some(7.0), None]);
    }
}
