//! Huge pages that hold mostly zeros: programs that use a little of much memory are larger with huge pages than with small ones.
//! The kernel splits such pages and frees their zeros where it reclaims memory (Linux 6.12). Where a sample shows that there
//! are some, a small request to reclaim has it do that; where that splits none, the next comes later each time.

use std::collections::BTreeMap;

use lowtide_kernel::cgroup::Version;
use lowtide_kernel::huge::{mappings, split_emptier};
use lowtide_kernel::root::{Kernel, Result};
use lowtide_kernel::undo::{self, Journal, Lease};
use lowtide_model::kind::PerKind;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;
use lowtide_policy::machine::Reclaim;

use super::config::HugePages;
use super::reclaim::CgroupReclaim;
use crate::event::{ActionEvent, ActionKind};
use crate::huge_zeros::ZeroSampler;
use crate::workloads::{Huge, Workload};

/// A workload with less in huge pages, bytes, or with fewer zeros in them, is left alone: there is little to gain.
const LEAST: f64 = 16_777_216.0;
/// Zeros are sampled so long after huge pages were noticed, seconds: memory that is new may be about to be filled.
const FIRST_S: f64 = 10.0;
/// They are sampled so often, seconds; less often where a sample takes more than this share of a CPU, as page tables are long.
const EVERY_S: f64 = 60.0;
const PRICE: f64 = 0.001;
/// Where nothing was split, the wait doubles up to this, seconds.
const LONGEST_S: f64 = 3600.0;
/// Bytes of one request, and requests of one attempt: the kernel looks for huge pages once it finds nothing else easily.
const REQUEST: f64 = 2_097_152.0;
const REQUESTS: u32 = 4;

/// What is known of one workload.
#[derive(Debug)]
struct Watched {
    zeros: ZeroSampler,
    due_s: f64,
    wait_s: f64,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SplitOutcome {
    /// Bytes that were freed: not what was evicted beside.
    freed: f64,
    took_s: f64,
    reason: String,
    stopped: Option<String>,
}

impl SplitOutcome {
    /// It as an event.
    pub fn event<'a>(&'a self, workload: &'a Workload) -> ActionEvent<'a> {
        ActionEvent {
            bytes: PerKind { anon: self.freed, file: 0.0 },
            by: "memory.reclaim",
            took_s: self.took_s,
            reason: &self.reason,
            stopped: self.stopped.clone(),
            ..ActionEvent::on(ActionKind::Split, workload)
        }
    }
}

/// Splits huge pages that are mostly empty.
#[derive(Debug)]
pub(super) struct Splitter {
    /// What it was made by.
    pub settings: HugePages,
    kernel: Kernel,
    watched: BTreeMap<TargetId, Watched>,
    /// The kernel's own settings come back when it ends.
    _leases: Option<[Lease; 2]>,
}

impl Splitter {
    /// One with these settings. Fails if this kernel splits none.
    pub fn new(kernel: &Kernel, settings: HugePages, dry_run: bool) -> Result<Self> {
        let lend = || split_emptier(&Journal::open(kernel.clone(), &undo::folder())?, settings.most_empty.0);
        let leases = if dry_run { None } else { Some(lend()?) };
        Ok(Self { settings, kernel: kernel.clone(), watched: BTreeMap::new(), _leases: leases })
    }

    /// The workload that is due, if there is one: one a turn, as a sample walks its page tables.
    pub fn due(&mut self, workloads: &BTreeMap<TargetId, Workload>, now_s: f64) -> Option<TargetId> {
        let has_some =
            |of: &Workload| of.process.is_none() && of.cgroup.version == Version::V2 && float(of.now.huge) >= LEAST;
        self.watched.retain(|id, _| workloads.get(id).is_some_and(has_some));
        for (id, workload) in workloads.iter().filter(|(_, workload)| has_some(workload)) {
            let zeros = ZeroSampler::new(workload.cgroup.inode, EVERY_S);
            self.watched.entry(*id).or_insert(Watched { zeros, due_s: now_s + FIRST_S, wait_s: EVERY_S });
        }
        self.watched.iter().find(|(_, watched)| now_s >= watched.due_s).map(|(id, _)| *id)
    }

    /// Samples one workload, and has mostly empty pages split if there are any.
    pub fn step(
        &mut self,
        workload: &mut Workload,
        reclaim: &mut CgroupReclaim,
        (now_s, swap): (f64, bool),
    ) -> Option<SplitOutcome> {
        let watched = self.watched.get_mut(&workload.id())?;
        let cpu_s = self.kernel.thread_cpu_s();
        let pids = workload.cgroup.pids(&self.kernel).unwrap_or_default();
        // A process that ended meanwhile has none.
        let all = pids
            .iter()
            .flat_map(|pid| mappings(&self.kernel, *pid).unwrap_or_default().into_iter().map(|of| (*pid, of)));
        let share = watched.zeros.sample(&self.kernel, now_s, &all.collect::<Vec<_>>()).unwrap_or(0.0);
        watched.due_s = now_s + watched.wait_s.max((self.kernel.thread_cpu_s() - cpu_s) / PRICE);
        let bytes = float(workload.now.huge);
        let zero = share * bytes;
        workload.huge = Some(Huge { bytes, zero });
        if zero < LEAST {
            watched.wait_s = EVERY_S;
            return None;
        }
        let outcome = split(workload, (zero, swap), reclaim);
        let worked = outcome.freed >= LEAST.min(0.25 * zero);
        watched.wait_s = if worked { EVERY_S } else { (2.0 * watched.wait_s).min(LONGEST_S) };
        watched.due_s = watched.due_s.max(now_s + watched.wait_s);
        Some(outcome)
    }
}

/// Asks for a little memory until the kernel has split huge pages.
fn split(workload: &mut Workload, (zero, swap): (f64, bool), reclaim: &mut CgroupReclaim) -> SplitOutcome {
    let kernel = reclaim.kernel.clone();
    let huge = float(workload.now.huge);
    let reason =
        format!("{:.0} % of {:.0} MiB in huge pages holds only zeros", 100.0 * zero / huge, huge / 1_048_576.0);
    // Nothing has to be evicted: where there is no swap, the request is for files.
    let bytes = if swap { PerKind { anon: REQUEST, file: 0.0 } } else { PerKind { anon: 0.0, file: REQUEST } };
    let older_s = PerKind { anon: Some(0.0), file: Some(0.0) };
    let wanted = Reclaim { target: workload.id(), bytes, older_s, reason: reason.clone() };
    let (before, mut evicted) = (workload.now, PerKind::default());
    let (mut took_s, mut stopped) = (0.0, None);
    for _ in 0..REQUESTS {
        let outcome = reclaim.reclaim(workload, &wanted, || None);
        evicted += outcome.reclaimed.bytes;
        (took_s, stopped) = (took_s + outcome.took_s, outcome.stopped);
        let Ok(vitals) = workload.vitals(&kernel) else { break };
        workload.now = vitals;
        if stopped.is_some() || float(before.huge.saturating_sub(vitals.huge)) >= 0.5 * zero {
            break;
        }
    }
    let less = float(before.resident.anon.saturating_sub(workload.now.resident.anon));
    SplitOutcome { freed: (less - evicted.anon).max(0.0), took_s, reason, stopped }
}
