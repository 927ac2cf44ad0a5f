//! `cgroups.parquet`: use of each cgroup of the target, with its descendants, one row per reading, node and kind.

use lowtide_model::WINDOWS_S;
use lowtide_model::generations::CgroupUse;

use super::columns::{Bytes, Column, column};
use super::table::Table;

/// Use of a cgroup at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CgroupRow {
    /// Seconds since the start of the record.
    pub t_s: f64,
    /// Its use.
    pub memory: CgroupUse,
}

impl Table for CgroupRow {
    const NAME: &'static str = "cgroups";
    const REPEATED: &'static [&'static str] = &["t_s", "cgroup", "node", "kind"];
    const COMPRESS_PARTS: bool = true;

    fn columns() -> Vec<Column<Self>> {
        let cgroup = "Path from the root of the hierarchy. What is below it is counted with it.";
        let promoted = "Bytes that were idle at one read and used by the next, since the row before; an upper bound.";
        let mut columns = vec![
            column!(Plain row.t_s, "t_s", "Time since the start of the record."),
            column!(Plain row.memory.cgroup, "cgroup", cgroup),
            column!(Node row.memory.node, "node", "NUMA node."),
            column!(Backing row.memory.anon, "kind", "anon or file."),
            column!(Bytes row.memory.bytes, "bytes", "Bytes in all."),
            column!(Bytes row.memory.promoted, "promoted_bytes", promoted),
        ];
        columns.extend(WINDOWS_S.iter().enumerate().map(|(at, window_s)| {
            Column::new::<Bytes, _>(
                format!("ws_{window_s}s_bytes"),
                format!("Bytes used in the last {window_s} s; null = not known at this time."),
                move |row: &Self| &row.memory.used[at],
                move |row: &mut Self| &mut row.memory.used[at],
            )
        }));
        columns
    }
}
