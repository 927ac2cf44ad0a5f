//! Tables of a given width, for a terminal: figures stand under each other, and names give way.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use lowtide_report::text::printable;

/// A table. The first column is words that give way; the others are as wide as what they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table<const N: usize> {
    /// Heads.
    pub head: [String; N],
    /// Rows.
    pub rows: Vec<[String; N]>,
    /// Columns that hold words, set from the left.
    pub words: [bool; N],
}

/// A name is cut no shorter.
const NAME: usize = 12;

impl<const N: usize> Table<N> {
    /// Its lines, the head first; no wider than that if that can be.
    #[must_use]
    pub fn lines(&self, width: usize) -> Vec<String> {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let mut widths = [0; N];
        for row in all() {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(cell.width());
            }
        }
        let others: usize = widths[1..].iter().map(|width| width + 2).sum();
        widths[0] = widths[0].min(width.saturating_sub(others).max(NAME));
        let line = |row: &[String; N]| {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let cell = cut(&harmless(cell), widths[at]);
                let space = " ".repeat(widths[at].saturating_sub(cell.width()));
                line += if at == 0 { "" } else { "  " };
                line += &if self.words[at] { cell + &space } else { space + &cell };
            }
            line.trim_end().to_owned()
        };
        all().map(line).collect()
    }
}

/// A text without what would steer a terminal, or turn around what is beside it.
fn harmless(text: &str) -> String {
    let turns =
        |letter: char| matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    printable(text).chars().map(|c| if turns(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The end of a text that is too long: paths differ there.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let mut kept: Vec<char> = Vec::new();
    for letter in text.chars().rev() {
        let wide = letter.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        kept.push(letter);
    }
    kept.push('…');
    kept.iter().rev().collect()
}

/// The beginning of a line that is too long for a screen.
#[must_use]
pub fn fit(text: &str, width: usize) -> String {
    let mut left = width;
    let fits = |letter: &char| {
        let wide = letter.width().unwrap_or(0);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    };
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_under_each_other_and_names_give_way() {
        let row = |cells: [&str; 3]| cells.map(String::from);
        let rows = vec![row(["/a/long/name/of/something", "1.00 MiB", "x"]), row(["/日本\u{1b}[2J\u{202e}", "-", ""])];
        let table = Table { head: row(["name", "size", "why"]), rows, words: [true, false, true] };
        assert_eq!(table.lines(200)[1], "/a/long/name/of/something  1.00 MiB  x");
        let narrow = table.lines(30);
        assert_eq!(narrow[1], "…e/of/something  1.00 MiB  x");
        assert!(!narrow[2].contains(['\u{1b}', '\u{202e}']));
        assert!(narrow.iter().all(|line| line.width() <= 30), "{narrow:?}");
    }

    #[test]
    fn lines_fit() {
        assert_eq!(fit("abc", 2), "ab");
        assert_eq!(fit("日本", 3), "日");
    }
}
