//! The table of workloads: which there are, what they hold, and how memory pressure affects them.
//!
//! A workload is a cgroup, known by its inode, or one large process of a cgroup, known by its pid and start time. The table
//! is searched now and then and observed at every turn; an observation is what policies decide from.

use std::collections::{BTreeMap, BTreeSet};

use lowtide_kernel::cgroup::{Cgroup, Version, Vitals};
use lowtide_kernel::grant::GrantState;
use lowtide_kernel::pressure::StallTotals;
use lowtide_kernel::proc::{self, ProcessId};
use lowtide_kernel::root::{Kernel, Result};
use lowtide_kernel::swap::SwapDevice;
use lowtide_kernel::{pressure, swap, system, zram};
use lowtide_model::cohort::AgeBin;
use lowtide_model::curve::{MeasuredCosts, RefaultCosts};
use lowtide_model::kind::PerKind;
use lowtide_model::target::TargetId;
use lowtide_model::units::{float, integer};
use lowtide_policy::machine::Observation;
use serde::{Deserialize, Serialize};

use self::compression::Compression;
use self::observe::{Reading, share, target};
use self::others::Others;
use crate::agent::metric::Measure;
use crate::agent::sinks::history::TargetReading;
use crate::event::ReclaimOutcome;

mod compression;
mod observe;
mod others;
mod rule;
mod search;

pub use rule::{By, NONE, Rules, WorkloadRule};

/// While tasks stall on memory for less than this share of the time, no workload thrashes.
const QUIET: f64 = 0.02;
/// Workloads are observed so often even then, seconds.
const OBSERVE_S: f64 = 10.0;

/// Huge pages of a workload.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Huge {
    /// Bytes in huge pages.
    pub bytes: f64,
    /// Of them, bytes in pages that hold nothing but zeros, by a sample.
    pub zero: f64,
}

/// Counters of a workload, which outlive the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadTotals {
    /// Bytes reclaimed so far.
    pub reclaimed: PerKind<f64>,
    /// Requests to reclaim so far, and those that were cut short.
    pub requests: (f64, f64),
    /// What zram keeps of what was paged out.
    pub zram: Compression,
}

/// A workload.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The cgroup.
    pub cgroup: Cgroup,
    /// If it is only one of its processes: which.
    pub process: Option<ProcessId>,
    /// Its path below the mount, with the pid where it is a process.
    pub path: String,
    /// Name of its policy.
    pub policy: String,
    /// Of workloads that thrash, those with a higher one have their memory first.
    priority: i32,
    /// What else telemetry reports of it.
    pub labels: BTreeMap<String, String>,
    /// What it held when it was last observed.
    pub now: Vitals,
    /// Seconds that its tasks had spent in the kernel then, where a guard asks for it.
    system_s: Option<f64>,
    /// Idle ages when they were last sampled.
    pub ages: Vec<AgeBin>,
    /// Which source sampled them; empty while none has.
    pub sampled_by: &'static str,
    /// They were sampled since they were last acted on: old ones would be acted on twice.
    are_ages_new: bool,
    /// Its huge pages, where its policy makes them.
    pub huge: Option<Huge>,
    /// The command that reports its performance, and its last value: higher is worse.
    pub measure: Option<Measure>,
    /// Its last value.
    pub metric: Option<f64>,
    /// Others that reclaim from it.
    others: Others,
    /// Its counters.
    pub totals: WorkloadTotals,
    /// Whether it is protected, limited or paused now.
    pub granted: GrantState,
    /// When its idle ages were sampled.
    ages_read_s: f64,
    /// Pages that had been refaulted by the time at which the pages were found whose ages these are.
    found_refaults: PerKind<u64>,
    /// When it was observed.
    observed_s: f64,
    /// When it was first observed: it is sampled since then.
    found_s: Option<f64>,
}

impl Workload {
    pub(crate) fn new(cgroup: Cgroup, process: Option<ProcessId>, path: String) -> Self {
        Self {
            cgroup,
            process,
            path,
            policy: String::new(),
            priority: 0,
            labels: BTreeMap::new(),
            now: Vitals::default(),
            system_s: None,
            ages: Vec::new(),
            sampled_by: "",
            are_ages_new: false,
            huge: None,
            measure: None,
            metric: None,
            others: Others::default(),
            totals: WorkloadTotals::default(),
            granted: GrantState::default(),
            ages_read_s: 0.0,
            found_refaults: PerKind::default(),
            observed_s: f64::NAN,
            found_s: None,
        }
    }

    /// Its identity.
    pub fn id(&self) -> TargetId {
        let process = self.process.map(|process| TargetId::Process(process.pid, process.start_ticks));
        process.unwrap_or(TargetId::Cgroup(self.cgroup.inode))
    }

