//! Turns: which workload has its working set in memory now, and for how long.
//!
//! One is the favourite: it is closest to having all that it needs. It has most of each cycle, the others share the rest, so
//! that all make progress. Workloads that fit beside the one whose turn it is run with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lowtide_model::PAGE_BYTES;
use lowtide_model::kind::PerKind;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;

use super::detect::{CALM, Progress, needed, room};
use super::quantum::{Quantum, SHORTEST_S};
use super::{GuardSettings, LEASE_S};
use crate::machine::{Observation, Reclaim, WorkloadAction};

/// What ran so long without losing time, seconds, has in memory what it needs. Each time that this was wrong, twice as long.
const CALM_S: f64 = 5.0;

/// After so many cycles, it is another's turn to be the favourite: some never end.
const FAVOURED: u32 = 10;

/// A round is on trial for so long, seconds, once the memory of whoever runs has come: if they do no more than all did before, it ends.
const TRIAL_S: f64 = 2.0;

/// Of what the members have, no more is protected.
const MOST_PROTECTED: f64 = 0.95;

/// Thrashing is over once no workload has lost time for so long, seconds.
const OVER_S: f64 = 10.0;

/// A workload that takes part.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Member {
    /// Bytes that it needs, as far as that is known: at most what it asked for.
    need: f64,
    demand: f64,
    resident: f64,
    floor: f64,
    priority: i32,
    /// The need is what it was observed to do with.
    learnt: bool,
    /// When its last turn began, and when it ran last.
    turn_s: f64,
    ran_s: f64,
    /// Since when it has run without losing time.
    calm_since_s: Option<f64>,
    /// When it joined, and seconds of progress since: what it ran without what it lost.
    joined_s: f64,
    progress_s: f64,
}

impl Member {
    /// Bytes that it needs and has not.
    fn lacks(&self) -> f64 {
        (self.need - self.resident).max(0.0)
    }
}

/// Work that is done, in CPUs' worth: what is not lost, of as many as there are CPUs for.
fn work<'a>(of: impl Iterator<Item = &'a Progress>, cpus: f64) -> f64 {
    of.map(|of| 1.0 - of.lost).sum::<f64>().min(cpus)
}

/// From the beginning of thrashing to its end.
#[derive(Debug, Clone)]
pub struct Round {
    protects: bool,
    strikes: u32,
    lost: f64,
    quantum: Quantum,
    /// What a page costs that is refaulted.
    swap_s: f64,
    /// Bytes that the members have among them.
    room: f64,
    members: BTreeMap<TargetId, Member>,
    favourite: TargetId,
    /// Cycles for which it has been.
    cycles: u32,
    /// Workloads that have a turn after this one, in this cycle.
    queue: VecDeque<TargetId>,
    holder: TargetId,
    /// Workloads that run beside it.
    beside: BTreeSet<TargetId>,
    turn_s: f64,
    turn_ends_s: f64,
    /// Work that all did before, in CPUs' worth; and when it is compared with what is done since. `None` = it was.
    trial: Option<(f64, f64)>,
    cpus: f64,
    /// Since when no workload has lost time.
    calm_s: Option<f64>,
    /// When progress was observed last.
    observed_s: f64,
}

impl Round {
    /// A round of these; `None` if none of them fits.
    pub fn new(thrashing: &[&Progress], strikes: u32, frame: &Observation, settings: &GuardSettings) -> Option<Self> {
        let (now_s, costs) = (frame.now_s, frame.costs);
        let mut round = Self {
            protects: settings.protects(frame),
            strikes,
            lost: settings.lost.0,
            quantum: Quantum::new(settings),
            swap_s: costs.swap_s + frame.swap_out_s,
            room: room(thrashing),
            members: BTreeMap::new(),
            favourite: TargetId::default(),
            cycles: 0,
            queue: VecDeque::new(),
            holder: TargetId::default(),
            beside: BTreeSet::new(),
            turn_s: now_s,
            turn_ends_s: now_s,
            trial: None,
            cpus: frame.cpus.unwrap_or(f64::INFINITY),
            calm_s: None,
            observed_s: now_s,
        };
        thrashing.iter().for_each(|of| round.join(of, now_s));
        if round.too_large() {
            return None;
        }
        round.favourite = round.closest(None)?;
        round.holder = round.favourite;
        let before = work(thrashing.iter().copied(), round.cpus);
        let fetch_s = round.fetch_s(round.members.get(&round.holder));
        round.trial = Some((before, now_s + fetch_s + TRIAL_S));
        Some(round)
    }

