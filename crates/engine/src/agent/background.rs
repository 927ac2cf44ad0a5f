//! Which workloads are in the background, and paging out and in of their processes.

use std::collections::BTreeMap;

use lowtide_kernel::advise::{AdviceRequest, Adviser};
use lowtide_kernel::cgroup::{Cgroup, is_below};
use lowtide_kernel::proc;
use lowtide_kernel::root::{Error, Kernel, Result};
use lowtide_kernel::sys::Advice;
use lowtide_model::PAGE;
use lowtide_model::kind::PerKind;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;
use lowtide_policy::machine::WorkloadState;
use serde::{Deserialize, Serialize};

use super::in_use::InUse;

/// What is in the background, as it stands in the agent's file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedBackground {
    /// Hints about cgroups.
    pub hints: BTreeMap<TargetId, bool>,
    /// Hints about processes: pid, start in clock ticks, whether it is in the background, who gave the hint.
    pub trees: Vec<(u32, u64, bool, u32)>,
    /// When cgroups ran last.
    ran: BTreeMap<TargetId, Ran>,
}

/// A process and what descends from it, because a hint was given about it.
#[derive(Debug, Clone)]
struct Tree {
    root: proc::ProcessId,
    background: bool,
    /// The user who gave the hint: advice reaches no process of another.
    uid: u32,
}

/// A cgroup's CPU time, when it was read, and when it last grew by more than a little; seconds since the boot.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Ran {
    cpu_us: u64,
    at_s: f64,
    busy_s: f64,
}

/// CPU time below which a workload does nothing: keeping alive takes some. Share of one CPU, and microseconds at least.
const IDLE: (f64, f64) = (0.001, 2000.0);
/// Hints about so many processes are kept at most.
const MOST_TREES: usize = 1000;
/// Advice is given in pieces of so many bytes, so that it can be stopped in between.
const PIECE: u64 = 32 << 20;

/// Which workloads are in the background.
#[derive(Debug, Default)]
pub struct Background {
    kernel: Kernel,
    /// A workload that was idle for so many seconds counts as in the background.
    pub idle_after_s: Option<f64>,
    /// Hints about cgroups. A hint counts for more than what is observed.
    pub hints: BTreeMap<TargetId, bool>,
    trees: BTreeMap<TargetId, Tree>,
    ran: BTreeMap<TargetId, Ran>,
    /// What each used when it ran last.
    in_use: BTreeMap<TargetId, InUse>,
    /// Fetches that were cut short, and the address up to which each process was done.
    unfetched: BTreeMap<TargetId, BTreeMap<u32, u64>>,
}

/// Which processes advice may reach.
pub struct Reach<'a> {
    /// By the path of the cgroup that a process is in.
    pub may: &'a dyn Fn(&str) -> bool,
    /// Whether to go on, asked between pieces.
    pub go_on: &'a dyn Fn() -> bool,
}

/// A cgroup, or one of its processes.
pub type Of<'a> = (&'a Cgroup, Option<proc::ProcessId>);

/// How a target is to be paged out.
#[derive(Debug, Clone, Copy)]
pub struct PageOutRequest {
    /// Bytes of anonymous memory, at most, to within a piece.
    pub bytes: f64,
    /// It was paged out before and did not run since, so that what is in memory says nothing about its use.
    pub again: bool,
}

/// Memory that was paged out or fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Paged {
    /// Anonymous memory that was paged out, or asked to be fetched; file memory that was deactivated. Bytes.
    pub bytes: PerKind<u64>,
    /// Processes that were advised.
    pub processes: usize,
}

impl Background {
    /// Nothing is known yet.
    pub fn new(kernel: &Kernel) -> Self {
        Self { kernel: kernel.clone(), ..Self::default() }
    }

    /// What is known, for an agent that comes after this one.
    pub fn save(&self) -> SavedBackground {
        let tree = |tree: &Tree| (tree.root.pid, tree.root.start_ticks, tree.background, tree.uid);
        let trees = self.trees.values().map(tree).collect();
        SavedBackground { hints: self.hints.clone(), trees, ran: self.ran.clone() }
    }

