//! The breakdown: peak and average of every type of memory.

use std::io::{self, Write};

use lowtide_model::numa::{self, NodeSummary};
use lowtide_model::stats;
use lowtide_model::usage::Usage;
use plotters::style::text_anchor::HPos;
use serde::Serialize;

use super::draw::{Axis, Figure, Ink, Layout, Page, Plot, aligned, px, shorten};
use super::text::{Grid, bytes, whole_bytes};
use super::{DRAWN, Missing, Report, View, pretty};

pub(super) const VIEW: View = View {
    name: "breakdown",
    help: "Peak and average by type of memory",
    title: "Memory by type",
    meaning: "Bars: averages. Ticks: peaks, which types of memory may reach at different times. Heap, file and other are \
              the three parts of a budget.",
    formats: DRAWN,
    damo: false,
    optional: false,
    make: |data, _| {
        let view = Breakdown { nodes: numa::summarise(&data.record.rows()), ..Breakdown::of(data.ticks()) };
        if view.types.is_empty() && data.is_imported() {
            return Err(Missing::Unmeasured("memory figures"));
        }
        if view.types.is_empty() {
            return Err(Missing::Other(
                "this record has no memory figures: no tick was written before it ended".to_owned(),
            ));
        }
        Ok(Box::new(view))
    },
};

/// One type of memory over the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Kind {
    name: &'static str,
    #[serde(skip)]
    ink: Ink,
    peak_bytes: f64,
    avg_bytes: f64,
}

/// The view.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Breakdown {
    /// Every type that was measured.
    types: Vec<Kind>,
    /// The same memory in three parts.
    parts: Vec<Kind>,
    /// Where it lay; empty where there is but one NUMA node.
    nodes: Vec<NodeSummary>,
}

/// How a type is read from a tick.
type Get = fn(&Usage) -> Option<f64>;

/// The types, fine to coarse ones aside.
const TYPES: [(&str, Ink, Get); 10] = [
    ("anonymous", Ink::Anon, |tick| tick.anon_bytes),
    ("file, mapped", Ink::File, |tick| tick.mapped_file_bytes),
    ("file, not mapped", Ink::File, |tick| Some((tick.file_bytes? - tick.mapped_file_bytes?).max(0.0))),
    ("shared memory, tmpfs", Ink::File, |tick| tick.shmem_bytes),
    ("slab", Ink::Kernel, |tick| tick.slab_bytes),
    ("page tables", Ink::Kernel, |tick| tick.page_table_bytes),
    ("kernel stacks", Ink::Kernel, |tick| tick.stack_bytes),
    ("socket buffers", Ink::Kernel, |tick| tick.socket_bytes),
    ("other kernel memory", Ink::Kernel, other_kernel),
    ("swapped out", Ink::Demand, |tick| tick.swap_bytes),
];

/// Heap, file and other, as in Garg et al., MEMSYS'20.
const PARTS: [(&str, Ink, Get); 3] = [
    ("heap", Ink::Anon, |tick| tick.anon_bytes),
    ("file", Ink::File, |tick| tick.file_bytes),
    ("other", Ink::Kernel, |tick| tick.kernel_bytes),
];

/// Kernel memory that none of the finer figures names; unknown where one of them is.
fn other_kernel(tick: &Usage) -> Option<f64> {
    let named = tick.slab_bytes? + tick.page_table_bytes? + tick.stack_bytes? + tick.socket_bytes?;
    Some((tick.kernel_bytes? - named).max(0.0))
}

