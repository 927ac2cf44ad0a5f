//! What a policy observes of the machine, and how the machine obeys.

use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::PerKind;
use lowtide_model::scheme::Action as Advice;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;
use lowtide_model::{PAGE, PAGE_BYTES};

use super::super::load::Load;
use super::Simulated;
use crate::machine::{
    Actuator, Block, BlockDone, Done, Observation, Order, Reclaim, Reclaimed, RegionAction, RegionObservation,
    WorkloadAction, WorkloadState,
};
use crate::sim::faults::Fate;
use crate::sim::faults::{Ask, Sensed};
use crate::sim::memory::{Taken, pages_of};
use crate::sim::monitor::{candidates, target};

impl Simulated {
    /// Carries out advice. The identity behind a process id was noted when it was observed, as a pidfd does.
    fn advise(&mut self, order: &Order, share: f64) -> Done {
        let mut done = Done { scheme: order.scheme, cpu_s: 0.0, blocks: Vec::new(), skipped: Vec::new() };
        let Some(at) = self.known.get(&order.pid).and_then(|id| self.find(*id)) else { return done };
        let mut all = Taken::default();
        for range in &order.ranges {
            let evicted = if order.action == Advice::Pageout && self.random.chance() < share {
                let taken = self.page_out(at, *range);
                all.add(taken);
                taken.all()
            } else {
                0
            };
            let left = self.in_memory(&(order.pid, *range)).map_or(0, |(_, _, pages)| pages);
            let evicted = u32::try_from(evicted).unwrap_or(u32::MAX);
            done.blocks.push(BlockDone { pid: order.pid, start: range.0, evicted, left });
        }
        done.cpu_s = all.cpu_s;
        self.reclaim_cpu_s += all.cpu_s;
        self.recorder.acted(at, all);
        done
    }

    /// Pages out a block: of each group that it reaches into, what of it lies there.
    fn page_out(&mut self, at: usize, (start, end): (u64, u64)) -> Taken {
        let mut all = Taken::default();
        let before = self.taken.get(&(self.loads[at].id, start)).map_or(0, |(_, pages)| *pages);
        let mut left = ((end - start) / PAGE).saturating_sub(u64::from(before));
        let mut from = start;
        while from < end && left > 0 {
            let Some((part, group)) = self.loads[at].group_at(from) else { break };
            let (_, group_end) = self.loads[at].range_of(part, group);
            let pages = ((end.min(group_end) - from) / PAGE).min(left);
            let taken = self.memory.evict(&mut self.loads[at], part, group, pages);
            left -= taken.all().min(left);
            all.add(taken);
            from = group_end;
        }
        let evicted = u32::try_from(all.all()).unwrap_or(u32::MAX);
        if evicted > 0 {
            self.taken.entry((self.loads[at].id, start)).or_insert((end, 0)).1 += evicted;
        }
        all
    }

    fn reclaim(&mut self, reclaim: &Reclaim, share: f64) {
        let Some(at) = self.find(reclaim.target) else { return };
        let load = &mut self.loads[at];
        // A cgroup that is itself asked for memory is not protected by its own memory.min (mem_cgroup_unprotected).
        let pages = reclaim.bytes.map(|bytes| pages_of(bytes * share));
        let taken = self.memory.evict_older(load, self.now_s, reclaim.older_s, pages);
        self.reclaim_cpu_s += taken.cpu_s;
        self.recorder.acted(at, taken);
        let bytes = taken.pages.map(|pages| float(pages) * PAGE_BYTES);
        self.reclaimed.push(Reclaimed { target: reclaim.target, bytes, cpu_s: taken.cpu_s });
    }

    /// Pages out anonymous memory, and has file memory go next.
    fn page_out_anon(&mut self, id: TargetId, bytes: f64) {
        let Some(at) = self.find(id) else { return };
        let load = &mut self.loads[at];
        let pages = pages_of(bytes.min(float(load.resident.anon) * PAGE_BYTES));
        let older_s = PerKind { anon: Some(0.0), file: None };
        let taken = self.memory.evict_older(load, self.now_s, older_s, PerKind { anon: pages, file: 0 });
        self.lrus[at].deactivate(load);
        self.reclaim_cpu_s += taken.cpu_s;
        self.recorder.acted(at, taken);
    }

