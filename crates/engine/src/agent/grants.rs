//! Grants of the guard: protection, limits and pauses, in the journal, and taken back in time, also after a kill.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use lowtide_kernel::grant::{GrantState, Grants};
use lowtide_kernel::root::Kernel;
use lowtide_kernel::undo::{self, Journal};
use lowtide_model::target::TargetId;
use lowtide_model::units::integer;
use lowtide_policy::guard::MARGIN;
use lowtide_policy::machine::WorkloadAction;
use rustix::fs::OFlags;
use rustix::mm::MlockAllFlags;

use super::sinks::log;
use crate::event::ActionKind;
use crate::workloads::Workload;

/// An agent that is silent for so long hangs, for its watchdog: as long as a lease lasts. It signals before each wait and each
/// action, which take a second or two.
pub const SILENCE: Duration = Duration::from_secs(5);

/// What is protected, over what is needed. A cgroup that uses a page more than is protected loses pages at every scan, at
/// least 32 each time (mm/vmscan.c: SWAP_CLUSTER_MAX), and its use grows when it comes back: by page tables, and by the 64 pages
/// that each CPU is charged ahead (mm/memcontrol.c: MEMCG_CHARGE_BATCH).
const PROTECTED: f64 = 1.0 + MARGIN;

/// A process that takes back this one's leases when it ends or hangs for too long: it waits until its standard input is closed,
/// or silent. It has a process group of its own, so that Ctrl-C does not end it.
#[derive(Debug)]
struct Watchdog(Child);

impl Watchdog {
    fn start() -> anyhow::Result<Self> {
        use std::os::unix::process::CommandExt;
        // Not by its path, which an upgrade replaces.
        let mut command = Command::new("/proc/self/exe");
        let pid = std::process::id().to_string();
        command.args(["recover", "--when-closed", &pid]).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let child = command.spawn().context("the watchdog cannot be started")?;
        // A watchdog that hangs must not block this process.
        let stdin = child.stdin.as_ref().context("the watchdog has no input")?;
        rustix::fs::fcntl_setfl(stdin, OFlags::NONBLOCK)?;
        Ok(Self(child))
    }

    /// Signals that this process is at work. False if the watchdog is gone.
    fn beat(&mut self) -> bool {
        let written = self.0.stdin.as_mut().map_or(Ok(1), |stdin| stdin.write(b"."));
        !written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Keeps what this process uses from being evicted: the guard must not wait for its own pages while the machine thrashes.
pub fn stay_in_memory() {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = rustix::mm::mlockall(flags) {
        let text = format!("the guard's own memory may be paged out: {error}; give it CAP_IPC_LOCK");
        log::line("note", &[("text", text)]);
    }
}

/// The result of a grant, if it is worth an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Granted {
    /// What was done.
    pub kind: ActionKind,
    /// Bytes that are protected, or below which it is kept.
    pub bytes: f64,
    /// Why it was not done.
    pub stopped: Option<String>,
}

/// What is granted now.
#[derive(Debug)]
pub struct Granting {
    kernel: Kernel,
    dry_run: bool,
    // Dropped in this order: what was granted is taken back before the watchdog ends.
    grants: Option<Grants>,
    watchdog: Option<Watchdog>,
    /// In a dry run: what would be granted now.
    would: BTreeMap<TargetId, ActionKind>,
    /// What could not be granted, each reported once.
    reported: BTreeSet<String>,
}

/// A workload is granted one thing at a time: ends what it has, unless that is the same. True if that was something.
fn end_other(grants: &mut Grants, id: TargetId, is_same: fn(&GrantState) -> bool) -> bool {
    !is_same(&grants.of(id)) && grants.release(id)
}

impl Granting {
    /// Nothing is granted yet.
    pub fn new(kernel: &Kernel, dry_run: bool) -> Self {
        let (would, reported) = (BTreeMap::new(), BTreeSet::new());
        Self { kernel: kernel.clone(), dry_run, grants: None, watchdog: None, would, reported }
    }