fn measured(ticks: &[Usage], of: &[(&'static str, Ink, Get)]) -> Vec<Kind> {
    let kind = |(name, ink, get): &(&'static str, Ink, Get)| {
        let values: Vec<f64> = ticks.iter().filter_map(get).collect();
        Some(Kind { name, ink: *ink, peak_bytes: stats::max(&values)?, avg_bytes: stats::mean(&values)? })
    };
    of.iter().filter_map(kind).collect()
}

impl Breakdown {
    fn of(ticks: &[Usage]) -> Self {
        Self { types: measured(ticks, &TYPES), parts: measured(ticks, &PARTS), nodes: Vec::new() }
    }
}

impl Report for Breakdown {
    fn grids(&self) -> Vec<Grid> {
        let grid = |title: &str, kinds: &[Kind]| {
            let mut grid = Grid::new(title, &["", "peak", "average"]);
            for kind in kinds {
                grid.row([kind.name.to_owned(), bytes(Some(kind.peak_bytes)), bytes(Some(kind.avg_bytes))]);
            }
            grid
        };
        let mut grids = vec![grid("By type", &self.types), grid("In three parts", &self.parts)];
        if !self.nodes.is_empty() {
            let head = ["node", "anonymous, peak", "average", "file, peak", "average", "kernel, peak", "average"];
            let mut grid = Grid::new("By NUMA node", &head);
            for node in &self.nodes {
                let levels = [node.anon, node.file, node.kernel];
                let cells = levels.iter().flat_map(|level| [level.peak_bytes, level.avg_bytes]).map(whole_bytes);
                grid.row(std::iter::once(node.node.to_string()).chain(cells));
            }
            grids.push(grid);
        }
        grids
    }

    fn figures(&self, page: Page) -> Vec<Figure<'_>> {
        let max = self.types.iter().map(|row| row.peak_bytes).fold(1.0, f64::max) * 1.03;
        // One row to a type, counted downwards.
        let rows = || self.types.iter().scan(0.5, |next, row| Some((-std::mem::replace(next, *next + 1.0), row)));
        let names = rows().map(|(at, row)| (at, shorten(row.name, page.of(24, 16))));
        let height = i32::try_from(self.types.len()).unwrap_or(0);
        let (x, y) = (Axis::bytes(max, page.of(5, 2)), Axis::new(-f64::from(height), 0.0, names));
        let layout = Layout {
            left: page.of(px(160), px(124)),
            right: page.of(px(160), px(70)),
            upright: true,
            ..Layout::default()
        };
        vec![Figure::new(
            page,
            px(24) * height + px(34),
            "Average and peak of each type of memory as bars.",
            move |area| {
                let mut plot = Plot::new(area, [&x, &y], layout)?;
                for (at, row) in rows() {
                    let bar = |bytes: f64, half: f64| {
                        vec![(0.0, at - half), (bytes, at - half), (bytes, at + half), (0.0, at + half)]
                    };
                    plot.polygon(bar(row.peak_bytes, 0.13), row.ink, 0.35)?;
                    plot.polygon(bar(row.avg_bytes, 0.3), row.ink, 1.0)?;
                    plot.line(vec![(row.peak_bytes, at - 0.3), (row.peak_bytes, at + 0.3)], Ink::Resident, 8)?;
                    let text = match page {
                        Page::Wide => format!("{}, peak {}", bytes(Some(row.avg_bytes)), bytes(Some(row.peak_bytes))),
                        Page::Narrow => bytes(Some(row.peak_bytes)),
                    };
                    plot.text(&text, &aligned(Ink::Muted, HPos::Right), (max, at), (layout.right, 0))?;
                }
                Ok(())
            },
        )]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        pretty(self, out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["type", "peak_bytes", "avg_bytes"])?;
        for kind in self.types.iter().chain(&self.parts) {
            csv.write_record([
                kind.name.to_owned(),
                kind.peak_bytes.round().to_string(),
                kind.avg_bytes.round().to_string(),
            ])?;
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_kernel_memory_add_up_and_unknown_stays_unknown() {
        let tick = Usage {
            kernel_bytes: Some(100.0),
            slab_bytes: Some(50.0),
            page_table_bytes: Some(20.0),
            stack_bytes: Some(5.0),
            socket_bytes: Some(10.0),
            ..Usage::default()
        };
        assert_eq!(other_kernel(&tick), Some(15.0));
        assert_eq!(other_kernel(&Usage { socket_bytes: None, ..tick.clone() }), None);
        let view = Breakdown::of(&[tick]);
        assert!(view.types.iter().all(|kind| kind.name != "anonymous"), "not measured is not zero");
    }
}
