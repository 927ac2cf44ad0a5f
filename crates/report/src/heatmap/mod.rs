//! The heatmap: which addresses are accessed when, and how often.

pub(crate) mod cells;
mod damo;
mod draw;
mod guide;
mod layout;
mod take;

use std::io::{self, Write};

use lowtide_model::units::float;
use serde::Serialize;

use super::data::RecordData;
use super::draw::axis::clock;
use super::draw::theme::{HEAT_LEVELS, heat};
use super::draw::{Figure, Page};
use super::text::{Terminal, wrap};
use super::{Convention, DRAWN, Missing, Report, ReportOptions, View};
use draw::level;
use layout::Section;
use take::{PANELS, Panel};

pub(super) const VIEW: View = View {
    name: "heatmap",
    help: "Which addresses are accessed when, and how often",
    title: "Accesses by address and time",
    meaning: "Time runs to the right, addresses upward. Lighter: accessed in more samples. Dark: held but not used. Slanted \
              strokes mark unmapped ranges that are left out.",
    formats: DRAWN,
    damo: true,
    optional: false,
    make: |data, options| {
        if options.rule == Convention::Damo {
            return Ok(Box::new(damo::Heatmaps::of(data, options)?));
        }
        Ok(Box::new(Heatmap::of(data, options)?))
    },
};

/// The view.
struct Heatmap {
    panels: Vec<Panel>,
    /// Smaller processes that are not shown.
    left_out: usize,
    from_cohort: bool,
}

/// One row for programs.
#[derive(Serialize)]
struct Row {
    start: u64,
    end: u64,
    access_rate: Vec<Option<f32>>,
}

/// One process for programs.
#[derive(Serialize)]
struct Process {
    pid: u32,
    from_s: f64,
    to_s: f64,
    column_s: f64,
    rows: Vec<Row>,
}

impl Heatmap {
    fn of(data: &RecordData, options: &ReportOptions) -> Result<Self, Missing> {
        let record = data.record;
        let (panels, left_out) = take::from_regions(|| record.regions(), options.pid);
        if !panels.is_empty() {
            return Ok(Self { panels, left_out, from_cohort: false });
        }
        let tick_s = data.meta().monitor.sampling_s.max(data.meta().interval_s);
        let (panels, left_out) = take::from_episodes(|| record.read(), tick_s, options.pid);
        if !panels.is_empty() {
            return Ok(Self { panels, left_out, from_cohort: true });
        }
        Err(match options.pid {
            Some(pid) if record.regions().next().is_some() => {
                Missing::Other(format!("this record has no map of process {pid}"))
            }
            _ => Missing::Unmeasured("map of accesses"),
        })
    }
}

/// Rows of the largest process as text, and of the others.
const TEXT_ROWS: [usize; 2] = [20, 10];

/// Columns beside a heatmap of characters, for names.
const NAMES: usize = 26;

/// A section's share of the rows of a text, at least one.
fn text_rows(section: &Section, all: usize, rows: usize) -> usize {
    (section.rows * rows / all.max(1)).max(1)
}

