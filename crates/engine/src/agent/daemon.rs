//! The agent's configuration of the loop: observe, let policies decide, act, make it known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Signal as Received, Signals};
use lowtide_model::target::TargetId;
use lowtide_policy::machine::{Brake, Observation, Reclaimed, WorkloadPolicy, WorkloadState, turn};
use lowtide_policy::policies::Spec;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use sd_notify::NotifyState;

use super::actuator::Hands;
use super::background::Background;
use super::config::{Config, build};
use super::grants::{self, Granting, SILENCE};
use super::metric::Metrics;
use super::reclaim::CgroupReclaim;
use super::sampling::Sampling;
use super::serve::api::LIFECYCLE;
use super::serve::listen::{Listen, Serve};
use super::sinks::metrics::AgentMetrics;
use super::sinks::view::LiveView;
use super::socket::{Answer, Socket};
use super::{Sinks, hints};
use crate::calibration;
use crate::event::{Event, HeldBrake, Observed};
use crate::failure;
use crate::scheduler::{self, Reason, Task};
use crate::workloads::{NONE, Workloads};
use saving::Saver;

mod saving;
mod search;

/// Measuring and deciding takes no more of one CPU than this: with very many workloads, it is done less often.
const MOST_CPU: f64 = 0.02;
/// Peers that are answered before anything else is done again.
const PEERS: usize = 4;
/// A hint is acted on so soon, seconds. Not at once: others may follow, and a turn observes everything.
const SOON_S: f64 = 0.5;

/// A policy with the workloads that are its own.
struct Group {
    /// What held it at the last turn.
    held: Vec<(Option<TargetId>, Brake)>,
    spec: Spec,
    policy: Box<WorkloadPolicy>,
    reclaimed: Vec<Reclaimed>,
}

impl Group {
    fn new(name: &str, spec: Spec) -> anyhow::Result<Self> {
        let policy = build(name, &spec, 0).map_err(anyhow::Error::msg)?;
        Ok(Self { held: Vec::new(), spec, policy, reclaimed: Vec::new() })
    }

    fn is_guard(&self) -> bool {
        matches!(self.spec, Spec::Guard(_))
    }

    /// Has the policy decide; what came of it, and what holds it, is kept, and what changed of that reported under this name.
    fn turn(&mut self, name: &str, frame: &Observation, mut hands: Hands<'_>) {
        turn(self.policy.as_mut(), frame, &mut hands);
        let held = self.policy.held();
        for (holds, some, others) in [(true, &held, &self.held), (false, &self.held, &held)] {
            for (target, brake) in some.iter().filter(|one| !others.contains(one)) {
                let path = |id: TargetId| hands.workloads.all().get(&id).map(|workload| workload.path.clone());
                let Some(workload) = target.map_or(Some("all".to_owned()), path) else { continue };
                let event = Event::Brake { policy: name, workload: &workload, brake: *brake, holds };
                hands.sinks.publish(frame.now_s, &event);
            }
        }
        (self.held, self.reclaimed) = (held, hands.reclaimed);
    }
}

