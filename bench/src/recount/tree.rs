//! The processes that are counted: found, stopped for a moment, and ended if they were started here.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lowtide_kernel::grant::Stopped;
use lowtide_kernel::proc::{self, ProcessId, Stat};
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Reaped, Signals};
use lowtide_kernel::undo::{Journal, Lease};
use lowtide_model::units::float;
use rustix::process::Signal;

use crate::child::Running;

/// Between two checks of a process that should stop or end.
const CHECK: Duration = Duration::from_millis(5);
/// Time for a process to stop or to end.
const GRACE: Duration = Duration::from_secs(5);

/// A process and everything that descends from it; ended when dropped if it was started here.
#[derive(Debug)]
pub struct Tree {
    kernel: Kernel,
    root: ProcessId,
    started: Option<Running>,
}

/// Stopped processes; they continue when this is dropped.
#[derive(Debug)]
pub struct Still {
    pub pids: Vec<u32>,
    _leases: Vec<Lease>,
}

/// CPU seconds of a tree: in its programs, and in the kernel.
#[derive(Debug, Clone, Copy)]
pub struct CpuSeconds {
    pub user: f64,
    pub system: f64,
}

impl Tree {
    /// Starts a program. Orphans of it become children of this process, so that none is lost.
    pub fn start(kernel: &Kernel, words: &[String], signals: &Signals, dir: &Path) -> anyhow::Result<Self> {
        let own = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(own)).context("taking in processes without a parent")?;
        let mut command = Command::new(words.first().context("no command")?);
        command.args(&words[1..]);
        sys::prepare_child(&mut command, signals, None);
        let started = Running::start(command, dir)?;
        let root = proc::stat(kernel, std::process::id())?.id;
        Ok(Self { kernel: kernel.clone(), root, started: Some(started) })
    }

    /// A process that runs already.
    pub fn of(kernel: &Kernel, pid: u32) -> anyhow::Result<Self> {
        Ok(Self { kernel: kernel.clone(), root: proc::stat(kernel, pid)?.id, started: None })
    }

    /// Its processes that have memory, ascending.
    pub fn processes(&self) -> anyhow::Result<Vec<Stat>> {
        let pids = proc::pids(&self.kernel)?;
        // One may have ended since.
        let stats: Vec<Stat> = pids.into_iter().filter_map(|pid| proc::stat(&self.kernel, pid).ok()).collect();
        if !stats.iter().any(|stat| stat.id == self.root) {
            return Ok(Vec::new());
        }
        let parents: Vec<(u32, u32)> = stats.iter().map(|stat| (stat.id.pid, stat.ppid)).collect();
        let tree = proc::descendants(&parents, &[self.root.pid]);
        let own = |stat: &Stat| self.started.is_some() && stat.id == self.root;
        let counts = |stat: &Stat| tree.binary_search(&stat.id.pid).is_ok() && !own(stat) && stat.state != 'Z';
        Ok(stats.into_iter().filter(counts).collect())
    }

    /// Whether nothing of it is left.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        if let Some(started) = &mut self.started
            && !started.is_running()?
        {
            return Ok(true);
        }
        Ok(self.processes()?.is_empty())
    }

    /// Stops all of it, also what it starts meanwhile. Fails if it has ended, or a process does not stop.
    pub fn stop(&mut self, journal: &Journal) -> anyhow::Result<Still> {
        let (mut leases, mut held) = (Vec::new(), Vec::new());
        loop {
            let new: Vec<Stat> = self.processes()?.into_iter().filter(|stat| !held.contains(&stat.id)).collect();
            for stat in &new {
                held.push(stat.id);
                if stat.state != 'T' {
                    leases.push(journal.lease(&Stopped { process: stat.id })?);
                    let stopped = proc::signal(&self.kernel, stat.id, Signal::STOP);
                    stopped.or_else(|error| if error.is_gone() { Ok(()) } else { Err(error) })?;
                }
            }
            // A process may start another one until it has really stopped.
            let runs = |id: &ProcessId| proc::state(&self.kernel, id.pid).is_ok_and(|state| !"TtZX".contains(state));
            let start = Instant::now();
            while held.iter().any(runs) {
                if start.elapsed() > GRACE {
                    bail!("a process of the program does not stop");
                }
                std::thread::sleep(CHECK / 5);
            }
            if new.is_empty() {
                break;
            }
        }
        if self.has_ended()? {
            bail!("the program has ended");
        }
        held.sort_unstable();
        Ok(Still { pids: held.iter().map(|id| id.pid).collect(), _leases: leases })
    }

    /// CPU time that its processes have used so far.
    pub fn cpu_s(&self) -> anyhow::Result<CpuSeconds> {
        let (mut user, mut system) = (0, 0);
        for stat in self.processes()? {
            user += stat.cpu_ticks.own.saturating_sub(stat.system_ticks);
            system += stat.system_ticks;
        }
        let seconds = |ticks: u64| float(ticks) / float(rustix::param::clock_ticks_per_second());
        Ok(CpuSeconds { user: seconds(user), system: seconds(system) })
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.started.is_none() {
            return;
        }
        self.end();
        // `Running` collects the program itself; its orphans are children of this process.
        self.started = None;
        while let Ok(Reaped::Ended(_)) = sys::reap() {}
    }
}

impl Tree {
    /// Ends everything started here.
    fn end(&self) {
        for signal in [Signal::TERM, Signal::KILL] {
            let start = Instant::now();
            let mut signalled = Vec::new();
            while start.elapsed() < GRACE {
                let left = self.processes().unwrap_or_default();
                if left.is_empty() {
                    return;
                }
                for stat in left.iter().filter(|stat| !signalled.contains(&stat.id)) {
                    let _ = proc::signal(&self.kernel, stat.id, signal);
                }
                signalled.extend(left.into_iter().map(|stat| stat.id));
                std::thread::sleep(CHECK);
            }
        }
    }
}
