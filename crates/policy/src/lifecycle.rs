//! What a workload holds while it is in the background: its anonymous memory is paged out, its files are only evicted first when
//! memory is short (Baghdasaryan, Butt, Zhao: "Finding more DRAM"; Android's cached-app optimiser has these throttles).

use std::collections::BTreeMap;
use std::time::Duration;

use lowtide_model::target::TargetId;
use lowtide_model::units::{Share, Size, Span, float};
use serde::{Deserialize, Serialize};

use crate::machine::{Brake, Observation, Policy, WorkloadAction, WorkloadState};
use crate::policies::{AnyPolicy, PolicyError, PolicySettings};
use crate::replay::Replayed;
use crate::saved::{self, Resume, Saved, is_past};
use crate::schemes::SchemeLimits;

/// Settings of the lifecycle policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LifecycleSettings {
    /// Workloads with less anonymous memory are skipped.
    pub floor: Size,
    /// A workload that was paged out before must have grown by so much since.
    pub delta: Size,
    /// Least time between two page outs of one workload.
    pub every: Span,
    /// Nothing is taken while some task stalls on memory for more than this share of the time.
    pub pressure: Share,
    /// Swap that is kept free.
    pub swap_free: Size,
    /// Paged-out memory is read back when the workload comes to the foreground.
    pub prefetch: bool,
}

impl Default for LifecycleSettings {
    /// Android's floor, delta and interval; the limits are those of [`SchemeLimits`].
    fn default() -> Self {
        let limits = SchemeLimits::default();
        Self {
            floor: Size(12 << 20),
            delta: Size(8 << 20),
            every: Span(Duration::from_secs(10)),
            pressure: Share(limits.pressure),
            swap_free: Size(limits.swap_free),
            prefetch: false,
        }
    }
}

/// Seconds after which an unobserved workload is dropped.
const FORGET_S: f64 = 600.0;

/// Greatest factor on the pause after page outs that evicted little.
const LONGEST: f64 = 64.0;

/// State of one workload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct State {
    background: bool,
    /// When memory was last paged out, and the anonymous memory at that time.
    taken_s: Option<f64>,
    asked: f64,
    /// Least anonymous memory that there was in the background since; `None` before the first reading.
    left: Option<f64>,
    /// It was paged out since it came to the background.
    #[serde(default)]
    is_out: bool,
    /// Multiples of `every` to wait: more after each page out that evicted little.
    waits: f64,
    observed_s: f64,
    #[serde(skip)]
    held: Option<Brake>,
}

impl Resume for State {
    fn resume(&mut self, now_s: f64) -> bool {
        let past = |at_s: f64| is_past(at_s, now_s);
        self.taken_s.is_none_or(past)
            && past(self.observed_s)
            && (0.0..=LONGEST).contains(&self.waits)
            && self.asked >= 0.0
            && self.left.is_none_or(|left| left >= 0.0)
    }
}

/// The policy.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    settings: LifecycleSettings,
    states: BTreeMap<TargetId, State>,
    /// Bytes of swap that are left for this turn.
    swap_left: f64,
    now_s: f64,
}

impl Lifecycle {
    /// A policy with these settings.
    pub fn new(settings: LifecycleSettings) -> Self {
        Self { settings, states: BTreeMap::new(), swap_left: 0.0, now_s: 0.0 }
    }

    fn one(&mut self, target: &WorkloadState, frame: &Observation) -> Option<WorkloadAction> {
        let settings = &self.settings;
        let state = self.states.entry(target.id).or_default();
        let anon = target.resident.anon;
        state.observed_s = frame.now_s;
        state.held = None;
        let was = std::mem::replace(&mut state.background, target.background);
        if !target.background {
            // The next time in the background, its growth does not matter.
            (state.left, state.waits, state.is_out) = (Some(0.0), 1.0, false);
            let fetch = was && settings.prefetch && target.swapped > 0.0;
            let reason = || "it is in the foreground again".to_owned();
            return fetch.then(|| WorkloadAction::Fetch { target: target.id, reason: reason() });
        }
        (state.left, state.waits) = match state.left {
            Some(left) => (Some(left.min(anon)), state.waits),
            None if state.taken_s.is_none() => (Some(0.0), 1.0),
            // Much is left: the turn was over, swap was full, or it cannot be paged out. The pause before the next try grows
            // where little was evicted.
            None if anon >= bytes(settings.floor) => {
                let again = if anon > 0.75 * state.asked { (2.0 * state.waits).min(LONGEST) } else { 1.0 };
                (Some(0.0), again)
            }
            None => (Some(anon), 1.0),
        };
        let every_s = settings.every.0.as_secs_f64() * state.waits;
        // A clock that was set back must not stop it for ever.
        let waits = state.taken_s.is_some_and(|taken_s| (taken_s..taken_s + every_s).contains(&frame.now_s));
        let worth = anon >= bytes(settings.floor);
        let grown = state.left.is_none_or(|left| anon - left >= bytes(settings.delta));
        if waits || !worth || !grown {
            return None;
        }
        let pressed = |pressure: Option<f64>| pressure.is_some_and(|pressure| pressure > settings.pressure.0);
        state.held = if pressed(frame.pressure) || pressed(target.pressure) {
            Some(Brake::Pressure)
        } else if target.resident.file < target.floor {
            // All anonymous memory is paged out, so the rest must cover the floor.
            Some(Brake::Floor)
        } else {
            (anon.min(self.swap_left) < bytes(settings.delta)).then_some(Brake::Swap)
        };
        if state.held.is_some() {
            return None;
        }
        // Part of a workload is better than none: what is left of it needs no room in swap.
        let asked = anon.min(self.swap_left);
        self.swap_left -= asked;
        (state.taken_s, state.asked, state.left) = (Some(frame.now_s), anon, None);
        let again = std::mem::replace(&mut state.is_out, true);
        let reason = "it is in the background".to_owned();
        Some(WorkloadAction::PageOut { target: target.id, bytes: asked, again, reason })
    }
}

