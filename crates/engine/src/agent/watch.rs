//! Workloads as the agent sees them: which there are, what they hold, how they fare.

use std::collections::{BTreeMap, BTreeSet};

use lowtide_kernel::cgroup::{Cgroup, Selection, Version, Vitals};
use lowtide_kernel::monitor::mglru::MglruMonitor;
use lowtide_kernel::pressure::Pressure;
use lowtide_kernel::proc::{self, ProcessId};
use lowtide_kernel::root::{Kernel, Result};
use lowtide_kernel::swap::Swap;
use lowtide_kernel::sys::Signals;
use lowtide_kernel::{pressure, swap, system, zram};
use lowtide_model::cohort::AgeBin;
use lowtide_model::curve::MeasuredCosts;
use lowtide_policy::machine::Observation;
use lowtide_policy::policies::Regions;

use self::sight::{by_path, share, target};
use super::config::{Config, NONE, Workload};
use super::metric::{Measure, Metrics};
use super::others::Others;
use super::ranges::{Facts, Ranges};
use super::schemed::Huge;
use crate::calibration;

mod search;
mod sight;

/// Looking and deciding takes no more of one CPU than this: with very many workloads, it is done less often.
const MOST: f64 = 0.02;

/// While tasks stall on memory for less than this share of the time, nobody thrashes.
const QUIET: f64 = 0.02;
/// Workloads are looked at so often even then, seconds.
const LOOK_S: f64 = 10.0;

/// Seconds from one turn to the next, of which the last took so much CPU time.
#[must_use]
pub fn pause_s(every_s: f64, cpu_s: f64) -> f64 {
    every_s.max(cpu_s / MOST)
}

/// A workload.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The cgroup.
    pub cgroup: Cgroup,
    /// If it is only one of its processes: which.
    pub process: Option<ProcessId>,
    /// Its path below the mount, with the pid where it is a process.
    pub path: String,
    /// Name of its policy.
    pub policy: String,
    /// Who is let be whole first.
    priority: i32,
    /// What else is told of it to the fleet.
    pub labels: BTreeMap<String, String>,
    /// What it held when it was last looked at.
    pub now: Vitals,
    /// Seconds that its tasks had spent in the kernel then, where a guard asks for it.
    system_s: Option<f64>,
    /// Idle ages when they were last told.
    pub ages: Vec<AgeBin>,
    /// They were told since they were last acted on: old ones would be acted on twice.
    told: bool,
    /// Its huge pages, where its policy makes them.
    pub huge: Option<Huge>,
    /// What tells how it fares, and what that told last: higher is worse.
    pub measure: Option<Measure>,
    /// See above.
    pub metric: Option<f64>,
    /// Who else makes it smaller.
    pub(super) others: Others,
    /// What it takes to keep a byte that was paged out, as far as that is known.
    pub kept: Option<f64>,
    /// When it was looked at.
    seen_s: f64,
}

impl Watched {
    /// What it goes by: no cgroup has the highest bit.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.process.map_or(self.cgroup.inode, |process| process.key() | 1 << 62)
    }

    /// What it holds now, and how it fares.
    ///
    /// # Errors
    /// If it is gone.
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

    /// Bytes that keeping what is paged out takes. What zswap tells of a cgroup is its own; of zram only that is known which
    /// went while nothing else did.
    #[must_use]
    pub fn kept_bytes(&self) -> Option<f64> {
        self.kept_of(&self.now)
    }

    fn kept_of(&self, vitals: &Vitals) -> Option<f64> {
        let share = (vitals.zswapped > 0).then(|| bytes(vitals.zswap) / bytes(vitals.zswapped)).or(self.kept)?;
        Some(share * bytes(vitals.swapped))
    }
}

/// What is known of all of them.
#[derive(Debug)]
pub struct Watch {
    kernel: Kernel,
    rules: Vec<(Selection, Workload)>,
    exclude: Vec<Selection>,
    /// Schemes of policies that look at regions, by the policy's name.
    schemes: BTreeMap<String, Regions>,
    windows_s: Vec<u32>,
    costs: MeasuredCosts,
    monitor: Option<MglruMonitor>,
    /// Where there is no such monitor, or nothing that evicts from a cgroup.
    ranges: Option<Ranges>,
    /// By inode.
    found: BTreeMap<u64, Watched>,
    searched_s: Option<f64>,
    /// Seconds since the start, and how long tasks of the machine have stalled on memory.
    before: Option<(f64, Pressure)>,
    /// The same when it was last asked whether all is quiet.
    quiet: Option<(f64, f64)>,
    /// CPU ticks: busy, and of all.
    ticks: Option<(u64, u64)>,
    /// Policies that need no idle ages.
    ageless: BTreeSet<String>,
    /// Memory of all of them can be protected.
    can_protect: bool,
    /// Seconds from one search for cgroups to the next.
    search_s: f64,
    /// systemd-oomd is at work.
    killer: bool,
    /// Share of the time that some task stalled between the last two looks.
    pressure: Option<f64>,
    /// Things that cannot be seen, each said once.
    notes: BTreeSet<String>,
    fresh: Vec<String>,
}

