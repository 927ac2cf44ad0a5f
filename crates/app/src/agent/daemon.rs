//! The agent's loop: look, let policies decide, act, tell.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Signals};
use lowtide_policy::machine::{Action, Block, Machine, Observation, Policy, Reclaim, Reclaimed, turn};
use lowtide_policy::policies::Spec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use sd_notify::NotifyState;

use super::act::{Actor, Outcome};
use super::config::{Config, build};
use super::figures::{Row, Shared};
use super::watch::{Watch, Watched};

/// A policy with the workloads that are its own.
struct Group {
    spec: Spec,
    policy: Box<dyn Policy>,
    reclaimed: Vec<Reclaimed>,
}

/// The agent.
pub struct Agent {
    kernel: Kernel,
    file: PathBuf,
    config: Config,
    watch: Watch,
    actor: Actor,
    groups: BTreeMap<String, Group>,
    shared: Shared,
    start: Instant,
    cpu_s: f64,
    dry_run: bool,
    was_stopped: bool,
}

/// One line of the log: what happened, and its figures.
fn log(event: &str, figures: &[(&str, String)]) {
    let mut line = event.to_owned();
    for (name, value) in figures {
        let plain = !value.is_empty() && !value.contains([' ', '"', '=', '\n']);
        let _ = if plain { write!(line, " {name}={value}") } else { write!(line, " {name}={value:?}") };
    }
    eprintln!("{line}");
}

impl Agent {
    /// An agent that does what a file says.
    ///
    /// # Errors
    /// If the file has a mistake.
    pub fn new(kernel: &Kernel, file: &Path, dry_run: bool) -> anyhow::Result<Self> {
        let config = Config::load(file, kernel)?;
        let mut agent = Self {
            kernel: kernel.clone(),
            file: file.to_path_buf(),
            watch: Watch::new(kernel, &config)?,
            actor: Actor::new(kernel, config.stop_file.clone(), dry_run),
            groups: BTreeMap::new(),
            shared: Shared::default(),
            start: Instant::now(),
            cpu_s: sys::own_cpu_s(),
            dry_run,
            was_stopped: false,
            config,
        };
        agent.group()?;
        Ok(agent)
    }

    /// Where metrics are to be served, and what of.
    #[must_use]
    pub fn served(&self) -> Option<(std::net::SocketAddr, Shared)> {
        self.config.listen.map(|address| (address, self.shared.clone()))
    }

    /// Makes the policies that workloads ask for. One whose settings are as they were goes on as it was.
    fn group(&mut self) -> anyhow::Result<()> {
        let mut before = std::mem::take(&mut self.groups);
        for name in self.config.workload.iter().map(|workload| &workload.policy) {
            if self.groups.contains_key(name) {
                continue;
            }
            let spec = self.config.policy(name).map_err(anyhow::Error::msg)?;
            let group = match before.remove(name).filter(|group| group.spec == spec) {
                Some(group) => group,
                None => {
                    let policy = build(name, &spec, 0).map_err(anyhow::Error::msg)?;
                    Group { spec, policy, reclaimed: Vec::new() }
                }
            };
            self.groups.insert(name.clone(), group);
        }
        Ok(())
    }

    /// Reads the file anew. With a mistake in it, all stays as it was.
    fn reload(&mut self) {
        let _ = sd_notify::notify(&[NotifyState::Reloading]);
        let loaded =
            Config::load(&self.file, &self.kernel).and_then(|config| Ok((Watch::new(&self.kernel, &config)?, config)));
        match loaded {
            Ok((watch, config)) => {
                if config.listen != self.config.listen {
                    log("note", &[("text", "listen is heeded at the next start only".to_owned())]);
                }
                self.watch = watch.succeeding(std::mem::replace(&mut self.watch, Watch::empty(&self.kernel)));
                self.actor = Actor::new(&self.kernel, config.stop_file.clone(), self.dry_run);
                self.config = config;
                match self.group() {
                    Ok(()) => log("reloaded", &[("file", self.file.display().to_string())]),
                    Err(error) => log("error", &[("text", error.to_string())]),
                }
            }
            Err(error) => log("error", &[("text", format!("nothing was changed: {}", crate::failure::words(&error)))]),
        }
        let _ = sd_notify::notify(&[NotifyState::Ready]);
    }

