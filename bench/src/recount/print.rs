//! The count as tables.

use lowtide_model::stats;
use lowtide_model::units::float;

use super::{Report, Round, Window};
use crate::grid::{counted_size, figure, shown, signed_percent, size, table};

pub fn text(report: &Report) -> String {
    let head = "window | used, at least | at most | anonymous, reused | complete huge pages | first touched | \
        files, at least | at most | work done | in the kernel | log | off";
    let rounds: Vec<Vec<Figures>> =
        report.rounds.iter().map(|round| round.windows.iter().map(figures).collect()).collect();
    let rows: Vec<Vec<String>> = rounds.iter().flatten().copied().map(cells).collect();
    let windows = rounds.first().map_or(0, Vec::len);
    let of_window = |at: usize| rounds.iter().filter_map(|round| round.get(at).copied()).collect::<Vec<_>>();
    let means: Vec<Vec<String>> = (0..windows).map(|at| cells(mean(&of_window(at)))).collect();
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

/// Figures of a window: its seconds, seven of bytes in the order of the columns, share of work, kernel seconds, bytes of the
/// log, and bytes counted for comparison.
type Figures = [Option<f64>; 12];

fn figures(window: &Window) -> Figures {
    let (touched, [low, high], [files_low, files_high]) = (&window.touched, window.used_bytes, window.touched.files());
    let anon = [touched.anon_reused_bytes, touched.anon_reused_whole_bytes, touched.anon_first_bytes];
    let [a, b, c, d, e, f, g] = [low, high, anon[0], anon[1], anon[2], files_low, files_high].map(|it| Some(float(it)));
    let truth = window.truth;
    let compared = [truth.map(|truth| truth.log_bytes), truth.map(|truth| truth.counted_bytes)];
    [Some(window.window_s), a, b, c, d, e, f, g, window.work_share, Some(window.system_s), compared[0], compared[1]]
}

/// Means of figures; `None` where any is missing.
fn mean(all: &[Figures]) -> Figures {
    std::array::from_fn(|column| {
        let values: Option<Vec<f64>> = all.iter().map(|figures| figures[column]).collect();
        stats::mean(&values?)
    })
}

fn cells([window_s, bytes @ .., share, system_s, log, counted]: Figures) -> Vec<String> {
    let off = log.zip(counted).filter(|(log, _)| *log > 0.0).map(|(log, counted)| 100.0 * (counted / log - 1.0));
    std::iter::once(shown(window_s, |seconds| format!("{seconds} s")))
        .chain(bytes.map(size))
        .chain([figure(share.map(|share| 100.0 * share), 0, " %"), figure(system_s, 2, " s")])
        .chain([size(log), signed_percent(off)])
        .collect()
}
