//! The working set: how much is touched within each window, as a distribution over the run.

use std::io::{self, Write};

use lowtide_model::WINDOWS_S;
use lowtide_model::stats::quantile;
use lowtide_model::usage::Usage;
use serde::Serialize;

use super::draw::{Axis, Figure, Ink, Layout, Page, Plot, Track, Units, key, px};
use super::text::{Grid, bytes, figure};
use super::wss::Wss;
use super::{Convention, DRAWN, Missing, Report, View, pretty};

pub(super) const VIEW: View = View {
    name: "workingset",
    help: "How much is touched within 1 s to 2 min",
    title: "Working set",
    meaning: "The working set is the memory accessed within a window of time, here of 1 s to 2 min. A curve at 95 % is the \
              memory that sufficed 95 % of the time. Bands: 95 % intervals of one reading.",
    formats: DRAWN,
    damo: true,
    optional: false,
    make: |data, options| {
        if options.rule == Convention::Damo {
            return Ok(Box::new(Wss::of(data, options)?));
        }
        let view = WorkingSet::of(data.ticks());
        if view.windows.is_empty() {
            return Err(Missing::Unmeasured("working set"));
        }
        Ok(Box::new(view))
    },
};

/// A distribution is drawn from so many readings on.
const FEWEST: usize = 8;

/// Percentiles shown.
const PERCENTS: [f64; 9] = [0.0, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0];

/// One percentile of a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct At {
    percent: f64,
    bytes: f64,
    low_bytes: f64,
    high_bytes: f64,
}

/// The distribution of one window.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Window {
    window_s: u32,
    ticks: usize,
    percentiles: Vec<At>,
}

/// The view.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct WorkingSet {
    windows: Vec<Window>,
}

impl WorkingSet {
    fn of(ticks: &[Usage]) -> Self {
        Self { windows: WINDOWS_S.iter().filter_map(|window| Window::of(ticks, *window)).collect() }
    }
}

impl Window {
    fn of(ticks: &[Usage], window_s: u32) -> Option<Self> {
        let sets: Vec<_> = ticks.iter().filter_map(|tick| tick.working_set(window_s)).collect();
        let all = |value: fn(f64, f64) -> f64| sets.iter().map(|set| value(set.bytes, set.ci95)).collect::<Vec<f64>>();
        let (middle, low, high) =
            (all(|bytes, _| bytes), all(|bytes, ci| (bytes - ci).max(0.0)), all(|bytes, ci| bytes + ci));
        let percentiles: Option<Vec<At>> = PERCENTS
            .iter()
            .map(|&percent| {
                let q = percent / 100.0;
                Some(At {
                    percent,
                    bytes: quantile(&middle, q)?,
                    low_bytes: quantile(&low, q)?,
                    high_bytes: quantile(&high, q)?,
                })
            })
            .collect();
        Some(Self { window_s, ticks: sets.len(), percentiles: percentiles? })
    }

    /// Half of the interval's width at the median, in percent of it.
    fn width_percent(&self) -> Option<f64> {
        let median = self.percentiles.iter().find(|at| at.percent >= 50.0)?;
        (median.bytes > 0.0).then(|| 50.0 * (median.high_bytes - median.low_bytes) / median.bytes)
    }

    fn is_drawn(&self) -> bool {
        self.ticks >= FEWEST
    }

    fn ink(&self) -> Ink {
        match self.window_s {
            1 => Ink::Window1,
            5 => Ink::Window5,
            10 => Ink::Need,
            30 => Ink::Window30,
            60 => Ink::Window60,
            _ => Ink::Window120,
        }
    }
}

impl Report for WorkingSet {
    fn lead(&self) -> String {
        let most = self.windows.iter().map(|window| window.ticks).max().unwrap_or(0);
        if most >= FEWEST {
            return String::new();
        }
        let readings = if most == 1 { "is one reading".to_owned() } else { format!("are at most {most} readings") };
        format!("There {readings} of a window, too few to draw a distribution.")
    }

    fn grids(&self) -> Vec<Grid> {
        let mut grid = Grid::new("Touched within a window, by share of the time it sufficed", &["share"]);
        grid.head.extend(self.windows.iter().map(|window| format!("{} s", window.window_s)));
        for (at, percent) in PERCENTS.iter().enumerate() {
            // Of a few readings only the least and the most are known.
            let ends = [0, PERCENTS.len() - 1].contains(&at);
            let shown = |of: &Window| of.percentiles.get(at).filter(|_| of.is_drawn() || ends).map(|at| at.bytes);
            if !ends && !self.windows.iter().any(Window::is_drawn) {
                continue;
            }
            let cells = self.windows.iter().map(|window| bytes(shown(window)));
            grid.row([format!("{percent:.0} %")].into_iter().chain(cells));
        }
        let widths = self.windows.iter().map(|window| figure(window.width_percent(), 0, " %"));
        grid.row(["± at 50 %".to_owned()].into_iter().chain(widths));
        let readings = self.windows.iter().map(|window| window.ticks.to_string());
        grid.row(["readings".to_owned()].into_iter().chain(readings));
        vec![grid]
    }

    fn figures(&self, page: Page) -> Vec<Figure<'_>> {
        let drawn: Vec<&Window> = self.windows.iter().filter(|window| window.is_drawn()).collect();
        if drawn.is_empty() {
            return Vec::new();
        }
        let max = drawn.iter().flat_map(|w| &w.percentiles).map(|at| at.high_bytes).fold(1.0, f64::max) * 1.04;
        let marks = [0.0, 5.0, 25.0, 50.0, 75.0, 95.0].map(|percent| (percent, format!("{percent:.0}")));
        let (x, y) = (Axis::new(0.0, 100.0, marks), Axis::bytes(max, 5));
        let layout = Layout {
            bottom: px(44),
            x_name: page.of("share of time for which the memory suffices, %", "share of time it suffices, %"),
            ..Layout::default()
        };
        vec![Figure::new(page, px(330), "Percentiles of the working set for windows of 1 s to 120 s.", move |area| {
            let names: Vec<String> = drawn.iter().map(|window| format!("{} s", window.window_s)).collect();
            let items: Vec<(Ink, &str)> =
                drawn.iter().map(|window| window.ink()).zip(names.iter().map(String::as_str)).collect();
            let rest = key(area, &items)?;
            let mut plot = Plot::new(&rest, [&x, &y], layout)?;
            let edge = |window: &Window, value: fn(&At) -> f64| {
                window.percentiles.iter().map(|at| (at.percent, value(at))).collect::<Vec<_>>()
            };
            let track = |(window, name): (&&Window, &String)| {
                let width = if window.ink() == Ink::Need { 10 } else { 7 };
                Track::new(name, window.ink(), width, edge(window, |at| at.bytes))
            };
            let tracks: Vec<Track> = drawn.iter().zip(&names).map(track).collect();
            plot.live(Units { x: "%", y: "B" }, (&tracks, &[]), |plot| {
                for window in &drawn {
                    let (low, high) = (edge(window, |at| at.low_bytes), edge(window, |at| at.high_bytes));
                    plot.band(low, high, (window.ink(), 0.13))?;
                }
                plot.tracks(&tracks)
            })
        })]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        pretty(self, out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["window_s", "percent", "bytes", "low_bytes", "high_bytes"])?;
        for window in &self.windows {
            for at in &window.percentiles {
                let figures = [at.percent, at.bytes.round(), at.low_bytes.round(), at.high_bytes.round()];
                csv.write_record([window.window_s.to_string()].into_iter().chain(figures.map(|f| f.to_string())))?;
            }
        }
        csv.flush()
    }
}