impl Policy for Lifecycle {
    type Frame = Observation;
    type Action = WorkloadAction;

    fn decide(&mut self, frame: &Observation) -> Vec<WorkloadAction> {
        let free = frame.swap_free.unwrap_or(0).saturating_sub(self.settings.swap_free.0);
        (self.swap_left, self.now_s) = (bytes(Size(free)), frame.now_s);
        let actions = frame.targets.iter().filter_map(|target| self.one(target, frame)).collect();
        self.states.retain(|_, state| (frame.now_s - state.observed_s).abs() < FORGET_S);
        actions
    }

    fn held(&self) -> Vec<(Option<TargetId>, Brake)> {
        let there = self.states.iter().filter(|(_, state)| state.observed_s.total_cmp(&self.now_s).is_eq());
        there.filter_map(|(id, state)| Some((Some(*id), state.held?))).collect()
    }

    fn save(&self) -> Saved {
        let targets = self.states.iter().map(|(id, state)| (*id, saved::save(state)));
        Saved { targets: targets.collect(), ..Saved::default() }
    }

    fn restore(&mut self, saved: &Saved, now_s: f64) -> usize {
        let each = saved.targets.iter();
        self.states = each.filter_map(|(id, state)| Some((*id, saved::restore(state, now_s)?))).collect();
        self.states.len()
    }
}

fn bytes(size: Size) -> f64 {
    float(size.0)
}

impl PolicySettings for LifecycleSettings {
    fn usual() -> Option<Self> {
        Some(Self::default())
    }

    fn build(&self, _: u64) -> Result<AnyPolicy, PolicyError> {
        Ok(AnyPolicy::workloads(Lifecycle::new(self.clone())))
    }

