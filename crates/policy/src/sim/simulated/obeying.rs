//! What a policy sees of the machine, and how the machine obeys.

use lowtide_model::PAGE;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::scheme::Action as Advice;

use super::Simulated;
use crate::machine::{Action, Block, Done, Machine, Observation, Order, Reclaim, Reclaimed, Target};
use crate::sim::faults::Fate;
use crate::sim::load::PAGE_F;
use crate::sim::memory::{Taken, evict_older, pages_f, pages_of};
use crate::sim::monitor::{candidates, target};

impl Simulated {
    /// Carries out advice. The identity behind a process id was noted when it was seen, as a pidfd does.
    fn advise(&mut self, order: &Order, share: f64) -> Done {
        let mut done = Done { scheme: order.scheme, cpu_s: 0.0, blocks: Vec::new() };
        let Some(at) = self.known.get(&order.pid).and_then(|id| self.find(*id)) else { return done };
        let mut all = Taken::default();
        for range in &order.ranges {
            let went = if order.action == Advice::Pageout && self.random.chance() < share {
                let taken = self.page_out(at, *range);
                all.add(taken);
                taken.all()
            } else {
                0
            };
            done.blocks.push((order.pid, range.0, u32::try_from(went).unwrap_or(u32::MAX)));
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
        let went = u32::try_from(all.all()).unwrap_or(u32::MAX);
        if went > 0 {
            self.taken.entry((self.loads[at].id, start)).or_insert((end, 0)).1 += went;
        }
        all
    }

    fn reclaim(&mut self, reclaim: &Reclaim, share: f64) {
        let Some(at) = self.find(reclaim.target) else { return };
        let load = &mut self.loads[at];
        // A cgroup that is itself asked for memory is not protected by its own memory.min (mem_cgroup_unprotected).
        let pages = reclaim.bytes.map(|bytes| pages_of(bytes * share));
        let taken = evict_older(&mut self.memory, load, self.now_s, reclaim.older_s, pages);
        self.reclaim_cpu_s += taken.cpu_s;
        self.recorder.acted(at, taken);
        let bytes = taken.pages.map(|pages| pages_f(pages) * PAGE_F);
        self.reclaimed.push(Reclaimed { target: reclaim.target, bytes, cpu_s: taken.cpu_s });
    }

    /// Pages out anonymous memory, and has file memory go next.
    fn stow(&mut self, id: u64, share: f64) {
        let Some(at) = self.find(id) else { return };
        let load = &mut self.loads[at];
        let pages = pages_of(pages_f(load.resident[0]) * PAGE_F * share);
        let taken = evict_older(&mut self.memory, load, self.now_s, [Some(0.0), None], [pages, 0]);
        self.lrus[at].deactivate(load);
        self.reclaim_cpu_s += taken.cpu_s;
        self.recorder.acted(at, taken);
    }

    /// Brings back what is paged out, as far as there is room; nobody waits for it.
    fn fetch(&mut self, id: u64, share: f64) {
        let Some(at) = self.find(id) else { return };
        let room = (self.memory.free() - self.memory.short()).max(0.0) * share;
        let cpu_s = self.memory.fetch(&mut self.loads[at], pages_of(room));
        self.reclaim_cpu_s += cpu_s;
    }

    /// Protects so many bytes of a workload, or has it wait, for so many seconds.
    fn grant(&mut self, id: u64, bytes: Option<f64>, lasts_s: f64) {
        let until_s = self.now_s + lasts_s;
        let Some(at) = self.find(id) else { return };
        match bytes {
            Some(bytes) => self.loads[at].granted = (bytes, until_s),
            None => self.loads[at].paused_until_s = until_s,
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
        let whole = load.group_at(*start).is_some_and(|(part, _)| load.parts[part].group_pages >= pages);
        let back = pages.saturating_sub(gone);
        Some((*pid, *start, if whole { back.min(there) } else { back }))
    }
}

impl Machine for Simulated {
    fn observe(&mut self) -> Option<Observation> {
        let since_s = self.now_s - self.turn_s;
        self.turn_s = self.now_s;
        let waited: Vec<f64> = self.waited_s.iter_mut().map(std::mem::take).collect();
        let refaults: Vec<[f64; 2]> = self.refaults.iter_mut().map(|back| std::mem::take(back).map(pages_f)).collect();
        let may_touch = self.loads.iter().zip(&refaults).filter(|(load, _)| !load.protected);
        let pressure = |waited_s: f64| if since_s > 0.0 { (waited_s / since_s).min(1.0) } else { 0.0 };
        let monitors = self.setup.monitors;
        let mut seen = Observation {
            now_s: self.now_s,
            back: self.watched.iter().filter_map(|block| self.in_memory(block)).collect(),
            done: std::mem::take(&mut self.done),
            // Some task stalls unless none does.
            pressure: Some(1.0 - waited.iter().map(|waited_s| 1.0 - pressure(*waited_s)).product::<f64>()),
            refaults: Some(may_touch.map(|(_, back)| back[0]).sum()),
            reclaimed: std::mem::take(&mut self.reclaimed),
            free: Some((self.memory.free() / self.memory.total).clamp(0.0, 1.0)),
            swap_free: Some(self.memory.swap_free() * PAGE),
            swap_on_disk: !self.memory.swap.zram,
            cpus: Some(self.setup.cpus),
            cpu_busy: (since_s > 0.0)
                .then(|| (std::mem::take(&mut self.busy_cpu_s) / (since_s * self.setup.cpus)).min(1.0)),
            can_protect: true,
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
                let pressure = Some(pressure(*waited_s));
                let target = target(load, self.now_s, pressure, &monitors, &mut self.random);
                let stored = target.stored.filter(|_| self.memory.swap.zram);
                seen.targets.push(Target { refaults, stored, stalled: pressure, ..target });
            }
            if monitors.regions > 0 {
                candidates(load, self.now_s, &monitors, &mut self.random, &mut seen.candidates);
            }
        }
        self.misfortune.seen(seen, since_s)
    }

    fn act(&mut self, actions: Vec<Action>, watched: Vec<Block>) {
        self.watched = watched;
        let overdue = self.misfortune.overdue();
        let due = overdue.into_iter().map(|action| (action, Fate::Done));
        let fresh: Vec<_> = actions.into_iter().map(|action| (action, self.misfortune.fate())).collect();
        for (action, fate) in due.chain(fresh) {
            let share = match fate {
                Fate::Done => 1.0,
                Fate::Partial(share) => share,
                Fate::Failed => continue,
                Fate::Late => {
                    self.misfortune.delay(action);
                    continue;
                }
                Fate::Lied => {
                    if let Action::Advise(order) = &action {
                        let went = |range: &(u64, u64)| ((range.1 - range.0) / PAGE).try_into();
                        let blocks = order.ranges.iter().map(|range| (order.pid, range.0, went(range).unwrap_or(0)));
                        self.done.push(Done { scheme: order.scheme, cpu_s: 0.0, blocks: blocks.collect() });
                    }
                    if let Action::Reclaim(reclaim) = action {
                        let Reclaim { target, bytes, .. } = reclaim;
                        self.reclaimed.push(Reclaimed { target, bytes, cpu_s: 0.0 });
                    }
                    continue;
                }
            };
            match action {
                Action::Advise(order) => {
                    let done = self.advise(&order, share);
                    self.done.push(done);
                }
                Action::Reclaim(reclaim) => self.reclaim(&reclaim, share),
                Action::Stow { target, .. } => self.stow(target, share),
                Action::Fetch { target, .. } => self.fetch(target, share),
                Action::Protect { target, bytes, lasts_s, .. } => self.grant(target, Some(bytes), lasts_s),
                Action::Pause { target, lasts_s, .. } => self.grant(target, None, lasts_s),
                Action::Release { target, .. } => {
                    self.grant(target, Some(0.0), 0.0);
                    self.grant(target, None, 0.0);
                }
            }
        }
    }
}
