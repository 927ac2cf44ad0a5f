//! Policies over recordings: what a policy would have done to a workload, minute by minute, estimated from what was idle and
//! what would have been refaulted, with the same rule and the same brakes that act on a machine.
//!
//! What has gone is what has been idle for longer than the age in use: at once for a rule that acts at every turn, on
//! average over the time between two rounds for one that acts now and then. What is refaulted of it is what was recorded to
//! be used again after having been idle for so long. Where the age in use grows, or a brake holds, what was evicted before stays
//! gone until it is used. It comes back in bursts as large as those that were recorded, as brakes hold for a burst that
//! would not for the mean.
//!
//! A recording knows neither how full swap would be nor how long evicting takes, so those brakes do not hold here; and a
//! policy that adjusts itself by the pressure that it causes cannot be replayed, as that pressure was not recorded.

use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::{Span, float, integer};
use lowtide_model::{AGE_EDGES_S, PAGE_BYTES};

use crate::machine::{Brake, Observation, Reclaimed, WorkloadState, per_kind};
use crate::policies::{PolicyError, Spec};
use crate::reclaim::ChoosesAge;
use crate::reclaim::age::AgeSettings;
use crate::reclaim::brakes::{Brakes, Held};
use crate::reclaim::losses::Losses;
use crate::reclaim::returns::Returned;
use crate::reclaim::threshold::Chosen;

/// Edges of a histogram.
pub const EDGES: usize = AGE_EDGES_S.len();

/// Idle ages for which bursts are recorded, seconds: those that are acted on mostly.
pub const BURSTS: [u32; 3] = [30, 60, 120];

/// What is known of a workload's minute.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Minute {
    /// When it ended, seconds.
    pub now_s: f64,
    /// Seconds that it lasted.
    pub lasts_s: f64,
    /// Bytes in memory, mean.
    pub resident: PerKind<f64>,
    /// Bytes that were paged out, mean.
    pub swapped: f64,
    /// Bytes that had been idle for at least as long as each edge, mean; `None` = not known.
    pub idle: PerKind<[Option<f64>; EDGES]>,
    /// What would have been refaulted, and what was used.
    pub returned: PerKind<Returned>,
    /// What came into use again at once after having been idle for each of [`BURSTS`], mean over its bytes; `None` = not known.
    pub burst: PerKind<[Option<f64>; BURSTS.len()]>,
    /// Share of the time that some task stalled on memory.
    pub pressure: Option<f64>,
    /// Bytes that are protected from reclaim.
    pub floor: f64,
}

impl Minute {
    /// What came at once of memory that had been idle for so long.
    fn burst(&self, kind: Kind, age_s: f64) -> f64 {
        let returned = BURSTS.iter().zip(self.burst[kind]).filter_map(|(edge, burst)| Some((f64::from(*edge), burst?)));
        let (first, older) = returned.fold((None, None), |(first, older), (edge, burst)| {
            (first.or(Some(burst)), if edge <= age_s { Some(burst) } else { older })
        });
        older.or(first).unwrap_or(0.0)
    }
}

/// What a policy would have made of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Effect {
    /// What was idle for so long was evicted; `None` = nothing of that kind.
    pub older_s: PerKind<Option<f64>>,
    /// Bytes that were gone, mean.
    pub gone: PerKind<f64>,
    /// Bytes a second that were refaulted.
    pub back: PerKind<f64>,
    /// What held it.
    pub held: Option<Brake>,
}

/// What is remembered of a workload.
#[derive(Debug, Clone, Default)]
pub struct ReplayState {
    from_s: Option<f64>,
    chosen: Chosen,
    held: Held,
    losses: Losses,
    gone: PerKind<Gone>,
    bursts: PerKind<Bursts>,
    /// Pages that were refaulted in the last step.
    back: PerKind<f64>,
}

/// What is refaulted of one side, kept until there is as much as comes at once.
#[derive(Debug, Clone, Copy, Default)]
struct Bursts {
    /// Of minutes with bursts, each half as much after [`BURSTS_S`] of them: bytes, and their squares.
    sums: [f64; 2],
    /// Bytes that have not come yet.
    due: f64,
}