    /// Restores the saved state of cgroups that still exist and processes that still run. Hints received since then take
    /// precedence.
    pub fn restore(&mut self, saved: &SavedBackground, is_there: impl Fn(TargetId) -> bool) {
        for (id, background) in saved.hints.iter().filter(|(id, _)| is_there(**id)) {
            self.hints.entry(*id).or_insert(*background);
        }
        for (pid, start_ticks, background, uid) in saved.trees.iter().take(MOST_TREES).copied() {
            let root = proc::ProcessId { pid, start_ticks };
            if proc::stat(&self.kernel, pid).is_ok_and(|stat| stat.id == root) {
                self.trees.entry(tree_id(root)).or_insert(Tree { root, background, uid });
            }
        }
        self.ran.extend(saved.ran.iter().filter(|(id, _)| is_there(**id)));
    }

    /// Whether an identity is that of a process that a hint was given about.
    pub fn is_tree(&self, id: TargetId) -> bool {
        self.trees.contains_key(&id)
    }

    /// A hint about a process and what descends from it. Fails if there is no such process, or hints about too many are
    /// kept already.
    pub fn hint_process(&mut self, pid: u32, background: bool, uid: u32) -> Result<()> {
        let root = proc::stat(&self.kernel, pid)?.id;
        if self.trees.len() >= MOST_TREES && !self.trees.contains_key(&tree_id(root)) {
            let why = std::io::Error::other(format!("hints about {MOST_TREES} processes are kept already"));
            return Err(Error::new("keep a hint about", format!("/proc/{pid}"), why));
        }
        self.trees.insert(tree_id(root), Tree { root, background, uid });
        Ok(())
    }

