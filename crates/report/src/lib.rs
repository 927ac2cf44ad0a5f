//! Reports: what a record says, for people and for programs.
//!
//! A view is taken from a record's rows by a pure function, and then shown: as text, JSON, CSV, or a drawing that
//! becomes SVG, PNG and a section of the page. A new view is one file and one line in `View::ALL`.

mod ages;
pub mod bottom_line;
mod breakdown;
mod cgroups;
mod curve;
mod damo;
mod draw;
pub mod fleet;
pub mod forest;
mod heatmap;
mod ledger;
mod page;
mod regions;
mod sheet;
pub mod simulated;
mod source;
mod spark;
mod summary;
pub mod text;
mod timeline;
pub mod together;
mod workingset;
mod wss;

use std::io::{self, Write};
use std::path::Path;

pub use damo::Choices;
use draw::{Page, Scene, paint};
pub use source::Source;
pub use text::{Grid, Look};

use lowtide_record::atomic::{self, Care};
use lowtide_record::{Finished, Record, StoreError, finish};

/// A view of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    /// What it needs, in a few figures
    Summary,
    /// Memory, faults and stalls over time
    Timeline,
    /// How much is touched within 1 s to 2 min
    Workingset,
    /// Bytes by the time since they were last touched
    Ages,
    /// What less memory would cost
    Curve,
    /// Which addresses are accessed when, and how often
    Heatmap,
    /// The regions of one snapshot
    Regions,
    /// Peak and average by type of memory
    Breakdown,
    /// Which cgroups use their memory
    Cgroups,
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
    /// A page without network or script; of the summary, it holds all views
    Html,
    /// A drawing that scales
    Svg,
    /// A drawing in pixels
    Png,
}

/// By whose rule a figure is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Rule {
    /// Working sets of windows of 1 s to 2 min, and heatmaps of all that is mapped
    #[default]
    Lowtide,
    /// As `damo report wss` and `damo report heatmap`, from the map
    Damo,
}

/// What a reader may choose.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Only this process.
    pub pid: Option<u32>,
    /// The snapshot at or before this time; else the last.
    pub at_s: Option<f64>,
    /// By whose rule the working set and the heatmap are taken.
    pub rule: Rule,
    /// What is chosen of damo's rule.
    pub damo: Choices,
    /// For text.
    pub look: Look,
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
    #[error("{0}")]
    Paint(String),
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
    /// For another reason, which is told.
    Other(String),
}

impl Missing {
    /// In one sentence, with the reasons of each monitor or without.
    fn sentence(&self, source: &Source, reasons: bool) -> String {
        match self {
            Self::Other(why) => why.clone(),
            Self::Unmeasured(what) => {
                let why = if reasons { source.why_unmeasured_and_why() } else { source.why_unmeasured() };
                format!("this record has no {what}: {why}")
            }
        }
    }
}

/// A view taken from a record, to be shown.
trait Report {
    /// The first thing to say; may be empty.
    fn lead(&self) -> String {
        String::new()
    }

    /// A chart of characters; may be empty.
    fn chart(&self, _look: Look) -> String {
        String::new()
    }

    /// Tables.
    fn grids(&self) -> Vec<Grid>;

    /// Drawings for a page of that width, one below the other; none if it cannot be drawn.
    fn scenes(&self, _page: Page) -> Vec<Scene> {
        Vec::new()
    }

    /// All of it as JSON.
    fn json(&self, out: &mut dyn Write) -> io::Result<()>;

    /// Its rows as CSV.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// Takes a view from a record.
type Take = for<'a> fn(&'a Source<'a>, &Options) -> Taken<'a>;

/// The view, or what the record lacks for it.
type Taken<'a> = Result<Box<dyn Report + 'a>, Missing>;

/// A line of the registry of views.
struct Entry {
    view: View,
    name: &'static str,
    title: &'static str,
    /// What the figure means, in a sentence or two.
    meaning: &'static str,
    formats: &'static [Format],
    take: Take,
}

const DRAWN: &[Format] = &[Format::Text, Format::Json, Format::Csv, Format::Html, Format::Svg, Format::Png];
const TABLES: &[Format] = &[Format::Text, Format::Json, Format::Csv, Format::Html];

impl View {
    /// The registry, in the order of the page.
    const ALL: &'static [Entry] = &[
        summary::ENTRY,
        timeline::ENTRY,
        workingset::ENTRY,
        ages::ENTRY,
        curve::ENTRY,
        heatmap::ENTRY,
        breakdown::ENTRY,
        cgroups::ENTRY,
        regions::ENTRY,
    ];

