//! What programs that ran together asked for and had, over time (as the figures of Jiang and Zhang, 2001).

use super::draw::axis::{Frame, MARKS, byte_ticks, time_ticks};
use super::draw::{Anchor, Ink, Page, Scene};

/// One program.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Seconds since they began, and bytes: demand, resident.
    pub points: Vec<[f64; 3]>,
}

/// Colours of the programs, in their order.
const INKS: [Ink; 5] = [Ink::Anon, Ink::Need, Ink::Window30, Ink::Window120, Ink::File];

/// The programs' lines: thick what is resident, thin what was asked for.
pub(super) fn scene(page: Page, title: &str, lines: &[Line]) -> Scene {
    let mut scene = Scene::new(page, format!("{title}: demand and resident memory of each program over time."));
    scene.bold((0.0, 8.0), title, Ink::Text, Anchor::Start);
    let ink = |at: usize| INKS[at % INKS.len()];
    let key: Vec<(Ink, &str)> = lines.iter().enumerate().map(|(at, line)| (ink(at), line.name.as_str())).collect();
    let top = 18.0 + scene.key((0.0, 18.0), scene.width, &key);
    let all = || lines.iter().flat_map(|line| &line.points);
    let end = all().map(|point| point[0]).fold(1e-3, f64::max);
    let most = all().map(|point| point[1].max(point[2])).fold(4096.0, f64::max) * 1.05;
    let frame = Frame::on(page, top + 4.0, 170.0, (0.0, end), most);
    frame.rules(&mut scene, &byte_ticks(most, 4));
    frame.marks(&mut scene, &time_ticks(end, if page == Page::Wide { 10 } else { 5 }));
    for (at, line) in lines.iter().enumerate() {
        for (which, width) in [(1, 0.8), (2, 2.0)] {
            let points = line.points.iter().map(|point| frame.at(point[0], point[which])).collect();
            scene.line(points, ink(at), width);
        }
    }
    scene.height = frame.bottom() + MARKS;
    scene
}
