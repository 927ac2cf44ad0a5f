//! Pausing processes: in a freezer, or where there is none for them, by SIGSTOP (which their parents notice).

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroup, Made, Version, membership};
use crate::mounts::MountLine;
use crate::proc::{self, ProcessId};
use crate::root::{Error, Kernel, Result, UnlessGone};
use crate::undo::{Journal, KernelChange, Lease};

/// Processes that wait.
#[derive(Debug)]
pub(super) struct Pause {
    // Given back in this order: they run first, then they are moved back.
    _held: Vec<Lease>,
    _moved: Option<Lease>,
    pub until_s: f64,
    /// Why they are stopped rather than frozen.
    pub stopped: Option<String>,
}

/// Has the processes of a cgroup wait, or one of them. What makes that end is written down before.
pub(super) fn pause(
    kernel: &Kernel,
    journal: &Journal,
    (cgroup, process): (&Cgroup, Option<ProcessId>),
    until_s: f64,
) -> Result<Pause> {
    let pids = || process.map_or_else(|| cgroup.pids(kernel), |process| Ok(vec![process.pid]));
    for pid in pids()? {
        if let Some(why) = must_run(kernel, pid).unless_gone()?.flatten() {
            return Err(refuse(cgroup, why));
        }
    }
    if let Some(process) = process {
        proc::check(kernel, process)?;
    }
    match freeze(kernel, journal, (cgroup, process), &pids) {
        Ok(Some((frozen, moved))) => Ok(Pause { _held: vec![frozen], _moved: moved, until_s, stopped: None }),
        Ok(None) => Err(refuse(cgroup, "another program has frozen it")),
        Err(error) if !cgroup.is_alive(kernel) => Err(error),
        Err(error) => {
            let held = stop(kernel, journal, cgroup, &pids)?;
            Ok(Pause { _held: held, _moved: None, until_s, stopped: Some(error.to_string()) })
        }
    }
}

fn refuse(cgroup: &Cgroup, why: &str) -> Error {
    Error::missing("pause", &cgroup.path, why)
}

/// Why a process must not wait: people or devices wait for it.
fn must_run(kernel: &Kernel, pid: u32) -> Result<Option<&'static str>> {
    let text = kernel.read_text(format!("/proc/{pid}/stat"))?;
    let Some((_, rest)) = text.rsplit_once(") ") else { return Ok(None) };
    // Numbered from 1 in proc(5); `state` is field 3.
    let fields: Vec<i64> = rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
    let (session, terminal, policy) = (field(6), field(7), field(41));
    if terminal != 0 && session == i64::from(pid) {
        return Ok(Some("it holds the session of a terminal"));
    }
    // SCHED_FIFO, SCHED_RR, SCHED_DEADLINE.
    Ok([1, 2, 6].contains(&policy).then_some("it has a real-time process"))
}

/// Freezes them: what ends that, and what moves them back if they were moved. `None` if another program has frozen them.
fn freeze(
    kernel: &Kernel,
    journal: &Journal,
    (cgroup, process): (&Cgroup, Option<ProcessId>),
    pids: &dyn Fn() -> Result<Vec<u32>>,
) -> Result<Option<(Lease, Option<Lease>)>> {
    let (name, word) = match cgroup.version {
        Version::V2 => ("cgroup.freeze", "1"),
        Version::V1 => ("freezer.state", "FROZEN"),
    };
    // On version 1, the freezer is another hierarchy, in which they may be with others; a process may be with others, too.
    let (folder, moved) = if cgroup.version == Version::V2 && process.is_none() {
        (cgroup.path.clone(), None)
    } else {
        let parent = shared_by(kernel, cgroup, &pids()?)?;
        let id = process.map_or(cgroup.inode, |process| u64::from(process.pid));
        let path = parent.join(format!("lowtide-guard-{id}"));
        let (folder, lease) = gather(kernel, journal, (path, &parent), pids)?;
        (folder, Some(lease))
    };
    let file = folder.join(name);
    if kernel.read_text(&file)?.trim() == word {
        return Ok(None);
    }
    Ok(Some((journal.write(&file, word)?, moved)))
}

