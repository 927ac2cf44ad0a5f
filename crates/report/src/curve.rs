//! The tide curve: memory kept against time lost.

use std::io::{self, Write};

use lowtide_model::curve::{Band, Basis, Curve, MeasuredCosts, RefaultCosts};
use lowtide_model::kind::Kind;
use lowtide_model::units::{Span, human_bytes};
use plotters::style::text_anchor::HPos;
use serde::Serialize;

use super::draw::axis::short_count;
use super::draw::{Axis, Figure, Ink, Layout, Page, Plot, Track, Units, aligned, heading, key, px};
use super::text::{Grid, bytes, figure};
use super::{DRAWN, Missing, Report, View};

pub(super) const VIEW: View = View {
    name: "curve",
    help: "What less memory would cost",
    title: "Tide curve: what less memory costs",
    meaning: "Memory kept against time lost, if all memory idle for a given time were reclaimed, and every \
              page of it that is accessed again cost one refault. Band: 95 % interval of sampled pages, or bounds from \
              histograms of idle ages.",
    formats: DRAWN,
    damo: false,
    optional: false,
    make: |data, _| {
        let curve = data.curve().ok_or(Missing::Unmeasured("tide curve"))?;
        Ok(Box::new(CurveView {
            curve,
            costs: data.meta().refault_costs.or_usual(),
            measured: data.meta().refault_costs,
        }))
    },
};

/// An age as it is given: `10s`, `2m`.
fn age(seconds: f64) -> String {
    Span(std::time::Duration::from_secs_f64(seconds.max(0.0))).to_string()
}

/// Slowdowns for which the memory is listed.
const SLOWDOWNS: [f64; 4] = [0.005, 0.01, 0.02, 0.05];
/// Slowdowns beyond this are drawn at the edge.
const DRAWN_SLOWDOWN: f64 = 0.2;

/// The view.
struct CurveView<'a> {
    curve: &'a Curve,
    costs: RefaultCosts,
    /// What of them was measured on the machine; the rest is assumed.
    measured: MeasuredCosts,
}

