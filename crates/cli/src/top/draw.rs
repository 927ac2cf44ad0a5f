//! Drawing the screen of `lowtide top`.

use lowtide_report::text::wrap;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Row, Table};
use unicode_width::UnicodeWidthStr;

use super::board::{TopBoard, TopOverlay};
use super::order::TopOrder;
use super::table::{cut, harmless};
use super::view::{about, of_one, table};
use crate::screen::style::Palette;
use crate::screen::{popup, whole_seconds};

/// Columns that are left out where the screen is too narrow, the first ones first: policy, saved, pressure, brake, cold,
/// working set. A workload alone has them all.
const LEFT_OUT: [usize; 6] = [1, 5, 6, 7, 4, 3];
/// Names are cut no shorter than that while a column can be left out.
const NAME: usize = 24;
/// Columns between two columns.
const GAP: usize = 2;

const KEYS: [(&str, &str); 13] = [
    ("q, F10, Ctrl-C", "quit"),
    ("?, h, F1", "this help, on and off"),
    ("↑ ↓ j k, PgUp PgDn", "another workload"),
    ("Enter", "one workload with its tide curve and actions"),
    ("Esc", "back to all of them"),
    ("s, F6", "choose the order"),
    ("m w c v p n", "order by memory, working set, cold, saved,"),
    ("", "pressure or name"),
    ("r", "reverse the order"),
    ("space", "pause the display"),
    ("+ -", "longer and shorter intervals"),
    ("d", "the next interval: 1, 2, 5, 10, 30 or 60 s"),
    ("", "The brake column names what holds a policy back."),
];

/// Draws the board.
pub fn draw(frame: &mut Frame<'_>, board: &mut TopBoard, palette: Palette) {
    let width = usize::from(frame.area().width);
    let broken = |text: String| wrap(&text, width, "  ").lines().map(str::to_owned).collect::<Vec<String>>();
    let about = about(board.agent(), board.workloads().len()).into_iter().flat_map(broken).map(Line::raw);
    let lost = board.lost.iter().map(|why| format!("no answer: {why}")).flat_map(broken);
    let above: Vec<Line<'_>> = about.chain(lost.map(|line| Line::styled(line, palette.bad()))).collect();
    let height = u16::try_from(above.len()).unwrap_or(u16::MAX);
    let parts = [Constraint::Length(height), Constraint::Min(0), Constraint::Length(1)];
    let [top, middle, keys] = Layout::vertical(parts).areas(frame.area());
    board.page = usize::from(middle.height).saturating_sub(1).max(1);
    frame.render_widget(Paragraph::new(above), top);
    if board.is_open {
        draw_one(frame, middle, board, palette);
    } else {
        draw_all(frame, middle, board, palette);
    }
    draw_keys(frame, keys, board, palette);
    match board.overlay {
        TopOverlay::None => {}
        TopOverlay::Help => popup::draw(frame, palette, "lowtide top", &popup::keys(&KEYS)),
        TopOverlay::Orders(at) => popup::choices(frame, palette, ("Order by", at), &orders()),
    }
}

/// Orders to choose from, with their letters.
fn orders() -> Vec<String> {
    TopOrder::ALL.iter().map(|(_, letter, name, _)| format!("{letter}  {name}")).collect()
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, board: &TopBoard, palette: Palette) {
    let hint = if board.is_open {
        "q quit  ? help  ↑↓ scroll  Esc back"
    } else {
        "q quit  ? help  ↑↓ Enter one workload  s order  space pause"
    };
    let every = whole_seconds(board.every_s);
    let state = if board.is_paused { "PAUSED".to_owned() } else { format!("every {every}") };
    frame.render_widget(Line::styled(hint, palette.quiet()), area);
    if hint.width() + state.width() + GAP <= usize::from(area.width) {
        let style = if board.is_paused { palette.bad() } else { palette.quiet() };
        frame.render_widget(Line::styled(state, style).alignment(Alignment::Right), area);
    }
}

/// All workloads, as a table.
fn draw_all(frame: &mut Frame<'_>, area: Rect, board: &mut TopBoard, palette: Palette) {
    if board.workloads().is_empty() {
        let none = "no workloads: none of the cgroups that the agent's file names is there";
        let lines: Vec<Line<'_>> =
            wrap(none, usize::from(area.width), "").lines().map(str::to_owned).map(Line::raw).collect();
        frame.render_widget(Paragraph::new(lines), area);
        return;
    }
    let mut grid = table(board.workloads());
    let mark = if board.reverse { '▲' } else { '▼' };
    let by = board.sort.column();
    grid.head[by] = format!("{} {mark}", grid.head[by]);
    grid.rows.iter_mut().flatten().for_each(|cell| *cell = harmless(cell));
    let wide = |column: usize| {
        let cells = grid.rows.iter().map(|row| row[column].width());
        cells.chain([grid.head[column].width()]).max().unwrap_or(0)
    };
    let shown = fitting((0..grid.head.len()).map(wide).collect(), by, usize::from(area.width));
    let taken: usize = shown.iter().skip(1).map(|(_, width)| width + GAP).sum();
    let room = usize::from(area.width).saturating_sub(taken);
    let cell = |column: usize, text: &str| {
        let text = if column == 0 { cut(text, room) } else { text.to_owned() };
        let side = if grid.is_words(&column) || column == 1 { Alignment::Left } else { Alignment::Right };
        Text::from(text).alignment(side)
    };
    let line =
        |cells: &[String]| Row::new(shown.iter().map(|(column, _)| cell(*column, &cells[*column])).collect::<Vec<_>>());
    let length = |width: &usize| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX));
    let widths = shown.iter().map(|(column, width)| length(if *column == 0 { &room } else { width }));
    let table = Table::new(grid.rows.iter().map(|row| line(row)).collect::<Vec<_>>(), widths.collect::<Vec<_>>())
        .header(line(&grid.head).style(palette.head()))
        .column_spacing(2)
        .row_highlight_style(palette.chosen());
    // The row that keys act on stays on the screen.
    board.table.select(board.at());
    frame.render_stateful_widget(table, area, &mut board.table);
}

/// Columns that fit, each with its width: those that matter least are left out, but not the one of the order.
fn fitting(widths: Vec<usize>, order: usize, room: usize) -> Vec<(usize, usize)> {
    let mut shown: Vec<(usize, usize)> = widths.into_iter().enumerate().collect();
    for column in LEFT_OUT.into_iter().filter(|column| *column != order) {
        let others: usize = shown.iter().skip(1).map(|(_, width)| width + GAP).sum();
        if others + NAME.min(shown[0].1) <= room {
            break;
        }
        shown.retain(|(of, _)| *of != column);
    }
    shown
}

/// One workload, in lines.
fn draw_one(frame: &mut Frame<'_>, area: Rect, board: &mut TopBoard, palette: Palette) {
    let Some(detail) = &board.detail else {
        frame.render_widget(Line::raw("asking the agent …"), area);
        return;
    };
    let mut lines: Vec<Line<'_>> = of_one(detail, usize::from(area.width)).into_iter().map(Line::raw).collect();
    if let Some(name) = lines.first_mut() {
        *name = name.clone().style(palette.head());
    }
    if board.at().is_none() {
        let gone = "this workload is gone; these are its last readings";
        lines.insert(0, Line::styled(gone, palette.bad()));
    }
    let first = board.first.min(lines.len().saturating_sub(usize::from(area.height)));
    lines.drain(..first);
    frame.render_widget(Paragraph::new(lines), area);
    board.first = first;
}
