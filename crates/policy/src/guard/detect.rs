//! Whether workloads thrash: not one of them alone, which cannot be helped, but several that take from each other.

use std::collections::BTreeMap;

use lowtide_model::PAGE_BYTES;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;

use super::{Detect, GuardSettings};
use crate::machine::{Observation, WorkloadState, per_kind};

/// The progress of a workload since the last observation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Which.
    pub id: TargetId,
    /// Bytes in memory.
    pub resident: f64,
    /// The same at the observation before.
    pub before: f64,
    /// Bytes that it asked for and that are somewhere: in memory or paged out.
    pub demand: f64,
    /// The same at the observation before.
    pub demanded: f64,
    /// Bytes in memory that it was observed to use lately; all of them where that is not known.
    pub used: f64,
    /// Bytes that are protected anyway.
    pub floor: f64,
    /// Pages a second that were refaulted.
    pub faults: f64,
    /// Bytes that were refaulted since the observation before.
    pub refaulted: f64,
    /// Share of the time that it lost to memory.
    pub lost: f64,
    /// The higher, the sooner it is its turn.
    pub priority: i32,
}

/// A workload that loses less than this share of its time has what it needs.
pub const CALM: f64 = 0.02;

/// One after the other must get so much more done, as a share, before it is tried: while one is protected, and while others
/// wait, which costs their time for certain.
const GAIN: [f64; 2] = [0.1, 0.3];

/// Of what workloads refault, so much stays as long as there is free memory: one of them has just begun, or another has ended.
/// Where they take it from each other, as much is evicted.
const STAYS: f64 = 0.5;

/// More than before: by more than this share.
const MORE: f64 = 0.005;

/// Of those of lower priority that take memory, one that has a smaller share of it does not matter.
const LARGE: f64 = 0.05;

/// Observations that are further apart than this are not held together: the machine slept, or its clock jumped.
const APART_S: f64 = 30.0;

/// Detects when it begins and when it is over.
#[derive(Debug, Clone)]
pub struct Detector {
    settings: GuardSettings,
    last_s: Option<f64>,
    /// Since when the signs of a beginning hold, and those of an end.
    begins_s: Option<f64>,
    ends_s: Option<f64>,
    past: BTreeMap<TargetId, Past>,
}

/// What was observed of a workload before.
#[derive(Debug, Clone, Copy)]
struct Past {
    /// Smoothed: share of the time that it stalled, share that what was refaulted explains. `None` when it was just found.
    rates: Option<[f64; 2]>,
    /// Bytes in memory, and bytes that it asked for.
    resident: f64,
    demand: f64,
}

impl Detector {
    /// One with these thresholds.
    pub fn new(settings: GuardSettings) -> Self {
        Self { settings, last_s: None, begins_s: None, ends_s: None, past: BTreeMap::new() }
    }

    /// Forgets how long anything has lasted.
    pub fn forget(&mut self) {
        (self.begins_s, self.ends_s) = (None, None);
        self.past.clear();
    }

    /// The progress of all since the last observation; `None` if that is not known.
    pub fn observe(&mut self, frame: &Observation) -> Option<Vec<Progress>> {
        let elapsed_s = frame.now_s - self.last_s.replace(frame.now_s).unwrap_or(f64::INFINITY);
        let known = elapsed_s > 0.0 && elapsed_s < APART_S;
        if !known {
            self.forget();
        }
        let past = std::mem::take(&mut self.past);
        let all: Vec<(Past, Progress)> =
            frame.targets.iter().map(|target| self.progress(target, past.get(&target.id), frame, elapsed_s)).collect();
        self.past = all.iter().map(|(now, of)| (of.id, *now)).collect();
        known.then(|| all.into_iter().map(|(_, of)| of).collect())
    }

    /// What is known of a workload now, and its progress since the last observation.
    fn progress(
        &self,
        target: &WorkloadState,
        before: Option<&Past>,
        frame: &Observation,
        elapsed_s: f64,
    ) -> (Past, Progress) {
        let (resident, refaults) = (target.resident.total(), target.refaults.total());
        let mut now = Past { rates: None, resident, demand: resident + target.swapped };
        if let Some(before) = before {
            let cost_s = target.refaults.zip(per_kind(&frame.costs)).map(|(pages, cost_s)| pages * cost_s).total();
            let explained = cost_s / elapsed_s;
            let rates = [target.stalled.unwrap_or(explained).min(1.0), explained];
            // Refaults come in bursts: a workload that waits for earlier ones causes no new ones.
            let new = 1.0 - (-elapsed_s / self.settings.hold.0.as_secs_f64().max(1e-3)).exp();
            let smoothed = |past: [f64; 2]| [0, 1].map(|at| past[at] + new * (rates[at] - past[at]));
            now.rates = Some(before.rates.map_or(rates, smoothed));
        }
        let [stalled, explained] = now.rates.unwrap_or_default();
        let known: f64 = target.ages.iter().filter(|bin| bin.max_s.is_some()).map(|bin| bin.size.bytes).sum();
        let before = before.unwrap_or(&now);
        let progress = Progress {
            id: target.id,
            resident,
            before: before.resident,
            demand: now.demand,
            demanded: before.demand,
            used: if target.ages.is_empty() { resident } else { known.min(resident) },
            floor: target.floor,
            faults: refaults / elapsed_s,
            refaulted: PAGE_BYTES * refaults,
            // Stalls may be of waiting for something else. A wait is longer than the price of a page where many wait for the
            // same disk, but not without end.
            lost: stalled.min(LONGER * explained),
            priority: target.priority,
        };
        (now, progress)
    }

