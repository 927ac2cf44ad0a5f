//! Taking heatmaps from a record: from the map's regions, or else from the sampled pages of the cohort.

use std::collections::BTreeMap;

use lowtide_model::PAGE;
use lowtide_model::episode::{Episode, PageKind};
use lowtide_model::units::{float, index, integer, single};

use super::layout::{Cover, Layout};
use lowtide_record::RegionRow;

/// Resolution at most: the largest process, and the others.
const ROWS: [usize; 2] = [320, 100];
const COLUMNS: usize = 300;

/// Processes shown.
pub(super) const PANELS: usize = 4;

/// The heatmap of one process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Panel {
    pub pid: u32,
    pub from_s: f64,
    pub to_s: f64,
    pub columns: usize,
    pub layout: Layout,
    /// Row by row from the lowest address: the access rate, `None` where nothing was mapped.
    pub cells: Vec<Option<f32>>,
    /// Mappings by size, largest first: first address, bytes, name.
    pub names: Vec<(u64, u64, String)>,
    /// Whether those sizes are the mappings' own, or just of what was sampled of them.
    pub sized: bool,
}

/// Where a process' memory was, and when it was sampled.
#[derive(Debug, Default)]
struct Survey {
    all: Cover,
    used: Cover,
    by_name: BTreeMap<String, Cover>,
    from_s: f64,
    to_s: f64,
    readings: usize,
}

impl Survey {
    fn read_at(&mut self, t_s: f64) {
        if self.readings == 0 {
            (self.from_s, self.to_s) = (t_s, t_s);
        }
        if self.readings == 0 || t_s > self.to_s {
            self.to_s = t_s;
            self.readings += 1;
        }
    }

    fn add(&mut self, start: u64, end: u64, used: bool, name: &str) {
        self.all.add(start, end);
        if used {
            self.used.add(start, end);
        }
        if let Some(cover) = self.by_name.get_mut(name) {
            cover.add(start, end);
        } else {
            self.by_name.entry(name.to_owned()).or_default().add(start, end);
        }
    }

    fn panel(&self, pid: u32, rows: usize) -> Panel {
        let used = |start, end| self.used.ranges().any(|(from, to)| from < end && start < to);
        let layout = Layout::of(&self.all, used, rows);
        let columns = self.readings.clamp(1, COLUMNS);
        let mut names: Vec<(u64, u64, String)> = Vec::new();
        for (name, cover) in &self.by_name {
            // A name often stands for several pieces; each section's largest is labelled.
            names.extend(cover.ranges().map(|(start, end)| (start, end - start, name.clone())));
        }
        names.sort_by_key(|(start, bytes, _)| (std::cmp::Reverse(*bytes), *start));
        let cells = vec![None; layout.rows * columns];
        Panel { pid, from_s: self.from_s, to_s: self.to_s, columns, layout, cells, names, sized: true }
    }
}

/// The largest processes first, or the one asked for, each with an empty panel of at most `rows` of its rows.
fn panels(surveys: &BTreeMap<u32, Survey>, only: Option<u32>, rows: impl Fn(u32) -> usize) -> (Vec<Panel>, usize) {
    let mut pids: Vec<u32> = surveys.keys().copied().filter(|pid| only.is_none_or(|only| only == *pid)).collect();
    pids.sort_by_key(|pid| std::cmp::Reverse(surveys[pid].all.bytes()));
    let left_out = pids.len().saturating_sub(PANELS);
    pids.truncate(PANELS);
    let panels =
        pids.iter().enumerate().map(|(at, pid)| surveys[pid].panel(*pid, ROWS[at.min(1)].min(rows(*pid)))).collect();
    (panels, left_out)
}

impl Panel {
    /// The column of a time.
    fn column(&self, t_s: f64) -> usize {
        let at = float(self.columns) * (t_s - self.from_s) / (self.to_s - self.from_s).max(1e-9);
        index(at).min(self.columns - 1)
    }

    /// Seconds a column stands for.
    pub(super) fn column_s(&self) -> f64 {
        ((self.to_s - self.from_s) / float(self.columns)).max(1e-9)
    }

    /// The rate of a cell, counted from the lowest address.
    pub(super) fn cell(&self, row: usize, column: usize) -> Option<f32> {
        self.cells.get(row * self.columns + column).copied().flatten()
    }

