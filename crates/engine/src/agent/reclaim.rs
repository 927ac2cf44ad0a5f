//! Reclaim from a cgroup: in small pieces, with a reading of its pressure before each.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lowtide_kernel::cgroup::Vitals;
use lowtide_kernel::reclaim::{BATCH, CgroupReclaimer};
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys;
use lowtide_model::PAGE;
use lowtide_model::kind::Kind;
use lowtide_model::units::{float, integer};
use lowtide_policy::machine::{Reclaim, Reclaimed};

use crate::event::Outcome;
use crate::workloads::Workload;

/// Bytes of one piece, so that pressure can be read in between.
const PIECE: u64 = 32 << 20;
/// All of one turn takes no longer: others want theirs.
const TURN: Duration = Duration::from_secs(2);
/// A task that has stalled for more than this share of the time that reclaiming took so far ends it.
const PRESSURE: f64 = 0.1;
/// Stalls of less than this say nothing: they are counted in pieces.
const STALLED_S: f64 = 0.02;

/// Reclaims from cgroups.
#[derive(Debug)]
pub struct CgroupReclaim {
    kernel: Kernel,
    reclaimer: CgroupReclaimer,
    stop_file: PathBuf,
    dry_run: bool,
    until: Instant,
    /// CPU seconds of evicting so far.
    pub cpu_s: f64,
}

impl CgroupReclaim {
    /// For this kernel.
    #[must_use]
    pub fn new(kernel: &Kernel, stop_file: PathBuf, dry_run: bool) -> Self {
        let until = Instant::now();
        Self { kernel: kernel.clone(), reclaimer: CgroupReclaimer::new(kernel), stop_file, dry_run, until, cpu_s: 0.0 }
    }

    /// The kernel.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// A turn begins.
    pub fn begin(&mut self) {
        self.until = Instant::now() + TURN;
    }

    /// Whether somebody wants that nothing is taken.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        is_there(&self.stop_file)
    }

    /// Whether nothing may be touched.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether advice on processes may go on: the same turn, and nobody has stopped it.
    #[must_use]
    pub fn may_go_on_processes(&self) -> bool {
        Instant::now() < self.until && !self.is_stopped()
    }

    /// Carries out one request.
    pub fn reclaim(
        &mut self,
        workload: &mut Workload,
        wanted: &Reclaim,
        zram: impl Fn() -> Option<(u64, u64)>,
    ) -> Outcome {
        let mut outcome =
            Outcome { reclaimed: Reclaimed { target: wanted.target, ..Reclaimed::default() }, ..Outcome::default() };
        if self.dry_run {
            outcome.stopped = Some("dry run".to_owned());
            return outcome;
        }
        let (start, cpu_s, stored) = (Instant::now(), sys::thread_cpu_s(), zram());
        // Files first: to drop them needs no room in swap.
        for kind in [Kind::File, Kind::Anon] {
            if outcome.stopped.is_none() {
                let older_s = wanted.older_s[kind].unwrap_or(0.0);
                self.side(workload, (kind, wanted.bytes[kind], older_s), start, &mut outcome);
            }
        }
        outcome.reclaimed.cpu_s = sys::thread_cpu_s() - cpu_s;
        self.cpu_s += outcome.reclaimed.cpu_s;
        outcome.took_s = start.elapsed().as_secs_f64();
        if let (Some(before), Some(after)) = (stored, zram()) {
            learn(&mut workload.kept, before, after);
        }
        outcome
    }

    fn side(
        &mut self,
        workload: &mut Workload,
        (side, wanted, older_s): (Kind, f64, f64),
        start: Instant,
        outcome: &mut Outcome,
    ) {
        let mut left = integer(wanted) / PAGE * PAGE;
        // What is in use would go with so little that is idle: it is left until there is more of it.
        if older_s > 0.0 && left < BATCH {
            return;
        }
        while left > 0 {
            let before = match self.may_go_on(workload, start) {
                Ok(vitals) => vitals,
                Err(why) => {
                    outcome.stopped = Some(why);
                    return;
                }
            };
            let asked = left.min(PIECE);
            let whole = self.reclaimer.reclaim(&workload.cgroup, asked, side, older_s);
            let Ok(after) = workload.cgroup.vitals(&self.kernel) else { return };
            workload.except(&before, &after);
            let whole = match whole {
                Ok(whole) => whole,
                Err(error) => {
                    outcome.stopped = Some(error.to_string());
                    return;
                }
            };
            let went = went(&before, &after, side);
            outcome.reclaimed.bytes += went.into();
            // It may say yes and do nothing; it says so if it did less.
            if !whole || went == [0.0; 2] {
                return;
            }
            left -= asked;
        }
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

/// Whether the file that stops everything is there. One that cannot be looked at may be.
pub(super) fn is_there(stop_file: &Path) -> bool {
    !matches!(std::fs::symlink_metadata(stop_file), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}

/// Bytes that went between two readings. What came back meanwhile is not missing in the kernel's count of what it took.
fn went(before: &Vitals, after: &Vitals, side: Kind) -> [f64; 2] {
    let stolen = float(after.stolen.saturating_sub(before.stolen) * PAGE);
    let paged_out = float(after.swapped.saturating_sub(before.swapped)).min(stolen);
    match side {
        Kind::File => [paged_out, stolen - paged_out],
        // Anonymous memory was asked for; where the kernel takes no such wish, part of it is file memory.
        Kind::Anon if float(before.resident.file.saturating_sub(after.resident.file)) < 0.5 * stolen => [stolen, 0.0],
        Kind::Anon => [paged_out, stolen - paged_out],
    }
}

/// Bytes that must have gone to zram for what they take there to say something.
const TELLING: u64 = 1 << 20;

/// What a byte takes in zram, from what zram held and took before and after; the newest counts for half.
pub(super) fn learn(kept: &mut Option<f64>, before: (u64, u64), after: (u64, u64)) {
    let stored = after.0.saturating_sub(before.0);
    if stored < TELLING {
        return;
    }
    let now = float(after.1.saturating_sub(before.1)) / float(stored);
    *kept = Some(kept.map_or(now, |kept| 0.5 * (kept + now)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_is_told_by_the_kernels_count() {
        let vitals = |resident: [u64; 2], swapped, stolen| Vitals {
            resident: resident.into(),
            swapped,
            stolen,
            ..Vitals::default()
        };
        let before = vitals([100 * PAGE, 50 * PAGE], 0, 10);
        assert_eq!(went(&before, &vitals([100 * PAGE, 30 * PAGE], 0, 30), Kind::File), [0.0, float(20 * PAGE)]);
        // Three pages of twenty came back at once.
        assert_eq!(went(&before, &vitals([83 * PAGE, 50 * PAGE], 17 * PAGE, 30), Kind::Anon), [float(20 * PAGE), 0.0]);
        // A kernel that takes no wishes.
        assert_eq!(
            went(&before, &vitals([95 * PAGE, 35 * PAGE], 5 * PAGE, 30), Kind::Anon),
            [float(5 * PAGE), float(15 * PAGE)]
        );
    }

    #[test]
    fn how_far_memory_compresses_is_learnt() {
        let mut kept = None;
        learn(&mut kept, (0, 0), (4096, 4096));
        assert_eq!(kept, None);
        learn(&mut kept, (0, 0), (4 << 20, 1 << 20));
        assert_eq!(kept, Some(0.25));
        learn(&mut kept, (4 << 20, 1 << 20), (8 << 20, 5 << 20));
        assert_eq!(kept, Some(0.625));
    }
}
