//! Which workloads are in the background, and what is done to their processes then.

use std::collections::BTreeMap;

use lowtide_kernel::advise::Adviser;
use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::proc;
use lowtide_kernel::root::{Error, Kernel, Result};
use lowtide_kernel::sys::Advice;
use lowtide_model::PAGE;
use lowtide_policy::machine::Target;

use super::watch::bytes;

/// A process and what descends from it, because somebody gave a hint about it.
#[derive(Debug, Clone)]
struct Tree {
    root: proc::ProcessId,
    background: bool,
}

/// How a cgroup's CPU time stood, to tell whether it is idle.
#[derive(Debug, Clone, Copy)]
struct Ran {
    cpu_us: u64,
    since_s: f64,
}

/// CPU time below which a workload does nothing: keeping alive takes some. Share of one CPU.
const IDLE: f64 = 0.001;

/// What is known of who is in the background.
#[derive(Debug)]
pub struct Phases {
    kernel: Kernel,
    idle_after_s: Option<f64>,
    /// Hints about cgroups, by inode. A hint counts for more than what can be seen.
    hints: BTreeMap<u64, bool>,
    trees: BTreeMap<u64, Tree>,
    ran: BTreeMap<u64, Ran>,
    adviser: Adviser,
}

/// What was done to a workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stowed {
    /// Bytes that were paged out, or asked to be fetched.
    pub anon: u64,
    /// Bytes of files that will go first.
    pub file: u64,
    /// Processes.
    pub processes: usize,
}

/// The identity of a process among targets: no inode has the highest bit.
fn tree_id(root: proc::ProcessId) -> u64 {
    1 << 63 | root.start_ticks << 22 | u64::from(root.pid)
}

impl Phases {
    /// Nothing is known yet. Workloads that did nothing for `idle_after_s` count as in the background.
    #[must_use]
    pub fn new(kernel: &Kernel, idle_after_s: Option<f64>) -> Self {
        let (hints, trees, ran) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { kernel: kernel.clone(), idle_after_s, hints, trees, ran, adviser: Adviser::new(kernel) }
    }

    /// Other settings from now on.
    pub fn set_idle_after(&mut self, idle_after_s: Option<f64>) {
        self.idle_after_s = idle_after_s;
    }

    /// A hint about a cgroup.
    pub fn hint_cgroup(&mut self, cgroup: &Cgroup, background: bool) {
        self.hints.insert(cgroup.inode, background);
    }