impl Bursts {
    /// Takes in how large bursts were in a minute; one without any says nothing of their size.
    fn observe(&mut self, burst: f64, lasts_s: f64) {
        if burst > 0.0 {
            let left = 0.5f64.powf(lasts_s / BURSTS_S);
            self.sums = [self.sums[0] * left + burst, self.sums[1] * left + burst * burst];
        }
    }

    /// Bytes of a burst: of the one that a byte comes in, on average.
    fn size(&self) -> f64 {
        if self.sums[0] > 0.0 { self.sums[1] / self.sums[0] } else { 0.0 }
    }

    /// So many bytes more are due, and no more than all that is gone: bytes that come, in complete bursts.
    fn come(&mut self, bytes: f64, gone: f64) -> f64 {
        self.due = (self.due + bytes).min(gone);
        let burst = self.size().min(gone);
        let come = if burst > 0.0 { burst * (self.due / burst).floor() } else { self.due };
        self.due -= come;
        come
    }
}

/// What is gone of one side.
#[derive(Debug, Clone, Copy, Default)]
struct Gone {
    bytes: f64,
    /// All of it has been idle for at least so long, seconds.
    age_s: f64,
}

/// Seconds between two turns of the agent, where what is refaulted may make a brake hold; else a minute is taken at once.
const TURN_S: f64 = 5.0;
/// How large bursts are is forgotten by half in so long, seconds: a minute's are few, and an hour's are of another load.
const BURSTS_S: f64 = 300.0;
/// Ages are known up to here, seconds.
const OLDEST_S: f64 = 120.0;
const _: () = assert!(AGE_EDGES_S[EDGES - 1] == 120);

/// How a policy chooses the age beyond which memory is evicted.
pub enum ReplayRule {
    /// As given.
    Age(AgeSettings),
    /// From refaults.
    ChoosesAge(Box<dyn ChoosesAge + Send + Sync>),
}

/// What of a policy is replayed.
pub struct Replayed {
    /// How it chooses ages.
    pub rule: ReplayRule,
    /// What holds it back.
    pub brakes: Brakes,
}

/// A policy, to be replayed.
pub struct Replay {
    rule: ReplayRule,
    brakes: Brakes,
    costs: RefaultCosts,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("brakes", &self.brakes).field("costs", &self.costs).finish_non_exhaustive()
    }
}

impl Replay {
    /// A policy where a page that is refaulted costs so much.
    ///
    /// # Errors
    /// What makes no sense in its settings, or that it cannot be replayed and why.
    pub fn new(spec: &Spec, costs: RefaultCosts) -> Result<Self, PolicyError> {
        spec.build(0)?;
        let Replayed { rule, brakes } = spec.settings().replayed()?;
        // What may be evicted in one turn does not bound what is gone after many.
        Ok(Self { rule, brakes: Brakes { quota: None, ..brakes }, costs })
    }

    /// Seconds of the time lost for what is refaulted.
    pub fn lost_s(&self, back: PerKind<f64>) -> f64 {
        back.zip(per_kind(&self.costs)).map(|(bytes, cost_s)| bytes / PAGE_BYTES * cost_s).total()
    }

