//! The accounts of a target at one time: what its processes, its cgroup and the system say, as one row of usage.

use std::collections::{BTreeMap, BTreeSet};

use lowtide_model::usage::Usage;

use crate::cgroup::Cgroup;
use crate::monitor::Target;
use crate::proc::{self, ProcessId};
use crate::root::{Kernel, Result};
use crate::system;

/// Whose accounts.
#[derive(Debug, Clone)]
pub enum Scope {
    /// Processes that descend from these, as long as they live, and what they leave behind. With `children`, faults and
    /// CPU of ended children of this process count too.
    Tree {
        /// The first processes; for a program that lowtide started, lowtide itself (it is the reaper of orphans).
        roots: Vec<u32>,
        /// The first processes are not part of the tree: they are this process.
        own_children: bool,
    },
    /// Everything in a cgroup.
    Cgroup,
    /// Everything.
    System,
}

/// Bytes of a kernel stack on `x86_64` (`THREAD_SIZE`), for kernels whose accounts do not tell.
const KERNEL_STACK: u64 = 16384;

/// Reads accounts; counters start at zero when it is made.
#[derive(Debug)]
pub struct Accountant {
    kernel: Kernel,
    scope: Scope,
    /// The target's cgroup, if it has one of its own.
    pub cgroup: Option<Cgroup>,
    known: BTreeSet<ProcessId>,
    /// Counters of each process when first seen (zero for one that started since).
    baselines: BTreeMap<ProcessId, [u64; 3]>,
    /// The first row: counters count from it.
    first: Option<Usage>,
    /// Highest sums so far: a process that ends unwaited-for must not make a counter fall.
    highest: [u64; 3],
    ticks_per_s: f64,
}

/// What a tick found.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    /// The row; time and monitor columns are the caller's.
    pub usage: Usage,
    /// The target, for the monitors.
    pub target: Target,
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts of one machine are below 2^53")]
fn number(value: u64) -> f64 {
    value as f64
}

impl Accountant {
    /// Accounts of `scope`, with the cgroup that holds it, if any.
    #[must_use]
    pub fn new(kernel: &Kernel, scope: Scope, cgroup: Option<Cgroup>) -> Self {
        Self {
            kernel: kernel.clone(),
            scope,
            cgroup,
            known: BTreeSet::new(),
            baselines: BTreeMap::new(),
            first: None,
            highest: [0; 3],
            ticks_per_s: number(rustix::param::clock_ticks_per_second()),
        }
    }

    /// The processes of the target that live now.
    pub fn pids(&mut self) -> Result<Vec<u32>> {
        match &self.scope {
            Scope::Cgroup => self.cgroup.as_ref().map_or(Ok(Vec::new()), |cgroup| cgroup.pids(&self.kernel)),
            Scope::System => proc::pids(&self.kernel),
            Scope::Tree { roots, own_children } => {
                if let (true, Some(cgroup)) = (own_children, &self.cgroup) {
                    return cgroup.pids(&self.kernel);
                }
                let stats: Vec<proc::Stat> =
                    proc::pids(&self.kernel)?.iter().filter_map(|pid| proc::stat(&self.kernel, *pid).ok()).collect();
                // Those seen before stay in the tree when their parent ends and init adopts them.
                let mut seeds = roots.clone();
                seeds.extend(stats.iter().map(|stat| stat.id).filter(|id| self.known.contains(id)).map(|id| id.pid));
                let parents: Vec<(u32, u32)> = stats.iter().map(|stat| (stat.id.pid, stat.ppid)).collect();
                let mut tree = proc::descendants(&parents, &seeds);
                tree.retain(|pid| {
                    stats.iter().any(|stat| stat.id.pid == *pid) && !(*own_children && roots.contains(pid))
                });
                self.known =
                    stats.iter().map(|stat| stat.id).filter(|id| tree.binary_search(&id.pid).is_ok()).collect();
                Ok(tree)
            }
        }
    }

    /// Reads everything. `pss`: also the proportional set sizes, which costs a walk over all pages.
    pub fn read(&mut self, pss: bool) -> Result<Accounts> {
        let pids = self.pids()?;
        let mut usage = Usage::default();
        let mut target = Target { pids, cgroup: None, system: false, ..Target::default() };
        self.system(&mut usage);
        match &self.scope {
            Scope::System => self.whole_system(&mut usage, &mut target)?,
            _ => {
                self.processes(&mut usage, &mut target, pss);
                self.charges(&mut usage, &mut target);
            }
        }
        self.count_from_zero(&mut usage);
        Ok(Accounts { usage, target })
    }

