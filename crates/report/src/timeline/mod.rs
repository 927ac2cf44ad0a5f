//! The timeline: memory, faults and stalls over time.

mod draw;
mod turns;

use std::io::{self, Write};

use lowtide_model::usage::{FIELDS, Unit, Usage};
use serde_json::{Map, Value};

use super::draw::axis::clock;
use super::draw::{Figure, Page};
use super::spark::{self, Layer};
use super::text::{Grid, Terminal, bytes};
use super::{DRAWN, Missing, Report, View};
use turns::Turns;

pub(super) const VIEW: View = View {
    name: "timeline",
    help: "Memory, faults and stalls over time",
    title: "Memory over time",
    meaning: "Areas: memory held, by type. Dark line: resident memory (RSS). Dashed line: demand, which is resident plus \
              swapped-out memory. Crimson line: the working set, memory accessed within a window of time; each reading is \
              drawn over its window, with its 95 % interval where known. Memory far above the crimson line is held but not \
              used. Of a guard: which workloads ran, were protected and waited.",
    formats: DRAWN,
    damo: false,
    optional: false,
    make: |data, _| {
        if data.ticks().is_empty() {
            return Err(Missing::Other("this record has no ticks: it ended before the first was written".to_owned()));
        }
        let known = |row: &Usage| row.rss_bytes.or(row.anon_bytes).or(row.file_bytes).is_some();
        let window_s = window(data.usage());
        let end_s = data.usage().last().and_then(|row| row.t_s).unwrap_or(0.0);
        let turns = Turns::of(data.record.rows(), || data.record.rows(), end_s);
        let holds = data.usage().iter().any(|row| known(row) || row.working_set(window_s).is_some());
        if !holds && turns.is_none() {
            return Err(Missing::Unmeasured("memory usage"));
        }
        Ok(Box::new(Timeline { rows: data.usage(), points: points(data.usage(), window_s), window_s, holds, turns }))
    },
};

/// The windows of which the first that was read at all is drawn.
const DRAWN_WINDOWS_S: [u32; 3] = [10, 5, 1];

/// What is drawn of one tick. Rates are per second since the tick before, shares in percent of that time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Moment {
    t_s: f64,
    demand: Option<f64>,
    rss: Option<f64>,
    anon: Option<f64>,
    file: Option<f64>,
    kernel: Option<f64>,
    need: Option<f64>,
    need_ci95: Option<f64>,
    minor: Option<f64>,
    major: Option<f64>,
    refaults: Option<f64>,
    memory_some: Option<f64>,
    memory_full: Option<f64>,
    io_some: Option<f64>,
    io_wait: Option<f64>,
}

/// A figure of a tick.
type Get = fn(&Moment) -> Option<f64>;

/// The view.
struct Timeline<'a> {
    rows: &'a [Usage],
    points: Vec<Moment>,
    /// The window of the working set that is drawn, seconds.
    window_s: u32,
    /// Memory of the target was measured. It is not of a guarded machine.
    holds: bool,
    /// Turns, where a guard gave any.
    turns: Option<Turns>,
}

fn window(rows: &[Usage]) -> u32 {
    let read = |window_s: &u32| rows.iter().any(|row| row.working_set(*window_s).is_some());
    DRAWN_WINDOWS_S.into_iter().find(read).unwrap_or(DRAWN_WINDOWS_S[0])
}

/// The ticks after the baseline, as they are drawn. A reading holds for the window before it.
fn points(rows: &[Usage], window_s: u32) -> Vec<Moment> {
    let mut points: Vec<Moment> = rows.windows(2).map(|pair| moment(&pair[0], &pair[1], window_s)).collect();
    let mut reading: Option<Moment> = None;
    for point in points.iter_mut().rev() {
        let covered = |of: &Moment| of.t_s - point.t_s <= f64::from(window_s) + 0.05;
        match reading.filter(covered) {
            _ if point.need.is_some() => reading = Some(*point),
            Some(of) => (point.need, point.need_ci95) = (of.need, of.need_ci95),
            None => {}
        }
    }
    points
}

