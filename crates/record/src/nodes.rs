//! `nodes.parquet`: where the target's memory lay, one row per tick and NUMA node; empty where there is but one.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, UInt32Array};
use arrow_schema::{DataType, Field};
use lowtide_model::numa::{NodeRow, NodeUse};

use super::columns::{Columns, Missing};
use super::table::{Table, column, nullable};

/// The table.
#[derive(Debug)]
pub struct Nodes;

impl Table for Nodes {
    const NAME: &'static str = "nodes";
    const REPEATED: &'static [&'static str] = &["t_s", "node"];
    const COMPRESS_PARTS: bool = false;
    type Row = NodeRow;

    fn fields() -> Vec<Field> {
        vec![
            column("t_s", DataType::Float64, "Time since the start of the record."),
            column("node", DataType::UInt32, "NUMA node."),
            column("anon_bytes", DataType::Int64, "Anonymous memory on it."),
            column("file_bytes", DataType::Int64, "File memory on it."),
            nullable("kernel_bytes", DataType::Int64, "Kernel memory on it; null = not told by node."),
        ]
    }

    fn columns(rows: &[NodeRow]) -> Vec<ArrayRef> {
        let seen = || rows.iter().map(|row| row.seen);
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        vec![
            Arc::new(rows.iter().map(|row| row.t_s).collect::<Float64Array>()),
            Arc::new(seen().map(|seen| seen.node).collect::<UInt32Array>()),
            Arc::new(seen().map(|seen| bytes(seen.anon)).collect::<Int64Array>()),
            Arc::new(seen().map(|seen| bytes(seen.file)).collect::<Int64Array>()),
            Arc::new(seen().map(|seen| seen.kernel.map(bytes)).collect::<Int64Array>()),
        ]
    }

    fn rows(columns: &Columns) -> Result<Vec<NodeRow>, Missing> {
        let (t_s, node, anon) = (columns.f64("t_s")?, columns.u32("node")?, columns.i64("anon_bytes")?);
        let (file, kernel) = (columns.i64("file_bytes")?, columns.i64("kernel_bytes")?);
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        let row = |at: usize| NodeRow {
            t_s: t_s.value(at),
            seen: NodeUse {
                node: node.value(at),
                anon: bytes(anon.value(at)),
                file: bytes(file.value(at)),
                kernel: kernel.is_valid(at).then(|| bytes(kernel.value(at))),
            },
        };
        Ok((0..columns.len()).map(row).collect())
    }
}
