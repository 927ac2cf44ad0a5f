//! Reclaim from a cgroup: in small pieces, with a reading of its pressure before each.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lowtide_kernel::cgroup::Vitals;
use lowtide_kernel::reclaim::{BATCH, CgroupReclaimer};
use lowtide_kernel::root::Kernel;
use lowtide_model::PAGE;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::{float, integer};
use lowtide_policy::machine::{Reclaim, Reclaimed};

use crate::event::ReclaimOutcome;
use crate::workloads::Workload;

/// Bytes of one piece, so that pressure can be read in between.
const PIECE: u64 = 32 << 20;
/// All of one turn takes no longer: others want theirs.
const TURN: Duration = Duration::from_secs(2);
/// A task that has stalled for more than this share of the time that reclaiming took so far ends it.
const PRESSURE: f64 = 0.1;
/// Shorter stalls are noise: the kernel counts them in pieces.
const STALLED_S: f64 = 0.02;

/// Reclaims from cgroups.
#[derive(Debug)]
pub struct CgroupReclaim {
    /// The kernel.
    pub kernel: Kernel,
    reclaimer: CgroupReclaimer,
    stop_file: PathBuf,
    /// Nothing may be reclaimed.
    pub dry_run: bool,
    until: Instant,
    /// CPU seconds of evicting so far.
    pub cpu_s: f64,
}

impl CgroupReclaim {
    /// For this kernel.
    pub fn new(kernel: &Kernel, stop_file: PathBuf, dry_run: bool) -> Self {
        let until = Instant::now();
        Self { kernel: kernel.clone(), reclaimer: CgroupReclaimer::new(kernel), stop_file, dry_run, until, cpu_s: 0.0 }
    }

    /// A turn begins.
    pub fn begin(&mut self) {
        self.until = Instant::now() + TURN;
    }

    /// Whether the stop file is there.
    pub fn is_stopped(&self) -> bool {
        is_there(&self.stop_file)
    }

    /// Whether advice on processes may go on: the same turn, and nobody has stopped it.
    pub fn may_go_on_processes(&self) -> bool {
        Instant::now() < self.until && !self.is_stopped()
    }

    /// Carries out one request.
    pub fn reclaim(
        &mut self,
        workload: &mut Workload,
        wanted: &Reclaim,
        zram: impl Fn() -> Option<(u64, u64)>,
    ) -> ReclaimOutcome {
        let mut outcome = ReclaimOutcome {
            reclaimed: Reclaimed { target: wanted.target, ..Reclaimed::default() },
            ..ReclaimOutcome::default()
        };
        if self.dry_run {
            outcome.stopped = Some("dry run".to_owned());
            return outcome;
        }
        let (start, cpu_s, stored) = (Instant::now(), self.kernel.thread_cpu_s(), zram());
        // Files first: to drop them needs no room in swap.
        let bytes = &mut outcome.reclaimed.bytes;
        let mut kinds = [Kind::File, Kind::Anon].into_iter();
        outcome.stopped = kinds.try_for_each(|kind| self.reclaim_kind(workload, (kind, wanted), start, bytes)).err();
        outcome.by = self.reclaimer.interface();
        outcome.reclaimed.cpu_s = self.kernel.thread_cpu_s() - cpu_s;
        self.cpu_s += outcome.reclaimed.cpu_s;
        outcome.took_s = start.elapsed().as_secs_f64();
        if let (Some(before), Some(after)) = (stored, zram()) {
            workload.totals.zram.learn(before, after);
        }
        outcome
    }

    /// Reclaims memory of one kind, piece by piece. The reason if it must stop.
    fn reclaim_kind(
        &mut self,
        workload: &mut Workload,
        (kind, wanted): (Kind, &Reclaim),
        start: Instant,
        bytes: &mut PerKind<f64>,
    ) -> Result<(), String> {
        let older_s = wanted.older_s[kind].unwrap_or(0.0);
        let mut left = integer(wanted.bytes[kind]) / PAGE * PAGE;
        // The kernel evicts at least a batch: of less idle memory, pages in use would go, too.
        if older_s > 0.0 && left < BATCH {
            return Ok(());
        }
        while left > 0 {
            let before = self.may_go_on(workload, start)?;
            let asked = left.min(PIECE);
            let reclaimed = self.reclaimer.reclaim(&workload.cgroup, asked, kind, older_s);
            let Ok(after) = workload.cgroup.vitals(&self.kernel) else { break };
            workload.except(&before, &after);
            let complete = reclaimed.map_err(|error| error.to_string())?;
            let evicted = evicted(&before, &after, kind);
            *bytes += evicted;
            // The kernel may report success and evict nothing; it reports an error if it evicted less.
            if !complete || evicted == PerKind::default() {
                break;
            }
            left -= asked;
        }
        Ok(())
    }

    /// The cgroup as it is, or why nothing more is to be taken.
    fn may_go_on(&self, workload: &Workload, start: Instant) -> Result<Vitals, String> {
        if Instant::now() >= self.until {
            return Err("the turn is over".to_owned());
        }
        if self.is_stopped() {
            return Err(format!("{} is there", self.stop_file.display()));
        }
        let vitals = workload.cgroup.vitals(&self.kernel).map_err(|error| error.to_string())?;
        let stalled_s = vitals.memory_some_s.zip(workload.now.memory_some_s).map_or(0.0, |(now, before)| now - before);
        // Stalls since the last observation, over the time that reclaiming took: more than it can have caused is enough.
        if stalled_s > STALLED_S && stalled_s > PRESSURE * start.elapsed().as_secs_f64() {
            return Err(format!("tasks of it stalled for {:.0} ms", 1e3 * stalled_s));
        }
        Ok(vitals)
    }
}

/// Whether the stop file is there. One that cannot be read counts.
pub(super) fn is_there(stop_file: &Path) -> bool {
    !matches!(std::fs::symlink_metadata(stop_file), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}

/// Bytes evicted between two readings, by the kernel's own count: refaults do not lower it.
fn evicted(before: &Vitals, after: &Vitals, kind: Kind) -> PerKind<f64> {
    let stolen = float(after.stolen.saturating_sub(before.stolen) * PAGE);
    let paged_out = float(after.swapped.saturating_sub(before.swapped)).min(stolen);
    let less_file = float(before.resident.file.saturating_sub(after.resident.file));
    // Where anonymous memory was asked for, a kernel that cannot choose evicts file memory, too.
    if kind == Kind::Anon && less_file < 0.5 * stolen {
        return PerKind { anon: stolen, file: 0.0 };
    }
    PerKind { anon: paged_out, file: stolen - paged_out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicted_bytes_are_the_kernels_count() {
        let vitals = |resident: [u64; 2], swapped, stolen| Vitals {
            resident: resident.into(),
            swapped,
            stolen,
            ..Vitals::default()
        };
        let before = vitals([100 * PAGE, 50 * PAGE], 0, 10);
        assert_eq!(
            evicted(&before, &vitals([100 * PAGE, 30 * PAGE], 0, 30), Kind::File),
            [0.0, float(20 * PAGE)].into()
        );
        // Three pages of twenty came back at once.
        assert_eq!(
            evicted(&before, &vitals([83 * PAGE, 50 * PAGE], 17 * PAGE, 30), Kind::Anon),
            [float(20 * PAGE), 0.0].into()
        );
        // A kernel that takes no wishes.
        assert_eq!(
            evicted(&before, &vitals([95 * PAGE, 35 * PAGE], 5 * PAGE, 30), Kind::Anon),
            [float(5 * PAGE), float(15 * PAGE)].into()
        );
    }
}
