//! Requests that take several steps, as their memory is looked for by its addresses.

use lowtide_kernel::sys;
use lowtide_policy::machine::Reclaim;

use super::super::act::{Outcome, learn};
use super::super::log;
use super::super::schemed::Advised;
use super::Agent;

impl Agent {
    /// A step towards what is looked for by its addresses.
    pub(super) fn find(&mut self, now_s: f64) {
        if self.watch.ranges().is_none_or(|ranges| !ranges.is_looking(now_s)) {
            return;
        }
        let (facts, zram) = (self.watch.facts(), self.watch.zram_reader());
        let (stored, cpu_s) = (zram(), sys::thread_cpu_s());
        let Some(ranges) = self.watch.ranges() else { return };
        let advised = ranges.apply(now_s, facts, &self.config.stop_file, self.dry_run);
        let steps = ranges.step(now_s, facts, &self.config.stop_file);
        if steps.is_empty() && advised.is_empty() {
            return;
        }
        for (id, Advised { applied, huge }) in advised {
            let Some(watched) = self.watch.get_mut(id) else { continue };
            watched.huge = Some(huge);
            for (scheme, bytes) in applied {
                let figures = [("cgroup", watched.path.clone()), ("scheme", scheme), ("bytes", format!("{bytes:.0}"))];
                log::line("advise", &figures);
            }
        }
        self.actor.cpu_s += sys::thread_cpu_s() - cpu_s;
        let stored = stored.zip(zram()).filter(|_| steps.len() == 1);
        for (reclaimed, ended) in steps {
            if let Some(watched) = self.watch.get_mut(reclaimed.target) {
                if let Some((before, after)) = stored {
                    learn(&mut watched.kept, before, after);
                }
                if let Some(group) = self.groups.get_mut(&watched.policy) {
                    group.reclaimed.push(reclaimed);
                }
            }
            self.ended(ended);
        }
    }

    /// Makes known what came of a request that took several steps.
    pub(super) fn ended(&self, ended: Option<(Reclaim, Outcome)>) {
        let Some((wanted, outcome)) = ended else { return };
        if let Some(watched) = self.watch.found().get(&wanted.target) {
            log::reclaim(watched, &wanted, &outcome);
        }
        self.shared.with(|figures| figures.took(wanted.target, &outcome));
        self.seen.reclaimed(&wanted, &outcome);
    }
}
