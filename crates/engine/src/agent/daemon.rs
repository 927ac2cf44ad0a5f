//! The agent's loop: look, let policies decide, act, tell.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Signals};
use lowtide_policy::machine::{Brake, Observation, Reclaimed, Target, WorkloadPolicy, turn};
use lowtide_policy::policies::Spec;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use sd_notify::NotifyState;

use super::act::Actor;
use super::api::LIFECYCLE;
use super::config::{Config, NONE, build};
use super::figures::{Row, Shared};
use super::granting::{self, Granting, SILENCE};
use super::heed;
use super::lifecycle::Phases;
use super::listen::{Listen, Serve};
use super::log;
use super::metric::Metrics;
use super::node::Node;
use super::seen::{Seen, Turn};
use super::socket::{Answer, Socket};
use super::telemetry::{Known, Telemetry};
use super::watch::{Watch, pause_s};
use crate::calibration;
use keeping::Keeper;

mod finding;
mod keeping;

/// A policy with the workloads that are its own.
struct Group {
    /// What held it at the last turn.
    held: Vec<(Option<u64>, Brake)>,
    spec: Spec,
    policy: Box<WorkloadPolicy>,
    reclaimed: Vec<Reclaimed>,
}

impl Group {
    fn new(name: &str, spec: Spec) -> anyhow::Result<Self> {
        let policy = build(name, &spec, 0).map_err(anyhow::Error::msg)?;
        Ok(Self { held: Vec::new(), spec, policy, reclaimed: Vec::new() })
    }

    /// Has the policy decide, under this name; keeps what came of it and what holds it.
    fn turn(&mut self, name: &str, frame: &Observation, mut node: Node<'_>) {
        turn(self.policy.as_mut(), frame, &mut node);
        let held = self.policy.held();
        log::brakes(name, &self.held, &held, node.watch.found());
        (self.held, self.reclaimed) = (held, node.reclaimed);
    }
}

