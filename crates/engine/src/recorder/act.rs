//! The acting part of a tick: schemes that are carried out on the target while it is recorded.

use lowtide_kernel::huge::zero_share;
use lowtide_kernel::monitor::smaps::{MappingUse, parse_mappings};
use lowtide_kernel::root::Kernel;
use lowtide_kernel::swap;
use lowtide_model::usage::Usage;

use super::Recorder;
use crate::monitors::Monitor;
use crate::schemes::acting::{Acting, Facts, SchemePlan};

/// Huge pages are looked into so often, seconds: what is looked at counts as used.
const WASTE_EVERY_S: f64 = 10.0;

/// The share of the memory in huge pages that holds nothing, over the processes, by how much each has.
fn waste(kernel: &Kernel, pids: &[u32], seed: u64) -> Option<f64> {
    let (mut zero, mut all) = (0.0, 0.0);
    for pid in pids {
        // A process that ended meanwhile says nothing.
        let Ok(text) = kernel.read_text(format!("/proc/{pid}/smaps")) else { continue };
        let huge: Vec<MappingUse> = parse_mappings(&text).into_iter().filter(|mapping| mapping.huge > 0).collect();
        #[expect(clippy::cast_precision_loss, reason = "a size of memory")]
        let size = huge.iter().map(|mapping| mapping.huge).sum::<u64>() as f64;
        if let Ok(Some(share)) = zero_share(kernel, *pid, &huge, seed) {
            (zero, all) = (zero + share * size, all + size);
        }
    }
    (all > 0.0).then_some(zero / all)
}

impl Recorder {
    /// Begins to act, now that there is a monitor to go by.
    pub(super) fn begin_acting(&mut self) {
        let Some(plan) = self.options.plan.clone() else { return };
        let pressure = self.accountant.pressure_file("memory");
        let acting = Acting::new(&self.kernel, plan, &pressure, self.epoch_ns);
        let own = match self.accountant.cgroups.as_slice() {
            [cgroup] => cgroup.hierarchy_path(&self.kernel).ok(),
            _ => None,
        };
        let given = acting.for_kernel(own.as_deref());
        let without = match &mut self.monitor {
            Monitor::Damon(damon) => {
                damon.act_by(given);
                false
            }
            Monitor::Smaps(smaps) => {
                if let Some(age_s) = acting.age_s() {
                    smaps.look_after(age_s);
                }
                !given.is_empty()
            }
            Monitor::Mglru(_) | Monitor::None => true,
        };
        if without {
            // What was possible before the program started is not any more.
            self.note(format!(
                "schemes were not carried out: DAMON could not be had any more, and the {} monitor tells no addresses",
                self.monitor.name()
            ));
        }
        self.acting = Some(acting);
    }

    /// One turn: what was seen since the last, and what is done about it.
    pub(super) fn act(&mut self, now_s: f64, usage: &mut Usage) {
        if self.acting.is_none() {
            return;
        }
        self.take_snapshots();
        let Some(acting) = &mut self.acting else { return };
        match &mut self.monitor {
            Monitor::Damon(damon) => {
                damon.count();
                acting.saw_tallies(damon.tallies());
            }
            Monitor::Smaps(smaps) => {
                if let Some(look) = smaps.take_look() {
                    acting.saw_mappings(&look);
                }
            }
            Monitor::Mglru(_) | Monitor::None => {}
        }
        if self.options.plan.as_ref().is_some_and(SchemePlan::acts_itself) {
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            let free = usage.system_used_bytes.map(|used| 1.0 - used / self.meta.host.memory_bytes.max(1) as f64);
            let swaps = swap::devices(&self.kernel).ok();
            let swap_free = swaps.map(|all| all.iter().map(swap::Swap::free).sum());
            let (memory_some_s, refault_anon) = (usage.memory_some_s, usage.refault_anon);
            acting.step(Facts { now_s, memory_some_s, refault_anon, free, swap_free }, &self.target.pids);
        }
        if let (Some(taken), Some(refaults)) = (acting.taken_file(), usage.refault_file) {
            #[expect(clippy::cast_precision_loss, reason = "a page")]
            let back = refaults * lowtide_model::PAGE as f64;
            usage.taken_file_bytes = Some((taken - back).max(0.0));
        }
        if let Some(huge) = usage.huge_bytes.filter(|huge| *huge > 0.0)
            && now_s - self.wasted_s >= WASTE_EVERY_S
        {
            self.wasted_s = now_s;
            usage.huge_zero_bytes = waste(&self.kernel, &self.target.pids, self.epoch_ns).map(|share| share * huge);
        }
        let (rows, complaint) = (acting.take_rows(), acting.complaint.take());
        self.writer.actions(rows);
        if let Some(complaint) = complaint {
            self.note(format!("schemes were not carried out in part: {complaint}"));
        }
    }

    /// Ends acting; what came of it goes into the record.
    pub(super) fn stop_acting(&mut self, now_s: f64) {
        let Some(mut acting) = self.acting.take() else { return };
        if let Monitor::Damon(damon) = &self.monitor {
            acting.saw_tallies(damon.tallies());
        }
        let (mut uses, rows, cpu_s) = acting.finish(now_s);
        self.acted_s = cpu_s;
        let by_kernel = uses.iter_mut().filter(|used| used.cpu_s.is_none()).collect::<Vec<_>>();
        #[expect(clippy::cast_precision_loss, reason = "a handful of schemes")]
        let each_s = self.kernel_acted_s / by_kernel.len().max(1) as f64;
        // The kernel does not tell what each of them took.
        by_kernel.into_iter().for_each(|used| used.cpu_s = Some(each_s));
        self.meta.schemes = uses;
        self.writer.actions(rows);
    }
}