fn moment(before: &Usage, now: &Usage, window_s: u32) -> Moment {
    let elapsed = now.t_s.zip(before.t_s).map(|(now, before)| now - before).filter(|elapsed| *elapsed > 0.0);
    let rise = |get: fn(&Usage) -> Option<f64>| Some((get(now)? - get(before)?).max(0.0));
    let rate = |get| Some(rise(get)? / elapsed?);
    let percent = |get| rate(get).map(|rate| 100.0 * rate.min(1.0));
    let need = now.working_set(window_s);
    let refaults = match (rate(|row| row.refault_anon), rate(|row| row.refault_file)) {
        (None, None) => None,
        (anon, file) => Some(anon.unwrap_or(0.0) + file.unwrap_or(0.0)),
    };
    let wait = rise(|row| row.system_iowait_s).zip(rise(|row| row.system_cpu_s).filter(|all| *all > 0.0));
    Moment {
        t_s: now.t_s.unwrap_or(0.0),
        demand: now.demand_bytes,
        rss: now.rss_bytes,
        anon: now.anon_bytes,
        file: now.file_bytes,
        kernel: now.kernel_bytes,
        need: need.map(|set| set.bytes),
        need_ci95: need.map(|set| set.ci95),
        minor: rate(|row| row.minor_faults),
        major: rate(|row| row.major_faults),
        refaults,
        memory_some: percent(|row| row.memory_some_s),
        memory_full: percent(|row| row.memory_full_s),
        io_some: percent(|row| row.io_some_s),
        io_wait: wait.map(|(wait, all)| 100.0 * wait / all),
    }
}

/// Highest of a figure, or 0.
fn highest(points: &[Moment], get: impl Fn(&Moment) -> Option<f64>) -> f64 {
    points.iter().filter_map(get).fold(0.0, f64::max)
}

/// Highest of all memory drawn.
fn highest_bytes(points: &[Moment]) -> f64 {
    highest(points, |point| {
        let held = [point.anon, point.file, point.kernel].into_iter().flatten().sum::<f64>();
        [point.demand, point.rss, Some(held)].into_iter().flatten().reduce(f64::max)
    })
}

impl Timeline<'_> {
    fn column(&self, get: Get) -> Vec<Option<f64>> {
        self.points.iter().map(get).collect()
    }

    /// Memory over time, in characters.
    fn memory_chart(&self, width: usize) -> String {
        let height = 12;
        let (need, rss, demand) = (self.column(|m| m.need), self.column(|m| m.rss), self.column(|m| m.demand));
        let max = highest(&self.points, |m| [m.demand, m.rss, m.need].into_iter().flatten().reduce(f64::max));
        let layers = [
            Layer { values: &need, fill: '█' },
            Layer { values: &rss, fill: '▒' },
            Layer { values: &demand, fill: '·' },
        ];
        let mut out = format!("Memory: █ working set {} s  ▒ resident  · swapped out\n", self.window_s);
        let rows = spark::layers(&layers, width, height, max);
        let columns = rows.first().map_or(0, |row| row.chars().count());
        for (at, row) in rows.iter().enumerate() {
            let label = match at {
                0 => bytes(Some(max)),
                _ if at == height / 2 => bytes(Some(max / 2.0)),
                _ => String::new(),
            };
            out += &format!("{label:>MARGIN$} │{}\n", row.trim_end());
        }
        out += &format!("{:>MARGIN$} └{}\n", "0", "─".repeat(columns));
        let (from, to) = (clock(0.0), clock(self.points.last().map_or(0.0, |point| point.t_s)));
        out += &format!("{:MARGIN$}  {from}{to:>w$}\n", "", w = columns.saturating_sub(from.len()));
        out
    }

    /// Faults and stalls, a line each.
    fn lines(&self, width: usize) -> String {
        let lines: [(&str, Get, &str); 5] = [
            ("minor flt/s", |m| m.minor, ""),
            ("major flt/s", |m| m.major, ""),
            ("refaults/s", |m| m.refaults, ""),
            ("mem stall", |m| m.memory_some, " %"),
            ("I/O stall", |m| m.io_some, " %"),
        ];
        let mut out = "\nEach in its own scale; the highest at the right\n".to_owned();
        for (name, get, unit) in lines {
            let (values, max) = (self.column(get), highest(&self.points, get));
            if values.iter().any(Option::is_some) {
                out += &format!(
                    "{name:>MARGIN$}  {:<width$} {}{unit}\n",
                    spark::line(&values, width, max),
                    super::draw::axis::short_count(max)
                );
            }
        }
        out
    }
}

