//! The count as tables.

use lowtide_model::stats;
use lowtide_model::units::float;

use super::{Against, Report, Round, Window};
use crate::grid::{counted_size, figure, signed_percent, size, table};

pub fn text(report: &Report) -> String {
    let head = "window | used, at least | at most | anonymous, reused | huge pages whole | first touched | \
        files, at least | at most | work done | in the kernel | log | off";
    let rows: Vec<Vec<String>> = report.rounds.iter().flat_map(|round| round.windows.iter().map(row)).collect();
    let windows = report.rounds.first().map_or(0, |round| round.windows.len());
    let means: Vec<Vec<String>> = (0..windows).map(|at| mean_row(&report.rounds, at)).collect();
    let evictions: Vec<Vec<String>> =
        report.rounds.iter().enumerate().map(|(at, round)| eviction(at + 1, round)).collect();
    let held = "round | anonymous before | files before | huge | anonymous, not evictable | \
        files, not evictable | stopped";
    [
        table("Evicted", held, &evictions),
        table("Touched since, round by round", head, &rows),
        table("Mean of the rounds", head, &means),
    ]
    .concat()
}

fn eviction(number: usize, round: &Round) -> Vec<String> {
    vec![
        number.to_string(),
        counted_size(Some(round.before.anon_bytes)),
        counted_size(Some(round.before.file_bytes)),
        counted_size(Some(round.huge_bytes)),
        counted_size(Some(round.kept.anon_bytes)),
        counted_size(Some(round.kept.file_bytes)),
        figure(Some(round.stopped_s), 2, " s"),
    ]
}

/// The figures of a window, in the order of the columns.
fn figures(window: &Window) -> [f64; 7] {
    let (touched, [low, high], [files_low, files_high]) = (&window.touched, window.used_bytes, window.touched.files());
    let anon = [touched.anon_reused_bytes, touched.anon_reused_whole_bytes, touched.anon_first_bytes];
    [low, high, anon[0], anon[1], anon[2], files_low, files_high].map(float)
}

fn row(window: &Window) -> Vec<String> {
    cells((window.window_s, window.work_share, window.system_s), figures(window), window.truth)
}

fn mean_row(rounds: &[Round], at: usize) -> Vec<String> {
    let windows: Vec<&Window> = rounds.iter().filter_map(|round| round.windows.get(at)).collect();
    let mean = |get: &dyn Fn(&Window) -> f64| {
        stats::mean(&windows.iter().map(|window| get(window)).collect::<Vec<f64>>()).unwrap_or(0.0)
    };
    let bytes = std::array::from_fn(|column| mean(&|window| figures(window)[column]));
    let all = windows.iter().all(|window| window.truth.is_some());
    let of = |get: fn(Against) -> f64| mean(&|window| window.truth.map_or(0.0, get));
    let truth = all.then(|| Against { log_bytes: of(|a| a.log_bytes), counted_bytes: of(|a| a.counted_bytes) });
    let shares: Option<Vec<f64>> = windows.iter().map(|window| window.work_share).collect();
    let share = shares.and_then(|shares| stats::mean(&shares));
    cells((mean(&|window| window.window_s), share, mean(&|window| window.system_s)), bytes, truth)
}

fn cells((window_s, share, system_s): (f64, Option<f64>, f64), bytes: [f64; 7], truth: Option<Against>) -> Vec<String> {
    let off = |truth: Against| 100.0 * (truth.counted_bytes / truth.log_bytes - 1.0);
    let off = truth.filter(|truth| truth.log_bytes > 0.0).map(off);
    std::iter::once(format!("{window_s} s"))
        .chain(bytes.iter().map(|bytes| size(Some(*bytes))))
        .chain([figure(share.map(|share| 100.0 * share), 0, " %"), figure(Some(system_s), 2, " s")])
        .chain([size(truth.map(|truth| truth.log_bytes)), signed_percent(off)])
        .collect()
}
