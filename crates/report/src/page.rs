//! Pages: self-contained HTML files, of a record with all its views, or of a command with chapters.

use askama::Template;
use lowtide_model::units::integer;

use super::data::RecordData;
use super::draw::{self, Figure, Page, theme};
use super::summary::{Bar, Overview};
use super::text::{Grid, capital, printable};
use super::{Report, ReportError, ReportOptions, View};

/// A drawing for wide and for narrow screens.
struct Svg {
    wide: String,
    narrow: String,
}

impl Svg {
    fn new(wide: &Figure, narrow: &Figure) -> Result<Self, ReportError> {
        Ok(Self { wide: draw::svg_element(wide)?, narrow: draw::svg_element(narrow)? })
    }
}

/// A heading and what stands below it: one view, or a chapter.
pub(super) struct Section {
    id: &'static str,
    title: String,
    meaning: String,
    lead: String,
    figures: Vec<Svg>,
    grids: Vec<Grid>,
    /// Why there is nothing to show.
    missing: String,
}

impl Section {
    /// A chapter; `draw` makes its drawing for either width, if it has one.
    pub(super) fn chapter<'a>(
        title: &str,
        meaning: &str,
        grids: Vec<Grid>,
        draw: impl Fn(Page) -> Option<Figure<'a>>,
    ) -> Result<Self, ReportError> {
        let figures = draw(Page::Wide).zip(draw(Page::Narrow));
        Ok(Self {
            id: "",
            title: printable(title),
            meaning: printable(meaning),
            lead: String::new(),
            figures: figures.map(|(wide, narrow)| Svg::new(&wide, &narrow)).transpose()?.into_iter().collect(),
            grids,
            missing: String::new(),
        })
    }

    fn of(view: &View, report: &dyn Report) -> Result<Self, ReportError> {
        let figures = report.figures(Page::Wide).into_iter().zip(report.figures(Page::Narrow));
        Ok(Self {
            lead: report.lead(),
            grids: report.grids(),
            figures: figures.map(|(wide, narrow)| Svg::new(&wide, &narrow)).collect::<Result<_, _>>()?,
            ..Self::missing(view, String::new())
        })
    }

    /// Whether its tables are folded away: what is drawn comes first.
    fn folds(&self) -> bool {
        !self.id.is_empty() && !self.figures.is_empty()
    }

    fn missing(view: &View, missing: String) -> Self {
        let (title, meaning) = (view.title.to_owned(), view.meaning.to_owned());
        Self { id: view.name, title, meaning, lead: String::new(), figures: Vec::new(), grids: Vec::new(), missing }
    }
}

/// Shows values under the pointer, and zooms; a page is complete without it.
const SCRIPT: &str = include_str!("../templates/page.js");
/// Its hash, by which the page's policy of content admits it and nothing else. A test says what it must be.
const SCRIPT_HASH: &str = "sha256-kIB3M7D0qLM6gH6erpvVveU68sGvzVXLqJeBz/V9Ul0=";

/// What every page begins with: colours on light and on dark ground, the rules that give them to drawings, and the script.
struct Look {
    light: String,
    dark: String,
    rules: String,
    script: &'static str,
    script_hash: &'static str,
}

impl Look {
    fn new() -> Self {
        Self {
            light: theme::variables(false),
            dark: theme::variables(true),
            rules: theme::rules("figure svg"),
            script: SCRIPT,
            script_hash: SCRIPT_HASH,
        }
    }
}

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage {
    command: String,
    ran: String,
    started: String,
    monitor: String,
    sentence: String,
    bars: Vec<Bar>,
    sections: Vec<Section>,
    figures: Vec<Grid>,
    notes: Vec<String>,
    version: String,
    look: Look,
}

