//! Memory and accesses over time, in characters.

use lowtide_model::units::{float, human_bytes, index, rounded};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

use super::board::{CHART_WINDOW_S, ChartPoint, WatchPicture};
use crate::screen::style::Palette;
use crate::screen::whole_seconds;

/// Seconds that a column may stand for.
const COLUMN_S: [f64; 8] = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0];
/// Rows below which there is no heatmap beside the chart.
const LEAST_HEAT: u16 = 7;
/// Lines of a chart, at most: beyond that height says no more.
const MOST_ROWS: u16 = 8;
/// Eighths of a cell, from the left.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A bar of a share of so many cells. What is there has an eighth of a cell at least.
#[must_use]
pub fn bar(share: f64, width: usize) -> String {
    let exact = share.clamp(0.0, 1.0) * float(width) * 8.0;
    let eighths = index(if exact > 0.0 { exact.max(1.0) } else { 0.0 });
    let rest = EIGHTHS[eighths % 8];
    let full = "█".repeat(eighths / 8);
    if rest == ' ' { full } else { full + &rest.to_string() }
}

/// Draws accesses by address where they are known, and resident and used memory.
pub fn draw(frame: &mut Frame<'_>, area: Rect, picture: &WatchPicture, palette: Palette) {
    let pid = picture.map.largest().filter(|_| area.height >= LEAST_HEAT);
    let Some(pid) = pid else { return draw_sizes(frame, area, picture, palette) };
    let rows = area.height.saturating_sub(4);
    let [head, heat, sizes] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(rows), Constraint::Min(0)]).areas(area);
    let (cells, span_s) = picture.map.cells(pid, usize::from(heat.width), usize::from(rows));
    let title = format!("Accesses, last {} ", whole_seconds(span_s));
    let scale = format!("(a row up to {})", human_bytes(float(cells.row_bytes)));
    frame.render_widget(Line::from(vec![Span::styled(title, palette.head()), Span::raw(scale)]), head);
    // The highest addresses are above, as in heatmaps of reports.
    let line = |row: &Vec<Option<f64>>| {
        Line::from(row.iter().map(|rate| cell(*rate, palette)).collect::<Vec<Span<'static>>>())
    };
    frame.render_widget(Paragraph::new(cells.rows.iter().rev().map(line).collect::<Vec<_>>()), heat);
    draw_sizes(frame, sizes, picture, palette);
}

/// A cell of the heatmap: fuller, the more of the samples found an access.
fn cell(rate: Option<f64>, palette: Palette) -> Span<'static> {
    match rate {
        None => Span::raw(" "),
        Some(rate) if rate <= 0.0 => Span::styled("·", palette.quiet()),
        Some(rate) if rate < 0.25 => Span::styled("░", palette.used()),
        Some(rate) if rate < 0.5 => Span::styled("▒", palette.used()),
        Some(rate) if rate < 0.75 => Span::styled("▓", palette.used()),
        Some(_) => Span::styled("█", palette.used()),
    }
}

/// Resident memory over used memory, of one scale where there is room for both.
fn draw_sizes(frame: &mut Frame<'_>, area: Rect, picture: &WatchPicture, palette: Palette) {
    let columns = columns(&picture.chart, usize::from(area.width));
    let most = |get: fn(&Column) -> Option<f64>| columns.iter().filter_map(get).reduce(f64::max);
    let last = |get: fn(&Column) -> Option<f64>| columns.iter().rev().find_map(get);
    let text = |bytes: Option<f64>| bytes.map_or_else(|| "-".to_owned(), human_bytes);
    let scale = most(|column| column.resident).or(most(|column| column.used)).unwrap_or(1.0).max(1.0);
    let span_s = picture.chart.first().zip(picture.chart.last()).map_or(0.0, |(first, last)| last.t_s - first.t_s);
    let span_s = span_s.min(float(columns.len()) * column_s(&picture.chart, usize::from(area.width)));
    let used = format!("used in {CHART_WINDOW_S}s {}", text(last(|column| column.used)));
    let used_chart = (used, columns.iter().map(|column| column.used).collect::<Vec<_>>(), palette.used());
    if area.height < 6 {
        let [label, line] = Layout::vertical([Constraint::Length(1), Constraint::Length(MOST_ROWS)]).areas(area);
        return spark(frame, [label, line], used_chart, scale);
    }
    let rows = (area.height.saturating_sub(3) / 2).min(MOST_ROWS);
    let parts = [1, 1, rows, 1, rows].map(Constraint::Length);
    let [head, resident_label, resident_at, used_label, used_at] = Layout::vertical(parts).areas(area);
    frame.render_widget(Line::styled(format!("Last {}", whole_seconds(span_s)), palette.head()), head);
    let resident = format!("resident, up to {}", text(most(|column| column.resident)));
    let resident = (resident, columns.iter().map(|column| column.resident).collect(), palette.held());
    spark(frame, [resident_label, resident_at], resident, scale);
    spark(frame, [used_label, used_at], used_chart, scale);
}