/// The folder in which a freezer for these processes can be made: that of the cgroup in which all of them are.
fn shared_by(kernel: &Kernel, cgroup: &Cgroup, pids: &[u32]) -> Result<PathBuf> {
    let folder = |pid: &u32| match cgroup.version {
        Version::V2 => Cgroup::of(kernel, *pid).ok().flatten().map(|cgroup| cgroup.path),
        Version::V1 => {
            let mounts = kernel.read_text("/proc/self/mountinfo").ok()?;
            let freezer = MountLine::parse(&mounts).find(|mount| mount.has_controller("freezer"))?;
            let text = kernel.read_text(format!("/proc/{pid}/cgroup")).ok()?;
            Some(freezer.point.join(membership(&text, "freezer")?.trim_start_matches('/')))
        }
    };
    let mut folders: Vec<PathBuf> = pids.iter().filter_map(folder).collect();
    folders.sort_unstable();
    folders.dedup();
    let [folder] = folders.as_slice() else {
        return Err(refuse(cgroup, "its processes are in several freezer cgroups, or in none"));
    };
    Ok(folder.clone())
}

/// Moves processes into a cgroup of their own.
fn gather(
    kernel: &Kernel,
    journal: &Journal,
    (path, parent): (PathBuf, &Path),
    pids: &dyn Fn() -> Result<Vec<u32>>,
) -> Result<(PathBuf, Lease)> {
    let lease = Made::make(kernel, journal, &path, parent)?;
    // Twice: processes may have started in between.
    for _ in 0..2 {
        for pid in pids()? {
            kernel.write(path.join("cgroup.procs"), &pid.to_string()).unless_gone()?;
        }
    }
    Ok((path, lease))
}

/// A process that was stopped; continued when this is dropped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stopped {
    /// Which.
    pub process: ProcessId,
}

impl KernelChange for Stopped {
    const KIND: &'static str = "stopped";

    fn describe(&self) -> String {
        format!("process {} stopped", self.process.pid)
    }

    fn take_back(&self, kernel: &Kernel) -> Result<()> {
        match proc::signal(kernel, self.process, Signal::CONT) {
            // Another has its number by now.
            Err(error)
                if error.is_gone()
                    && proc::stat(kernel, self.process.pid).is_ok_and(|stat| stat.id != self.process) =>
            {
                Ok(())
            }
            outcome => kernel.if_there(format!("/proc/{}", self.process.pid), outcome).map(drop),
        }
    }
}

/// Stops them. One that is stopped already is left as it is.
fn stop(
    kernel: &Kernel,
    journal: &Journal,
    cgroup: &Cgroup,
    pids: &dyn Fn() -> Result<Vec<u32>>,
) -> Result<Vec<Lease>> {
    let mut leases = Vec::new();
    // Twice: processes may have started in between.
    for _ in 0..2 {
        for pid in pids()? {
            let Ok(stat) = proc::stat(kernel, pid) else { continue };
            if "TtZX".contains(stat.state) {
                continue;
            }
            let lease = journal.lease(&Stopped { process: stat.id })?;
            if proc::signal(kernel, stat.id, Signal::STOP).unless_gone()?.is_some() {
                leases.push(lease);
            }
        }
    }
    if leases.is_empty() { Err(refuse(cgroup, "it has no process that could be stopped")) } else { Ok(leases) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of our own that sleeps; killed when it is dropped.
    struct Sleeper(std::process::Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn without_a_freezer_a_process_is_stopped_and_goes_on() {
        let child = Sleeper(std::process::Command::new("sleep").arg("60").spawn().unwrap());
        let (kernel, dir) = (Kernel::default(), tempfile::tempdir().unwrap());
        let journal = Journal::open(kernel.clone(), dir.path()).unwrap();
        let cgroup = Cgroup { version: Version::V1, path: "/none".into(), inode: 0 };
        let state = || proc::state(&kernel, child.0.id()).unwrap();
        let becomes = |wanted: bool| {
            (0..200).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                (state() == 'T') == wanted
            })
        };
        let leases = stop(&kernel, &journal, &cgroup, &|| Ok(vec![child.0.id()])).unwrap();
        assert!(becomes(true));
        // A process that is stopped already is neither stopped nor continued by us.
        assert!(stop(&kernel, &journal, &cgroup, &|| Ok(vec![child.0.id()])).is_err());
        drop(leases);
        assert!(becomes(false));
    }
}