    /// Replays one minute of a workload. Minutes must be passed in order.
    pub fn minute(&self, past: &mut ReplayState, minute: &Minute) -> Effect {
        let from_s = *past.from_s.get_or_insert(minute.now_s - minute.lasts_s);
        let (older_s, every_s) = match &self.rule {
            ReplayRule::Age(settings) => (
                PerKind { anon: settings.anon, file: settings.file }.map(|age| age.map(seconds)),
                seconds(settings.every),
            ),
            ReplayRule::ChoosesAge(_) => (past.chosen.in_use(), 0.0),
        };
        // What is paged out already has been idle for long.
        let swapped = PerKind { anon: minute.swapped, file: 0.0 };
        let rates: PerKind<[Option<f64>; EDGES]> = minute
            .returned
            .map(|returned| std::array::from_fn(|at| at.checked_sub(1).and_then(|at| returned.back[at])));
        let all = PerKind::from_fn(|kind| older_s[kind].map_or(0.0, |age_s| mean(&rates[kind], age_s, every_s)));
        // A workload that waits for refaults uses its memory less often.
        let slower = 1.0 + self.lost_s(all);
        let wanted = PerKind::from_fn(|kind| Wanted {
            bytes: older_s[kind].map_or(0.0, |age_s| mean(&minute.idle[kind], age_s, every_s) + swapped[kind]),
            rate: all[kind] / slower,
        });
        for kind in Kind::ALL {
            past.bursts[kind].observe(older_s[kind].map_or(0.0, |age_s| minute.burst(kind, age_s)), minute.lasts_s);
        }
        // The rate in the turn with the most refaults.
        let at_once = PerKind::from_fn(|kind| {
            let due = past.bursts[kind].due + wanted[kind].rate * minute.lasts_s;
            let size = past.bursts[kind].size();
            let burst = if due >= size { size / TURN_S } else { 0.0 };
            burst.max(wanted[kind].rate)
        });
        let close = self.lost_s(at_once) > 0.5 * self.brakes.slowdown.0.min(self.brakes.pressure.0);
        let steps = if close || past.held.by.is_some() { (minute.lasts_s / TURN_S).ceil().max(1.0) } else { 1.0 };
        let step_s = minute.lasts_s / steps;
        let (mut gone, mut back) = (PerKind::default(), PerKind::default());
        let begin_s = minute.now_s - minute.lasts_s;
        // By number: a time so large that a step does not change it must not go on for ever.
        for step in 1..=integer(steps) {
            let now_s = begin_s + float(step) * step_s;
            let most = self.most(past, minute, (now_s, step_s));
            // Files first, as on a machine.
            let mut room = most.unwrap_or(0.0);
            for kind in [Kind::File, Kind::Anon] {
                let goes = most.map(|_| wanted[kind].bytes.min(room));
                let step = past.gone[kind].step(
                    (&minute.idle[kind], swapped[kind], &rates[kind]),
                    goes.map(|bytes| (bytes, older_s[kind].unwrap_or(0.0), wanted[kind])),
                    &mut past.bursts[kind],
                    step_s,
                );
                past.back[kind] = step / PAGE_BYTES;
                room = (room - past.gone[kind].bytes).max(0.0);
                gone[kind] += past.gone[kind].bytes / steps;
                back[kind] += step / minute.lasts_s;
            }
        }
        if minute.now_s - from_s > self.warm_up_s() + 0.05 {
            self.choose_age(past, minute, back);
        }
        Effect { older_s, gone, back, held: past.held.by }
    }

    /// Time that a workload is observed before an age is chosen.
    fn warm_up_s(&self) -> f64 {
        match &self.rule {
            ReplayRule::Age(_) => 0.0,
            ReplayRule::ChoosesAge(rule) => rule.terms().warm_up_s,
        }
    }

    /// Chooses the age of the next minute where the rule does so, from what was refaulted in this one.
    fn choose_age(&self, past: &mut ReplayState, minute: &Minute, back: PerKind<f64>) {
        if let ReplayRule::ChoosesAge(rule) = &self.rule
            && minute.returned.iter().any(|(_, returned)| returned.back.iter().any(Option::is_some))
        {
            let returned = minute
                .returned
                .zip(back)
                .map(|(returned, back)| Returned { refaulted: returned.refaulted.max(back), ..returned });
            past.chosen.add(rule.as_ref(), &returned, minute.now_s, &self.costs);
        }
    }

