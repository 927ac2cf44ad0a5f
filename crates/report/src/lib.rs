//! Reports: what a record holds, for people and for programs.
//!
//! Problem: a record is tables of rows; a person wants a figure, a chart or a page, and a program wants JSON or CSV of
//! the same figures. Approach: a pure function makes a view from a record's rows, and the view has text, tables,
//! drawings, JSON and CSV, from which all formats follow. A view is one file with its [`View`] and one line in
//! [`View::ALL`]; the command's names and help come from there. The pages of comparisons, simulations and fleets use
//! the same tables and drawings.
//!
//! Charts of a page carry their values (`draw::track`); `templates/page.js` shows them under the pointer and zooms. A page is
//! complete without that script, and admits no other.
//!
//! It may import `record`, `fleet`, `policy` (for what the simulated machine returns) and `model`; it never reads the
//! kernel, and nothing but `cli` and the Python package stands on it.

mod ages;
pub mod bottom_line;
mod breakdown;
mod cgroups;
mod curve;
mod damo;
mod data;
mod draw;
pub mod fleet;
pub mod forest;
mod heatmap;
mod ledger;
mod page;
mod phases;
mod regions;
pub mod simulated;
mod spark;
mod summary;
pub mod text;
mod timeline;
pub mod together;
mod workingset;
mod wss;

use std::io::{self, Write};
use std::path::Path;

use clap::builder::PossibleValue;
pub use damo::Choices;
use data::RecordData;
pub use draw::PaintError;
use draw::{Figure, Page};
pub use heatmap::cells::{HeatCells, Stripe, cells};
pub use page::PageOpening;
use serde::Serialize;
pub use text::{Grid, Terminal};

use lowtide_record::atomic::{self, Care};
use lowtide_record::{Finished, Record, StoreError, finish};

/// A view of a record: a line of the registry.
#[derive(Clone, Copy)]
pub struct View {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of help.
    help: &'static str,
    /// Its heading.
    title: &'static str,
    /// What the figure means, in a sentence or two.
    meaning: &'static str,
    formats: &'static [Format],
    /// Whether it can also be calculated by damo's rule.
    damo: bool,
    /// Whether a page of all views leaves it out where the record does not hold it.
    optional: bool,
    make: Make,
}

impl View {
    /// The registry, in the order of the page. The first is what is shown if nothing else is asked for.
    pub const ALL: &'static [Self] = &[
        summary::VIEW,
        timeline::VIEW,
        phases::VIEW,
        workingset::VIEW,
        ages::VIEW,
        curve::VIEW,
        heatmap::VIEW,
        breakdown::VIEW,
        cgroups::VIEW,
        regions::VIEW,
    ];

    /// The view of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|view| view.name == name)
    }
}

impl Default for View {
    fn default() -> Self {
        Self::ALL[0]
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl clap::ValueEnum for View {
    fn value_variants<'a>() -> &'a [Self] {
        Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).help(self.help))
    }
}

/// How a view is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a terminal
    Text,
    /// One JSON document
    Json,
    /// Comma-separated values
    Csv,
    /// A page that needs no network; of the summary, it holds all views
    Html,
    /// A drawing that scales
    Svg,
    /// A drawing in pixels
    Png,
}

/// By whose rule a figure is calculated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Convention {
    /// Working sets of windows of 1 s to 2 min, and heatmaps of all that is mapped
    #[default]
    Lowtide,
    /// As `damo report wss` and `damo report heatmap`, from the map
    Damo,
}