    /// What it holds now, and how it stalls. Fails if it is gone.
    pub fn vitals(&self, kernel: &Kernel) -> Result<Vitals> {
        match self.process {
            Some(process) => Vitals::of_process(kernel, process, &self.cgroup),
            None => self.cgroup.vitals(kernel),
        }
    }

    /// Seconds that it has spent in the kernel so far.
    fn system_s(&self, kernel: &Kernel) -> Option<f64> {
        match self.process {
            Some(process) => proc::system_s(kernel, process.pid).ok(),
            None => self.cgroup.system_s(kernel),
        }
    }

    /// Sets idle ages that a source just sampled.
    pub fn set_ages(&mut self, source: &'static str, ages: Vec<AgeBin>, now_s: f64) {
        (self.ages, self.ages_read_s, self.sampled_by, self.are_ages_new) = (ages, now_s, source, true);
    }

    /// A source found the pages just now whose ages it samples: what is refaulted from now on is not among them.
    pub fn pages_found(&mut self) {
        self.found_refaults = self.now.refaults;
    }

    /// lowtide set its `memory.high`, or took that back: others did not.
    pub fn limited(&mut self) {
        self.others.except_limit();
    }

    /// lowtide reclaimed between these two readings: others did not.
    pub fn except(&mut self, before: &Vitals, after: &Vitals) {
        self.others.except(before, after);
    }

    /// It as it was observed last. Idle ages only where they are new.
    pub fn reading(&self, are_ages_new: bool) -> TargetReading<'_> {
        TargetReading {
            id: self.id(),
            resident: self.now.resident.map(float),
            swapped: float(self.now.swapped),
            stalled_s: self.now.memory_some_s,
            ages: if are_ages_new { &self.ages } else { &[] },
        }
    }

    /// Counts a request to reclaim.
    pub fn count(&mut self, outcome: &ReclaimOutcome) {
        self.totals.reclaimed += outcome.reclaimed.bytes;
        self.totals.requests.0 += 1.0;
        self.totals.requests.1 += if outcome.stopped.is_some() { 1.0 } else { 0.0 };
    }

    /// Bytes that keeping what is paged out takes. zswap reports it by cgroup; of zram it is known only from what was paged out
    /// while nothing else was.
    pub fn kept_bytes(&self) -> Option<f64> {
        self.kept_of(&self.now)
    }

    fn kept_of(&self, vitals: &Vitals) -> Option<f64> {
        let share =
            (vitals.zswapped > 0).then(|| float(vitals.zswap) / float(vitals.zswapped)).or(self.totals.zram.share())?;
        Some(share * float(vitals.swapped))
    }
}

/// The workloads, and the machine that they share.
#[derive(Debug, Default)]
pub struct Workloads {
    kernel: Kernel,
    /// What it is made by.
    pub rules: Rules,
    costs: MeasuredCosts,
    /// The workloads.
    pub all: BTreeMap<TargetId, Workload>,
    searched_s: Option<f64>,
    /// It was searched, and sampling does not know yet.
    pub is_searched: bool,
    /// Seconds, and how long tasks of the machine had stalled on memory by then.
    before: Option<(f64, StallTotals)>,
    /// The same when it was last asked whether all is quiet.
    quiet: Option<(f64, f64)>,
    /// CPU ticks: busy, and of all.
    ticks: Option<(u64, u64)>,
    /// Memory of all of them can be protected; all of them can be limited.
    can_protect: bool,
    can_limit: bool,
    /// systemd-oomd is running.
    killer: bool,
    /// Share of the time that some task of the machine stalled between the last two observations.
    pub pressure: Option<f64>,
    /// Notes so far, each reported once.
    notes: BTreeSet<String>,
    /// Those that are not published yet.
    pub new_notes: Vec<String>,
}

impl Workloads {
    /// A table by these rules. `costs`: what a page costs that comes back.
    pub fn new(kernel: &Kernel, rules: Rules, costs: MeasuredCosts) -> Self {
        Self { kernel: kernel.clone(), rules, costs, ..Self::default() }
    }

