//! `actions.parquet`: what lowtide did to the target, and why.

use super::columns::{Column, column};
use super::table::Table;

/// One action.
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
    /// The result.
    pub result: String,
    /// Why.
    pub reason: String,
}

impl ActionRow {
    /// The [`result`](Self::result) of an action of the agent that was carried out; else it is why it was not.
    pub const DONE: &'static str = "done";
}

impl Table for ActionRow {
    const NAME: &'static str = "actions";
    const REPEATED: &'static [&'static str] = &["t_s", "action", "target", "result", "reason"];
    const COMPRESS_PARTS: bool = false;

    fn columns() -> Vec<Column<Self>> {
        vec![
            column!(Plain row.t_s, "t_s", "Time since the start of the record."),
            column!(Plain row.action, "action", "What was done."),
            column!(Plain row.target, "target", "To what."),
            column!(Plain row.bytes, "bytes", "Bytes concerned."),
            column!(Plain row.result, "result", "The result."),
            column!(Plain row.reason, "reason", "Why."),
        ]
    }
}
