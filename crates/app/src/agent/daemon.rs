//! The agent's loop: look, let policies decide, act, tell.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Signals};
use lowtide_policy::machine::{Action, Block, Brake, Machine, Observation, Policy, Reclaim, Reclaimed, Target, turn};
use lowtide_policy::policies::Spec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use sd_notify::NotifyState;

use super::act::{Actor, Outcome, learn};
use super::api::LIFECYCLE;
use super::config::{Config, NONE, build};
use super::figures::{Row, Shared};
use super::heed;
use super::lifecycle::{Phases, Reach, Stowed};
use super::listen::{Listen, Serve};
use super::log;
use super::schemed::Advised;
use super::seen::{Seen, Turn};
use super::socket::{Answer, Socket};
use super::watch::{Watch, bytes, pause_s};
use crate::calibration;
use keeping::Keeper;

mod keeping;

/// A policy with the workloads that are its own.
struct Group {
    /// What held it at the last turn.
    held: Vec<(Option<u64>, Brake)>,
    spec: Spec,
    policy: Box<dyn Policy>,
    reclaimed: Vec<Reclaimed>,
}

impl Group {
    fn new(name: &str, spec: Spec) -> anyhow::Result<Self> {
        let policy = build(name, &spec, 0).map_err(anyhow::Error::msg)?;
        Ok(Self { held: Vec::new(), spec, policy, reclaimed: Vec::new() })
    }

    /// Asks the policy, under this name, about the machine as it sees it; keeps what came of it and what holds it.
    fn turn(&mut self, name: &str, mut node: Node<'_>) {
        turn(&mut node, self.policy.as_mut());
        let held = self.policy.held();
        log::brakes(name, &self.held, &held, node.watch.found());
        (self.held, self.reclaimed) = (held, node.reclaimed);
    }
}

/// The agent.
pub struct Agent {
    kernel: Kernel,
    file: PathBuf,
    config: Config,
    watch: Watch,
    actor: Actor,
    groups: BTreeMap<String, Group>,
    /// What is done to what is in the background, and who that is.
    lifecycle: Option<Group>,
    phases: Phases,
    socket: Option<Socket>,
    shared: Shared,
    seen: Seen,
    start: Instant,
    cpu_s: f64,
    dry_run: bool,
    was_stopped: bool,
    keeper: Keeper,
}

/// Peers that are heard before anything else is done again.
const PEERS: usize = 4;
/// A hint is acted on so soon, seconds. Not at once: others may follow, and a turn looks at everything.
const SOON_S: f64 = 0.5;

impl Agent {
    /// An agent that does what a file says.
    ///
    /// # Errors
    /// If the file has a mistake.
    pub fn new(kernel: &Kernel, file: &Path, dry_run: bool) -> anyhow::Result<Self> {
        let config = Config::load(file, kernel)?;
        let shared = Shared::default();
        let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let costs = calibration::load().or_usual();
        let mut agent = Self {
            kernel: kernel.clone(),
            file: file.to_path_buf(),
            watch: Watch::new(kernel, &config)?,
            actor: Actor::new(kernel, config.stop_file.clone(), dry_run),
            groups: BTreeMap::new(),
            lifecycle: None,
            phases: Phases::new(kernel, None),
            socket: None,
            seen: Seen::new(kernel, shared.clone(), costs, started_unix_s, dry_run),
            shared,
            start: Instant::now(),
            cpu_s: sys::own_cpu_s(),
            dry_run,
            was_stopped: false,
            keeper: Keeper::default(),
            config,
        };
        agent.group()?;
        Ok(agent)
    }

    /// Whether it reclaims from cgroups, and not only stows what is in the background.
    #[must_use]
    pub fn reclaims(&self) -> bool {
        self.config.workload.iter().any(|workload| workload.policy != NONE)
    }

    /// What others may see, and where it is to be served.
    #[must_use]
    pub fn served(&self) -> (Option<&Listen>, &Serve, Seen) {
        (self.config.listen.as_ref(), &self.config.serve, self.seen.clone())
    }

