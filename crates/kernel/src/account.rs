//! The accounts of a target at one time: what its processes, its cgroup and the system say, as one row of usage.

use std::collections::BTreeMap;

use lowtide_model::numa::NodeUse;
use lowtide_model::units::{float, integer};
use lowtide_model::usage::{FIELDS, Shape, Usage};

use crate::cgroup::{self, Cgroup, Selection};
use crate::monitor::Target;
use crate::proc::{self, ProcessId};
use crate::root::{Kernel, Result, UnlessGone};
use crate::{numa, pressure, system, zram};

/// The target of the accounts.
#[derive(Debug, Clone)]
pub enum Scope {
    /// Processes that descend from these, as long as they live, and what they leave behind. With `children`, faults and
    /// CPU of ended children of this process count too.
    Tree {
        /// The first processes; for a program that lowtide started, lowtide itself (it is the reaper of orphans).
        roots: Vec<ProcessId>,
        /// The first processes are not part of the tree: they are this process.
        own_children: bool,
    },
    /// Everything in the cgroups.
    Cgroups,
    /// Everything.
    System,
}

/// How much is read. Going through cgroups and processes costs in proportion to their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// What the system says; of the target, only what was known before.
    System,
    /// Also what the target's cgroups say. A target without a cgroup of its own has only its processes.
    Charges,
    /// Also what its processes say.
    Processes,
    /// Also their proportional set sizes, which costs a walk over all pages.
    Pss,
}

/// Bytes of a kernel stack on `x86_64` (`THREAD_SIZE`), for kernels that do not report it.
const KERNEL_STACK: u64 = 16384;

/// Mapped file bytes when processes were last read.
#[derive(Debug, Clone, Copy, Default)]
struct Mapped {
    /// The sum over the processes.
    by_processes: f64,
    /// As charged to the cgroups, where shared pages count once.
    charged: f64,
}

/// Reads accounts; counters start at zero when it is made.
#[derive(Debug)]
pub struct Accountant {
    kernel: Kernel,
    scope: Scope,
    /// The target's own cgroups, if it has any.
    pub cgroups: Vec<Cgroup>,
    /// Where they are named by a pattern: they come and go.
    selection: Option<Selection>,
    /// The target as it was last read.
    target: Target,
    mapped: Mapped,
    /// The processes of a tree as it was last searched for them, by pid.
    found: BTreeMap<u32, proc::Stat>,
    /// Counters of each process when first read; zero for one that started since.
    baselines: BTreeMap<ProcessId, [u64; 3]>,
    /// The first row: counters count from it.
    first: Option<Usage>,
    /// Highest sums so far: a process that ends unwaited-for must not make a counter fall.
    highest: [u64; 3],
    ticks_per_s: f64,
    /// Whether more than one NUMA node has memory.
    has_nodes: bool,
}

/// Readings of one tick.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    /// The row; time and monitor columns are the caller's.
    pub usage: Usage,
    /// The target, for the monitors.
    pub target: Target,
    /// Its memory by NUMA node, where there are several and `depth` includes it.
    pub nodes: Vec<NodeUse>,
}

impl Accountant {
    /// Accounts of `scope`, with the cgroups that hold it, if any.
    pub fn new(kernel: &Kernel, scope: Scope, cgroups: Vec<Cgroup>) -> Self {
        Self {
            kernel: kernel.clone(),
            scope,
            cgroups,
            selection: None,
            target: Target::default(),
            mapped: Mapped::default(),
            found: BTreeMap::new(),
            baselines: BTreeMap::new(),
            first: None,
            highest: [0; 3],
            has_nodes: numa::with_memory(kernel).len() > 1,
            ticks_per_s: float(rustix::param::clock_ticks_per_second()),
        }
    }

    /// Accounts of all cgroups that a pattern means, as they come and go.
    pub fn following(kernel: &Kernel, selection: Selection) -> Result<Self> {
        let cgroups = selection.find(kernel)?;
        Ok(Self { selection: Some(selection), ..Self::new(kernel, Scope::Cgroups, cgroups) })
    }