/// One chart below its label.
fn spark(frame: &mut Frame<'_>, [label, area]: [Rect; 2], chart: (String, Vec<Option<f64>>, Style), scale: f64) {
    let (text, values, style) = chart;
    frame.render_widget(Line::raw(text), label);
    let data: Vec<u64> = values.iter().map(|bytes| bytes.map_or(0, rounded)).collect();
    frame.render_widget(Sparkline::default().data(data).max(rounded(scale)).style(style), area);
    // What is not known is no zero.
    let unknown = area.columns().zip(&values).filter(|(_, bytes)| bytes.is_none());
    for bottom in unknown.filter_map(|(column, _)| column.rows().next_back()) {
        frame.render_widget(Line::raw("·"), bottom);
    }
}

/// What one column of a chart stands for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Column {
    /// The most that was resident.
    resident: Option<f64>,
    /// What was used last.
    used: Option<f64>,
}

/// Seconds of a column with which all points fit, or else the longest.
fn column_s(points: &[ChartPoint], width: usize) -> f64 {
    let span_s = points.first().zip(points.last()).map_or(0.0, |(first, last)| last.t_s - first.t_s);
    let fits = |seconds: &f64| span_s / seconds < float(width.max(2)) - 1.0;
    COLUMN_S.into_iter().find(fits).unwrap_or(COLUMN_S[COLUMN_S.len() - 1])
}

/// The newest columns that fit.
fn columns(points: &[ChartPoint], width: usize) -> Vec<Column> {
    let seconds = column_s(points, width);
    let slot = |point: &ChartPoint| index(point.t_s / seconds);
    let Some((first, last)) = points.first().zip(points.last()) else { return Vec::new() };
    let first = slot(first).max((slot(last) + 1).saturating_sub(width));
    let mut columns = vec![Column::default(); slot(last) + 1 - first];
    for point in points.iter().filter(|point| slot(point) >= first) {
        let column = &mut columns[slot(point) - first];
        column.resident = column.resident.into_iter().chain(point.resident).reduce(f64::max);
        column.used = point.used.or(column.used);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!((bar(0.5, 10).as_str(), bar(0.0, 10).as_str()), ("█████", ""));
        assert_eq!((bar(1.5, 3).as_str(), bar(1e-6, 10).as_str()), ("███", "▏"));
        assert_eq!(bar(0.55, 10), "█████▌");
    }

    #[test]
    fn columns_hold_all_that_was_watched() {
        let point = |t_s: f64| ChartPoint { t_s, resident: Some(t_s), used: (t_s > 50.0).then_some(1.0) };
        let points: Vec<ChartPoint> = (0..100).map(f64::from).map(point).collect();
        assert_eq!(columns(&points[..20], 40).len(), 20);
        let packed = columns(&points, 40);
        assert_eq!(packed.len(), 20, "five seconds each");
        assert_eq!(packed[0], Column { resident: Some(4.0), used: None });
        assert_eq!(packed[19], Column { resident: Some(99.0), used: Some(1.0) });
        assert_eq!(columns(&points, 0).len(), columns(&points, 0).len().min(1));
        assert_eq!(columns(&[], 40), Vec::new());
    }
}