    /// A hint about a process and what descends from it.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn hint_process(&mut self, pid: u32, background: bool) -> Result<()> {
        let root = proc::stat(&self.kernel, pid)?.id;
        self.trees.insert(tree_id(root), Tree { root, background });
        Ok(())
    }

    /// Whether a cgroup is in the background: by a hint, or because it is frozen, or all its processes are stopped, or it
    /// did nothing for long enough.
    pub fn is_background(&mut self, cgroup: &Cgroup, now_s: f64) -> bool {
        if let Some(hint) = self.hints.get(&cgroup.inode) {
            return *hint;
        }
        let kernel = &self.kernel;
        let is_idle = match (self.idle_after_s, cgroup.cpu_us(kernel)) {
            (Some(after_s), Some(cpu_us)) => {
                let ran = self.ran.entry(cgroup.inode).or_insert(Ran { cpu_us, since_s: now_s });
                let elapsed_s = now_s - ran.since_s;
                if elapsed_s < 0.0 || bytes(cpu_us.saturating_sub(ran.cpu_us)) > 1e6 * IDLE * elapsed_s.max(1.0) {
                    *ran = Ran { cpu_us, since_s: now_s };
                }
                now_s - ran.since_s >= after_s
            }
            _ => false,
        };
        is_idle || cgroup.is_frozen(kernel) || self.is_stopped(cgroup)
    }

    /// Whether all processes of a cgroup are stopped (SIGSTOP); one that has none is not.
    fn is_stopped(&self, cgroup: &Cgroup) -> bool {
        let pids = cgroup.pids(&self.kernel).unwrap_or_default();
        let stopped = |pid: &u32| proc::state(&self.kernel, *pid).is_ok_and(|state| state == 'T');
        !pids.is_empty() && pids.iter().all(stopped)
    }

    /// Forgets cgroups that are gone.
    pub fn retain(&mut self, is_there: impl Fn(u64) -> bool) {
        self.hints.retain(|id, _| is_there(*id));
        self.ran.retain(|id, _| is_there(*id));
        self.adviser.forget_ended();
    }

    /// Processes that hints were given about, as targets; those that have ended are forgotten.
    pub fn trees(&mut self) -> Vec<Target> {
        let kernel = self.kernel.clone();
        let mut targets = Vec::new();
        self.trees.retain(|id, tree| {
            let Some(pids) = pids_of(&kernel, tree.root) else { return false };
            let mut target = Target { id: *id, background: tree.background, ..Target::default() };
            for status in pids.iter().filter_map(|pid| proc::status(&kernel, *pid).ok()) {
                target.resident[0] += bytes(status.rss_anon);
                target.resident[1] += bytes(status.rss_file);
                target.swapped += bytes(status.swap);
            }
            targets.push(target);
            true
        });
        targets
    }

    /// The name of such a target, for people.
    #[must_use]
    pub fn name(&self, id: u64) -> Option<String> {
        self.trees.get(&id).map(|tree| format!("pid {}", tree.root.pid))
    }

    /// Processes of a target: of a cgroup if one is given, else of the process that a hint was given about.
    fn pids(&self, id: u64, cgroup: Option<&Cgroup>) -> Result<Vec<u32>> {
        match cgroup {
            Some(cgroup) if cgroup.is_alive(&self.kernel) => cgroup.pids(&self.kernel),
            Some(cgroup) => Err(gone(&cgroup.path.display().to_string())),
            None => {
                let tree = self.trees.get(&id).ok_or_else(|| gone("process"))?;
                pids_of(&self.kernel, tree.root).ok_or_else(|| gone(&format!("/proc/{}", tree.root.pid)))
            }
        }
    }

    /// Pages out anonymous memory of a target's processes, and has their files go first.
    ///
    /// # Errors
    /// If the target is gone. What cannot be advised on is left.
    pub fn stow(&mut self, id: u64, cgroup: Option<&Cgroup>, go_on: &mut dyn FnMut() -> bool) -> Result<Stowed> {
        let mut stowed = Stowed::default();
        for pid in self.pids(id, cgroup)? {
            let Ok(ranges) = self.ranges(pid) else { continue };
            let paged_out = self.adviser.advise(pid, &ranges, Advice::Pageout, Some(&|_, file| !file), &mut *go_on);
            let cooled = self.adviser.advise(pid, &ranges, Advice::Cold, Some(&|_, file| file), &mut *go_on);
            let Ok(paged_out) = paged_out else { continue };
            stowed.processes += 1;
            stowed.anon += paged_out
                .pages
                .iter()
                .map(|(before, after)| u64::from(before.saturating_sub(*after)) * PAGE)
                .sum::<u64>();
            stowed.file += cooled.map_or(0, |cooled| cooled.tried_bytes - cooled.refused_bytes.min(cooled.tried_bytes));
        }
        Ok(stowed)
    }

    /// Fetches what of a target's processes is paged out.
    ///
    /// # Errors
    /// If the target is gone.
    pub fn fetch(&mut self, id: u64, cgroup: Option<&Cgroup>, go_on: &mut dyn FnMut() -> bool) -> Result<Stowed> {
        let mut fetched = Stowed::default();
        for pid in self.pids(id, cgroup)? {
            let paged_out = proc::status(&self.kernel, pid).map_or(0, |status| status.swap);
            let Ok(ranges) = self.ranges(pid) else { continue };
            if self.adviser.advise(pid, &ranges, Advice::Willneed, None, &mut *go_on).is_ok() {
                fetched.processes += 1;
                // It is read into the swap cache, whence a fault takes it without waiting; until then it counts as paged out.
                fetched.anon += paged_out;
            }
        }
        Ok(fetched)
    }

    /// Address ranges of a process, as they are now.
    fn ranges(&self, pid: u32) -> Result<Vec<(u64, u64)>> {
        Ok(proc::mappings(&self.kernel, pid)?.iter().map(|mapping| (mapping.start, mapping.end)).collect())
    }
}

fn gone(what: &str) -> Error {
    Error::new("find", what, std::io::Error::from(rustix::io::Errno::SRCH))
}

/// A process and its descendants; `None` if it has ended, whoever has its number by now.
fn pids_of(kernel: &Kernel, root: proc::ProcessId) -> Option<Vec<u32>> {
    if proc::stat(kernel, root.pid).ok()?.id != root {
        return None;
    }
    let all = proc::pids(kernel).ok()?;
    let parents: Vec<(u32, u32)> =
        all.iter().filter_map(|pid| Some((*pid, proc::stat(kernel, *pid).ok()?.ppid))).collect();
    Some(proc::descendants(&parents, &[root.pid]))
}