impl Watch {
    /// Begins to watch what the file says.
    ///
    /// # Errors
    /// If a pattern of the file makes no sense.
    pub fn new(kernel: &Kernel, config: &Config) -> Result<Self> {
        let selection = |name: &String| Selection::new(kernel, name);
        let rules = config.workload.iter().map(|workload| Ok((selection(&workload.cgroup)?, workload.clone())));
        Ok(Self {
            rules: rules.collect::<Result<_>>()?,
            exclude: config.exclude.iter().map(selection).collect::<Result<_>>()?,
            schemes: config.schemes(),
            windows_s: config.windows_s(),
            ageless: config.ageless(),
            search_s: search::often_s(config.every.0.as_secs_f64()),
            costs: if config.guards() { calibration::load_or_measure(kernel) } else { calibration::load() },
            ..Self::empty(kernel)
        })
    }

    /// One that watches nothing.
    #[must_use]
    pub fn empty(kernel: &Kernel) -> Self {
        Self {
            kernel: kernel.clone(),
            rules: Vec::new(),
            exclude: Vec::new(),
            schemes: BTreeMap::new(),
            windows_s: Vec::new(),
            costs: MeasuredCosts::default(),
            monitor: None,
            ranges: None,
            found: BTreeMap::new(),
            searched_s: None,
            before: None,
            quiet: None,
            ticks: None,
            ageless: BTreeSet::from([NONE.to_owned()]),
            can_protect: false,
            search_s: search::SEARCH_S,
            killer: false,
            pressure: None,
            notes: BTreeSet::new(),
            fresh: Vec::new(),
        }
    }

    /// Takes over what another knew of the same workloads.
    #[must_use]
    pub fn succeeding(mut self, other: Self) -> Self {
        (self.found, self.before, self.notes) = (other.found, other.before, other.notes);
        self.killer = other.killer;
        self.costs.swap_s = self.costs.swap_s.or(other.costs.swap_s);
        self.ranges = other.ranges.filter(|ranges| ranges.windows_s() == self.windows_s);
        self
    }

    /// The workloads, by inode.
    #[must_use]
    pub fn found(&self) -> &BTreeMap<u64, Watched> {
        &self.found
    }