    fn replayed(&self) -> Result<Replayed, &'static str> {
        Err("lifecycle acts on workloads in the background, which no histogram shows")
    }

    #[cfg(test)]
    fn trial(_: Option<u64>, seed: u64) -> Option<AnyPolicy> {
        Self { floor: Size(1 << 20), ..Self::default() }.build(seed).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;
    const ONE: TargetId = TargetId::Cgroup(1);
    const TWO: TargetId = TargetId::Cgroup(2);

    fn frame(now_s: f64, background: bool, anon: f64) -> Observation {
        let target = WorkloadState {
            id: ONE,
            resident: [anon * MIB, 50.0 * MIB].into(),
            swapped: 9.0,
            background,
            ..WorkloadState::default()
        };
        Observation { now_s, targets: vec![target], swap_free: Some(1 << 30), ..Observation::default() }
    }

    fn pages_out(policy: &mut Lifecycle, frame: &Observation) -> bool {
        matches!(policy.decide(frame).as_slice(), [WorkloadAction::PageOut { target: ONE, .. }])
    }

    #[test]
    fn what_goes_to_the_background_is_paged_out_once_until_it_has_grown() {
        let mut policy = Lifecycle::new(LifecycleSettings::default());
        assert!(!pages_out(&mut policy, &frame(0.0, false, 300.0)));
        assert!(pages_out(&mut policy, &frame(1.0, true, 300.0)));
        assert!(!pages_out(&mut policy, &frame(2.0, true, 10.0)));
        assert!(!pages_out(&mut policy, &frame(20.0, true, 17.0)), "7 MiB more");
        assert!(pages_out(&mut policy, &frame(21.0, true, 18.0)), "8 MiB more");
        // Back in the foreground, and in the background again too soon.
        assert!(!pages_out(&mut policy, &frame(22.0, false, 90.0)));
        assert!(!pages_out(&mut policy, &frame(30.0, true, 300.0)));
        assert!(pages_out(&mut policy, &frame(31.0, true, 300.0)));
        // The clock was set back.
        assert!((3..50).any(|now_s| pages_out(&mut policy, &frame(f64::from(now_s), true, 300.0))));
    }

    #[test]
    fn what_is_paged_out_again_is_still_in_the_same_background() {
        let mut policy = Lifecycle::new(LifecycleSettings::default());
        let mut again =
            |now_s: f64, background: bool, anon: f64| match policy.decide(&frame(now_s, background, anon)).as_slice() {
                [WorkloadAction::PageOut { again, .. }] => Some(*again),
                _ => None,
            };
        let stretches =
            [(0.0, true, 300.0), (1.0, true, 0.0), (20.0, true, 90.0), (30.0, false, 90.0), (40.0, true, 90.0)];
        let paged_out = stretches.map(|(now_s, background, anon)| again(now_s, background, anon));
        assert_eq!(paged_out, [Some(false), None, Some(true), None, Some(false)]);
    }

    #[test]
    fn what_did_not_go_is_tried_again_later_each_time() {
        let mut policy = Lifecycle::new(LifecycleSettings::default());
        let times: Vec<u32> =
            (0..100).filter(|now_s| pages_out(&mut policy, &frame(f64::from(*now_s), true, 300.0))).collect();
        assert_eq!(times, [0, 20, 60]);
        // Where half of it is evicted each time, the pause does not grow.
        let mut policy = Lifecycle::new(LifecycleSettings::default());
        let mut anon = 300.0;
        let mut times = Vec::new();
        for now_s in 0..100 {
            if pages_out(&mut policy, &frame(f64::from(now_s), true, anon)) {
                (anon, _) = (0.5 * anon, times.push(now_s));
            }
        }
        assert_eq!(times, [0, 10, 20, 30, 40]);
        // Several share the swap that there is.
        let mut policy = Lifecycle::new(LifecycleSettings::default());
        let mut two = frame(0.0, true, 300.0);
        two.targets.push(WorkloadState { id: TWO, ..two.targets[0].clone() });
        two.swap_free = Some(400 << 20);
        let asked = |actions: Vec<WorkloadAction>| -> Vec<f64> {
            let bytes = |action| match action {
                WorkloadAction::PageOut { bytes, .. } => Some((bytes / MIB).round()),
                _ => None,
            };
            actions.into_iter().filter_map(bytes).collect()
        };
        assert_eq!(asked(policy.decide(&two)), [300.0, 84.0], "16 MiB stay free");
        assert_eq!(policy.held(), []);
        let mut policy = Lifecycle::new(LifecycleSettings::default());
        two.swap_free = Some(320 << 20);
        assert_eq!(asked(policy.decide(&two)), [300.0], "4 MiB are not worth it");
        assert_eq!(policy.held(), [(Some(TWO), Brake::Swap)]);
    }

    #[test]
    fn little_memory_pressure_and_full_swap_hold_it_back() {
        let fresh = || Lifecycle::new(LifecycleSettings::default());
        assert!(!pages_out(&mut fresh(), &frame(0.0, true, 11.0)));
        let mut policy = fresh();
        assert!(!pages_out(&mut policy, &Observation { pressure: Some(0.2), ..frame(0.0, true, 300.0) }));
        assert_eq!(policy.held(), [(Some(ONE), Brake::Pressure)]);
        assert!(pages_out(&mut policy, &frame(1.0, true, 300.0)), "it is made up for");
        assert!(!pages_out(&mut fresh(), &Observation { swap_free: Some(0), ..frame(0.0, true, 300.0) }));
        let mut protected = frame(0.0, true, 300.0);
        protected.targets[0].floor = 400.0 * MIB;
        assert!(!pages_out(&mut fresh(), &protected));
    }

    #[test]
    fn what_was_paged_out_is_fetched_if_that_is_wanted() {
        let mut policy = Lifecycle::new(LifecycleSettings { prefetch: true, ..LifecycleSettings::default() });
        assert!(pages_out(&mut policy, &frame(0.0, true, 300.0)));
        assert!(matches!(
            policy.decide(&frame(9.0, false, 20.0)).as_slice(),
            [WorkloadAction::Fetch { target: ONE, .. }]
        ));
        assert!(policy.decide(&frame(10.0, false, 20.0)).is_empty());
        let mut not = Lifecycle::new(LifecycleSettings::default());
        assert!(pages_out(&mut not, &frame(0.0, true, 300.0)) && not.decide(&frame(9.0, false, 20.0)).is_empty());
    }
}
