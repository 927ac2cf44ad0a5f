//! The agent's configuration of the loop: observe, let policies decide, act, publish.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{Signal as Received, Signals};
use lowtide_model::target::TargetId;
use lowtide_policy::machine::{Observation, WorkloadState};
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use sd_notify::NotifyState;

use super::alert::Alert;
use super::background::Background;
use super::config::Config;
use super::grants::{Granting, SILENCE};
use super::huge::Splitter;
use super::metric::Metrics;
use super::reclaim::CgroupReclaim;
use super::sampling::{MOST_CPU, Sampling};
use super::serve::api::LIFECYCLE;
use super::serve::listen::{Listen, Serve};
use super::sinks::record::AgentRecord;
use super::sinks::view::LiveView;
use super::socket::{Answer, Socket};
use super::{Sinks, hints};
use crate::event::{Event, HeldBrake, Observed};
use crate::recorder::RecordOptions;
use crate::scheduler::{self, LoopTask, Reason};
use crate::source::{SourceChoice, SourceSettings};
use crate::workloads::Workloads;
use crate::{calibration, recording};
use policies::Group;
use saving::Saver;

mod policies;
mod saving;
mod search;
mod settings;

/// Turns take no more than this part of it; sampling by addresses has what they leave.
const TURNS_CPU: f64 = 0.5 * MOST_CPU;
/// A hint is acted on so soon, seconds. Not at once: others may follow, and a turn observes everything.
const SOON_S: f64 = 0.5;

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
    splitter: Option<Splitter>,
    /// Wakes it when tasks stall, where it guards.
    alert: Option<Alert>,
    socket: Option<Socket>,
    metrics: Metrics,
    sinks: Sinks,
    /// When the last turn was, what it took of a CPU, and when the next is due, seconds.
    last: (f64, f64),
    next_s: f64,
    cpu_at_start_s: f64,
    was_stopped: bool,
    saver: Saver,
}

impl Agent {
    /// An agent with the settings of a file. Fails if the file has a mistake.
    pub fn new(kernel: &Kernel, file: &Path, dry_run: bool) -> anyhow::Result<Self> {
        let config = Config::load(file, kernel)?;
        Ok(Self { file: Some(file.to_path_buf()), ..Self::with(kernel, config, dry_run)? })
    }

    /// An agent with these settings and no file to read again. Fails if a pattern or a policy
    /// makes no sense.
    pub fn with(kernel: &Kernel, config: Config, dry_run: bool) -> anyhow::Result<Self> {
        let rules = config.rules(kernel)?;
        // What a refault costs differs between machines by a factor of ten.
        let measured = if config.reclaims() { calibration::load_or_measure(kernel) } else { calibration::load() };
        let view = LiveView::new(kernel, measured.or_usual());
        let mut agent = Self {
            kernel: kernel.clone(),
            file: None,
            workloads: Workloads::new(kernel, rules, measured),
            sampling: Sampling::new(kernel, config.sampling()),
            groups: BTreeMap::new(),
            lifecycle: None,
            background: Background::new(kernel),
            reclaim: CgroupReclaim::new(kernel, config.stop_file.clone(), dry_run),
            granting: Granting::new(kernel, dry_run),
            splitter: None,
            alert: None,
            socket: None,
            metrics: Metrics::default(),
            sinks: Sinks::new(view, config.telemetry.clone()),
            last: (f64::NEG_INFINITY, 0.0),
            next_s: kernel.awake_s(),
            cpu_at_start_s: kernel.own_cpu_s(),
            dry_run,
            was_stopped: false,
            saver: Saver::default(),
            config,
        };
        agent.make_groups()?;
        Ok(agent)
    }

    /// Whether it reclaims from cgroups, and not only from what is in the background.
    pub fn reclaims(&self) -> bool {
        self.config.reclaims()
    }

    /// The published state, and where it is served.
    pub fn served(&self) -> (Option<&Listen>, &Serve, LiveView) {
        (self.config.listen.as_ref(), &self.config.serve, self.sinks.view.clone())
    }

