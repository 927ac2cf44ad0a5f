//! One workload that is sampled and advised on by its addresses.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lowtide_kernel::advise::Adviser;
use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::mapping_use::MappingUse;
use lowtide_kernel::monitor::smaps::{ReferencedScan, SmapsMonitor};
use lowtide_kernel::proc;
use lowtide_kernel::root::{Kernel, Result};
use lowtide_model::cohort::AgeBin;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::scheme::{Action, Bounds, Filter, FilterType, Quota, Scheme};
use lowtide_model::units::{Share, Size, Span, float, integer};
use lowtide_model::{AGE_EDGES_S, PAGE};
use lowtide_policy::machine::{BlockDone, Done, Reclaim, Reclaimed, RegionObservation};
use lowtide_policy::schemes::{Operator, SchemeLimits};

use super::StepContext;
use super::schemes::{Advised, WorkloadSchemes};
use super::site::{Site, Steps};
use crate::event::ReclaimOutcome;
use crate::schemes::acting::candidates;

/// A goal that is not reached after so many seconds is given up: its figures are old.
const LONGEST_S: f64 = 60.0;
/// A workload without processes is asked for them again after so many seconds.
const EMPTY_S: f64 = 0.5;
/// Less than a block is not searched for, bytes.
const LEAST: f64 = 131_072.0;

/// A mapping with less idle memory is not searched, bytes: calls for it would cost more than it holds.
const SMALLEST: u64 = 16 * PAGE;

/// A request to reclaim that is under way.
#[derive(Debug, Clone)]
pub(super) struct Goal {
    wanted: Reclaim,
    left: PerKind<f64>,
    until_s: f64,
    outcome: ReclaimOutcome,
}

/// One workload.
#[derive(Debug)]
pub(super) struct Walk {
    pub cgroup: Cgroup,
    monitor: SmapsMonitor,
    /// CPU seconds of the round under way, and when it began.
    round: (f64, f64),
    /// No new round before.
    rest_s: f64,
    /// No sample before, as the last one failed.
    pub retry_s: f64,
    /// The last scan of each window.
    scans: BTreeMap<u32, ReferencedScan>,
    /// Made at the first goal: most workloads of a large machine have none.
    searches: PerKind<Option<Box<Steps>>>,
    pub adviser: Adviser,
    pub goal: Option<Goal>,
    /// Schemes that are its policy.
    pub schemes: Option<WorkloadSchemes>,
    /// The next step towards the goal, or of the schemes.
    pub step_s: f64,
    /// Anonymous pages that had been refaulted at the last step.
    refaults: Option<u64>,
}

impl Walk {
    pub fn new(kernel: &Kernel, cgroup: &Cgroup, windows_s: &[u32], now_s: f64) -> Result<Self> {
        Ok(Self {
            cgroup: cgroup.clone(),
            monitor: SmapsMonitor::new(kernel, &Target::default())?.with_windows(windows_s),
            round: (0.0, now_s),
            rest_s: now_s,
            retry_s: now_s,
            scans: BTreeMap::new(),
            searches: PerKind::default(),
            adviser: Adviser::new(kernel),
            goal: None,
            schemes: None,
            step_s: now_s,
            refaults: None,
        })
    }

    pub fn sample_due_s(&self) -> f64 {
        let due_s = if self.monitor.is_between_rounds() { self.rest_s } else { self.monitor.due_s() };
        due_s.max(self.retry_s)
    }

    pub fn due_s(&self) -> f64 {
        let step_s = if self.is_searching() { self.step_s } else { f64::INFINITY };
        self.sample_due_s().min(step_s)
    }

    pub fn is_searching(&self) -> bool {
        self.goal.is_some() || self.schemes.is_some()
    }

