//! The map: where the accesses are. DAMON's adaptive regions, on virtual addresses where the kernel has `vaddr`, else on
//! the page frames of the target's processes, mapped back.

use std::time::Duration;

use lowtide_model::PAGE;
use lowtide_model::region::{Extent, Region, Snapshot, coalesce, coarsen, to_virtual};
use lowtide_model::scheme::Scheme;
use lowtide_model::sharpen::{Samples, sharpen};
use lowtide_model::units::{index, integer};

use super::cohort::CohortMonitor;
use super::damon::Rhythm;
use super::{Target, find};
use crate::damon::{KdamondSetup, Operations, TuningGoal};
use crate::proc::Mapping;
use crate::root::{Kernel, Result};
use crate::system;
use crate::trace::TraceEvent;

/// Processes that `vaddr` follows at once, at most: each costs at least ten regions.
const PROCESSES: usize = 32;

/// Regions of one snapshot that are kept, at most; more than a screen has rows.
const KEPT: usize = 500;

/// More refusals in a row than processes that ended explain.
const REFUSALS: u32 = 20;

/// With a goal, the kernel may lengthen the first sampling interval up to this many times, but not shorten it: that is what
/// the price cap allows. (damo's longest interval is 2,000 times the shortest, which would take minutes to change.)
const SLOWER: u32 = 20;
/// Aggregations over which the kernel compares the accesses with the goal; as in damo.
const GOAL_AGGREGATIONS: u32 = 3;

/// Snapshots after a start that are left out of what is drawn: DAMON begins with few regions and needs some rounds to find the
/// shape. Schemes try a little of a region first, and lose more by waiting.
const UNSETTLED: u32 = 3;

/// The map of one target.
#[derive(Debug)]
pub struct MapMonitor {
    operations: Operations,
    limit: usize,
    sampling_s: f64,
    /// Aggregation interval, seconds.
    pub(super) aggregation_s: f64,
    /// Share of the possible accesses for which the kernel tunes the intervals.
    goal: Option<f64>,
    /// What the kernel does to the map's regions.
    pub schemes: Vec<Scheme>,
    /// Seconds between the last two snapshots, where the kernel tunes them.
    pub tuned_s: Option<f64>,
    last_s: Option<f64>,
    /// `paddr`: where the target's memory is. Ascending by physical address.
    extents: Vec<Extent>,
    names: Vec<(u32, Mapping)>,
    pids: Vec<u32>,
    /// What DAMON was configured with last.
    configured: Option<KdamondSetup>,
    /// The next configuration.
    pub(super) next: Option<KdamondSetup>,
    /// Snapshots that are left out yet.
    unsettled: u32,
    /// How often in a row DAMON has refused a configuration.
    refusals: u32,
    /// Bytes of the target that are too scattered to be mapped, at the last refresh.
    pub lost_bytes: u64,
    /// Processes of the target beyond those that are followed, at most so far.
    pub lost_processes: usize,
}

impl MapMonitor {
    pub(super) fn new(operations: Operations, rhythm: &Rhythm) -> Self {
        Self {
            operations,
            limit: index(rhythm.map_regions),
            sampling_s: rhythm.map_sampling_s,
            aggregation_s: rhythm.map_aggregation_s,
            goal: rhythm.map_goal,
            schemes: Vec::new(),
            tuned_s: None,
            last_s: None,
            extents: Vec::new(),
            names: Vec::new(),
            pids: Vec::new(),
            configured: None,
            next: None,
            unsettled: if rhythm.map_at_once { 0 } else { UNSETTLED },
            refusals: 0,
            lost_bytes: 0,
            lost_processes: 0,
        }
    }

    /// Changes size and intervals, from the next refresh on.
    pub(super) fn set_rhythm(&mut self, rhythm: &Rhythm) {
        self.limit = index(rhythm.map_regions);
        (self.sampling_s, self.aggregation_s) = (rhythm.map_sampling_s, rhythm.map_aggregation_s);
    }

    /// Access checks per second at `regions` regions, for the governor.
    pub(super) fn checks_per_s(&self, regions: f64) -> f64 {
        if self.configured.is_some() { regions / self.sampling_s } else { 0.0 }
    }

    /// Walks over the target: where its memory is now.
    pub fn refresh(&mut self, kernel: &Kernel, target: &Target) -> Result<()> {
        let mut setup = KdamondSetup {
            operations: self.operations,
            sampling: Duration::from_secs_f64(self.sampling_s),
            aggregation: Duration::from_secs_f64(self.aggregation_s),
            update: Duration::from_secs_f64(self.aggregation_s),
            // A scheme acts on a region by the samples of one page of it at a time: large regions hide what is in them.
            min_regions: if self.schemes.is_empty() { 10 } else { self.limit / 4 },
            max_regions: self.limit,
            pids: Vec::new(),
            ranges: Vec::new(),
            goal: self.goal.map(|share| goal(share, self.sampling_s)),
            schemes: self.schemes.clone(),
        };
        if target.system {
            setup.ranges = system::ram(kernel)?;
        } else if self.operations == Operations::Paddr {
            let layout = find::layout(kernel, &target.pids)?;
            (self.extents, self.names, self.lost_bytes) = (layout.extents, layout.names, layout.lost_bytes);
            // What is moved between nodes lies in any frames afterwards; filters distinguish the target's from others'.
            setup.ranges = if self.schemes.iter().any(|scheme| scheme.action.migrates()) {
                divide(&system::ram(kernel)?, setup.min_regions)
            } else {
                // Half the regions for the ranges themselves: DAMON only splits while it has less than half its maximum.
                coalesce(&self.extents, self.limit / 2)
            };
        } else {
            setup.pids = target.pids.iter().copied().take(PROCESSES).collect();
            self.lost_processes = self.lost_processes.max(target.pids.len() - setup.pids.len());
            self.names = setup.pids.iter().flat_map(|pid| named(kernel, *pid)).collect();
        }
        let monitors_something = !setup.ranges.is_empty() || !setup.pids.is_empty();
        self.next = (monitors_something && self.configured.as_ref() != Some(&setup)).then_some(setup);
        Ok(())
    }