    /// Takes the hints that have come. True if there was one.
    fn take_hints(&mut self, now_s: f64) -> bool {
        let Some(socket) = &mut self.socket else { return false };
        let (kernel, workloads, background) = (&self.kernel, &self.workloads, &mut self.background);
        let sinks = &mut self.sinks;
        let mut taken = false;
        let answered = socket.answer(|uid, hint| {
            let answer = hints::take(kernel, workloads, background, (uid, hint));
            taken |= answer == Answer::Taken;
            sinks.log(now_s, "hint", &hints::figures(uid, hint, &answer));
            answer
        });
        if let Err(error) = answered {
            sinks.publish(now_s, &Event::Error(&format!("no hint can be taken for now: {error}")));
        }
        taken
    }

    /// Runs until a signal ends it. Fails if signals cannot be waited for.
    pub fn run(&mut self, signals: &Signals) -> anyhow::Result<()> {
        let mode = if self.dry_run { "dry run" } else { "acting" };
        let file = self.file.as_ref().map_or_else(|| "none".to_owned(), |file| file.display().to_string());
        self.sinks.log(self.now_s(), "started", &[("file", file), ("mode", mode.to_owned())]);
        self.begin_record()?;
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        let kernel = self.kernel.clone();
        scheduler::run(&kernel, signals, self).map(drop)
    }

    /// Begins the record, if one is to be made.
    fn begin_record(&mut self) -> anyhow::Result<()> {
        let Some(out) = self.config.out.clone() else { return Ok(()) };
        let source = SourceSettings { choice: SourceChoice::None, attached: true, ..SourceSettings::default() };
        let interval_s = self.config.every.0.as_secs_f64();
        let options = RecordOptions { out: None, source, interval_s, max_overhead: MOST_CPU, plan: None };
        let mut meta = recording::meta(&self.kernel, std::env::args().collect(), &options, &[]);
        meta.monitor.backend = "none".to_owned();
        self.sinks.record = Some(AgentRecord::create(&out, meta, self.now_s())?);
        Ok(())
    }

    /// Has the next turn come sooner while tasks stall.
    fn hurry(&mut self, now_s: f64) {
        let Some(alert) = &mut self.alert else { return };
        let before = alert.is_on(now_s);
        if let Some(due_s) = alert.due_s(now_s, self.last, !self.granting.is_empty()) {
            self.next_s = self.next_s.min(due_s);
            if !before && alert.is_on(now_s) {
                // What stalls may be new.
                self.workloads.search_again();
            }
        }
    }

    /// Whether it guards against thrashing only.
    fn only_guards(&self) -> bool {
        let guards = |name: &String| self.groups.get(name).is_some_and(Group::is_guard);
        let idle = self.lifecycle.is_none() && self.sinks.telemetry.is_none();
        idle && self.config.workload.iter().all(|workload| guards(&workload.policy))
    }

    /// CPU seconds of measuring and deciding so far.
    fn measuring_cpu_s(&mut self) -> f64 {
        self.kernel.own_cpu_s() - self.reclaim.cpu_s + self.sampling.kernel_cpu_s()
    }

    /// Observes the workloads.
    fn observe(&mut self, now_s: f64, signals: &Signals) -> Observation {
        for text in self.metrics.run(now_s, signals, &mut self.workloads) {
            self.workloads.note(text);
        }
        let mut observation = self.workloads.observe(now_s);
        if std::mem::take(&mut self.workloads.is_searched)
            && let Some(counts) = self.sampling.follow(now_s, &mut self.workloads)
        {
            self.sinks.log(now_s, "sampling", &counts.map(|(source, workloads)| (source, workloads.to_string())));
        }
        for (id, workload) in self.workloads.all.iter_mut() {
            workload.granted = self.granting.of(*id);
        }
        let groups = self.groups.values_mut().chain(&mut self.lifecycle);
        observation.reclaimed = groups.flat_map(|group| std::mem::take(&mut group.reclaimed)).collect();
        observation
    }

