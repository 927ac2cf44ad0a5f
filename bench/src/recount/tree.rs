//! The processes that are counted: found, held still for a moment, and ended where they were started here.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lowtide_kernel::grant::Stopped;
use lowtide_kernel::proc::{self, ProcessId, Stat};
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Reaped, Signals};
use lowtide_kernel::undo::{Journal, Lease};
use rustix::process::Signal;

use crate::child::Running;

/// Between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(5);
/// A process gets so long to stop or to end.
const GRACE: Duration = Duration::from_secs(5);

/// A process and everything that descends from it; ended when dropped if it was started here.
#[derive(Debug)]
pub struct Tree {
    kernel: Kernel,
    root: ProcessId,
    started: Option<Running>,
}

/// Processes held still; they go on when this is dropped.
#[derive(Debug)]
pub struct Still {
    /// Their ids, ascending.
    pub pids: Vec<u32>,
    _leases: Vec<Lease>,
}

impl Tree {
    /// Starts a program. What loses its parent becomes a child of this process, so that nothing of it is lost.
    ///
    /// # Errors
    /// If it cannot be started.
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
    ///
    /// # Errors
    /// If there is none with that id.
    pub fn of(kernel: &Kernel, pid: u32) -> anyhow::Result<Self> {
        Ok(Self { kernel: kernel.clone(), root: proc::stat(kernel, pid)?.id, started: None })
    }

    /// Its processes that have memory, ascending.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn processes(&self) -> anyhow::Result<Vec<Stat>> {
        let pids = proc::pids(&self.kernel)?;
        // One that ended since is not there.
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
    ///
    /// # Errors
    /// If that cannot be found out.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        if let Some(started) = &mut self.started
            && !started.is_running()?
        {
            return Ok(true);
        }
        Ok(self.processes()?.is_empty())
    }

    /// Stops all of it, also what it starts meanwhile.
    ///
    /// # Errors
    /// If it has ended, or something does not stop.
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
            // A process may still be about to start another one until it has really stopped.
            let moves = |id: &ProcessId| proc::state(&self.kernel, id.pid).is_ok_and(|state| !"TtZX".contains(state));
            let start = Instant::now();
            while held.iter().any(moves) {
                if start.elapsed() > GRACE {
                    bail!("a process of the program does not stop");
                }
                std::thread::sleep(LOOK / 5);
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

    /// CPU seconds that its processes have used so far: in the program, and in the kernel for it.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn cpu_s(&self) -> anyhow::Result<[f64; 2]> {
        let mut ticks = [0, 0];
        for stat in self.processes()? {
            ticks[0] += stat.cpu_ticks.own.saturating_sub(stat.system_ticks);
            ticks[1] += stat.system_ticks;
        }
        #[expect(clippy::cast_precision_loss, reason = "clock ticks of some processes")]
        let seconds = |ticks: u64| ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Ok(ticks.map(seconds))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.started.is_none() {
            return;
        }
        self.end();
        // The program itself is collected by `Running`; what has lost its parent is a child of this process.
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
                std::thread::sleep(LOOK);
            }
        }
    }
}
