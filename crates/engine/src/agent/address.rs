//! Reclaim by ranges of addresses, where the kernel neither ages nor evicts a workload's memory by cgroup (cgroups of version 1,
//! kernels without the multi-generational LRU): idle ages from accessed bits, mapping by mapping, and advice on ranges.
//!
//! A request to reclaim says how much, and how long idle; it does not say where that is. So it becomes a goal, and the operator
//! of schemes searches for it in small blocks over some turns: a block that is refaulted was in use.

mod schemes;
mod site;
mod walk;

use std::collections::BTreeMap;
use std::path::Path;

use lowtide_kernel::advise::{AdviceRequest, Adviser};
use lowtide_kernel::cgroup::{Cgroup, Version};
use lowtide_kernel::root::{Kernel, Result};
use lowtide_kernel::sys;
use lowtide_model::cohort::AgeBin;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;
use lowtide_policy::machine::{Reclaim, Reclaimed, RegionObservation};
use lowtide_policy::schemes::settings::Regions;

use self::schemes::{Advised, WorkloadSchemes};
use self::walk::Walk;
use crate::event::ReclaimOutcome;

/// Time between two steps towards a goal, seconds: a block in use is refaulted by then.
const STEP_S: f64 = 1.0;
/// What could not be sampled is sampled again after so many seconds.
const RETRY_S: f64 = 10.0;

/// The machine at a step, and what may be done.
#[derive(Debug, Clone, Copy)]
pub struct StepContext<'a> {
    /// Now, seconds.
    pub now_s: f64,
    /// Share of the time that some task stalled on memory.
    pub pressure: Option<f64>,
    /// Bytes of swap that are free.
    pub swap_free: Option<u64>,
    /// Nothing is reclaimed while this file is there.
    pub stop_file: &'a Path,
    /// Nothing is advised.
    pub dry_run: bool,
}

impl StepContext<'_> {
    fn frame(&self) -> RegionObservation {
        let Self { now_s, pressure, swap_free, .. } = *self;
        RegionObservation { now_s, pressure, swap_free, ..RegionObservation::default() }
    }
}

/// The result of one step towards a goal; with the request and its complete result, if it was the last.
pub type Step = (Reclaimed, Option<(Reclaim, ReclaimOutcome)>);

/// All such workloads.
#[derive(Debug)]
pub struct AddressReclaim {
    kernel: Kernel,
    windows_s: Vec<u32>,
    walks: BTreeMap<TargetId, Walk>,
}

/// Whether processes can be sampled and advised on here. Fails with the reason if not.
pub fn check(kernel: &Kernel) -> Result<()> {
    kernel.check_writable("/proc/1/clear_refs")?;
    let own = std::process::id();
    Adviser::new(kernel)
        .advise(own, &AdviceRequest { ranges: &[], advice: sys::Advice::Pageout, keep: None }, || true)
        .map(|_| ())
}

impl AddressReclaim {
    /// None yet. Ages are sampled at these windows.
    pub fn new(kernel: &Kernel, windows_s: &[u32]) -> Self {
        Self { kernel: kernel.clone(), windows_s: windows_s.to_vec(), walks: BTreeMap::new() }
    }

    /// Whether a workload is one of these, and nothing else evicts of it.
    pub fn reclaims(&self, id: TargetId) -> bool {
        self.walks.get(&id).is_some_and(|walk| walk.cgroup.version == Version::V1)
    }