impl CurveView<'_> {
    fn total(&self) -> f64 {
        self.curve.total.total()
    }

    fn prices(&self) -> String {
        let price = |seconds: f64, measured: Option<f64>| {
            format!("{:.0} µs{}", 1e6 * seconds, if measured.is_some() { "" } else { " (assumed)" })
        };
        let swap = price(self.costs.swap_s, self.measured.swap_s);
        let disk = price(self.costs.disk_s, self.measured.disk_s);
        let all = self.measured.swap_s.is_some() && self.measured.disk_s.is_some();
        let how = if all { "" } else { "; measure it with `lowtide doctor --calibrate`" };
        format!("A refault costs {swap} from swap and {disk} from a file{how}.")
    }

    /// The top of the slowdown axis, percent.
    fn highest(&self) -> f64 {
        let highest = self.curve.points.iter().map(|point| point.slowdown(&self.costs).high).fold(0.0, f64::max);
        100.0 * highest.clamp(0.005, DRAWN_SLOWDOWN) * 1.05
    }

    fn slowdowns(&self, page: Page) -> Figure<'_> {
        let (total, highest) = (self.total().max(1.0), self.highest());
        let x = Axis::new(0.0, total * 1.02, Axis::bytes(total, page.of(8, 3)).ticks);
        let y = Axis::numbers(0.0, highest, 5, |percent| short_count(percent) + " %");
        let x_name = page.of(
            "memory kept, mean; labels: idle time after which memory is reclaimed",
            "mean memory kept; labels: idle time",
        );
        let layout = Layout { bottom: px(46), x_name, ..Layout::default() };
        let label = "Slowdown in percent by the memory that is kept, with its interval.";
        Figure::new(page, px(310), label, move |area| {
            let rest = heading(area, "Slowdown by memory kept")?;
            let mut plot = Plot::new(&rest, [&x, &y], layout)?;
            // From all that there is, which costs nothing, to what the shortest age keeps.
            let ascending = || self.curve.points.iter().rev();
            let edge = |end: fn(&Band) -> f64| {
                let points = ascending().map(|point| (point.kept, 100.0 * end(&point.slowdown(&self.costs))));
                [(total, 0.0)].into_iter().chain(points).collect::<Vec<_>>()
            };
            plot.band(edge(|slowdown| slowdown.high), edge(|slowdown| slowdown.low), (Ink::Need, 0.16))?;
            let tracks = [Track::new("slowdown", Ink::Need, 10, edge(|slowdown| slowdown.at))];
            plot.live(Units { x: "B", y: "%" }, (&tracks, &[]), |plot| plot.tracks(&tracks))?;
            let mut free = f64::INFINITY;
            for (point, (kept, percent)) in ascending().zip(edge(|slowdown| slowdown.at).into_iter().skip(1)) {
                plot.dots([(kept, percent)], Ink::Need, px(3))?;
                let room = total * page.of(0.036, 0.11);
                if kept < free {
                    // The line falls to the right: what is above it at the right, or below it at the left, is free.
                    let (side, by) = if percent < 0.9 * highest {
                        (HPos::Left, (px(2), px(-10)))
                    } else {
                        (HPos::Right, (px(2), px(14)))
                    };
                    plot.text(&age(point.age_s), &aligned(Ink::Muted, side), (kept, percent), by)?;
                    free = kept - room;
                }
            }
            Ok(())
        })
    }

    fn gone(&self, page: Page) -> Figure<'_> {
        let points = &self.curve.points;
        let most = points.iter().map(|point| point.gone().at).fold(1.0, f64::max) * 1.05;
        let places: Vec<f64> = points.iter().map(|point| point.age_s.max(1e-3).ln()).collect();
        let marks = places.iter().zip(points).map(|(at, point)| (*at, age(point.age_s))).step_by(page.of(1, 3));
        let (first, last) = (places.first().copied().unwrap_or(0.0), places.last().copied().unwrap_or(0.0));
        let (x, y) = (Axis::new(first, last, marks), Axis::bytes(most, 4));
        Figure::new(page, px(240), "Reclaimable memory by idle time.", move |area| {
            let rest = key(
                &heading(area, "Reclaimable memory by idle time")?,
                &[(Ink::Anon, "anonymous"), (Ink::File, "file")],
            )?;
            let layer = |kind: Kind| points.iter().map(|point| point.cold[kind].at).collect::<Vec<f64>>();
            let layers = [(Ink::File, layer(Kind::File)), (Ink::Anon, layer(Kind::Anon))];
            let read = |name: &str, at: usize| {
                let (ink, sizes) = &layers[at];
                Track::new(name, *ink, 0, places.iter().copied().zip(sizes.iter().copied()).collect())
            };
            let layout = Layout { bottom: px(44), x_name: "idle time", ..Layout::default() };
            let mut plot = Plot::new(&rest, [&x, &y], layout)?;
            let tracks = [read("anonymous", 1), read("file", 0)];
            plot.live(Units { x: "ln", y: "B" }, (&tracks, &[]), |plot| plot.stacked(&places, &layers, 1.0))
        })
    }
}

