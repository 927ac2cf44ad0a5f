//! The bottom line's interval of what steady state uses, where windows are read in cycles with gaps between them.

use lowtide_model::bottom_line::BottomLine;
use lowtide_model::budget::{Known, OwnBudgets};
use lowtide_model::meta::Meta;
use lowtide_model::phase::{Phase, PhaseKind};
use lowtide_model::units::float;
use lowtide_model::usage::Usage;

use super::series::{SERIES, Series};
use super::{CoverageArgs, Line};

const NAME: &str = "steady use, sampled cycles";
/// Seconds between two clears of the accessed bits, and the window.
const CYCLE_S: usize = 20;
const WINDOW_S: usize = 10;
const MIB: f64 = 1_048_576.0;

pub fn lines(args: &CoverageArgs) -> Vec<Line> {
    let line = |(program, series): (_, Series)| {
        args.line((NAME, program), 30, move |random, cycles| {
            let (values, _) = series(random, CYCLE_S * cycles + 1);
            holds(&values.iter().map(|value| MIB * (500.0 + 30.0 * value)).collect::<Vec<f64>>())
        })
    };
    SERIES.into_iter().map(line).collect()
}

/// Whether the interval holds the mean of the window over the run that used so much in each second; `None` without one.
fn holds(used: &[f64]) -> Option<bool> {
    let window = |end: usize| used[end - WINDOW_S..end].iter().copied().fold(0.0, f64::max);
    let all: Vec<f64> = (WINDOW_S..=used.len()).map(window).collect();
    let truth = lowtide_model::stats::mean(&all)?;
    let row = |second: usize| Usage {
        t_s: u32::try_from(second).ok().map(f64::from),
        rss_bytes: Some(1000.0 * MIB),
        demand_bytes: Some(1000.0 * MIB),
        ws_10s_bytes: (second % CYCLE_S == WINDOW_S).then(|| window(second)),
        ..Usage::default()
    };
    let rows: Vec<Usage> = (0..used.len()).map(row).collect();
    let to_s = rows.last()?.t_s?;
    let phases = [Phase { kind: PhaseKind::Steady, from_s: 0.0, to_s }];
    let meta = Meta::default();
    let known = Known { phases: &phases, ..Known::of(&meta, &rows) };
    let of = BottomLine::of(&known, &OwnBudgets::of(&known, 0.02)).steady.used;
    let [low, high] = [float(of.used_low_bytes?), float(of.used_high_bytes?)];
    // They are rounded to bytes.
    Some(low - 1.0 <= truth && truth <= high + 1.0)
}