    /// The processes of the target that live now.
    pub fn pids(&mut self) -> Result<Vec<u32>> {
        match &self.scope {
            Scope::Cgroups => self.in_cgroups(),
            Scope::System => proc::pids(&self.kernel),
            Scope::Tree { own_children: true, .. } if !self.cgroups.is_empty() => self.in_cgroups(),
            Scope::Tree { roots, own_children } => {
                let stats: Vec<proc::Stat> =
                    proc::pids(&self.kernel)?.iter().filter_map(|pid| proc::stat(&self.kernel, *pid).ok()).collect();
                // Those of the tree before stay in it when their parent ends and init adopts them.
                // Another process that has the pid of one of them by now is not of the tree.
                let was_found = |id: &ProcessId| self.found.get(&id.pid).is_some_and(|stat| stat.id == *id);
                let is_of_tree = |id: &ProcessId| roots.contains(id) || was_found(id);
                let seeds: Vec<u32> = stats.iter().map(|stat| stat.id).filter(is_of_tree).map(|id| id.pid).collect();
                let parents: Vec<(u32, u32)> = stats.iter().map(|stat| (stat.id.pid, stat.ppid)).collect();
                let mut tree = proc::descendants(&parents, &seeds);
                tree.retain(|pid| {
                    stats.iter().any(|stat| stat.id.pid == *pid)
                        && !(*own_children && roots.iter().any(|root| root.pid == *pid))
                });
                let of_tree = stats.into_iter().filter(|stat| tree.binary_search(&stat.id.pid).is_ok());
                self.found = of_tree.map(|stat| (stat.id.pid, stat)).collect();
                Ok(tree)
            }
        }
    }

