//! Drawing the screen of `lowtide watch`.

use lowtide_model::units::{float, human_bytes, rounded};
use lowtide_report::text::{count, figure, printable, whole_bytes, wrap};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use super::board::{Overlay, WatchBoard};
use super::chart::{self, bar};
use super::figures::{IdleBytes, UsedWithin, WatchFigures};
use crate::screen::style::Palette;
use crate::screen::{popup, whole_seconds};

/// Windows of use on the screen, seconds.
const SHOWN_S: [u32; 3] = [1, 10, 60];
/// A figure is of now if it was read no longer ago, seconds.
const FRESH_S: f64 = 2.5;
/// Widths of names, of sizes, and of the remarks beside them.
const NAME: usize = 12;
const SIZE: usize = 9;
const BESIDE: usize = 17;
/// Widths from which idle ages and time share the screen.
const SIDE_BY_SIDE: u16 = 56;
/// Height from which there is room between parts.
const TALL: u16 = 30;

const KEYS: [(&str, &str); 9] = [
    ("q, Esc, Ctrl-C", "quit"),
    ("?, h, F1", "this help, on and off"),
    ("i", "how it is measured, and why not better"),
    ("space", "pause the display; measuring continues"),
    ("+ -", "longer and shorter intervals between two pictures"),
    ("d", "the next interval: 1, 2, 5, 10, 30 or 60 s"),
    ("", ""),
    ("█ ▒", "anonymous and file memory"),
    ("-", "a figure that is not known, or not yet"),
];

/// Draws the board.
pub fn draw(frame: &mut Frame<'_>, board: &WatchBoard, palette: Palette) {
    let of = &board.picture.figures;
    let width = usize::from(frame.area().width);
    let is_tall = frame.area().height >= TALL;
    let monitor = fit(&monitor(of), width, if is_tall { 5 } else { 2 });
    let bottom = fit(&bottom(of), width, 2);
    let height = |lines: &[String]| Constraint::Length(u16::try_from(lines.len()).unwrap_or(2));
    let parts = [
        Constraint::Length(if is_tall { 2 } else { 1 }),
        Constraint::Length(5),
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(0),
        height(&monitor),
        height(&bottom),
        Constraint::Length(1),
    ];
    let [title, memory, rates, _, middle, monitor_at, bottom_at, keys] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(head(board, width, palette), title);
    frame.render_widget(Paragraph::new(memory_lines(board, width, palette)), memory);
    frame.render_widget(Paragraph::new(rate_lines(of)), rates);
    draw_middle(frame, middle, board, palette);
    frame.render_widget(styled(monitor, Style::new()), monitor_at);
    frame.render_widget(styled(bottom, palette.head()), bottom_at);
    let hint = "q quit  ? help  i monitor  space pause  + - interval";
    frame.render_widget(Line::styled(hint, palette.quiet()), keys);
    match board.overlay {
        Overlay::None => {}
        Overlay::Help => popup::draw(frame, palette, "lowtide watch", &popup::keys(&KEYS)),
        Overlay::Monitor => popup::draw(frame, palette, "How it is measured", &measured(board)),
    }
}

fn styled(lines: Vec<String>, style: Style) -> Paragraph<'static> {
    Paragraph::new(lines.into_iter().map(|line| Line::styled(line, style)).collect::<Vec<_>>())
}

/// A text in so many lines at most, the last cut where it is longer.
fn fit(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = wrap(text, width, "").lines().map(str::to_owned).collect();
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            let kept: String = last.chars().take(width.saturating_sub(2)).collect();
            *last = format!("{} …", kept.trim_end());
        }
    }
    lines
}

/// The target, and how long it has been watched.
fn head(board: &WatchBoard, width: usize, palette: Palette) -> Line<'static> {
    let every = format!("every {}", whole_seconds(board.every_s));
    let state = if board.is_paused { "PAUSED".to_owned() } else { every };
    let right = format!("{}, {state}", whole_seconds(board.picture.figures.t_s));
    let left = printable(&format!("lowtide watch  {} ({})", board.name, board.target));
    let room = width.saturating_sub(right.width() + 2);
    let left: String = left.chars().take(room).collect();
    let gap = " ".repeat(width.saturating_sub(left.width() + right.width()));
    let style = if board.is_paused { palette.bad() } else { palette.quiet() };
    Line::from(vec![Span::styled(left, palette.head()), Span::raw(gap), Span::styled(right, style)])
}

