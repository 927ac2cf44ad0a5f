//! Idle ages: bytes by the time since they were last touched, over the run.

use std::io::{self, Write};

use serde::Serialize;

use super::draw::axis::{Frame, MARKS, byte_ticks, time_ticks};
use super::draw::{Anchor, Ink, Page, Scene};
use super::text::{Grid, bytes, figure};
use super::{DRAWN, Entry, Missing, Report, View};
use lowtide_record::AgeRow;

pub(super) const ENTRY: Entry = Entry {
    view: View::Ages,
    name: "ages",
    title: "Idle ages",
    meaning: "All memory of the workload by the time since it was last touched: warm colours are in use, blue ones could go \
              with little harm. Of grey memory the age is not known: it was not watched for long enough, or not closely enough.",
    formats: DRAWN,
    take: |source, _| {
        let rows = source.ages();
        if rows.is_empty() {
            return Err(Missing::Unmeasured("idle ages"));
        }
        Ok(Box::new(Ages { ticks: ticks(rows), rows }))
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Tick {
    t_s: f64,
    anon: Sizes,
    file: Sizes,
}

/// The view.
struct Ages<'a> {
    ticks: Vec<Tick>,
    rows: &'a [AgeRow],
}

/// Histograms as classes.
fn ticks(rows: &[AgeRow]) -> Vec<Tick> {
    let same_tick = rows.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits());
    same_tick
        .map(|bins| {
            let mut tick = Tick { t_s: bins[0].t_s, anon: Sizes::default(), file: Sizes::default() };
            for row in bins {
                let bin = row.bin;
                let class = CLASSES.iter().rposition(|(from, _, _)| bin.min_s >= *from).unwrap_or(0);
                // A bin that reaches into the next class was not measured finely enough to be put into either.
                let last = bin.max_s.map_or(CLASSES.len() - 1, |max_s| {
                    CLASSES.iter().rposition(|(from, _, _)| *from < max_s).unwrap_or(0)
                });
                let class = if class == last { class } else { UNKNOWN };
                let side = if bin.anon { &mut tick.anon } else { &mut tick.file };
                side[class] += bin.size.bytes;
            }
            tick
        })
        .collect()
}

fn class(at: usize) -> (&'static str, Ink) {
    CLASSES.get(at).map_or(("not known", Ink::Kernel), |(_, name, ink)| (name, *ink))
}

impl Ages<'_> {
    /// Mean over the ticks.
    fn mean(&self, side: fn(&Tick) -> &Sizes) -> Sizes {
        let mut mean = Sizes::default();
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let count = self.ticks.len().max(1) as f64;
        for tick in &self.ticks {
            mean.iter_mut().zip(side(tick)).for_each(|(mean, bytes)| *mean += bytes / count);
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

    fn panel(scene: &mut Scene, frame: &Frame, ticks: &[Tick], side: fn(&Tick) -> &Sizes) {
        let mut below: Vec<f64> = vec![0.0; ticks.len()];
        for at in 0..=UNKNOWN {
            let above: Vec<f64> = ticks.iter().zip(&below).map(|(tick, below)| below + side(tick)[at]).collect();
            if above != below {
                let edge =
                    |values: &[f64]| ticks.iter().zip(values).map(|(t, v)| frame.at(t.t_s, *v)).collect::<Vec<_>>();
                let mut outline = edge(&above);
                outline.extend(edge(&below).into_iter().rev());
                scene.area(outline, class(at).1, 1.0);
            }
            below = above;
        }
    }
}

impl Report for Ages<'_> {
    fn grids(&self) -> Vec<Grid> {
        let (anon, file) = (self.mean(|tick| &tick.anon), self.mean(|tick| &tick.file));
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

    fn scenes(&self, page: Page) -> Vec<Scene> {
        let mut scene = Scene::new(page, "Memory by time since last touched, over time; anonymous above, file below.");
        let ticks = self.thinned(if page == Page::Wide { 300 } else { 120 });
        let end = ticks.last().map_or(1.0, |tick| tick.t_s);
        let start = ticks.first().map_or(0.0, |tick| tick.t_s).min(end - 1e-3);
        let highest = |side: fn(&Tick) -> &Sizes| ticks.iter().map(|t| side(t).iter().sum::<f64>()).fold(1.0, f64::max);
        let max = [highest(|t| &t.anon), highest(|t| &t.file)].map(|max| max * 1.03);
        // Both panels in the same scale, so that a byte is as high in each.
        let scale = 300.0 / (max[0] + max[1]);
        let mut top = 0.0;
        // Not beside the bands: the ages of the end need not be those of the run.
        let occurs = |at: &usize| ticks.iter().any(|tick| tick.anon[*at] + tick.file[*at] > 0.0);
        let items: Vec<(Ink, &str)> = (0..=UNKNOWN).filter(occurs).map(|at| (class(at).1, class(at).0)).collect();
        top += scene.key((2.0, 0.0), scene.width, &items);
        for (name, side, max) in
            [("Anonymous", (|tick| &tick.anon) as fn(&Tick) -> &Sizes, max[0]), ("File", |tick| &tick.file, max[1])]
        {
            scene.bold((0.0, top + 8.0), name, Ink::Text, Anchor::Start);
            let frame = Frame::on(page, top + 22.0, (max * scale).max(44.0), (start, end), max);
            let rules = byte_ticks(max, if frame.height > 90.0 { 4 } else { 2 });
            frame.rules(&mut scene, &rules);
            Self::panel(&mut scene, &frame, &ticks, side);
            top = frame.bottom() + 14.0;
            if name == "File" {
                frame.marks(&mut scene, &time_ticks(end, if page == Page::Wide { 10 } else { 5 }));
                top = frame.bottom() + MARKS;
            }
        }
        scene.height = top;
        vec![scene]
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
                kind: if bin.anon { "anon" } else { "file" },
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
            let kind = if bin.anon { "anon" } else { "file" }.to_owned();
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
        assert_eq!(ticks[0].anon, [1.0, 6.0, 0.0, 0.0, 0.0, 0.0, 8.0]);
        assert_eq!(ticks[1].anon, [0.0, 0.0, 0.0, 0.0, 0.0, 16.0, 0.0]);
    }
}