    fn in_cgroups(&self) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for cgroup in &self.cgroups {
            pids.extend(cgroup.pids(&self.kernel).unless_gone()?.into_iter().flatten());
        }
        Ok(pids)
    }

    /// Cgroups go, and their paths may be used again by others; with a pattern, new ones come.
    fn follow_cgroups(&mut self, depth: Depth) -> Result<()> {
        if let (Some(selection), true) = (&self.selection, depth >= Depth::Processes) {
            self.cgroups = selection.find(&self.kernel)?;
        }
        self.cgroups.retain(|cgroup| cgroup.is_alive(&self.kernel));
        Ok(())
    }

    /// Whether there is less to read than all processes.
    pub fn has_charges(&self) -> bool {
        match self.scope {
            Scope::System => false,
            Scope::Cgroups => true,
            Scope::Tree { own_children, .. } => own_children && !self.cgroups.is_empty(),
        }
    }

    /// Whether it is known by its processes alone.
    pub fn is_tree(&self) -> bool {
        matches!(self.scope, Scope::Tree { .. }) && !self.has_charges()
    }

    /// Whether nothing of the target is left that could use memory. A pattern means what is to come, too.
    pub fn is_over(&self, target: &Target) -> bool {
        target.pids.is_empty() && !target.system && self.selection.is_none()
    }

    /// The highest charge of the target so far; not known of several cgroups, whose peaks need not fall together.
    pub fn peak(&self) -> Option<u64> {
        let [cgroup] = self.cgroups.as_slice() else { return None };
        cgroup.peak(&self.kernel).filter(|_| self.selection.is_none())
    }

    /// Reads what `depth` says.
    pub fn read(&mut self, depth: Depth) -> Result<Accounts> {
        let mut usage = Usage::default();
        self.system(&mut usage);
        if depth == Depth::System {
            if !self.has_charges() && !self.target.pids.iter().any(|pid| proc::stat(&self.kernel, *pid).is_ok()) {
                self.target.pids.clear();
            }
            self.count_from_zero(&mut usage);
            return Ok(Accounts { usage, target: self.target.clone(), nodes: Vec::new() });
        }
        self.follow_cgroups(depth)?;
        let mut target =
            Target { cgroups: self.cgroups.clone(), selection: self.selection.clone(), ..Target::default() };
        if matches!(self.scope, Scope::System) {
            self.system_wide(&mut usage, &mut target)?;
        } else {
            if depth == Depth::Charges && self.has_charges() {
                let populated = |cgroup: &Cgroup| cgroup.is_populated(&self.kernel).unwrap_or(true);
                if self.cgroups.iter().any(populated) {
                    target.pids = self.target.pids.clone();
                }
            } else {
                target.pids = self.pids()?;
                self.processes(&mut usage, &mut target, depth == Depth::Pss);
            }
            self.charges(&mut usage, &mut target);
        }
        let nodes = if self.has_nodes { self.by_node(&target, depth) } else { Vec::new() };
        self.target = target.clone();
        self.count_from_zero(&mut usage);
        Ok(Accounts { usage, target, nodes })
    }

    /// By NUMA node. Of processes without a cgroup only as seldom as their proportional sizes: it is a walk over all pages, too.
    fn by_node(&self, target: &Target, depth: Depth) -> Vec<NodeUse> {
        if matches!(self.scope, Scope::System) {
            return numa::of_system(&self.kernel).unwrap_or_default();
        }
        if !self.cgroups.is_empty() {
            let of = |cgroup: &Cgroup| numa::of_cgroup(&self.kernel, cgroup).unwrap_or_default();
            return numa::sum(self.cgroups.iter().flat_map(of));
        }
        let of = |pid: &u32| numa::of_process(&self.kernel, *pid).unwrap_or_default();
        if depth == Depth::Pss { numa::sum(target.pids.iter().flat_map(of)) } else { Vec::new() }
    }

    fn system(&self, usage: &mut Usage) {
        if let Ok(memory) = system::memory(&self.kernel) {
            usage.system_used_bytes = Some(float(memory.total.saturating_sub(memory.free)));
            usage.system_available_bytes = Some(float(memory.available));
            usage.system_lru_bytes = Some(float(memory.lru));
        }
        if let Some(zram) = zram::in_use(&self.kernel) {
            usage.zram_bytes = Some(float(zram.used));
            usage.zram_stored_bytes = Some(float(zram.original));
        }
        if let Ok(cpu) = system::cpu(&self.kernel) {
            usage.system_cpu_s = Some(float(cpu.total) / self.ticks_per_s);
            usage.system_iowait_s = Some(float(cpu.iowait) / self.ticks_per_s);
        }
        if let Ok(memory) = pressure::read(&self.kernel, &self.pressure_file("memory")) {
            (usage.memory_some_s, usage.memory_full_s) = (Some(memory.some_s), memory.full_s);
        }
        usage.io_some_s = pressure::read(&self.kernel, &self.pressure_file("io")).ok().map(|io| io.some_s);
    }

    /// Whether the target is one cgroup, so that its page frames are known from others'.
    pub fn has_own_cgroup(&self) -> bool {
        self.cgroups.len() == 1 && self.selection.is_none()
    }

    /// The file with the target's pressure on a resource: its cgroup's, or else the system's. Pressures of
    /// several cgroups cannot be added up.
    pub fn pressure_file(&self, resource: &str) -> String {
        let own = match self.cgroups.as_slice() {
            [cgroup] if self.selection.is_none() => cgroup.pressure_file(&self.kernel, resource),
            _ => None,
        };
        own.unwrap_or_else(|| format!("/proc/pressure/{resource}"))
    }

    /// Sums over the processes. One that ends while it is read counts as far as it was read.
    fn processes(&mut self, usage: &mut Usage, target: &mut Target, pss: bool) {
        let (mut status, mut threads, mut counters, mut proportional) = ([0u64; 5], 0u64, [0u64; 3], None);
        for pid in &target.pids {
            let found = self.found.get(pid).cloned();
            let Some(stat) = found.or_else(|| proc::stat(&self.kernel, *pid).ok()) else { continue };
            threads += stat.threads;
            let now =
                [stat.minor_faults, stat.major_faults, stat.cpu_ticks].map(|of| of.own.saturating_add(of.children));
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
            let children = crate::sys::children_usage();
            counters[0] += children.minor_faults;
            counters[1] += children.major_faults;
            counters[2] += integer(children.cpu_s * self.ticks_per_s);
        }
        for (highest, now) in self.highest.iter_mut().zip(counters) {
            *highest = (*highest).max(now);
        }
        let [anon, file, shmem, swap, page_tables] = status;
        usage.pss_bytes = proportional.map(float);
        usage.rss_bytes = Some(float(anon + file + shmem));
        usage.swap_bytes = Some(float(swap));
        usage.demand_bytes = Some(float(anon + file + shmem + swap));
        usage.anon_bytes = Some(float(anon));
        usage.file_bytes = Some(float(file + shmem));
        usage.shmem_bytes = Some(float(shmem));
        usage.mapped_file_bytes = Some(float(file + shmem));
        usage.page_table_bytes = Some(float(page_tables));
        usage.stack_bytes = Some(float(threads * KERNEL_STACK));
        usage.processes = Some(float(target.pids.len()));
        usage.threads = Some(float(threads));
        usage.minor_faults = Some(float(self.highest[0]));
        usage.major_faults = Some(float(self.highest[1]));
        usage.cpu_s = Some(float(self.highest[2]) / self.ticks_per_s);
        target.totals = [float(anon), float(file + shmem), 0.0];
        target.exact = [false, false, true];
    }

    /// What the cgroups know better than the sum over processes: shared pages once, page cache, kernel memory, faults of
    /// processes that started and ended between two ticks.
    fn charges(&mut self, usage: &mut Usage, target: &mut Target) {
        let each = self.cgroups.iter().filter_map(|cgroup| cgroup.charges(&self.kernel).ok());
        let Some(mut charges) = each.reduce(|all, one| cgroup::sum(all, &one)) else { return };
        charges.swap_bytes = charges.swap_bytes.map(|bytes| bytes.max(usage.swap_bytes.unwrap_or(0.0)));
        charges.threads = usage.threads.or(charges.threads);
        for field in FIELDS {
            if let Some(value) = (field.get)(&charges) {
                (field.set)(usage, Some(value));
            }
        }
        usage.demand_bytes = usage.rss_bytes.zip(usage.swap_bytes).map(|(rss, swap)| rss + swap);
        // Version 1 reports kernel memory in one number; what is neither page tables nor stacks is nearly all slab.
        let rest = || Some((usage.kernel_bytes? - usage.page_table_bytes? - usage.stack_bytes?).max(0.0));
        usage.slab_bytes = usage.slab_bytes.or_else(rest);
        let [anon, file, mapped] =
            [charges.anon_bytes, charges.file_bytes, charges.mapped_file_bytes].map(|bytes| bytes.unwrap_or(0.0));
        if usage.rss_bytes.is_some() {
            self.mapped = Mapped { by_processes: target.totals[1], charged: mapped };
        }
        let grown = (self.mapped.by_processes + mapped - self.mapped.charged).max(0.0);
        target.totals = [anon, grown, (file - mapped).max(0.0)];
        target.exact = [true, false, true];
        target.mapped = Some(mapped);
    }

    fn system_wide(&self, usage: &mut Usage, target: &mut Target) -> Result<()> {
        let memory = system::memory(&self.kernel)?;
        let counters = system::vm_counters(&self.kernel)?;
        let cpu = system::cpu(&self.kernel)?;
        usage.rss_bytes = Some(float(memory.anon + memory.mapped));
        usage.swap_bytes = Some(float(memory.swap_used));
        usage.demand_bytes = Some(float(memory.anon + memory.mapped + memory.swap_used));
        usage.anon_bytes = Some(float(memory.anon));
        usage.file_bytes = Some(float(memory.cache));
        usage.shmem_bytes = Some(float(memory.shmem));
        usage.mapped_file_bytes = Some(float(memory.mapped));
        usage.kernel_bytes = Some(float(memory.slab + memory.page_tables + memory.stacks));
        usage.slab_bytes = Some(float(memory.slab));
        usage.page_table_bytes = Some(float(memory.page_tables));
        usage.stack_bytes = Some(float(memory.stacks));
        usage.processes = Some(float(target.pids.len()));
        usage.minor_faults = Some(float(counters.faults.saturating_sub(counters.major_faults)));
        usage.major_faults = Some(float(counters.major_faults));
        usage.refault_anon = counters.refault_anon.map(float);
        usage.refault_file = counters.refault_file.map(float);
        usage.cpu_s = Some(float(cpu.busy) / self.ticks_per_s);
        target.system = true;
        target.pids.clear();
        target.totals = [float(memory.anon), float(memory.mapped), float(memory.cache.saturating_sub(memory.mapped))];
        target.exact = [true, true, true];
        Ok(())
    }

    /// Counters since the first read.
    fn count_from_zero(&mut self, usage: &mut Usage) {
        let first = self.first.get_or_insert_with(|| usage.clone()).clone();
        for field in FIELDS.iter().filter(|field| field.shape == Shape::Counter) {
            if let (Some(now), Some(first)) = ((field.get)(usage), (field.get)(&first)) {
                (field.set)(usage, Some((now - first).max(0.0)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_the_pid_of_the_target_by_now_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let run = |pid: u32, parent: u32, start_ticks: u64| {
            let folder = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            let fields = format!("{pid} (x) S {parent} {}{start_ticks} 4096 1", "0 ".repeat(17));
            std::fs::write(folder.join("stat"), fields).unwrap();
        };
        run(7, 1, 100);
        run(8, 7, 110);
        let root = ProcessId { pid: 7, start_ticks: 100 };
        let scope = Scope::Tree { roots: vec![root], own_children: false };
        let mut accountant = Accountant::new(&Kernel::at(dir.path()), scope, Vec::new());
        assert_eq!(accountant.pids().unwrap(), [7, 8]);
        // The first one ends, and its pid is given to a stranger; its child goes on.
        run(7, 1, 200);
        run(8, 1, 110);
        assert_eq!(accountant.pids().unwrap(), [8]);
        // Where processes are not read, those that were known are there until they end.
        accountant.read(Depth::Processes).unwrap();
        assert_eq!(accountant.read(Depth::System).unwrap().target.pids, [8]);
        std::fs::remove_dir_all(dir.path().join("proc/8")).unwrap();
        let target = accountant.read(Depth::System).unwrap().target;
        assert!(accountant.is_over(&target));
        assert_eq!(accountant.pids().unwrap(), [0; 0]);
    }
}
