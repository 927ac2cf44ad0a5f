//! The page of a comparison: per metric the differences with their intervals, drawn, and the tables below.

use super::ReportError;
use super::draw::{Anchor, Ink, Page, Scene, shorten};
use super::sheet::{self, Drawn};
use super::text::Grid;
use super::together::{self, Line};

/// A difference from what is compared with, as a share.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// What it is of; marks of the same come together.
    pub group: String,
    /// In which way it differs.
    pub name: String,
    /// Mean.
    pub mean: f64,
    /// Its 95 % interval, if there are enough runs for one.
    pub interval: Option<[f64; 2]>,
}

impl Mark {
    /// Ends of its interval in percent; without one, the mean is both.
    fn ends(&self) -> [f64; 2] {
        self.interval.unwrap_or([self.mean; 2]).map(|share| 100.0 * share)
    }
}

/// A part of the page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chapter {
    /// Its heading.
    pub title: String,
    /// What is shown.
    pub meaning: String,
    /// What is drawn; may be nothing.
    pub marks: Vec<Mark>,
    /// Or this: programs over time.
    pub lines: Vec<Line>,
    /// Tables below.
    pub grids: Vec<Grid>,
}

/// The page.
///
/// # Errors
/// If a drawing fails.
pub fn page(title: &str, ran: &str, chapters: &[Chapter]) -> Result<String, ReportError> {
    let drawn = |chapter: &Chapter| {
        let draw = |page| {
            let marks = (!chapter.marks.is_empty()).then(|| scene(page, &chapter.title, &chapter.marks));
            marks.or_else(|| (!chapter.lines.is_empty()).then(|| together::scene(page, &chapter.title, &chapter.lines)))
        };
        Drawn::new(&chapter.title, &chapter.meaning, chapter.grids.clone(), draw)
    };
    let drawn: Result<_, ReportError> = chapters.iter().map(drawn).collect();
    sheet::render("compare", title, ran, drawn?)
}

/// Colours of the names, in their order.
const INKS: [Ink; 7] = [Ink::Anon, Ink::Window1, Ink::Window30, Ink::Window120, Ink::File, Ink::Need, Ink::Demand];
/// Height of one mark's line, and what comes between groups.
const LINE: f64 = 15.0;
const GAP: f64 = 9.0;

/// A step of 1, 2 or 5 times a power of ten of which at most about `count` fit.
fn step(span: f64, count: f64) -> f64 {
    let raw = (span / count).max(1e-6);
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= raw).unwrap_or(raw)
}

fn scene(page: Page, title: &str, marks: &[Mark]) -> Scene {
    let mut scene = Scene::new(page, format!("{title}: percent over the original, mean and 95 % interval"));
    let mut names: Vec<&str> = Vec::new();
    for mark in marks {
        if !names.contains(&mark.name.as_str()) {
            names.push(&mark.name);
        }
    }
    let ink = |name: &str| INKS[names.iter().position(|known| *known == name).unwrap_or(0) % INKS.len()];
    let key: Vec<(Ink, &str)> = names.iter().map(|name| (ink(name), *name)).collect();
    let top = scene.key((0.0, 0.0), page.width(), &key) + 8.0;
    let left = if page == Page::Wide { 150.0 } else { 92.0 };
    let right = page.width() - 34.0;
    let least = marks.iter().map(|mark| mark.ends()[0]).fold(0.0, f64::min);
    let most = marks.iter().map(|mark| mark.ends()[1]).fold(0.0, f64::max);
    let step = step((most - least).max(0.1), if page == Page::Wide { 9.0 } else { 4.0 });
    let (from, to) = ((least / step).floor() * step, (most / step).ceil().max(1.0) * step);
    let x = |value: f64| left + (right - left) * ((value - from) / (to - from)).clamp(0.0, 1.0);
    let groups = marks.chunk_by(|a, b| a.group == b.group).count();
    #[expect(clippy::cast_precision_loss, reason = "a handful of lines")]
    let bottom = top + marks.len() as f64 * LINE + groups as f64 * GAP;
    let mut tick = from;
    while tick <= to + step / 2.0 {
        let zero = tick.abs() < step / 2.0;
        scene.line(vec![(x(tick), top), (x(tick), bottom)], if zero { Ink::Axis } else { Ink::Grid }, 1.0);
        let value = if zero { 0.0 } else { tick };
        let digits = if step < 0.1 { 2 } else { usize::from(step < 1.0) };
        let sign = if value > 0.0 { "+" } else { "" };
        scene.text((x(tick), bottom + 14.0), format!("{sign}{value:.digits$} %"), Ink::Muted, Anchor::Middle);
        tick += step;
    }
    let mut y = top + GAP / 2.0;
    for group in marks.chunk_by(|a, b| a.group == b.group) {
        #[expect(clippy::cast_precision_loss, reason = "a handful of lines")]
        let middle = y + group.len() as f64 * LINE / 2.0;
        scene.text((left - 10.0, middle), shorten(&group[0].group, left - 12.0), Ink::Text, Anchor::End);
        for mark in group {
            let (at, ink) = (y + LINE / 2.0, ink(&mark.name));
            let [low, high] = mark.ends().map(x);
            scene.line(vec![(low, at), (high, at)], ink, 2.0);
            scene.rect((x(100.0 * mark.mean) - 4.0, at - 4.0), (8.0, 8.0), ink, 1.0);
            y += LINE;
        }
        y += GAP;
    }
    scene.height = bottom + 24.0;
    scene
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_pages_whole() {
        assert_eq!([step(9.0, 9.0), step(100.0, 9.0), step(0.4, 4.0)], [1.0, 20.0, 0.1]);
        let mark = |group: &str, name: &str, mean: f64| Mark {
            group: group.into(),
            name: name.into(),
            mean,
            interval: Some([mean - 0.01, mean + 0.02]),
        };
        let marks = vec![mark("redis<", "rec", 0.005), mark("redis<", "prcl", -0.4), mark("sqlite", "prcl", 0.03)];
        let chapter =
            Chapter { title: "rss.avg".into(), meaning: "less is better".into(), marks, ..Chapter::default() };
        let page = page("suite", "three runs", &[chapter]).unwrap();
        assert!(page.contains("<svg") && page.contains("redis&lt;") && !page.contains("redis<\""));
    }
}