    /// Makes the policies that workloads ask for. One whose settings are as they were goes on as it was.
    fn group(&mut self) -> anyhow::Result<()> {
        let mut before = std::mem::take(&mut self.groups);
        for name in self.config.workload.iter().map(|workload| &workload.policy).filter(|name| *name != NONE) {
            if self.groups.contains_key(name) {
                continue;
            }
            let spec = self.config.policy(name).map_err(anyhow::Error::msg)?;
            if spec.wants_regions() {
                continue;
            }
            let group = match before.remove(name).filter(|group| group.spec == spec) {
                Some(group) => group,
                None => Group::new(name, spec)?,
            };
            self.groups.insert(name.clone(), group);
        }
        let before = self.lifecycle.take();
        if let Some(lifecycle) = &self.config.lifecycle {
            let spec = self.config.policy(&lifecycle.policy).map_err(anyhow::Error::msg)?;
            let same = before.filter(|group| group.spec == spec);
            self.lifecycle = Some(same.map_or_else(|| Group::new(&lifecycle.policy, spec), Ok)?);
        }
        let idle_after = self.config.lifecycle.as_ref().and_then(|lifecycle| lifecycle.idle_after);
        self.phases.set_idle_after(idle_after.map(|time| time.0.as_secs_f64()));
        Ok(())
    }

    /// Opens the socket for hints, where hints are wanted.
    ///
    /// # Errors
    /// If it cannot be made there.
    pub fn listen(&mut self) -> anyhow::Result<()> {
        let Some(lifecycle) = &self.config.lifecycle else {
            self.socket = None;
            return Ok(());
        };
        if self.socket.as_ref().is_some_and(|socket| socket.path() == lifecycle.socket) {
            return Ok(());
        }
        let socket = Socket::open(&lifecycle.socket).with_context(|| lifecycle.socket.display().to_string())?;
        self.socket = Some(socket);
        Ok(())
    }

