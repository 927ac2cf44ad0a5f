//! Tables on a terminal, or the same as JSON. A figure that does not exist is a dash.

use comfy_table::{CellAlignment, ContentArrangement, Table};
use lowtide_model::units::{float, human_bytes};
use serde::Serialize;

/// A figure that does not apply or could not be measured.
pub const NONE: &str = "–";

/// A table whose first column is text and whose others are figures; nothing where it has no rows. `head` names the columns,
/// separated by `|`.
pub fn table(title: &str, head: &str, rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    // Wide tables are not wrapped: they are compared column by column, in logs as well.
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.split('|').map(str::trim));
    table.add_rows(rows.iter());
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let body: String = table.lines().map(|line| format!("  {}\n", line.trim_end())).collect();
    format!("{title}\n{body}\n")
}

/// Prints a report as JSON, or its tables.
pub fn print(json: bool, report: &impl Serialize, tables: impl FnOnce() -> String) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        print!("{}", tables());
    }
    Ok(())
}

/// A value as text, or a dash.
pub fn shown<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), text)
}

pub fn size(value: Option<f64>) -> String {
    shown(value, human_bytes)
}

/// Bytes that were counted.
pub fn counted_size(value: Option<u64>) -> String {
    size(value.map(float))
}

/// A figure with so many digits and its unit.
pub fn figure(value: Option<f64>, digits: usize, unit: &str) -> String {
    shown(value, |value| format!("{value:.digits$}{unit}"))
}

pub fn percent(value: Option<f64>) -> String {
    figure(value, 1, " %")
}

/// Percent with its sign.
pub fn signed_percent(value: Option<f64>) -> String {
    shown(value, |value| format!("{value:+.1} %"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_on_the_right_and_gaps_are_dashes() {
        let rows = [vec!["fixed".to_owned(), percent(Some(1.25))], vec!["x".to_owned(), percent(None)]];
        let text = table("Title", "pattern | error", &rows);
        assert_eq!(text, "Title\n  pattern  error\n  fixed    1.2 %\n  x            –\n\n");
        assert_eq!(table("Title", "pattern", &[]), "");
        assert_eq!(signed_percent(Some(-3.0)), "-3.0 %");
    }
}