/// Width of the labels left of a chart of characters.
const MARGIN: usize = 12;

impl Report for Timeline<'_> {
    fn chart(&self, terminal: Terminal) -> String {
        let width = terminal.width.saturating_sub(MARGIN + 2).max(10);
        let mut out = if self.holds { self.memory_chart(width) } else { String::new() };
        out += &self.turns.as_ref().map_or_else(String::new, |turns| turns.chart(terminal.width));
        out + &self.lines(width.saturating_sub(10).max(10))
    }

    fn grids(&self) -> Vec<Grid> {
        self.turns.iter().map(Turns::grid).collect()
    }

    fn figures(&self, page: Page) -> Vec<Figure<'_>> {
        let memory = if self.holds { draw::figures(&self.points, self.window_s, page) } else { Vec::new() };
        memory.into_iter().chain(self.turns.iter().map(|turns| turns.figure(page))).collect()
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows: Vec<Map<String, Value>> = self
            .rows
            .iter()
            .map(|row| FIELDS.iter().map(|field| (field.name.to_owned(), Value::from((field.get)(row)))).collect())
            .collect();
        serde_json::to_writer(&mut *out, &rows)?;
        writeln!(out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(FIELDS.iter().map(|field| field.name))?;
        for row in self.rows {
            csv.write_record(FIELDS.iter().map(|field| match ((field.get)(row), field.unit) {
                (None, _) => String::new(),
                (Some(value), Unit::Seconds) => value.to_string(),
                (Some(value), _) => format!("{value:.0}"),
            }))?;
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second_of_the_tick_and_gaps_stay_gaps() {
        let row =
            |t_s, minor, some| Usage { t_s: Some(t_s), minor_faults: minor, memory_some_s: some, ..Usage::default() };
        let points = points(
            &[row(0.0, Some(100.0), Some(0.0)), row(2.0, Some(300.0), Some(0.5)), row(3.0, None, Some(0.5))],
            10,
        );
        assert_eq!((points[0].minor, points[0].memory_some), (Some(100.0), Some(25.0)));
        assert_eq!((points[1].minor, points[1].memory_some), (None, Some(0.0)));
    }

    #[test]
    fn a_sparse_reading_is_drawn_over_its_window() {
        let row = |t_s: u32| Usage {
            t_s: Some(f64::from(t_s)),
            ws_5s_bytes: [12, 32].contains(&t_s).then(|| f64::from(t_s)),
            ..Usage::default()
        };
        let rows: Vec<Usage> = (0..=40).map(row).collect();
        assert_eq!(window(&rows), 5);
        let drawn: Vec<(f64, f64)> =
            points(&rows, 5).iter().filter_map(|point| Some((point.t_s, point.need?))).collect();
        let expected = (7..=12).map(|t_s| (t_s, 12.0)).chain((27..=32).map(|t_s| (t_s, 32.0)));
        assert_eq!(drawn, expected.map(|(t_s, used)| (f64::from(t_s), used)).collect::<Vec<_>>());
    }
}
