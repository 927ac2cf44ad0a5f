//! Cohorts of several cgroups on one kdamond: a sample of each one's pages, all checked once a second.
//!
//! What serves one target with cohort and map is [`super::damon`]. An agent needs idle ages of several targets, and no map.

use std::collections::BTreeMap;

use lowtide_model::cohort::Picture;
use lowtide_model::episode::PageKind;
use lowtide_model::units::float;

use super::Target;
use super::cohort::{CohortMonitor, CohortSize, setup};
use super::find::Frames;
use super::sampler::{Request, Sampler};
use super::snapshots::split_snapshot;
use crate::cgroup::Cgroup;
use crate::damon::{Damon, Operations};
use crate::proc;
use crate::root::{Error, Kernel, Result};
use crate::trace::{Trace, TraceEvent};
use crate::undo::Journal;

/// Bytes of each CPU's trace buffer: two snapshots of 8,000 pages at about 56 bytes an event.
const TRACE_BUFFER: usize = 1024 * 1024;
/// Seconds between two samples of a page.
const SAMPLING_S: f64 = 1.0;
/// Seconds between two reads of the trace: it holds more than two samples of every page.
const READ_S: f64 = 2.0;
/// Seconds between two walks over the targets, at least, and how many of them pass between two searches for page cache.
const WALK_S: f64 = 5.0;
const SEARCH_EVERY: u64 = 3;

/// A snapshot ends where DAMON traced nothing for so long, nanoseconds.
const GAP_NS: u64 = 400_000_000;

/// One cgroup's cohort.
#[derive(Debug)]
struct Member {
    cgroup: Cgroup,
    cohort: CohortMonitor,
    target: Target,
}

/// The cohorts, by the inode of the cgroup.
#[derive(Debug)]
pub struct Cohorts {
    kernel: Kernel,
    members: BTreeMap<u64, Member>,
    sampler: Sampler,
    /// The kdamond's thread, once it runs.
    kdamond: Option<u32>,
    /// A commit to DAMON has not been answered yet.
    busy: bool,
    /// Members joined or left since the last commit.
    changed: bool,
    pending: Vec<TraceEvent>,
    sampled_s: Option<f64>,
    walk_due_s: f64,
    /// When the last walk was, and the CPU seconds that it and handing its pages to DAMON took.
    walked_s: f64,
    spent_s: f64,
    /// Seconds from the last walk to the next.
    pause_s: f64,
    walks: u64,
    /// CPU seconds of the kdamond.
    kdamond_s: f64,
}

impl Cohorts {
    /// Takes DAMON; nothing is sampled yet.
    ///
    /// # Errors
    /// If DAMON is missing, or held by someone else.
    pub fn take(kernel: &Kernel, journal: &Journal) -> Result<Self> {
        Frames::open(kernel)?;
        let damon = Damon::take(kernel, journal, 1)?;
        if !damon.operations(0)?.contains(&Operations::Paddr) {
            let why = "this kernel's DAMON has no paddr (CONFIG_DAMON_PADDR)";
            return Err(Error::missing("set up the cohort with", "DAMON", why));
        }
        let trace = Trace::open(kernel, journal, TRACE_BUFFER)?;
        Ok(Self {
            kernel: kernel.clone(),
            members: BTreeMap::new(),
            sampler: Sampler::kdamonds(damon, trace),
            kdamond: None,
            busy: false,
            changed: false,
            pending: Vec::new(),
            sampled_s: None,
            walk_due_s: f64::NEG_INFINITY,
            walked_s: 0.0,
            spent_s: 0.0,
            pause_s: WALK_S,
            walks: 0,
            kdamond_s: 0.0,
        })
    }

    /// Samples these cgroups from now on, at most so many pages of each. What is known of those that stay is kept.
    ///
    /// # Errors
    /// If the kernel's files on page frames cannot be opened.
    pub fn follow(&mut self, cgroups: &[Cgroup], pages_each: f64) -> Result<()> {
        let size = CohortSize { pages: pages_each, sampling_s: SAMPLING_S };
        let before = self.members.len();
        self.members.retain(|inode, _| cgroups.iter().any(|cgroup| cgroup.inode == *inode));
        self.changed |= self.members.len() != before;
        for cgroup in cgroups {
            if let Some(member) = self.members.get_mut(&cgroup.inode) {
                member.cohort.resize(size);
                continue;
            }
            let frames = Frames::open(&self.kernel)?.by_lists();
            let cohort = CohortMonitor::new(frames, size, true, cgroup.inode);
            let member = Member { cgroup: cgroup.clone(), cohort, target: Target::default() };
            self.members.insert(cgroup.inode, member);
            self.walk_due_s = f64::NEG_INFINITY;
        }
        Ok(())
    }

    /// Whether page cache that no process maps can be sampled: not where the multi-generational LRU is on.
    pub fn samples_cache(kernel: &Kernel) -> bool {
        Frames::open(kernel).is_ok_and(|frames| frames.samples_cache())
    }

    /// Whether a cgroup is among them.
    pub fn follows(&self, inode: u64) -> bool {
        self.members.contains_key(&inode)
    }

    /// When there is something to read or to walk over next, as [`Kernel::awake_s`].
    pub fn due_s(&self) -> f64 {
        if self.members.is_empty() {
            return f64::INFINITY;
        }
        let sample_s = self.sampled_s.map_or(f64::INFINITY, |sampled_s| sampled_s + READ_S);
        sample_s.min(self.walk_due_s)
    }