    /// Whether a cgroup is in the background: by a hint, or because it is frozen, or all its processes are stopped, or it
    /// did nothing for long enough.
    pub fn holds(&mut self, cgroup: &Cgroup, now_s: f64) -> bool {
        let id = TargetId::Cgroup(cgroup.inode);
        if let Some(hint) = self.hints.get(&id) {
            return *hint;
        }
        let kernel = &self.kernel;
        let is_idle = match (self.idle_after_s, cgroup.cpu_us(kernel)) {
            (Some(after_s), Some(cpu_us)) => {
                let ran = self.ran.entry(id).or_insert(Ran { cpu_us, at_s: now_s, busy_s: now_s });
                let allowed_us = (1e6 * IDLE.0 * (now_s - ran.at_s)).max(IDLE.1);
                let worked = float(cpu_us.saturating_sub(ran.cpu_us)) > allowed_us;
                let busy_s = if worked || now_s < ran.busy_s { now_s } else { ran.busy_s };
                *ran = Ran { cpu_us, at_s: now_s, busy_s };
                now_s - busy_s >= after_s
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

    /// Forgets cgroups that no longer exist.
    pub fn retain(&mut self, is_there: impl Fn(TargetId) -> bool) {
        self.hints.retain(|id, _| is_there(*id));
        self.ran.retain(|id, _| is_there(*id));
        let kernel = &self.kernel;
        let is_left = |id: &TargetId| match *id {
            TargetId::Tree(pid, start_ticks) => proc::check(kernel, proc::ProcessId { pid, start_ticks }).is_ok(),
            id => is_there(id),
        };
        self.in_use.retain(|id, _| is_left(id));
        self.unfetched.retain(|id, _| is_left(id));
    }

    /// Processes that hints were given about, as targets; those that have ended are forgotten.
    pub fn trees(&mut self) -> Vec<WorkloadState> {
        let kernel = self.kernel.clone();
        let mut targets = Vec::new();
        if self.trees.is_empty() {
            return targets;
        }
        let parents = parents(&kernel);
        self.trees.retain(|id, tree| {
            let Some(pids) = pids_of(&kernel, tree.root, &parents) else { return false };
            let mut target = WorkloadState { id: *id, background: tree.background, ..WorkloadState::default() };
            for status in pids.iter().filter_map(|pid| proc::status(&kernel, *pid).ok()) {
                target.resident.anon += float(status.rss_anon);
                target.resident.file += float(status.rss_file);
                target.swapped += float(status.swap);
            }
            targets.push(target);
            true
        });
        targets
    }

    /// The name of such a target, for people.
    pub fn name(&self, id: TargetId) -> Option<String> {
        self.trees.get(&id).map(|tree| format!("pid {}", tree.root.pid))
    }

    /// Forgets a process whose time in the background is over.
    pub fn forget(&mut self, id: TargetId) {
        self.trees.remove(&id);
    }

    /// Processes of a target, and the user they must belong to (0: any): of a cgroup, or one of its processes, if one is
    /// given, else of the process that a hint was given about.
    fn pids(&self, id: TargetId, of: Option<Of<'_>>) -> Result<(Vec<u32>, u32)> {
        match of {
            Some((_, Some(process))) => proc::check(&self.kernel, process).map(|stat| (vec![stat.id.pid], 0)),
            Some((cgroup, None)) if cgroup.is_alive(&self.kernel) => Ok((cgroup.pids(&self.kernel)?, 0)),
            Some((cgroup, None)) => Err(gone(&cgroup.path.display().to_string())),
            None => {
                let tree = self.trees.get(&id).ok_or_else(|| gone("process"))?;
                let pids = pids_of(&self.kernel, tree.root, &parents(&self.kernel));
                Ok((pids.ok_or_else(|| gone(&format!("/proc/{}", tree.root.pid)))?, tree.uid))
            }
        }
    }

    /// Gives advice on all that a target's processes have mapped. Each is held by a descriptor and checked again: its owner and
    /// cgroup may have changed since the hint.
    fn advise(
        &self,
        id: TargetId,
        of: Option<Of<'_>>,
        reach: &Reach<'_>,
        mut each: impl FnMut(&mut Adviser, u32, &[(u64, u64)]) -> Result<()>,
    ) -> Result<usize> {
        let (pids, uid) = self.pids(id, of)?;
        let cgroup = of.map(|(cgroup, _)| cgroup);
        let mut advised = 0;
        for pid in pids {
            // One for each process, and only as long: descriptors are few.
            let mut adviser = Adviser::new(&self.kernel);
            let may = || -> Option<bool> {
                let owner = proc::owner(&self.kernel, pid).ok()?;
                let path = Cgroup::of(&self.kernel, pid).ok()??.hierarchy_path(&self.kernel).ok()?;
                let within = cgroup.is_none_or(|cgroup| {
                    cgroup.hierarchy_path(&self.kernel).is_ok_and(|above| is_below(&path, &above))
                });
                Some((uid == 0 || owner == uid) && within && pid != std::process::id() && (reach.may)(&path))
            };
            if adviser.hold(pid).is_err() || may() != Some(true) || !(reach.go_on)() {
                continue;
            }
            let Ok(ranges) = ranges(&self.kernel, pid) else { continue };
            // What cannot be advised on is left; that others can is not changed by it.
            advised += usize::from(each(&mut adviser, pid, &ranges).is_ok());
        }
        Ok(advised)
    }

    /// Pages out anonymous memory of a target's processes, and deactivates their file pages. What each used when it ran last goes last, where that is known. Fails if the target is gone. What cannot be
    /// advised on is left.
    pub fn page_out(
        &mut self,
        (id, request): (TargetId, PageOutRequest),
        of: Option<Of<'_>>,
        reach: &Reach<'_>,
    ) -> Result<Paged> {
        let mut paged = Paged::default();
        self.unfetched.remove(&id);
        let mut in_use = self.in_use.remove(&id).filter(|_| request.again).unwrap_or_default();
        let processes = self.advise(id, of, reach, |adviser, pid, ranges| {
            let (unused, used) = match request.again {
                true => in_use.parts(&self.kernel, pid, ranges).unwrap_or_else(|| (Vec::new(), ranges.to_vec())),
                false => in_use.note(&self.kernel, pid, ranges)?,
            };
            for range in unused.iter().chain(&used) {
                if float(paged.bytes.anon) >= request.bytes {
                    break;
                }
                let paged_out = adviser.advise(
                    pid,
                    &AdviceRequest { ranges: &[*range], advice: Advice::Pageout, keep: Some(&|_, file| !file) },
                    reach.go_on,
                )?;
                let gone = |(before, after): &(u32, u32)| u64::from(before.saturating_sub(*after)) * PAGE;
                paged.bytes.anon += paged_out.pages.iter().map(gone).sum::<u64>();
            }
            let cooled = adviser.advise(
                pid,
                &AdviceRequest { ranges, advice: Advice::Cold, keep: Some(&|_, file| file) },
                reach.go_on,
            )?;
            paged.bytes.file += cooled.tried_bytes.saturating_sub(cooled.refused_bytes);
            Ok(())
        });
        self.in_use.insert(id, in_use);
        Ok(Paged { processes: processes?, ..paged })
    }

    /// Fetches what of a target's processes is paged out: of each what it used when it ran last, and all where that is not known.
    /// Goes on where it was cut short. Fails if the target is gone.
    pub fn fetch(&mut self, id: TargetId, of: Option<Of<'_>>, reach: &Reach<'_>) -> Result<Paged> {
        let mut fetched = Paged::default();
        let mut done = self.unfetched.remove(&id).unwrap_or_default();
        fetched.processes = self.advise(id, of, reach, |adviser, pid, ranges| {
            let paged_out = proc::status(&self.kernel, pid).map_or(0, |status| status.swap);
            let parts = self.in_use.get(&id).and_then(|in_use| in_use.parts(&self.kernel, pid, ranges));
            let wanted = parts.as_ref().map_or(ranges, |(_, used)| used);
            let done = done.entry(pid).or_default();
            let (mut bytes, from) = (0, *done);
            for range in wanted.iter().filter(|(start, _)| *start >= from) {
                if !(reach.go_on)() {
                    break;
                }
                if paged_out > 0 {
                    adviser.advise(
                        pid,
                        &AdviceRequest { ranges: &[*range], advice: Advice::Willneed, keep: None },
                        || true,
                    )?;
                }
                (*done, bytes) = (range.1, bytes + range.1 - range.0);
            }
            // It is read into the swap cache, whence a fault takes it without waiting; until then it counts as paged out.
            fetched.bytes.anon += paged_out.min(bytes);
            Ok(())
        })?;
        if !(reach.go_on)() {
            self.unfetched.insert(id, done);
        }
        Ok(fetched)
    }

    /// Whether the fetch of a target was cut short.
    pub fn is_unfetched(&self, id: TargetId) -> bool {
        self.unfetched.contains_key(&id)
    }
}

/// What a process has mapped, in pieces.
fn ranges(kernel: &Kernel, pid: u32) -> Result<Vec<(u64, u64)>> {
    let pieces = |(start, end): (u64, u64)| {
        let size = usize::try_from(PIECE).unwrap_or(usize::MAX);
        (start..end).step_by(size).map(move |at| (at, end.min(at + PIECE)))
    };
    Ok(proc::mappings(kernel, pid)?.iter().flat_map(|mapping| pieces((mapping.start, mapping.end))).collect())
}

fn gone(what: &str) -> Error {
    Error::new("find", what, std::io::Error::from(rustix::io::Errno::SRCH))
}

fn tree_id(root: proc::ProcessId) -> TargetId {
    TargetId::Tree(root.pid, root.start_ticks)
}

/// Every process with its parent.
fn parents(kernel: &Kernel) -> Vec<(u32, u32)> {
    let all = proc::pids(kernel).unwrap_or_default();
    all.iter().filter_map(|pid| Some((*pid, proc::stat(kernel, *pid).ok()?.ppid))).collect()
}

/// A process and its descendants; `None` if it has ended, even if its pid was reused.
fn pids_of(kernel: &Kernel, root: proc::ProcessId, parents: &[(u32, u32)]) -> Option<Vec<u32>> {
    (proc::stat(kernel, root.pid).ok()?.id == root).then(|| proc::descendants(parents, &[root.pid]))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_fetch_that_was_cut_short_goes_on_where_it_was() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Once it answers, all of its libraries are mapped.
        child.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let mut background = Background::new(&Kernel::default());
        background.hint_process(child.id(), false, 0).unwrap();
        let id = *background.trees.keys().next().unwrap();
        // Asked before the process, then before each piece.
        let allowed = Cell::new(3);
        let go_on = || allowed.replace(allowed.get() - 1) > 0;
        let mut fetch = |pieces| {
            allowed.set(pieces);
            let reach = Reach { may: &|_| true, go_on: &go_on };
            background.fetch(id, None, &reach).unwrap();
            background.unfetched.get(&id).map(|done| done.get(&child.id()).copied())
        };
        let first = fetch(3).unwrap().unwrap();
        assert!(first > 0);
        let second = fetch(3).unwrap().unwrap();
        assert!(second > first, "two pieces more");
        assert_eq!(fetch(0).unwrap(), Some(second), "none of it is forgotten");
        assert_eq!(fetch(10_000), None, "all of it");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
