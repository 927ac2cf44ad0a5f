//! Lines of a chart, and what a page's script reads from them: values under the pointer, and which part can be zoomed.

use plotters::element::{Drawable, PointCollection, TriangleMarker};
use plotters::style::Color;
use plotters_backend::{BackendCoord as Point, DrawingErrorKind};
use serde::Serialize;

use super::canvas::Canvas;
use super::theme::{self, Ink};
use super::{Drawn, PaintError, Plot, px};

/// A line with at most so many readings is drawn as steps.
const SPARSE: usize = 120;
/// And with at most so many, with a mark at each reading.
const MARKED: usize = 24;

/// Where a reading holds, which shows only where readings are sparse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Between readings the line is known, or a straight line is meant.
    Between,
    /// Until the next reading: levels.
    After,
    /// Since the reading before: rates.
    Before,
}

/// A pause is so many times as long as the middle one of the times between readings.
const PAUSE: f64 = 8.0;

/// Values of a line that the script is given, at most.
const READ: usize = 400;

/// A line of a chart.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    pub name: String,
    pub ink: Ink,
    /// In quarters of a pixel; a track of width 0 is not drawn, only read.
    pub width: u32,
    pub dashed: bool,
    pub holds: Holds,
    /// Stretches without a gap.
    pub runs: Vec<Vec<(f64, f64)>>,
}

impl Track {
    /// A line of one stretch.
    pub(crate) fn new(name: &str, ink: Ink, width: u32, run: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), ink, width, dashed: false, holds: Holds::Between, runs: vec![run] }
    }

    /// The line of that place among many: after the last colour they begin again with dashes.
    pub(crate) fn nth(at: usize, name: &str, width: u32, run: Vec<(f64, f64)>) -> Self {
        let (ink, dashed) = super::line_style(at);
        Self { dashed, ..Self::new(name, ink, width, run) }
    }

    fn has_at_most(&self, readings: usize) -> bool {
        self.holds != Holds::Between && self.runs.iter().map(Vec::len).sum::<usize>() <= readings
    }
}

/// The stretches of times without a pause: nothing is drawn where for long nothing was recorded.
pub(crate) fn unbroken(times: &[f64]) -> Vec<std::ops::Range<usize>> {
    let gap = |at: &usize| times[*at] - times[at - 1];
    let mut gaps: Vec<f64> = (1..times.len()).map(|at| gap(&at)).collect();
    gaps.sort_by(f64::total_cmp);
    let most = PAUSE * gaps.get(gaps.len() / 2).copied().unwrap_or(0.0);
    let breaks: Vec<usize> = (1..times.len()).filter(|at| gap(at) > most).collect();
    let ends = breaks.iter().copied().chain([times.len()]);
    std::iter::once(0).chain(breaks.iter().copied()).zip(ends).map(|(from, to)| from..to).collect()
}

/// Areas at these places as steps, if there are few.
pub(crate) fn stepped(x: &[f64], layers: Vec<(Ink, Vec<f64>)>) -> (Vec<f64>, Vec<(Ink, Vec<f64>)>) {
    if x.len() > SPARSE {
        return (x.to_vec(), layers);
    }
    let corners = |heights: &[f64]| {
        let run: Vec<(f64, f64)> = x.iter().copied().zip(heights.iter().copied()).collect();
        steps(&run, Holds::After)
    };
    let places = corners(x).into_iter().map(|(at, _)| at).collect();
    let heights = |of: &[f64]| corners(of).into_iter().map(|(_, height)| height).collect();
    (places, layers.iter().map(|(ink, of)| (*ink, heights(of))).collect())
}

/// Corners of the steps through readings.
pub(crate) fn steps(run: &[(f64, f64)], holds: Holds) -> Vec<(f64, f64)> {
    let mut out = Vec::with_capacity(2 * run.len());
    for (at, point) in run.iter().enumerate() {
        if let Some(before) = at.checked_sub(1).map(|before| run[before]) {
            match holds {
                Holds::Between => {}
                Holds::After => out.push((point.0, before.1)),
                Holds::Before => out.push((before.0, point.1)),
            }
        }
        out.push(*point);
    }
    out
}