    /// Walks over the cgroups where that is due, and reads what was sampled. True if it walked. Walks, and handing the pages that
    /// they find to DAMON, take no more than `price`, a share of one CPU.
    ///
    /// # Errors
    /// If DAMON refuses what it is given, or its trace cannot be read.
    pub fn step(&mut self, now_s: f64, price: f64) -> Result<bool> {
        let walks = now_s >= self.walk_due_s;
        if walks {
            let before_s = self.kernel.thread_cpu_s();
            self.walk(now_s)?;
            self.spent_s = self.kernel.thread_cpu_s() - before_s;
            self.walked_s = now_s;
        }
        self.commit(now_s);
        self.receive()?;
        self.pause_s = pause_s(self.spent_s, price);
        self.walk_due_s = self.walked_s + self.pause_s;
        Ok(walks)
    }

    fn walk(&mut self, now_s: f64) -> Result<()> {
        let search = self.walks.is_multiple_of(SEARCH_EVERY);
        self.walks += 1;
        for member in self.members.values_mut() {
            // A cgroup that is gone leaves with the next call of follow().
            let Ok(mut target) = target(&self.kernel, &member.cgroup) else { continue };
            member.cohort.refresh(&target, now_s, search)?;
            // The cgroup does not count which of its files' pages are mapped; the sample does.
            let [_, mapped, cache] = &mut target.totals;
            *cache = (*cache - member.cohort.cohort.sampled_totals()[PageKind::File.index()].min(*mapped)).max(0.0);
            member.target = target;
        }
        Ok(())
    }

    /// Hands all frames to DAMON, if some have changed and it is not busy.
    fn commit(&mut self, now_s: f64) {
        if self.busy {
            return;
        }
        for member in self.members.values_mut() {
            self.changed |= member.cohort.take_frames(now_s);
        }
        if !self.changed {
            return;
        }
        let mut frames: Vec<u64> =
            self.members.values().flat_map(|member| member.cohort.configured.iter().copied()).collect();
        frames.sort_unstable();
        frames.dedup();
        if !frames.is_empty() {
            (self.busy, self.changed) = (true, false);
            self.sampler.send(Request::Configure { part: 0, setup: setup(&frames, SAMPLING_S) });
        }
    }

    /// Reads answers and samples.
    fn receive(&mut self) -> Result<()> {
        for answer in self.sampler.receive(&mut self.pending)? {
            self.busy = false;
            self.spent_s += answer.cost_s;
            self.kdamond = answer.pid.or(self.kdamond);
            answer.result?;
            let at_s = seconds(answer.at_ns);
            for member in self.members.values_mut() {
                member.cohort.accepted(answer.started, at_s);
            }
        }
        let Some(kdamond) = self.kdamond else { return Ok(()) };
        let mut events = std::mem::take(&mut self.pending);
        events.retain(|event| event.kdamond == kdamond);
        let mut rest = events.as_slice();
        while let Some((snapshot, after)) = split_snapshot(rest, GAP_NS) {
            rest = after;
            let Some(last) = snapshot.last() else { break };
            let t_s = seconds(last.time_ns);
            for member in self.members.values_mut() {
                member.cohort.snapshot(t_s, snapshot);
                // The agent needs ages only.
                member.cohort.episodes.clear();
            }
            self.sampled_s = Some(t_s);
        }
        self.pending = rest.to_vec();
        Ok(())
    }

    /// Idle ages and working sets of a cgroup at the last sample; `None` before the first.
    pub fn picture(&mut self, inode: u64) -> Option<Picture> {
        let (sampled_s, member) = (self.sampled_s?, self.members.get_mut(&inode)?);
        (!member.cohort.cohort.is_empty()).then(|| member.cohort.picture(sampled_s, &member.target))
    }

    /// Seconds that may pass before a page that is new is found.
    pub fn pause_s(&self) -> f64 {
        self.pause_s
    }

    /// CPU seconds of the kdamond so far.
    pub fn kdamond_s(&mut self) -> f64 {
        let now_s = self.kdamond.and_then(|pid| proc::cpu_seconds(&self.kernel, pid).ok());
        self.kdamond_s = now_s.map_or(self.kdamond_s, |now_s| now_s.max(self.kdamond_s));
        self.kdamond_s
    }
}

/// Seconds from a walk that took so much CPU time to the next, if walks may take `price`, a share of one CPU.
fn pause_s(cpu_s: f64, price: f64) -> f64 {
    (cpu_s / price).max(WALK_S)
}

/// A time of the kernel's trace, as [`Kernel::awake_s`].
fn seconds(monotonic_ns: u64) -> f64 {
    float(monotonic_ns) / 1e9
}

/// A cgroup as a cohort needs it: its processes, and what is charged to it, shared memory with the anonymous as on the
/// kernel's lists.
fn target(kernel: &Kernel, cgroup: &Cgroup) -> Result<Target> {
    let charges = cgroup.charges(kernel)?;
    let [anon, file, shared, mapped] =
        [charges.anon_bytes, charges.file_bytes, charges.shmem_bytes, charges.mapped_file_bytes]
            .map(|bytes| bytes.unwrap_or(0.0));
    let files = (file - shared).max(0.0);
    Ok(Target {
        pids: cgroup.pids(kernel)?,
        cgroups: vec![cgroup.clone()],
        // Shared memory is among what is mapped.
        totals: [anon + shared, mapped.min(files), files],
        exact: [true, false, true],
        mapped: Some(mapped),
        ..Target::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_take_no_more_than_their_price() {
        assert_eq!([0.001, 0.025, 0.1].map(|cpu_s| pause_s(cpu_s, 0.005)), [5.0, 5.0, 20.0]);
    }
}