/// The page with these views. The summary's line of the registry stands for headline, tables and notes.
pub(super) fn render(data: &RecordData, views: &[View], options: &ReportOptions) -> Result<String, ReportError> {
    let overview = Overview::of(data);
    let complete = views.contains(&View::default());
    let (mut sections, mut absent) = (Vec::new(), Vec::new());
    for view in views.iter().filter(|view| **view != View::default()) {
        match (view.make)(data, options) {
            Ok(report) => sections.push(Section::of(view, &*report)?),
            Err(_) if complete && view.optional => {}
            Err(missing) if complete => absent.push((missing.reason(data), view.title)),
            Err(missing) => sections.push(Section::missing(view, capital(&missing.sentence(data, false)))),
        }
    }
    let meta = data.meta();
    let page = ReportPage {
        command: data.command(),
        ran: overview.ran(),
        started: started(meta.started_unix_s),
        monitor: meta.monitor.backend.clone(),
        sentence: overview.sentence(),
        bars: if complete { overview.bars() } else { Vec::new() },
        sections,
        figures: if complete { overview.figures() } else { Vec::new() },
        notes: overview.notes.iter().cloned().chain(left_out(&absent)).map(|note| sentence(&note)).collect(),
        version: meta.lowtide.clone(),
        look: Look::new(),
    };
    Ok(page.render()?)
}

/// Which views were left out, those with the same reason together.
fn left_out(absent: &[(String, &str)]) -> Vec<String> {
    let mut reasons: Vec<&str> = Vec::new();
    for (reason, _) in absent {
        if !reasons.contains(&reason.as_str()) {
            reasons.push(reason);
        }
    }
    let titles = |reason: &str| {
        let same = absent.iter().filter(|(of, _)| of == reason).map(|(_, title)| *title);
        same.collect::<Vec<_>>().join("; ")
    };
    reasons.iter().map(|reason| format!("{}: {reason}", titles(reason))).collect()
}

/// A note from its capital to its full stop.
fn sentence(note: &str) -> String {
    format!("{}.", capital(&printable(note.trim_end_matches('.'))))
}

/// Seconds from 1970 to 2000: an earlier time was counted from something else, such as the start of a machine.
const FIRST_DATE_S: f64 = 946_684_800.0;

/// The date as people write it, in UTC: a record travels between machines. Empty if it is not known.
fn started(unix_s: f64) -> String {
    if unix_s < FIRST_DATE_S {
        return String::new();
    }
    let second = i64::try_from(integer(unix_s)).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(second)
        .map_or_else(|_| String::new(), |at| at.strftime("%-d %B %Y, %H:%M UTC").to_string())
}

#[derive(Template)]
#[template(path = "chapters.html")]
struct ChaptersPage {
    opening: PageOpening,
    sections: Vec<Section>,
    version: &'static str,
    look: Look,
}

/// What the page of a command begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageOpening {
    /// The command.
    pub command: &'static str,
    /// What it was about.
    pub title: String,
    /// How it was made.
    pub ran: String,
    /// The result in a few sentences; may be empty.
    pub answer: String,
}

/// The page that a command makes.
pub(super) fn chapters(opening: PageOpening, sections: Vec<Section>) -> Result<String, ReportError> {
    let [title, ran, answer] = [&opening.title, &opening.ran, &opening.answer].map(|text| printable(text));
    let opening = PageOpening { title, ran, answer, ..opening };
    Ok(ChaptersPage { opening, sections, version: env!("CARGO_PKG_VERSION"), look: Look::new() }.render()?)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    #[test]
    fn the_policy_of_content_admits_the_script() {
        let digest = ring::digest::digest(&ring::digest::SHA256, SCRIPT.as_bytes());
        assert_eq!(SCRIPT_HASH, format!("sha256-{}", BASE64_STANDARD.encode(digest)));
        assert!(!SCRIPT.contains("</"), "it ends where its element ends");
    }

    #[test]
    fn times_that_are_no_dates_are_left_out() {
        assert_eq!(started(0.0), "");
        assert_eq!(started(1_763_600_000.0), "20 November 2025, 00:53 UTC");
    }
}