    fn system(&self, usage: &mut Usage) {
        if let Ok(memory) = system::memory(&self.kernel) {
            usage.system_used_bytes = Some(number(memory.total.saturating_sub(memory.free)));
            usage.system_available_bytes = Some(number(memory.available));
            usage.system_lru_bytes = Some(number(memory.lru));
        }
        if let Ok(cpu) = system::cpu(&self.kernel) {
            usage.system_cpu_s = Some(number(cpu.total) / self.ticks_per_s);
            usage.system_iowait_s = Some(number(cpu.iowait) / self.ticks_per_s);
        }
        let file = |resource: &str| {
            let own = self.cgroup.as_ref().and_then(|cgroup| cgroup.pressure_file(&self.kernel, resource));
            own.unwrap_or_else(|| format!("/proc/pressure/{resource}"))
        };
        if let Ok(memory) = system::pressure(&self.kernel, &file("memory")) {
            (usage.memory_some_s, usage.memory_full_s) = (Some(memory.some_s), memory.full_s);
        }
        usage.io_some_s = system::pressure(&self.kernel, &file("io")).ok().map(|io| io.some_s);
    }

    /// Sums over the processes. One that ends while it is read counts as far as it was read.
    fn processes(&mut self, usage: &mut Usage, target: &mut Target, pss: bool) {
        let (mut status, mut threads, mut counters, mut proportional) = ([0u64; 5], 0u64, [0u64; 3], None);
        for pid in &target.pids {
            let Ok(stat) = proc::stat(&self.kernel, *pid) else { continue };
            threads += stat.threads;
            let now = [stat.minor_faults, stat.major_faults, stat.cpu_ticks].map(|[own, children]| own + children);
            let born_before = self.first.is_none() && !matches!(self.scope, Scope::Tree { own_children: true, .. });
            let base = *self.baselines.entry(stat.id).or_insert(if born_before { now } else { [0; 3] });
            for (sum, (now, base)) in counters.iter_mut().zip(now.iter().zip(base)) {
                *sum += now.saturating_sub(base);
            }
            let Ok(of) = proc::status(&self.kernel, *pid) else { continue };
            for (sum, value) in status.iter_mut().zip([of.rss_anon, of.rss_file, of.rss_shmem, of.swap, of.page_tables])
            {
                *sum += value;
            }
            if pss {
                *proportional.get_or_insert(0) += proc::pss(&self.kernel, *pid).unwrap_or(0);
            }
        }
        if let Scope::Tree { own_children: true, .. } = self.scope {
            let (faults, cpu_s) = crate::sys::children_usage();
            counters[0] += faults[0];
            counters[1] += faults[1];
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a non-negative CPU time")]
            let ticks = (cpu_s * self.ticks_per_s) as u64;
            counters[2] += ticks;
        }
        for (highest, now) in self.highest.iter_mut().zip(counters) {
            *highest = (*highest).max(now);
        }
        let [anon, file, shmem, swap, page_tables] = status;
        usage.pss_bytes = proportional.map(number);
        usage.rss_bytes = Some(number(anon + file + shmem));
        usage.swap_bytes = Some(number(swap));
        usage.demand_bytes = Some(number(anon + file + shmem + swap));
        usage.anon_bytes = Some(number(anon));
        usage.file_bytes = Some(number(file + shmem));
        usage.shmem_bytes = Some(number(shmem));
        usage.mapped_file_bytes = Some(number(file + shmem));
        usage.page_table_bytes = Some(number(page_tables));
        usage.stack_bytes = Some(number(threads * KERNEL_STACK));
        usage.processes = Some(number(target.pids.len() as u64));
        usage.threads = Some(number(threads));
        usage.minor_faults = Some(number(self.highest[0]));
        usage.major_faults = Some(number(self.highest[1]));
        usage.cpu_s = Some(number(self.highest[2]) / self.ticks_per_s);
        target.totals = [number(anon), number(file + shmem), 0.0];
        target.exact = [false, false, true];
    }

