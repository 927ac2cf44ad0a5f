//! What the agent remembers of its workloads, to be shown: how they are, how they were in the last hour, and what was
//! done to them and why. Bounded, whatever happens; no clock, no I/O.

use std::collections::{BTreeMap, VecDeque};

use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{AgeBin, AgeRow, Estimate};
use lowtide_model::curve::{Curve, SIDES};
use lowtide_model::target::TargetId;

use crate::event::Deed;

/// So far back the curve and the ages reach, seconds.
pub const SPAN_S: f64 = 3600.0;
/// Bytes that the samples of all workloads may take.
const BUDGET: usize = 6 << 20;
/// Samples of one workload: at least, whatever the budget, and at most.
const SAMPLES: (usize, usize) = (12, 60);
/// Actions of all workloads that are kept, as long as that is enough of each.
const ALL_ACTIONS: usize = 4000;
/// Actions of one workload: at least, and at most.
const ACTIONS: (usize, usize) = (4, 50);
/// Time between two samples of a workload that was just found, seconds. It doubles whenever there is no room left.
const FIRST_STEP_S: f64 = 5.0;
/// Pressure is told over no less, seconds: a turn may come a moment after another.
const PRESSURE_S: f64 = 10.0;
/// No reason is longer, in letters.
const LONGEST: usize = 240;

/// Bytes of each side that were used within each of [`WINDOWS_S`].
pub type Used = [Option<[f64; SIDES]>; WINDOWS_S.len()];

/// What kind of thing a workload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A cgroup that the file names.
    Cgroup,
    /// A process, with what descends from it, that somebody gave a hint about.
    Process,
}

/// A workload as it was just observed.
#[derive(Debug, Clone)]
pub struct Shown<'a> {
    /// Which: never given to another one.
    pub id: TargetId,
    /// What kind.
    pub kind: Kind,
    /// Its path, or the process.
    pub name: &'a str,
    /// Name of its policy.
    pub policy: &'a str,
    /// Bytes in memory: anonymous, file.
    pub resident: [f64; SIDES],
    /// Bytes paged out.
    pub swapped: f64,
    /// Bytes that keeping them takes, as far as that is known.
    pub kept: Option<f64>,
    /// Seconds so far that some of its tasks stalled on memory.
    pub stalled_s: Option<f64>,
    /// Idle ages, where they were just sampled.
    pub ages: &'a [AgeBin],
}

/// How a workload was at one time. Half of a page of memory each is kept of many, so figures are short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When, seconds since the agent's start.
    pub t_s: f32,
    /// Bytes paged out.
    pub swapped: f32,
    /// Bytes in memory: anonymous, file.
    pub resident: [f32; SIDES],
    /// Mean of what was used within each window since the sample before; not a number where nothing was sampled.
    used: [[f32; SIDES]; WINDOWS_S.len()],
}

/// One thing that was done, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    /// When, seconds since the agent's start.
    pub t_s: f64,
    /// What.
    pub deed: Deed,
    /// Bytes that were asked for: anonymous, file; `None` = all that there is.
    pub asked: Option<[f64; SIDES]>,
    /// Bytes that it was in the end: anonymous, file.
    pub bytes: [f64; SIDES],
    /// Seconds that it took.
    pub took_s: f64,
    /// Why.
    pub reason: Box<str>,
    /// Why less was done than was asked for.
    pub stopped: Option<Box<str>>,
}

/// A reason as it is kept.
#[must_use]
pub fn cut(text: &str) -> Box<str> {
    text.chars().take(LONGEST).collect::<String>().into()
}

/// The past of one workload.
#[derive(Debug)]
pub struct Track {
    /// What kind.
    pub kind: Kind,
    /// Its path, or the process.
    pub name: Box<str>,
    /// Name of its policy.
    pub policy: Box<str>,
    /// Bytes in memory: anonymous, file.
    pub resident: [f64; SIDES],
    /// Bytes paged out.
    pub swapped: f64,
    /// Bytes that keeping them takes, as far as that is known.
    pub kept: Option<f64>,
    /// Share of the last [`PRESSURE_S`] or more that some of its tasks stalled on memory.
    pub pressure: Option<f64>,
    /// When that began to be counted, and how long they had stalled until then.
    stalled: Option<(f64, f64)>,
    /// What was used within each window when that was last known.
    pub used: Used,
    /// Sums of it since the last sample, and of how many samples.
    sums: [([f32; SIDES], u16); WINDOWS_S.len()],
    step_s: f64,
    samples: VecDeque<Sample>,
    actions: VecDeque<Act>,
}

