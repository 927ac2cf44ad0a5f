//! The figures of one moment, as the screen and JSON have them.

use lowtide_model::WINDOWS_S;
use lowtide_model::bottom_line::Steady;
use lowtide_model::meta::{Meta, Refusal};
use lowtide_model::units::rounded;
use lowtide_model::usage::Usage;
use lowtide_report::bottom_line::in_use;
use serde::Serialize;

use super::history::{AgesRead, TargetHistory};

/// Bytes that were used within a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct UsedWithin {
    /// The window, seconds.
    pub window_s: u32,
    /// Bytes; `None` until they were read.
    pub bytes: Option<u64>,
    /// Half-width of their 95 % interval; `None` where pages were not sampled, but counted.
    pub ci95_bytes: Option<u64>,
    /// When the window ended, seconds since the start.
    pub t_s: Option<f64>,
}

/// Bytes by the time since they were last used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct IdleBytes {
    /// Idle at least so long, seconds.
    pub min_s: f64,
    /// Idle less than that, seconds; `None` = no upper bound known.
    pub max_s: Option<f64>,
    /// Anonymous bytes.
    pub anon_bytes: u64,
    /// Bytes of files.
    pub file_bytes: u64,
}

/// The figures of one moment. `None` = not measurable here, or not measured yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WatchFigures {
    /// Seconds since the start.
    pub t_s: f64,
    /// Seconds over which the rates are.
    pub over_s: f64,
    /// Resident memory, bytes.
    pub resident_bytes: Option<u64>,
    /// Anonymous memory, bytes.
    pub anon_bytes: Option<u64>,
    /// File memory, bytes.
    pub file_bytes: Option<u64>,
    /// Swapped-out memory, bytes.
    pub swapped_bytes: Option<u64>,
    /// Working sets, by window.
    pub working_set: Vec<UsedWithin>,
    /// When the idle ages were read, seconds since the start.
    pub ages_t_s: Option<f64>,
    /// Idle ages.
    pub ages: Vec<IdleBytes>,
    /// Page faults a second that were served without I/O.
    pub minor_faults_per_s: Option<f64>,
    /// Page faults a second that waited for I/O.
    pub major_faults_per_s: Option<f64>,
    /// Refaults a second, anonymous and file.
    pub refaults_per_s: Option<f64>,
    /// Share of the time in which some task stalled on memory, percent.
    pub memory_some_percent: Option<f64>,
    /// Share of the time in which all tasks stalled on memory, percent.
    pub memory_full_percent: Option<f64>,
    /// The monitor at work.
    pub monitor: String,
    /// Better monitors that cannot serve.
    pub refused: Vec<Refusal>,
    /// What measuring cost so far, percent of one CPU.
    pub monitor_cpu_percent: Option<f64>,
    /// The steady state so far, as the bottom line of a record has it; `None` while it grows.
    pub steady: Option<Steady>,
    /// Use in it, in words; `None` until there is a reading in one.
    #[serde(skip)]
    pub bottom_line: Option<String>,
}

impl WatchFigures {
    /// The figures of a history, with rates over the last `over_s`.
    #[must_use]
    pub fn of(history: &TargetHistory, meta: &Meta, over_s: f64) -> Self {
        let bytes = |get: fn(&Usage) -> Option<f64>| history.newest(get).map(|(_, bytes)| rounded(bytes));
        let rate = |get: fn(&Usage) -> Option<f64>| history.rate(over_s, get).map(tidy);
        let percent =
            |get: fn(&Usage) -> Option<f64>| history.rate(over_s, get).map(|share| tidy(100.0 * share).min(100.0));
        let so_far = history.bottom_line(meta);
        let used = WINDOWS_S.map(|window_s| {
            let read = history.working_set(window_s);
            UsedWithin {
                window_s,
                bytes: read.map(|(_, set)| rounded(set.bytes)),
                ci95_bytes: read.map(|(_, set)| set.ci95).filter(|half| *half > 0.0).map(rounded),
                t_s: read.map(|(t_s, _)| t_s),
            }
        });
        let now_s = history.now_s();
        let cost = history.newest(|row| row.monitor_cpu_s).filter(|(t_s, _)| *t_s > 0.0);
        Self {
            t_s: now_s,
            over_s,
            resident_bytes: bytes(Usage::held),
            anon_bytes: bytes(|row| row.anon_bytes),
            file_bytes: bytes(|row| row.file_bytes),
            swapped_bytes: bytes(|row| row.swap_bytes),
            working_set: used.to_vec(),
            ages_t_s: history.ages.as_ref().map(|ages| ages.at_s),
            ages: history.ages.as_ref().map(idle).unwrap_or_default(),
            minor_faults_per_s: rate(|row| row.minor_faults),
            major_faults_per_s: rate(|row| row.major_faults),
            refaults_per_s: rate(refaults),
            memory_some_percent: percent(|row| row.memory_some_s),
            memory_full_percent: percent(|row| row.memory_full_s),
            monitor: history.backend.clone(),
            refused: meta.monitor.refused.clone(),
            monitor_cpu_percent: cost.map(|(t_s, spent_s)| tidy(100.0 * spent_s / t_s)),
            bottom_line: so_far.as_ref().and_then(in_use),
            steady: so_far.map(|line| line.steady),
        }
    }

    /// What was used within a window.
    #[must_use]
    pub fn used_within(&self, window_s: u32) -> UsedWithin {
        let found = self.working_set.iter().find(|used| used.window_s == window_s);
        found.copied().unwrap_or(UsedWithin { window_s, ..UsedWithin::default() })
    }
}

/// Digits that mean something.
fn tidy(figure: f64) -> f64 {
    (1e3 * figure).round() / 1e3
}

fn refaults(row: &Usage) -> Option<f64> {
    row.refault_anon.zip(row.refault_file).map(|(anon, file)| anon + file).or(row.refault_anon).or(row.refault_file)
}

/// Bins of both kinds side by side, ascending.
fn idle(ages: &AgesRead) -> Vec<IdleBytes> {
    let mut all: Vec<IdleBytes> = Vec::new();
    for bin in &ages.bins {
        let is_same = |of: &&mut IdleBytes| of.min_s.total_cmp(&bin.min_s).is_eq() && of.max_s == bin.max_s;
        let bytes = rounded(bin.size.bytes);
        let (anon_bytes, file_bytes) = if bin.anon { (bytes, 0) } else { (0, bytes) };
        match all.iter_mut().find(is_same) {
            Some(of) => (of.anon_bytes, of.file_bytes) = (of.anon_bytes + anon_bytes, of.file_bytes + file_bytes),
            None => all.push(IdleBytes { min_s: bin.min_s, max_s: bin.max_s, anon_bytes, file_bytes }),
        }
    }
    all.sort_by(|a, b| a.min_s.total_cmp(&b.min_s));
    all
}
