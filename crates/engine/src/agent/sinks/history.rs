//! The past of the agent's targets, to be shown: memory, working sets and pressure over the last hour, and the actions on them.
//! Bounded, whatever happens; no clock, no I/O.

use std::collections::{BTreeMap, VecDeque};

use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{AgeBin, AgeRow, Estimate};
use lowtide_model::curve::Curve;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::target::TargetId;
use lowtide_model::units::single;

use crate::agent::serve::api::ActionTaken;

/// So far back the curve and the ages reach, seconds.
pub const SPAN_S: f64 = 3600.0;
/// Bytes that the samples of all targets may take.
const BUDGET: usize = 2 << 20;
/// Samples of one target: at least, whatever the budget, and at most.
const SAMPLES: (usize, usize) = (12, 60);
/// Actions on all targets that are kept, as long as that is enough of each.
const ALL_ACTIONS: usize = 4000;
/// Actions on one target: at least, and at most.
const ACTIONS: (usize, usize) = (4, 50);
/// Time between two samples of a target that was just found, seconds. It doubles whenever there is no room left.
const FIRST_STEP_S: f64 = 5.0;
/// Pressure is averaged over no less, seconds: a turn may come a moment after another.
const PRESSURE_S: f64 = 10.0;

/// Bytes that were used within each of [`WINDOWS_S`].
pub type Used = [Option<PerKind<f64>>; WINDOWS_S.len()];

/// A target as it was just observed.
#[derive(Debug, Clone, Copy)]
pub struct TargetReading<'a> {
    /// Which.
    pub id: TargetId,
    /// Bytes in memory.
    pub resident: PerKind<f64>,
    /// Bytes paged out.
    pub swapped: f64,
    /// Seconds so far that some of its tasks stalled on memory.
    pub stalled_s: Option<f64>,
    /// Idle ages, where they were just sampled.
    pub ages: &'a [AgeBin],
}

/// A target at one time. Half a page of memory each is kept of many, so figures are single.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HistorySample {
    /// When, seconds since the agent's start.
    pub t_s: f32,
    /// Bytes paged out.
    pub swapped: f32,
    /// Bytes in memory.
    pub resident: PerKind<f32>,
    /// Mean of what was used within each window since the sample before; not a number where nothing was sampled.
    used: [PerKind<f32>; WINDOWS_S.len()],
}

/// The past of one target.
#[derive(Debug)]
pub struct Track {
    /// Share of the last [`PRESSURE_S`] or more that some of its tasks stalled on memory.
    pub pressure: Option<f64>,
    /// When that began to be counted, and how long they had stalled until then.
    stalled: Option<(f64, f64)>,
    /// What was used within each window when that was last known.
    pub used: Used,
    /// Sums of it since the last sample, and of how many readings.
    sums: [(PerKind<f32>, u16); WINDOWS_S.len()],
    /// The last reading; what was used is in the sums.
    last: HistorySample,
    step_s: f64,
    samples: VecDeque<HistorySample>,
    actions: VecDeque<ActionTaken>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct History {
    /// By target.
    pub tracks: BTreeMap<TargetId, Track>,
    /// When they were last observed, seconds since the agent's start.
    pub now_s: f64,
}

impl History {
    /// Takes an observation of all targets; those that are not among them are gone.
    pub fn observe<'a>(&mut self, now_s: f64, all: impl Iterator<Item = TargetReading<'a>>) {
        self.now_s = now_s;
        let mut before = std::mem::take(&mut self.tracks);
        for reading in all {
            let mut track = before.remove(&reading.id).unwrap_or_default();
            track.observe(now_s, &reading);
            self.tracks.insert(reading.id, track);
        }
        let (samples, actions) = rooms(self.tracks.len());
        for track in self.tracks.values_mut() {
            track.sample(now_s, samples);
            while track.actions.len() > actions {
                track.actions.pop_front();
            }
        }
    }

    /// Takes an action on a target; one that is not known any more has no log.
    pub fn acted(&mut self, id: TargetId, action: ActionTaken) {
        let (_, room) = rooms(self.tracks.len());
        let Some(track) = self.tracks.get_mut(&id) else { return };
        if track.actions.len() >= room {
            track.actions.pop_front();
        }
        track.actions.push_back(action);
    }
}

/// Samples and actions of each target for which there is room, if there are so many.
fn rooms(targets: usize) -> (usize, usize) {
    let each = |all: usize, (least, most): (usize, usize)| (all / targets.max(1)).clamp(least, most);
    (each(BUDGET / size_of::<HistorySample>(), SAMPLES), each(ALL_ACTIONS, ACTIONS))
}

impl Default for Track {
    fn default() -> Self {
        Self {
            pressure: None,
            stalled: None,
            used: Used::default(),
            sums: Default::default(),
            last: HistorySample::default(),
            step_s: FIRST_STEP_S,
            samples: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }
}

impl Track {
    fn observe(&mut self, now_s: f64, reading: &TargetReading<'_>) {
        let TargetReading { resident, swapped, stalled_s, ages, .. } = *reading;
        self.last =
            HistorySample { t_s: single(now_s), resident: resident.map(single), swapped: single(swapped), ..self.last };
        match (self.stalled, stalled_s) {
            (Some((since_s, before_s)), Some(stalled_s)) if now_s - since_s >= PRESSURE_S => {
                self.pressure = Some(((stalled_s - before_s) / (now_s - since_s)).clamp(0.0, 1.0));
                self.stalled = Some((now_s, stalled_s));
            }
            (None, Some(stalled_s)) => self.stalled = Some((now_s, stalled_s)),
            (_, None) => (self.pressure, self.stalled) = (None, None),
            _ => {}
        }
        for (at, window) in WINDOWS_S.iter().enumerate() {
            let Some(used) = used_within(ages, f64::from(*window)) else { continue };
            // A cgroup that was removed before may be listed under the same path.
            let used = used.zip(resident).map(|(used, resident)| used.min(resident));
            self.used[at] = Some(used);
            let (sum, readings) = &mut self.sums[at];
            *sum += used.map(single);
            *readings = readings.saturating_add(1);
        }
    }

