//! The bottom line of a run: what to give the program, what it used in steady state, its start-up, and how sure that is.
//!
//! It is computed here and nowhere else; every view, `--emit` and `summary.json` show these numbers.

use serde::{Deserialize, Serialize};

use crate::budget::{self, Budget, Evidence, Known, LONG_ENOUGH_S, OwnBudgets};
use crate::interval::{mean_interval, series_interval};
use crate::phase::{Phase, PhaseKind};
use crate::stats;
use crate::units::{count, float, human_bytes, rounded};
use crate::usage::Usage;

/// The windows by which use is stated, the best first: long enough to hold what a program comes back to. A shorter one where
/// a phase is too short for [`FEWEST`] readings of a longer one.
const USE_WINDOWS_S: [u32; 3] = [10, 5, 1];
/// Windows by which it is known how much a longer one would hold.
const OTHER_WINDOWS_S: [u32; 4] = [1, 5, 10, 30];
/// A longer window is preferred from so many readings on.
const FEWEST: usize = 3;
/// Readings with gaps between them from which there is an interval. Of a program that works in bursts of up to 20 s, fewer are
/// too often alike by chance: intervals of three hold its mean in 67 % of cases, of five in 75 %, of ten in 90 %
/// (`lowtide-bench coverage`, sampled cycles).
const FEWEST_SAMPLED: usize = 8;
/// Ticks come a little early or late; seconds.
const JITTER_S: f64 = 0.5;

/// Bytes used within a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Mean over the readings.
    pub used_bytes: Option<u64>,
    /// Lower end of its 95 % interval; null where there are too few independent readings for one and no sample of pages.
    pub used_low_bytes: Option<u64>,
    /// Upper end of the interval.
    pub used_high_bytes: Option<u64>,
    /// Smallest reading.
    pub used_min_bytes: Option<u64>,
    /// Largest reading.
    pub used_max_bytes: Option<u64>,
    /// The window of these readings, seconds.
    pub window_s: Option<u32>,
    /// Readings that do not overlap.
    pub readings: u64,
}

/// A phase of the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PhaseUse {
    /// When, and what kind.
    #[serde(flatten)]
    pub phase: Phase,
    /// Highest resident set in it.
    pub resident_bytes: Option<u64>,
    /// Bytes that it touched for the first time: by how much demand rose.
    pub first_touched_bytes: Option<u64>,
    /// What it used.
    #[serde(flatten)]
    pub used: Use,
}

/// The steady state: all steady phases together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Seconds of it; 0 where the run never reached one.
    pub seconds: f64,
    /// Highest resident set in it.
    pub resident_bytes: Option<u64>,
    /// What it used.
    #[serde(flatten)]
    pub used: Use,
}

/// The start-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StartUp {
    /// Whether it was recorded.
    pub recorded: bool,
    /// How long it took, seconds.
    pub seconds: Option<f64>,
    /// Bytes that it touched.
    pub touched_bytes: Option<u64>,
}

/// The bottom line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BottomLine {
    /// What to give it where there is no swap.
    pub no_swap_bytes: Option<u64>,
    /// What to give it where there is swap; null where use was not measured, or where it would be no less.
    pub with_swap_bytes: Option<u64>,
    /// Swap that this needs.
    pub swap_bytes: Option<u64>,
    /// Share of the time that is predicted to be lost with it, percent.
    pub with_swap_slowdown_percent: Option<f64>,
    /// From what this was taken: `peak`, `histograms` or `pages`; null where nothing is known.
    pub basis: Option<String>,
    /// The most memory of all kinds that it ever had.
    pub peak_bytes: Option<u64>,
    /// Its steady state.
    pub steady: Steady,
    /// Its start-up.
    pub start_up: StartUp,
    /// The phases of the run, those of a second and more.
    pub phases: Vec<PhaseUse>,
    /// What is not known; a sentence each.
    pub doubts: Vec<String>,
}

impl BottomLine {
    /// The bottom line of a run with these budgets.
    #[must_use]
    pub fn of(known: &Known<'_>, own: &OwnBudgets) -> Self {
        let OwnBudgets { without_swap: no_swap, with_swap, .. } = *own;
        let live = known.live();
        let phases: Vec<PhaseUse> = known.phases.iter().map(|phase| phase_use(phase, live)).collect();
        let bytes = |budget: Option<&Budget>| budget.map(|budget| budget.bytes);
        let peak = budget::peak(known);
        Self {
            no_swap_bytes: bytes(no_swap.as_ref()),
            with_swap_bytes: bytes(with_swap.as_ref()),
            swap_bytes: with_swap.zip(no_swap).map(|(with, without)| without.bytes.saturating_sub(with.bytes)),
            with_swap_slowdown_percent: with_swap.and_then(|with| with.predicted_slowdown).map(|share| 100.0 * share),
            basis: no_swap.map(|own| basis(&own).to_owned()),
            peak_bytes: (peak > 0.0).then(|| rounded(peak)),
            steady: steady(known.phases, live),
            start_up: start_up(known, &phases),
            doubts: doubts(known, &phases, no_swap.as_ref()),
            phases: phases.into_iter().filter(|of| of.phase.seconds() >= 1.0).collect(),
        }
    }
}