    /// Samples these cgroups from now on, some of them for schemes; those that stay keep their state. Fails if a process cannot
    /// be sampled.
    pub fn follow(&mut self, cgroups: &[(Cgroup, Option<Regions>)], now_s: f64) -> Result<()> {
        let mut before = std::mem::take(&mut self.walks);
        let walks = cgroups.iter().map(|(cgroup, regions)| {
            let id = TargetId::Cgroup(cgroup.inode);
            let mut walk = match before.remove(&id) {
                Some(walk) => walk,
                None => Walk::new(&self.kernel, cgroup, &self.windows_s, now_s)?,
            };
            walk.schemes = regions.as_ref().map(|regions| {
                let same = walk.schemes.take().filter(|schemes| schemes.regions == *regions);
                same.unwrap_or_else(|| WorkloadSchemes::new(regions, cgroup.inode))
            });
            Ok((id, walk))
        });
        // Collected: a map that is filled one by one is half empty.
        self.walks = walks.collect::<Result<BTreeMap<_, _>>>()?;
        Ok(())
    }

    /// When there is something to do next.
    pub fn due_s(&self) -> f64 {
        self.walks.values().map(Walk::due_s).fold(f64::INFINITY, f64::min)
    }

    /// Whether a step towards some goal, or of schemes, is due.
    pub fn is_due(&self, now_s: f64) -> bool {
        self.walks.values().any(|walk| walk.is_searching() && now_s >= walk.step_s)
    }

    /// Lets the schemes that are due decide and act. What each did, by workload.
    pub fn apply(&mut self, context: &StepContext<'_>) -> Vec<(TargetId, Advised)> {
        let now_s = context.now_s;
        let due = self.walks.iter_mut().filter(|(_, walk)| walk.schemes.is_some() && now_s >= walk.step_s);
        let applied = due.filter_map(|(id, walk)| {
            walk.step_s = now_s + STEP_S;
            if context.dry_run { None } else { Some((*id, walk.apply(&self.kernel, context)?)) }
        });
        applied.collect()
    }

    /// Samples what is due, at this share of one CPU for all workloads together: rounds wait where it takes more. Idle ages
    /// of workloads whose round is complete, and what could not be sampled.
    pub fn sample(&mut self, now_s: f64, price: f64) -> Vec<(TargetId, Result<Vec<AgeBin>>)> {
        let price = price / float(self.walks.len().max(1));
        let mut all = Vec::new();
        for (id, walk) in self.walks.iter_mut().filter(|(_, walk)| now_s >= walk.sample_due_s()) {
            let ages = walk.sample(&self.kernel, now_s, price);
            if ages.is_err() {
                walk.retry_s = now_s + RETRY_S;
            }
            all.extend(ages.transpose().map(|ages| (*id, ages)));
        }
        all
    }

    /// Takes a request; the goal before it, if it was not reached, is given up.
    pub fn want(&mut self, wanted: &Reclaim, now_s: f64) {
        if let Some(walk) = self.walks.get_mut(&wanted.target) {
            walk.want(wanted, now_s);
        }
    }

    /// Gives up goals of workloads of which it is known anew what has been idle for as long as the goal asks.
    pub fn give_up(&mut self, longest_s: impl Fn(TargetId) -> Option<f64>) -> Vec<(Reclaim, ReclaimOutcome)> {
        let is_old =
            |id: TargetId, walk: &Walk| longest_s(id).zip(walk.age_s()).is_some_and(|(longest, age)| longest >= age);
        let walks = self.walks.iter_mut().filter(|(id, walk)| is_old(**id, walk));
        walks.filter_map(|(_, walk)| walk.end("what was not found by now is not searched for any more")).collect()
    }

    /// Steps towards the goals that are due.
    pub fn step(&mut self, context: &StepContext<'_>) -> Vec<Step> {
        let due = self.walks.values_mut().filter(|walk| walk.goal.is_some() && context.now_s >= walk.step_s);
        due.filter_map(|walk| {
            let reclaimed = walk.step(&self.kernel, context)?;
            walk.step_s = context.now_s + STEP_S;
            let ended = walk.over(context.now_s).and_then(|why| walk.end(why));
            if ended.is_some() {
                // Descriptors of processes are few.
                walk.adviser = Adviser::new(&self.kernel);
            }
            Some((reclaimed, ended))
        })
        .collect()
    }
}
