//! Drawing the timeline: memory above, thin charts of faults and stalls below, all over the same time.

use super::super::draw::axis::short_count;
use super::super::draw::{
    Area, Axis, Drawn, Figure, Holds, Ink, Layout, Page, Plot, Track, Units, heading, keys, px, stepped, steps,
    unbroken,
};
use super::{Get, Moment, highest, highest_bytes};

/// Heights of the charts with their headings.
const MEMORY: i32 = px(330);
const THIN: i32 = px(92);
const KEY: i32 = px(26);
/// Between a chart without labels below it and the next one's heading.
const GAP: i32 = px(8);
/// Height of the labels of the time axis, which only the lowest thin chart has.
const TIMES: i32 = px(44);

/// Readings of the working set are marked if there are at most so many.
const MARKED: usize = 40;

/// A figure of each moment, its colour and its name.
type Series = (Get, Ink, &'static str);

/// A thin chart: its name and its lines with their names.
struct Thin {
    name: &'static str,
    unit: &'static str,
    lines: &'static [Series],
}

const THINS: [Thin; 3] = [
    Thin { name: "Minor faults per second", unit: "", lines: &[(|m| m.minor, Ink::Anon, "minor")] },
    Thin {
        name: "Major faults and refaults per second",
        unit: "",
        lines: &[(|m| m.refaults, Ink::Line0, "refaults"), (|m| m.major, Ink::Line1, "major")],
    },
    Thin {
        name: "Time stalled, %",
        unit: " %",
        lines: &[
            (|m| m.io_wait, Ink::Muted, "I/O wait (system)"),
            (|m| m.io_some, Ink::Line0, "I/O, some"),
            (|m| m.memory_some, Ink::Line5, "memory, some"),
            (|m| m.memory_full, Ink::Line1, "memory, all"),
        ],
    },
];

/// The drawing.
pub(super) fn figures(all: &[Moment], window_s: u32, page: Page) -> Vec<Figure<'static>> {
    let points = thin_out(all, page.of(400, 160));
    let end = points.last().map_or(1.0, |point| point.t_s).max(1e-3);
    let time = Axis::time(0.0, end, page.of(10, 5));
    let measured = |series: &&Series| points.iter().any(|point| series.0(point).is_some());
    let thins: Vec<(&Thin, Vec<&Series>)> = THINS
        .iter()
        .map(|thin| (thin, thin.lines.iter().filter(measured).collect()))
        .filter(|(_, lines): &(_, Vec<_>)| !lines.is_empty())
        .collect();
    // A phone has room for two names on a line.
    let height = move |lines: &[&Series]| match lines.len() {
        0 | 1 => THIN,
        2 => THIN + KEY,
        _ => THIN + KEY + page.of(0, px(18)),
    };
    let thin_height = thins.iter().map(|(_, lines)| height(lines) + GAP).sum::<i32>();
    let label = "Memory held by type, resident memory, demand and working set over time; faults and stalls below.";
    vec![Figure::new(page, MEMORY + thin_height + TIMES, label, move |area| {
        let (above, mut rest) = area.split_vertically(MEMORY);
        let bottom = if thins.is_empty() { TIMES } else { px(26) };
        memory(&above, &points, window_s, (&time, bottom))?;
        for (at, (thin, lines)) in thins.iter().enumerate() {
            let last = at + 1 == thins.len();
            let bottom = if last { TIMES } else { 0 };
            let (own, below) = rest.split_vertically(height(lines) + bottom);
            thin_chart(&own, &points, (thin, lines), (&time, bottom))?;
            rest = below.split_vertically(GAP).1;
        }
        Ok(())
    })]
}

fn thin_chart(
    area: &Area,
    points: &[Moment],
    (thin, lines): (&Thin, &[&Series]),
    (time, bottom): (&Axis, i32),
) -> Drawn {
    let mut rest = heading(area, thin.name)?;
    if lines.len() > 1 {
        rest = keys(&rest, lines.iter().map(|(_, ink, name)| (*ink, *name, false)))?;
    }
    // A chart of nothing still has a scale.
    let max = lines.iter().map(|(get, ..)| highest(points, get)).fold(0.0, f64::max).max(0.5) * 1.05;
    let y = Axis::numbers(0.0, max, 3, |value| short_count(value) + thin.unit);
    let x_name = if bottom > 0 { time.time_name() } else { "" };
    let mut plot = Plot::new(&rest, [time, &y], Layout { bottom, x_name, ..Layout::default() })?;
    let track = |series: &&Series| Track { holds: Holds::Before, ..track(points, series, 6) };
    let tracks: Vec<Track> = lines.iter().map(track).collect();
    let unit = if thin.unit.is_empty() { "/s" } else { "%" };
    plot.live(Units { x: "s", y: unit }, (&tracks, &[]), |plot| plot.tracks(&tracks))
}