    /// The next configuration, if there is one.
    pub(super) fn take_setup(&mut self) -> Option<KdamondSetup> {
        let setup = self.next.take()?;
        self.configured = Some(setup.clone());
        Some(setup)
    }

    /// DAMON has taken the configuration.
    pub(super) fn accepted(&mut self) {
        self.refusals = 0;
        self.pids = self.configured.as_ref().map_or_else(Vec::new, |setup| setup.pids.clone());
    }

    /// DAMON has refused the configuration, as it does if a process ended since it was listed. True if it happens too
    /// often to be that.
    pub(super) fn refused_too_often(&mut self) -> bool {
        self.configured = None;
        self.refusals += 1;
        self.refusals > REFUSALS
    }

    /// Whether the target has to be walked over again before DAMON can be configured.
    pub(super) fn needs_refresh(&self) -> bool {
        self.refusals > 0 && self.next.is_none()
    }

    /// One snapshot of the map's kdamond: all targets, each as many events as it has regions; sharpened by the `cohort`'s
    /// samples of the same time.
    pub(super) fn snapshot(&mut self, t_s: f64, events: &[TraceEvent], cohort: &CohortMonitor) -> Vec<Snapshot> {
        if self.unsettled > 0 {
            self.unsettled -= 1;
            return Vec::new();
        }
        // The kernel changes both intervals together.
        let samples = (self.aggregation_s / self.sampling_s).max(1.0);
        if self.goal.is_some() {
            self.tuned_s = self.last_s.map(|last| t_s - last);
        }
        self.last_s = Some(t_s);
        let aggregation_s = self.tuned_s.unwrap_or(self.aggregation_s);
        let region = |event: &TraceEvent| Region {
            start: event.start,
            end: event.end,
            access_rate: (f64::from(event.nr_accesses) / samples).min(1.0),
            age_s: f64::from(event.age) * aggregation_s,
        };
        let mut snapshots = match self.operations {
            Operations::Paddr => {
                let regions: Vec<Region> = events.iter().map(region).collect();
                to_virtual(t_s, &regions, &self.extents)
            }
            // Targets are named by their place in the configuration; by older kernels by an address, in that order.
            Operations::Vaddr => events
                .chunk_by(|a, b| a.target == b.target)
                .enumerate()
                .filter_map(|(at, events)| {
                    let place = usize::try_from(events[0].target).ok().filter(|place| *place < self.pids.len());
                    let pid = *self.pids.get(place.unwrap_or(at))?;
                    Some(Snapshot { t_s, pid, regions: events.iter().map(region).collect() })
                })
                .collect(),
        };
        // Of a page that is used once in the cohort's sampling interval, this share of the map's samples finds an access.
        let floor = (aggregation_s / samples / cohort.size.sampling_s).min(1.0);
        let drawn = self.operations == Operations::Vaddr;
        let block = integer(cohort.cohort.block_bytes());
        for snapshot in &mut snapshots {
            let samples = cohort.cohort.samples(snapshot.pid, aggregation_s);
            snapshot.regions =
                coarsen(sharpen(&snapshot.regions, drawn, &Samples { list: &samples, block, floor }), KEPT);
        }
        snapshots
    }

    /// Name of the mapping that an address of a process lies in; empty for anonymous memory.
    pub fn name_of(&self, pid: u32, address: u64) -> &str {
        let after = self.names.partition_point(|(p, mapping)| (*p, mapping.start) <= (pid, address));
        match after.checked_sub(1).map(|at| &self.names[at]) {
            Some((p, mapping)) if *p == pid && address < mapping.end => &mapping.name,
            _ => "",
        }
    }
}

/// The goal of so much of the possible accesses, with the sampling interval as the shortest.
fn goal(share: f64, sampling_s: f64) -> TuningGoal {
    let shortest = Duration::from_secs_f64(sampling_s);
    let access_bp = u32::try_from(integer((share * 1e4).round())).unwrap_or(u32::MAX);
    TuningGoal { access_bp, aggregations: GOAL_AGGREGATIONS, shortest, longest: shortest * SLOWER }
}

/// Ranges in about so many pieces: the regions that DAMON begins with, where it is given page frames.
fn divide(ranges: &[(u64, u64)], pieces: usize) -> Vec<(u64, u64)> {
    let all: u64 = ranges.iter().map(|(start, end)| end - start).sum();
    let size = (all / u64::try_from(pieces.max(1)).unwrap_or(u64::MAX)).next_multiple_of(PAGE).max(PAGE);
    let cut = |(start, end): &(u64, u64)| {
        let (start, end) = (*start, *end);
        (0..(end - start).div_ceil(size)).map(move |at| (start + at * size, end.min(start + (at + 1) * size)))
    };
    ranges.iter().flat_map(cut).collect()
}

fn named(kernel: &Kernel, pid: u32) -> Vec<(u32, Mapping)> {
    crate::proc::mappings(kernel, pid).unwrap_or_default().into_iter().map(|mapping| (pid, mapping)).collect()
}