    /// Whether a workload is one of those that thrash.
    pub fn thrashes(&self, of: &Progress) -> bool {
        match self.settings.detect {
            Detect::Auto => of.lost >= self.settings.lost.0,
            Detect::Published => of.faults > self.settings.faults_high,
        }
    }

    /// Those of them that thrash.
    pub fn thrashing<'a>(&self, progress: &'a [Progress]) -> Vec<&'a Progress> {
        progress.iter().filter(|of| self.thrashes(of)).collect()
    }

    /// Why thrashing has begun, and of which workloads; `None` while it has not.
    pub fn begins<'a>(&mut self, progress: &'a [Progress], frame: &Observation) -> Option<(String, Vec<&'a Progress>)> {
        let mut members = self.thrashing(progress);
        let (mut why, at_once) = match self.settings.detect {
            Detect::Auto => (self.would_gain(&members, frame), worsens(&members)),
            Detect::Published => (self.as_published(&members, frame), false),
        };
        if self.settings.detect == Detect::Auto
            && self.settings.limits(frame)
            && let Some((reason, of)) = outranking(progress, frame)
        {
            (why, members) = (Some(reason), of);
        }
        let since_s = if why.is_some() { *self.begins_s.get_or_insert(frame.now_s) } else { f64::INFINITY };
        if why.is_none() {
            self.begins_s = None;
        }
        let hold_s = if at_once { 0.0 } else { self.settings.hold.0.as_secs_f64() };
        why.filter(|_| frame.now_s - since_s >= hold_s - 1e-6).map(|why| (why, members))
    }

    /// Progress in CPUs' worth: what all make now, against what those make that fit.
    fn would_gain(&self, thrashing: &[&Progress], frame: &Observation) -> Option<String> {
        if thrashing.len() < 2 || fill_free_memory(thrashing) {
            return None;
        }
        let cpus = Cpus::of(frame);
        let now = cpus.work(thrashing.iter().copied());
        let (fit, never) = fitting(thrashing);
        if fit.is_empty() {
            return None;
        }
        // Every workload has a turn, so what can be had is what fits on average. Those that never fit do no better in theirs.
        let all = float(thrashing.len());
        let then = at_a_time(&fit, room(thrashing)).min(cpus.count) * float(fit.len()) / all
            + never.iter().map(|of| 1.0 - of.lost).sum::<f64>() / all;
        (now * (1.0 + GAIN[usize::from(!self.settings.protects(thrashing, frame))]) < then).then(|| {
            let lost = 100.0 * thrashing.iter().map(|of| of.lost).sum::<f64>() / all;
            format!("{} workloads lose {lost:.0} % of their time to each other", thrashing.len())
        })
    }

    fn as_published(&self, thrashing: &[&Progress], frame: &Observation) -> Option<String> {
        let (busy, faulting) = (frame.cpu_busy?, thrashing.len());
        (busy < self.settings.cpu_low.0 && faulting >= 2)
            .then(|| format!("{faulting} workloads fault while {:.0} % of the CPUs are busy", 100.0 * busy))
    }

    /// Why it is over; `None` while it is not. As published only: otherwise the round decides it.
    pub fn ends(&mut self, holder: TargetId, progress: &[Progress], frame: &Observation) -> Option<String> {
        if self.settings.detect == Detect::Auto {
            return None;
        }
        let busy = frame.cpu_busy.is_some_and(|busy| busy > self.settings.cpu_high.0);
        let has_all = progress.iter().any(|of| of.id == holder && of.faults < self.settings.faults_low);
        if !busy && !has_all {
            self.ends_s = None;
            return None;
        }
        let since_s = *self.ends_s.get_or_insert(frame.now_s);
        let held = frame.now_s - since_s >= self.settings.hold.0.as_secs_f64() - 1e-6;
        held.then(|| {
            if busy { "the CPUs are busy again" } else { "the protected one has all that it needs" }.to_owned()
        })
    }
}

