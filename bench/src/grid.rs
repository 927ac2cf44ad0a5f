//! Tables on a terminal. Where there is no figure there is a dash.

use comfy_table::{CellAlignment, ContentArrangement, Table};
use lowtide_model::units::human_bytes;

/// Stands for what does not apply or could not be measured.
const NONE: &str = "–";

/// A table whose first column is words and whose others are figures; nothing where it has no rows.
#[must_use]
pub fn table(title: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    // Wide tables stay whole: they are compared column by column, in logs as well.
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter());
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

/// Bytes.
#[must_use]
pub fn size(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), human_bytes)
}

/// Whole bytes.
#[must_use]
pub fn whole_size(value: Option<u64>) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    size(value.map(|value| value as f64))
}

/// A figure with so many digits and its unit.
#[must_use]
pub fn figure(value: Option<f64>, digits: usize, unit: &str) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.digits$}{unit}"))
}

/// Percent.
#[must_use]
pub fn percent(value: Option<f64>) -> String {
    figure(value, 1, " %")
}

/// Percent with its sign.
#[must_use]
pub fn signed_percent(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| format!("{value:+.1} %"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_on_the_right_and_gaps_are_dashes() {
        let rows = [vec!["fixed".to_owned(), percent(Some(1.25))], vec!["x".to_owned(), percent(None)]];
        let text = table("Title", &["pattern", "error"], &rows);
        assert_eq!(text, "Title\n  pattern  error\n  fixed    1.2 %\n  x            –\n\n");
        assert_eq!(table("Title", &["pattern"], &[]), "");
        assert_eq!(signed_percent(Some(-3.0)), "-3.0 %");
    }
}