    /// What the cgroup knows better than the sum over processes: shared pages once, page cache, kernel memory, faults
    /// of processes that came and went between two ticks.
    fn charges(&self, usage: &mut Usage, target: &mut Target) {
        let Some(cgroup) = &self.cgroup else { return };
        let Ok(charges) = cgroup.charges(&self.kernel) else { return };
        target.cgroup = Some(cgroup.clone());
        let of_process = |known: Option<u64>, else_: Option<f64>| known.map(number).or(else_);
        usage.anon_bytes = Some(number(charges.anon));
        usage.file_bytes = Some(number(charges.file));
        usage.shmem_bytes = Some(number(charges.shmem));
        usage.mapped_file_bytes = Some(number(charges.mapped_file));
        usage.swap_bytes = Some(number(charges.swap).max(usage.swap_bytes.unwrap_or(0.0)));
        usage.demand_bytes = usage.rss_bytes.zip(usage.swap_bytes).map(|(rss, swap)| rss + swap);
        usage.kernel_bytes = charges.kernel.map(number);
        usage.page_table_bytes = of_process(charges.page_tables, usage.page_table_bytes);
        usage.stack_bytes = of_process(charges.stacks, usage.stack_bytes);
        // Version 1 tells kernel memory in one number; what is neither page tables nor stacks is nearly all slab.
        let rest = || Some(usage.kernel_bytes? - usage.page_table_bytes? - usage.stack_bytes?);
        usage.slab_bytes = charges.slab.map(number).or_else(|| rest().map(|bytes| bytes.max(0.0)));
        usage.socket_bytes = charges.sockets.map(number);
        usage.cgroup_bytes = charges.current.map(number);
        usage.cgroup_lru_bytes = Some(number(charges.lru));
        usage.minor_faults = Some(number(charges.faults.saturating_sub(charges.major_faults)));
        usage.major_faults = Some(number(charges.major_faults));
        usage.refault_anon = charges.refault_anon.map(number);
        usage.refault_file = charges.refault_file.map(number);
        target.totals[0] = number(charges.anon);
        target.totals[2] = number(charges.file.saturating_sub(charges.mapped_file));
        target.exact = [true, false, true];
    }

    fn whole_system(&self, usage: &mut Usage, target: &mut Target) -> Result<()> {
        let memory = system::memory(&self.kernel)?;
        let counters = system::vm_counters(&self.kernel)?;
        let cpu = system::cpu(&self.kernel)?;
        usage.rss_bytes = Some(number(memory.anon + memory.mapped));
        usage.swap_bytes = Some(number(memory.swap_used));
        usage.demand_bytes = Some(number(memory.anon + memory.mapped + memory.swap_used));
        usage.anon_bytes = Some(number(memory.anon));
        usage.file_bytes = Some(number(memory.cache));
        usage.shmem_bytes = Some(number(memory.shmem));
        usage.mapped_file_bytes = Some(number(memory.mapped));
        usage.kernel_bytes = Some(number(memory.slab + memory.page_tables + memory.stacks));
        usage.slab_bytes = Some(number(memory.slab));
        usage.page_table_bytes = Some(number(memory.page_tables));
        usage.stack_bytes = Some(number(memory.stacks));
        usage.processes = Some(number(target.pids.len() as u64));
        usage.minor_faults = Some(number(counters.faults.saturating_sub(counters.major_faults)));
        usage.major_faults = Some(number(counters.major_faults));
        usage.refault_anon = counters.refault_anon.map(number);
        usage.refault_file = counters.refault_file.map(number);
        usage.cpu_s = Some(number(cpu.busy) / self.ticks_per_s);
        target.system = true;
        target.pids.clear();
        target.totals =
            [number(memory.anon), number(memory.mapped), number(memory.cache.saturating_sub(memory.mapped))];
        target.exact = [true, true, true];
        Ok(())
    }

    /// Counters since the first read.
    fn count_from_zero(&mut self, usage: &mut Usage) {
        let first = self.first.get_or_insert_with(|| usage.clone()).clone();
        for field in lowtide_model::usage::FIELDS {
            let counter = field.shape == lowtide_model::usage::Shape::Counter;
            if let (true, Some(now), Some(first)) = (counter, (field.get)(usage), (field.get)(&first)) {
                (field.set)(usage, Some((now - first).max(0.0)));
            }
        }
    }
}
