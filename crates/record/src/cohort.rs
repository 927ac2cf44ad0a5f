//! `cohort.parquet`: the sampled pages, one row per stretch of use or idleness.

use lowtide_model::episode::Episode;

use super::columns::{Column, column};
use super::table::Table;

impl Table for Episode {
    const NAME: &'static str = "cohort";
    const REPEATED: &'static [&'static str] =
        &["t_start_s", "t_end_s", "pid", "page_address", "kind", "weight_bytes", "share", "reuse_s"];
    const COMPRESS_PARTS: bool = true;

    fn columns() -> Vec<Column<Self>> {
        let address = "First byte of the page: virtual, or physical where pid is 0.";
        let reuse = "Seconds from the touch before to the start; 0 = goes on; null = none.";
        let share = "1 / number of mappings: what it counts beside pages sampled at the same time.";
        vec![
            column!(Plain row.start_s, "t_start_s", "Start of the stretch, seconds since the start of the record."),
            column!(Plain row.end_s, "t_end_s", "End of the stretch."),
            column!(Plain row.key.space, "pid", "Process; 0 for a frame of the page cache."),
            column!(Address row.key.page, "page_address", address),
            column!(Backing row.kind, "kind", "anon, file (mapped) or cache (not mapped)."),
            column!(Plain row.weight_bytes, "weight_bytes", "Bytes this sampled page stood for at the end."),
            column!(Single row.share, "share", share).optional(),
            column!(Plain row.touched, "touched", "Touched in every tick of the stretch, or untouched in all of it."),
            column!(Single row.reuse_s, "reuse_s", reuse),
        ]
    }
}