    /// Adds the time from `from` to `to` of a page to the columns it lies in.
    fn add_time(&self, sums: &mut [f32], page: u64, (from, to): (f64, f64), bytes: f64) {
        let address = page * PAGE;
        let Some((row, _)) = self.layout.rows_of(address, address + 1).next() else { return };
        let width = self.column_s();
        for column in self.column(from)..=self.column(to) {
            let begin = self.from_s + float(column) * width;
            let seconds = (to.min(begin + width) - from.max(begin)).max(0.0);
            sums[row * self.columns + column] += single(bytes * seconds);
        }
    }

    /// Rows in which no page was sampled repeat the nearest one below them, or else above.
    fn fill_rows(&mut self) {
        let empty = |panel: &Self, row: usize| (0..panel.columns).all(|column| panel.cell(row, column).is_none());
        let sections = self.layout.sections.clone();
        for section in sections {
            let rows = section.first_row..section.first_row + section.rows;
            let known: Vec<usize> = rows.clone().filter(|row| !empty(self, *row)).collect();
            for row in rows {
                let below = known.partition_point(|known| *known <= row);
                let Some(&from) = known.get(below.saturating_sub(1)) else { continue };
                for column in 0..self.columns {
                    self.cells[row * self.columns + column] = self.cell(from, column);
                }
            }
        }
    }

    /// Between two readings nothing is known to have changed: columns without one repeat the last one.
    fn fill_gaps(&mut self) {
        for column in 1..self.columns {
            if (0..self.layout.rows).all(|row| self.cell(row, column).is_none()) {
                for row in 0..self.layout.rows {
                    self.cells[row * self.columns + column] = self.cell(row, column - 1);
                }
            }
        }
    }
}

/// Sums for the mean of each cell.
struct Sums {
    weighted: Vec<f32>,
    weights: Vec<f32>,
}

impl Sums {
    fn of(panel: &Panel) -> Self {
        Self { weighted: vec![0.0; panel.cells.len()], weights: vec![0.0; panel.cells.len()] }
    }

    fn into_cells(self, panel: &mut Panel) {
        let means = self.weighted.iter().zip(&self.weights);
        panel.cells = means.map(|(sum, weight)| (*weight > 0.0).then(|| (sum / weight).clamp(0.0, 1.0))).collect();
    }
}

/// Heatmaps of the map, read twice: once for where memory is, once for its rates. Also how many processes are left out.
pub(super) fn from_regions<I: Iterator<Item = Vec<RegionRow>>>(
    read: impl Fn() -> I,
    only: Option<u32>,
) -> (Vec<Panel>, usize) {
    let mut surveys: BTreeMap<u32, Survey> = BTreeMap::new();
    for row in read().flatten() {
        let survey = surveys.entry(row.pid).or_default();
        survey.read_at(row.t_s);
        survey.add(row.start, row.end, row.access_rate > 0.0, &row.mapping);
    }
    let (mut panels, left_out) = panels(&surveys, only, |_| usize::MAX);
    let mut sums: Vec<Sums> = panels.iter().map(Sums::of).collect();
    for row in read().flatten() {
        let Some(at) = panels.iter().position(|panel| panel.pid == row.pid) else { continue };
        let (panel, sums) = (&panels[at], &mut sums[at]);
        let column = panel.column(row.t_s);
        for (line, bytes) in panel.layout.rows_of(row.start, row.end) {
            sums.weighted[line * panel.columns + column] += single(float(bytes)) * row.access_rate;
            sums.weights[line * panel.columns + column] += single(float(bytes));
        }
    }
    for (panel, sums) in panels.iter_mut().zip(sums) {
        sums.into_cells(panel);
        panel.fill_gaps();
    }
    (panels, left_out)
}

/// What a sampled page is called: its kind is all that is known of it.
fn kind_name(kind: PageKind) -> &'static str {
    match kind {
        PageKind::Anon => "anonymous",
        PageKind::File => "file",
        PageKind::Cache => "page cache",
    }
}