impl Report for CurveView<'_> {
    fn lead(&self) -> String {
        let total = human_bytes(self.total());
        let found = match self.curve.within(0.02, &self.costs) {
            Some(point) => format!(
                "Of {total} on average, {} suffices at <= 2 % slowdown: memory idle for {} or longer is reclaimable.",
                human_bytes(point.kept),
                age(point.age_s)
            ),
            None => format!("Of {total} on average, nothing is reclaimable at <= 2 % slowdown."),
        };
        let basis = match self.curve.basis {
            Basis::Pages => "From the reuse times of sampled pages.",
            Basis::Histograms => "From histograms of idle ages, so the refault rates are bounds.",
        };
        format!("{found}\n{} {basis}", self.prices())
    }

    fn grids(&self) -> Vec<Grid> {
        let head = ["idle for", "anonymous", "file", "kept", "kept at peak"];
        let mut memory = Grid::new("Reclaimable memory by idle time", &head);
        let head = ["idle for", "refaults", "of kept", "slowdown", "from", "to"];
        let sure = match self.curve.basis {
            Basis::Pages => "95 % interval",
            Basis::Histograms => "bounds",
        };
        let mut time = Grid::new(&format!("Cost of reclaiming it, with its {sure}"), &head);
        for point in &self.curve.points {
            let sizes = [point.cold.anon.at, point.cold.file.at, point.kept, point.kept_peak];
            memory.row([age(point.age_s)].into_iter().chain(sizes.map(|size| bytes(Some(size)))));
            let slowdown = point.slowdown(&self.costs).times(100.0);
            let back = point.back.anon.plus(point.back.file).at;
            let per_minute = (point.kept > 0.0).then(|| 100.0 * 60.0 * back / point.kept);
            let shares = [slowdown.at, slowdown.low, slowdown.high].map(|share| figure(Some(share), 2, " %"));
            let rates = [format!("{}/s", human_bytes(back)), figure(per_minute, 2, " %/min")];
            time.row([age(point.age_s)].into_iter().chain(rates).chain(shares));
        }
        let mut within = Grid::new("Least memory by slowdown (upper bound)", &["slowdown", "mean", "at peak"]);
        for slowdown in SLOWDOWNS {
            let point = self.curve.within(slowdown, &self.costs);
            let digits = usize::from(slowdown < 0.01);
            within.row([
                format!("{:.digits$} %", 100.0 * slowdown),
                bytes(point.map(|point| point.kept)),
                bytes(point.map(|point| point.kept_peak)),
            ]);
        }
        vec![memory, time, within]
    }

    fn figures(&self, page: Page) -> Vec<Figure<'_>> {
        vec![self.slowdowns(page), self.gone(page)]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Json<'a> {
            costs: RefaultCosts,
            costs_measured: MeasuredCosts,
            #[serde(flatten)]
            curve: &'a Curve,
            slowdown: Vec<Band>,
        }
        let slowdown = self.curve.points.iter().map(|point| point.slowdown(&self.costs)).collect();
        let json = Json { costs: self.costs, costs_measured: self.measured, curve: self.curve, slowdown };
        serde_json::to_writer_pretty(&mut *out, &json)?;
        writeln!(out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record([
            "age_s",
            "anon_bytes",
            "file_bytes",
            "kept_bytes",
            "kept_peak_bytes",
            "anon_back_bytes_per_s",
            "file_back_bytes_per_s",
            "slowdown_percent",
            "slowdown_low_percent",
            "slowdown_high_percent",
        ])?;
        for point in &self.curve.points {
            let slowdown = point.slowdown(&self.costs).times(100.0);
            let sizes = [point.cold.anon.at, point.cold.file.at, point.kept, point.kept_peak];
            let figures = [point.age_s]
                .into_iter()
                .chain(sizes.map(f64::round))
                .chain([point.back.anon.at, point.back.file.at])
                .chain([slowdown.at, slowdown.low, slowdown.high]);
            csv.write_record(figures.map(|figure| figure.to_string()))?;
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::curve::Point;

    fn view(curve: &Curve) -> CurveView<'_> {
        CurveView { curve, costs: RefaultCosts { swap_s: 10e-6, disk_s: 100e-6 }, measured: MeasuredCosts::default() }
    }

    fn curve() -> Curve {
        let mib = 1_048_576.0;
        let point = |age_s: f64, gone: f64, back: f64| Point {
            age_s,
            cold: [Band::around(gone * mib, mib), Band::around(0.0, 0.0)].into(),
            back: [Band::around(back * mib, 0.5 * mib), Band::around(0.0, 0.0)].into(),
            kept: (512.0 - gone) * mib,
            kept_peak: (520.0 - gone) * mib,
        };
        let points = vec![point(1.0, 400.0, 40.0), point(10.0, 300.0, 5.0), point(60.0, 200.0, 0.0)];
        Curve { basis: Basis::Pages, total: [512.0 * mib, 0.0].into(), points }
    }

    #[test]
    fn the_lead_names_the_least_memory_within_two_percent() {
        let curve = curve();
        // 40 MiB/s are 10,240 pages of 10 µs: 10 %; 5.5 MiB/s 1.4 %.
        let lead = view(&curve).lead();
        assert!(lead.contains("Of 512 MiB on average, 212 MiB suffices"), "{lead}");
        assert!(lead.contains("idle for 10s or longer") && lead.contains("doctor --calibrate"), "{lead}");
    }

    #[test]
    fn tables_and_drawings_are_made() {
        let curve = curve();
        let view = view(&curve);
        assert!(view.grids()[..2].iter().all(|grid| grid.rows.len() == 3));
        for page in [Page::Wide, Page::Narrow] {
            for figure in view.figures(page) {
                assert!(crate::draw::svg_element(&figure).unwrap().contains("<poly"));
            }
        }
        let mut csv = Vec::new();
        view.csv(&mut csv).unwrap();
        assert_eq!(String::from_utf8(csv).unwrap().lines().count(), 4);
        let mut json = Vec::new();
        view.json(&mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&json["basis"], &json["points"][1]["age_s"]), (&"pages".into(), &10.0.into()));
    }
}
