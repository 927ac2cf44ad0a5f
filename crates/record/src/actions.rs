//! `actions.parquet`: what lowtide did to the target, and why.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, StringArray};
use arrow_schema::{DataType, Field};

use super::columns::{Columns, Missing};
use super::table::{Table, column, nullable};

/// The table.
#[derive(Debug)]
pub struct Actions;

/// One row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ActionRow {
    /// Seconds since the start of the record.
    pub t_s: f64,
    /// What was done.
    pub action: String,
    /// To what.
    pub target: String,
    /// Bytes concerned, where that is a number.
    pub bytes: Option<i64>,
    /// What came of it.
    pub result: String,
    /// Why.
    pub reason: String,
}

impl Table for Actions {
    const NAME: &'static str = "actions";
    const REPEATED: &'static [&'static str] = &["t_s", "action", "target", "result", "reason"];
    const COMPRESS_PARTS: bool = false;
    type Row = ActionRow;

    fn fields() -> Vec<Field> {
        vec![
            column("t_s", DataType::Float64, "Time since the start of the record."),
            column("action", DataType::Utf8, "What was done."),
            column("target", DataType::Utf8, "To what."),
            nullable("bytes", DataType::Int64, "Bytes concerned."),
            column("result", DataType::Utf8, "What came of it."),
            column("reason", DataType::Utf8, "Why."),
        ]
    }

    fn columns(rows: &[ActionRow]) -> Vec<ArrayRef> {
        let text =
            |get: fn(&ActionRow) -> &str| Arc::new(rows.iter().map(|row| Some(get(row))).collect::<StringArray>());
        vec![
            Arc::new(rows.iter().map(|row| row.t_s).collect::<Float64Array>()),
            text(|row| &row.action),
            text(|row| &row.target),
            Arc::new(rows.iter().map(|row| row.bytes).collect::<Int64Array>()),
            text(|row| &row.result),
            text(|row| &row.reason),
        ]
    }

    fn rows(columns: &Columns) -> Result<Vec<ActionRow>, Missing> {
        let (t_s, bytes) = (columns.f64("t_s")?, columns.i64("bytes")?);
        let (action, target) = (columns.text("action")?, columns.text("target")?);
        let (result, reason) = (columns.text("result")?, columns.text("reason")?);
        let row = |at: usize| ActionRow {
            t_s: t_s.value(at),
            action: action.get(at).to_owned(),
            target: target.get(at).to_owned(),
            bytes: bytes.is_valid(at).then(|| bytes.value(at)),
            result: result.get(at).to_owned(),
            reason: reason.get(at).to_owned(),
        };
        Ok((0..columns.len()).map(row).collect())
    }
}
