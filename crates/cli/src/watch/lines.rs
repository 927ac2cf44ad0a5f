//! Figures one line each, as `vmstat` prints them, and as JSON.

use std::io::{self, Write};

use lowtide_model::units::float;

use super::figures::WatchFigures;

/// Lines after which the heads are printed again on a terminal.
const HEADS_EVERY: usize = 20;

/// Prints figures line by line.
#[derive(Debug, Clone, Copy, Default)]
pub struct WatchLines {
    /// JSON, one object a line.
    pub json: bool,
    /// Heads are repeated for people.
    pub repeats_heads: bool,
    printed: usize,
}

const GROUPS: &str = "        ------------------ MiB ------------------  -- per second ---  stalled, %";
const HEADS: &str = "  time  resident  swapped   in 1s  in 10s  in 60s   faults  refaults  some  full";

impl WatchLines {
    /// Lines of text or of JSON.
    #[must_use]
    pub fn new(json: bool, repeats_heads: bool) -> Self {
        Self { json, repeats_heads, printed: 0 }
    }

    /// Lines that were printed, without heads.
    #[must_use]
    pub fn printed(&self) -> usize {
        self.printed
    }

    /// Prints the figures of one moment.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn print(&mut self, figures: &WatchFigures, out: &mut dyn Write) -> io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut *out, figures)?;
            writeln!(out)?;
        } else {
            let head = if self.repeats_heads { self.printed.is_multiple_of(HEADS_EVERY) } else { self.printed == 0 };
            if head {
                writeln!(out, "{GROUPS}\n{HEADS}")?;
            }
            writeln!(out, "{}", line(figures))?;
        }
        self.printed += 1;
        out.flush()
    }
}

/// One line of text; a dash where a figure is not known.
fn line(of: &WatchFigures) -> String {
    let number = |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
    let mib = |bytes: Option<u64>| number(bytes.map(|bytes| float(bytes) / 1_048_576.0), 1);
    let [in_1, in_10, in_60] = [1, 10, 60].map(|window_s| mib(of.used_within(window_s).bytes));
    let faults = of.minor_faults_per_s.zip(of.major_faults_per_s).map(|(minor, major)| minor + major);
    format!(
        "{:>6.1}  {:>8}  {:>7}  {in_1:>6}  {in_10:>6}  {in_60:>6}  {:>7}  {:>8} {:>5} {:>5}",
        of.t_s,
        mib(of.resident_bytes),
        mib(of.swapped_bytes),
        number(faults, 0),
        number(of.refaults_per_s, 0),
        number(of.memory_some_percent, 1),
        number(of.memory_full_percent, 1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::board::tests::figures;

    fn printed(lines: &mut WatchLines, count: usize) -> String {
        let mut out = Vec::new();
        (0..count).for_each(|_| lines.print(&figures(), &mut out).unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_stand_under_their_heads() {
        let text = printed(&mut WatchLines::new(false, false), 2);
        insta::assert_snapshot!("watch_lines", text);
    }

    #[test]
    fn heads_are_repeated_on_a_terminal_only() {
        let heads = |repeats| printed(&mut WatchLines::new(false, repeats), 45).matches("resident").count();
        assert_eq!((heads(true), heads(false)), (3, 1));
    }

    #[test]
    fn json_is_an_object_a_line_with_bytes_as_integers() {
        let text = printed(&mut WatchLines::new(true, false), 2);
        assert_eq!(text.lines().count(), 2);
        insta::assert_snapshot!("watch_json", text.lines().next().unwrap());
        let object: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert!(object["resident_bytes"].is_u64() && object["working_set"][0]["bytes"].is_u64());
        assert!(object["working_set"][4]["bytes"].is_null(), "not known yet");
    }
}