    fn now_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// If signals cannot be waited for.
    pub fn run(&mut self, signals: &Signals) -> anyhow::Result<()> {
        let mode = if self.dry_run { "dry run" } else { "acting" };
        log("started", &[("file", self.file.display().to_string()), ("mode", mode.to_owned())]);
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        let every_s = self.config.every.0.as_secs_f64();
        let mut next_s = 0.0;
        loop {
            let due_s = f64::min(next_s, self.watch.due_s().max(self.now_s()));
            let time = Timespec::try_from(Duration::from_secs_f64((due_s - self.now_s()).max(0.0)))?;
            match poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            while let Some(signal) = signals.next()? {
                if signal.number != Signal::HUP.as_raw() {
                    let _ = sd_notify::notify(&[NotifyState::Stopping]);
                    log("ended", &[("signal", signal.number.to_string())]);
                    return Ok(());
                }
                self.reload();
            }
            let now_s = self.now_s();
            let fresh = self.watch.look(now_s);
            if fresh || now_s >= next_s {
                next_s = now_s + every_s;
                self.turn(now_s, fresh);
                let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            }
        }
    }

    /// One turn of all policies.
    fn turn(&mut self, now_s: f64, fresh: bool) {
        let seen = self.watch.observe(now_s, fresh);
        for text in self.watch.take_notes() {
            log("note", &[("text", text)]);
        }
        let stopped = self.actor.is_stopped();
        if stopped != self.was_stopped {
            let file = self.config.stop_file.display().to_string();
            log(if stopped { "stopped" } else { "going on" }, &[("file", file)]);
            self.was_stopped = stopped;
        }
        self.tell(stopped);
        if stopped {
            return;
        }
        self.actor.begin();
        for (name, group) in &mut self.groups {
            let own = |id: u64| self.watch.found().get(&id).is_some_and(|watched| watched.policy == *name);
            let targets = seen.targets.iter().filter(|target| own(target.id)).cloned().collect();
            let reclaimed = std::mem::take(&mut group.reclaimed);
            let mut node = Node {
                seen: Some(Observation { targets, reclaimed, ..seen.clone() }),
                watch: &mut self.watch,
                actor: &mut self.actor,
                reclaimed: &mut group.reclaimed,
                shared: &self.shared,
            };
            turn(&mut node, group.policy.as_mut());
        }
    }

    /// Makes the newest figures known.
    fn tell(&mut self, stopped: bool) {
        let cpu_s = sys::own_cpu_s() - self.cpu_s;
        let found = self.watch.found();
        self.shared.with(|figures| {
            figures.rows.retain(|id, _| found.contains_key(id));
            for (id, watched) in found {
                let row = figures.rows.entry(*id).or_insert_with(Row::default);
                row.cgroup.clone_from(&watched.path);
                row.policy.clone_from(&watched.policy);
                row.watched = Some(watched.clone());
            }
            figures.cpu_s.0 = cpu_s;
            figures.stopped = stopped || self.dry_run;
        });
    }
}

/// The machine as one policy sees it.
struct Node<'a> {
    seen: Option<Observation>,
    watch: &'a mut Watch,
    actor: &'a mut Actor,
    reclaimed: &'a mut Vec<Reclaimed>,
    shared: &'a Shared,
}

impl Machine for Node<'_> {
    fn observe(&mut self) -> Option<Observation> {
        self.seen.take()
    }

    fn act(&mut self, actions: Vec<Action>, _: Vec<Block>) {
        for action in actions {
            let Action::Reclaim(wanted) = action else { continue };
            let zram = self.watch.zram_reader();
            let Some(watched) = self.watch.get_mut(wanted.target) else { continue };
            let outcome = self.actor.reclaim(watched, &wanted, zram);
            told(watched, &wanted, &outcome);
            self.shared.with(|figures| figures.took(wanted.target, &outcome));
            self.reclaimed.push(outcome.reclaimed);
        }
    }
}

/// Writes down what was done and why.
fn told(watched: &Watched, wanted: &Reclaim, outcome: &Outcome) {
    let whole = |bytes: f64| format!("{bytes:.0}");
    let mut figures = vec![
        ("cgroup", watched.path.clone()),
        ("policy", watched.policy.clone()),
        ("asked_anon_bytes", whole(wanted.bytes[0])),
        ("asked_file_bytes", whole(wanted.bytes[1])),
        ("anon_bytes", whole(outcome.reclaimed.bytes[0])),
        ("file_bytes", whole(outcome.reclaimed.bytes[1])),
        ("took_s", format!("{:.3}", outcome.took_s)),
        ("reason", wanted.reason.clone()),
    ];
    figures.extend(outcome.stopped.clone().map(|why| ("stopped", why)));
    log("reclaim", &figures);
}