/// Units of the values along and up a chart, as the page's script knows them.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Units {
    /// `s` time, which all charts of a page share; `B` bytes; `%`; `ln s` and `lg %` logarithms; or none.
    pub x: &'static str,
    /// The same.
    pub y: &'static str,
}

/// What the script needs to know of a chart.
#[derive(Serialize)]
struct Live<'a> {
    #[serde(flatten)]
    units: Units,
    /// Ends of the axes.
    from: f64,
    to: f64,
    low: f64,
    high: f64,
    /// Left, top, right and bottom in the drawing.
    rect: [i32; 4],
    tracks: Vec<LiveTrack<'a>>,
    /// Of a heatmap: first and last address of each section, in the order of its images, and the colours of the rates.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sections: &'a [[String; 2]],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ramp: Vec<u32>,
}

#[derive(Serialize)]
struct LiveTrack<'a> {
    name: &'a str,
    ink: String,
    /// Whether there is a line, on which the pointer's place is marked.
    line: bool,
    /// Places and values in turn.
    at: Vec<f64>,
}

/// Rounded to so many significant digits, as a page need not hold more.
fn rounded(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let places = f64::from(digits - 1) - value.abs().log10().floor();
    let scale = 10f64.powf(places.abs());
    // Divided by a whole number, so that the result is the nearest to a short one.
    if places >= 0.0 { (value * scale).round() / scale } else { (value / scale).round() * scale }
}

impl<'a> LiveTrack<'a> {
    fn of(track: &'a Track) -> Self {
        // A chart has not more pixels to point at.
        let step = track.runs.iter().map(Vec::len).sum::<usize>().div_ceil(READ).max(1);
        let at =
            track.runs.iter().flatten().step_by(step).flat_map(|(x, y)| [rounded(*x, 6), rounded(*y, 4)]).collect();
        Self { name: &track.name, ink: track.ink.name(), line: track.width > 0, at }
    }
}

/// Opens the group of what moves when a chart is zoomed; its two points are the corners of the chart.
struct Open<'a> {
    corners: [(f64, f64); 2],
    units: Units,
    tracks: &'a [Track],
    sections: &'a [[String; 2]],
}

impl<'a> PointCollection<'a, (f64, f64)> for &'a Open<'_> {
    type Point = &'a (f64, f64);
    type IntoIter = &'a [(f64, f64)];

    fn point_iter(self) -> &'a [(f64, f64)] {
        &self.corners
    }
}

impl Drawable<Canvas<'_>> for Open<'_> {
    fn draw<I: Iterator<Item = Point>>(
        &self,
        mut points: I,
        canvas: &mut Canvas,
        _: (u32, u32),
    ) -> Result<(), DrawingErrorKind<PaintError>> {
        let (Some(upper), Some(lower), true) = (points.next(), points.next(), canvas.is_live()) else { return Ok(()) };
        let [(from, high), (to, low)] = self.corners;
        let ramp = if self.sections.is_empty() { Vec::new() } else { theme::ramp() };
        let live = Live {
            units: self.units,
            from,
            to,
            low,
            high,
            rect: [upper.0, upper.1, lower.0, lower.1],
            tracks: self.tracks.iter().map(LiveTrack::of).collect(),
            sections: self.sections,
            ramp,
        };
        let json = serde_json::to_string(&live)
            .map_err(|error| DrawingErrorKind::DrawingError(PaintError(error.to_string())))?;
        canvas.insert(format!("<g class=\"plot\" data-plot=\"{}\">\n", escaped(&json)))
    }
}

/// A text as the value of an attribute.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Opens or closes another group, for pages.
pub(super) struct Group {
    pub svg: &'static str,
}