/// All of them, by id.
#[derive(Debug, Default)]
pub struct History {
    tracks: BTreeMap<TargetId, Track>,
    now_s: f64,
}

impl History {
    /// Takes in an observation of all workloads; those that are not among them are gone.
    pub fn observe<'a>(&mut self, now_s: f64, all: impl Iterator<Item = Shown<'a>>) {
        self.now_s = now_s;
        let mut before = std::mem::take(&mut self.tracks);
        for shown in all {
            let mut known = before.remove(&shown.id).unwrap_or_else(|| Track::new(&shown));
            known.observe(now_s, &shown);
            self.tracks.insert(shown.id, known);
        }
        let (samples, actions) = rooms(self.tracks.len());
        for known in self.tracks.values_mut() {
            known.sample(now_s, samples);
            while known.actions.len() > actions {
                known.actions.pop_front();
            }
        }
    }

    /// Takes in what was done to a workload; one that is not known any more has no log.
    pub fn acted(&mut self, id: TargetId, act: Act) {
        let (_, room) = rooms(self.tracks.len());
        let Some(known) = self.tracks.get_mut(&id) else { return };
        if known.actions.len() >= room {
            known.actions.pop_front();
        }
        known.actions.push_back(act);
    }

    /// When they were last observed, seconds since the agent's start.
    #[must_use]
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// Workloads, by id.
    #[must_use]
    pub fn tracks(&self) -> &BTreeMap<TargetId, Track> {
        &self.tracks
    }
}

/// Samples and actions of each workload for which there is room, if there are so many.
fn rooms(workloads: usize) -> (usize, usize) {
    let each = |all: usize, (least, most): (usize, usize)| (all / workloads.max(1)).clamp(least, most);
    (each(BUDGET / size_of::<Sample>(), SAMPLES), each(ALL_ACTIONS, ACTIONS))
}