    /// The workload as the monitor needs it: its processes, and their memory.
    fn target(&self, kernel: &Kernel) -> Result<Target> {
        let pids = self.cgroup.pids(kernel)?;
        let mut totals = [0.0; 3];
        for status in pids.iter().filter_map(|pid| proc::status(kernel, *pid).ok()) {
            // What is paged out meanwhile is still there: what is new is counted by growth.
            totals[0] += float(status.rss_anon + status.swap);
            totals[1] += float(status.rss_file + status.rss_shmem);
        }
        Ok(Target { pids, totals, ..Target::default() })
    }

    /// One step of a round; the ages that it has shown so far.
    pub fn sample(&mut self, kernel: &Kernel, now_s: f64, price: f64) -> Result<Option<Vec<AgeBin>>> {
        let before_s = kernel.thread_cpu_s();
        let target = self.target(kernel)?;
        if self.monitor.is_between_rounds() {
            if target.pids.is_empty() {
                self.rest_s = now_s + EMPTY_S;
                return Ok(None);
            }
            self.round = (0.0, now_s);
        }
        let picture = self.monitor.step(now_s, &target)?;
        if let Some(mut scan) = self.monitor.take_scan() {
            if self.schemes.is_none() {
                // Kept for each of five windows, and a process has dozens of mappings.
                let idle = |mapping: &MappingUse| mapping.resident.saturating_sub(mapping.referenced);
                scan.mappings.retain(|(_, mapping)| idle(mapping) >= SMALLEST);
            }
            scan.mappings.shrink_to_fit();
            let off = |window: &u32| (f64::from(*window) - scan.window_s).abs();
            let nearest = AGE_EDGES_S[1..].iter().copied().min_by(|a, b| off(a).total_cmp(&off(b)));
            self.scans.extend(nearest.map(|window| (window, scan)));
        }
        self.round.0 += kernel.thread_cpu_s() - before_s;
        if self.monitor.is_between_rounds() {
            self.rest_s = f64::max(now_s, self.round.1 + self.round.0 / price);
        }
        Ok(picture.map(|picture| picture.ages).filter(|ages| !ages.is_empty()))
    }

    /// Lets the schemes act by the youngest scan: what is in use, and what is not.
    pub fn apply(&mut self, kernel: &Kernel, context: &StepContext<'_>) -> Option<Advised> {
        let (window, scan) = self.scans.first_key_value()?;
        let site = Site::new(kernel, &self.cgroup, &mut self.adviser, context.stop_file);
        Some(self.schemes.as_mut()?.step(site, (f64::from(*window), scan), context))
    }

    pub fn want(&mut self, wanted: &Reclaim, now_s: f64) {
        let reclaimed = Reclaimed { target: wanted.target, ..Reclaimed::default() };
        let outcome = ReclaimOutcome { reclaimed, by: "process_madvise", ..ReclaimOutcome::default() };
        self.goal = Some(Goal { left: wanted.bytes, wanted: wanted.clone(), until_s: now_s + LONGEST_S, outcome });
        self.step_s = now_s;
    }

    /// For how long what it searches for has been idle, at most, seconds.
    pub fn age_s(&self) -> Option<f64> {
        let ages = self.goal.as_ref()?.wanted.older_s;
        ages.anon.into_iter().chain(ages.file).reduce(f64::max)
    }

