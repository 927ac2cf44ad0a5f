//! Text above the rest of a screen: help, and details.

use lowtide_report::text::{printable, wrap};
use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Padding, Paragraph};
use unicode_width::UnicodeWidthStr;

use super::style::Palette;

/// Lines that are longer are hard to read.
const WIDTH: usize = 76;
/// Columns that the frame takes: a line and a space on either side.
const FRAME: usize = 4;

/// Draws paragraphs in a frame in the middle of the screen, as large as they are. Words are broken where they do not fit.
pub fn draw(frame: &mut Frame<'_>, palette: Palette, title: &str, paragraphs: &[String]) {
    let room = usize::from(frame.area().width).min(WIDTH).saturating_sub(FRAME);
    let lines: Vec<String> = paragraphs.iter().flat_map(|text| broken(text, room)).collect();
    let place = framed(frame, palette, title, &lines);
    let text: Vec<Line<'_>> = lines.into_iter().map(Line::raw).collect();
    frame.render_widget(Paragraph::new(text), place);
}

/// An empty frame in the middle of the screen for these lines; the place within it.
fn framed(frame: &mut Frame<'_>, palette: Palette, title: &str, lines: &[String]) -> Rect {
    let area = frame.area();
    let longest = lines.iter().map(|line| line.width()).max().unwrap_or(0).max(title.width() + 2);
    let size = |count: usize| Constraint::Length(u16::try_from(count).unwrap_or(u16::MAX));
    let [across] = Layout::horizontal([size(longest + FRAME)]).flex(Flex::Center).areas(area);
    let [place] = Layout::vertical([size(lines.len() + 2)]).flex(Flex::Center).areas(across);
    let block = Block::bordered().title(format!(" {title} ")).title_style(palette.head());
    let block = block.padding(Padding::horizontal(1));
    let within = block.inner(place);
    frame.render_widget(Clear, place);
    frame.render_widget(block, place);
    within
}

/// Draws choices in a frame in the middle of the screen, the one at that place marked.
pub fn choices(frame: &mut Frame<'_>, palette: Palette, (title, at): (&str, usize), all: &[String]) {
    let place = framed(frame, palette, title, all);
    let style = |number: usize| if number == at { palette.chosen() } else { Style::new() };
    let lines = all.iter().enumerate().map(|(number, text)| Line::styled(text.clone(), style(number)));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), place);
}

/// A paragraph in lines; one that fits keeps its spaces.
fn broken(text: &str, width: usize) -> Vec<String> {
    let text = printable(text);
    if text.width() <= width {
        return vec![text];
    }
    wrap(&text, width, "  ").lines().map(str::to_owned).collect()
}

/// Keys and what they do, in two columns.
#[must_use]
pub fn keys(rows: &[(&str, &str)]) -> Vec<String> {
    let width = rows.iter().map(|(key, _)| key.width()).max().unwrap_or(0);
    rows.iter().map(|(key, does)| format!("{key}{}  {does}", " ".repeat(width.saturating_sub(key.width())))).collect()
}
