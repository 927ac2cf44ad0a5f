//! Text for a terminal: tables and wrapped paragraphs.

use lowtide_model::units::{float, human_bytes};

use comfy_table::{CellAlignment, ContentArrangement, Table};

/// What a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Columns of the terminal, or of the page.
    pub width: usize,
    /// Whether colours are understood and wanted.
    pub ansi: bool,
}

/// Spaces between columns.
const GAP: usize = 2;

impl Default for Terminal {
    fn default() -> Self {
        Self { width: 80, ansi: false }
    }
}

/// A small table, for text and HTML alike.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grid {
    /// What it shows; may be empty.
    pub title: String,
    /// Column heads.
    pub head: Vec<String>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<String>>,
    /// Whether the last column is words, like the first; those between are figures.
    pub remarks: bool,
}

impl Grid {
    /// A table whose first column is words.
    #[must_use]
    pub fn new(title: &str, head: &[&str]) -> Self {
        let head = head.iter().map(|&name| name.to_owned()).collect();
        Self { title: title.to_owned(), head, rows: Vec::new(), remarks: false }
    }

    /// A table with its rows.
    #[must_use]
    pub fn of<const N: usize>(title: &str, head: &[&str], rows: impl IntoIterator<Item = [String; N]>) -> Self {
        let mut grid = Self::new(title, head);
        rows.into_iter().for_each(|row| grid.row(row));
        grid
    }

    /// A table of names and their values, without those that are not known.
    #[must_use]
    pub fn known<'a>(title: &str, rows: impl IntoIterator<Item = (&'a str, Option<String>)>) -> Self {
        let rows = rows.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        Self::of(title, &["", ""], rows)
    }

    /// Whether any column has a head.
    #[must_use]
    pub fn has_head(&self) -> bool {
        self.head.iter().any(|name| !name.is_empty())
    }

    /// Whether a column holds words, which are set from the left.
    #[must_use]
    pub fn is_words(&self, column: &usize) -> bool {
        *column == 0 || (self.remarks && column + 1 == self.head.len())
    }

    /// Whether a page should fold it away.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.rows.len() > 16 && !self.title.is_empty()
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// The table as text. Words are not broken: where not all columns fit, they are below each other, with the first repeated.
    #[must_use]
    pub fn text(&self, terminal: Terminal) -> String {
        let blocks = self.blocks(terminal.width);
        let body: Vec<String> = blocks.iter().map(|columns| self.block(columns, terminal.width)).collect();
        let body = body.join("\n");
        if self.title.is_empty() { body } else { format!("{}\n{body}", self.title) }
    }

    /// The columns of each block of lines. A percentage stays with the column before it.
    fn blocks(&self, width: usize) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.head.len()).collect();
        if self.remarks || all.len() < 3 || all.iter().map(|&at| self.longest_word(at) + GAP).sum::<usize>() <= width {
            return vec![all];
        }
        let widths: Vec<usize> =
            self.table(&all).column_max_content_widths().iter().map(|&most| usize::from(most) + GAP).collect();
        let mut blocks: Vec<Vec<usize>> = Vec::new();
        let mut left = 0;
        for group in all[1..].chunk_by(|_, &next| self.head[next] == "%") {
            let wide: usize = group.iter().map(|&column| widths[column]).sum();
            match blocks.last_mut() {
                Some(block) if wide <= left => block.extend(group),
                _ => {
                    left = width.saturating_sub(widths[0]);
                    blocks.push([&[0], group].concat());
                }
            }
            left = left.saturating_sub(wide);
        }
        blocks
    }

    /// Characters of the longest word of a column: it cannot be narrower.
    fn longest_word(&self, column: usize) -> usize {
        let cells = self.rows.iter().chain([&self.head]).filter_map(|row| row.get(column));
        cells.flat_map(|cell| cell.split_whitespace()).map(|word| word.chars().count()).max().unwrap_or(0)
    }

    fn table(&self, columns: &[usize]) -> Table {
        let cells = |row: &[String]| columns.iter().filter_map(|&at| row.get(at).cloned()).collect::<Vec<String>>();
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        if self.has_head() {
            table.set_header(cells(&self.head));
        }
        table.add_rows(self.rows.iter().map(|row| cells(row)));
        table
    }

    fn block(&self, columns: &[usize], width: usize) -> String {
        let mut table = self.table(columns);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
        for (at, column) in columns.iter().zip(table.column_iter_mut()) {
            // None before the first.
            column.set_padding((0, u16::try_from(GAP).unwrap_or(u16::MAX)));
            if !self.is_words(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.lines().map(|line| format!("  {}\n", line.trim_end())).collect()
    }
}

impl Grid {
    /// The table as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace('\n', " "));
        let escaped = |cells: &Vec<String>| cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<String>>();
        let rule = |at: usize| if self.is_words(&at) { "---".to_owned() } else { "---:".to_owned() };
        let title = if self.title.is_empty() { String::new() } else { format!("**{}**\n\n", self.title) };
        let rules: Vec<String> = (0..self.head.len()).map(rule).collect();
        let rows: String = self.rows.iter().map(|row| line(&escaped(row))).collect();
        title + &line(&escaped(&self.head)) + &line(&rules) + &rows
    }
}

/// Breaks a paragraph into lines; a word longer than a line is not broken.
#[must_use]
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut out = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let longer = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && longer > width {
            out += line.trim_end();
            out.push('\n');
            line = indent.to_owned();
        } else if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    out += &line;
    out.push('\n');
    out
}

/// A text from outside without what would steer a terminal or break a document: commands and file names may hold
/// anything.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A text that begins a sentence.
#[must_use]
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Bytes for people, or a dash where there is no figure.
#[must_use]
pub fn bytes(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), human_bytes)
}

/// The same for an integer.
#[must_use]
pub fn whole_bytes(value: Option<u64>) -> String {
    bytes(value.map(float))
}

/// A figure with its digits, or a dash.
#[must_use]
pub fn figure(value: Option<f64>, digits: usize, unit: &str) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}{unit}"))
}

/// A count with its thousands apart, or a dash.
#[must_use]
pub fn count(value: Option<u64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let digits = value.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_and_counts() {
        assert_eq!(wrap("one two three four", 9, "  "), "one two\n  three\n  four\n");
        assert_eq!(count(Some(1_234_567)), "1 234 567");
        assert_eq!(count(Some(12)), "12");
    }

    #[test]
    fn columns_that_do_not_fit_are_below() {
        let mut grid = Grid::new("time, s", &["program", "orig", "auto", "%", "age", "%"]);
        grid.row(["redis", "71.212", "72.009", "+1.12", "72.003", "+1.11"].map(str::to_owned));
        let text = |width| grid.text(Terminal { width, ansi: false });
        assert_eq!(text(80).lines().count(), 3);
        assert_eq!(
            text(32),
            "time, s\n  program    orig    auto      %\n  redis    71.212  72.009  +1.12\n\n  program     age      %\n  redis    72.003  +1.11\n"
        );
    }
}
