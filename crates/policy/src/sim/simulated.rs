//! The simulated machine: its step, the observations of a policy, and the effect of its actions.

use std::collections::BTreeMap;

use lowtide_model::PAGE_BYTES;
use lowtide_model::kind::PerKind;
use lowtide_model::random::Random;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;

use super::faults::{InjectedFaults, Misfortune};
use super::load::{Load, Used};
use super::memory::{Lru, SimulatedMemory, Taken, pages_of};
use super::monitor::Monitors;
use super::outcome::{Outcome, Recorder};
use crate::machine::{Block, Done, Reclaimed};

mod obeying;

/// Bytes of a block, at most: what policies take as one piece.
const LARGEST_BLOCK: u64 = 2 << 20;

/// Configuration of the machine.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Seed of all random choices.
    pub seed: u64,
    /// Seconds of one step.
    pub step_s: f64,
    /// Seconds until it ends.
    pub duration_s: f64,
    /// CPUs.
    pub cpus: f64,
    /// Memory and swap.
    pub memory: SimulatedMemory,
    /// Workloads.
    pub loads: Vec<Load>,
    /// Seconds between two turns of a policy.
    pub turn_s: f64,
    /// Monitors of the policy.
    pub monitors: Monitors,
    /// Injected faults.
    pub faults: InjectedFaults,
    /// While less bytes than this are free or a file's, the workload in the background for longest is killed, as Android does
    /// by its `minfree` levels; 0 = never.
    pub spare: f64,
}

/// The simulated machine.
#[derive(Debug, Clone)]
pub struct Simulated {
    setup: Setup,
    now_s: f64,
    memory: SimulatedMemory,
    loads: Vec<Load>,
    lrus: Vec<Lru>,
    random: Random,
    misfortune: Misfortune,
    recorder: Recorder,
    /// CPU seconds of reclaim in this step, which workloads lack in the next.
    reclaim_cpu_s: f64,
    turn_s: f64,
    /// CPU seconds that were used since the last turn.
    busy_cpu_s: f64,
    /// Seconds that each workload waited since the last turn.
    waited_s: Vec<f64>,
    /// Pages that were refaulted to each workload since the last turn.
    refaults: Vec<PerKind<u64>>,
    /// Workload of each process id at the last observation.
    known: BTreeMap<u32, TargetId>,
    done: Vec<Done>,
    reclaimed: Vec<Reclaimed>,
    /// Where a block ends, and pages that were taken from it and are not back, by workload and where it begins.
    taken: BTreeMap<(TargetId, u64), (u64, u32)>,
    watched: Vec<Block>,
    /// Where each workload is, by its identity.
    places: BTreeMap<TargetId, usize>,
    next_id: u64,
}

impl Simulated {
    /// A machine before its first step.
    pub fn new(mut setup: Setup) -> Self {
        let loads = std::mem::take(&mut setup.loads);
        Self {
            now_s: 0.0,
            memory: setup.memory,
            lrus: vec![Lru::default(); loads.len()],
            random: Random::new(setup.seed),
            misfortune: Misfortune::new(setup.faults, setup.seed),
            recorder: Recorder::new(loads.len(), setup.duration_s),
            reclaim_cpu_s: 0.0,
            busy_cpu_s: 0.0,
            turn_s: 0.0,
            waited_s: vec![0.0; loads.len()],
            refaults: vec![PerKind::default(); loads.len()],
            known: BTreeMap::new(),
            done: Vec::new(),
            reclaimed: Vec::new(),
            taken: BTreeMap::new(),
            watched: Vec::new(),
            places: loads.iter().enumerate().map(|(at, load)| (load.id, at)).collect(),
            next_id: loads.iter().map(|load| u64::from(load.id)).max().unwrap_or(0) + 1,
            loads,
            setup,
        }
    }

    /// Sets the clock; the machine still runs until the configured end.
    pub fn from(mut self, now_s: f64) -> Self {
        (self.now_s, self.turn_s) = (now_s, now_s);
        self
    }

    /// Seconds since the start.
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// The workloads.
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Seconds that workloads waited for memory since the last observation.
    #[cfg(test)]
    pub fn waited_s(&self) -> f64 {
        self.waited_s.iter().sum()
    }

    /// The memory.
    pub fn memory(&self) -> &SimulatedMemory {
        &self.memory
    }

