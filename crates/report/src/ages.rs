//! Idle ages: bytes by the time since they were last touched, over the run.

use std::io::{self, Write};

use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::{float, integer};
use serde::Serialize;

use super::draw::{Axis, Drawn, Figure, Ink, Layout, Page, Plot, Track, Units, heading, key, px, unbroken};
use super::text::{Grid, bytes, figure};
use super::{DRAWN, Missing, Report, View};
use lowtide_record::AgeRow;

pub(super) const VIEW: View = View {
    name: "ages",
    help: "Bytes by the time since they were last touched",
    title: "Idle ages",
    meaning: "All memory by idle age, the time since its last access. Warm colours: in use. Blue: idle, reclaimable at little \
              cost. Grey: age unknown, as it was not sampled for long enough or often enough.",
    formats: DRAWN,
    damo: false,
    optional: false,
    make: |data, _| {
        let rows = data.ages();
        if rows.is_empty() {
            return Err(Missing::Unmeasured("idle ages"));
        }
        let end_s = data.usage().last().and_then(|row| row.t_s).unwrap_or(0.0);
        Ok(Box::new(Ages { ticks: ticks(rows), rows, end_s }))
    },
};

/// Age classes: lower edge in seconds, name, colour. From the longest-lived at the end.
const CLASSES: [(f64, &str, Ink); 6] = [
    (0.0, "under 1 s", Ink::Age0),
    (1.0, "1 to 10 s", Ink::Age1),
    (10.0, "10 to 30 s", Ink::Age2),
    (30.0, "30 to 60 s", Ink::Age3),
    (60.0, "1 to 2 min", Ink::Age4),
    (120.0, "over 2 min", Ink::Age5),
];

/// The class after the last: idle for longer than it was watched.
const UNKNOWN: usize = CLASSES.len();

/// Bytes of each class and of [`UNKNOWN`].
type Sizes = [f64; CLASSES.len() + 1];

/// One tick.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tick {
    t_s: f64,
    sizes: PerKind<Sizes>,
}

/// The view.
struct Ages<'a> {
    ticks: Vec<Tick>,
    rows: &'a [AgeRow],
    /// Length of the run, seconds.
    end_s: f64,
}

/// Histograms as classes.
fn ticks(rows: &[AgeRow]) -> Vec<Tick> {
    let same_tick = rows.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits());
    same_tick
        .map(|bins| {
            let mut tick = Tick { t_s: bins[0].t_s, sizes: PerKind::default() };
            for row in bins {
                let bin = row.bin;
                let class = CLASSES.iter().rposition(|(from, _, _)| bin.min_s >= *from).unwrap_or(0);
                // A bin that reaches into the next class was not measured finely enough to be put into either.
                let last = bin.max_s.map_or(CLASSES.len() - 1, |max_s| {
                    CLASSES.iter().rposition(|(from, _, _)| *from < max_s).unwrap_or(0)
                });
                let class = if class == last { class } else { UNKNOWN };
                tick.sizes[kind(bin.anon)][class] += bin.size.bytes;
            }
            tick
        })
        .collect()
}

fn kind(anon: bool) -> Kind {
    if anon { Kind::Anon } else { Kind::File }
}

fn class(at: usize) -> (&'static str, Ink) {
    CLASSES.get(at).map_or(("not known", Ink::Kernel), |(_, name, ink)| (name, *ink))
}

/// Readings fewer than this are drawn as columns: what lies between them was not measured.
const FEW: usize = 60;

/// The width of a column in seconds, where readings are few; each ends at its reading.
fn column(times: &[f64], end: f64) -> Option<f64> {
    let gap = times.windows(2).map(|pair| pair[1] - pair[0]).fold(end, f64::min);
    (times.len() < FEW).then(|| (0.8 * gap).min(0.03 * end))
}

fn areas(plot: &mut Plot, times: &[f64], layers: &[(Ink, Vec<f64>)]) -> Drawn {
    unbroken(times).into_iter().try_for_each(|range| {
        let own: Vec<(Ink, Vec<f64>)> =
            layers.iter().map(|(ink, sizes)| (*ink, sizes[range.clone()].to_vec())).collect();
        plot.stacked(&times[range], &own, 1.0)
    })
}

fn columns(plot: &mut Plot, times: &[f64], layers: &[(Ink, Vec<f64>)], width_s: f64) -> Drawn {
    for (at, t_s) in times.iter().enumerate() {
        let own: Vec<(Ink, Vec<f64>)> = layers.iter().map(|(ink, sizes)| (*ink, vec![sizes[at]; 2])).collect();
        plot.stacked(&[(t_s - width_s).max(0.0), *t_s], &own, 1.0)?;
    }
    Ok(())
}

impl Ages<'_> {
    /// Mean over the ticks.
    fn mean(&self, kind: Kind) -> Sizes {
        let mut mean = Sizes::default();
        for tick in &self.ticks {
            mean.iter_mut().zip(tick.sizes[kind]).for_each(|(mean, bytes)| *mean += bytes / float(self.ticks.len()));
        }
        mean
    }

    /// At most `count` ticks, evenly chosen: neighbours in time differ little.
    fn thinned(&self, count: usize) -> Vec<Tick> {
        let step = self.ticks.len().div_ceil(count).max(1);
        let mut ticks: Vec<Tick> = self.ticks.iter().step_by(step).copied().collect();
        if ticks.last() != self.ticks.last() {
            ticks.extend(self.ticks.last());
        }
        ticks
    }
}