/// Memory that is held, used and swapped out, with bars of one scale.
fn memory_lines(board: &WatchBoard, width: usize, palette: Palette) -> Vec<Line<'static>> {
    let of = &board.picture.figures;
    let sizes = [of.resident_bytes, of.swapped_bytes].into_iter().flatten().map(float);
    let held = board.picture.chart.iter().filter_map(|point| point.resident);
    let scale = sizes.chain(held).fold(1.0, f64::max);
    let room = width.saturating_sub(NAME + SIZE + BESIDE + 3);
    let line = |name: &str, bytes: Option<u64>, (beside, style): (String, Style)| {
        let bar = bar(bytes.map_or(0.0, |bytes| float(bytes) / scale), room);
        let text = format!("{name:<NAME$}{:>SIZE$}  {beside:<BESIDE$} ", whole_bytes(bytes));
        Line::from(vec![Span::raw(text), Span::styled(bar, style)])
    };
    let mut lines = vec![line("resident", of.resident_bytes, (files(of), palette.held()))];
    for (at, window_s) in SHOWN_S.into_iter().enumerate() {
        let used = of.used_within(window_s);
        let name = format!("{:<7}{:>4}", if at == 0 { "used in" } else { "" }, format!("{window_s}s"));
        lines.push(line(&name, used.bytes, (beside(of, used), palette.used())));
    }
    lines.push(line("swapped out", of.swapped_bytes, (String::new(), palette.evicted())));
    lines
}

/// File memory: part of what is resident, or where all page cache is counted, beside it.
fn files(of: &WatchFigures) -> String {
    let Some(file) = of.file_bytes.map(float) else { return String::new() };
    let both = of.anon_bytes.map_or(0.0, float) + file;
    let is_part = of.resident_bytes.is_some_and(|resident| both <= 1.02 * float(resident));
    if is_part { format!("{} of files", human_bytes(file)) } else { format!("cache {}", human_bytes(file)) }
}

/// The interval of a figure, or its age where it was not read just now.
fn beside(of: &WatchFigures, used: UsedWithin) -> String {
    let interval = used.ci95_bytes.map(|half| format!("± {}", human_bytes(float(half))));
    let ago_s = used.t_s.map_or(0.0, |t_s| of.t_s - t_s);
    let ago = (ago_s > FRESH_S).then(|| format!("{} ago", whole_seconds(ago_s)));
    interval.or(ago).unwrap_or_default()
}

fn rate_lines(of: &WatchFigures) -> Vec<Line<'static>> {
    let a_second = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| count(Some(rounded(rate))) + "/s");
    let faults = of.minor_faults_per_s.zip(of.major_faults_per_s).map(|(minor, major)| minor + major);
    vec![
        Line::raw(format!(
            "faults {}, {} of them with I/O   refaults {}",
            a_second(faults),
            a_second(of.major_faults_per_s),
            a_second(of.refaults_per_s)
        )),
        Line::raw(format!(
            "stalled on memory: some tasks {}, all {} of the time",
            figure(of.memory_some_percent, 1, " %"),
            figure(of.memory_full_percent, 1, " %")
        )),
    ]
}

/// Idle ages on the left, time on the right.
fn draw_middle(frame: &mut Frame<'_>, area: Rect, board: &WatchBoard, palette: Palette) {
    if area.width < SIDE_BY_SIDE {
        frame.render_widget(Paragraph::new(age_lines(&board.picture.figures, area, palette)), area);
        return;
    }
    let halves = [Constraint::Percentage(50), Constraint::Length(2), Constraint::Fill(1)];
    let [ages, _, time] = Layout::horizontal(halves).areas(area);
    frame.render_widget(Paragraph::new(age_lines(&board.picture.figures, ages, palette)), ages);
    chart::draw(frame, time, &board.picture, palette);
}

/// Bytes by idle age, in bars.
fn age_lines(of: &WatchFigures, area: Rect, palette: Palette) -> Vec<Line<'static>> {
    const AGE: usize = 11;
    const LEGEND: usize = 16;
    let ago_s = of.ages_t_s.map_or(0.0, |t_s| of.t_s - t_s);
    let ago = if ago_s > FRESH_S { format!(", {} ago", whole_seconds(ago_s)) } else { String::new() };
    let mut head = vec![Span::styled(format!("Idle for{ago}"), palette.head())];
    // The help has the legend, too.
    if head[0].width() + LEGEND <= usize::from(area.width) {
        head.extend([Span::raw("   "), Span::styled("█", palette.held()), Span::raw(" anon ")]);
        head.extend([Span::styled("▒", palette.used()), Span::raw(" file")]);
    }
    let mut lines = vec![Line::from(head)];
    if of.ages.is_empty() {
        let is_measured = of.monitor != "none";
        lines.push(Line::raw(if is_measured { "not known yet" } else { "not known" }));
        return lines;
    }
    let most = of.ages.iter().map(total).fold(1.0, f64::max);
    let room = usize::from(area.width).saturating_sub(AGE + SIZE + 1);
    for bin in &of.ages {
        let anon = bar(float(bin.anon_bytes) / most, room);
        let both = bar(total(bin) / most, room).chars().count();
        let file = "▒".repeat(both.saturating_sub(anon.chars().count()));
        let text = format!("{:<AGE$}{:>SIZE$} ", age(bin), human_bytes(total(bin)));
        let spans = vec![Span::raw(text), Span::styled(anon, palette.held()), Span::styled(file, palette.used())];
        lines.push(Line::from(spans));
    }
    lines
}

