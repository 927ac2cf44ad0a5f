//! What programs that ran together asked for and had, over time (as the figures of Jiang and Zhang, 2001).

use super::draw::{Axis, Figure, Page, line_ink, lines};

/// One program.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Seconds since they began, and bytes: demand, resident.
    pub points: Vec<[f64; 3]>,
}

/// A thin line is what a program asked for, a thick one what was resident.
pub(super) fn figure<'a>(page: Page, title: &'a str, programs: &'a [Line]) -> Figure<'a> {
    let points = || programs.iter().flat_map(|line| &line.points);
    let end = points().map(|point| point[0]).fold(1e-3, f64::max);
    let most = points().map(|point| point[1].max(point[2])).fold(4096.0, f64::max) * 1.05;
    let axes = [Axis::time(0.0, end, page.of(10, 5)), Axis::bytes(most, 4)];
    let names = programs.iter().enumerate().map(|(at, line)| (line_ink(at), line.name.as_str())).collect();
    lines(page, (title, names), axes, move |plot| {
        for (at, line) in programs.iter().enumerate() {
            for (column, width) in [(1, 3), (2, 8)] {
                let points = line.points.iter().map(|point| (point[0], point[column])).collect();
                plot.line(points, line_ink(at), width)?;
            }
        }
        Ok(())
    })
}