    /// Brings back what is paged out, as far as there is room; nothing stalls.
    fn fetch(&mut self, id: TargetId, share: f64) {
        let Some(at) = self.find(id) else { return };
        let room = (self.memory.free() - self.memory.short()).max(0.0) * share;
        let cpu_s = self.memory.fetch(&mut self.loads[at], pages_of(room));
        self.reclaim_cpu_s += cpu_s;
    }

    /// Grants something to a workload, given when that ends.
    fn grant(&mut self, id: TargetId, lasts_s: f64, set: impl FnOnce(&mut Load, f64)) {
        let until_s = self.now_s + lasts_s;
        if let Some(at) = self.find(id) {
            set(&mut self.loads[at], until_s);
        }
    }

    /// Pages of a block that are in memory.
    fn in_memory(&self, (pid, (start, end)): &Block) -> Option<(u32, u64, u32)> {
        let id = self.known.get(pid)?;
        let pages = u32::try_from((end - start) / PAGE).ok()?;
        let gone = self.taken.get(&(*id, *start)).map_or(0, |(_, pages)| *pages);
        let load = &self.loads[self.find(*id)?];
        // What the kernel took by itself is not there either.
        let there = load.group_at(*start).map_or(0, |(_, group)| load.groups[group].resident);
        let within = load.group_at(*start).is_some_and(|(part, _)| load.parts[part].group_pages >= pages);
        let back = pages.saturating_sub(gone);
        Some((*pid, *start, if within { back.min(there) } else { back }))
    }
}

impl Simulated {
    /// What is known of workloads now; `None` while it cannot be read.
    pub fn observe(&mut self) -> Option<Observation> {
        self.sense().map(|sensed| sensed.workloads)
    }

    /// What is known of processes' memory now; `None` while it cannot be read.
    pub fn observe_regions(&mut self) -> Option<RegionObservation> {
        self.sense().map(|sensed| sensed.regions)
    }

    fn sense(&mut self) -> Option<Sensed> {
        let since_s = self.now_s - self.turn_s;
        self.turn_s = self.now_s;
        let waited: Vec<f64> = self.waited_s.iter_mut().map(std::mem::take).collect();
        let refaults: Vec<PerKind<f64>> =
            self.refaults.iter_mut().map(|back| std::mem::take(back).map(float)).collect();
        let may_touch = self.loads.iter().zip(&refaults).filter(|(load, _)| !load.protected);
        let stalled = |waited_s: f64| if since_s > 0.0 { (waited_s / since_s).min(1.0) } else { 0.0 };
        let monitors = self.setup.monitors;
        // Some task stalls unless none does.
        let pressure = Some(1.0 - waited.iter().map(|waited_s| 1.0 - stalled(*waited_s)).product::<f64>());
        let (free, swap_free) = (self.memory.free() / self.memory.total, self.memory.swap_free() * PAGE);
        let (free, swap_free) = (Some(free.clamp(0.0, 1.0)), Some(swap_free));
        let mut regions = RegionObservation {
            now_s: self.now_s,
            back: self.watched.iter().filter_map(|block| self.in_memory(block)).collect(),
            done: std::mem::take(&mut self.done),
            refaults: Some(may_touch.map(|(_, back)| back.anon).sum()),
            pressure,
            free,
            swap_free,
            ..RegionObservation::default()
        };
        let busy_cpu_s = std::mem::take(&mut self.busy_cpu_s);
        let mut workloads = Observation {
            now_s: self.now_s,
            reclaimed: std::mem::take(&mut self.reclaimed),
            pressure,
            free,
            swap_free,
            swap_on_disk: !self.memory.swap.zram,
            cpus: Some(self.setup.cpus),
            cpu_busy: (since_s > 0.0).then(|| (busy_cpu_s / (since_s * self.setup.cpus)).min(1.0)),
            can_protect: true,
            can_limit: true,
            costs: RefaultCosts { swap_s: self.memory.swap.in_s, disk_s: self.memory.disk_s },
            ..Observation::default()
        };
        self.known.clear();
        for ((load, waited_s), refaults) in self.loads.iter().zip(&waited).zip(refaults) {
            if load.protected || !load.runs(self.now_s) {
                continue;
            }
            self.known.insert(load.pid, load.id);
            if monitors.histograms {
                let pressure = Some(stalled(*waited_s));
                let target = target(load, self.now_s, &monitors, &mut self.random);
                let stored = target.stored.filter(|_| self.memory.swap.zram);
                workloads.targets.push(WorkloadState { refaults, stored, pressure, stalled: pressure, ..target });
            }
            if monitors.regions > 0 {
                regions.candidates.extend(candidates(load, self.now_s, &monitors, &mut self.random));
            }
        }
        self.misfortune.sensed(Sensed { workloads, regions }, since_s)
    }

