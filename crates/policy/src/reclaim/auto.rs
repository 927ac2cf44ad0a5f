//! A controller: the tide curve bounds what may go, the measured cost decides how fast it goes.
//!
//! What is cold is older than the youngest age that is predicted to cost no more than a share of the time ([`super::threshold`]).
//! How much of it is taken at a turn follows from what it costs ([`super::pace`]).

use lowtide_model::PAGE_BYTES;
use lowtide_model::cohort::used_within;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::{Share, Span};
use serde::{Deserialize, Serialize};

use super::brakes::{Brakes, seconds};
use super::pace::Pace;
use super::promotion::older;
use super::threshold::{Terms, Threshold};
use super::{ChoosesAge, Lost, Reclaimer, Rule, Want};
use crate::machine::{Brake, Observation, WorkloadState, per_kind};
use crate::policies::{AnyPolicy, PolicyError, PolicySettings};
use crate::replay::{ReplayRule, Replayed};
use crate::saved::{Resume, is_past};

/// AutoSettings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoSettings {
    /// Share of its time that a workload may lose.
    pub slowdown: Share,
    /// Share of the working set that may be refaulted in a minute; `None` = as much as the time allows.
    pub promotion: Option<Share>,
    /// How far back the ages reach from which the one in use is taken.
    pub history: Span,
    /// Time that a workload is observed before anything of it is evicted.
    pub warm_up: Span,
    /// What holds it back.
    pub brakes: Brakes,
}

impl Default for AutoSettings {
    /// Half of what the brakes allow, so that a prediction that is off by as much still holds.
    fn default() -> Self {
        let brakes = Brakes::default();
        Self {
            slowdown: Share(0.5 * brakes.slowdown.0),
            promotion: None,
            history: seconds(60),
            warm_up: seconds(1),
            brakes,
        }
    }
}

/// Seconds of a slice.
const SLICE_S: f64 = 2.0;

impl ChoosesAge for AutoSettings {
    fn terms(&self) -> Terms {
        Terms {
            slice_s: SLICE_S,
            history_s: self.history.0.as_secs_f64(),
            percentile: None,
            warm_up_s: self.warm_up.0.as_secs_f64(),
        }
    }

    /// Each kind may cost half of the time.
    fn allowed(&self, kind: Kind, used: f64, costs: &RefaultCosts) -> f64 {
        let cost_s = per_kind(costs)[kind].max(1e-9);
        let slowdown = self.slowdown.0.min(self.brakes.slowdown.0);
        let by_time = 0.5 * slowdown * PAGE_BYTES / cost_s;
        self.promotion.map_or(by_time, |share| by_time.min(share.0 * used / 60.0))
    }
}

/// Younger memory is not taken: a sample once a second says little of it.
const YOUNGEST_S: f64 = 2.0;
/// A workload that grows by more than this share in a second starts up, and is left alone.
const GROWS: f64 = 0.1;
/// The window by which a change of the use is recognized, seconds.
const USE_S: f64 = 5.0;
/// Where less than this share of the least use of late is in use, what was learnt holds no more: memory that grows old all at
/// once looks like memory that is used at that age.
const FALLEN: f64 = 2.0 / 3.0;
/// The least use is that of the last one or two spans of so many seconds, and is known after some of them.
const LEAST_S: f64 = 60.0;
const KNOWN_S: f64 = 10.0;

/// What it remembers of a target.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AutoState {
    threshold: Threshold,
    pace: Pace,
    /// When it was last observed, and its size then.
    #[serde(skip)]
    last: Option<(f64, f64)>,
    least: Least,
    /// Bytes in use at most while the use has fallen.
    fallen: Option<f64>,
}

/// The least that was in use of late.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Least {
    /// When the span under way began, and its least use.
    span: Option<(f64, f64)>,
    /// That of the span before.
    before: Option<f64>,
}

impl Least {
    fn add(&mut self, used: f64, now_s: f64) {
        self.span = match self.span {
            Some((from_s, least)) if (from_s..from_s + LEAST_S).contains(&now_s) => Some((from_s, least.min(used))),
            span => {
                self.before = span.map(|(_, least)| least);
                Some((now_s, used))
            }
        };
    }