    /// Runs for one step; false at the end.
    pub fn step(&mut self) -> bool {
        if self.now_s >= self.setup.duration_s {
            return false;
        }
        let step_s = self.setup.step_s.min(self.setup.duration_s - self.now_s).max(1e-9);
        self.now_s += step_s;
        if self.misfortune.swap_is_full(self.now_s) {
            self.memory.swap.capacity = self.memory.swap.used;
        }
        if self.misfortune.vanishes(step_s) {
            self.vanish();
        }
        let share = self.cpu_share(step_s);
        let mut used = Vec::new();
        for at in 0..self.loads.len() {
            if self.setup.spare > 0.0 && self.loads[at].is_wanted(self.now_s) {
                self.loads[at].restart();
            }
            if self.loads[at].runs(self.now_s) {
                if self.loads[at].is_background(self.now_s) || self.loads[at].is_paused(self.now_s) {
                    continue;
                }
                self.run(at, step_s, share, &mut used);
            } else if (self.loads[at].resident + self.loads[at].out).total() > 0 {
                self.memory.free_all(&mut self.loads[at]);
            }
        }
        self.reclaim_for_all();
        self.make_room();
        self.recorder.step(self.now_s, step_s, &self.loads, &self.memory);
        true
    }

    /// Share of the time for which each workload has a CPU: workloads and reclaim share them.
    fn cpu_share(&mut self, step_s: f64) -> f64 {
        let reclaim = std::mem::take(&mut self.reclaim_cpu_s) / step_s;
        let now_s = self.now_s;
        let runs = |load: &&Load| load.runs(now_s) && !load.is_background(now_s) && !load.is_paused(now_s);
        let wanted: f64 = self.loads.iter().filter(runs).map(|load| load.cpus).sum();
        // A workload that waits for a disk leaves its CPU idle.
        let waits = |load: &&Load| runs(load) && load.debt_s >= step_s && !self.memory.swap.zram;
        let idle: f64 = self.loads.iter().filter(waits).map(|load| load.cpus).sum();
        self.busy_cpu_s += (wanted - idle + reclaim).clamp(0.0, self.setup.cpus) * step_s;
        (self.setup.cpus / (wanted + reclaim).max(1e-9)).min(1.0)
    }

    /// One workload's step: it serves what it must wait for, then runs for the rest.
    fn run(&mut self, at: usize, step_s: f64, share: f64, used: &mut Vec<Used>) {
        let load = &mut self.loads[at];
        let available_s = step_s * share;
        let waited_s = load.debt_s.min(available_s);
        load.debt_s -= waited_s;
        self.waited_s[at] += waited_s;
        load.run(available_s - waited_s, self.now_s, &mut self.random, used);
        if load.clock_s >= load.work_s {
            load.done_s = Some(self.now_s);
        }
        self.recorder.waited(at, waited_s, available_s);
        let mut debt_s = 0.0;
        let mut back = PerKind::default();
        for group in used.iter() {
            let load = &mut self.loads[at];
            debt_s += self.memory.bring(load, *group);
            back[load.parts[group.part].kind] += u64::from(group.back);
            if group.back > 0 {
                self.refaulted(at, *group);
            }
        }
        self.refaults[at] += back;
        self.recorder.refaulted(at, back);
        for (part, group) in self.loads[at].ended() {
            self.memory.free_group(&mut self.loads[at], part, group);
        }
        debt_s += self.keep_limits(at);
        debt_s += self.reclaim_directly(at);
        self.loads[at].debt_s += debt_s;
    }

    /// Blocks that reach into a group are in memory again, as far as they do.
    fn refaulted(&mut self, at: usize, used: Used) {
        if self.taken.is_empty() {
            return;
        }
        let load = &self.loads[at];
        let (start, end) = load.range_of(used.part, used.group);
        let overlapping = (load.id, start.saturating_sub(LARGEST_BLOCK))..(load.id, end);
        let back: Vec<(TargetId, u64)> =
            self.taken.range(overlapping).filter(|(_, (to, _))| *to > start).map(|(key, _)| *key).collect();
        for key in back {
            let Some((to, pages)) = self.taken.get_mut(&key) else { continue };
            let overlap = (end.min(*to) - start.max(key.1)) / lowtide_model::PAGE;
            *pages = pages.saturating_sub(u32::try_from(overlap).unwrap_or(u32::MAX));
            if *pages == 0 {
                self.taken.remove(&key);
            }
        }
    }

