//! The page: one self-contained HTML file with all views.

use askama::Template;

use super::draw::{Page, paint, theme};
use super::summary::Overview;
use super::text::{Grid, capital, printable};
use super::{Entry, Options, Report, ReportError, Source, View, painting};

/// A drawing for wide and for narrow screens.
struct Figure {
    wide: String,
    narrow: String,
}

/// One view.
struct Section {
    id: &'static str,
    title: &'static str,
    meaning: &'static str,
    lead: String,
    figures: Vec<Figure>,
    grids: Vec<Grid>,
    /// Why there is nothing to show.
    missing: String,
}

/// A figure of the headline.
struct Tile {
    value: String,
    name: String,
    under: String,
}

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage {
    command: String,
    ran: String,
    started: String,
    monitor: String,
    sentence: String,
    tiles: Vec<Tile>,
    sections: Vec<Section>,
    figures: Vec<Grid>,
    notes: Vec<String>,
    version: String,
    light: String,
    dark: String,
    rules: String,
}

/// The page with these views. The summary's line of the registry stands for headline, tables and notes.
pub(super) fn render(source: &Source, entries: &[Entry], options: &Options) -> Result<String, ReportError> {
    let overview = Overview::of(source);
    let whole = entries.iter().any(|entry| entry.view == View::Summary);
    let views = entries.iter().filter(|entry| entry.view != View::Summary);
    let mut sections: Vec<Section> = views.map(|entry| section(source, entry, options)).collect::<Result<_, _>>()?;
    // Most targets are one cgroup or none: that is not worth a word on a page of everything.
    sections.retain(|section| !whole || section.id != "cgroups" || section.missing.is_empty());
    let tile = |(value, name, under)| Tile { value, name, under };
    let meta = source.meta();
    let page = ReportPage {
        command: source.command(),
        ran: overview.ran(),
        started: started(meta.started_unix_s),
        monitor: meta.monitor.backend.clone(),
        sentence: overview.sentence(),
        tiles: if whole { overview.tiles().into_iter().map(tile).collect() } else { Vec::new() },
        sections,
        figures: if whole { overview.figures() } else { Vec::new() },
        notes: overview.notes().iter().map(|note| printable(note)).collect(),
        version: meta.lowtide.clone(),
        light: theme::variables(false),
        dark: theme::variables(true),
        rules: theme::rules("figure svg"),
    };
    page.render().map_err(|error| ReportError::Paint(error.to_string()))
}

fn section(source: &Source, entry: &Entry, options: &Options) -> Result<Section, ReportError> {
    let mut section = Section {
        id: entry.name,
        title: entry.title,
        meaning: entry.meaning,
        lead: String::new(),
        figures: Vec::new(),
        grids: Vec::new(),
        missing: String::new(),
    };
    match (entry.take)(source, options) {
        Err(missing) => section.missing = capital(&missing.sentence(source, false)),
        Ok(report) => {
            section.lead = report.lead();
            section.grids = report.grids();
            section.figures = figures(&*report)?;
        }
    }
    Ok(section)
}

fn figures(report: &dyn Report) -> Result<Vec<Figure>, ReportError> {
    let drawn = report.scenes(Page::Wide).into_iter().zip(report.scenes(Page::Narrow));
    let figure = |(wide, narrow)| Ok(Figure { wide: paint::svg_element(&wide)?, narrow: paint::svg_element(&narrow)? });
    drawn.map(figure).collect::<Result<_, paint::PaintError>>().map_err(painting)
}

/// The date as people write it, in UTC: a record travels between machines.
fn started(unix_s: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "saturates; jiff refuses what is no date")]
    let second = unix_s as i64;
    jiff::Timestamp::from_second(second)
        .map_or_else(|_| String::new(), |at| at.strftime("%-d %B %Y, %H:%M UTC").to_string())
}
