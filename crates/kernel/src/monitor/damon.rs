//! Both instruments on DAMON: kdamond 0 looks at the cohort, kdamond 1 draws the map, one trace instance reads both. On
//! kernels that have page idle tracking instead, a thread of lowtide's own takes the kdamonds' part.

use lowtide_model::cohort::Picture;
use lowtide_model::episode::Episode;
use lowtide_model::region::Snapshot;
use lowtide_model::scheme::Scheme;
use lowtide_model::units::human_bytes;

use super::Target;
use super::bitmap::BitmapLooker;
use super::cohort::CohortMonitor;
use super::find::Frames;
use super::looker::Looker;
use super::map::MapMonitor;
use super::snapshots::split_snapshot;
use super::teller::Teller;
use crate::damon::{Damon, Operations, SchemeStats};
use crate::proc;
use crate::root::{Error, Kernel, Result};
use crate::trace::{Trace, TraceEvent};
use crate::undo::Journal;

pub(super) const COHORT: usize = 0;
pub(super) const MAP: usize = 1;

/// Bytes of each CPU's trace buffer: a region's event takes about 56 bytes, and two snapshots of 4,000 pages must fit
/// between two reads.
const TRACE_BUFFER: usize = 512 * 1024;

/// What shall be monitored, and how often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rhythm {
    /// Pages of the cohort, at most.
    pub cohort_pages: f64,
    /// Seconds between two looks at a page.
    pub cohort_sampling_s: f64,
    /// Regions of the map, at most.
    pub map_regions: f64,
    /// Seconds between two looks at a region.
    pub map_sampling_s: f64,
    /// Seconds over which the map counts.
    pub map_aggregation_s: f64,
    /// Addresses that the map works on; `None`: the best that this kernel has.
    pub map_on: Option<Operations>,
    /// Share of the possible accesses that the kernel shall tune the map's intervals for, if it can.
    pub map_goal: Option<f64>,
}

/// What is known of one kdamond.
#[derive(Debug, Clone, Copy, Default)]
struct Kdamond {
    /// Its thread, once it is on.
    pid: Option<u32>,
    /// CPU seconds it had used when last asked.
    cpu_s: f64,
    /// It is being told something.
    busy: bool,
}

/// Cohort and map of one target.
#[derive(Debug)]
pub struct DamonMonitor {
    kernel: Kernel,
    cohort: CohortMonitor,
    map: Option<MapMonitor>,
    pending: Vec<TraceEvent>,
    snapshots: Vec<Snapshot>,
    last_sample_s: Option<f64>,
    /// Regions of the map's last snapshot.
    pub region_count: f64,
    epoch_ns: u64,
    foreign: usize,
    operations: Operations,
    kdamonds: [Kdamond; 2],
    background_s: f64,
    told_cost_s: f64,
    looker: Looker,
    /// `damon_stat` was switched off for it.
    paused: bool,
    /// Tuned intervals were asked for, and cannot be had.
    untuned: bool,
    /// What the map's schemes had done when last asked.
    pub scheme_stats: Vec<SchemeStats>,
}

/// CPU seconds of the kernel threads since they were last asked.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// The cohort's kdamond.
    pub cohort_s: f64,
    /// The map's kdamond.
    pub map_s: f64,
    /// What of it lowtide's own process has spent, and so counts already.
    pub own_s: f64,
}

impl DamonMonitor {
    /// Takes DAMON. `epoch_ns`: start of the record on `CLOCK_MONOTONIC`; `attached`: the target was running before.
    pub fn take(kernel: &Kernel, journal: &Journal, rhythm: &Rhythm, epoch_ns: u64, attached: bool) -> Result<Self> {
        let frames = Frames::open(kernel)?;
        let damon = Damon::take(kernel, journal, 2)?;
        let trace = Trace::open(kernel, journal, TRACE_BUFFER)?;
        let offered = damon.operations(COHORT)?;
        if !offered.contains(&Operations::Paddr) {
            return Err(Error::missing(
                "set up the cohort with",
                "DAMON",
                "this kernel's DAMON has no paddr (CONFIG_DAMON_PADDR)",
            ));
        }
        let best = if offered.contains(&Operations::Vaddr) { Operations::Vaddr } else { Operations::Paddr };
        let operations = rhythm.map_on.unwrap_or(best);
        if !offered.contains(&operations) {
            return Err(Error::missing(
                "set up the map with",
                "DAMON",
                format!("this kernel's DAMON has no {}", operations.name()),
            ));
        }
        let untuned = rhythm.map_goal.is_some() && !damon.tunes_intervals(COHORT);
        let rhythm = Rhythm { map_goal: rhythm.map_goal.filter(|_| !untuned), ..*rhythm };
        let paused = damon.has_paused_statistics();
        let looker = Looker::Kdamonds { trace: Box::new(trace), teller: Teller::new(damon) };
        let monitor = Self::with(kernel, frames, looker, operations, &rhythm, epoch_ns, attached);
        Ok(Self { paused, untuned, ..monitor })
    }