impl Track {
    fn new(shown: &Shown<'_>) -> Self {
        Self {
            kind: shown.kind,
            name: shown.name.into(),
            policy: shown.policy.into(),
            resident: [0.0; SIDES],
            swapped: 0.0,
            kept: None,
            pressure: None,
            stalled: None,
            used: Used::default(),
            sums: Default::default(),
            step_s: FIRST_STEP_S,
            samples: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    fn observe(&mut self, now_s: f64, shown: &Shown<'_>) {
        if *self.policy != *shown.policy {
            self.policy = shown.policy.into();
        }
        (self.resident, self.swapped, self.kept) = (shown.resident, shown.swapped, shown.kept);
        match (self.stalled, shown.stalled_s) {
            (Some((since_s, before_s)), Some(stalled_s)) if now_s - since_s >= PRESSURE_S => {
                self.pressure = Some(((stalled_s - before_s) / (now_s - since_s)).clamp(0.0, 1.0));
                self.stalled = Some((now_s, stalled_s));
            }
            (None, Some(stalled_s)) => self.stalled = Some((now_s, stalled_s)),
            (_, None) => (self.pressure, self.stalled) = (None, None),
            _ => {}
        }
        for (at, window) in WINDOWS_S.iter().enumerate() {
            let Some(used) = used_within(shown.ages, f64::from(*window)) else { continue };
            // A cgroup that was removed before may be listed under the same path.
            let used = [0, 1].map(|side| used[side].min(shown.resident[side]));
            self.used[at] = Some(used);
            let (sum, looks) = &mut self.sums[at];
            (0..SIDES).for_each(|side| sum[side] += short(used[side]));
            *looks = looks.saturating_add(1);
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
        self.samples.push_back(sample);
        while self.samples.front().is_some_and(|first| now_s - f64::from(first.t_s) > SPAN_S) {
            self.samples.pop_front();
        }
        while self.samples.len() > room {
            let pairs: Vec<Sample> = self.samples.make_contiguous().chunks(2).map(together).collect();
            self.samples = pairs.into();
            self.step_s *= 2.0;
        }
    }

    /// The sample that is being made.
    fn pending(&self, now_s: f64) -> Sample {
        let mean = |(sum, looks): ([f32; SIDES], u16)| {
            if looks == 0 { [f32::NAN; SIDES] } else { sum.map(|sum| sum / f32::from(looks)) }
        };
        let (resident, swapped) = (self.resident.map(short), short(self.swapped));
        Sample { t_s: short(now_s), swapped, resident, used: self.sums.map(mean) }
    }

    /// How it was, oldest first; the last is as it is now.
    #[must_use]
    pub fn samples(&self, now_s: f64) -> Vec<Sample> {
        let newest = self.samples.back().is_none_or(|last| f64::from(last.t_s) < now_s).then(|| self.pending(now_s));
        let recent = self.samples.iter().filter(|sample| now_s - f64::from(sample.t_s) <= SPAN_S);
        recent.copied().chain(newest).collect()
    }

    /// What was done to it, oldest first.
    pub fn actions(&self) -> impl DoubleEndedIterator<Item = &Act> {
        self.actions.iter()
    }

    /// What it uses: within how many seconds, and bytes of each side; of the longest window that is known.
    #[must_use]
    pub fn working_set(&self) -> Option<(u32, [f64; SIDES])> {
        WINDOWS_S.into_iter().zip(self.used).filter_map(|(window, used)| Some((window, used?))).next_back()
    }

    /// The tide curve of what was observed; `None` where that tells too little.
    #[must_use]
    pub fn curve(&self, now_s: f64) -> Option<Curve> {
        let rows: Vec<AgeRow> = self.samples(now_s).iter().flat_map(Sample::ages).collect();
        Curve::of(&rows, &[], self.step_s)
    }
}

/// Two samples that follow each other as one; or a single one as it is.
fn together(pair: &[Sample]) -> Sample {
    let last = pair[pair.len() - 1];
    let Some(first) = pair.first().filter(|_| pair.len() > 1) else { return last };
    let mean = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ => 0.5 * (a + b),
    };
    let sides = |a: [f32; SIDES], b: [f32; SIDES]| std::array::from_fn(|side| mean(a[side], b[side]));
    Sample {
        swapped: mean(first.swapped, last.swapped),
        resident: sides(first.resident, last.resident),
        used: std::array::from_fn(|at| sides(first.used[at], last.used[at])),
        ..last
    }
}

impl Sample {
    /// Bytes of each side that were used within a window; `None` where nothing was sampled.
    #[must_use]
    pub fn used(&self, window: usize) -> Option<[f64; SIDES]> {
        self.used.get(window).filter(|used| !used[0].is_nan()).map(|used| used.map(f64::from))
    }

    /// Idle ages as a histogram.
    fn ages(&self) -> Vec<AgeRow> {
        let mut rows = Vec::new();
        let edges: Vec<(f64, [f64; SIDES])> = (0..WINDOWS_S.len())
            .filter_map(|window| Some((f64::from(WINDOWS_S[window]), self.used(window)?)))
            .collect();
        if edges.is_empty() {
            return rows;
        }
        for side in 0..SIDES {
            let mut row = |min_s, max_s, bytes: f64| {
                let size = Estimate { bytes: bytes.max(0.0), ci95: 0.0 };
                rows.push(AgeRow {
                    t_s: f64::from(self.t_s),
                    bin: AgeBin { anon: side == 0, min_s, max_s, size, first_touched: None },
                });
            };
            let (mut reached, mut min_s): (f64, f64) = (0.0, 0.0);
            // Windows are sampled at different times: a longer one may hold less.
            for (edge, used) in &edges {
                row(min_s, Some(*edge), used[side] - reached);
                (reached, min_s) = (reached.max(used[side]), *edge);
            }
            row(min_s, None, f64::from(self.resident[side]) - reached);
        }
        rows
    }
}

/// Bytes of each side that were used within a window, where a histogram has such an edge.
fn used_within(ages: &[AgeBin], window_s: f64) -> Option<[f64; SIDES]> {
    let side = |anon: bool| lowtide_model::cohort::used_within(ages.iter().filter(|bin| bin.anon == anon), window_s);
    Some([side(true)?, side(false)?])
}

#[expect(clippy::cast_possible_truncation, reason = "seven digits are enough to show")]
fn short(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests;
