//! Cohort and map on DAMON: kdamond 0 samples the cohort, kdamond 1 the map, and one trace instance reports both. On
//! kernels that have page idle tracking instead, a thread of lowtide's own samples.

use lowtide_model::cohort::Picture;
use lowtide_model::episode::Episode;
use lowtide_model::region::Snapshot;
use lowtide_model::scheme::Scheme;
use lowtide_model::units::{float, human_bytes, integer};

use super::Target;
use super::cohort::{CohortMonitor, CohortSize};
use super::find::Frames;
use super::map::MapMonitor;
use super::sampler::{Request, Response, Sampler};
use super::snapshots::split_snapshot;
use crate::damon::{Damon, Operations, SchemeStats};
use crate::proc;
use crate::root::{Error, Kernel, Result};
use crate::trace::{Trace, TraceEvent};
use crate::undo::Journal;

/// The parts of the monitor, which are also the numbers of their kdamonds.
pub(super) const COHORT: usize = 0;
pub(super) const MAP: usize = 1;

/// Bytes of each CPU's trace buffer: a region's event takes about 56 bytes, and two snapshots of 4,000 pages must fit
/// between two reads.
const TRACE_BUFFER: usize = 512 * 1024;

/// Target and intervals of the monitor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rhythm {
    /// Pages of the cohort, at most.
    pub cohort_pages: f64,
    /// Sampling interval of the cohort, seconds.
    pub cohort_sampling_s: f64,
    /// Regions of the map, at most.
    pub map_regions: f64,
    /// Sampling interval of the map, seconds.
    pub map_sampling_s: f64,
    /// Aggregation interval of the map, seconds.
    pub map_aggregation_s: f64,
    /// Addresses that the map works on; `None`: the best that this kernel has.
    pub map_on: Option<Operations>,
    /// Share of the possible accesses for which the kernel tunes the map's intervals, if it can.
    pub map_goal: Option<f64>,
    /// The map is wanted from its first snapshot on, however coarse: something acts by it.
    pub map_at_once: bool,
}

impl Rhythm {
    fn cohort(&self) -> CohortSize {
        CohortSize { pages: self.cohort_pages, sampling_s: self.cohort_sampling_s }
    }
}

/// When a record began.
#[derive(Debug, Clone, Copy)]
pub struct RecordStart {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub epoch_ns: u64,
    /// Whether the target was running before.
    pub attached: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Kdamond {
    /// Its thread, once it is on.
    pid: Option<u32>,
    /// CPU seconds it had used when last read.
    cpu_s: f64,
    /// A request to it is under way.
    busy: bool,
}

/// Cohort and map of one target.
#[derive(Debug)]
pub struct DamonMonitor {
    kernel: Kernel,
    cohort: CohortMonitor,
    map: MapMonitor,
    sampler: Sampler,
    kdamonds: [Kdamond; 2],
    operations: Operations,
    epoch_ns: u64,
    /// Events of snapshots that are not complete.
    pending: Vec<TraceEvent>,
    /// The map's snapshots since they were last taken.
    pub snapshots: Vec<Snapshot>,
    /// When the cohort was last sampled, seconds.
    pub last_sample_s: Option<f64>,
    /// Regions of the map's last snapshot.
    pub region_count: f64,
    /// What the map's schemes had done when last read.
    pub scheme_stats: Vec<SchemeStats>,
    /// CPU seconds that configuring DAMON took in the background since they were last taken.
    pub background_s: f64,
    /// CPU seconds of the last request.
    request_cost_s: f64,
    /// Regions that DAMON reported for the cohort and lowtide had not set.
    foreign: usize,
    /// `damon_stat` was switched off for it.
    paused_statistics: bool,
    /// Tuned intervals were asked for, and this kernel cannot tune them.
    untuned: bool,
}

/// CPU seconds of sampling since they were last read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// The cohort's kdamond.
    pub cohort_s: f64,
    /// The map's kdamond.
    pub map_s: f64,
    /// Of both, what lowtide's own process spent, and so counts already.
    pub own_s: f64,
}