    /// The same on the idle bitmap.
    pub fn on_bitmap(
        kernel: &Kernel,
        journal: &Journal,
        rhythm: &Rhythm,
        epoch_ns: u64,
        attached: bool,
    ) -> Result<Self> {
        let frames = Frames::open(kernel)?;
        let looker = Looker::Bitmap(BitmapLooker::open(kernel, Some(journal.lock_damon()?))?);
        let untuned = rhythm.map_goal.is_some();
        let rhythm = &Rhythm { map_goal: None, ..*rhythm };
        let operations = rhythm.map_on.unwrap_or(Operations::Vaddr);
        let monitor = Self::with(kernel, frames, looker, operations, rhythm, epoch_ns, attached);
        Ok(Self { untuned, ..monitor })
    }

    fn with(
        kernel: &Kernel,
        frames: Frames,
        looker: Looker,
        operations: Operations,
        rhythm: &Rhythm,
        epoch_ns: u64,
        attached: bool,
    ) -> Self {
        let (sampling_s, aggregation_s) = (rhythm.map_sampling_s, rhythm.map_aggregation_s);
        let map = MapMonitor::new(operations, rhythm.map_regions, sampling_s, aggregation_s, rhythm.map_goal);
        let seed = epoch_ns;
        Self {
            kernel: kernel.clone(),
            cohort: CohortMonitor::new(frames, rhythm.cohort_pages, rhythm.cohort_sampling_s, attached, seed),
            map: Some(map),
            pending: Vec::new(),
            snapshots: Vec::new(),
            last_sample_s: None,
            region_count: 0.0,
            epoch_ns,
            foreign: 0,
            operations,
            kdamonds: [Kdamond::default(); 2],
            background_s: 0.0,
            told_cost_s: 0.0,
            looker,
            paused: false,
            untuned: false,
            scheme_stats: Vec::new(),
        }
    }