    /// Reclaims what a workload holds beyond its limits, at its own expense. Seconds that it waits.
    fn keep_limits(&mut self, at: usize) -> f64 {
        let load = &mut self.loads[at];
        let over = load.bytes() - load.high_at(self.now_s);
        if over <= 0.0 {
            return 0.0;
        }
        let taken = self.lrus[at].evict(&mut self.memory, load, pages_of(over));
        if load.bytes() > load.limits.max {
            self.kill(at);
        }
        taken.cpu_s
    }

    /// Direct reclaim by a workload that needs memory when none is free. Seconds that it waits.
    fn reclaim_directly(&mut self, at: usize) -> f64 {
        let mut waited_s = 0.0;
        while self.memory.free() < 0.0 {
            let taken = self.take_from_all(self.memory.short());
            waited_s += taken.cpu_s;
            if taken.all() == 0 {
                let largest = |a: &usize, b: &usize| self.loads[*a].bytes().total_cmp(&self.loads[*b].bytes());
                let Some(victim) = (0..self.loads.len()).filter(|load| !self.loads[*load].gone).max_by(largest) else {
                    break;
                };
                self.kill(victim);
                if victim == at {
                    break;
                }
            }
        }
        waited_s
    }

    /// Background reclaim by the kernel when little is free.
    fn reclaim_for_all(&mut self) {
        let short = self.memory.short();
        if short > 0.0 {
            let taken = self.take_from_all(short);
            self.reclaim_cpu_s += taken.cpu_s;
        }
    }

    /// Takes from all in proportion to what each holds above its protection: first memory.low, then memory.min.
    fn take_from_all(&mut self, bytes: f64) -> Taken {
        let mut all = Taken::default();
        let now_s = self.now_s;
        for floor in [(|load, now_s| load.limits.low.max(load.min_at(now_s))) as fn(&Load, f64) -> f64, Load::min_at] {
            let spare: Vec<f64> = self.loads.iter().map(|load| (load.bytes() - floor(load, now_s)).max(0.0)).collect();
            let sum: f64 = spare.iter().sum();
            let wanted = bytes - float(all.all()) * PAGE_BYTES;
            if sum <= 0.0 || wanted <= 0.0 {
                continue;
            }
            for (at, spare) in spare.into_iter().enumerate().filter(|(_, spare)| *spare > 0.0) {
                let pages = pages_of((wanted * spare / sum).min(spare));
                all.add(self.lrus[at].evict(&mut self.memory, &mut self.loads[at], pages));
            }
        }
        all
    }

    /// Kills the workloads in the background for longest, until there is enough room.
    fn make_room(&mut self) {
        while self.memory.free() + self.loads.iter().map(Load::file_bytes).sum::<f64>() < self.setup.spare {
            let away = self.loads.iter().enumerate().filter_map(|(at, load)| Some((at, load.away_s(self.now_s)?)));
            let Some((victim, _)) = away.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
            self.kill(victim);
        }
    }

    fn kill(&mut self, at: usize) {
        self.memory.free_all(&mut self.loads[at]);
        self.loads[at].gone = true;
        self.recorder.killed(at);
    }

    /// A random workload ends, and an unrelated process gets its process id.
    fn vanish(&mut self) {
        let at = self.misfortune.one_of(self.loads.len());
        let Some(load) = self.loads.get(at).filter(|load| load.runs(self.now_s)).cloned() else { return };
        self.memory.free_all(&mut self.loads[at]);
        self.loads[at].gone = true;
        let mut heir = Load::new(self.next_id, format!("{} (another)", load.name), load.parts);
        (heir.pid, heir.cpus, heir.protected, heir.start_s) = (load.pid, load.cpus, true, self.now_s);
        self.next_id += 1;
        self.places.insert(heir.id, self.loads.len());
        self.loads.push(heir);
        self.lrus.push(Lru::default());
        self.waited_s.push(0.0);
        self.refaults.push(PerKind::default());
        self.recorder.joined();
    }

    /// Whether a policy may have its turn.
    pub fn is_due(&self) -> bool {
        self.now_s + 1e-9 >= self.turn_s + self.setup.turn_s
    }

    /// The running workload of that identity.
    fn find(&self, id: TargetId) -> Option<usize> {
        self.places.get(&id).copied().filter(|at| self.loads[*at].runs(self.now_s))
    }

    /// The outcome.
    pub fn outcome(self) -> Outcome {
        self.recorder.outcome(&self.loads)
    }
}
