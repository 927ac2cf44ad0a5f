//! The breakdown: peak and average of every type of memory.

use std::io::{self, Write};

use lowtide_model::numa::{self, NodeSummary};
use lowtide_model::stats;
use lowtide_model::usage::Usage;
use serde::Serialize;

use super::draw::axis::{Frame, MARKS, byte_ticks};
use super::draw::{Anchor, Ink, Page, Scene, shorten};
use super::text::{Grid, bytes, whole_bytes};
use super::{DRAWN, Entry, Missing, Report, View};

pub(super) const ENTRY: Entry = Entry {
    view: View::Breakdown,
    name: "breakdown",
    title: "Memory by type",
    meaning: "What the memory was: bars are averages, ticks at their right mark the peaks. Heap, file and other are the \
              three parts that budgets are made of; peaks of parts need not fall together.",
    formats: DRAWN,
    take: |source, _| {
        let view = Breakdown { nodes: numa::summarise(&source.nodes()), ..Breakdown::of(source.ticks()) };
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

    fn scenes(&self, page: Page) -> Vec<Scene> {
        let mut scene = Scene::new(page, "Average and peak of each type of memory as bars.");
        let (names, figures) = if page == Page::Wide { (160.0, 150.0) } else { (112.0, 64.0) };
        let (row, top) = (24.0, 4.0);
        let max = self.types.iter().map(|kind| kind.peak_bytes).fold(1.0, f64::max) * 1.03;
        #[expect(clippy::cast_precision_loss, reason = "ten types")]
        let height = row * self.types.len() as f64;
        let width = scene.width - names - figures;
        let frame = Frame { left: names, top, width, height, x: (0.0, max), y: (0.0, 1.0) };
        let ticks = byte_ticks(max, if page == Page::Wide { 5 } else { 2 });
        for (value, _) in &ticks {
            let (x, _) = frame.at(*value, 0.0);
            scene.line(vec![(x, top), (x, frame.bottom())], if *value > 0.0 { Ink::Grid } else { Ink::Axis }, 1.0);
        }
        frame.marks(&mut scene, &ticks);
        for (kind, at) in self.types.iter().zip(0u32..) {
            let y = top + row * (f64::from(at) + 0.5);
            scene.text((names - 10.0, y), shorten(kind.name, names - 12.0), Ink::Text, Anchor::End);
            let (average, peak) = (frame.at(kind.avg_bytes, 0.0).0, frame.at(kind.peak_bytes, 0.0).0);
            scene.rect((names, y - 3.0), (peak - names, 6.0), kind.ink, 0.35);
            scene.rect((names, y - 7.0), (average - names, 14.0), kind.ink, 1.0);
            scene.line(vec![(peak, y - 7.0), (peak, y + 7.0)], Ink::Resident, 2.0);
            let text = match page {
                Page::Wide => format!("{}, peak {}", bytes(Some(kind.avg_bytes)), bytes(Some(kind.peak_bytes))),
                Page::Narrow => bytes(Some(kind.peak_bytes)),
            };
            scene.text((scene.width, y), text, Ink::Muted, Anchor::End);
        }
        scene.height = frame.bottom() + MARKS;
        vec![scene]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
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
