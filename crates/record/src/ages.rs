//! `ages.parquet`: the idle-age histogram of every tick, one row per bin.

use lowtide_model::cohort::AgeRow;

use super::columns::{Column, column};
use super::table::Table;

impl Table for AgeRow {
    const NAME: &'static str = "ages";
    const REPEATED: &'static [&'static str] = &["t_s", "kind", "min_s", "max_s"];
    const COMPRESS_PARTS: bool = false;

    fn columns() -> Vec<Column<Self>> {
        let first = "Of them, bytes first touched within the bin's time (smaps); null = not known.";
        vec![
            column!(Plain row.t_s, "t_s", "Time since the start of the record."),
            column!(Backing row.bin.anon, "kind", "anon, or file (mapped and unmapped together)."),
            column!(Plain row.bin.min_s, "min_s", "Idle at least so many seconds."),
            column!(Plain row.bin.max_s, "max_s", "Idle less than so many seconds; null = no upper bound known."),
            column!(Bytes row.bin.size.bytes, "bytes", "Estimated bytes."),
            column!(Bytes row.bin.size.ci95, "ci95_bytes", "Half-width of the 95 % interval."),
            column!(Bytes row.bin.first_touched, "first_touched_bytes", first).optional(),
        ]
    }
}