    /// The workload that has all that it needs now.
    pub fn holder(&self) -> TargetId {
        self.holder
    }

    fn join(&mut self, of: &Progress, now_s: f64) {
        let Progress { demand, resident, floor, priority, .. } = *of;
        let member = Member {
            need: needed(demand, self.room),
            demand,
            resident,
            floor,
            priority,
            learnt: false,
            turn_s: f64::NEG_INFINITY,
            ran_s: now_s,
            calm_since_s: None,
            joined_s: now_s,
            progress_s: 0.0,
        };
        self.members.insert(of.id, member);
    }

    /// Whether others would wait for one that never fits: it makes progress as badly alone, so that time is lost.
    fn too_large(&self) -> bool {
        !self.protects && self.members.values().any(|of| of.need > self.room)
    }

    /// The workload that lacks least of what it needs, of those that fit: by priority first, by waiting time last.
    fn closest(&self, but: Option<TargetId>) -> Option<TargetId> {
        let fit = self.members.iter().filter(|(id, of)| of.need <= self.room && Some(**id) != but);
        let order = |a: &Member, b: &Member| {
            b.priority.cmp(&a.priority).then(a.lacks().total_cmp(&b.lacks())).then(a.turn_s.total_cmp(&b.turn_s))
        };
        fit.min_by(|a, b| order(a.1, b.1)).map(|(id, _)| *id)
    }

    /// Takes note of the progress of all.
    pub fn observe(&mut self, progress: &[Progress], now_s: f64) {
        self.members.retain(|id, _| progress.iter().any(|of| of.id == *id));
        let calm_since_s = CALM_S * f64::from(1 << self.strikes);
        // A clock that jumped says nothing of what was done meanwhile.
        let elapsed_s = Some(now_s - self.observed_s).filter(|s| (0.0..LEASE_S).contains(s)).unwrap_or(0.0);
        self.observed_s = now_s;
        for of in progress {
            let Some(member) = self.members.get_mut(&of.id) else {
                // It lacks memory since the others began to.
                if of.lost >= self.lost {
                    self.room += of.resident;
                    self.join(of, now_s);
                }
                continue;
            };
            (member.demand, member.resident) = (of.demand, of.resident);
            (member.floor, member.priority) = (of.floor, of.priority);
            let runs = of.id == self.holder || self.beside.contains(&of.id);
            if of.id == self.holder {
                self.quantum.observe(elapsed_s, of.lost);
            }
            if runs || self.protects {
                member.ran_s = now_s;
                member.progress_s += elapsed_s * (1.0 - of.lost);
            }
            // A clock that was set back begins again.
            member.calm_since_s = member.calm_since_s.filter(|since_s| *since_s <= now_s);
            if runs && of.lost < CALM {
                let since_s = *member.calm_since_s.get_or_insert(now_s);
                if now_s - since_s >= calm_since_s {
                    let before = if member.learnt { member.need } else { f64::INFINITY };
                    (member.need, member.learnt) = (before.min(of.used), true);
                }
            } else if runs {
                (member.calm_since_s, member.learnt) = (None, member.learnt && of.lost < self.lost);
            } else {
                member.calm_since_s = None;
            }
            let needed = needed(of.demand, self.room);
            member.need = if member.learnt { member.need.min(needed) } else { needed };
        }
        let calm = progress.iter().filter(|of| self.members.contains_key(&of.id)).all(|of| of.lost < CALM);
        self.calm_s = calm.then(|| self.calm_s.filter(|since_s| *since_s <= now_s).unwrap_or(now_s));
    }