    /// The grants; made with the first one, with a watchdog that takes them back if this process cannot.
    fn grants(&mut self) -> anyhow::Result<&mut Grants> {
        if self.grants.is_none() {
            let journal = Journal::open(self.kernel.clone(), &undo::folder()).context("nothing can be granted")?;
            self.watchdog = Some(Watchdog::start()?);
            self.grants = Some(Grants::new(&self.kernel, journal));
        }
        self.grants.as_mut().context("nothing can be granted")
    }

    /// Carries out one action on a workload; what is new, or could not be done.
    pub fn act(&mut self, workload: &Workload, action: &WorkloadAction, now_s: f64) -> Option<Granted> {
        let (kind, wanted) = match action {
            WorkloadAction::Protect { bytes, .. } => (ActionKind::Protect, *bytes * PROTECTED),
            WorkloadAction::Limit { bytes, .. } => (ActionKind::Limit, *bytes),
            WorkloadAction::Pause { .. } => (ActionKind::Pause, 0.0),
            _ => (ActionKind::Release, 0.0),
        };
        let id = workload.id();
        if self.dry_run {
            let before = if kind == ActionKind::Release { self.would.remove(&id) } else { self.would.insert(id, kind) };
            let new = if kind == ActionKind::Release { before.is_some() } else { before != Some(kind) };
            return new.then(|| Granted { kind, bytes: wanted, stopped: Some("dry run".to_owned()) });
        }
        let done: anyhow::Result<bool> = match action {
            WorkloadAction::Protect { lasts_s, .. } => self.grants().and_then(|grants| {
                let other = end_other(grants, id, |of| of.protected > 0);
                Ok(grants.protect(&workload.cgroup, integer(wanted), now_s + lasts_s)? || other)
            }),
            WorkloadAction::Limit { lasts_s, .. } => self.grants().and_then(|grants| {
                let other = end_other(grants, id, |of| of.limited > 0);
                Ok(grants.limit(&workload.cgroup, integer(wanted), now_s + lasts_s)? || other)
            }),
            WorkloadAction::Pause { lasts_s, .. } => self.grants().and_then(|grants| {
                let other = end_other(grants, id, |of| of.paused);
                let new = grants.pause(id, (&workload.cgroup, workload.process), now_s + lasts_s)?;
                if let Some(why) = grants.stopped(id).filter(|_| new) {
                    let text = format!("{}: stopped by a signal, as it cannot be frozen: {why}", workload.path);
                    log::line("note", &[("text", text)]);
                }
                Ok(new || other)
            }),
            _ => Ok(self.grants.as_mut().is_some_and(|grants| grants.release(id))),
        };
        match done {
            Ok(true) => Some(Granted { kind, bytes: wanted, stopped: None }),
            Ok(false) => None,
            Err(error) => {
                let text = crate::failure::words(&error);
                let new = self.reported.insert(format!("{}: {text}", workload.path));
                new.then_some(Granted { kind, bytes: wanted, stopped: Some(text) })
            }
        }
    }

    /// Takes back what was not granted again in time: of which workloads.
    pub fn expire(&mut self, now_s: f64) -> BTreeSet<TargetId> {
        let over = self.grants.as_mut().map(|grants| grants.expire(now_s)).unwrap_or_default();
        if !over.is_empty() {
            log::line("expired", &[("cgroups", over.len().to_string())]);
        }
        over
    }

    /// Signals the watchdog. Without one nothing stays granted.
    pub fn beat(&mut self) {
        if self.watchdog.as_mut().is_some_and(|watchdog| !watchdog.beat()) {
            log::line("error", &[("text", "the watchdog is gone: what was granted is taken back".to_owned())]);
            self.end();
        }
    }

    /// Whether nothing is granted, nor would be.
    pub fn is_empty(&self) -> bool {
        self.would.is_empty() && self.grants.as_ref().is_none_or(Grants::is_empty)
    }

    /// What holds for a workload now.
    pub fn of(&self, id: TargetId) -> GrantState {
        self.grants.as_ref().map_or_else(GrantState::default, |grants| grants.of(id))
    }

    /// Takes everything back.
    pub fn end(&mut self) {
        (self.grants, self.watchdog) = (None, None);
        self.would.clear();
    }
}
