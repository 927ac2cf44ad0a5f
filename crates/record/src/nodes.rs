//! `nodes.parquet`: where the target's memory lay, one row per tick and NUMA node; empty where there is but one.

use lowtide_model::numa::NodeRow;

use super::columns::{Column, column};
use super::table::Table;

impl Table for NodeRow {
    const NAME: &'static str = "nodes";
    const REPEATED: &'static [&'static str] = &["t_s", "node"];
    const COMPRESS_PARTS: bool = false;

    fn columns() -> Vec<Column<Self>> {
        vec![
            column!(Plain row.t_s, "t_s", "Time since the start of the record."),
            column!(Plain row.memory.node, "node", "NUMA node."),
            column!(Bytes row.memory.anon, "anon_bytes", "Anonymous memory on it."),
            column!(Bytes row.memory.file, "file_bytes", "File memory on it."),
            column!(Bytes row.memory.kernel, "kernel_bytes", "Kernel memory on it; null = not reported by node."),
        ]
    }
}