    /// Hears hints, a few at a time: whoever speaks without end must not keep the agent from its work. True if one was heeded.
    fn hear(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let (kernel, watch, phases) = (&self.kernel, &self.watch, &mut self.phases);
        let mut heeded = false;
        for _ in 0..PEERS {
            let heard = socket.hear(|uid, hint| {
                let answer = heed::heed(kernel, watch, phases, uid, hint);
                heeded |= answer == Answer::Heard;
                log::hint(uid, hint, &answer);
                answer
            });
            match heard {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    log::line("error", &[("text", format!("hints cannot be heard any more: {error}"))]);
                    self.socket = None;
                    break;
                }
            }
        }
        heeded
    }

    /// Reads the file anew. With a mistake in it, all stays as it was.
    fn reload(&mut self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(&[NotifyState::Reloading, now]);
        }
        let loaded =
            Config::load(&self.file, &self.kernel).and_then(|config| Ok((Watch::new(&self.kernel, &config)?, config)));
        match loaded {
            Ok((watch, config)) => {
                if config.listen != self.config.listen {
                    log::line("note", &[("text", "listen is heeded at the next start only".to_owned())]);
                }
                self.watch = watch.succeeding(std::mem::replace(&mut self.watch, Watch::empty(&self.kernel)));
                self.actor = Actor::new(&self.kernel, config.stop_file.clone(), self.dry_run);
                self.config = config;
                match self.group().and_then(|()| self.listen()) {
                    Ok(()) => log::line("reloaded", &[("file", self.file.display().to_string())]),
                    Err(error) => log::line("error", &[("text", error.to_string())]),
                }
            }
            Err(error) => {
                log::line("error", &[("text", format!("nothing was changed: {}", crate::failure::words(&error)))])
            }
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
        log::line("started", &[("file", self.file.display().to_string()), ("mode", mode.to_owned())]);
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        let mut next_s = 0.0;
        loop {
            let due_s = f64::min(next_s, self.watch.due_s().max(self.now_s()));
            let time = Timespec::try_from(Duration::from_secs_f64((due_s - self.now_s()).max(0.0)))?;
            let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
            fds.extend(self.socket.as_ref().map(|socket| PollFd::new(&socket.listener, PollFlags::IN)));
            match poll(&mut fds, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            drop(fds);
            while let Some(signal) = signals.next()? {
                if signal.number != Signal::HUP.as_raw() {
                    let _ = sd_notify::notify(&[NotifyState::Stopping]);
                    self.keep(true);
                    log::line("ended", &[("signal", signal.number.to_string())]);
                    return Ok(());
                }
                self.reload();
            }
            let now_s = self.now_s();
            let hinted = self.hear();
            if hinted {
                self.keep_hints();
            }
            let before_s = self.watching_cpu_s();
            let fresh = self.watch.look(now_s);
            self.find(now_s);
            if fresh || now_s >= next_s {
                self.turn(now_s);
                next_s = now_s + pause_s(self.config.every.0.as_secs_f64(), self.watching_cpu_s() - before_s);
                let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            } else if hinted {
                next_s = next_s.min(now_s + SOON_S);
            }
        }
    }

    /// A step towards what is looked for by its addresses.
    fn find(&mut self, now_s: f64) {
        if self.watch.ranges().is_none_or(|ranges| !ranges.is_looking(now_s)) {
            return;
        }
        let (facts, zram) = (self.watch.facts(), self.watch.zram_reader());
        let (stored, cpu_s) = (zram(), sys::thread_cpu_s());
        let Some(ranges) = self.watch.ranges() else { return };
        let advised = ranges.apply(now_s, facts, &self.config.stop_file, self.dry_run);
        let steps = ranges.step(now_s, facts, &self.config.stop_file);
        if steps.is_empty() && advised.is_empty() {
            return;
        }
        for (id, Advised { applied, huge, .. }) in advised {
            let Some(watched) = self.watch.get_mut(id) else { continue };
            watched.huge = Some(huge);
            for (scheme, bytes) in applied {
                let figures = [("cgroup", watched.path.clone()), ("scheme", scheme), ("bytes", format!("{bytes:.0}"))];
                log::line("advise", &figures);
            }
        }
        self.actor.cpu_s += sys::thread_cpu_s() - cpu_s;
        let stored = stored.zip(zram()).filter(|_| steps.len() == 1);
        for (reclaimed, ended) in steps {
            if let Some(watched) = self.watch.get_mut(reclaimed.target) {
                if let Some((before, after)) = stored {
                    learn(&mut watched.kept, before, after);
                }
                if let Some(group) = self.groups.get_mut(&watched.policy) {
                    group.reclaimed.push(reclaimed);
                }
            }
            self.ended(ended);
        }
    }

    /// Makes known what came of a request that took several steps.
    fn ended(&self, ended: Option<(Reclaim, Outcome)>) {
        let Some((wanted, outcome)) = ended else { return };
        if let Some(watched) = self.watch.found().get(&wanted.target) {
            log::reclaim(watched, &wanted, &outcome);
        }
        self.shared.with(|figures| figures.took(wanted.target, &outcome));
    }

    /// CPU seconds of looking and deciding so far.
    fn watching_cpu_s(&self) -> f64 {
        sys::own_cpu_s() - self.actor.cpu_s
    }

    /// One turn of all policies.
    fn turn(&mut self, now_s: f64) {
        let mut seen = self.watch.observe(now_s);
        // Whose ages are told anew: its policy says anew what is to go, or that nothing is.
        let told: BTreeSet<u64> =
            seen.targets.iter().filter(|target| !target.ages.is_empty()).map(|target| target.id).collect();
        let given_up = self.watch.ranges().map(|ranges| ranges.give_up(|id| told.contains(&id))).unwrap_or_default();
        given_up.into_iter().for_each(|ended| self.ended(Some(ended)));
        for text in self.watch.take_notes() {
            self.seen.note(&text);
            log::line("note", &[("text", text)]);
        }
        let stopped = self.actor.is_stopped();
        if stopped != self.was_stopped {
            let file = self.config.stop_file.display().to_string();
            log::line(if stopped { "stopped" } else { "going on" }, &[("file", file)]);
            self.was_stopped = stopped;
        }
        let first = self.recall(now_s);
        let trees = self.phases.trees();
        self.tell(stopped);
        self.show(now_s, !told.is_empty(), stopped, &trees);
        // Of the time before the first turn nothing is known, pressure neither: it only looks.
        if stopped || first {
            if !first {
                self.keep(false);
            }
            return;
        }
        self.actor.begin();
        self.stow(&mut seen, trees);
        let mut all = std::mem::take(&mut seen.targets);
        for (name, group) in &mut self.groups {
            let own = |target: &Target| self.watch.found().get(&target.id).is_some_and(|of| of.policy == *name);
            let (targets, others) = all.into_iter().partition(own);
            all = others;
            let reclaimed = std::mem::take(&mut group.reclaimed);
            // What those before have filled is not free any more.
            let swap_free = self.watch.swap_free();
            let node = Node {
                now_s,
                seen: Some(Observation { targets, reclaimed, swap_free, ..seen.clone() }),
                watch: &mut self.watch,
                actor: &mut self.actor,
                phases: &mut self.phases,
                reclaimed: Vec::new(),
                shared: &self.shared,
                told: &self.seen,
            };
            group.turn(name, node);
        }
        let groups = self.groups.iter().map(|(name, group)| (name.as_str(), group));
        let groups = groups.chain(self.lifecycle.as_ref().map(|group| (LIFECYCLE, group)));
        let held = groups.flat_map(|(name, group)| group.held.iter().map(|held| (name.to_owned(), *held))).collect();
        self.shared.with(|figures| figures.held = held);
        self.keep(false);
    }

    /// The life cycle's turn: all workloads, and the processes that hints were given about.
    fn stow(&mut self, seen: &mut Observation, trees: Vec<Target>) {
        let Some(group) = &mut self.lifecycle else { return };
        let found = self.watch.found();
        for target in &mut seen.targets {
            let known = found.get(&target.id);
            target.background = known.is_some_and(|watched| self.phases.is_background(&watched.cgroup, seen.now_s));
        }
        self.phases.retain(|id| found.contains_key(&id));
        let targets = seen.targets.iter().cloned().chain(trees).collect();
        let node = Node {
            now_s: seen.now_s,
            seen: Some(Observation { targets, ..seen.clone() }),
            watch: &mut self.watch,
            actor: &mut self.actor,
            phases: &mut self.phases,
            reclaimed: Vec::new(),
            shared: &self.shared,
            told: &self.seen,
        };
        group.turn(LIFECYCLE, node);
    }

    /// Makes the newest figures known.
    fn tell(&mut self, stopped: bool) {
        // Both of one time, so that neither ever falls.
        let (cpu_s, evicting_s) = (sys::own_cpu_s() - self.cpu_s, self.actor.cpu_s);
        let found = self.watch.found();
        self.shared.with(|figures| {
            figures.rows.retain(|id, _| found.contains_key(id));
            for (id, watched) in found {
                let row = figures.rows.entry(*id).or_insert_with(Row::default);
                row.cgroup.clone_from(&watched.path);
                row.policy.clone_from(&watched.policy);
                row.watched = Some(watched.clone());
            }
            figures.cpu_s = (cpu_s - evicting_s, evicting_s);
            figures.stopped = stopped || self.dry_run;
        });
    }
}

