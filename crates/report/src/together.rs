//! What programs that ran together asked for and had, over time (as the figures of Jiang and Zhang, 2001).

use super::draw::{Axis, Figure, Page, Track, Units, lines};

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
    let tracks = programs.iter().enumerate().flat_map(|(at, line)| {
        let run = |column: usize| line.points.iter().map(|point| (point[0], point[column])).collect();
        let demand = Track::nth(at, &format!("{}, demand", line.name), 3, run(1));
        [demand, Track::nth(at, &format!("{}, resident", line.name), 8, run(2))]
    });
    lines(page, (title, axes[0].time_name()), (axes, Units { x: "s", y: "B" }), tracks.collect())
}