    fn obey(&mut self, asked: Vec<Ask>) {
        let overdue = self.misfortune.overdue();
        let due = overdue.into_iter().map(|ask| (ask, Fate::Done));
        let fresh: Vec<_> = asked.into_iter().map(|ask| (ask, self.misfortune.fate())).collect();
        for (ask, fate) in due.chain(fresh) {
            match fate {
                Fate::Done => self.carry_out_one(ask, 1.0),
                Fate::Partial(share) => self.carry_out_one(ask, share),
                Fate::Failed => {}
                Fate::Late => self.misfortune.delay(ask),
                Fate::Lied => self.lie(ask),
            }
        }
    }

    /// Reports as done what is not.
    fn lie(&mut self, ask: Ask) {
        match ask {
            Ask::Region(order) => {
                let pages = |range: &(u64, u64)| u32::try_from((range.1 - range.0) / PAGE).unwrap_or(0);
                let block =
                    |range: &(u64, u64)| BlockDone { pid: order.pid, start: range.0, evicted: pages(range), left: 0 };
                let blocks = order.ranges.iter().map(block);
                self.done.push(Done {
                    scheme: order.scheme,
                    cpu_s: 0.0,
                    blocks: blocks.collect(),
                    skipped: Vec::new(),
                });
            }
            Ask::Workload(WorkloadAction::Reclaim(Reclaim { target, bytes, .. })) => {
                self.reclaimed.push(Reclaimed { target, bytes, cpu_s: 0.0 });
            }
            Ask::Workload(_) => {}
        }
    }

    fn carry_out_one(&mut self, ask: Ask, share: f64) {
        match ask {
            Ask::Region(order) => {
                let done = self.advise(&order, share);
                self.done.push(done);
            }
            Ask::Workload(WorkloadAction::Reclaim(reclaim)) => self.reclaim(&reclaim, share),
            Ask::Workload(WorkloadAction::PageOut { target, bytes, .. }) => self.page_out_anon(target, bytes * share),
            Ask::Workload(WorkloadAction::Fetch { target, .. }) => self.fetch(target, share),
            Ask::Workload(WorkloadAction::Protect { target, bytes, lasts_s, .. }) => {
                self.grant(target, lasts_s, |load, until_s| load.granted = (bytes, until_s))
            }
            Ask::Workload(WorkloadAction::Limit { target, bytes, lasts_s, .. }) => {
                self.grant(target, lasts_s, |load, until_s| load.limited = (bytes, until_s))
            }
            Ask::Workload(WorkloadAction::Pause { target, lasts_s, .. }) => {
                self.grant(target, lasts_s, |load, until_s| load.paused_until_s = until_s)
            }
            Ask::Workload(WorkloadAction::Release { target, .. }) => self.grant(target, 0.0, |load, now_s| {
                (load.granted.1, load.limited.1, load.paused_until_s) = (now_s, now_s, now_s);
            }),
        }
    }
}

impl Actuator<WorkloadAction> for Simulated {
    fn carry_out(&mut self, actions: Vec<WorkloadAction>) {
        self.obey(actions.into_iter().map(Ask::Workload).collect());
    }
}

impl Actuator<RegionAction> for Simulated {
    fn carry_out(&mut self, actions: Vec<RegionAction>) {
        self.watched.clear();
        let mut asked = Vec::new();
        for action in actions {
            match action {
                RegionAction::Advise(order) => asked.push(Ask::Region(order)),
                RegionAction::Count(block) => self.watched.push(block),
            }
        }
        self.obey(asked);
    }
}