    /// Seconds that fetching takes what these lack.
    fn fetch_s<'a>(&self, of: impl IntoIterator<Item = &'a Member>) -> f64 {
        self.swap_s * of.into_iter().map(Member::lacks).sum::<f64>() / PAGE_BYTES
    }

    /// Whether the trial is over, and has shown that it gains something, or that it does not; `None` before and after.
    pub fn gains(&mut self, progress: &[Progress], now_s: f64) -> Option<bool> {
        let (before, until_s) = self.trial.filter(|(_, until_s)| now_s >= *until_s)?;
        self.trial = None;
        let runs = |of: &&Progress| self.members.contains_key(&of.id) && (self.protects || self.runs(of.id));
        // A turn that took long, or a clock that jumped, says nothing.
        Some(now_s >= until_s + TRIAL_S || work(progress.iter().filter(runs), self.cpus) >= before)
    }

    /// Why there is nothing to be shared any more; `None` while there is.
    pub fn over(&self, now_s: f64) -> Option<String> {
        let needs: f64 = self.members.values().map(|of| of.need).sum();
        if self.members.len() < 2 {
            Some("no two are left that thrash".to_owned())
        } else if needs <= self.room {
            Some("all fit".to_owned())
        } else if self.too_large() || self.closest(None).is_none() {
            Some("one of them fits never".to_owned())
        } else if self.protects && self.calm_s.is_some_and(|since_s| now_s - since_s >= OVER_S) {
            Some("no workload loses time any more".to_owned())
        } else {
            None
        }
    }

    /// Takes back whatever was granted; the reason says how fair the round was: what each did, and the mean of all.
    pub fn end(&self, why: &str, now_s: f64) -> Vec<WorkloadAction> {
        let mean_s = self.members.values().map(|of| of.progress_s).sum::<f64>() / float(self.members.len().max(1));
        let all = self.members.keys().chain((!self.members.contains_key(&self.holder)).then_some(&self.holder));
        let release = |id: &TargetId| {
            let share = self.members.get(id).map_or_else(String::new, |of| {
                let (done_s, lasted_s) = (of.progress_s, (now_s - of.joined_s).max(0.0));
                format!("; progress of {done_s:.1} s in {lasted_s:.1} s, on average {mean_s:.1} s")
            });
            WorkloadAction::Release { target: *id, reason: format!("{why}{share}") }
        };
        all.map(release).collect()
    }

    /// Grants for longer what was granted, or gives the turn to the next.
    pub fn go_on(&mut self, now_s: f64) -> Vec<WorkloadAction> {
        let fits = self.members.get(&self.holder).is_some_and(|of| of.need <= self.room);
        let goes_on = fits && (self.turn_s..self.turn_ends_s).contains(&now_s);
        if goes_on {
            return self.grant("it is still its turn");
        }
        while let Some(next) = self.queue.pop_front() {
            if self.members.contains_key(&next) {
                self.holder = next;
                return self.turn(now_s, "it is its turn");
            }
        }
        let tired = self.cycles >= FAVOURED;
        let there = self.members.get(&self.favourite).is_some_and(|of| of.need <= self.room);
        if !there || tired {
            let but = tired.then_some(self.favourite);
            self.favourite = self.closest(but).or_else(|| self.closest(None)).unwrap_or(self.favourite);
            self.cycles = 0;
        }
        self.holder = self.favourite;
        self.turn(now_s, "it is closest to having all that it needs")
    }

    /// Begins the turn of the next holder.
    pub fn turn(&mut self, now_s: f64, why: &str) -> Vec<WorkloadAction> {
        self.fill();
        let run = self.members.iter().filter(|(id, _)| self.runs(**id));
        let fetch_s = self.fetch_s(run.map(|(_, of)| of));
        self.quantum.begin(fetch_s);
        let (favourite_s, other_s) = self.quantum.turns_s(self.members.len().saturating_sub(1 + self.beside.len()));
        let lasts_s = if self.holder == self.favourite {
            self.cycles += 1;
            self.queue = self.by_turn().into_iter().filter(|id| !self.runs(*id)).collect();
            // No workload waits for longer than a cycle.
            let waited_s = self.queue.front().and_then(|id| self.members.get(id)).map_or(0.0, |of| now_s - of.ran_s);
            favourite_s.min(self.quantum.longest_s() - waited_s).max(SHORTEST_S)
        } else {
            other_s + fetch_s
        };
        (self.turn_s, self.turn_ends_s) = (now_s, now_s + lasts_s);
        for id in self.beside.iter().chain([&self.holder]) {
            if let Some(member) = self.members.get_mut(id) {
                member.turn_s = now_s;
            }
        }
        let mut actions = self.grant(why);
        actions.extend(self.make_room(why));
        actions
    }

    /// All members, those first whose turn is longest ago.
    fn by_turn(&self) -> Vec<TargetId> {
        let mut order: Vec<(f64, TargetId)> = self.members.iter().map(|(id, of)| (of.turn_s, *id)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        order.into_iter().map(|(_, id)| id).collect()
    }

    /// Workloads that fit beside it, those first that have waited for longest.
    fn fill(&mut self) {
        self.beside.clear();
        let need = |id: &TargetId| self.members.get(id).map_or(0.0, |of| of.need);
        let mut left = self.room - need(&self.holder);
        for id in self.by_turn() {
            if id != self.holder && need(&id) <= left {
                left -= need(&id);
                self.beside.insert(id);
            }
        }
    }

    fn runs(&self, id: TargetId) -> bool {
        id == self.holder || self.beside.contains(&id)
    }

    fn grant(&self, why: &str) -> Vec<WorkloadAction> {
        let reason = || why.to_owned();
        let mut actions = Vec::new();
        // No more is protected than they have among them now: what others took since must not be missing to all the rest.
        let wanted = |of: &Member| of.need.min(self.room);
        let all: f64 = self.members.iter().filter(|(id, _)| self.runs(**id)).map(|(_, of)| wanted(of)).sum();
        let have: f64 = MOST_PROTECTED * self.members.values().map(|of| of.resident).sum::<f64>();
        let share = if all > have { have / all } else { 1.0 };
        for (id, of) in &self.members {
            actions.push(if self.protects {
                if self.runs(*id) {
                    let bytes = share * wanted(of);
                    WorkloadAction::Protect { target: *id, bytes, lasts_s: LEASE_S, reason: reason() }
                } else {
                    WorkloadAction::Release { target: *id, reason: reason() }
                }
            } else if self.runs(*id) {
                WorkloadAction::Release { target: *id, reason: reason() }
            } else {
                WorkloadAction::Pause { target: *id, lasts_s: LEASE_S, reason: reason() }
            });
        }
        actions
    }

    /// What runs now gets its memory at once rather than page by page, from those that wait.
    fn make_room(&self, why: &str) -> Vec<WorkloadAction> {
        let run = self.members.iter().filter(|(id, _)| self.runs(**id));
        let lacking: Vec<(TargetId, f64)> =
            run.map(|(id, of)| (*id, of.lacks())).filter(|(_, bytes)| *bytes > 0.0).collect();
        let wanted: f64 = lacking.iter().map(|(_, bytes)| bytes).sum();
        let wait = || self.members.iter().filter(|(id, _)| !self.runs(**id));
        let have: f64 = wait().map(|(_, of)| of.resident).sum();
        let mut actions = Vec::new();
        if wanted > 0.0 && have > 0.0 {
            for (id, of) in wait() {
                let bytes = (wanted * of.resident / have).min(of.resident - of.floor).max(0.0);
                let (bytes, older_s) = (PerKind { anon: bytes, file: 0.0 }, PerKind { anon: Some(0.0), file: None });
                actions.push(WorkloadAction::Reclaim(Reclaim { target: *id, bytes, older_s, reason: why.to_owned() }));
            }
        }
        let fetch = |(target, _): &(TargetId, f64)| WorkloadAction::Fetch { target: *target, reason: why.to_owned() };
        actions.extend(lacking.iter().map(fetch));
        actions
    }
}