impl Agent {
    /// Shows how all workloads are.
    fn show(&self, now_s: f64, fresh: bool, stopped: bool, trees: &[Target]) {
        let turn = Turn {
            now_s,
            fresh,
            stopped,
            every_s: self.config.every.0.as_secs_f64(),
            stop_file: self.config.stop_file.display().to_string(),
            trees: trees.iter().filter_map(|tree| Some((self.phases.name(tree.id)?, tree))).collect(),
        };
        self.seen.look(&turn, self.watch.found().iter());
    }
}

/// The machine as one policy sees it.
struct Node<'a> {
    now_s: f64,
    seen: Option<Observation>,
    watch: &'a mut Watch,
    actor: &'a mut Actor,
    phases: &'a mut Phases,
    reclaimed: Vec<Reclaimed>,
    shared: &'a Shared,
    told: &'a Seen,
}

impl Machine for Node<'_> {
    fn observe(&mut self) -> Option<Observation> {
        self.seen.take()
    }

    fn act(&mut self, actions: Vec<Action>, _: Vec<Block>) {
        for action in actions {
            let wanted = match action {
                Action::Reclaim(wanted) => wanted,
                Action::Stow { target, reason } => {
                    self.turn_over(target, true, &reason);
                    continue;
                }
                Action::Fetch { target, reason } => {
                    self.turn_over(target, false, &reason);
                    continue;
                }
                // Only schemes ask for it, and these are not for the agent.
                Action::Advise(_) => continue,
            };
            let dry_run = self.actor.is_dry_run();
            if let Some(ranges) = self.watch.ranges().filter(|ranges| !dry_run && ranges.evicts(wanted.target)) {
                ranges.want(&wanted, self.now_s);
                continue;
            }
            let zram = self.watch.zram_reader();
            let Some(watched) = self.watch.get_mut(wanted.target) else { continue };
            let outcome = self.actor.reclaim(watched, &wanted, zram);
            log::reclaim(watched, &wanted, &outcome);
            self.shared.with(|figures| figures.took(wanted.target, &outcome));
            self.told.reclaimed(&wanted, &outcome);
            self.reclaimed.push(outcome.reclaimed);
        }
    }
}