/// What a reader may choose.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReportOptions {
    /// Only this process.
    pub pid: Option<u32>,
    /// The snapshot at or before this time; else the last.
    pub at_s: Option<f64>,
    /// By whose rule the working set and the heatmap are calculated.
    pub rule: Convention,
    /// Options of damo's rule.
    pub damo: Choices,
    /// For text.
    pub terminal: Terminal,
}

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The combination makes no sense.
    #[error("report: {0}")]
    Usage(String),
    /// The record does not hold it.
    #[error("{view}: {why}")]
    Missing {
        /// Which view.
        view: &'static str,
        /// What is missing and why.
        why: String,
    },
    /// The drawing failed.
    #[error(transparent)]
    Paint(#[from] PaintError),
    /// The page failed.
    #[error(transparent)]
    Page(#[from] askama::Error),
    /// The output could not be written.
    #[error("cannot write the report: {0}")]
    Output(#[from] io::Error),
    /// The record could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the record does not hold.
#[derive(Debug)]
enum Missing {
    /// No monitor measured it.
    Unmeasured(&'static str),
    /// For another reason.
    Other(String),
}

impl Missing {
    /// Why, where it is plain what is missing.
    fn reason(&self, data: &RecordData) -> String {
        match self {
            Self::Other(why) => why.clone(),
            Self::Unmeasured(_) => data.why_unmeasured(false),
        }
    }

    /// In one sentence, with the reasons of each monitor or without.
    fn sentence(&self, data: &RecordData, reasons: bool) -> String {
        match self {
            Self::Other(why) => why.clone(),
            Self::Unmeasured(what) => format!("this record has no {what}: {}", data.why_unmeasured(reasons)),
        }
    }
}

/// What a view shows of a record.
trait Report {
    /// The first paragraphs; may be empty.
    fn lead(&self) -> String {
        String::new()
    }

    /// A chart of characters; may be empty.
    fn chart(&self, _terminal: Terminal) -> String {
        String::new()
    }

    /// Tables.
    fn grids(&self) -> Vec<Grid> {
        Vec::new()
    }

    /// Drawings for a page, one below the other; none if it cannot be drawn.
    fn figures(&self, _page: Page) -> Vec<Figure<'_>> {
        Vec::new()
    }

    /// All of it as JSON.
    fn json(&self, out: &mut dyn Write) -> io::Result<()>;

    /// Its rows as CSV.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// Makes a view from a record.
type Make = for<'a> fn(&'a RecordData<'a>, &ReportOptions) -> Made<'a>;

/// The view, or what the record lacks for it.
type Made<'a> = Result<Box<dyn Report + 'a>, Missing>;

const TABLES: &[Format] = &[Format::Text, Format::Json, Format::Csv, Format::Html];
const DRAWN: &[Format] = &[Format::Text, Format::Json, Format::Csv, Format::Html, Format::Svg, Format::Png];

/// Writes a view of a record.
///
/// # Errors
/// If view and format do not go together, the record does not hold the view, or `out` fails.
pub fn write(
    record: &Record,
    (view, format): (View, Format),
    options: &ReportOptions,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    check(view, format, options).map_err(ReportError::Usage)?;
    let data = RecordData::new(record);
    if format == Format::Html {
        let views = if view == View::default() { View::ALL } else { &[view] };
        return Ok(out.write_all(page::render(&data, views, options)?.as_bytes())?);
    }
    let report = (view.make)(&data, options)
        .map_err(|missing| ReportError::Missing { view: view.name, why: missing.sentence(&data, true) })?;
    match format {
        Format::Json => report.json(out)?,
        Format::Csv => report.csv(out)?,
        Format::Text | Format::Html => out.write_all(as_text(&*report, options.terminal).as_bytes())?,
        Format::Svg | Format::Png => {
            drawing(format, &Figure::sheet(view.title, &data.command(), report.figures(Page::Wide)), out)?;
        }
    }
    Ok(())
}

/// Writes a drawing as PNG or SVG.
fn drawing(format: Format, figure: &Figure, out: &mut dyn Write) -> Result<(), ReportError> {
    let png = format == Format::Png;
    Ok(out.write_all(&if png { draw::png_file(figure)? } else { draw::svg_file(figure)?.into_bytes() })?)
}

/// Writes a value as JSON for people to read.
fn pretty(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Whether view, format and rule go together, or why not.
fn check(view: View, format: Format, options: &ReportOptions) -> Result<(), String> {
    let name = |format: Format| {
        clap::ValueEnum::to_possible_value(&format).map_or_else(String::new, |of| of.get_name().to_owned())
    };
    let names = |formats: &[Format]| formats.iter().map(|format| name(*format)).collect::<Vec<_>>().join(", ");
    if !view.formats.contains(&format) {
        return Err(format!("{} is not made as {}; possible: {}", view.name, name(format), names(view.formats)));
    }
    match options.rule {
        Convention::Lowtide if options.damo != Choices::default() => {
            Err("options of damo's rule are given without --rule damo".to_owned())
        }
        Convention::Damo if !view.damo => {
            let can: Vec<&str> = View::ALL.iter().filter(|view| view.damo).map(|view| view.name).collect();
            Err(format!("{} is not calculated by damo's rule; {} are", view.name, can.join(" and ")))
        }
        Convention::Damo if !TABLES.contains(&format) => {
            Err(format!("damo's rule has no drawing as {}; possible: {}", name(format), names(TABLES)))
        }
        _ => Ok(()),
    }
}

fn as_text(report: &dyn Report, terminal: Terminal) -> String {
    let lead = report.lead();
    let lead = lead.lines().map(|line| text::wrap(line, terminal.width, "")).collect::<String>();
    let grids = report.grids();
    let parts = [lead, report.chart(terminal)].into_iter().chain(grids.iter().map(|grid| grid.text(terminal)));
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Finishes the record in `dir` if that is still to do, and draws its page if there is none.
///
/// # Errors
/// If it is being recorded, or could not be written.
pub fn conclude(dir: &Path) -> Result<Finished, ReportError> {
    let finished = finish(dir)?;
    let path = dir.join("report.html");
    if finished.now || !path.exists() {
        write_page(&Record::open(dir)?, &path)?;
    }
    Ok(finished)
}

/// Draws the page of a record. The file is written completely or not at all.
///
/// # Errors
/// If it could not be drawn or written.
pub fn write_page(record: &Record, path: &Path) -> Result<(), ReportError> {
    let mut html = Vec::new();
    write(record, (View::default(), Format::Html), &ReportOptions::default(), &mut html)?;
    Ok(atomic::write(path, Care::default(), &html)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_views_are_unique() {
        assert!(View::ALL.iter().all(|view| View::named(view.name).unwrap().title == view.title));
    }
}