    /// `damon-vaddr` or `damon-paddr`: what the map works on; the cohort works on frames everywhere. Or `idle-bitmap`.
    pub fn backend(&self) -> &'static str {
        match (self.looker.is_bitmap(), self.operations) {
            (true, _) => "idle-bitmap",
            (_, Operations::Vaddr) => "damon-vaddr",
            (_, Operations::Paddr) => "damon-paddr",
        }
    }

    /// Whether page cache that no process maps is watched; it is not where the multi-generational LRU is on.
    pub fn samples_cache(&self) -> bool {
        self.cohort.sees_cache()
    }

    /// Changes size and rhythm.
    pub fn set_rhythm(&mut self, rhythm: &Rhythm) {
        self.cohort.resize(rhythm.cohort_pages, rhythm.cohort_sampling_s);
        if let Some(map) = &mut self.map {
            map.resize(rhythm.map_regions, rhythm.map_sampling_s, rhythm.map_aggregation_s);
        }
    }

    /// Has the kernel act by these schemes on the map's regions, from the next walk over the target on.
    pub fn set_schemes(&mut self, schemes: Vec<Scheme>) {
        if let Some(map) = &mut self.map {
            map.schemes = schemes;
        }
    }

    /// Asks the kernel what the schemes did; [`Self::tallies`] has the answer a moment later.
    pub fn request_stats(&mut self) {
        let schemes = self.map.as_ref().map_or(0, |map| map.schemes.len());
        let slot = &mut self.kdamonds[MAP];
        if schemes > 0 && slot.pid.is_some() && !slot.busy {
            slot.busy = true;
            self.looker.count(MAP, schemes);
        }
    }

    /// Walks over the target for the cohort.
    pub fn refresh_cohort(&mut self, target: &Target, now_s: f64, search_cache: bool) -> Result<()> {
        self.cohort.refresh(&self.kernel, target, now_s, search_cache)
    }

    /// Walks over the target for the map. The whole system has one only if schemes act by it: frames mean nothing to its
    /// reader.
    pub fn refresh_map(&mut self, target: &Target) -> Result<()> {
        if let Some(map) = self.map.as_mut().filter(|map| !target.system || !map.schemes.is_empty()) {
            map.refresh(&self.kernel, target)?;
        }
        Ok(())
    }

    /// Whether the map needs another walk over the target at once.
    pub fn map_needs_refresh(&self) -> bool {
        self.map.as_ref().is_some_and(MapMonitor::is_lost)
    }

    /// Whether DAMON should be told something, and what that cost the last time (CPU seconds).
    pub fn pending_cost_s(&self) -> Option<f64> {
        let map = self.map.as_ref().is_some_and(MapMonitor::has_wish);
        (self.cohort.has_wish() || map).then_some(self.told_cost_s)
    }

    /// Hands over what DAMON shall be told, to kdamonds that are not being told something already.
    pub fn configure(&mut self, now_s: f64) {
        for kdamond in [COHORT, MAP] {
            if self.kdamonds[kdamond].busy {
                continue;
            }
            let map = self.map.as_mut();
            let wish =
                if kdamond == COHORT { self.cohort.take_wish(now_s) } else { map.and_then(MapMonitor::take_wish) };
            if let Some(setup) = wish {
                self.kdamonds[kdamond].busy = true;
                self.looker.tell(kdamond, setup);
            }
        }
    }

    /// Takes note of what DAMON has been told.
    fn hear(&mut self) -> Result<()> {
        for told in self.looker.told() {
            let slot = &mut self.kdamonds[told.kdamond];
            slot.busy = false;
            slot.pid = told.pid.or(slot.pid);
            self.background_s += told.cost_s;
            self.told_cost_s = told.cost_s;
            let at_s = self.seconds(told.at_ns);
            let result = match told.result {
                Ok(Some(tallies)) => {
                    if !tallies.is_empty() {
                        self.scheme_stats = tallies;
                    }
                    continue;
                }
                other => other,
            };
            let Err(error) = result else {
                match &mut self.map {
                    Some(map) if told.kdamond == MAP => map.was_told(),
                    _ => self.cohort.was_told(told.start, at_s),
                }
                continue;
            };
            let map = self.map.as_mut().filter(|_| told.kdamond == MAP && error.is_invalid());
            if map.is_none_or(MapMonitor::was_refused) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Seconds since the start of the record.
    fn seconds(&self, monotonic_ns: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a record are below 2^53")]
        let ns = monotonic_ns.saturating_sub(self.epoch_ns) as f64;
        ns / 1e9
    }

    /// Reads what was traced. True if the cohort was looked at since the last call.
    pub fn poll(&mut self) -> Result<bool> {
        self.hear()?;
        self.looker.read(&mut self.pending)?;
        let mut looked = false;
        let events = std::mem::take(&mut self.pending);
        let map_s = self.map.as_ref().map_or(1.0, MapMonitor::aggregation_s);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "less than a minute in nanoseconds"
        )]
        let gap_ns = [self.cohort.sampling_s(), map_s].map(|interval_s| (interval_s * 0.4e9) as u64);
        for kdamond in [COHORT, MAP] {
            let Some(pid) = self.kdamonds[kdamond].pid else { continue };
            let mine: Vec<TraceEvent> = events.iter().filter(|event| event.kdamond == pid).copied().collect();
            let mut rest = mine.as_slice();
            while let Some((snapshot, after)) = split_snapshot(rest, gap_ns[kdamond]) {
                rest = after;
                looked |= self.snapshot(kdamond, snapshot);
            }
            self.pending.extend_from_slice(rest);
        }
        Ok(looked)
    }

    /// One complete snapshot of one kdamond. True if it was the cohort's.
    fn snapshot(&mut self, kdamond: usize, events: &[TraceEvent]) -> bool {
        let Some(last) = events.last() else { return false };
        let t_s = self.seconds(last.time_ns);
        if kdamond == COHORT {
            self.foreign += self.cohort.foreign(t_s, events);
            self.cohort.snapshot(t_s, events);
            self.last_sample_s = Some(t_s);
            return true;
        }
        #[expect(clippy::cast_precision_loss, reason = "hundreds")]
        let regions = events.len() as f64;
        self.region_count = regions;
        if let Some(map) = &mut self.map {
            self.snapshots.extend(map.snapshot(t_s, events, &self.cohort));
        }
        false
    }

    /// Time of the last look at the cohort.
    pub fn last_sample_s(&self) -> Option<f64> {
        self.last_sample_s
    }

    /// The picture at the last look; `None` before the first.
    pub fn picture(&mut self, target: &Target) -> Option<Picture> {
        Some(self.cohort.picture(self.last_sample_s?, target))
    }

    /// Bytes the cohort stands for.
    pub fn watched_bytes(&self) -> f64 {
        self.cohort.cohort.sampled_totals().iter().sum()
    }

    /// Takes the stretches of use seen so far; `cut` also those that are going on.
    pub fn take_episodes(&mut self, cut: bool) -> Vec<Episode> {
        if cut {
            self.cohort.cohort.cut(&mut self.cohort.episodes);
        }
        std::mem::take(&mut self.cohort.episodes)
    }

    /// Ends the watch: every page's last stretch.
    pub fn finish(&mut self) -> Vec<Episode> {
        self.cohort.cohort.finish(&mut self.cohort.episodes);
        std::mem::take(&mut self.cohort.episodes)
    }

    /// Takes the map's snapshots since the last call.
    pub fn take_snapshots(&mut self) -> Vec<Snapshot> {
        std::mem::take(&mut self.snapshots)
    }

    /// Name of the mapping at an address.
    pub fn name_of(&self, pid: u32, address: u64) -> &str {
        self.map.as_ref().map_or("", |map| map.name_of(pid, address))
    }

    /// Looks per second of cohort and map, for the governor.
    pub fn checks_per_s(&self) -> (f64, f64) {
        (self.cohort.looks_per_s(), self.map.as_ref().map_or(0.0, |map| map.looks_per_s(self.region_count)))
    }

    /// CPU seconds that telling DAMON took in the background since the last call.
    pub fn take_background_s(&mut self) -> f64 {
        std::mem::take(&mut self.background_s)
    }

    /// What the record's reader should know of how it was made.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |applies: bool, text: String| notes.extend(applies.then_some(text));
        note(self.looker.is_bitmap(), "the idle bitmap monitor has been tried on simulated pages only".to_owned());
        note(self.paused, "the kernel's own DAMON statistics (damon_stat) paused while this was recorded".to_owned());
        note(
            self.untuned,
            "the map's intervals are fixed: the kernel's DAMON cannot tune them (Linux 6.15)".to_owned(),
        );
        let lost = self.looker.lost();
        note(lost > 0, format!("{lost} of DAMON's trace events were lost: lowtide was kept from reading them"));
        if let Some(tuned_s) = self.map.as_ref().and_then(|map| map.tuned_s) {
            note(true, format!("the kernel tuned the map's aggregation interval to {tuned_s:.2} s"));
        }
        note(self.foreign > 0, format!("DAMON reported {} regions that lowtide had not set", self.foreign));
        if let Some(map) = &self.map {
            let text = format!("the map left out up to {} processes: too many regions", map.lost_processes);
            note(map.lost_processes > 0, text);
            #[expect(clippy::cast_precision_loss, reason = "a size of memory")]
            let size = human_bytes(map.lost_bytes as f64);
            note(
                map.lost_bytes > 0,
                format!("the map leaves out {size} that lie in too many pieces of physical memory"),
            );
        }
        notes
    }

    /// What the kernel threads cost since the last call.
    pub fn cost(&mut self) -> Cost {
        let mut spent = [0.0; 2];
        let own = self.looker.own_spent_s();
        for (part, (slot, spent)) in self.kdamonds.iter_mut().zip(&mut spent).enumerate() {
            let now = match own {
                Some(own) => Some(own[part]),
                None => slot.pid.and_then(|pid| proc::cpu_seconds(&self.kernel, pid).ok()),
            };
            *spent = now.map_or(0.0, |now| (now - slot.cpu_s).max(0.0));
            slot.cpu_s = now.unwrap_or(slot.cpu_s);
        }
        let own_s = if own.is_some() { spent.iter().sum() } else { 0.0 };
        Cost { cohort_s: spent[COHORT], map_s: spent[MAP], own_s }
    }
}
