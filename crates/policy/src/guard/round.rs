//! Turns: which workload has its working set in memory now, and for how long.
//!
//! One is the favourite: it is closest to having all that it needs. It has most of each cycle, the others share the rest, so
//! that all make progress. Workloads that fit beside the one whose turn it is run with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lowtide_model::PAGE_BYTES;
use lowtide_model::kind::PerKind;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;

use super::detect::{CALM, Cpus, NEARLY, Progress, needed, room};
use super::member::{Member, Patience};
use super::quantum::{Quantum, SHORTEST_S};
use super::{GuardSettings, LEASE_S, MARGIN};
use crate::machine::{Observation, Reclaim, WorkloadAction};

/// What ran so long without losing time, seconds, has in memory what it needs. Each time that this was wrong, twice as long.
const CALM_S: f64 = 5.0;

/// After so many cycles, it is another's turn to be the favourite: some never end.
const FAVOURED: u32 = 10;

/// A round is on trial for so long, seconds, once the memory of whoever runs has come: if they do no more than all did before, it ends.
const TRIAL_S: f64 = 2.0;

/// Of what the members have, no more is protected.
const MOST_PROTECTED: f64 = 0.95;

/// Thrashing is over once no workload has lost time for so long, seconds. Each time that it was not, twice as long.
const OVER_S: f64 = 10.0;