/// The mean rate of some rows and columns of a panel.
fn mean(panel: &Panel, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) -> Option<f32> {
    let cells = rows.flat_map(|row| columns.clone().map(move |column| (row, column)));
    let (sum, count) = cells
        .filter_map(|(row, column)| panel.cell(row, column))
        .fold((0.0, 0.0), |(sum, count), rate| (sum + rate, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// One cell of a text: a coloured blank, or the rate in tenths.
fn character(rate: Option<f32>, terminal: Terminal) -> String {
    let Some(rate) = rate else { return " ".to_owned() };
    if terminal.ansi {
        let (red, green, blue) = heat(level(rate, HEAT_LEVELS - 1));
        format!("\x1b[48;5;{}m \x1b[0m", ansi256(red, green, blue))
    } else {
        char::from(b'0' + level(rate, 9)).to_string()
    }
}

/// The nearest colour of the 6 x 6 x 6 cube of a terminal.
fn ansi256(red: u8, green: u8, blue: u8) -> u8 {
    let side = |value: u8| match value {
        0..=47 => 0,
        48..=114 => 1,
        _ => (value - 35) / 40,
    };
    16 + 36 * side(red) + 6 * side(green) + side(blue)
}

fn panel_text(panel: &Panel, rows: usize, terminal: Terminal) -> String {
    let width = terminal.width.saturating_sub(NAMES + 1).max(10).min(panel.columns);
    let mut out = if panel.pid == 0 { "Physical addresses\n".to_owned() } else { format!("Process {}\n", panel.pid) };
    for section in panel.layout.sections.iter().rev() {
        let rows = text_rows(section, panel.layout.rows, rows);
        let name = panel.names.iter().find(|(start, _, _)| (section.start..section.end).contains(start));
        for row in (0..rows).rev() {
            let at = |row: usize| section.first_row + row * section.rows / rows;
            let lines = at(row)..at(row + 1).max(at(row) + 1);
            for column in 0..width {
                let columns = column * panel.columns / width..(column + 1) * panel.columns / width;
                out += &character(mean(panel, lines.clone(), columns), terminal);
            }
            if row == rows / 2 {
                let label = name.map_or_else(String::new, |(_, bytes, name)| draw::label_of(panel, name, *bytes));
                out += &format!(" {}", label.chars().take(NAMES).collect::<String>());
            }
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
        }
    }
    let (from, to) = (clock(panel.from_s), clock(panel.to_s));
    out + &format!("{from}{to:>w$}\n", w = width.saturating_sub(from.len()))
}

impl Report for Heatmap {
    fn lead(&self) -> String {
        let mut text = Vec::new();
        if self.from_cohort {
            text.push("From sampled pages, as there is no map of regions.".to_owned());
        }
        if self.left_out > 0 {
            text.push(format!(
                "The {PANELS} largest processes are shown; choose one of {} more with --pid.",
                self.left_out
            ));
        }
        text.join("\n")
    }

    fn chart(&self, terminal: Terminal) -> String {
        let key = if terminal.ansi { "lighter: accessed in more samples" } else { "0 to 9: access rate in tenths" };
        let key = wrap(
            &format!("Rows: addresses, high to low. Columns: time. {key}; blank: not mapped."),
            terminal.width,
            "",
        );
        let panels =
            self.panels.iter().enumerate().map(|(at, panel)| panel_text(panel, TEXT_ROWS[at.min(1)], terminal));
        std::iter::once(key).chain(panels).collect::<Vec<_>>().join("\n")
    }

    fn figures(&self, page: Page) -> Vec<Figure<'_>> {
        draw::figures(&self.panels, page)
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let process = |panel: &Panel| Process {
            pid: panel.pid,
            from_s: panel.from_s,
            to_s: panel.to_s,
            column_s: panel.column_s(),
            rows: (0..panel.layout.rows)
                .map(|row| {
                    let (start, end) = panel.layout.addresses(row);
                    let access_rate = (0..panel.columns).map(|column| panel.cell(row, column)).collect();
                    Row { start, end, access_rate }
                })
                .collect(),
        };
        serde_json::to_writer(&mut *out, &self.panels.iter().map(process).collect::<Vec<_>>())?;
        writeln!(out)
    }

    /// One line per cell that was mapped.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["pid", "t_s", "start", "end", "access_rate"])?;
        for panel in &self.panels {
            for row in 0..panel.layout.rows {
                let (start, end) = panel.layout.addresses(row);
                for column in 0..panel.columns {
                    let Some(rate) = panel.cell(row, column) else { continue };
                    let t_s = panel.from_s + float(column) * panel.column_s();
                    csv.serialize((panel.pid, t_s, start, end, rate))?;
                }
            }
        }
        csv.flush()
    }
}
