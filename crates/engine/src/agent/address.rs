//! Where the kernel neither ages a workload's memory as a whole nor evicts of it (cgroups of version 1, kernels without
//! the multi-generational LRU): idle ages from accessed bits, mapping by mapping, and advice on ranges of addresses.
//!
//! A request to reclaim says how much, and how long idle; it does not say where that is. So it becomes a goal, and the
//! [`Operator`] of schemes searches for it in small blocks: a block that comes back was in use. That takes some turns.

mod schemes;
mod site;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use lowtide_kernel::advise::Adviser;
use lowtide_kernel::cgroup::{Cgroup, Version};
use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::smaps::{ReferencedScan, SmapsMonitor};
use lowtide_kernel::root::{Kernel, Result};
use lowtide_kernel::{proc, sys};
use lowtide_model::cohort::AgeBin;
use lowtide_model::curve::SIDES;
use lowtide_model::scheme::{Action as Advice, Bounds, Filter, FilterType, Quota, Scheme};
use lowtide_model::target::TargetId;
use lowtide_model::units::{Share, Size, Span, float, integer};
use lowtide_model::{PAGE, WINDOWS_S};
use lowtide_policy::machine::{Done, Reclaim, Reclaimed, RegionObservation, turn};
use lowtide_policy::schemes::settings::Regions;
use lowtide_policy::schemes::{Operator, SchemeLimits};

use self::schemes::{Advised, WorkloadSchemes};
use self::site::Site;
use super::reclaim::is_there;
use crate::event::Outcome;
use crate::schemes::acting::candidates;
use crate::schemes::worker::{Brake, Turn};

/// Share of one CPU that sampling may take, all workloads together; rounds wait where it takes more.
const PRICE: f64 = 0.01;
/// Time between two steps towards a goal, seconds: what comes back at once has done so by then.
const STEP_S: f64 = 1.0;
/// A goal that is not reached after so many seconds is given up: its figures are old.
const LONGEST_S: f64 = 60.0;
/// What could not be sampled is sampled again after so many seconds.
const RETRY_S: f64 = 10.0;
/// One step takes no longer.
const STEP: Duration = Duration::from_secs(1);
/// Less than a block is not searched for.
const LEAST: f64 = 131_072.0;
/// Stalls of the whole machine, as these cgroups have no pressure of their own.
const PRESSURE_FILE: &str = "/proc/pressure/memory";

/// What is to be found.
#[derive(Debug, Clone)]
struct Goal {
    wanted: Reclaim,
    left: [f64; SIDES],
    until_s: f64,
    outcome: Outcome,
}

/// One workload.
#[derive(Debug)]
struct Walk {
    cgroup: Cgroup,
    monitor: SmapsMonitor,
    /// CPU seconds of the round under way, and when it began.
    round: (f64, f64),
    /// No new round before.
    rest_s: f64,
    /// No sample before, as the last one failed.
    retry_s: f64,
    /// What was read last, by window.
    looks: BTreeMap<u32, ReferencedScan>,
    /// For anonymous memory, and for files.
    operators: [Operator; SIDES],
    adviser: Adviser,
    turns: [Turn; SIDES],
    goal: Option<Goal>,
    /// Schemes that are its policy.
    schemed: Option<WorkloadSchemes>,
    /// The next step towards it, or of the schemes.
    step_s: f64,
    /// Anonymous pages that had come back at the last step.
    refaults: Option<u64>,
}

/// What is known of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineFacts {
    /// Share of the time that some task stalled on memory.
    pub pressure: Option<f64>,
    /// Bytes of swap that are free.
    pub swap_free: Option<u64>,
}

/// All such workloads.
#[derive(Debug)]
pub struct AddressReclaim {
    kernel: Kernel,
    windows_s: Vec<u32>,
    walks: BTreeMap<TargetId, Walk>,
}

/// Whether processes can be sampled and advised on here.
///
/// # Errors
/// If not, with the reason.
pub fn check(kernel: &Kernel) -> Result<()> {
    kernel.check_writable("/proc/1/clear_refs")?;
    let own = std::process::id();
    Adviser::new(kernel).advise(own, &[], sys::Advice::Pageout, None, || true).map(|_| ())
}

impl AddressReclaim {
    /// None yet. Ages are sampled at these windows.
    #[must_use]
    pub fn new(kernel: &Kernel, windows_s: &[u32]) -> Self {
        Self { kernel: kernel.clone(), windows_s: windows_s.to_vec(), walks: BTreeMap::new() }
    }

