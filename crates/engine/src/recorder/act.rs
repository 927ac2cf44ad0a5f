//! Schemes that are carried out on the target while it is recorded.

use lowtide_kernel::monitor::mapping_use::parse_mappings;
use lowtide_kernel::{swap, zram};
use lowtide_model::PAGE;
use lowtide_model::units::float;
use lowtide_model::usage::Usage;

use super::Recorder;
use crate::event::Event;
use crate::schemes::acting::{Acting, Facts, SchemePlan};

impl Recorder {
    /// Begins to act, now that there is a source.
    pub(super) fn begin_acting(&mut self) {
        let Some(plan) = self.options.plan.clone() else { return };
        let accountant = &self.accounts.accountant;
        let acting = Acting::new(&self.kernel, plan, &accountant.pressure_file("memory"), self.epoch_ns);
        let own = match accountant.cgroups.as_slice() {
            [cgroup] => cgroup.hierarchy_path(&self.kernel).ok(),
            _ => None,
        };
        let by_kernel = acting.for_kernel(own.as_deref());
        let carried = self.source.as_mut().is_some_and(|source| {
            let reads = acting.age_s().is_none_or(|age_s| source.read_mappings_after(age_s));
            source.carry_out(by_kernel) && reads
        });
        if !carried {
            // What was possible before the program started is not any more.
            self.note(format!(
                "schemes were not carried out: DAMON could not be had any more, and the {} monitor reports no addresses",
                self.backend()
            ));
        }
        self.acting = Some(acting);
    }

    /// One turn of the schemes.
    pub(super) fn act(&mut self, now_s: f64, usage: &mut Usage) {
        let Some(acting) = &mut self.acting else { return };
        if self.options.plan.as_ref().is_some_and(SchemePlan::acts_itself) {
            let memory = float(self.meta.host.memory_bytes.max(1));
            let free = usage.system_used_bytes.map(|used| 1.0 - used / memory);
            let swaps = swap::devices(&self.kernel).ok();
            let swap_free = swaps.map(|all| zram::room(&self.kernel, &all));
            let (memory_some_s, refault_anon) = (usage.memory_some_s, usage.refault_anon);
            let demand = usage.demand_bytes.or(usage.rss_bytes);
            acting.step(Facts { now_s, memory_some_s, refault_anon, demand, free, swap_free }, &self.target.pids);
            self.price.acted_s = acting.cpu_s;
        }
        if let (Some(taken), Some(refaults)) = (acting.taken_file(), usage.refault_file) {
            usage.taken_file_bytes = Some((taken - refaults * float(PAGE)).max(0.0));
        }
        let (rows, failed) = (acting.take_rows(), acting.failed.take());
        if let Some(huge) = usage.huge_bytes.filter(|huge| *huge > 0.0)
            && self.huge_zeros.is_due(now_s)
        {
            usage.huge_zero_bytes = self.sample_zeros(now_s).map(|share| share * huge);
        }
        self.publish(now_s, &Event::Actions(&rows));
        if let Some(error) = failed {
            self.note(format!("schemes were not carried out in part: {error}"));
        }
    }

    /// The share of the target's huge pages that holds zeros.
    fn sample_zeros(&mut self, now_s: f64) -> Option<f64> {
        let mut mappings = Vec::new();
        for pid in &self.target.pids {
            // A process that has ended has none.
            let Ok(text) = self.kernel.read_text(format!("/proc/{pid}/smaps")) else { continue };
            mappings.extend(parse_mappings(&text).into_iter().map(|mapping| (*pid, mapping)));
        }
        self.huge_zeros.sample(&self.kernel, now_s, &mappings)
    }

    /// Ends acting; the results go into the record.
    pub(super) fn end_acting(&mut self, now_s: f64) {
        let Some(acting) = self.acting.take() else { return };
        let kernel_cpu_s = acting.kernel_cpu_s;
        let (mut uses, rows, cpu_s) = acting.finish(now_s);
        self.price.acted_s = cpu_s;
        let by_kernel = uses.iter_mut().filter(|used| used.cpu_s.is_none()).collect::<Vec<_>>();
        // The kernel does not report what each of them took.
        let each_s = kernel_cpu_s / float(by_kernel.len().max(1));
        by_kernel.into_iter().for_each(|used| used.cpu_s = Some(each_s));
        self.meta.schemes = uses;
        self.publish(now_s, &Event::Actions(&rows));
    }
}
