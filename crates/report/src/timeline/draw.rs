//! Drawing the timeline: memory above, thin charts of faults and stalls below, all over the same time.

use super::super::draw::axis::{Frame, MARKS, byte_ticks, count_ticks, time_ticks};
use super::super::draw::{Anchor, Ink, Page, Point, Scene};
use super::{Get, Moment, highest, highest_bytes};

/// Heights in drawing units.
const MEMORY: f64 = 280.0;
const THIN: f64 = 54.0;

/// A thin chart: its name and its lines with their names.
struct Thin {
    name: &'static str,
    unit: &'static str,
    lines: &'static [(Get, Ink, &'static str)],
}

const THINS: [Thin; 3] = [
    Thin { name: "Minor faults a second", unit: "", lines: &[(|m| m.minor, Ink::Anon, "minor")] },
    Thin {
        name: "Major faults and refaults a second",
        unit: "",
        lines: &[(|m| m.refaults, Ink::Window30, "refaults"), (|m| m.major, Ink::Age0, "major")],
    },
    Thin {
        name: "Stalled, % of the time",
        unit: " %",
        lines: &[
            (|m| m.io_wait, Ink::Muted, "I/O wait (system)"),
            (|m| m.io_some, Ink::Window60, "I/O, some"),
            (|m| m.memory_some, Ink::Window1, "memory, some"),
            (|m| m.memory_full, Ink::Age0, "memory, all"),
        ],
    },
];

/// The drawing.
pub(super) fn scenes(all: &[Moment], window_s: u32, page: Page) -> Vec<Scene> {
    let points = thin_out(all, if page == Page::Wide { 400 } else { 160 });
    let mut scene = Scene::new(
        page,
        "Memory held by type, resident memory, demand and working set over time; faults and stalls below.",
    );
    let end = points.last().map_or(1.0, |point| point.t_s).max(1e-3);
    let ticks = time_ticks(end, if page == Page::Wide { 10 } else { 5 });
    let mut top = 6.0;
    if page == Page::Narrow {
        let items = areas(&points)
            .into_iter()
            .chain(lines(&points, window_s))
            .map(|(_, ink, name)| (ink, name))
            .collect::<Vec<_>>();
        top += scene.key((2.0, 0.0), scene.width, &items);
    }
    let max = highest_bytes(&points).max(1.0) * 1.04;
    let frame = Frame::on(page, top, if page == Page::Wide { MEMORY } else { 220.0 }, (0.0, end), max);
    memory(&mut scene, &frame, (&points, window_s), page);
    frame.marks(&mut scene, &ticks);
    scene.height = frame.bottom() + MARKS;
    let mut last = None;
    for thin in &THINS {
        let measured: Vec<_> =
            thin.lines.iter().filter(|(get, _, _)| points.iter().any(|m| get(m).is_some())).collect();
        if measured.is_empty() {
            continue;
        }
        let top = scene.height + 14.0;
        scene.bold((0.0, top), thin.name, Ink::Text, Anchor::Start);
        let mut top = top + 16.0;
        if page == Page::Narrow && measured.len() > 1 {
            let items: Vec<(Ink, &str)> = measured.iter().map(|(_, ink, name)| (*ink, *name)).collect();
            top += scene.key((2.0, top - 8.0), scene.width, &items) - 4.0;
        }
        // A chart of nothing still has a scale.
        let max = measured.iter().map(|(get, _, _)| highest(&points, get)).fold(0.0, f64::max).max(0.5) * 1.05;
        let frame = Frame::on(page, top, THIN, (0.0, end), max);
        let rules: Vec<_> = count_ticks(max, 2).into_iter().map(|(at, label)| (at, label + thin.unit)).collect();
        frame.rules(&mut scene, &rules);
        let mut labels = Vec::new();
        for (get, ink, name) in measured {
            for run in runs(&frame, &points, get) {
                labels.retain(|(_, _, known): &(f64, Ink, String)| known != name);
                labels.push((run.last().map_or(0.0, |point| point.1), *ink, (*name).to_owned()));
                scene.line(run, *ink, 1.5);
            }
        }
        if page == Page::Wide && labels.len() > 1 {
            scene.end_labels(frame.right() + 10.0, (frame.top - 12.0, frame.bottom() + 12.0), labels);
        }
        scene.height = frame.bottom() + 8.0;
        last = Some(frame);
    }
    // One time axis under all thin charts is enough.
    if let Some(frame) = last {
        frame.marks(&mut scene, &ticks);
        scene.height = frame.bottom() + MARKS;
    }
    vec![scene]
}

/// Areas that were measured, from below.
fn areas(points: &[Moment]) -> Vec<(Get, Ink, &'static str)> {
    let all: [(Get, Ink, &str); 3] =
        [(|m| m.anon, Ink::Anon, "anonymous"), (|m| m.file, Ink::File, "file"), (|m| m.kernel, Ink::Kernel, "kernel")];
    all.into_iter().filter(|(get, _, _)| highest(points, get) > 0.0).collect()
}