    /// Other rules from now on. Workloads that they still select keep their state.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        self.search_again();
    }

    /// Searches at the next observation, however short a time ago the last search was.
    pub fn search_again(&mut self) {
        self.searched_s = None;
    }

    /// Notes something, once.
    pub fn note(&mut self, text: String) {
        if self.notes.insert(text.clone()) {
            self.new_notes.push(text);
        }
    }

    /// Whether a path is left alone.
    pub fn is_excluded(&self, path: &str) -> bool {
        self.rules.exclude.iter().any(|selection| selection.holds(path))
    }

    /// Whether hardly any task of the machine has stalled on memory since this was asked last, and workloads were observed not
    /// long ago: then the guard need not observe each of them every second.
    pub fn is_quiet(&mut self, now_s: f64) -> bool {
        let stalled_s = pressure::read(&self.kernel, "/proc/pressure/memory").ok().map(|pressure| pressure.some_s);
        let before = std::mem::replace(&mut self.quiet, stalled_s.map(|stalled_s| (now_s, stalled_s)));
        let stalled = before.zip(stalled_s).and_then(|((at_s, before), now)| share(now - before, now_s - at_s));
        let observed = self.before.is_some_and(|(at_s, _)| (0.0..OBSERVE_S).contains(&(now_s - at_s)));
        observed && stalled.is_some_and(|share| share < QUIET)
    }

    /// Observes all of them. Idle ages are in it only where they were sampled since the last observation.
    pub fn observe(&mut self, now_s: f64) -> Observation {
        self.search(now_s);
        let kernel = self.kernel.clone();
        let stalled = pressure::read(&kernel, "/proc/pressure/memory").ok();
        let both = self.before.zip(stalled).map(|((before_s, before), now)| {
            let of = |now: Option<f64>, before: Option<f64>| share(now? - before?, now_s - before_s);
            (of(Some(now.some_s), Some(before.some_s)), of(now.full_s, before.full_s))
        });
        self.pressure = both.and_then(|(some, _)| some);
        // Of two tasks, the time that some stalled and the time that both did add up to what each of them did.
        let each = both.and_then(|(some, full)| Some(0.5 * (some? + full?)));
        self.before = stalled.map(|stalled| (now_s, stalled));
        let targets = self.observe_each(now_s, [self.pressure, each]);
        let devices = swap::devices(&kernel).unwrap_or_default();
        let memory = system::memory(&kernel).ok();
        let ticks = system::cpu(&kernel).ok().map(|ticks| (ticks.busy, ticks.total));
        let cpu_busy = self.ticks.zip(ticks).and_then(|(before, now)| {
            share(float(now.0.saturating_sub(before.0)), float(now.1.saturating_sub(before.1)))
        });
        self.ticks = ticks;
        let swap_on_disk = swap::any_on_disk(&devices);
        // What this agent pages out takes no time of the workloads.
        let (costs, swap_out_s) = (self.costs.with_swap(swap_on_disk), self.costs.swap_out_s(swap_on_disk));
        Observation {
            now_s,
            targets,
            pressure: self.pressure,
            free: memory.map(|memory| float(memory.free) / float(memory.total.max(1))),
            swap_free: Some(self.room(&devices)),
            swap_on_disk,
            costs: RefaultCosts { swap_s: costs.swap_s - swap_out_s, ..costs },
            swap_out_s,
            cpus: std::thread::available_parallelism().ok().map(|cpus| float(cpus.get())),
            cpu_busy,
            can_protect: self.can_protect,
            can_limit: self.can_limit,
            ..Observation::default()
        }
    }

    /// The workloads that nobody else acts on; those that no longer exist leave the table. `machine`: shares of the time in which
    /// some tasks, and all tasks, of the machine were stalled on memory.
    fn observe_each(&mut self, now_s: f64, machine: [Option<f64>; 2]) -> Vec<lowtide_policy::machine::WorkloadState> {
        let (kernel, rules) = (self.kernel.clone(), self.rules.clone());
        let (mut targets, mut shared) = (Vec::new(), Vec::new());
        self.all.retain(|id, workload| {
            let Ok(vitals) = workload.vitals(&kernel) else { return false };
            workload.found_s.get_or_insert(now_s);
            workload.others.observe(&vitals, now_s);
            // One more file to read of each, which only the guard asks for.
            let guarded = workload.policy != NONE && !rules.needs_ages(&workload.policy);
            let system_s = if guarded { workload.system_s(&kernel) } else { None };
            // Version 1 reports no pressure of its own.
            let machine = if workload.cgroup.version == Version::V1 { machine } else { [None; 2] };
            let target = target((*id, workload), &Reading { now_s, vitals: &vitals, system_s }, machine);
            if workload.others.are_active() {
                shared.push(workload.path.clone());
            } else {
                targets.push(target);
            }
            (workload.now, workload.system_s, workload.observed_s) = (vitals, system_s, now_s);
            workload.are_ages_new = false;
            true
        });
        for path in shared {
            self.note(format!(
                "{path}: left alone for ten minutes, as something else reclaims from it or sets its memory.high again and again"
            ));
        }
        targets
    }

    /// Bytes of swap that may be filled.
    pub fn swap_free(&self) -> Option<u64> {
        Some(self.room(&swap::devices(&self.kernel).ok()?))
    }

    /// The same on these devices, without what systemd-oomd kills for.
    fn room(&self, devices: &[SwapDevice]) -> u64 {
        let free: u64 = zram::room(&self.kernel, devices);
        let all = float(devices.iter().map(|device| device.bytes).sum::<u64>());
        free.saturating_sub(if self.killer { integer(search::SPARED * all) } else { 0 })
    }
}