/// Heatmaps of the cohort: the rate of a cell is the share of its sampled pages' time in which they were being
/// touched. Each page stands for the bytes around it.
pub(super) fn from_episodes<I: Iterator<Item = Vec<Episode>>>(
    read: impl Fn() -> I,
    tick_s: f64,
    only: Option<u32>,
) -> (Vec<Panel>, usize) {
    let mut surveys: BTreeMap<u32, Survey> = BTreeMap::new();
    // Known from, known until and weight of each page.
    let mut pages: BTreeMap<(u32, u64), (f64, f64, f64)> = BTreeMap::new();
    for episode in read().flatten() {
        let survey = surveys.entry(episode.key.space).or_default();
        survey.read_at(episode.end_s);
        let (start, end) = around(&episode);
        survey.add(start, end, episode.touched, kind_name(episode.kind));
        // A touch is dated at the end of its tick.
        let touch_s = if episode.touched { tick_s } else { 0.0 };
        let first = episode.start_s - episode.reuse_s.unwrap_or(0.0) - touch_s;
        let page = pages.entry((episode.key.space, episode.key.page)).or_insert((first, episode.end_s, 0.0));
        *page = (page.0.min(first), page.1.max(episode.end_s), episode.relative_weight());
        survey.from_s = survey.from_s.min(first.max(0.0));
    }
    for survey in surveys.values_mut() {
        survey.readings = index(((survey.to_s - survey.from_s) / tick_s.max(1e-3)).ceil());
    }
    // Frames of the page cache are no addresses of a process; alone they are better than nothing.
    if surveys.len() > 1 && only.is_none() {
        surveys.remove(&0);
    }
    // Rows much finer than the sample would be empty.
    let rows = |pid| pages.range((pid, 0)..=(pid, u64::MAX)).count().div_ceil(2).max(12);
    let (mut panels, left_out) = panels(&surveys, only, rows);
    for panel in &mut panels {
        panel.sized = false;
        let mut sums = Sums::of(panel);
        let own = pages.range((panel.pid, 0)..=(panel.pid, u64::MAX));
        for ((_, page), (from, _, weight)) in own {
            panel.add_time(&mut sums.weights, *page, (*from, panel.to_s), *weight);
        }
        for episode in read().flatten().filter(|episode| episode.touched && episode.key.space == panel.pid) {
            let during = (episode.start_s - tick_s, episode.end_s);
            panel.add_time(&mut sums.weighted, episode.key.page, during, episode.relative_weight());
        }
        sums.into_cells(panel);
        panel.fill_rows();
    }
    (panels, left_out)
}

/// The bytes a sampled page stands for, as addresses around it.
fn around(episode: &Episode) -> (u64, u64) {
    // Two neighbours of a stratified sample lie up to two blocks apart.
    let half = integer(episode.weight_bytes * 1.5).clamp(PAGE, 64 << 20);
    let start = episode.key.address();
    (start.saturating_sub(half) & !(PAGE - 1), (start + half + PAGE - 1) & !(PAGE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::episode::PageKey;

    fn region(t_s: f64, start: u64, end: u64, access_rate: f32) -> RegionRow {
        RegionRow { t_s, pid: 1, start, end, access_rate, age_s: 0.0, mapping: "[heap]".into() }
    }

    #[test]
    fn rates_are_means_over_bytes_and_unmapped_stays_empty() {
        let mib = 1 << 20;
        let rows = vec![
            region(0.0, 0, 4 * mib, 0.5),
            region(1.0, 0, 2 * mib, 1.0),
            region(1.0, 2 * mib, 4 * mib, 0.0),
            region(1.0, 100 * mib, 101 * mib, 0.25),
        ];
        let (panels, left_out) = from_regions(|| std::iter::once(rows.clone()), None);
        assert_eq!((panels.len(), left_out), (1, 0));
        let panel = &panels[0];
        assert_eq!((panel.columns, panel.layout.sections.len()), (2, 2));
        let (low, high) = (0, panel.layout.sections[0].rows - 1);
        assert_eq!([panel.cell(low, 0), panel.cell(low, 1)], [Some(0.5), Some(1.0)]);
        assert_eq!([panel.cell(high, 0), panel.cell(high, 1)], [Some(0.5), Some(0.0)]);
        let far = panel.layout.sections[1].first_row;
        assert_eq!([panel.cell(far, 0), panel.cell(far, 1)], [None, Some(0.25)], "not mapped at first");
    }

    #[test]
    fn pages_touched_half_the_time_are_half_hot() {
        let page = |page, start_s, end_s, touched| Episode {
            key: PageKey { space: 1, page },
            kind: PageKind::Anon,
            weight_bytes: 8192.0,
            share: None,
            touched,
            start_s,
            end_s,
            reuse_s: None,
        };
        let rows = vec![page(0, 1.0, 5.0, true), page(0, 5.0, 10.0, false), page(1000, 0.0, 10.0, false)];
        let (panels, _) = from_episodes(|| std::iter::once(rows.clone()), 1.0, None);
        let panel = &panels[0];
        let mean = |address: u64| {
            let row = panel.layout.rows_of(address, address + 1).next().unwrap().0;
            (0..panel.columns).filter_map(|column| panel.cell(row, column)).sum::<f32>() / panel.columns as f32
        };
        assert_eq!([mean(0), mean(1000 * PAGE)], [0.5, 0.0]);
    }
}