/// Lines that were measured and say something of their own.
fn lines(points: &[Moment], window_s: u32) -> Vec<(Get, Ink, &'static str)> {
    let touched = match window_s {
        1 => "touched in 1 s",
        5 => "touched in 5 s",
        _ => "touched in 10 s",
    };
    let swapped = points.iter().any(|m| m.demand.zip(m.rss).is_some_and(|(demand, rss)| demand > 1.001 * rss));
    let all: [(Get, Ink, &str); 3] = [
        (|m| m.demand, Ink::Demand, "demand"),
        (|m| m.rss, Ink::Resident, "resident"),
        (|m| m.need, Ink::Need, touched),
    ];
    all.into_iter().filter(|(get, ink, _)| highest(points, get) > 0.0 && (swapped || *ink != Ink::Demand)).collect()
}

fn memory(scene: &mut Scene, frame: &Frame, (points, window_s): (&[Moment], u32), page: Page) {
    let mut labels = Vec::new();
    let mut below: Vec<f64> = vec![0.0; points.len()];
    for (get, ink, name) in areas(points) {
        let above: Vec<f64> =
            points.iter().zip(&below).map(|(point, below)| below + get(point).unwrap_or(0.0)).collect();
        let edge = |values: &[f64]| points.iter().zip(values).map(|(m, v)| frame.at(m.t_s, *v)).collect::<Vec<Point>>();
        let (upper, lower) = (edge(&above), edge(&below));
        if let (Some(high), Some(low)) = (upper.last(), lower.last()) {
            labels.push(((high.1 + low.1) / 2.0, ink, name.to_owned()));
        }
        scene.area(upper.into_iter().chain(lower.into_iter().rev()).collect(), ink, 0.62);
        below = above;
    }
    // Over the areas, so that heights can be read off.
    frame.rules(scene, &byte_ticks(frame.y.1, 5));
    let band: Vec<(&Moment, f64, f64)> =
        points.iter().filter_map(|m| Some((m, m.need? - m.need_ci95?, m.need? + m.need_ci95?))).collect();
    let upper = band.iter().map(|(m, _, high)| frame.at(m.t_s, *high));
    let lower = band.iter().rev().map(|(m, low, _)| frame.at(m.t_s, low.max(0.0)));
    scene.area(upper.chain(lower).collect(), Ink::Need, 0.22);
    for (get, ink, name) in lines(points, window_s) {
        let runs = runs(frame, points, &get);
        if let Some(end) = runs.last().and_then(|run| run.last()) {
            labels.push((end.1, ink, name.to_owned()));
        }
        for run in runs {
            match ink {
                Ink::Demand => scene.dashed(&run, ink, 1.6),
                Ink::Need => scene.line(run, ink, 2.4),
                _ => scene.line(run, ink, 1.6),
            }
        }
    }
    if page == Page::Wide {
        scene.end_labels(frame.right() + 10.0, (frame.top, frame.bottom()), labels);
    }
}

/// The stretches in which a figure was measured.
fn runs(frame: &Frame, points: &[Moment], get: &Get) -> Vec<Vec<Point>> {
    points
        .chunk_by(|a, b| get(a).is_some() == get(b).is_some())
        .map(|chunk| chunk.iter().filter_map(|m| Some(frame.at(m.t_s, get(m)?))).collect::<Vec<Point>>())
        .filter(|run| !run.is_empty())
        .collect()
}

/// At most `count` moments. Of neighbours the one with the most memory stays, so that no peak is lost, and takes
/// their highest rates.
fn thin_out(points: &[Moment], count: usize) -> Vec<Moment> {
    let step = points.len().div_ceil(count).max(1);
    let size = |m: &Moment| m.demand.or(m.rss).or(m.anon).unwrap_or(0.0);
    let merge = |chunk: &[Moment]| {
        let mut kept = chunk.iter().copied().max_by(|a, b| size(a).total_cmp(&size(b)))?;
        let top = |get: Get| chunk.iter().filter_map(get).reduce(f64::max);
        (kept.minor, kept.major, kept.refaults) = (top(|m| m.minor), top(|m| m.major), top(|m| m.refaults));
        (kept.memory_some, kept.memory_full) = (top(|m| m.memory_some), top(|m| m.memory_full));
        (kept.io_some, kept.io_wait) = (top(|m| m.io_some), top(|m| m.io_wait));
        if kept.need.is_none()
            && let Some(other) = chunk.iter().find(|m| m.need.is_some())
        {
            (kept.need, kept.need_ci95) = (other.need, other.need_ci95);
        }
        Some(kept)
    };
    points.chunks(step).filter_map(merge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_peaks() {
        let points: Vec<Moment> = (0..1000)
            .map(|n| Moment {
                t_s: f64::from(n),
                rss: Some(if n == 777 { 99.0 } else { 1.0 }),
                major: Some(if n == 778 { 50.0 } else { 0.0 }),
                ..Moment::default()
            })
            .collect();
        let thin = thin_out(&points, 100);
        assert_eq!(thin.len(), 100);
        assert_eq!((highest(&thin, |m| m.rss), highest(&thin, |m| m.major)), (99.0, 50.0));
    }
}