fn basis(own: &Budget) -> &'static str {
    match own.basis {
        Evidence::Pages => "pages",
        Evidence::Histograms => "histograms",
        Evidence::Peak | Evidence::Accounts => "peak",
    }
}

/// A reading of a working set.
struct Reading {
    /// When its window ended, seconds.
    end_s: f64,
    bytes: f64,
    /// Half-width of its interval.
    half: f64,
}

/// Readings of one window that lie within some stretches of the run.
struct Readings {
    window_s: u32,
    all: Vec<Reading>,
    /// How many of them do not overlap.
    independent: usize,
    stretches: usize,
}

impl Readings {
    fn of(live: &[Usage], window_s: u32, spans: &[&Phase]) -> Self {
        let window = f64::from(window_s);
        let within = |from_s: f64, end_s: f64| {
            spans.iter().any(|span| from_s >= span.from_s - JITTER_S && end_s <= span.to_s + JITTER_S)
        };
        let mut before_s = None;
        let reading = |row: &Usage| {
            let (end_s, set) = row.t_s.zip(row.working_set(window_s))?;
            // A page that was found used was so at any time since the sample before. Only sampled pages have a sampling error.
            let gap_s = before_s.replace(end_s).map_or(2.0 * JITTER_S, |before_s| end_s - before_s);
            let reach_s = if set.ci95 > 0.0 { JITTER_S + gap_s } else { 0.0 };
            within(end_s - window - reach_s, end_s).then_some(Reading { end_s, bytes: set.bytes, half: set.ci95 })
        };
        let all: Vec<Reading> = spans.iter().flat_map(|span| span.rows(live)).filter_map(reading).collect();
        let independent = independent(all.iter().map(|one| one.end_s), window);
        Self { window_s, all, independent, stretches: spans.len() }
    }

    fn bytes(&self) -> Vec<f64> {
        self.all.iter().map(|one| one.bytes).collect()
    }

    /// Half-width of the interval of their mean.
    ///
    /// Readings that follow each other without gaps leave nothing of the run out, so that there is the sampling error, which does
    /// not shrink with time, and how much a longer run would differ where the series is long enough to show it. Readings with gaps
    /// between them are a sample of the run.
    ///
    /// `a_second` is how much more a window holds that is a second longer: ages are known to a tick, so that a window of watched pages
    /// may be longer or shorter by half of one.
    fn half_width(&self, a_second: f64) -> Option<f64> {
        let halves: Vec<f64> = self.all.iter().map(|one| one.half).collect();
        let sampling = stats::quantile(&halves, 0.5).unwrap_or(0.0);
        let sampling = if sampling > 0.0 { sampling.hypot(JITTER_S * a_second) } else { 0.0 };
        let longest_s = f64::from(self.window_s) + 2.0 * JITTER_S;
        let gapless = self.all.windows(2).all(|pair| pair[1].end_s - pair[0].end_s <= longest_s);
        let over_time = match gapless {
            true => series_interval(&self.bytes()).filter(|_| self.stretches == 1),
            false => mean_interval(&self.bytes()).filter(|_| self.independent >= FEWEST_SAMPLED),
        };
        match over_time {
            Some(interval) => Some(interval.with_sampling(sampling).half),
            None => (sampling > 0.0 && self.independent > 0).then_some(sampling),
        }
    }
}

/// How many of these readings (ascending) do not overlap.
#[must_use]
pub fn independent(ends_s: impl Iterator<Item = f64>, window_s: f64) -> usize {
    let (mut count, mut last_s) = (0, f64::NEG_INFINITY);
    for end_s in ends_s {
        if end_s - window_s >= last_s - JITTER_S {
            (count, last_s) = (count + 1, end_s);
        }
    }
    count
}

/// What was used within these stretches, by the longest window of which there are enough readings.
fn used(live: &[Usage], spans: &[&Phase]) -> Use {
    let all = USE_WINDOWS_S.map(|window_s| Readings::of(live, window_s, spans));
    let most = all.iter().map(|readings| readings.independent).max().unwrap_or(0);
    let enough = FEWEST.min(most.max(1));
    let Some(readings) = all.iter().find(|readings| readings.independent >= enough) else { return Use::default() };
    let values = readings.bytes();
    let Some(mean) = stats::mean(&values) else { return Use::default() };
    // By the next longer window, or else the next shorter one, as far as they were read in the same stretches.
    let mut others: Vec<u32> = OTHER_WINDOWS_S.into_iter().filter(|window_s| *window_s != readings.window_s).collect();
    others.sort_by_key(|window_s| (*window_s < readings.window_s, window_s.abs_diff(readings.window_s)));
    let a_second = others.iter().find_map(|window_s| {
        let other = stats::mean(&Readings::of(live, *window_s, spans).bytes())?;
        Some(((other - mean) / (f64::from(*window_s) - f64::from(readings.window_s))).max(0.0))
    });
    let half = readings.half_width(a_second.unwrap_or(0.0));
    Use {
        used_bytes: Some(rounded(mean)),
        used_low_bytes: half.map(|half| rounded(mean - half)),
        used_high_bytes: half.map(|half| rounded(mean + half)),
        used_min_bytes: values.iter().copied().reduce(f64::min).map(rounded),
        used_max_bytes: stats::max(&values).map(rounded),
        window_s: Some(readings.window_s),
        readings: count(readings.independent),
    }
}