    /// Whether a workload is one of these, and nothing else evicts of it.
    #[must_use]
    pub fn reclaims(&self, id: TargetId) -> bool {
        self.walks.get(&id).is_some_and(|walk| walk.cgroup.version == Version::V1)
    }

    /// Samples these cgroups from now on, some of them for schemes. What is known of those that stay is kept.
    ///
    /// # Errors
    /// If a process does not let itself be sampled.
    pub fn follow(&mut self, cgroups: &[(Cgroup, Option<Regions>)], now_s: f64) -> Result<()> {
        self.walks.retain(|id, _| cgroups.iter().any(|(cgroup, _)| TargetId::Cgroup(cgroup.inode) == *id));
        for (cgroup, schemes) in cgroups {
            if !self.walks.contains_key(&TargetId::Cgroup(cgroup.inode)) {
                let monitor = SmapsMonitor::new(&self.kernel, &Target::default())?.with_windows(&self.windows_s);
                let walk = Walk {
                    cgroup: cgroup.clone(),
                    monitor,
                    round: (0.0, now_s),
                    rest_s: now_s,
                    retry_s: now_s,
                    looks: BTreeMap::new(),
                    operators: [0, 1].map(|side| operator(side, cgroup.inode)),
                    adviser: Adviser::new(&self.kernel),
                    turns: [Turn::default(), Turn::default()],
                    goal: None,
                    schemed: None,
                    step_s: now_s,
                    refaults: None,
                };
                self.walks.insert(TargetId::Cgroup(cgroup.inode), walk);
            }
            if let Some(walk) = self.walks.get_mut(&TargetId::Cgroup(cgroup.inode)) {
                let same = walk.schemed.take().filter(|schemed| Some(schemed.regions()) == schemes.as_ref());
                walk.schemed =
                    same.or_else(|| schemes.as_ref().map(|schemes| WorkloadSchemes::new(schemes, cgroup.inode)));
            }
        }
        Ok(())
    }

    /// When there is something to do next.
    #[must_use]
    pub fn due_s(&self) -> f64 {
        self.walks.values().map(Walk::due_s).fold(f64::INFINITY, f64::min)
    }

    /// Whether a step towards some goal, or of schemes, is to be taken.
    #[must_use]
    pub fn is_due(&self, now_s: f64) -> bool {
        self.walks.values().any(|walk| walk.is_searching() && now_s >= walk.step_s)
    }

    /// Lets the schemes of those whose time it is decide and act. What each did, by workload.
    pub fn apply(
        &mut self,
        now_s: f64,
        facts: MachineFacts,
        stop_file: &Path,
        dry_run: bool,
    ) -> Vec<(TargetId, Advised)> {
        let due = self.walks.iter_mut().filter(|(_, walk)| walk.schemed.is_some() && now_s >= walk.step_s);
        let mut all = Vec::new();
        for (id, walk) in due {
            walk.step_s = now_s + STEP_S;
            if dry_run {
                continue;
            }
            // The youngest reading: what is in use, and what is not.
            let Some((window, look)) = walk.looks.first_key_value() else { continue };
            let Some(schemed) = &mut walk.schemed else { continue };
            let site = Site {
                kernel: &self.kernel,
                cgroup: &walk.cgroup,
                adviser: &mut walk.adviser,
                brake: brake(&self.kernel, stop_file),
                turn: Turn::default(),
            };
            all.push((*id, schemed.step(site, (f64::from(*window), look), now_s, facts)));
        }
        all
    }

    /// Samples where it is time. Idle ages of those whose round is over, and what could not be sampled.
    pub fn sample(&mut self, now_s: f64) -> Vec<(TargetId, Result<Vec<AgeBin>>)> {
        let price = PRICE / float(self.walks.len().max(1) as u64);
        let kernel = &self.kernel;
        let due = self.walks.iter_mut().filter(|(_, walk)| now_s >= walk.sample_due_s());
        let mut all = Vec::new();
        for (id, walk) in due {
            let ages = walk.sample(kernel, now_s, price);
            if ages.is_err() {
                walk.retry_s = now_s + RETRY_S;
            }
            all.extend(ages.transpose().map(|ages| (*id, ages)));
        }
        all
    }

    /// Takes on a request; the goal before it, if it was not reached, is given up. `now_s`: when.
    pub fn want(&mut self, wanted: &Reclaim, now_s: f64) {
        let Some(walk) = self.walks.get_mut(&wanted.target) else { return };
        let reclaimed = Reclaimed { target: wanted.target, ..Reclaimed::default() };
        let outcome = Outcome { reclaimed, ..Outcome::default() };
        let until_s = now_s + LONGEST_S;
        walk.goal = Some(Goal { left: wanted.bytes.into(), wanted: wanted.clone(), until_s, outcome });
        walk.step_s = now_s;
    }