impl<'a> PointCollection<'a, (f64, f64)> for &'a Group {
    type Point = &'a (f64, f64);
    type IntoIter = &'a [(f64, f64)];

    fn point_iter(self) -> &'a [(f64, f64)] {
        &[]
    }
}

impl Drawable<Canvas<'_>> for Group {
    fn draw<I: Iterator<Item = Point>>(
        &self,
        _: I,
        canvas: &mut Canvas,
        _: (u32, u32),
    ) -> Result<(), DrawingErrorKind<PaintError>> {
        if canvas.is_live() { canvas.insert(self.svg.to_owned()) } else { Ok(()) }
    }
}

impl Plot<'_, '_> {
    /// Draws what a page's script may read and zoom.
    pub(crate) fn live(
        &mut self,
        units: Units,
        (tracks, sections): (&[Track], &[[String; 2]]),
        draw: impl FnOnce(&mut Self) -> Drawn,
    ) -> Drawn {
        let (x, y) = (self.chart.x_range(), self.chart.y_range());
        self.element(Open { corners: [(x.start, y.end), (x.end, y.start)], units, tracks, sections })?;
        draw(self)?;
        self.element(Group { svg: "</g>\n" })
    }

    /// Draws lines.
    pub(crate) fn tracks(&mut self, tracks: &[Track]) -> Drawn {
        for track in tracks.iter().filter(|track| track.width > 0) {
            for run in track.runs.iter().filter(|run| !run.is_empty()) {
                let points = if track.has_at_most(SPARSE) { steps(run, track.holds) } else { run.clone() };
                if track.dashed {
                    self.dashed(points, track.ink, track.width)?;
                } else {
                    self.line(points, track.ink, track.width)?;
                }
                if track.has_at_most(MARKED) {
                    self.marks(run, track)?;
                }
            }
        }
        Ok(())
    }

    /// A mark at each reading: round, or a triangle on dashed lines.
    fn marks(&mut self, run: &[(f64, f64)], track: &Track) -> Drawn {
        if !track.dashed {
            return self.dots(run.iter().copied(), track.ink, px(2));
        }
        let style = track.ink.rgb().filled();
        self.chart.draw_series(run.iter().map(|point| TriangleMarker::new(*point, px(3), style)))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_readings_are_steps_from_where_they_hold() {
        let run = [(0.0, 1.0), (10.0, 5.0)];
        assert_eq!(steps(&run, Holds::After), [(0.0, 1.0), (10.0, 1.0), (10.0, 5.0)]);
        assert_eq!(steps(&run, Holds::Before), [(0.0, 1.0), (0.0, 5.0), (10.0, 5.0)]);
        assert_eq!(steps(&run, Holds::Between), run);
        let (x, layers) = stepped(&[0.0, 10.0], vec![(Ink::Anon, vec![1.0, 5.0])]);
        assert_eq!((x, layers[0].1.clone()), (vec![0.0, 10.0, 10.0], vec![1.0, 1.0, 5.0]));
    }

    #[test]
    fn a_pause_breaks_a_line() {
        assert_eq!(unbroken(&[0.0, 1.0, 2.0, 100.0, 101.0]), [0..3, 3..5]);
        assert_eq!(unbroken(&[7.0]).len(), 1);
    }

    #[test]
    fn what_a_page_reads_is_short_and_stays_text() {
        assert_eq!(
            (rounded(123_456_789.0, 4), rounded(0.0, 4), rounded(-0.012_345, 3)),
            (123_500_000.0, 0.0, -0.012_3)
        );
        assert_eq!(escaped("<\"&>"), "&lt;&quot;&amp;&gt;");
        let run = (0..10_000).map(|at| (f64::from(at), 1.0)).collect();
        assert!(LiveTrack::of(&Track::new("long", Ink::Anon, 4, run)).at.len() <= 2 * READ);
    }
}
