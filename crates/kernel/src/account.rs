//! The accounts of a target at one time: what its processes, its cgroup and the system say, as one row of usage.

use std::collections::{BTreeMap, BTreeSet};

use lowtide_model::numa::NodeUse;
use lowtide_model::usage::Usage;

use crate::cgroup::{Cgroup, Charges, Selection};
use crate::monitor::Target;
use crate::proc::{self, ProcessId};
use crate::root::{Kernel, Result};
use crate::{numa, pressure, system, zram};

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

/// Bytes of a kernel stack on `x86_64` (`THREAD_SIZE`), for kernels whose accounts do not tell.
const KERNEL_STACK: u64 = 16384;

/// Reads accounts; counters start at zero when it is made.
#[derive(Debug)]
pub struct Accountant {
    kernel: Kernel,
    scope: Scope,
    /// The target's own cgroups, if it has any.
    pub cgroups: Vec<Cgroup>,
    /// Where they are named by a pattern: they come and go.
    selection: Option<Selection>,
    /// The target as it was last seen.
    target: Target,
    /// Mapped file bytes at that time: summed over the processes, and as the cgroups had it, where shared ones count once.
    mapped: (f64, f64),
    known: BTreeSet<ProcessId>,
    /// Counters of each process when first seen (zero for one that started since).
    baselines: BTreeMap<ProcessId, [u64; 3]>,
    /// The first row: counters count from it.
    first: Option<Usage>,
    /// Highest sums so far: a process that ends unwaited-for must not make a counter fall.
    highest: [u64; 3],
    ticks_per_s: f64,
    /// Whether more than one NUMA node has memory.
    has_nodes: bool,
}

/// What a tick found.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    /// The row; time and monitor columns are the caller's.
    pub usage: Usage,
    /// The target, for the monitors.
    pub target: Target,
    /// Its memory by NUMA node, where there are several and `depth` goes there.
    pub nodes: Vec<NodeUse>,
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts of one machine are below 2^53")]
fn number(value: u64) -> f64 {
    value as f64
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
            mapped: (0.0, 0.0),
            known: BTreeSet::new(),
            baselines: BTreeMap::new(),
            first: None,
            highest: [0; 3],
            has_nodes: numa::with_memory(kernel).len() > 1,
            ticks_per_s: number(rustix::param::clock_ticks_per_second()),
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

    fn in_cgroups(&self) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for cgroup in &self.cgroups {
            match cgroup.pids(&self.kernel) {
                Ok(of) => pids.extend(of),
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
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
        if depth == Depth::System && self.has_charges() {
            self.count_from_zero(&mut usage);
            return Ok(Accounts { usage, target: self.target.clone(), nodes: Vec::new() });
        }
        self.follow_cgroups(depth)?;
        let mut target =
            Target { cgroups: self.cgroups.clone(), selection: self.selection.clone(), ..Target::default() };
        if matches!(self.scope, Scope::System) {
            self.whole_system(&mut usage, &mut target)?;
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
            usage.system_used_bytes = Some(number(memory.total.saturating_sub(memory.free)));
            usage.system_available_bytes = Some(number(memory.available));
            usage.system_lru_bytes = Some(number(memory.lru));
        }
        if let Some(zram) = zram::in_use(&self.kernel) {
            usage.zram_bytes = Some(number(zram.used));
            usage.zram_stored_bytes = Some(number(zram.original));
        }
        if let Ok(cpu) = system::cpu(&self.kernel) {
            usage.system_cpu_s = Some(number(cpu.total) / self.ticks_per_s);
            usage.system_iowait_s = Some(number(cpu.iowait) / self.ticks_per_s);
        }
        if let Ok(memory) = pressure::read(&self.kernel, &self.pressure_file("memory")) {
            (usage.memory_some_s, usage.memory_full_s) = (Some(memory.some_s), memory.full_s);
        }
        usage.io_some_s = pressure::read(&self.kernel, &self.pressure_file("io")).ok().map(|io| io.some_s);
    }

    /// Whether the target is one cgroup, so that its page frames can be told from others'.
    pub fn has_own_cgroup(&self) -> bool {
        self.cgroups.len() == 1 && self.selection.is_none()
    }

    /// The file that tells the target's pressure on a resource: its cgroup's, or else the whole system's. Pressures of
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
            let Ok(stat) = proc::stat(&self.kernel, *pid) else { continue };
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
    fn charges(&mut self, usage: &mut Usage, target: &mut Target) {
        let each = self.cgroups.iter().filter_map(|cgroup| cgroup.charges(&self.kernel).ok());
        let Some(charges) = each.reduce(|mut sum: Charges, one| {
            sum += one;
            sum
        }) else {
            return;
        };
        let of_process = |known: Option<u64>, else_: Option<f64>| known.map(number).or(else_);
        usage.anon_bytes = Some(number(charges.anon));
        usage.file_bytes = Some(number(charges.file));
        usage.shmem_bytes = Some(number(charges.shmem));
        usage.mapped_file_bytes = Some(number(charges.mapped_file));
        usage.swap_bytes = Some(number(charges.swap).max(usage.swap_bytes.unwrap_or(0.0)));
        usage.zswap_bytes = charges.zswap.map(number);
        usage.zswapped_bytes = charges.zswapped.map(number);
        usage.demand_bytes = usage.rss_bytes.zip(usage.swap_bytes).map(|(rss, swap)| rss + swap);
        usage.huge_bytes = charges.huge.map(number);
        usage.kernel_bytes = charges.kernel.map(number);
        usage.page_table_bytes = of_process(charges.page_tables, usage.page_table_bytes);
        usage.stack_bytes = of_process(charges.stacks, usage.stack_bytes);
        // Version 1 tells kernel memory in one number; what is neither page tables nor stacks is nearly all slab.
        let rest = || Some(usage.kernel_bytes? - usage.page_table_bytes? - usage.stack_bytes?);
        usage.slab_bytes = charges.slab.map(number).or_else(|| rest().map(|bytes| bytes.max(0.0)));
        usage.socket_bytes = charges.sockets.map(number);
        usage.cgroup_bytes = charges.current.map(number);
        usage.cgroup_lru_bytes = Some(number(charges.lru));
        usage.unevictable_bytes = Some(number(charges.unevictable));
        usage.cgroup_inactive_file_bytes = Some(number(charges.inactive_file));
        usage.minor_faults = Some(number(charges.faults.saturating_sub(charges.major_faults)));
        usage.major_faults = Some(number(charges.major_faults));
        usage.refault_anon = charges.refault_anon.map(number);
        usage.refault_file = charges.refault_file.map(number);
        usage.high_events = charges.high_events.map(number);
        usage.max_events = charges.max_events.map(number);
        usage.oom_kills = charges.oom_kills.map(number);
        usage.cpu_s = charges.cpu_us.map(|us| number(us) / 1e6).or(usage.cpu_s);
        usage.threads = usage.threads.or(charges.threads.map(number));
        let mapped = number(charges.mapped_file);
        if usage.rss_bytes.is_some() {
            self.mapped = (target.totals[1], mapped);
        }
        let cache = number(charges.file.saturating_sub(charges.mapped_file));
        let grown = (self.mapped.0 + mapped - self.mapped.1).max(0.0);
        target.totals = [number(charges.anon), grown, cache];
        target.exact = [true, false, true];
        target.mapped = Some(mapped);
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