    /// Makes a sample, where it is time.
    fn sample(&mut self, now_s: f64, room: usize) {
        // Observations come a little early or late.
        if self.samples.back().is_some_and(|last| now_s - f64::from(last.t_s) < 0.9 * self.step_s) {
            return;
        }
        let sample = self.pending(now_s);
        self.sums = Default::default();
        while self.samples.front().is_some_and(|first| now_s - f64::from(first.t_s) > SPAN_S) {
            self.samples.pop_front();
        }
        // Before it is added: a deque that is full doubles.
        while self.samples.len() >= room {
            let pairs: Vec<HistorySample> = self.samples.make_contiguous().chunks(2).map(together).collect();
            self.samples = pairs.into();
            self.step_s *= 2.0;
        }
        self.samples.push_back(sample);
    }

    /// The sample that is being made.
    fn pending(&self, now_s: f64) -> HistorySample {
        let mean = |(sum, readings): (PerKind<f32>, u16)| {
            if readings == 0 { PerKind::both(f32::NAN) } else { sum.map(|sum| sum / f32::from(readings)) }
        };
        HistorySample { t_s: single(now_s), used: self.sums.map(mean), ..self.last }
    }

    /// Its samples, oldest first; the last is of now.
    pub fn samples(&self, now_s: f64) -> Vec<HistorySample> {
        let newest = self.samples.back().is_none_or(|last| f64::from(last.t_s) < now_s).then(|| self.pending(now_s));
        let recent = self.samples.iter().filter(|sample| now_s - f64::from(sample.t_s) <= SPAN_S);
        recent.copied().chain(newest).collect()
    }

    /// The actions on it, oldest first.
    pub fn actions(&self) -> impl DoubleEndedIterator<Item = &ActionTaken> {
        self.actions.iter()
    }

    /// Its working set within the longest window that is known: the window, seconds, and bytes.
    pub fn working_set(&self) -> Option<(u32, PerKind<f64>)> {
        WINDOWS_S.into_iter().zip(self.used).filter_map(|(window, used)| Some((window, used?))).next_back()
    }

    /// The tide curve of what was observed; `None` where that shows too little.
    pub fn curve(&self, now_s: f64) -> Option<Curve> {
        let rows: Vec<AgeRow> = self.samples(now_s).iter().flat_map(HistorySample::ages).collect();
        Curve::of(&rows, &[], self.step_s)
    }
}

/// Two samples that follow each other as one; or a single one as it is.
fn together(pair: &[HistorySample]) -> HistorySample {
    let [first, last] = *pair else { return pair[0] };
    let mean = |(a, b): (f32, f32)| match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ => 0.5 * (a + b),
    };
    HistorySample {
        swapped: mean((first.swapped, last.swapped)),
        resident: first.resident.zip(last.resident).map(mean),
        used: std::array::from_fn(|at| first.used[at].zip(last.used[at]).map(mean)),
        ..last
    }
}

impl HistorySample {
    /// Bytes that were used within a window; `None` where nothing was sampled.
    pub fn used(&self, window: usize) -> Option<PerKind<f64>> {
        self.used.get(window).filter(|used| !used.anon.is_nan()).map(|used| used.map(f64::from))
    }

    /// Idle ages as a histogram.
    fn ages(&self) -> Vec<AgeRow> {
        let known = |window: usize| Some((f64::from(WINDOWS_S[window]), self.used(window)?));
        let edges: Vec<(f64, PerKind<f64>)> = (0..WINDOWS_S.len()).filter_map(known).collect();
        if edges.is_empty() {
            return Vec::new();
        }
        let mut rows = Vec::new();
        for kind in Kind::ALL {
            let edges = edges.iter().map(|(edge_s, used)| (*edge_s, used[kind]));
            let bins = bins(kind, edges, f64::from(self.resident[kind]));
            rows.extend(bins.into_iter().map(|bin| AgeRow { t_s: f64::from(self.t_s), bin }));
        }
        rows
    }
}

/// A histogram of idle ages from the bytes used within each window, shortest first, and all bytes. Windows are sampled at
/// different times: a longer one may hold less.
pub(crate) fn bins(kind: Kind, windows: impl Iterator<Item = (f64, f64)>, total: f64) -> Vec<AgeBin> {
    let (mut reached, mut min_s) = (0.0, 0.0);
    let mut bin = |max_s: Option<f64>, used: f64| {
        let size = Estimate { bytes: f64::max(used - reached, 0.0), ci95: 0.0 };
        let bin = AgeBin { anon: kind == Kind::Anon, min_s, max_s, size, first_touched: None };
        (reached, min_s) = (f64::max(reached, used), max_s.unwrap_or(min_s));
        bin
    };
    let mut bins: Vec<AgeBin> = windows.map(|(window_s, used)| bin(Some(window_s), used)).collect();
    bins.push(bin(None, total));
    bins
}

/// Bytes that were used within a window, where a histogram has such an edge.
fn used_within(ages: &[AgeBin], window_s: f64) -> Option<PerKind<f64>> {
    let of = |anon: bool| lowtide_model::cohort::used_within(ages.iter().filter(|bin| bin.anon == anon), window_s);
    Some(PerKind { anon: of(true)?, file: of(false)? })
}

#[cfg(test)]
mod tests;
