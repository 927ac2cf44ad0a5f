//! The guard: workloads that thrash, as together they use more than there is, have it one after the other.
//!
//! Problem: when the working sets of several programs do not fit, each takes from the others what they need next, and all of
//! them wait. Killers end one of them; none keeps the working set of one in memory. Approach (after Jiang and Zhang, 2001, "Adaptive page
//! replacement to protect against thrashing"): notice it ([`detect`]), choose the workload closest to having all that it needs,
//! and let it have that ([`round`]): by a protection of its memory, or by pausing others. No workload is killed, each has a
//! turn, and all of it is a lease that ends by itself.

use std::time::Duration;

use lowtide_model::target::TargetId;
use lowtide_model::units::{Share, Span};
use serde::{Deserialize, Serialize};

use self::detect::{Detector, Progress, crowded};
use self::round::Round;
use crate::machine::{Observation, Policy, WorkloadAction};
use crate::policies::{AnyPolicy, PolicyError, PolicySettings};
use crate::replay::Replayed;

pub mod detect;
mod member;
mod quantum;
pub mod round;

/// How thrashing is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detect {
    /// By the time that is lost, where one after the other would get more done.
    Auto,
    /// As published: processes fault while the CPUs are idle.
    Published,
}

/// What is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Means {
    /// Protection where the machine can and has a CPU for each, else pauses.
    Auto,
    /// The memory of one is protected from reclaim; the others go on.
    Protect,
    /// Those that do not fit wait for their turn.
    Pause,
}

/// GuardSettings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardSettings {
    /// How thrashing is detected.
    pub detect: Detect,
    /// What is done about it.
    pub means: Means,
    /// Published: protection may begin while a smaller share of all CPUs is busy.
    pub cpu_low: Share,
    /// Published: protection ends once a larger share of all CPUs is busy.
    pub cpu_high: Share,
    /// Published: protection begins while at least two workloads fault more often a second.
    pub faults_high: f64,
    /// Published: protection ends once the protected workload faults less often a second.
    pub faults_low: f64,
    /// A workload thrashes that loses at least so much of its time to memory.
    pub lost: Share,
    /// What happens is smoothed over this time, and must last for as long again before it is believed.
    pub hold: Span,
    /// Of a cycle, the one that is closest to having its working set gets so much; the others share the rest.
    pub share: Share,
    /// Everybody has a turn in this time; in less where switching costs little.
    pub cycle: Span,
}

impl Default for GuardSettings {
    /// The thresholds of the paper. A favourite that has 85 % of the time runs at most a fifth longer for it.
    fn default() -> Self {
        Self {
            detect: Detect::Auto,
            means: Means::Auto,
            cpu_low: Share(0.4),
            cpu_high: Share(0.8),
            faults_high: 10.0,
            faults_low: 1.0,
            lost: Share(0.1),
            hold: Span(Duration::from_millis(250)),
            share: Share(0.85),
            cycle: Span(Duration::from_secs(50)),
        }
    }
}

impl GuardSettings {
    /// Whether workloads of lower priority are kept small rather than paused.
    fn limits(&self, frame: &Observation) -> bool {
        self.means != Means::Pause && frame.can_limit
    }

    /// Whether one is protected, rather than the others paused.
    fn protects(&self, thrashing: &[&Progress], frame: &Observation) -> bool {
        match self.means {
            Means::Auto => frame.can_protect && !crowded(thrashing, frame),
            Means::Protect => true,
            Means::Pause => false,
        }
    }
}

/// What is granted ends after so many seconds unless it is granted again.
pub const LEASE_S: f64 = 5.0;

/// What is left to a workload is so much more than what it needs, as a share: for kernel memory that is charged as pages return.
pub const MARGIN: f64 = 1.0 / 32.0;