/// The agent.
pub struct Agent {
    kernel: Kernel,
    /// Where that stands; `None` = nowhere.
    file: Option<PathBuf>,
    config: Config,
    watch: Watch,
    actor: Actor,
    groups: BTreeMap<String, Group>,
    /// What is done to what is in the background, and who that is.
    lifecycle: Option<Group>,
    phases: Phases,
    granting: Granting,
    socket: Option<Socket>,
    metrics: Metrics,
    telemetry: Option<Telemetry>,
    shared: Shared,
    seen: Seen,
    /// On the kernel's monotonic clock.
    start_ns: u64,
    /// When the next turn is due, seconds since the start.
    next_s: f64,
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
        Ok(Self { file: Some(file.to_path_buf()), ..Self::with(kernel, config, dry_run)? })
    }

    /// An agent that does what was decided elsewhere, and has no file to read anew.
    ///
    /// # Errors
    /// If a pattern or a policy makes no sense.
    pub fn with(kernel: &Kernel, config: Config, dry_run: bool) -> anyhow::Result<Self> {
        let shared = Shared::default();
        let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let costs = calibration::load().or_usual();
        let mut agent = Self {
            kernel: kernel.clone(),
            file: None,
            watch: Watch::new(kernel, &config)?,
            actor: Actor::new(kernel, config.stop_file.clone(), dry_run),
            groups: BTreeMap::new(),
            lifecycle: None,
            phases: Phases::new(kernel, None),
            granting: Granting::new(kernel, dry_run),
            socket: None,
            seen: Seen::new(kernel, shared.clone(), costs, started_unix_s, dry_run),
            metrics: Metrics::default(),
            telemetry: config.telemetry.clone().map(Telemetry::new),
            shared,
            start_ns: kernel.monotonic_ns(),
            next_s: 0.0,
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
        if self.groups.values().any(|group| matches!(group.spec, Spec::Guard(_))) {
            granting::stay_in_memory();
        }
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
        let Some(file) = self.file.clone() else {
            log::line("note", &[("text", "there is no file to read anew".to_owned())]);
            return;
        };
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(&[NotifyState::Reloading, now]);
        }
        let loaded =
            Config::load(&file, &self.kernel).and_then(|config| Ok((Watch::new(&self.kernel, &config)?, config)));
        match loaded {
            Ok((watch, config)) => {
                if config.listen != self.config.listen {
                    log::line("note", &[("text", "listen is heeded at the next start only".to_owned())]);
                }
                self.watch = watch.succeeding(std::mem::replace(&mut self.watch, Watch::empty(&self.kernel)));
                self.actor = Actor::new(&self.kernel, config.stop_file.clone(), self.dry_run);
                self.replace_telemetry(&config);
                self.config = config;
                match self.group().and_then(|()| self.listen()) {
                    Ok(()) => log::line("reloaded", &[("file", file.display().to_string())]),
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
        self.kernel.seconds_since(self.start_ns)
    }

    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// If signals cannot be waited for.
    pub fn run(&mut self, signals: &Signals) -> anyhow::Result<()> {
        let mode = if self.dry_run { "dry run" } else { "acting" };
        let file = self.file.as_ref().map_or_else(|| "none".to_owned(), |file| file.display().to_string());
        log::line("started", &[("file", file), ("mode", mode.to_owned())]);
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        while self.step(signals)? {}
        Ok(())
    }

    /// Waits for what is due next, and does it. False if a signal ended the agent.
    fn step(&mut self, signals: &Signals) -> anyhow::Result<bool> {
        let mut due_s = f64::min(self.next_s, self.watch.due_s().max(self.now_s()));
        if !self.granting.is_empty() {
            due_s = due_s.min(self.now_s() + 0.3 * SILENCE.as_secs_f64());
        }
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        fds.extend(self.socket.as_ref().map(|socket| PollFd::new(&socket.listener, PollFlags::IN)));
        self.kernel.wait(&mut fds, due_s - self.now_s())?;
        drop(fds);
        self.granting.beat();
        while let Some(signal) = signals.next()? {
            if signal.number != Signal::HUP.as_raw() {
                let _ = sd_notify::notify(&[NotifyState::Stopping]);
                self.granting.end();
                self.keep(true);
                self.end_telemetry();
                log::line("ended", &[("signal", signal.number.to_string())]);
                return Ok(false);
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
        let due = now_s >= self.next_s;
        if due && !fresh && self.only_guards() && self.granting.is_empty() && self.watch.is_quiet(now_s) {
            self.next_s = now_s + self.config.every.0.as_secs_f64();
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        } else if fresh || due {
            self.watch.measure(now_s, &mut self.metrics, signals);
            self.turn(now_s);
            self.next_s = now_s + pause_s(self.config.every.0.as_secs_f64(), self.watching_cpu_s() - before_s);
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        } else if hinted {
            self.next_s = self.next_s.min(now_s + SOON_S);
        }
        Ok(true)
    }

    /// Writes down for the fleet what was seen.
    fn write_down(&mut self, seen: &Observation) {
        let Some(telemetry) = &mut self.telemetry else { return };
        let found = self.watch.found();
        let policy = |policy: &str| if policy == NONE { String::new() } else { policy.to_owned() };
        let known = |id: u64| {
            let watched = found.get(&id)?;
            Some(Known {
                workload: watched.path.clone(),
                policy: policy(&watched.policy),
                labels: watched.labels.clone(),
            })
        };
        telemetry.see(seen, known);
        if let Some(text) = telemetry.take_trouble() {
            self.seen.note(&text);
            log::line("error", &[("text", text)]);
        }
    }

    fn end_telemetry(&mut self) {
        let now_s = self.now_s();
        let trouble = self.telemetry.take().and_then(|mut telemetry| telemetry.end(now_s));
        if let Some(text) = trouble {
            log::line("error", &[("text", text)]);
        }
    }

    /// Has telemetry go on as it was where the file says the same of it.
    fn replace_telemetry(&mut self, config: &Config) {
        if self.telemetry.as_ref().map(Telemetry::settings) != config.telemetry.as_ref() {
            self.end_telemetry();
            self.telemetry = config.telemetry.clone().map(Telemetry::new);
        }
    }

    /// Whether there is nothing to do but to see that nobody thrashes, and nothing to write down.
    fn only_guards(&self) -> bool {
        let guards = |name: &String| self.groups.get(name).is_some_and(|group| matches!(group.spec, Spec::Guard(_)));
        let idle = self.lifecycle.is_none() && self.telemetry.is_none();
        idle && self.config.workload.iter().all(|workload| guards(&workload.policy))
    }

    /// CPU seconds of looking and deciding so far.
    fn watching_cpu_s(&self) -> f64 {
        sys::own_cpu_s() - self.actor.cpu_s
    }

    /// One turn of all policies.
    fn turn(&mut self, now_s: f64) {
        let mut seen = self.watch.observe(now_s);
        let groups = self.groups.values_mut().chain(&mut self.lifecycle);
        seen.reclaimed = groups.flat_map(|group| std::mem::take(&mut group.reclaimed)).collect();
        self.write_down(&seen);
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
            self.granting.end();
            if !first {
                self.keep(false);
            }
            return;
        }
        self.actor.begin();
        self.stow(&mut seen, trees);
        let mut all = std::mem::take(&mut seen.targets);
        for (name, group) in &mut self.groups {
            let own = |id: u64| self.watch.found().get(&id).is_some_and(|of| of.policy == *name);
            let (targets, others) = all.into_iter().partition(|target| own(target.id));
            all = others;
            let reclaimed = seen.reclaimed.iter().filter(|of| own(of.target)).copied().collect();
            // What those before have filled is not free any more.
            let swap_free = self.watch.swap_free();
            let node = Node {
                now_s,
                watch: &mut self.watch,
                actor: &mut self.actor,
                phases: &mut self.phases,
                granting: &mut self.granting,
                reclaimed: Vec::new(),
                shared: &self.shared,
                told: &self.seen,
            };
            group.turn(name, &Observation { targets, reclaimed, swap_free, ..seen.clone() }, node);
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
            watch: &mut self.watch,
            actor: &mut self.actor,
            phases: &mut self.phases,
            granting: &mut self.granting,
            reclaimed: Vec::new(),
            shared: &self.shared,
            told: &self.seen,
        };
        group.turn(LIFECYCLE, &Observation { targets, ..seen.clone() }, node);
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
                row.granted = self.granting.of(*id);
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

#[cfg(test)]
mod tests;