/// The agent.
pub struct Agent {
    kernel: Kernel,
    /// Where its configuration stands; `None` = nowhere.
    file: Option<PathBuf>,
    config: Config,
    dry_run: bool,
    workloads: Workloads,
    sampling: Sampling,
    groups: BTreeMap<String, Group>,
    /// What is done to what is in the background, and which that is.
    lifecycle: Option<Group>,
    background: Background,
    reclaim: CgroupReclaim,
    granting: Granting,
    socket: Option<Socket>,
    metrics: Metrics,
    sinks: Sinks,
    /// When the next turn is due, seconds.
    next_s: f64,
    cpu_at_start_s: f64,
    was_stopped: bool,
    saver: Saver,
}

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
        let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let measured = if config.guards() { calibration::load_or_measure(kernel) } else { calibration::load() };
        let costs = calibration::load().or_usual();
        let view = LiveView::new(kernel, AgentMetrics::default(), costs, (kernel.boot_s(), started_unix_s));
        let mut agent = Self {
            kernel: kernel.clone(),
            file: None,
            workloads: Workloads::new(kernel, config.rules(kernel)?, measured),
            sampling: Sampling::new(kernel, config.sampling()),
            groups: BTreeMap::new(),
            lifecycle: None,
            background: Background::new(kernel, None),
            reclaim: CgroupReclaim::new(kernel, config.stop_file.clone(), dry_run),
            granting: Granting::new(kernel, dry_run),
            socket: None,
            metrics: Metrics::default(),
            sinks: Sinks::new(view, config.telemetry.clone()),
            next_s: kernel.boot_s(),
            cpu_at_start_s: sys::own_cpu_s(),
            dry_run,
            was_stopped: false,
            saver: Saver::default(),
            config,
        };
        agent.make_groups()?;
        Ok(agent)
    }

    /// Whether it reclaims from cgroups, and not only from what is in the background.
    #[must_use]
    pub fn reclaims(&self) -> bool {
        self.config.workload.iter().any(|workload| workload.policy != NONE)
    }

    /// What others may see, and where it is to be served.
    #[must_use]
    pub fn served(&self) -> (Option<&Listen>, &Serve, LiveView) {
        (self.config.listen.as_ref(), &self.config.serve, self.sinks.view.clone())
    }

    /// Makes the policies that workloads ask for. One whose settings are as they were goes on as it was.
    fn make_groups(&mut self) -> anyhow::Result<()> {
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
        self.background.set_idle_after(idle_after.map(|time| time.0.as_secs_f64()));
        if self.groups.values().any(Group::is_guard) {
            grants::stay_in_memory();
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
        if self.socket.as_ref().is_some_and(|socket| socket.file.0 == lifecycle.socket) {
            return Ok(());
        }
        let socket = Socket::open(&lifecycle.socket).with_context(|| lifecycle.socket.display().to_string())?;
        self.socket = Some(socket);
        Ok(())
    }

    /// Takes hints, a few at a time: a peer that speaks without end must not keep the agent from its work. True if one was
    /// taken.
    fn take_hints(&mut self, now_s: f64) -> bool {
        let Some(socket) = &self.socket else { return false };
        let (kernel, workloads, background) = (&self.kernel, &self.workloads, &mut self.background);
        let sinks = &mut self.sinks;
        let mut taken = false;
        for _ in 0..PEERS {
            let answered = socket.answer(|uid, hint| {
                let answer = hints::take(kernel, workloads, background, (uid, hint));
                taken |= answer == Answer::Taken;
                sinks.log(now_s, "hint", &hints::figures(uid, hint, &answer));
                answer
            });
            match answered {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    sinks.publish(now_s, &Event::Error(&format!("hints cannot be taken any more: {error}")));
                    self.socket = None;
                    break;
                }
            }
        }
        taken
    }

    /// Reads the file anew. With a mistake in it, all stays as it was.
    fn reload(&mut self, now_s: f64) {
        let Some(file) = self.file.clone() else {
            self.sinks.publish(now_s, &Event::Note("there is no file to read anew"));
            return;
        };
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(&[NotifyState::Reloading, now]);
        }
        let loaded = Config::load(&file, &self.kernel).and_then(|config| Ok((config.rules(&self.kernel)?, config)));
        let result = loaded.map_err(|error| format!("nothing was changed: {}", failure::words(&error))).and_then(
            |(rules, config)| {
                if config.listen != self.config.listen {
                    self.sinks.publish(now_s, &Event::Note("another listen takes effect at the next start only"));
                }
                self.workloads.set_rules(rules);
                self.sampling.set(config.sampling());
                self.reclaim = CgroupReclaim::new(&self.kernel, config.stop_file.clone(), self.dry_run);
                self.sinks.set_telemetry(now_s, config.telemetry.as_ref());
                self.config = config;
                self.make_groups().and_then(|()| self.listen()).map_err(|error| error.to_string())
            },
        );
        match result {
            Ok(()) => self.sinks.log(now_s, "reloaded", &[("file", file.display().to_string())]),
            Err(text) => self.sinks.publish(now_s, &Event::Error(&text)),
        }
        let _ = sd_notify::notify(&[NotifyState::Ready]);
    }

    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// If signals cannot be waited for.
    pub fn run(&mut self, signals: &Signals) -> anyhow::Result<()> {
        let mode = if self.dry_run { "dry run" } else { "acting" };
        let file = self.file.as_ref().map_or_else(|| "none".to_owned(), |file| file.display().to_string());
        self.sinks.log(self.now_s(), "started", &[("file", file), ("mode", mode.to_owned())]);
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        let kernel = self.kernel.clone();
        scheduler::run(&kernel, signals, self).map(drop)
    }

    /// Whether there is nothing to do but to see that nobody thrashes.
    fn only_guards(&self) -> bool {
        let guards = |name: &String| self.groups.get(name).is_some_and(Group::is_guard);
        let idle = self.lifecycle.is_none() && !self.sinks.has_telemetry();
        idle && self.config.workload.iter().all(|workload| guards(&workload.policy))
    }

    /// CPU seconds of measuring and deciding so far.
    fn measuring_cpu_s(&mut self) -> f64 {
        sys::own_cpu_s() - self.reclaim.cpu_s + self.sampling.kernel_cpu_s()
    }

    /// Observes the workloads.
    fn observe(&mut self, now_s: f64, signals: &Signals) -> Observation {
        for text in self.metrics.run(now_s, signals, &mut self.workloads) {
            self.workloads.note(text);
        }
        let mut observation = self.workloads.observe(now_s);
        if self.workloads.take_searched()
            && let Some(counts) = self.sampling.follow(now_s, &mut self.workloads)
        {
            self.sinks.log(now_s, "sampling", &counts.map(|(source, workloads)| (source, workloads.to_string())));
        }
        for (id, workload) in self.workloads.iter_mut() {
            workload.granted = self.granting.of(*id);
        }
        let groups = self.groups.values_mut().chain(&mut self.lifecycle);
        observation.reclaimed = groups.flat_map(|group| std::mem::take(&mut group.reclaimed)).collect();
        observation
    }

    /// One turn of all policies.
    fn run_policies(&mut self, now_s: f64, signals: &Signals) {
        let mut observation = self.observe(now_s, signals);
        // Whose ages are new: its policy says anew what is to go, or that nothing is.
        let fresh: BTreeSet<TargetId> =
            observation.targets.iter().filter(|target| !target.ages.is_empty()).map(|target| target.id).collect();
        let outdated = self.sampling.address().map(|address| address.give_up(|id| fresh.contains(&id)));
        outdated.into_iter().flatten().for_each(|ended| self.ended(now_s, Some(ended)));
        for text in self.workloads.take_notes() {
            self.sinks.publish(now_s, &Event::Note(&text));
        }
        let stopped = self.note_stop(now_s);
        let first = self.restore(now_s);
        let processes = self.background.trees();
        self.publish_observation(&observation, &processes, (!fresh.is_empty(), stopped));
        // Of the time before the first turn nothing is known, pressure neither: it only observes.
        if stopped || first {
            self.granting.end();
            if !first {
                self.save(now_s, false);
            }
            return;
        }
        self.reclaim.begin();
        self.background_turn(&mut observation, processes);
        self.workload_turns(observation);
        let groups = self.groups.iter().map(|(name, group)| (name.as_str(), group));
        let groups = groups.chain(self.lifecycle.as_ref().map(|group| (LIFECYCLE, group)));
        let held: Vec<HeldBrake> =
            groups.flat_map(|(name, group)| group.held.iter().map(|held| (name.to_owned(), *held))).collect();
        self.sinks.publish(now_s, &Event::Brakes(&held));
        self.save(now_s, false);
    }

    /// Whether the file that stops it is there; reported when that changes.
    fn note_stop(&mut self, now_s: f64) -> bool {
        let stopped = self.reclaim.is_stopped();
        if stopped != self.was_stopped {
            let file = self.config.stop_file.display().to_string();
            self.sinks.log(now_s, if stopped { "stopped" } else { "going on" }, &[("file", file)]);
            self.was_stopped = stopped;
        }
        stopped
    }

    fn publish_observation(&mut self, observation: &Observation, processes: &[WorkloadState], is: (bool, bool)) {
        let named = |target: &WorkloadState| Some((self.background.name(target.id)?, target.clone()));
        let processes: Vec<(String, WorkloadState)> = processes.iter().filter_map(named).collect();
        // Both of one time, so that neither ever falls.
        let (cpu_s, evicting_s) = (sys::own_cpu_s() - self.cpu_at_start_s, self.reclaim.cpu_s);
        let observed = Observed {
            observation,
            workloads: self.workloads.all(),
            processes: &processes,
            are_ages_new: is.0,
            stopped: is.1,
            stop_file: &self.config.stop_file.display().to_string(),
            dry_run: self.dry_run,
            every_s: self.config.every.0.as_secs_f64(),
            cpu_s: (cpu_s - evicting_s, evicting_s),
        };
        self.sinks.publish(observation.now_s, &Event::Observed(&observed));
    }

    /// The life cycle's turn: all workloads, and the processes that hints were given about.
    fn background_turn(&mut self, observation: &mut Observation, processes: Vec<WorkloadState>) {
        let Some(mut group) = self.lifecycle.take() else { return };
        let all = self.workloads.all();
        for target in &mut observation.targets {
            let cgroup = all.get(&target.id).map(|workload| &workload.cgroup);
            target.background = cgroup.is_some_and(|cgroup| self.background.holds(cgroup, observation.now_s));
        }
        self.background.retain(|id| all.contains_key(&id));
        let targets = observation.targets.iter().cloned().chain(processes).collect();
        let frame = Observation { targets, ..observation.clone() };
        group.turn(LIFECYCLE, &frame, self.hands(observation.now_s));
        self.lifecycle = Some(group);
    }

    /// The turns of all other policies, each with its own workloads.
    fn workload_turns(&mut self, mut observation: Observation) {
        let mut left = std::mem::take(&mut observation.targets);
        for (name, mut group) in std::mem::take(&mut self.groups) {
            let all = self.workloads.all();
            let own = |id: TargetId| all.get(&id).is_some_and(|workload| workload.policy == *name);
            let (targets, others) = left.into_iter().partition(|target| own(target.id));
            let reclaimed = observation.reclaimed.iter().filter(|of| own(of.target)).copied().collect();
            // What those before have filled is not free any more.
            let swap_free = self.workloads.swap_free();
            let frame = Observation { targets, reclaimed, swap_free, ..observation.clone() };
            group.turn(&name, &frame, self.hands(observation.now_s));
            left = others;
            self.groups.insert(name, group);
        }
    }

    fn hands(&mut self, now_s: f64) -> Hands<'_> {
        Hands {
            now_s,
            workloads: &mut self.workloads,
            reclaim: &mut self.reclaim,
            address: self.sampling.address(),
            background: &mut self.background,
            granting: &mut self.granting,
            sinks: &mut self.sinks,
            reclaimed: Vec::new(),
        }
    }
}