/// The policy.
#[derive(Debug, Clone)]
pub struct Guard {
    settings: GuardSettings,
    detector: Detector,
    round: Option<Round>,
    /// When the last round ended, and how often one began soon after another: what was believed to fit did not.
    ended_s: f64,
    strikes: u32,
    /// Rounds in succession that gained nothing, and until when none begins after the last.
    refuted: (u32, f64),
}

/// Seconds for which no round begins after so many, six at most, that gained nothing: twice as long each time.
fn refuted_s(times: u32) -> f64 {
    5.0 * f64::from(1 << times)
}

/// Thrashing that begins again so soon after it was over was not over.
const AGAIN_S: f64 = 60.0;

impl Guard {
    /// A guard with these settings.
    pub fn new(settings: GuardSettings) -> Self {
        let detector = Detector::new(settings.clone());
        Self {
            settings,
            detector,
            round: None,
            ended_s: f64::NEG_INFINITY,
            strikes: 0,
            refuted: (0, f64::NEG_INFINITY),
        }
    }

    /// The workload that has all that it needs now, if one is protected or others are paused.
    pub fn holder(&self) -> Option<TargetId> {
        self.round.as_ref().map(Round::holder)
    }

    fn begin(&mut self, progress: &[Progress], frame: &Observation) -> Vec<WorkloadAction> {
        let Some((why, thrashing)) = self.detector.begins(progress, frame) else { return Vec::new() };
        let (times, until_s) = self.refuted;
        // A clock that was set back must not make it wait longer.
        if (until_s - refuted_s(times)..until_s).contains(&frame.now_s) {
            return Vec::new();
        }
        // A clock that was set back must not make it believe that it was long ago.
        self.strikes =
            if (0.0..AGAIN_S).contains(&(frame.now_s - self.ended_s)) { (self.strikes + 1).min(6) } else { 0 };
        let Some(round) = Round::new(&thrashing, self.strikes, frame, &self.settings) else {
            return Vec::new();
        };
        let round = self.round.insert(round);
        round.turn(frame.now_s, &why)
    }

    fn go_on(&mut self, progress: &[Progress], frame: &Observation) -> Vec<WorkloadAction> {
        let Some(round) = &mut self.round else { return Vec::new() };
        round.observe(progress, frame.now_s);
        let gains = round.gains(progress, frame.now_s);
        match gains {
            Some(true) => self.refuted.0 = 0,
            Some(false) => {
                let times = (self.refuted.0 + 1).min(6);
                self.refuted = (times, frame.now_s + refuted_s(times));
            }
            None => {}
        }
        let refuted = (gains == Some(false)).then(|| "no more was done than before".to_owned());
        let over =
            refuted.or_else(|| round.over(frame.now_s)).or_else(|| self.detector.ends(round.holder(), progress, frame));
        if let Some(why) = over {
            let actions = round.end(&why, frame.now_s);
            (self.round, self.ended_s) = (None, frame.now_s);
            self.detector.forget();
            return actions;
        }
        round.go_on(frame.now_s)
    }
}

impl Policy for Guard {
    type Frame = Observation;
    type Action = WorkloadAction;

    fn decide(&mut self, frame: &Observation) -> Vec<WorkloadAction> {
        let Some(progress) = self.detector.observe(frame) else { return Vec::new() };
        if self.round.is_some() { self.go_on(&progress, frame) } else { self.begin(&progress, frame) }
    }
}

impl PolicySettings for GuardSettings {
    fn usual() -> Option<Self> {
        Some(Self::default())
    }

    fn build(&self, _: u64) -> Result<AnyPolicy, PolicyError> {
        Ok(AnyPolicy::workloads(Guard::new(self.clone())))
    }

    fn replayed(&self) -> Result<Replayed, &'static str> {
        Err("guard goes by what thrashes, second by second")
    }

    #[cfg(test)]
    fn trial(_: Option<u64>, _: u64) -> Option<AnyPolicy> {
        // It has laws of its own: it acts where there is pressure.
        None
    }
}

#[cfg(test)]
mod tests;
