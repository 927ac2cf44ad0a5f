//! Requests that take several steps, as their memory is searched for by its addresses.

use lowtide_kernel::{sys, zram};
use lowtide_policy::machine::Reclaim;

use super::super::address::MachineFacts;
use super::super::reclaim::learn;
use super::Agent;
use crate::event::{Event, Outcome};

impl Agent {
    /// A step towards what is searched for by its addresses, and of schemes.
    pub(super) fn search_step(&mut self, now_s: f64) {
        if self.sampling.address().is_none_or(|address| !address.is_due(now_s)) {
            return;
        }
        let facts = MachineFacts { pressure: self.workloads.pressure(), swap_free: self.workloads.swap_free() };
        let stored = || zram::in_use(&self.kernel).map(|of| (of.original, of.used));
        let (before, cpu_s) = (stored(), sys::thread_cpu_s());
        let Some(address) = self.sampling.address() else { return };
        let advised = address.apply(now_s, facts, &self.config.stop_file, self.dry_run);
        let steps = address.step(now_s, facts, &self.config.stop_file);
        if steps.is_empty() && advised.is_empty() {
            return;
        }
        for (id, advised) in advised {
            let Some(workload) = self.workloads.get_mut(id) else { continue };
            workload.huge = Some(advised.huge);
            for (scheme, bytes) in &advised.applied {
                self.sinks.publish(now_s, &Event::Advised(workload, scheme, *bytes));
            }
        }
        self.reclaim.cpu_s += sys::thread_cpu_s() - cpu_s;
        let stored = before.zip(stored()).filter(|_| steps.len() == 1);
        for (reclaimed, ended) in steps {
            if let Some(workload) = self.workloads.get_mut(reclaimed.target) {
                if let Some((before, after)) = stored {
                    learn(&mut workload.kept, before, after);
                }
                if let Some(group) = self.groups.get_mut(&workload.policy) {
                    group.reclaimed.push(reclaimed);
                }
            }
            self.ended(now_s, ended);
        }
    }

    /// Makes known what came of a request that took several steps.
    pub(super) fn ended(&mut self, now_s: f64, ended: Option<(Reclaim, Outcome)>) {
        let Some((wanted, outcome)) = ended else { return };
        if let Some(workload) = self.workloads.get_mut(wanted.target) {
            workload.count(&outcome);
            self.sinks.publish(now_s, &Event::Reclaimed(workload, &wanted, &outcome));
        }
    }
}