    /// One turn of all policies.
    fn run_policies(&mut self, now_s: f64, signals: &Signals) {
        let mut observation = self.observe(now_s, signals);
        // Where ages are new the policy decides again, and replaces its goal.
        let longest_s = |target: &WorkloadState| target.ages.iter().map(|bin| bin.min_s).reduce(f64::max);
        let fresh: BTreeMap<TargetId, f64> =
            observation.targets.iter().filter_map(|target| Some((target.id, longest_s(target)?))).collect();
        let outdated = self.sampling.address().map(|address| address.give_up(|id| fresh.get(&id).copied()));
        outdated.into_iter().flatten().for_each(|ended| self.ended(now_s, Some(ended)));
        for text in std::mem::take(&mut self.workloads.new_notes) {
            self.sinks.publish(now_s, &Event::Note(&text));
        }
        let stopped = self.check_stop_file(now_s);
        let first = self.restore(now_s);
        let processes = self.background.trees();
        self.publish_observation(&observation, &processes, (!fresh.is_empty(), stopped));
        // Pressure before the first turn is not known: it only observes.
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
        self.split_huge_pages(now_s);
        let groups = self.groups.iter().map(|(name, group)| (name.as_str(), group));
        let groups = groups.chain(self.lifecycle.as_ref().map(|group| (LIFECYCLE, group)));
        let held: Vec<HeldBrake> =
            groups.flat_map(|(name, group)| group.held.iter().map(|held| (name.to_owned(), *held))).collect();
        self.sinks.publish(now_s, &Event::Brakes(&held));
        self.save(now_s, false);
    }

    /// Whether the stop file is there; logged when that changes.
    fn check_stop_file(&mut self, now_s: f64) -> bool {
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
        let (cpu_s, evicting_s) = (self.kernel.own_cpu_s() - self.cpu_at_start_s, self.reclaim.cpu_s);
        let observed = Observed {
            observation,
            workloads: &self.workloads.all,
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
}

/// Seconds from one turn to the next, of which the last took so much CPU time.
fn pause_s(every_s: f64, cpu_s: f64) -> f64 {
    every_s.max(cpu_s / TURNS_CPU)
}

impl LoopTask for Agent {
    /// As [`Kernel::awake_s`]: what was learnt is of use to the agent after this one as it is.
    fn now_s(&self) -> f64 {
        self.kernel.awake_s()
    }

    fn next_due_s(&self) -> f64 {
        let now_s = self.now_s();
        let check_s = self.alert.as_ref().and_then(Alert::check_due_s).unwrap_or(f64::INFINITY);
        let due_s = self.next_s.min(check_s).min(self.sampling.next_due_s().max(now_s));
        if self.granting.is_empty() { due_s } else { due_s.min(now_s + 0.3 * SILENCE.as_secs_f64()) }
    }

    fn wakers(&self) -> Vec<PollFd<'_>> {
        let stalls = self.alert.iter().filter_map(Alert::waker);
        stalls.chain(self.socket.iter().flat_map(Socket::wakers)).collect()
    }

    fn woken(&mut self, events: &[PollFlags]) {
        self.granting.beat();
        let stalls = self.alert.as_mut().filter(|alert| alert.waker().is_some());
        if let (Some(alert), Some(event)) = (stalls, events.first()) {
            alert.woken(*event);
        }
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
        self.sinks.end_record(now_s);
        self.sinks.log(now_s, "ended", &[("signal", signal.number.to_string())]);
        Ok(Some("interrupted"))
    }

    fn turn(&mut self, signals: &Signals) -> anyhow::Result<Option<Reason>> {
        let now_s = self.now_s();
        let hinted = self.take_hints(now_s);
        if hinted {
            self.save_hints(now_s);
        }
        let turns = self.last.1 / pause_s(self.config.every.0.as_secs_f64(), self.last.1);
        let fresh = self.sampling.read(now_s, MOST_CPU - turns, &mut self.workloads);
        // What sampling costs delays no turn.
        let before_s = self.measuring_cpu_s();
        self.search_step(now_s);
        self.hurry(now_s);
        if fresh {
            // Of very many workloads some are new all the time, and a turn observes everything.
            self.next_s = self.next_s.min(self.last.0 + pause_s(0.0, self.last.1));
        }
        let (due, every_s) = (now_s >= self.next_s, self.config.every.0.as_secs_f64());
        if due && !fresh && self.only_guards() && self.granting.is_empty() && self.workloads.is_quiet(now_s) {
            self.next_s = now_s + every_s;
        } else if due {
            self.run_policies(now_s, signals);
            self.last = (now_s, self.measuring_cpu_s() - before_s);
            self.next_s = now_s + pause_s(every_s, self.last.1);
            self.hurry(now_s);
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