impl DamonMonitor {
    /// Takes DAMON.
    pub fn take(kernel: &Kernel, journal: &Journal, rhythm: &Rhythm, start: RecordStart) -> Result<Self> {
        let frames = Frames::open(kernel)?;
        let damon = Damon::take(kernel, journal, 2)?;
        let trace = Trace::open(kernel, journal, TRACE_BUFFER)?;
        let offered = damon.operations(COHORT)?;
        let need = |part: &str, operations: Operations, option: &str| {
            let why = || format!("this kernel's DAMON has no {}{option}", operations.name());
            let missing = || Error::missing(format!("set up the {part} with"), "DAMON", why());
            offered.contains(&operations).then_some(operations).ok_or_else(missing)
        };
        need("cohort", Operations::Paddr, " (CONFIG_DAMON_PADDR)")?;
        let best = if offered.contains(&Operations::Vaddr) { Operations::Vaddr } else { Operations::Paddr };
        let operations = need("map", rhythm.map_on.unwrap_or(best), "")?;
        let untuned = rhythm.map_goal.is_some() && !damon.tunes_intervals(COHORT);
        let map_goal = rhythm.map_goal.filter(|_| !untuned);
        let rhythm = Rhythm { map_on: Some(operations), map_goal, ..*rhythm };
        let paused_statistics = damon.has_paused_statistics();
        let monitor = Self::new(frames, Sampler::kdamonds(damon, trace), &rhythm, start);
        Ok(Self { paused_statistics, untuned, ..monitor })
    }

    /// The same on the idle bitmap.
    pub fn on_bitmap(kernel: &Kernel, journal: &Journal, rhythm: &Rhythm, start: RecordStart) -> Result<Self> {
        let frames = Frames::open(kernel)?;
        let sampler = Sampler::bitmap(kernel, Some(journal.lock_damon()?))?;
        let untuned = rhythm.map_goal.is_some();
        Ok(Self { untuned, ..Self::new(frames, sampler, &Rhythm { map_goal: None, ..*rhythm }, start) })
    }

    fn new(frames: Frames, sampler: Sampler, rhythm: &Rhythm, start: RecordStart) -> Self {
        let operations = rhythm.map_on.unwrap_or(Operations::Vaddr);
        Self {
            kernel: frames.kernel.clone(),
            cohort: CohortMonitor::new(frames, rhythm.cohort(), start.attached, start.epoch_ns),
            map: MapMonitor::new(operations, rhythm),
            sampler,
            kdamonds: [Kdamond::default(); 2],
            operations,
            epoch_ns: start.epoch_ns,
            pending: Vec::new(),
            snapshots: Vec::new(),
            last_sample_s: None,
            region_count: 0.0,
            scheme_stats: Vec::new(),
            background_s: 0.0,
            request_cost_s: 0.0,
            foreign: 0,
            paused_statistics: false,
            untuned: false,
        }
    }