fn total(bin: &IdleBytes) -> f64 {
    float(bin.anon_bytes) + float(bin.file_bytes)
}

/// `< 1 s`, `5 to 10 s`, `> 120 s`.
fn age(bin: &IdleBytes) -> String {
    match bin.max_s {
        Some(max_s) if bin.min_s <= 0.0 => format!("< {max_s:.0} s"),
        Some(max_s) => format!("{:.0} to {max_s:.0} s", bin.min_s),
        None => format!("> {:.0} s", bin.min_s),
    }
}

/// The monitor, and why no better one.
fn monitor(of: &WatchFigures) -> String {
    let reasons = of.refused.iter().map(|no| format!("not {}: {}", no.backend, no.why.trim_end_matches('.')));
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    let name = if of.monitor.is_empty() { "none" } else { &of.monitor };
    let cost = of.monitor_cpu_percent.map_or_else(String::new, |cost| format!(", {cost:.2} % of one CPU"));
    let reasons = if reasons.is_empty() { String::new() } else { format!("; {reasons}") };
    printable(&format!("monitor {name}{cost}{reasons}"))
}

fn bottom(of: &WatchFigures) -> String {
    match &of.bottom_line {
        Some(line) => format!("Uses {line}."),
        None if of.monitor == "none" && of.t_s > FRESH_S => "No monitor serves, so use is not known.".to_owned(),
        None if of.steady.is_none() && of.t_s > FRESH_S => {
            "Memory grows; use in a steady state is not known yet.".to_owned()
        }
        None => "Use in a steady state is not known yet.".to_owned(),
    }
}

/// How it is measured, in full.
fn measured(board: &WatchBoard) -> Vec<String> {
    let of = &board.picture.figures;
    let cost = figure(of.monitor_cpu_percent, 2, " % of one CPU");
    let mut lines = vec![format!("monitor {}, {cost} so far", of.monitor)];
    for no in &of.refused {
        lines.extend([String::new(), format!("not {}: {}", no.backend, no.why)]);
    }
    lines.extend(board.picture.notes.iter().flat_map(|note| [String::new(), note.clone()]));
    lines
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::watch::board::tests::board;
    use lowtide_record::RegionRow;

    fn drawn(board: &WatchBoard, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let palette = Palette { has_colours: false };
        terminal.draw(|frame| draw(frame, board, palette)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn screens_of_three_widths() {
        for (width, height) in [(60, 24), (80, 24), (140, 40)] {
            insta::assert_snapshot!(format!("watch_{width}"), drawn(&board(), width, height));
        }
    }

    #[test]
    fn a_source_with_addresses_has_a_heatmap() {
        let mut board = board();
        for second in 0..30u32 {
            let region = |from: u64, to: u64, rate: f32| RegionRow {
                t_s: f64::from(second),
                pid: 4711,
                start: from << 20,
                end: to << 20,
                access_rate: rate,
                ..RegionRow::default()
            };
            let hot = if second < 15 { 1.0 } else { 0.3 };
            board.picture.map.add(&[region(0, 100, 0.0), region(100, 200, hot), region(200, 670, 0.0)]);
        }
        insta::assert_snapshot!("watch_heatmap", drawn(&board, 80, 24));
    }

    #[test]
    fn overlays_and_a_board_without_figures() {
        let mut board = board();
        board.overlay = Overlay::Monitor;
        insta::assert_snapshot!("watch_monitor", drawn(&board, 60, 24));
        board.overlay = Overlay::Help;
        insta::assert_snapshot!("watch_help", drawn(&board, 80, 24));
        let empty = WatchBoard::new("job".to_owned(), "cgroup /job".to_owned(), 1.0);
        insta::assert_snapshot!("watch_empty", drawn(&empty, 80, 24));
    }

    #[test]
    fn any_size_can_be_drawn() {
        for (width, height) in [(1, 1), (20, 3), (59, 9), (300, 100)] {
            for overlay in [Overlay::None, Overlay::Help, Overlay::Monitor] {
                let mut board = board();
                board.overlay = overlay;
                drawn(&board, width, height);
            }
        }
    }

    #[test]
    fn colours_are_used_only_where_they_are_wanted() {
        let has_colour = |has_colours| {
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            terminal.draw(|frame| draw(frame, &board(), Palette { has_colours })).unwrap();
            let cells = terminal.backend().buffer().content();
            cells.iter().any(|cell| cell.fg != ratatui::style::Color::Reset)
        };
        assert!(has_colour(true) && !has_colour(false));
    }
}