    /// Goals of these workloads that are given up, as their policy knows better by now.
    pub fn give_up(&mut self, ids: impl Fn(TargetId) -> bool) -> Vec<(Reclaim, Outcome)> {
        let walks = self.walks.iter_mut().filter(|(id, _)| ids(**id));
        walks.filter_map(|(_, walk)| walk.end("what was not found by now is not searched for any more")).collect()
    }

    /// Steps towards the goals whose time it is. What went in each, and the request with all that came of it where that
    /// was the last step.
    pub fn step(
        &mut self,
        now_s: f64,
        facts: MachineFacts,
        stop_file: &Path,
    ) -> Vec<(Reclaimed, Option<(Reclaim, Outcome)>)> {
        let mut all = Vec::new();
        for walk in self.walks.values_mut().filter(|walk| walk.goal.is_some() && now_s >= walk.step_s) {
            let reclaimed = walk.step(&self.kernel, now_s, facts, stop_file);
            walk.step_s = now_s + STEP_S;
            let Some(goal) = &walk.goal else { continue };
            let why = match () {
                () if goal.left.iter().all(|left| *left < LEAST) => Some(""),
                () if now_s >= goal.until_s => Some("it was not found in time"),
                () => None,
            };
            let ended = why.and_then(|why| walk.end(why));
            if ended.is_some() {
                // Descriptors of processes are few.
                walk.adviser = Adviser::new(&self.kernel);
            }
            all.push((reclaimed, ended));
        }
        all
    }
}

impl Walk {
    fn sample_due_s(&self) -> f64 {
        let due_s = if self.monitor.is_between_rounds() { self.rest_s } else { self.monitor.due_s() };
        due_s.max(self.retry_s)
    }

    fn due_s(&self) -> f64 {
        let step_s = if self.is_searching() { self.step_s } else { f64::INFINITY };
        self.sample_due_s().min(step_s)
    }

    fn is_searching(&self) -> bool {
        self.goal.is_some() || self.schemed.is_some()
    }

    /// The workload as the monitor wants it: its processes and what they have mapped.
    fn target(&self, kernel: &Kernel) -> Result<Target> {
        let pids = self.cgroup.pids(kernel)?;
        let mut totals = [0.0; 3];
        for status in pids.iter().filter_map(|pid| proc::status(kernel, *pid).ok()) {
            totals[0] += float(status.rss_anon);
            totals[1] += float(status.rss_file + status.rss_shmem);
        }
        Ok(Target { pids, totals, ..Target::default() })
    }

    /// One step of a round; the ages at its end.
    fn sample(&mut self, kernel: &Kernel, now_s: f64, price: f64) -> Result<Option<Vec<AgeBin>>> {
        let before_s = sys::thread_cpu_s();
        if self.monitor.is_between_rounds() {
            self.round = (0.0, now_s);
        }
        let target = self.target(kernel)?;
        let picture = self.monitor.step(now_s, &target)?;
        if let Some(look) = self.monitor.take_scan() {
            let near = WINDOWS_S.iter().min_by(|a, b| {
                let off = |window: &u32| (f64::from(*window) - look.window_s).abs();
                off(a).total_cmp(&off(b))
            });
            self.looks.extend(near.map(|window| (*window, look)));
        }
        self.round.0 += sys::thread_cpu_s() - before_s;
        if !self.monitor.is_between_rounds() {
            return Ok(None);
        }
        self.rest_s = f64::max(now_s, self.round.1 + self.round.0 / price);
        Ok(picture.map(|picture| picture.ages))
    }

    /// Ends what is searched for; the request and all that came of it.
    fn end(&mut self, why: &str) -> Option<(Reclaim, Outcome)> {
        let Goal { wanted, mut outcome, .. } = self.goal.take()?;
        outcome.stopped = (!why.is_empty()).then(|| why.to_owned());
        Some((wanted, outcome))
    }