    fn entry(self) -> &'static Entry {
        // Every view has its line: the test below goes through them.
        Self::ALL.iter().find(|entry| entry.view == self).unwrap_or(&summary::ENTRY)
    }
}

/// Writes a view of a record.
///
/// # Errors
/// If view and format do not go together, the record does not hold the view, or `out` fails.
pub fn write(
    record: &Record,
    view: View,
    format: Format,
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let entry = view.entry();
    if !entry.formats.contains(&format) {
        let names: Vec<&str> = entry.formats.iter().map(|format| name(*format)).collect();
        let why = format!("{} is not made as {}; possible: {}", entry.name, name(format), names.join(", "));
        return Err(ReportError::Usage(why));
    }
    by_rule(entry, format, options)?;
    let source = Source::new(record);
    if format == Format::Html {
        let entries = if view == View::Summary { View::ALL } else { std::slice::from_ref(entry) };
        return Ok(out.write_all(page::render(&source, entries, options)?.as_bytes())?);
    }
    let report = (entry.take)(&source, options)
        .map_err(|missing| ReportError::Missing { view: entry.name, why: missing.sentence(&source, true) })?;
    match format {
        Format::Json => report.json(out)?,
        Format::Csv => report.csv(out)?,
        Format::Svg => {
            out.write_all(paint::svg_file(&sheet(entry, &*report, &source)).map_err(painting)?.as_bytes())?
        }
        Format::Png => out.write_all(&paint::png_file(&sheet(entry, &*report, &source)).map_err(painting)?)?,
        Format::Text | Format::Html => out.write_all(as_text(&*report, options.look).as_bytes())?,
    }
    Ok(())
}

/// Whether the rule goes together with the view and the format.
fn by_rule(entry: &Entry, format: Format, options: &Options) -> Result<(), ReportError> {
    let ruled = matches!(entry.view, View::Workingset | View::Heatmap);
    let why = match options.rule {
        Rule::Lowtide if options.damo != Choices::default() => {
            "options of damo's rule are given without --rule damo".to_owned()
        }
        Rule::Damo if !ruled => format!("{} is not taken by damo's rule; workingset and heatmap are", entry.name),
        Rule::Damo if matches!(format, Format::Svg | Format::Png) => {
            format!("what is taken by damo's rule is not drawn as {}; possible: text, json, csv, html", name(format))
        }
        _ => return Ok(()),
    };
    Err(ReportError::Usage(why))
}

fn painting(error: paint::PaintError) -> ReportError {
    ReportError::Paint(error.to_string())
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Text => "text",
        Format::Json => "json",
        Format::Csv => "csv",
        Format::Html => "html",
        Format::Svg => "svg",
        Format::Png => "png",
    }
}

/// All drawings of a view under its title.
fn sheet(entry: &Entry, report: &dyn Report, source: &Source) -> Scene {
    let mut whole = Scene::default();
    for scene in report.scenes(Page::Wide) {
        whole.stack(scene, 22.0);
    }
    whole.titled(entry.title, &source.command())
}

fn as_text(report: &dyn Report, look: Look) -> String {
    let lead = report.lead();
    let lead = lead.lines().map(|line| text::wrap(line, look.width, "")).collect::<String>();
    let grids = report.grids();
    let parts = [lead, report.chart(look)].into_iter().chain(grids.iter().map(|grid| grid.text(look)));
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

/// Draws the page of a record. Under its name there is a whole page or none.
///
/// # Errors
/// If it could not be drawn or written.
pub fn write_page(record: &Record, path: &Path) -> Result<(), ReportError> {
    let mut html = Vec::new();
    write(record, View::Summary, Format::Html, &Options::default(), &mut html)?;
    Ok(atomic::write(path, Care::default(), &html)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_view_has_its_line_under_its_own_name() {
        for view in View::value_variants() {
            assert_eq!(view.entry().view, *view);
            assert_eq!(view.to_possible_value().unwrap().get_name(), view.entry().name);
        }
    }
}