    /// What the map works on, `damon-vaddr` or `damon-paddr`, as the cohort works on frames everywhere; or `idle-bitmap`.
    pub fn backend(&self) -> &'static str {
        match (self.sampler.is_bitmap(), self.operations) {
            (true, _) => "idle-bitmap",
            (_, Operations::Vaddr) => "damon-vaddr",
            (_, Operations::Paddr) => "damon-paddr",
        }
    }

    /// Whether page cache that no process maps is sampled; it is not where the multi-generational LRU is on.
    pub fn samples_cache(&self) -> bool {
        self.cohort.frames.samples_cache()
    }

    /// Changes sizes and intervals, from the next refreshes on.
    pub fn set_rhythm(&mut self, rhythm: &Rhythm) {
        self.cohort.resize(rhythm.cohort());
        self.map.set_rhythm(rhythm);
    }

    /// Has the kernel apply these schemes to the map's regions, from its next refresh on.
    pub fn set_schemes(&mut self, schemes: Vec<Scheme>) {
        self.map.schemes = schemes;
    }

    /// Requests what the schemes did; [`Self::scheme_stats`] holds the answer a moment later.
    pub fn request_stats(&mut self) {
        let schemes = self.map.schemes.len();
        let kdamond = &mut self.kdamonds[MAP];
        // The thread on the idle bitmap applies no schemes.
        if schemes > 0 && kdamond.pid.is_some() && !kdamond.busy && !self.sampler.is_bitmap() {
            kdamond.busy = true;
            self.sampler.send(Request::Stats { part: MAP, schemes });
        }
    }

    /// Walks over the target for the cohort.
    pub fn refresh_cohort(&mut self, target: &Target, now_s: f64, search_cache: bool) -> Result<()> {
        self.cohort.refresh(target, now_s, search_cache)
    }

    /// Walks over the target for the map. The system has one only for schemes: its frames mean nothing to a reader.
    pub fn refresh_map(&mut self, target: &Target) -> Result<()> {
        if target.system && self.map.schemes.is_empty() { Ok(()) } else { self.map.refresh(&self.kernel, target) }
    }

    /// Whether the map's kdamond has been started.
    pub fn has_map(&self) -> bool {
        self.kdamonds[MAP].pid.is_some() || self.kdamonds[MAP].busy
    }

    /// Whether the map has to be refreshed at once.
    pub fn map_needs_refresh(&self) -> bool {
        self.map.needs_refresh()
    }

    /// Whether DAMON has to be configured, and what that cost last time (CPU seconds).
    pub fn pending_cost_s(&self) -> Option<f64> {
        (self.cohort.next.is_some() || self.map.next.is_some()).then_some(self.request_cost_s)
    }

    /// Passes new configurations to kdamonds that are not busy.
    pub fn configure(&mut self, now_s: f64) {
        for part in [COHORT, MAP] {
            if self.kdamonds[part].busy {
                continue;
            }
            let setup = if part == COHORT { self.cohort.take_setup(now_s) } else { self.map.take_setup() };
            if let Some(setup) = setup {
                self.kdamonds[part].busy = true;
                self.sampler.send(Request::Configure { part, setup });
            }
        }
    }

    fn note(&mut self, response: Response) -> Result<()> {
        let kdamond = &mut self.kdamonds[response.part];
        kdamond.busy = false;
        kdamond.pid = response.pid.or(kdamond.pid);
        self.background_s += response.cost_s;
        self.request_cost_s = response.cost_s;
        match response.result {
            Ok(Some(stats)) if stats.is_empty() => {}
            Ok(Some(stats)) => self.scheme_stats = stats,
            Ok(None) if response.part == MAP => self.map.accepted(),
            Ok(None) => self.cohort.accepted(response.started, self.seconds(response.at_ns)),
            Err(error) if response.part == MAP && error.is_invalid() && !self.map.refused_too_often() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Seconds since the start of the record.
    fn seconds(&self, monotonic_ns: u64) -> f64 {
        float(monotonic_ns.saturating_sub(self.epoch_ns)) / 1e9
    }

    /// Reads what was sampled. True if the cohort was, since the last call.
    pub fn poll(&mut self) -> Result<bool> {
        for response in self.sampler.receive(&mut self.pending)? {
            self.note(response)?;
        }
        let mut sampled = false;
        let events = std::mem::take(&mut self.pending);
        let gap_ns =
            [self.cohort.size.sampling_s, self.map.aggregation_s].map(|interval_s| integer(interval_s * 0.4e9));
        for part in [COHORT, MAP] {
            let Some(pid) = self.kdamonds[part].pid else { continue };
            let own: Vec<TraceEvent> = events.iter().filter(|event| event.kdamond == pid).copied().collect();
            let mut rest = own.as_slice();
            while let Some((snapshot, after)) = split_snapshot(rest, gap_ns[part]) {
                rest = after;
                self.snapshot(part, snapshot);
                sampled |= part == COHORT;
            }
            self.pending.extend_from_slice(rest);
        }
        Ok(sampled)
    }

    /// Takes one complete, non-empty snapshot of one kdamond.
    fn snapshot(&mut self, part: usize, events: &[TraceEvent]) {
        let t_s = self.seconds(events.last().map_or(0, |event| event.time_ns));
        if part == COHORT {
            self.foreign += self.cohort.foreign(t_s, events);
            self.cohort.snapshot(t_s, events);
            self.last_sample_s = Some(t_s);
        } else {
            self.region_count = float(events.len());
            self.snapshots.extend(self.map.snapshot(t_s, events, &self.cohort));
        }
    }

    /// Notes how large the target is where there was no sample to make a picture of.
    pub fn note_size(&mut self, target: &Target, now_s: f64) {
        self.cohort.note(now_s, target);
    }

    /// The picture at the last sample; `None` before the first.
    pub fn picture(&mut self, target: &Target) -> Option<Picture> {
        Some(self.cohort.picture(self.last_sample_s?, target))
    }

    /// Bytes the cohort stands for.
    pub fn watched_bytes(&self) -> f64 {
        self.cohort.cohort.sampled_totals().iter().sum()
    }

    /// Takes the episodes so far; with `cut` also those that go on.
    pub fn take_episodes(&mut self, cut: bool) -> Vec<Episode> {
        if cut {
            self.cohort.cohort.cut(&mut self.cohort.episodes);
        }
        std::mem::take(&mut self.cohort.episodes)
    }

    /// Ends the cohort: every page's last episode.
    pub fn finish(&mut self) -> Vec<Episode> {
        self.cohort.cohort.finish(&mut self.cohort.episodes);
        std::mem::take(&mut self.cohort.episodes)
    }

    /// Name of the mapping at an address.
    pub fn name_of(&self, pid: u32, address: u64) -> &str {
        self.map.name_of(pid, address)
    }

    /// Access checks per second of cohort and map, for the governor.
    pub fn checks_per_s(&self) -> (f64, f64) {
        (self.cohort.checks_per_s(), self.map.checks_per_s(self.region_count))
    }

    /// What the record's reader should know of how it was made.
    pub fn notes(&self) -> Vec<String> {
        let map = &self.map;
        let lost = self.sampler.lost();
        let tuned_s = map.tuned_s.unwrap_or(0.0);
        let scattered = human_bytes(float(map.lost_bytes));
        let notes = [
            (self.sampler.is_bitmap(), "the idle bitmap monitor has been tried on simulated pages only".to_owned()),
            (
                self.paused_statistics,
                "the kernel's own DAMON statistics (damon_stat) paused while this was recorded".to_owned(),
            ),
            (
                self.untuned,
                "the map's intervals are fixed: the kernel's DAMON cannot tune them (Linux 6.15)".to_owned(),
            ),
            (lost > 0, format!("{lost} of DAMON's trace events were lost: lowtide was kept from reading them")),
            (map.tuned_s.is_some(), format!("the kernel tuned the map's aggregation interval to {tuned_s:.2} s")),
            (self.foreign > 0, format!("DAMON reported {} regions that lowtide had not set", self.foreign)),
            (
                map.lost_processes > 0,
                format!("the map left out up to {} processes: too many regions", map.lost_processes),
            ),
            (
                map.lost_bytes > 0,
                format!("the map leaves out {scattered} that lie in too many pieces of physical memory"),
            ),
        ];
        notes.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text).collect()
    }

    /// What sampling cost since the last call.
    pub fn cost(&mut self) -> Cost {
        let mut spent_s = [0.0; 2];
        for part in [COHORT, MAP] {
            let kdamond = &mut self.kdamonds[part];
            let of_thread = || proc::cpu_seconds(&self.kernel, kdamond.pid?).ok();
            if let Some(now_s) = self.sampler.own_cpu_s(part).or_else(of_thread) {
                spent_s[part] = (now_s - kdamond.cpu_s).max(0.0);
                kdamond.cpu_s = now_s;
            }
        }
        let own_s = if self.sampler.is_bitmap() { spent_s.iter().sum() } else { 0.0 };
        Cost { cohort_s: spent_s[COHORT], map_s: spent_s[MAP], own_s }
    }
}
