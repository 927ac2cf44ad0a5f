//! Requests that take several steps, as their memory is searched for by its addresses.

use lowtide_kernel::zram;
use lowtide_policy::machine::Reclaim;

use super::super::address::StepContext;
use super::Agent;
use crate::event::{ActionEvent, Event, ReclaimOutcome};

impl Agent {
    /// A step towards what is searched for by its addresses, and of schemes.
    pub(super) fn search_step(&mut self, now_s: f64) {
        if self.sampling.address().is_none_or(|address| !address.is_due(now_s)) {
            return;
        }
        let stored = || zram::in_use(&self.kernel).map(|of| (of.original, of.used));
        let (before, cpu_s) = (stored(), self.kernel.thread_cpu_s());
        let (pressure, swap_free) = (self.workloads.pressure, self.workloads.swap_free());
        let context =
            StepContext { now_s, pressure, swap_free, stop_file: &self.config.stop_file, dry_run: self.dry_run };
        let Some(address) = self.sampling.address() else { return };
        let (advised, steps) = (address.apply(&context), address.step(&context));
        if steps.is_empty() && advised.is_empty() {
            return;
        }
        for (id, advised) in advised {
            let Some(workload) = self.workloads.all.get_mut(&id) else { continue };
            workload.huge = Some(advised.huge);
            for (scheme, bytes) in &advised.applied {
                self.sinks.publish(now_s, &Event::Advised(workload, scheme, *bytes));
            }
        }
        self.reclaim.cpu_s += self.kernel.thread_cpu_s() - cpu_s;
        let stored = before.zip(stored()).filter(|_| steps.len() == 1);
        for (reclaimed, ended) in steps {
            if let Some(workload) = self.workloads.all.get_mut(&reclaimed.target) {
                if let Some((before, after)) = stored {
                    workload.totals.zram.learn(before, after);
                }
                if let Some(group) = self.groups.get_mut(&workload.policy) {
                    group.reclaimed.push(reclaimed);
                }
            }
            self.ended(now_s, ended);
        }
    }

    /// Publishes the result of a request that took several steps.
    pub(super) fn ended(&mut self, now_s: f64, ended: Option<(Reclaim, ReclaimOutcome)>) {
        let Some((wanted, outcome)) = ended else { return };
        if let Some(workload) = self.workloads.all.get_mut(&wanted.target) {
            workload.count(&outcome);
            self.sinks.publish(now_s, &Event::Acted(&ActionEvent::reclaimed(workload, &wanted, &outcome)));
        }
    }
}
