//! Intervals from a sample of pages: working sets, and lowtide's budget.

use std::collections::BTreeMap;

use lowtide_model::PAGE;
use lowtide_model::WINDOWS_S;
use lowtide_model::budget::{Budget, Known, OwnBudgets};
use lowtide_model::choice::{Choice, level_for};
use lowtide_model::cohort::{AgeBin, AgeRow, Cohort, Estimate, Found, Totals, Walk};
use lowtide_model::episode::{Episode, PageKey, PageKind};
use lowtide_model::meta::Meta;
use lowtide_model::random::{Random, mix};
use lowtide_model::units::{count, float};
use lowtide_model::usage::Usage;

use super::{CoverageArgs, LENGTHS, Line};

/// Pages of a program, all of them anonymous.
const PAGES: u64 = 1 << 13;
/// Pages that are sampled, at most.
const LIMIT: u64 = 300;
/// What a program may lose within its budget.
const ALLOWED: f64 = 0.02;

/// Whether a program uses a page in a second.
type Use = fn(u64, u64) -> bool;

const PROGRAMS: [(&str, Use); 5] = [
    ("steady, scattered", |page, _| mix(page).is_multiple_of(8)),
    ("steady, in one piece", |page, _| page < PAGES / 8),
    ("steady, in 64 pieces", |page, _| page % (PAGES / 64) < PAGES / 512),
    ("drifting", |page, second| (page + PAGES - second * (PAGES / 256)) % PAGES < PAGES / 8),
    ("bursty", |page, second| in_bursts(page, second) || rarely(page, second)),
];

/// One page in four is used in one second of sixteen, each at times of its own.
fn rarely(page: u64, second: u64) -> bool {
    mix(page ^ 0x5eed).is_multiple_of(4) && mix(page << 20 ^ second).is_multiple_of(16)
}

/// A quarter of the pages for seven seconds, then a sixteenth for seven.
fn in_bursts(page: u64, second: u64) -> bool {
    mix(page).is_multiple_of(if (second / 7).is_multiple_of(2) { 4 } else { 16 })
}

/// A cohort's readings of a program.
struct Watched {
    cohort: Cohort,
    totals: Totals,
    ages: Vec<AgeRow>,
    episodes: Vec<Episode>,
}

fn watch(uses: Use, limit: u64, seed: u64, seconds: u64) -> Watched {
    let choice = Choice { level: level_for(PAGES, limit), seed, turn: 0 };
    let found = |page| Found {
        key: PageKey { space: 1, page },
        kind: PageKind::Anon,
        frame: page,
        node: 0,
        share: 1.0,
        allocated_s: Some(0.0),
    };
    let found: Vec<Found> = choice.pages_in(0, PAGES).map(found).collect();
    let totals = [bytes(PAGES), 0.0, 0.0];
    // A budget takes only the total from histograms.
    let size = Estimate { bytes: totals[0], ci95: 0.0 };
    let all = AgeBin { anon: true, min_s: 0.0, max_s: None, size, first_touched: None };
    let (mut cohort, mut ages, mut episodes) = (Cohort::new(1.0), Vec::new(), Vec::new());
    cohort.refresh(
        0.0,
        &Walk { found: &found, pages_each: [choice.pages_each(); 3], totals: totals.map(Some) },
        &mut episodes,
    );
    for second in 1..=seconds {
        let t_s = float(second);
        cohort.tick(t_s, |frame| Some(uses(frame, second)));
        ages.push(AgeRow { t_s, bin: all });
    }
    Watched { cohort, totals, ages, episodes }
}

/// The longest window that so many seconds fill, and its index.
fn window(seconds: u64) -> Option<(usize, u64)> {
    WINDOWS_S.into_iter().map(u64::from).enumerate().rfind(|(_, window)| *window <= seconds)
}

/// Bytes that a program uses in its last seconds.
fn used(uses: Use, seconds: u64, window: u64) -> f64 {
    let is_used = |page: &u64| (seconds + 1 - window..=seconds).any(|second| uses(*page, second));
    float((0..PAGES).filter(is_used).count()) * float(PAGE)
}

/// lowtide's budget from these readings.
fn budget(mut watched: Watched) -> Option<Budget> {
    watched.cohort.finish(&mut watched.episodes);
    let meta = Meta::default();
    let row = |t_s| Usage { t_s: Some(t_s), anon_bytes: Some(bytes(PAGES)), file_bytes: Some(0.0), ..Usage::default() };
    let rows = [row(0.0), row(1.0)];
    let known = Known { ages: &watched.ages, episodes: &watched.episodes, ..Known::of(&meta, &rows) };
    OwnBudgets::of(&known, ALLOWED).chosen
}

pub fn lines(args: &CoverageArgs) -> Vec<Line> {
    let mut lines = Vec::new();
    for (program, uses) in PROGRAMS {
        let truths: BTreeMap<usize, _> = LENGTHS.map(|length| (length, working_set(uses, length))).into();
        lines.push(args.line(("working set of a tick", program), 60, |random, length| {
            let (at, truth) = truths[&length]?;
            let seconds = seconds(length);
            let watched = watch(uses, LIMIT, random.number(), seconds);
            let set = watched.cohort.picture(float(seconds), watched.totals).working_set[at]?;
            Some((set.bytes - truth).abs() <= set.ci95)
        }));
    }
    for (program, uses) in PROGRAMS {
        // With every page sampled, the budget is exact.
        let exact = |length| Some(budget(watch(uses, PAGES, 1, seconds(length)))?.bytes);
        let lengths = LENGTHS.into_iter().filter(|length| *length <= LONGEST_BUDGET);
        let truths: BTreeMap<usize, _> = lengths.map(|length| (length, exact(length))).collect();
        lines.push(args.line(("budget", program), LONGEST_BUDGET, |random: &mut Random, length| {
            let truth = truths[&length]?;
            let [low, high] = budget(watch(uses, LIMIT, random.number(), seconds(length)))?.interval_bytes?;
            Some(low <= truth && truth <= high)
        }));
    }
    lines
}

/// The longest window of a run: its index, and the bytes used within it at the end.
fn working_set(uses: Use, length: usize) -> Option<(usize, f64)> {
    let seconds = seconds(length);
    window(seconds).map(|(at, window)| (at, used(uses, seconds, window)))
}

fn seconds(length: usize) -> u64 {
    count(length)
}

/// Seconds sampled for a budget, at most: more would take long.
const LONGEST_BUDGET: usize = 30;

fn bytes(pages: u64) -> f64 {
    float(pages * PAGE)
}