    /// Why there is no further step towards the goal; empty if it is reached.
    pub fn over(&self, now_s: f64) -> Option<&'static str> {
        let goal = self.goal.as_ref()?;
        if goal.left.anon < LEAST && goal.left.file < LEAST {
            Some("")
        } else {
            (now_s >= goal.until_s).then_some("it was not found in time")
        }
    }

    /// Ends the search; the request and its result.
    pub fn end(&mut self, why: &str) -> Option<(Reclaim, ReclaimOutcome)> {
        let Goal { wanted, mut outcome, .. } = self.goal.take()?;
        outcome.stopped = (!why.is_empty()).then(|| why.to_owned());
        Some((wanted, outcome))
    }

    /// One step towards the goal, by kind.
    pub fn step(&mut self, kernel: &Kernel, context: &StepContext<'_>) -> Option<Reclaimed> {
        let start = Instant::now();
        let mut goal = self.goal.take()?;
        let mut reclaimed = Reclaimed { target: goal.wanted.target, ..Reclaimed::default() };
        let now_refaults = self.cgroup.vitals(kernel).ok().map(|vitals| vitals.refaults.anon);
        let refaults = now_refaults.zip(self.refaults).map(|(now, before)| float(now.saturating_sub(before)));
        self.refaults = now_refaults;
        for kind in [Kind::File, Kind::Anon] {
            let Some(age_s) = goal.wanted.older_s[kind] else { continue };
            let mut scans = self.scans.iter().filter(|(window, _)| f64::from(**window) >= age_s);
            let Some((window_s, scan)) = scans.next().map(|(window, scan)| (f64::from(*window), scan)) else {
                continue;
            };
            let search = self.searches[kind].get_or_insert_with(|| Box::new(search(kind, self.cgroup.inode)));
            search.operator.set(0, scheme(kind, window_s, goal.left[kind]));
            let frame = RegionObservation {
                candidates: candidates(scan, window_s, |mapping| mapping.file == (kind == Kind::File)),
                refaults: refaults.filter(|_| kind == Kind::Anon),
                ..context.frame()
            };
            let turn = search.step(frame, Site::new(kernel, &self.cgroup, &mut self.adviser, context.stop_file));
            reclaimed.cpu_s += turn.cpu_s;
            for report in &turn.reports {
                let pages: u64 = report.done.blocks.iter().map(|block| u64::from(block.evicted)).sum();
                reclaimed.bytes[kind] += float(pages * PAGE);
                // What is evicted is not idle in memory any more, in no scan.
                self.scans.values_mut().for_each(|scan| remove(scan, &report.done));
            }
        }
        goal.left = goal.left.zip(reclaimed.bytes).map(|(left, evicted)| left - evicted);
        goal.outcome.reclaimed.bytes += reclaimed.bytes;
        goal.outcome.reclaimed.cpu_s += reclaimed.cpu_s;
        goal.outcome.took_s += start.elapsed().as_secs_f64();
        self.goal = Some(goal);
        Some(reclaimed)
    }
}

/// What searches for memory of one kind.
fn search(kind: Kind, inode: u64) -> Steps {
    // Less than what a policy's brakes allow, as a rule: searching must not be what they hold it for.
    let usual = SchemeLimits::default();
    let limits = SchemeLimits { slowdown: 0.8 * usual.slowdown, ..usual };
    Steps::new(Operator::new(&[scheme(kind, 1.0, 0.0)], limits, inode ^ u64::from(kind == Kind::File)))
}

/// A request for memory of one kind, as a scheme.
fn scheme(kind: Kind, age_s: f64, bytes: f64) -> Scheme {
    Scheme {
        name: None,
        action: Action::Pageout,
        size: Bounds::default(),
        access: Bounds { min: None, max: Some(Share(0.0)) },
        age: Bounds { min: Some(Span(Duration::from_secs_f64(age_s))), max: None },
        apply_interval: None,
        target_node: None,
        destinations: Vec::new(),
        quota: Quota { size: Some(Size(integer(bytes))), every: Span(Duration::ZERO), ..Quota::default() },
        watermarks: None,
        filters: vec![Filter { of: FilterType::Anon, matching: kind == Kind::Anon, allow: true }],
    }
}

/// Removes evicted blocks from a scan.
fn remove(scan: &mut ReferencedScan, done: &Done) {
    for BlockDone { pid, start, evicted, .. } in &done.blocks {
        let holds = |(of, mapping): &&mut (u32, MappingUse)| of == pid && (mapping.start..mapping.end).contains(start);
        if let Some((_, mapping)) = scan.mappings.iter_mut().find(holds) {
            mapping.resident = mapping.resident.saturating_sub(u64::from(*evicted) * PAGE).max(mapping.referenced);
        }
    }
}