    /// Bytes that may be gone at most after a step that ended now; `None` = no more than are.
    fn most(&self, past: &mut ReplayState, minute: &Minute, (now_s, step_s): (f64, f64)) -> Option<f64> {
        // The pressure of these refaults was not recorded.
        let rates = past.back.map(|pages| pages * PAGE_BYTES / step_s);
        let target = WorkloadState {
            resident: minute.resident,
            floor: minute.floor,
            pressure: Some(minute.pressure.unwrap_or(0.0) + self.lost_s(rates)),
            refaults: past.back,
            ..WorkloadState::default()
        };
        // What is refaulted here was evicted here.
        let evicted = Reclaimed { target: target.id, bytes: past.back.map(|pages| pages * PAGE_BYTES), cpu_s: 0.0 };
        let frame = Observation { now_s, costs: self.costs, reclaimed: vec![evicted], ..Observation::default() };
        let lost = past.losses.observe(&target, &frame);
        let most = past.held.most(&self.brakes, &target, &frame, &lost);
        let holds = past.held.by.is_some_and(|by| by != Brake::Floor);
        (!holds).then_some(most.both + minute.swapped)
    }
}

/// What the age in use means.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// Bytes that are older.
    bytes: f64,
    /// Bytes a second that are refaulted of them.
    rate: f64,
}

impl Gone {
    /// Advances by so many seconds: refaults what was used and evicts what is due. Returns bytes refaulted.
    fn step(
        &mut self,
        (idle, swapped, rates): (&[Option<f64>; EDGES], f64, &[Option<f64>; EDGES]),
        goes: Option<(f64, f64, Wanted)>,
        bursts: &mut Bursts,
        step_s: f64,
    ) -> f64 {
        let age_s = (self.age_s + step_s).min(OLDEST_S);
        let there = at(idle, age_s) + swapped;
        let used = if there > 0.0 { at(rates, age_s) * step_s * (self.bytes / there).min(1.0) } else { 0.0 };
        match goes {
            Some((bytes, older_s, wanted)) if bytes > 0.0 && bytes >= (self.bytes - used).min(there) => {
                *self = Self { bytes, age_s: older_s };
                bursts.come(wanted.rate * step_s * (bytes / wanted.bytes).min(1.0), bytes)
            }
            _ => {
                let come = bursts.come(used, self.bytes);
                // No more of it can be left than has been idle for so long.
                *self = Self { bytes: (self.bytes - come).max(0.0).min(there + bursts.due), age_s };
                come
            }
        }
    }
}

/// The mean of what holds for ages from one on, for so many seconds. Between two edges it is taken to change evenly; beyond
/// the last that is known, not at all. Nothing where there is no value for so long an age: no policy acts on that.
fn mean(values: &[Option<f64>; EDGES], from_s: f64, lasts_s: f64) -> f64 {
    let known = || AGE_EDGES_S.iter().zip(values).filter_map(|(edge, value)| Some((f64::from(*edge), (*value)?)));
    if known().next_back().is_none_or(|(edge, _)| edge < from_s) {
        return 0.0;
    }
    if lasts_s <= 0.0 {
        return at(values, from_s);
    }
    let to_s = from_s + lasts_s;
    let mut corners = vec![from_s];
    corners.extend(known().map(|(edge, _)| edge).filter(|edge| (from_s..to_s).contains(edge) && *edge > from_s));
    corners.push(to_s);
    let trapezium = |pair: &[f64]| 0.5 * (at(values, pair[0]) + at(values, pair[1])) * (pair[1] - pair[0]);
    corners.windows(2).map(trapezium).sum::<f64>() / lasts_s
}

/// What holds for an age. Between two edges it is taken to change evenly.
fn at(values: &[Option<f64>; EDGES], age_s: f64) -> f64 {
    let (mut before, mut after) = (None, None);
    for (edge, value) in AGE_EDGES_S.iter().zip(values) {
        let (edge, Some(value)) = (f64::from(*edge), *value) else { continue };
        if edge <= age_s {
            before = Some((edge, value));
        } else if after.is_none() {
            after = Some((edge, value));
        }
    }
    match (before, after) {
        (Some(from), Some(to)) => from.1 + (to.1 - from.1) * (age_s - from.0) / (to.0 - from.0),
        (Some((_, value)), None) => value,
        // What is younger than all that is known: no less than that is idle, but how much is not known.
        (None, _) => 0.0,
    }
}

fn seconds(span: Span) -> f64 {
    span.0.as_secs_f64()
}

#[cfg(test)]
mod tests;