/// Seconds from one turn to the next, of which the last took so much CPU time.
fn pause_s(every_s: f64, cpu_s: f64) -> f64 {
    every_s.max(cpu_s / MOST_CPU)
}

impl Task for Agent {
    /// Seconds since the boot: what was learnt is of use to the agent after this one as it is.
    fn now_s(&self) -> f64 {
        self.kernel.boot_s()
    }

    fn next_due_s(&self) -> f64 {
        let now_s = self.now_s();
        let due_s = f64::min(self.next_s, self.sampling.next_due_s().max(now_s));
        if self.granting.is_empty() { due_s } else { due_s.min(now_s + 0.3 * SILENCE.as_secs_f64()) }
    }

    fn wakers(&self) -> Vec<PollFd<'_>> {
        self.socket.iter().map(|socket| PollFd::new(&socket.listener, PollFlags::IN)).collect()
    }

    fn woken(&mut self, _: &[PollFlags]) {
        self.granting.beat();
    }

    fn signal(&mut self, signal: &Received) -> anyhow::Result<Option<Reason>> {
        let now_s = self.now_s();
        if signal.number == Signal::HUP.as_raw() {
            self.reload(now_s);
            return Ok(None);
        }
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        self.granting.end();
        self.save(now_s, true);
        self.sinks.end_telemetry(now_s);
        self.sinks.log(now_s, "ended", &[("signal", signal.number.to_string())]);
        Ok(Some("interrupted"))
    }

    fn turn(&mut self, signals: &Signals) -> anyhow::Result<Option<Reason>> {
        let now_s = self.now_s();
        let hinted = self.take_hints(now_s);
        if hinted {
            self.save_hints(now_s);
        }
        let before_s = self.measuring_cpu_s();
        let fresh = self.sampling.read(now_s, &mut self.workloads);
        self.search_step(now_s);
        let (due, every_s) = (now_s >= self.next_s, self.config.every.0.as_secs_f64());
        if due && !fresh && self.only_guards() && self.granting.is_empty() && self.workloads.is_quiet(now_s) {
            self.next_s = now_s + every_s;
        } else if fresh || due {
            self.run_policies(now_s, signals);
            self.next_s = now_s + pause_s(every_s, self.measuring_cpu_s() - before_s);
        } else {
            if hinted {
                self.next_s = self.next_s.min(now_s + SOON_S);
            }
            return Ok(None);
        }
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