impl Report for Ages<'_> {
    fn grids(&self) -> Vec<Grid> {
        let (anon, file) = (self.mean(Kind::Anon), self.mean(Kind::File));
        let total: f64 = anon.iter().chain(&file).sum();
        let mut grid =
            Grid::new("Time since last touched, mean over the run", &["", "anonymous", "file", "together", "share"]);
        for at in 0..=UNKNOWN {
            let both = anon[at] + file[at];
            if both > 0.0 || at < UNKNOWN {
                let share = (total > 0.0).then_some(100.0 * both / total);
                let sizes = [anon[at], file[at], both].map(|size| bytes(Some(size)));
                grid.row([class(at).0.to_owned()].into_iter().chain(sizes).chain([figure(share, 0, " %")]));
            }
        }
        vec![grid]
    }

    fn figures(&self, page: Page) -> Vec<Figure<'_>> {
        let ticks = self.thinned(page.of(300, 120));
        let times: Vec<f64> = ticks.iter().map(|tick| tick.t_s).collect();
        let end = times.last().copied().unwrap_or(1.0).max(self.end_s);
        let time = Axis::time(0.0, end, page.of(10, 5));
        let column_s = column(&times, end);
        let total = |tick: &Tick, kind| tick.sizes[kind].iter().sum::<f64>();
        let max = PerKind::from_fn(|kind| ticks.iter().map(|tick| total(tick, kind)).fold(1.0, f64::max) * 1.03);
        // Both charts in the same scale, so that a byte is as high in each.
        let height = max.map(|of| i32::try_from(integer(300.0 * of / max.total())).unwrap_or(0).max(44));
        let label = "Memory by time since last touched, over time; anonymous above, file below.";
        // On a phone the key takes up to three lines.
        let all = px(162 + height.total()) + page.of(0, px(36));
        vec![Figure::new(page, all, label, move |area| {
            let occurs = |at: &usize| ticks.iter().any(|tick| tick.sizes.map(|sizes| sizes[*at]).total() > 0.0);
            let items: Vec<(Ink, &str)> = (0..=UNKNOWN).filter(occurs).map(|at| (class(at).1, class(at).0)).collect();
            let mut rest = key(area, &items)?;
            for (kind, name, bottom) in [(Kind::Anon, "Anonymous", 0), (Kind::File, "File", px(44))] {
                let (own, below) = rest.split_vertically(px(36 + height[kind]) + bottom);
                let bytes = Axis::bytes(max[kind], if height[kind] > 90 { 4 } else { 2 });
                let x_name = if bottom > 0 { time.time_name() } else { "" };
                let layout = Layout { bottom, x_name, ..Layout::default() };
                let own = heading(&own, name)?;
                let mut plot = Plot::new(&own, [&time, &bytes], layout)?;
                let layer = |at: usize| (class(at).1, ticks.iter().map(|tick| tick.sizes[kind][at]).collect());
                let layers: Vec<(Ink, Vec<f64>)> = (0..=UNKNOWN).map(layer).collect();
                let read = |at: usize| {
                    let run = ticks.iter().map(|tick| (tick.t_s, tick.sizes[kind][at])).collect();
                    Track::new(class(at).0, class(at).1, 0, run)
                };
                let tracks: Vec<Track> = (0..=UNKNOWN).rev().filter(occurs).map(read).collect();
                plot.live(Units { x: "s", y: "B" }, (&tracks, &[]), |plot| match column_s {
                    Some(width_s) => columns(plot, &times, &layers, width_s),
                    None => areas(plot, &times, &layers),
                })?;
                rest = if kind == Kind::Anon { below.split_vertically(px(8)).1 } else { below };
            }
            Ok(())
        })]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Bin {
            t_s: f64,
            kind: &'static str,
            min_s: f64,
            max_s: Option<f64>,
            bytes: f64,
            ci95_bytes: f64,
        }
        let bins: Vec<Bin> = self
            .rows
            .iter()
            .map(|AgeRow { t_s, bin }| Bin {
                t_s: *t_s,
                kind: kind(bin.anon).name(),
                min_s: bin.min_s,
                max_s: bin.max_s,
                bytes: bin.size.bytes,
                ci95_bytes: bin.size.ci95,
            })
            .collect();
        serde_json::to_writer(&mut *out, &bins)?;
        writeln!(out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["t_s", "kind", "min_s", "max_s", "bytes", "ci95_bytes"])?;
        for AgeRow { t_s, bin } in self.rows {
            let max_s = bin.max_s.map_or_else(String::new, |max| max.to_string());
            let kind = kind(bin.anon).name().to_owned();
            let figures = [bin.size.bytes, bin.size.ci95].map(|figure| figure.to_string());
            csv.write_record([t_s.to_string(), kind, bin.min_s.to_string(), max_s].into_iter().chain(figures))?;
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::cohort::{AgeBin, Estimate};

    #[test]
    fn memory_not_watched_long_enough_is_not_called_cold() {
        let row = |t_s, min_s, max_s, bytes| AgeRow {
            t_s,
            bin: AgeBin { anon: true, min_s, max_s, size: Estimate { bytes, ci95: 0.0 }, first_touched: None },
        };
        let rows = [
            row(5.0, 0.0, Some(1.0), 1.0),
            row(5.0, 1.0, Some(2.0), 2.0),
            row(5.0, 2.0, Some(5.0), 4.0),
            row(5.0, 5.0, None, 8.0),
            row(130.0, 120.0, None, 16.0),
        ];
        let ticks = ticks(&rows);
        assert_eq!(ticks[0].sizes.anon, [1.0, 6.0, 0.0, 0.0, 0.0, 0.0, 8.0]);
        assert_eq!(ticks[1].sizes.anon, [0.0, 0.0, 0.0, 0.0, 0.0, 16.0, 0.0]);
    }
}
