//! Intervals that rest on a sample of pages: working sets, and lowtide's budget.

use lowtide_model::PAGE;
use lowtide_model::WINDOWS_S;
use lowtide_model::budget::{Budget, Known, Mechanism, budgets};
use lowtide_model::choice::{Choice, level_for};
use lowtide_model::cohort::{AgeBin, AgeRow, Cohort, Estimate, Found, Totals};
use lowtide_model::episode::{Episode, PageKey, PageKind};
use lowtide_model::meta::Meta;
use lowtide_model::random::{Random, mix};
use lowtide_model::usage::Usage;

use super::{Args, LENGTHS, Line};

/// Pages of a program, all of them anonymous.
const PAGES: u64 = 1 << 13;
/// Pages that are watched, at most.
const LIMIT: u64 = 300;
/// What a program may lose within its budget.
const ALLOWED: f64 = 0.02;

/// Whether a program uses a page in a second.
type Use = fn(u64, usize) -> bool;

const PROGRAMS: [(&str, Use); 5] = [
    ("steady, scattered", |page, _| mix(page).is_multiple_of(8)),
    ("steady, in one piece", |page, _| page < PAGES / 8),
    ("steady, in 64 pieces", |page, _| page % (PAGES / 64) < PAGES / 512),
    ("drifting", |page, second| (page + PAGES - second as u64 * (PAGES / 256)) % PAGES < PAGES / 8),
    ("bursty", |page, second| in_bursts(page, second) || now_and_then(page, second)),
];

/// One page in four is used now and then, each at times of its own.
fn now_and_then(page: u64, second: usize) -> bool {
    mix(page ^ 0x5eed).is_multiple_of(4) && mix(page << 20 ^ second as u64).is_multiple_of(16)
}

/// A quarter of the pages for seven seconds, and then a sixteenth for as long.
fn in_bursts(page: u64, second: usize) -> bool {
    mix(page).is_multiple_of(if (second / 7).is_multiple_of(2) { 4 } else { 16 })
}

/// What a cohort saw of a program.
struct Watched {
    cohort: Cohort,
    totals: Totals,
    ages: Vec<AgeRow>,
    episodes: Vec<Episode>,
}

fn watch(uses: Use, limit: u64, seed: u64, seconds: usize) -> Watched {
    let choice = Choice { level: level_for(PAGES, limit), seed, turn: 0 };
    let found = |page| Found {
        key: PageKey { space: 1, page },
        kind: PageKind::Anon,
        frame: page,
        weight: 1.0,
        allocated_s: Some(0.0),
    };
    let found: Vec<Found> = choice.pages_in(0, PAGES).map(found).collect();
    let totals = [bytes(PAGES), 0.0, 0.0];
    // How large it is, is all that a budget takes from histograms.
    let size = Estimate { bytes: totals[0], ci95: 0.0 };
    let whole = AgeBin { anon: true, min_s: 0.0, max_s: None, size, first_touched: None };
    let (mut cohort, mut ages, mut episodes) = (Cohort::new(1.0), Vec::new(), Vec::new());
    cohort.refresh(0.0, &found, [choice.pages_each(); 3], totals.map(Some), &mut episodes);
    for second in 1..=seconds {
        let t_s = count(second);
        cohort.tick(t_s, |frame| Some(uses(frame, second)), &mut episodes);
        ages.push(AgeRow { t_s, bin: whole });
    }
    Watched { cohort, totals, ages, episodes }
}

/// The longest window that so many seconds fill, and its place.
fn window(seconds: usize) -> Option<(usize, usize)> {
    let mut windows = WINDOWS_S.iter().map(|window| *window as usize).enumerate();
    windows.rfind(|(_, window)| *window <= seconds)
}

/// Bytes that a program uses in its last seconds.
fn used(uses: Use, seconds: usize, window: usize) -> f64 {
    let is_used = |page: &u64| (seconds + 1 - window..=seconds).any(|second| uses(*page, second));
    bytes((0..PAGES).filter(is_used).count() as u64)
}

/// lowtide's budget from what was watched.
fn budget(mut watched: Watched) -> Option<Budget> {
    watched.cohort.finish(&mut watched.episodes);
    let meta = Meta::default();
    let row = |t_s| Usage { t_s: Some(t_s), anon_bytes: Some(bytes(PAGES)), file_bytes: Some(0.0), ..Usage::default() };
    let rows = [row(0.0), row(1.0)];
    let known = Known { ages: &watched.ages, episodes: &watched.episodes, ..Known::of(&meta, &rows) };
    budgets(&known, ALLOWED).into_iter().find(|budget| budget.mechanism == Mechanism::Lowtide)
}

pub fn lines(args: &Args) -> Vec<Line> {
    let mut lines = Vec::new();
    for (program, uses) in PROGRAMS {
        let asked = |seconds: usize| window(seconds).map(|(at, window)| (at, used(uses, seconds, window)));
        let truths = LENGTHS.map(asked);
        lines.push(args.line(("working set of a tick", program), 60, |random, seconds| {
            let (at, truth) = truths[LENGTHS.iter().position(|length| *length == seconds)?]?;
            let watched = watch(uses, LIMIT, random.number(), seconds);
            let set = watched.cohort.picture(count(seconds), watched.totals).working_set[at]?;
            Some((set.bytes - truth).abs() <= set.ci95)
        }));
    }
    for (program, uses) in PROGRAMS {
        // Where every page is watched, nothing is left to chance.
        let truth = |seconds| Some(budget(watch(uses, PAGES, 1, seconds))?.bytes);
        let truths = LENGTHS.map(|seconds| if seconds <= LONGEST_BUDGET { truth(seconds) } else { None });
        lines.push(args.line(("budget", program), LONGEST_BUDGET, |random: &mut Random, seconds| {
            let truth = truths[LENGTHS.iter().position(|length| *length == seconds)?]?;
            let [low, high] = budget(watch(uses, LIMIT, random.number(), seconds))?.interval_bytes?;
            Some(low <= truth && truth <= high)
        }));
    }
    lines
}

/// Seconds watched for a budget, at most: beyond, it takes long.
const LONGEST_BUDGET: usize = 30;

#[expect(clippy::cast_precision_loss, reason = "sizes of memory")]
fn bytes(pages: u64) -> f64 {
    (pages * PAGE) as f64
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
fn count(value: usize) -> f64 {
    value as f64
}