    /// One workload.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Watched> {
        self.found.get_mut(&id)
    }

    /// What could not be seen and was not said yet.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.fresh)
    }

    fn note(&mut self, text: String) {
        if self.notes.insert(text.clone()) {
            self.fresh.push(text);
        }
    }

    /// When idle ages are to be looked at next; never where they cannot be.
    #[must_use]
    pub fn due_s(&self) -> f64 {
        let generations_s = self.monitor.as_ref().map_or(f64::INFINITY, MglruMonitor::due_s);
        self.ranges.as_ref().map_or(generations_s, |ranges| ranges.due_s().min(generations_s))
    }

    /// The workloads whose memory is looked for by its addresses.
    pub fn ranges(&mut self) -> Option<&mut Ranges> {
        self.ranges.as_mut()
    }

    /// What whoever looks for memory by its addresses must know of the machine.
    #[must_use]
    pub fn facts(&self) -> Facts {
        Facts { pressure: self.pressure, swap_free: self.swap_free() }
    }

    /// Whether a path is left alone.
    #[must_use]
    pub fn is_excluded(&self, path: &str) -> bool {
        self.exclude.iter().any(|selection| selection.holds(path))
    }

    /// Looks at idle ages, where it is time; true if something new is known.
    pub fn look(&mut self, now_s: f64) -> bool {
        let whole = self.look_at_generations(now_s);
        let told = self.ranges.as_mut().map(|ranges| ranges.look(now_s)).unwrap_or_default();
        let fresh = whole || !told.is_empty();
        for (id, ages) in told {
            match (ages, self.found.get_mut(&id)) {
                (Ok(ages), Some(watched)) => (watched.ages, watched.told) = (ages, true),
                (Err(error), Some(_)) if !error.is_gone() => self.note(format!("idle ages: {error}")),
                _ => {}
            }
        }
        fresh
    }

    fn look_at_generations(&mut self, now_s: f64) -> bool {
        let Some(monitor) = self.monitor.as_mut().filter(|monitor| monitor.is_due(now_s)) else { return false };
        match monitor.step(now_s) {
            Ok(None) => false,
            Ok(Some(round)) => {
                let mut ages = by_path(&round);
                for watched in self.found.values_mut() {
                    (watched.ages, watched.told) = (ages.remove(watched.path.as_str()).unwrap_or_default(), true);
                }
                true
            }
            Err(error) => {
                // Begun anew at the next search: to try at once would be to try without end.
                self.monitor = None;
                self.note(format!("idle ages could not be looked at: {error}"));
                false
            }
        }
    }

    /// Asks how workloads fare, where somebody can tell.
    pub fn measure(&mut self, now_s: f64, metrics: &mut Metrics, signals: &Signals) {
        let measured = self.found.iter().filter_map(|(id, of)| Some((*id, of.path.as_str(), of.measure.as_ref()?)));
        let (values, wrong) = metrics.step(now_s, signals, measured);
        for (id, watched) in &mut self.found {
            watched.metric = values.get(id).copied();
        }
        wrong.into_iter().for_each(|text| self.note(text));
    }

    /// Whether hardly any task of the machine has stalled on memory since this was asked last, and workloads were looked at not
    /// long ago: whoever guards them need not look at each of them every second.
    pub fn is_quiet(&mut self, now_s: f64) -> bool {
        let stalled_s = pressure::read(&self.kernel, "/proc/pressure/memory").ok().map(|pressure| pressure.some_s);
        let before = std::mem::replace(&mut self.quiet, stalled_s.map(|stalled_s| (now_s, stalled_s)));
        let stalled = before.zip(stalled_s).and_then(|((at_s, before), now)| share(now - before, now_s - at_s));
        let looked = self.before.is_some_and(|(looked_s, _)| (0.0..LOOK_S).contains(&(now_s - looked_s)));
        looked && stalled.is_some_and(|share| share < QUIET)
    }

    /// What is known now. Idle ages are in it only where they were told since it was asked last.
    pub fn observe(&mut self, now_s: f64) -> Observation {
        self.search(now_s);
        let kernel = self.kernel.clone();
        let stalled = pressure::read(&kernel, "/proc/pressure/memory").ok();
        let both = self.before.zip(stalled).map(|((before_s, before), now)| {
            let of = |now: Option<f64>, before: Option<f64>| share(now? - before?, now_s - before_s);
            (of(Some(now.some_s), Some(before.some_s)), of(now.full_s, before.full_s))
        });
        let pressure = both.and_then(|(some, _)| some);
        // Of two tasks, the time that some stalled and the time that both did add up to what each of them did.
        let each = both.and_then(|(some, full)| Some(0.5 * (some? + full?)));
        self.before = stalled.map(|stalled| (now_s, stalled));
        self.pressure = pressure;
        let (mut targets, mut shared) = (Vec::new(), Vec::new());
        self.found.retain(|id, watched| {
            let Ok(vitals) = watched.vitals(&kernel) else { return false };
            watched.others.see(&vitals, now_s);
            // One more file to read of each, which only the guard asks for.
            let guarded = watched.policy != NONE && self.ageless.contains(&watched.policy);
            let system_s = if guarded { watched.system_s(&kernel) } else { None };
            // Version 1 tells no pressure of its own.
            let machine = if watched.cgroup.version == Version::V1 { [pressure, each] } else { [None; 2] };
            let target = target((*id, watched), &vitals, system_s, machine, now_s);
            if watched.others.are_at_work() {
                shared.push(watched.path.clone());
            } else {
                targets.push(target);
            }
            (watched.now, watched.system_s, watched.seen_s, watched.told) = (vitals, system_s, now_s, false);
            true
        });
        for path in shared {
            self.note(format!(
                "{path}: left alone for ten minutes, as somebody else reclaims from it or sets its memory.high again and again"
            ));
        }
        let devices = swap::devices(&kernel).unwrap_or_default();
        let memory = system::memory(&kernel).ok();
        let ticks = system::cpu(&kernel).ok().map(|ticks| (ticks.busy, ticks.total));
        let cpu_busy = self.ticks.zip(ticks).and_then(|(before, now)| {
            share(bytes(now.0.saturating_sub(before.0)), bytes(now.1.saturating_sub(before.1)))
        });
        self.ticks = ticks;
        let swap_on_disk = devices.iter().any(|device| device.zram_name().is_none());
        Observation {
            now_s,
            targets,
            pressure,
            free: memory.map(|memory| bytes(memory.free) / bytes(memory.total.max(1))),
            swap_free: Some(self.room(&devices)),
            swap_on_disk,
            costs: self.costs.with_swap(swap_on_disk),
            cpus: std::thread::available_parallelism().ok().map(|cpus| bytes(cpus.get() as u64)),
            cpu_busy,
            can_protect: self.can_protect,
            ..Observation::default()
        }
    }

    /// Bytes of swap that are free.
    #[must_use]
    pub fn swap_free(&self) -> Option<u64> {
        Some(self.room(&swap::devices(&self.kernel).ok()?))
    }

    /// Bytes of swap that may be filled: not so many that somebody kills for it.
    fn room(&self, devices: &[Swap]) -> u64 {
        let free: u64 = devices.iter().map(Swap::free).sum();
        let spared =
            if self.killer { search::SPARED * bytes(devices.iter().map(|device| device.bytes).sum()) } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size of swap")]
        let spared = spared as u64;
        free.saturating_sub(spared)
    }

    /// Reads the bytes that zram holds, before compression, and takes.
    pub fn zram_reader(&self) -> impl Fn() -> Option<(u64, u64)> + use<> {
        let kernel = self.kernel.clone();
        move || zram::in_use(&kernel).map(|usage| (usage.original, usage.used))
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts")]
pub(super) fn bytes(value: u64) -> f64 {
    value as f64
}