impl Node<'_> {
    /// Stows what went to the background, or fetches it again.
    fn turn_over(&mut self, id: u64, away: bool, reason: &str) {
        let watched = self.watch.found().get(&id);
        let name = watched.map(|watched| watched.path.clone()).or_else(|| self.phases.name(id));
        let cgroup = watched.map(|watched| watched.cgroup.clone());
        let (start, cpu_s) = (Instant::now(), sys::thread_cpu_s());
        let actor = &*self.actor;
        let watch = &*self.watch;
        let reach = Reach { may: &|path| !watch.is_excluded(path), go_on: &|| actor.may_go_on_processes() };
        let done = match (actor.is_dry_run(), away) {
            (true, _) => Ok(Stowed::default()),
            (false, true) => self.phases.stow(id, cgroup.as_ref(), &reach),
            (false, false) => self.phases.fetch(id, cgroup.as_ref(), &reach),
        };
        let dry_run = actor.is_dry_run();
        self.actor.cpu_s += sys::thread_cpu_s() - cpu_s;
        if !away {
            self.phases.forget(id);
        }
        let took_s = start.elapsed().as_secs_f64();
        let failed = done.as_ref().err().map(ToString::to_string);
        let went = done.as_ref().map_or([0.0; 2], |done| [bytes(done.anon), bytes(done.file)]);
        let stopped = if dry_run { Some("dry run") } else { failed.as_deref() };
        self.told.turned_over(id, away, (went, took_s), reason, stopped);
        let mut figures = vec![("target", name.unwrap_or_default())];
        match done {
            Ok(Stowed { anon, file, processes }) => figures.extend([
                ("processes", processes.to_string()),
                ("anon_bytes", anon.to_string()),
                ("file_bytes", file.to_string()),
            ]),
            Err(error) => figures.push(("error", error.to_string())),
        }
        figures.push(("took_s", format!("{took_s:.3}")));
        figures.push(("reason", reason.to_owned()));
        if dry_run {
            figures.push(("stopped", "dry run".to_owned()));
        }
        log::line(if away { "stow" } else { "fetch" }, &figures);
    }
}
