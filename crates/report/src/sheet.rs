//! Pages that are not of one record: chapters with drawings and tables.

use askama::Template;

use super::ReportError;
use super::draw::{Page, Scene, paint, theme};
use super::painting;
use super::text::{Grid, printable};

/// A part of a page, drawn.
pub(super) struct Drawn {
    title: String,
    meaning: String,
    wide: String,
    narrow: String,
    grids: Vec<Grid>,
}

impl Drawn {
    /// A part; `draw` makes its drawing for either width, if it has one.
    pub(super) fn new(
        title: &str,
        meaning: &str,
        grids: Vec<Grid>,
        draw: impl Fn(Page) -> Option<Scene>,
    ) -> Result<Self, ReportError> {
        let svg = |page: Page| {
            draw(page).map_or_else(|| Ok(String::new()), |scene| paint::svg_element(&scene).map_err(painting))
        };
        let (title, meaning) = (printable(title), printable(meaning));
        Ok(Self { title, meaning, wide: svg(Page::Wide)?, narrow: svg(Page::Narrow)?, grids })
    }
}

#[derive(Template)]
#[template(path = "sheet.html")]
struct Sheet {
    command: &'static str,
    title: String,
    ran: String,
    chapters: Vec<Drawn>,
    version: &'static str,
    light: String,
    dark: String,
    rules: String,
}

/// The page that a command makes.
pub(super) fn render(
    command: &'static str,
    title: &str,
    ran: &str,
    chapters: Vec<Drawn>,
) -> Result<String, ReportError> {
    let sheet = Sheet {
        command,
        title: printable(title),
        ran: printable(ran),
        chapters,
        version: env!("CARGO_PKG_VERSION"),
        light: theme::variables(false),
        dark: theme::variables(true),
        rules: theme::rules("figure svg"),
    };
    sheet.render().map_err(|error| ReportError::Paint(error.to_string()))
}
