//! `cgroups.parquet`: use of each cgroup of the target, with its descendants, one row per look, node and type.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Float64Array, Int64Array, StringArray, UInt32Array};
use arrow_schema::{DataType, Field};
use lowtide_model::WINDOWS_S;
use lowtide_model::generations::CgroupUse;

use super::columns::{Columns, Missing, figure, whole};
use super::table::{Table, column, nullable};

/// The table.
#[derive(Debug)]
pub struct Cgroups;

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupRow {
    /// Seconds since the start of the record.
    pub t_s: f64,
    /// What was seen.
    pub seen: CgroupUse,
}

impl Table for Cgroups {
    const NAME: &'static str = "cgroups";
    const REPEATED: &'static [&'static str] = &["t_s", "cgroup", "node", "kind"];
    const COMPRESS_PARTS: bool = true;
    type Row = CgroupRow;

    fn fields() -> Vec<Field> {
        let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let mut fields = vec![
            column("t_s", DataType::Float64, "Time since the start of the record."),
            column("cgroup", text, "Path from the root of the hierarchy. What is below it is counted with it."),
            column("node", DataType::UInt32, "NUMA node."),
            column("kind", DataType::Utf8, "anon or file."),
            column("bytes", DataType::Int64, "Bytes in all."),
            column(
                "promoted_bytes",
                DataType::Int64,
                "Bytes that were idle at one look and used by the next, since the row before; at most.",
            ),
        ];
        fields.extend(WINDOWS_S.iter().map(|window| {
            let doc = format!("Bytes used in the last {window} s; null = not known at this time.");
            nullable(&format!("ws_{window}s_bytes"), DataType::Int64, &doc)
        }));
        fields
    }

    fn columns(rows: &[CgroupRow]) -> Vec<ArrayRef> {
        let seen = || rows.iter().map(|row| &row.seen);
        #[expect(clippy::cast_possible_truncation, reason = "machines have few nodes")]
        let node = |seen: &CgroupUse| seen.node as u32;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|row| row.t_s).collect::<Float64Array>()),
            Arc::new(seen().map(|seen| seen.cgroup.as_str()).collect::<DictionaryArray<Int32Type>>()),
            Arc::new(seen().map(node).collect::<UInt32Array>()),
            Arc::new(seen().map(|seen| Some(if seen.anon { "anon" } else { "file" })).collect::<StringArray>()),
            Arc::new(seen().map(|seen| whole(seen.bytes)).collect::<Int64Array>()),
            Arc::new(seen().map(|seen| whole(seen.promoted)).collect::<Int64Array>()),
        ];
        for at in 0..WINDOWS_S.len() {
            columns.push(Arc::new(seen().map(|seen| seen.used[at].map(whole)).collect::<Int64Array>()));
        }
        columns
    }

    fn rows(columns: &Columns) -> Result<Vec<CgroupRow>, Missing> {
        let (t_s, cgroup, node) = (columns.f64("t_s")?, columns.text("cgroup")?, columns.u32("node")?);
        let (kind, bytes, promoted) = (columns.text("kind")?, columns.i64("bytes")?, columns.i64("promoted_bytes")?);
        let used = WINDOWS_S.map(|window| columns.i64(&format!("ws_{window}s_bytes")));
        let mut windows = Vec::new();
        for column in used {
            windows.push(column?);
        }
        let row = |at: usize| CgroupRow {
            t_s: t_s.value(at),
            seen: CgroupUse {
                cgroup: cgroup.get(at).to_owned(),
                node: u64::from(node.value(at)),
                anon: kind.get(at) == "anon",
                bytes: figure(bytes.value(at)),
                used: std::array::from_fn(|w| windows[w].is_valid(at).then(|| figure(windows[w].value(at)))),
                promoted: figure(promoted.value(at)),
            },
        };
        Ok((0..columns.len()).map(row).collect())
    }
}