fn phase_use(phase: &Phase, live: &[Usage]) -> PhaseUse {
    let steady = phase.kind == PhaseKind::Steady;
    PhaseUse {
        phase: *phase,
        resident_bytes: phase.rows(live).filter_map(Usage::held).reduce(f64::max).map(rounded),
        first_touched_bytes: phase.first_touched(live).map(rounded),
        // While memory is touched for the first time, readings do not say what is used again.
        used: if steady { used(live, &[phase]) } else { Use::default() },
    }
}

fn steady(phases: &[Phase], live: &[Usage]) -> Steady {
    let spans: Vec<&Phase> = phases.iter().filter(|phase| phase.kind == PhaseKind::Steady).collect();
    let resident = spans.iter().flat_map(|phase| phase.rows(live)).filter_map(Usage::held);
    Steady {
        seconds: spans.iter().fold(0.0, |sum, phase| sum + phase.seconds()),
        resident_bytes: resident.reduce(f64::max).map(rounded),
        used: used(live, &spans),
    }
}

fn start_up(known: &Known<'_>, phases: &[PhaseUse]) -> StartUp {
    let first = phases.first().filter(|of| of.phase.kind == PhaseKind::StartUp);
    StartUp {
        recorded: !known.meta.starts_late() && !phases.is_empty(),
        seconds: first.map(|of| of.phase.to_s),
        touched_bytes: first.and_then(|of| of.first_touched_bytes),
    }
}

/// Growth in steady phases that is worth saying, as a share of the peak.
const DRIFT: f64 = 0.1;

/// The exit code of a program that failed by itself.
fn failed(known: &Known<'_>) -> Option<i32> {
    let end = known.meta.end.as_ref().filter(|end| end.reason == "ended")?;
    end.exit_code.filter(|code| *code != 0)
}

fn doubts(known: &Known<'_>, phases: &[PhaseUse], own: Option<&Budget>) -> Vec<String> {
    let mut doubts = Vec::new();
    let kind = |of: &PhaseUse| of.phase.kind;
    let peak_alone = own.is_some_and(|own| own.basis == Evidence::Peak);
    let end_s = phases.last().map_or(0.0, |of| of.phase.to_s);
    if known.meta.starts_late() {
        let so = if own.is_some() { ", so no limit below the memory it held is given" } else { "" };
        doubts.push(format!("its start was not recorded{so}"));
    }
    let grew = !phases.is_empty() && phases.iter().all(|of| kind(of) != PhaseKind::Steady);
    if grew && end_s >= LONG_ENOUGH_S {
        doubts.push("it grew until its end and never reached a steady state".to_owned());
    } else if peak_alone && end_s < LONG_ENOUGH_S {
        doubts.push("it ran for less than 20 s, too short to show whether less memory suffices".to_owned());
    } else if peak_alone {
        let (why, fix) = if known.ages.is_empty() {
            ("no monitor sampled its accesses", "")
        } else {
            let fix = ": record it for longer, or raise `--max-overhead` of `lowtide run`";
            ("no cycle of readings fell into one steady phase", fix)
        };
        doubts.push(format!("{why}, so it is unknown whether less memory suffices{fix}"));
    }
    if budget::was_killed(known.rows) {
        let limit = known.meta.limit_bytes.map(|bytes| format!(" at its limit of {}", human_bytes(float(bytes))));
        let limit = limit.unwrap_or_default();
        doubts.push(format!("the kernel killed a process of it{limit} for lack of memory: it needs more than it had"));
    } else if let Some(code) = failed(known) {
        doubts.push(format!("it ended with exit code {code}: a run that succeeds may need more"));
    }
    let drift = phases.iter().filter(|of| kind(of) == PhaseKind::Steady).filter_map(|of| of.first_touched_bytes);
    let drift = drift.map(float).sum::<f64>();
    if drift > DRIFT * budget::peak(known) {
        doubts.push(format!("it still grows slowly: {} was added after the start-up", human_bytes(drift)));
    }
    let grown = phases.iter().rfind(|of| kind(of) != PhaseKind::Steady).filter(|of| kind(of) == PhaseKind::Growth);
    if let Some(grown) = grown.filter(|of| !grew && end_s - of.phase.to_s < LONG_ENOUGH_S) {
        let at_s = grown.phase.from_s;
        doubts.push(format!(
            "its memory grew again {at_s:.0} s after the start, too late to show how much of that stays in use"
        ));
    }
    if known.meta.end.is_none() {
        doubts.push("the record has no end: later use is unknown".to_owned());
    }
    doubts
}

#[cfg(test)]
mod tests;
