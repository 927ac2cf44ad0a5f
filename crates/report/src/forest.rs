//! The page of a comparison: per metric the differences with their intervals, drawn, and the tables below.

use super::ReportError;
use super::draw::{Axis, Figure, Ink, Layout, Page, Plot, keys, line_style, px, shorten};
use super::page::{self, PageOpening, Section};
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
pub fn page(opening: PageOpening, chapters: &[Chapter]) -> Result<String, ReportError> {
    let drawn = |chapter: &Chapter| {
        Section::chapter(&chapter.title, &chapter.meaning, chapter.grids.clone(), |page| {
            if !chapter.marks.is_empty() {
                return Some(figure(page, &chapter.title, &chapter.marks));
            }
            (!chapter.lines.is_empty()).then(|| together::figure(page, &chapter.title, &chapter.lines))
        })
    };
    let drawn: Result<_, ReportError> = chapters.iter().map(drawn).collect();
    page::chapters(opening, drawn?)
}

/// Percent with its sign; as many digits as the distance of ticks asks for.
fn percent(value: f64) -> String {
    let text = format!("{:+}", (value * 1e3).round() / 1e3);
    format!("{} %", if value.abs() < 5e-4 { "0" } else { &text })
}

fn figure<'a>(page: Page, title: &str, marks: &'a [Mark]) -> Figure<'a> {
    let mut names: Vec<&str> = Vec::new();
    for mark in marks {
        if !names.contains(&mark.name.as_str()) {
            names.push(&mark.name);
        }
    }
    // Marks stand on the half numbers, and groups are one apart.
    let (mut groups, mut places, mut next) = (Vec::new(), Vec::new(), 0.0);
    for group in marks.chunk_by(|a, b| a.group == b.group) {
        let first = next;
        for _ in group {
            places.push(-next - 0.5);
            next += 1.0;
        }
        groups.push((-(first + next) / 2.0, shorten(&group[0].group, page.of(19, 11))));
        next += 0.6;
    }
    let least = marks.iter().map(|mark| mark.ends()[0]).fold(0.0, f64::min);
    let most = marks.iter().map(|mark| mark.ends()[1]).fold(0.1, f64::max);
    let room = 0.04 * (most - least);
    let x = Axis::numbers(least - room, most + room, page.of(9, 4), percent);
    let y = Axis::new(-next, 0.3, groups);
    let rows = i32::try_from(marks.len() + y.ticks.len()).unwrap_or(i32::MAX / px(16));
    let layout = Layout { left: page.of(px(150), px(92)), right: px(34), upright: true, ..Layout::default() };
    let label = format!("{title}: percent over the original, mean and 95 % interval");
    Figure::new(page, px(80) + px(15) * rows, &label, move |area| {
        let rest = keys(area, names.iter().enumerate().map(|(at, name)| (line_style(at).0, *name, line_style(at).1)))?;
        let mut plot = Plot::new(&rest, [&x, &y], layout)?;
        plot.line(vec![(0.0, -next), (0.0, 0.3)], Ink::Axis, 4)?;
        for (mark, place) in marks.iter().zip(&places) {
            let (ink, dashed) = line_style(names.iter().position(|name| *name == mark.name).unwrap_or(0));
            let interval = mark.ends().map(|end| (end, *place)).to_vec();
            if dashed {
                plot.dashed(interval, ink, 8)?
            } else {
                plot.line(interval, ink, 8)?
            }
            plot.dots([(100.0 * mark.mean, *place)], ink, px(4))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_signs_and_pages_are_complete() {
        assert_eq!([percent(-20.0), percent(0.1), percent(0.0)], ["-20 %", "+0.1 %", "0 %"]);
        let mark = |group: &str, name: &str, mean: f64| Mark {
            group: group.into(),
            name: name.into(),
            mean,
            interval: Some([mean - 0.01, mean + 0.02]),
        };
        let marks = vec![mark("redis<", "rec", 0.005), mark("redis<", "prcl", -0.4), mark("sqlite", "prcl", 0.03)];
        let chapter =
            Chapter { title: "rss.avg".into(), meaning: "less is better".into(), marks, ..Chapter::default() };
        let page = page(PageOpening { title: "suite".into(), ..PageOpening::default() }, &[chapter]).unwrap();
        assert!(page.contains("<svg") && page.contains("redis&lt;") && !page.contains("redis<\""));
    }
}