    /// `None` while too little is known.
    fn get(&self, now_s: f64) -> Option<f64> {
        let (from_s, least) = self.span?;
        self.before.map(|before| before.min(least)).or((now_s - from_s >= KNOWN_S).then_some(least))
    }
}

impl Resume for AutoState {
    fn resume(&mut self, now_s: f64) -> bool {
        let known = |bytes: f64| bytes.is_finite() && bytes >= 0.0;
        let past = |(at_s, bytes): (f64, f64)| is_past(at_s, now_s) && known(bytes);
        let least = self.least.span.is_none_or(past) && self.least.before.is_none_or(known);
        least && self.fallen.is_none_or(known) && self.threshold.resume(now_s) && self.pace.resume(now_s)
    }
}

impl AutoState {
    /// Whether the target starts up.
    fn grows(&mut self, target: &WorkloadState, now_s: f64) -> bool {
        let size = target.resident.total() + target.swapped;
        let before = self.last.replace((now_s, size));
        before.is_some_and(|(at_s, before)| size - before > GROWS * size * (now_s - at_s).max(0.0))
    }

    /// Whether the use has fallen so far that what was learnt of it holds no more. Memory that is new is in use without having been
    /// used again.
    fn has_fallen(&mut self, target: &WorkloadState, now_s: f64) -> bool {
        // What has no memory of a kind uses none of it.
        let is_there = |kind: Kind| target.ages_of(kind).next().is_some();
        let of = |kind: Kind| if is_there(kind) { used_within(target.ages_of(kind), USE_S) } else { Some(0.0) };
        let used = of(Kind::Anon).zip(of(Kind::File)).map(|(anon, file)| anon + file);
        let used = used.filter(|_| !target.ages.is_empty());
        let Some((used, new)) = used.zip(self.threshold.new_within(target, USE_S, now_s)) else {
            return self.fallen.is_some();
        };
        let used = (used - new).max(0.0);
        self.fallen = match (self.fallen, self.least.get(now_s)) {
            _ if !self.pace.is_trusted() => None,
            (Some(level), _) => (used <= level).then_some(level),
            (None, least) => least.map(|least| FALLEN * least).filter(|level| used < *level),
        };
        match self.fallen {
            Some(_) => self.least = Least::default(),
            None => self.least.add(used, now_s),
        }
        self.fallen.is_some()
    }
}

impl Rule for AutoSettings {
    type Past = AutoState;

    fn want(&self, past: &mut AutoState, target: &WorkloadState, frame: &Observation, lost: &Lost) -> Option<Want> {
        let slowdown = self.slowdown.0.min(self.brakes.slowdown.0);
        past.pace.observe((slowdown, self.brakes.slowdown.0), frame, lost);
        let grows = past.grows(target, frame.now_s);
        let learnt = past.threshold.observe(self, target, frame).map(|age_s| age_s.map(|age_s| age_s.max(YOUNGEST_S)));
        let (ages, why) = if past.has_fallen(target, frame.now_s) {
            past.threshold.forget();
            (PerKind::both(Some(USE_S)), "its use has fallen".to_owned())
        } else {
            (learnt, format!("predicted to cost at most {} of the time", self.slowdown))
        };
        let want = older(target, ages, &why)?;
        if grows || target.ages.is_empty() {
            return None;
        }
        Some(Want { bytes: past.pace.take(want.bytes, frame, lost), ..want })
    }

    fn held(&self, past: &AutoState) -> Option<Brake> {
        past.pace.held
    }
}

impl PolicySettings for AutoSettings {
    fn usual() -> Option<Self> {
        Some(Self::default())
    }

    fn build(&self, _: u64) -> Result<AnyPolicy, PolicyError> {
        Ok(AnyPolicy::workloads(Reclaimer::new(self.clone(), self.brakes.clone())))
    }

    fn replayed(&self) -> Result<Replayed, &'static str> {
        Ok(Replayed { rule: ReplayRule::ChoosesAge(Box::new(self.clone())), brakes: self.brakes.clone() })
    }

    #[cfg(test)]
    fn trial(quota: Option<u64>, seed: u64) -> Option<AnyPolicy> {
        Self { brakes: Brakes::of_quota(quota), ..Self::default() }.build(seed).ok()
    }
}
