//! The tables of `accuracy`.

use std::collections::BTreeSet;

use lowtide_model::units::{float, human_bytes};

use super::{Figures, Row, map, working_set};
use crate::grid::{NONE, counted_size, figure, percent, shown, signed_percent, size, table};

const NOTES: &str = "\
Truth is what the program touched of its areas and of the tables it makes its log from; the estimate covers the complete
process, whose code and stacks (0.3 MiB in use) therefore count as error. Ticks of the first 3 s after populating are left
out, for the map 10 s, and those whose window reaches before its end; the map is compared inside the areas only. Where use
jumps between two lines of the truth (stairs, zigzag, phases), a tick can be above or below both and still be right.
Steady state: the figure of the bottom line and the mean of the truth over what lowtide calls steady; few readings have no
interval.
in CI: share of the ticks whose 95 % interval holds the truth. settled: seconds after populating from which on errors
stay within 10 %. wrong bin: share of the bytes that the idle-age histogram puts into a wrong bin. idle: ticks at
which nothing was in use, and the estimate at those. hot: a region in which any sample found an access; hot at 0.1: in
which a tenth of the samples did.
";

pub fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    let head = "pattern | monitor | window | readings | truth | estimate | error | interval | holds";
    out += &table("Steady state", head, &lines(rows, steady_line));
    for (at, window) in [(0, "1 s"), (1, "10 s")] {
        let title = format!("Working set, window {window}");
        let head = "pattern | monitor | ticks | truth | estimate | error p50 | p90 | bias | in CI | settled | idle";
        out += &table(&title, head, &lines(rows, |figures| working_set_line(figures, &figures.working_set[at])));
    }
    let head = "pattern | ticks | bins | wrong bin p50 | p90";
    out += &table("Idle ages", head, &lines(rows, ages_line));
    if rows.iter().any(|row| row.figures.as_ref().is_some_and(|figures| figures.map.is_some())) {
        let head = "pattern | snapshots | regions | hot: found | precise | ws error | hot at 0.1: found | \
            precise | ws error";
        out += &table("Map", head, &lines(rows, |figures| figures.map.as_ref().map_or_else(Vec::new, map_line)));
    }
    let head = "pattern | monitor CPU | own peak RSS | record per minute | pattern late";
    out += &table("Cost (CPU: share of one)", head, &lines(rows, cost_line));
    for row in rows {
        if let Some(why) = &row.skipped {
            out += &format!("skip - accuracy of {}: {why}\n", row.pattern);
        }
    }
    out + &notes(rows) + NOTES
}

/// The records' notes, each once.
fn notes(rows: &[Row]) -> String {
    let all = rows.iter().filter_map(|row| row.figures.as_ref()).flat_map(|figures| &figures.notes);
    let distinct: BTreeSet<&String> = all.collect();
    distinct.into_iter().map(|note| format!("note: {note}\n")).collect()
}

/// The measured patterns' lines, each with its name in front.
fn lines(rows: &[Row], line: impl Fn(&Figures) -> Vec<String>) -> Vec<Vec<String>> {
    let named = |row: &Row| {
        let cells = line(row.figures.as_ref()?);
        let cells = if cells.is_empty() { vec![NONE.to_owned()] } else { cells };
        Some(std::iter::once(row.pattern.clone()).chain(cells).collect())
    };
    rows.iter().filter_map(named).collect()
}

fn steady_line(figures: &Figures) -> Vec<String> {
    let score = &figures.steady;
    let bytes = |bytes: u64| human_bytes(float(bytes));
    vec![
        figures.backend.clone(),
        shown(score.window_s, |window| format!("{window} s")),
        score.readings.to_string(),
        size(score.truth_bytes),
        counted_size(score.used_bytes),
        signed_percent(score.error_percent),
        shown(score.interval_bytes, |[low, high]| format!("{} to {}", bytes(low), bytes(high))),
        shown(score.holds, |holds| if holds { "yes" } else { "no" }.to_owned()),
    ]
}

fn working_set_line(figures: &Figures, score: &working_set::WorkingSetScore) -> Vec<String> {
    let idle = (score.idle_ticks > 0).then_some(score.idle_ticks);
    vec![
        figures.backend.clone(),
        score.ticks.to_string(),
        size(score.truth_bytes),
        size(score.estimate_bytes),
        percent(score.error_median_percent),
        percent(score.error_p90_percent),
        signed_percent(score.bias_percent),
        percent(score.interval_holds_percent),
        figure(score.settled_s, 1, " s"),
        shown(idle, |ticks| format!("{ticks}: {}", size(score.idle_estimate_bytes))),
    ]
}

fn ages_line(figures: &Figures) -> Vec<String> {
    let ages = &figures.ages;
    vec![
        ages.ticks.to_string(),
        figure(ages.bins, 0, ""),
        percent(ages.distance_median_percent),
        percent(ages.distance_p90_percent),
    ]
}

fn map_line(map: &map::MapScore) -> Vec<String> {
    let mut cells = vec![map.snapshots.to_string(), figure(map.regions, 0, "")];
    for found in [&map.any, &map.tenth] {
        cells.push(percent(found.found_percent));
        cells.push(percent(found.precise_percent));
        cells.push(signed_percent(found.working_set_error_percent));
    }
    cells
}

fn cost_line(figures: &Figures) -> Vec<String> {
    vec![
        figure(figures.cost.cpu_percent, 2, " %"),
        counted_size(figures.cost.own_peak_rss_bytes),
        size(figures.cost.record_bytes_per_minute),
        figure(figures.late_s, 2, " s"),
    ]
}