/// The line of a figure of each moment.
fn track(points: &[Moment], (get, ink, name): &Series, width: u32) -> Track {
    Track { runs: runs(points, get), holds: Holds::After, ..Track::new(name, *ink, width, Vec::new()) }
}

/// Areas that were measured, from below.
fn areas(points: &[Moment]) -> Vec<Series> {
    let all: [Series; 3] =
        [(|m| m.anon, Ink::Anon, "anonymous"), (|m| m.file, Ink::File, "file"), (|m| m.kernel, Ink::Kernel, "kernel")];
    all.into_iter().filter(|(get, _, _)| highest(points, get) > 0.0).collect()
}

/// Lines that were measured and say something of their own.
fn lines(points: &[Moment], window_s: u32) -> Vec<Series> {
    let used = match window_s {
        1 => "working set, 1 s",
        5 => "working set, 5 s",
        _ => "working set, 10 s",
    };
    let swapped = points.iter().any(|m| m.demand.zip(m.rss).is_some_and(|(demand, rss)| demand > 1.001 * rss));
    let all: [Series; 3] =
        [(|m| m.demand, Ink::Demand, "demand"), (|m| m.rss, Ink::Resident, "resident"), (|m| m.need, Ink::Need, used)];
    all.into_iter().filter(|(get, ink, _)| highest(points, get) > 0.0 && (swapped || *ink != Ink::Demand)).collect()
}

fn memory(area: &Area, points: &[Moment], window_s: u32, (time, bottom): (&Axis, i32)) -> Drawn {
    let (areas, lines) = (areas(points), lines(points, window_s));
    let dashed = |ink: Ink| ink == Ink::Demand;
    let rest = keys(area, areas.iter().chain(&lines).map(|(_, ink, name)| (*ink, *name, dashed(*ink))))?;
    let bytes = Axis::bytes(highest_bytes(points).max(1.0) * 1.04, 5);
    let x_name = if bottom == TIMES { time.time_name() } else { "" };
    let mut plot = Plot::new(&rest, [time, &bytes], Layout { bottom, x_name, ..Layout::default() })?;
    // Readings of the working set are spread over their windows, and drawn below.
    let width = |ink: Ink| if ink == Ink::Need { 0 } else { 6 };
    let held = lines.iter().map(|line| Track { dashed: dashed(line.1), ..track(points, line, width(line.1)) });
    let read = areas.iter().map(|area| track(points, area, 0));
    let tracks: Vec<Track> = held.chain(read).collect();
    plot.live(Units { x: "s", y: "B" }, (&tracks, &[]), |plot| {
        for points in stretches(points) {
            let times: Vec<f64> = points.iter().map(|point| point.t_s).collect();
            let heights = |get: &Get| points.iter().map(|point| get(point).unwrap_or(0.0)).collect();
            let layers = areas.iter().map(|(get, ink, _)| (*ink, heights(get))).collect();
            let (times, layers) = stepped(&times, layers);
            plot.stacked(&times, &layers, 0.62)?;
        }
        // Over the areas, so that heights can be read off.
        plot.rules(&bytes)?;
        plot.tracks(&tracks)?;
        working_set(plot, points)
    })
}

/// The line of the working set with its interval. A dot where a reading ends, if they are few.
fn working_set(plot: &mut Plot, points: &[Moment]) -> Drawn {
    let [low, high]: [Get; 2] = [|m| Some((m.need? - m.need_ci95?).max(0.0)), |m| Some(m.need? + m.need_ci95?)];
    for (low, high) in runs(points, &low).into_iter().zip(runs(points, &high)) {
        plot.band(steps(&high, Holds::Before), steps(&low, Holds::Before), (Ink::Need, 0.22))?;
    }
    let need: Get = |m| m.need;
    let runs = runs(points, &need);
    let ends = |run: &Vec<(f64, f64)>| {
        let readings = run.chunk_by(|a, b| a.1.to_bits() == b.1.to_bits());
        readings.filter_map(|same| same.last().copied()).collect::<Vec<_>>()
    };
    let readings: Vec<(f64, f64)> = runs.iter().flat_map(ends).collect();
    for run in &runs {
        plot.line(steps(run, Holds::Before), Ink::Need, 10)?;
    }
    plot.dots(readings.iter().copied().filter(|_| readings.len() <= MARKED), Ink::Need, px(3))
}

/// The moments between pauses of the recording.
fn stretches(points: &[Moment]) -> impl Iterator<Item = &[Moment]> {
    let times: Vec<f64> = points.iter().map(|point| point.t_s).collect();
    unbroken(&times).into_iter().map(|range| &points[range])
}

/// The stretches in which a figure was measured.
fn runs(points: &[Moment], get: &Get) -> Vec<Vec<(f64, f64)>> {
    stretches(points)
        .flat_map(|points| points.chunk_by(|a, b| get(a).is_some() == get(b).is_some()))
        .map(|chunk| chunk.iter().filter_map(|m| Some((m.t_s, get(m)?))).collect::<Vec<_>>())
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