    /// One step: both sides decide and act.
    fn step(&mut self, kernel: &Kernel, now_s: f64, facts: MachineFacts, stop_file: &Path) -> Reclaimed {
        let start = Instant::now();
        let Some(mut goal) = self.goal.take() else { return Reclaimed::default() };
        let mut reclaimed = Reclaimed { target: goal.wanted.target, ..Reclaimed::default() };
        let mut bytes = [0.0; SIDES];
        let now_refaults = self.cgroup.vitals(kernel).ok().map(|vitals| vitals.refaults.anon);
        let back = now_refaults.zip(self.refaults).map(|(now, before)| float(now.saturating_sub(before)));
        self.refaults = now_refaults;
        for side in [1, 0] {
            let age_s = <[_; SIDES]>::from(goal.wanted.older_s)[side];
            let Some((window, look)) = age_s.and_then(|age_s| self.looks.range(whole(age_s)..).next()) else {
                continue;
            };
            let mut seen = candidates(look);
            let files: BTreeMap<(u32, u64), bool> =
                look.mappings.iter().map(|(pid, mapping)| ((*pid, mapping.start), mapping.file)).collect();
            seen.retain(|candidate| files.get(&(candidate.pid, candidate.start)) == Some(&(side == 1)));
            // A sample comes a little early or late.
            seen.iter_mut().for_each(|candidate| candidate.age_s = f64::from(*window));
            self.operators[side].set(0, scheme(side, f64::from(*window), goal.left[side]));
            let Turn { reports, back: watched, .. } = std::mem::take(&mut self.turns[side]);
            let frame = RegionObservation {
                now_s,
                candidates: seen,
                back: watched,
                done: reports.into_iter().map(|report| report.done).collect(),
                pressure: facts.pressure,
                refaults: back.filter(|_| side == 0),
                swap_free: facts.swap_free,
                ..RegionObservation::default()
            };
            let mut site = Site {
                kernel,
                cgroup: &self.cgroup,
                adviser: &mut self.adviser,
                brake: brake(kernel, stop_file),
                turn: Turn::default(),
            };
            turn(&mut self.operators[side], &frame, &mut site);
            let done = site.turn;
            reclaimed.cpu_s += done.cpu_s;
            for report in &done.reports {
                let pages: u64 = report.done.blocks.iter().map(|(_, _, pages)| u64::from(*pages)).sum();
                bytes[side] += float(pages * PAGE);
                // What is gone is not idle in memory any more, whichever window told of it.
                self.looks.values_mut().for_each(|look| take(look, &report.done));
            }
            self.turns[side] = done;
        }
        for side in [0, 1] {
            goal.left[side] -= bytes[side];
        }
        reclaimed.bytes = bytes.into();
        goal.outcome.reclaimed.bytes += reclaimed.bytes;
        goal.outcome.reclaimed.cpu_s += reclaimed.cpu_s;
        goal.outcome.took_s += start.elapsed().as_secs_f64();
        self.goal = Some(goal);
        reclaimed
    }
}

/// What ends a step: stalls, its time, somebody who wants that nothing is taken.
fn brake(kernel: &Kernel, stop_file: &Path) -> Brake {
    let (start, stop) = (Instant::now(), stop_file.to_path_buf());
    let stopped = move || start.elapsed() > STEP || is_there(&stop);
    Brake::new(kernel, PRESSURE_FILE, SchemeLimits::default().pressure, stopped)
}

fn operator(side: usize, seed: u64) -> Operator {
    // Half of what a policy's brakes allow, as a rule: searching must not be what they hold it for.
    let usual = SchemeLimits::default();
    let limits = SchemeLimits { slowdown: 0.5 * usual.slowdown, ..usual };
    Operator::new(&[scheme(side, 1.0, 0.0)], limits, seed ^ side as u64)
}

/// What a request says of one side, as a scheme.
fn scheme(side: usize, age_s: f64, bytes: f64) -> Scheme {
    let size = Size(integer(bytes));
    Scheme {
        name: None,
        action: Advice::Pageout,
        size: Bounds::default(),
        access: Bounds { min: None, max: Some(Share(0.0)) },
        age: Bounds { min: Some(Span(Duration::from_secs_f64(age_s))), max: None },
        apply_interval: None,
        target_node: None,
        destinations: Vec::new(),
        quota: Quota { size: Some(size), every: Span(Duration::ZERO), ..Quota::default() },
        watermarks: None,
        filters: vec![Filter { of: FilterType::Anon, matching: side == 0, allow: true }],
    }
}

/// Takes what went out of a reading.
fn take(look: &mut ReferencedScan, done: &Done) {
    for (pid, at, pages) in &done.blocks {
        let holds = |(of, mapping): &&mut (u32, lowtide_kernel::monitor::smaps::MappingUse)| {
            of == pid && (mapping.start..mapping.end).contains(at)
        };
        if let Some((_, mapping)) = look.mappings.iter_mut().find(holds) {
            mapping.resident = mapping.resident.saturating_sub(u64::from(*pages) * PAGE).max(mapping.referenced);
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an age of the histograms")]
fn whole(age_s: f64) -> u32 {
    age_s.ceil() as u32
}
