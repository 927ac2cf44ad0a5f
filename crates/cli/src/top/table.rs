//! Tables that fit a terminal: names give way, from their beginning, as paths differ at the end.

use lowtide_report::text::{Grid, Terminal, printable};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Names are cut no shorter.
const NAME: usize = 12;

/// The lines of a table whose first column is names, the head first.
#[must_use]
pub fn lines(mut grid: Grid, width: usize) -> Vec<String> {
    let text = |grid: &Grid| {
        let text = grid.text(Terminal { width: usize::from(u16::MAX), ansi: false });
        text.lines().map(|line| line.strip_prefix("  ").unwrap_or(line).to_owned()).collect::<Vec<String>>()
    };
    grid.rows.iter_mut().for_each(|row| row[0] = harmless(&row[0]));
    let all = text(&grid);
    let excess = all.iter().map(|line| line.width()).max().unwrap_or(0).saturating_sub(width);
    if excess == 0 {
        return all;
    }
    let longest = grid.rows.iter().map(|row| row[0].width()).max().unwrap_or(0);
    let room = longest.saturating_sub(excess).max(NAME);
    grid.rows.iter_mut().for_each(|row| row[0] = cut(&row[0], room));
    text(&grid)
}

/// A text without what would steer a terminal, or turn around what is beside it.
#[must_use]
pub fn harmless(text: &str) -> String {
    let turns =
        |letter: char| matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    printable(text).chars().map(|c| if turns(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The end of a text that is too long.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_under_each_other_and_names_give_way() {
        let mut table = Grid { remarks: true, ..Grid::new("", &["name", "size", "why"]) };
        table.row(["/a/long/name/of/something", "1.00 MiB", "x"].map(String::from));
        table.row(["/日本\u{1b}[2J\u{202e}", "-", ""].map(String::from));
        assert_eq!(lines(table.clone(), 200)[1], "/a/long/name/of/something  1.00 MiB  x");
        let narrow = lines(table, 30);
        assert_eq!(narrow[1], "…e/of/something  1.00 MiB  x");
        assert!(!narrow[2].contains(['\u{1b}', '\u{202e}']));
        assert!(narrow.iter().all(|line| line.width() <= 30), "{narrow:?}");
    }
}