/// From the beginning of thrashing to its end.
#[derive(Debug, Clone)]
pub struct Round {
    protects: bool,
    /// Those of lower priority can be kept small.
    limits: bool,
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
    /// Work that is to be done, in CPUs' worth, and when it is compared with what is done. `None` = it was.
    trial: Option<(f64, f64)>,
    cpus: Cpus,
    /// One of them has ended: those that are left nearly fit, maybe.
    ended: bool,
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
            protects: settings.protects(thrashing, frame),
            limits: settings.limits(frame),
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
            cpus: Cpus::of(frame),
            ended: false,
            calm_s: None,
            observed_s: now_s,
        };
        thrashing.iter().for_each(|of| round.join(of, now_s));
        if round.too_large() {
            return None;
        }
        round.favourite = round.closest(None)?;
        round.holder = round.favourite;
        let fetch_s = round.fetch_s(round.members.get(&round.holder));
        round.trial = Some((round.goal(thrashing), now_s + fetch_s + TRIAL_S));
        Some(round)
    }

    /// The workload that has all that it needs now.
    pub fn holder(&self) -> TargetId {
        self.holder
    }

    fn join(&mut self, of: &Progress, now_s: f64) {
        let mut member = Member::new(of, now_s);
        member.needs_at_most(needed(of.demand, self.room));
        self.members.insert(of.id, member);
    }

    /// Whether some have a higher priority than others: they have what they need as long as they need it, the others share the rest.
    fn ranked(&self) -> bool {
        let mut priorities = self.members.values().map(|of| of.priority);
        let first = priorities.next();
        self.limits && priorities.any(|priority| Some(priority) != first)
    }

    /// Whether none waits: they go on with what is left.
    fn all_run(&self) -> bool {
        self.protects || self.ranked()
    }

    /// Whether others would wait for one that never fits: it makes progress as badly alone, so that time is lost.
    fn too_large(&self) -> bool {
        !self.all_run() && self.members.values().any(|of| of.need > self.room)
    }

    /// The workload that lacks least of what it needs, of those that fit: by priority first, by waiting time last.
    fn closest(&self, but: Option<TargetId>) -> Option<TargetId> {
        let fit = || self.members.iter().filter(|(_, of)| of.need <= self.room);
        let first = fit().map(|(_, of)| of.priority).max().filter(|_| self.ranked());
        let fit = fit().filter(|(id, of)| Some(**id) != but && first.is_none_or(|first| of.priority == first));
        let order = |a: &Member, b: &Member| {
            b.priority.cmp(&a.priority).then(a.lacks().total_cmp(&b.lacks())).then(a.turn_s.total_cmp(&b.turn_s))
        };
        fit.min_by(|a, b| order(a.1, b.1)).map(|(id, _)| *id)
    }

    /// Takes note of the progress of all.
    pub fn observe(&mut self, progress: &[Progress], now_s: f64) {
        let before = self.members.len();
        self.members.retain(|id, _| progress.iter().any(|of| of.id == *id));
        self.ended |= self.members.len() < before;
        let lost = if self.ranked() { CALM } else { self.lost };
        let all_run = self.all_run();
        let patience = Patience { calm_s: CALM_S * f64::from(1 << self.strikes), lost };
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
            let runs = of.id == self.holder || self.beside.contains(&of.id);
            if of.id == self.holder {
                self.quantum.observe(elapsed_s, of.lost);
            }
            if runs || all_run {
                member.ran_s = now_s;
                member.progress_s += elapsed_s * (1.0 - of.lost);
            }
            member.observe(of, now_s, runs, patience);
            member.needs_at_most(needed(of.demand, self.room));
        }
        let calm = progress.iter().filter(|of| self.members.contains_key(&of.id)).all(|of| of.lost < CALM);
        self.calm_s = calm.then(|| self.calm_s.filter(|since_s| *since_s <= now_s).unwrap_or(now_s));
    }

    /// Seconds that fetching takes what these lack.
    fn fetch_s<'a>(&self, of: impl IntoIterator<Item = &'a Member>) -> f64 {
        self.swap_s * of.into_iter().map(Member::lacks).sum::<f64>() / PAGE_BYTES
    }

    /// What the trial has to reach, in CPUs' worth: what all did before; where some outrank others, of whom less may be done then, half of
    /// what the first of them lost.
    fn goal(&self, before: &[&Progress]) -> f64 {
        match before.iter().find(|of| of.id == self.holder) {
            Some(first) if self.ranked() => 1.0 - first.lost / 2.0,
            _ => self.cpus.work(before.iter().copied()),
        }
    }

    /// Whether the trial is over, and has shown that it gains something, or that it does not; `None` before and after.
    pub fn gains(&mut self, progress: &[Progress], now_s: f64) -> Option<bool> {
        let (goal, until_s) = self.trial.filter(|(_, until_s)| now_s >= *until_s)?;
        self.trial = None;
        let (ranked, all_run) = (self.ranked(), self.all_run());
        let all = |id| self.members.contains_key(&id) && (all_run || self.runs(id));
        let counts = |of: &&Progress| if ranked { of.id == self.holder } else { all(of.id) };
        // A turn that took long, or a clock that jumped, says nothing.
        Some(now_s >= until_s + TRIAL_S || self.cpus.work(progress.iter().filter(counts)) >= goal)
    }

    /// Why there is nothing to be shared any more; `None` while there is.
    pub fn over(&self, now_s: f64) -> Option<String> {
        let needs: f64 = self.members.values().map(|of| of.need).sum();
        if self.members.len() < 2 {
            Some("no two are left that thrash".to_owned())
        } else if needs <= self.room * if self.ended { NEARLY } else { 1.0 } {
            Some("all fit".to_owned())
        } else if self.too_large() || self.closest(None).is_none() {
            Some("one of them fits never".to_owned())
        } else if self.ranked() && self.cycles >= FAVOURED && now_s >= self.turn_ends_s {
            Some("it may be that it needs no protection any more".to_owned())
        } else if self.all_run()
            && self.calm_s.is_some_and(|since_s| now_s - since_s >= OVER_S * f64::from(1 << self.strikes))
        {
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
            let (ranked, first) = (self.ranked(), self.priority(self.holder));
            let waits = |id: &TargetId| !self.runs(*id) && (!ranked || self.priority(*id) == first);
            self.queue = self.by_turn().into_iter().filter(waits).collect();
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

    fn priority(&self, id: TargetId) -> Option<i32> {
        self.members.get(&id).map(|of| of.priority)
    }

    /// All members, those first whose turn is longest ago; where some outrank others, these first.
    fn by_turn(&self) -> Vec<TargetId> {
        let ranked = self.ranked();
        let mut order: Vec<(&TargetId, &Member)> = self.members.iter().collect();
        let rank = |of: &Member| ranked.then_some(of.priority);
        order.sort_by(|a, b| rank(b.1).cmp(&rank(a.1)).then(a.1.turn_s.total_cmp(&b.1.turn_s)));
        order.into_iter().map(|(id, _)| *id).collect()
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
        let mut actions = Vec::new();
        // No more is protected than they have among them now: what others took since must not be missing to all the rest.
        let wanted = |of: &Member| of.need.min(self.room);
        let all: f64 = self.members.iter().filter(|(id, _)| self.runs(**id)).map(|(_, of)| wanted(of)).sum();
        let have: f64 = MOST_PROTECTED * self.members.values().map(|of| of.resident).sum::<f64>();
        let share = if all > have { have / all } else { 1.0 };
        let (ranked, all_run, first) = (self.ranked(), self.all_run(), self.priority(self.holder));
        let lower = |of: &&Member| ranked && Some(of.priority) < first;
        let left = (self.room - all * (1.0 + MARGIN)).max((1.0 - MOST_PROTECTED) * self.room);
        let asked: f64 = self.members.values().filter(lower).map(|of| of.demand).sum();
        for (id, of) in &self.members {
            let (target, lasts_s, reason) = (*id, LEASE_S, why.to_owned());
            actions.push(if self.runs(*id) && self.protects {
                WorkloadAction::Protect { target, bytes: share * wanted(of), lasts_s, reason }
            } else if !self.runs(*id) && lower(&of) {
                WorkloadAction::Limit { target, bytes: left * of.demand / asked.max(1.0), lasts_s, reason }
            } else if self.runs(*id) || all_run {
                WorkloadAction::Release { target, reason }
            } else {
                WorkloadAction::Pause { target, lasts_s, reason }
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
        // Whoever is kept small reclaims from itself.
        if wanted > 0.0 && have > 0.0 && !self.ranked() {
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