/// Why a workload is protected from others of lower priority, and all of them; `None` where none loses time of which others
/// take the memory. It need not lose much: a service that waits for little else answers late as soon as it loses any.
fn outranking<'a>(progress: &'a [Progress], frame: &Observation) -> Option<(String, Vec<&'a Progress>)> {
    let loses = progress.iter().filter(|of| of.lost >= CALM).max_by_key(|of| of.priority)?;
    let lower = || progress.iter().filter(|of| of.priority < loses.priority);
    let large = LARGE * lower().map(|of| of.resident).sum::<f64>();
    let take = lower().filter(|of| of.resident > large && (of.lost > 0.0 || of.resident > of.before));
    let members: Vec<&Progress> = [loses].into_iter().chain(take).collect();
    let fits = needed(loses.demand, room(&members)) <= room(&members);
    // What others lose has to be kept somewhere.
    let kept = frame.swap_free.is_none_or(|free| float(free) >= loses.demand - loses.resident);
    (members.len() > 1 && fits && kept).then(|| {
        let why = format!("one of higher priority loses {:.0} % of its time to others", 100.0 * loses.lost);
        (why, members)
    })
}

/// What the CPUs get done.
#[derive(Debug, Clone, Copy)]
pub struct Cpus {
    count: f64,
    /// Paging takes CPU time, as with zram.
    page: bool,
}

impl Cpus {
    /// Those of a machine.
    pub fn of(frame: &Observation) -> Self {
        Self { count: frame.cpus.unwrap_or(f64::INFINITY), page: !frame.swap_on_disk }
    }

    /// Work that is done, in CPUs' worth: what is not lost, of as many as there are CPUs for.
    pub fn work<'a>(self, of: impl Iterator<Item = &'a Progress>) -> f64 {
        let (all, lost) = of.fold((0.0, 0.0), |(all, lost), of| (all + 1.0, lost + of.lost));
        let left = if self.page { (self.count - lost).max(0.0) } else { self.count };
        f64::min(all - lost, left)
    }
}

/// Those that fit into what all of them have, and those that never do.
fn fitting<'a>(thrashing: &[&'a Progress]) -> (Vec<&'a Progress>, Vec<&'a Progress>) {
    let room = room(thrashing);
    thrashing.iter().partition(|of| needed(of.demand, room) <= room)
}

/// Of workloads that fit, so many do at a time, on average.
fn at_a_time(fit: &[&Progress], room: f64) -> f64 {
    let mean = fit.iter().map(|of| needed(of.demand, room)).sum::<f64>() / float(fit.len().max(1));
    (room / mean.max(1.0)).floor().min(float(fit.len()))
}

/// Whether those that wait for their turn get more done in all than if they went on with what is left: where there are fewer CPUs
/// than workloads and paging takes CPU time, as with zram, they take from those that fit what they lose.
pub fn crowded(thrashing: &[&Progress], frame: &Observation) -> bool {
    let (all, cpus) = (float(thrashing.len()), Cpus::of(frame));
    if !cpus.page || all <= cpus.count {
        return false;
    }
    let fit = at_a_time(&fitting(thrashing).0, room(thrashing)).min(cpus.count);
    let others = (all - fit) * cpus.work(thrashing.iter().copied()) / all;
    fit > (1.0 + GAIN[1]) * (fit * cpus.count / all + others)
}

/// Whether it can only become worse: together they asked for more than there is, and each of them asks for more still.
fn worsens(of: &[&Progress]) -> bool {
    let (demand, resident) =
        of.iter().fold((0.0, 0.0), |(demand, resident), of| (demand + of.demand, resident + of.resident));
    demand > resident && of.iter().all(|of| of.demand > (1.0 + MORE) * of.demanded)
}

/// Whether there still is free memory that they fill.
fn fill_free_memory(of: &[&Progress]) -> bool {
    let sum = |what: fn(&Progress) -> f64| of.iter().map(|of| what(of)).sum::<f64>();
    let before = sum(|of| of.before);
    let more = sum(|of| of.resident) - before;
    more > MORE * before && more >= STAYS * sum(|of| of.refaulted)
}

/// A stall is taken for one that refaults explain up to so many times their price.
const LONGER: f64 = 10.0;

/// Memory that the thrashing workloads share: they fill it, but for a little that is in transit.
pub fn room(of: &[&Progress]) -> f64 {
    0.95 * of.iter().map(|of| of.resident).sum::<f64>()
}

/// A workload that alone lacks less than a tenth of what it asked for fits: it does nearly as well as with all of it.
pub const NEARLY: f64 = 1.1;

/// Bytes that a workload needs which asks for so many, where there are as many as this for all.
pub fn needed(demand: f64, room: f64) -> f64 {
    if demand <= NEARLY * room { demand.min(room) } else { demand }
}
