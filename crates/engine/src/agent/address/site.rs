//! A workload's memory for the operator of schemes: candidates in, advice out.

use std::path::Path;
use std::time::{Duration, Instant};

use lowtide_kernel::advise::Adviser;
use lowtide_kernel::cgroup::{Cgroup, is_below};
use lowtide_kernel::root::Kernel;
use lowtide_policy::machine::{Actuator, RegionAction, RegionObservation, turn};
use lowtide_policy::schemes::{Operator, SchemeLimits};

use super::super::reclaim::is_there;
use crate::schemes::worker::{BatchBrake, Job, Turn, work};

/// One step takes no longer.
const STEP: Duration = Duration::from_secs(1);
/// Stalls of the machine, as these cgroups have no pressure of their own.
const PRESSURE_FILE: &str = "/proc/pressure/memory";

/// An operator, and the results of its last step.
#[derive(Debug)]
pub(super) struct Steps {
    pub operator: Operator,
    last: Turn,
}

impl Steps {
    pub fn new(operator: Operator) -> Self {
        Self { operator, last: Turn::default() }
    }

    /// One step: decides from this frame and the last results, and advises.
    pub fn step(&mut self, frame: RegionObservation, mut site: Site<'_>) -> &Turn {
        let Turn { reports, back, .. } = std::mem::take(&mut self.last);
        let done = reports.into_iter().map(|report| report.done).collect();
        turn(&mut self.operator, &RegionObservation { back, done, ..frame }, &mut site);
        self.last = site.turn;
        &self.last
    }
}

/// The actuator on a workload's memory.
pub(super) struct Site<'a> {
    pub kernel: &'a Kernel,
    cgroup: &'a Cgroup,
    adviser: &'a mut Adviser,
    /// Ends a step: stalls, its time, the stop file.
    brake: BatchBrake,
    turn: Turn,
}

impl<'a> Site<'a> {
    pub fn new(kernel: &'a Kernel, cgroup: &'a Cgroup, adviser: &'a mut Adviser, stop_file: &Path) -> Self {
        let (start, stop) = (Instant::now(), stop_file.to_path_buf());
        let stopped = move || start.elapsed() > STEP || is_there(&stop);
        let brake = BatchBrake::new(kernel, PRESSURE_FILE, SchemeLimits::default().pressure, stopped);
        Self { kernel, cgroup, adviser, brake, turn: Turn::default() }
    }

    /// Whether a process is held, and still one of the workload's: pids are given again.
    fn is_own(&mut self, pid: u32) -> bool {
        let path = |cgroup: &Cgroup| cgroup.hierarchy_path(self.kernel).ok();
        let held = self.adviser.hold(pid).is_ok();
        let of = Cgroup::of(self.kernel, pid).ok().flatten();
        let below = of.as_ref().and_then(path).zip(path(self.cgroup)).is_some_and(|(of, own)| is_below(&of, &own));
        held && below && self.cgroup.is_alive(self.kernel) && pid != std::process::id()
    }
}

impl Actuator<RegionAction> for Site<'_> {
    fn carry_out(&mut self, actions: Vec<RegionAction>) {
        let mut job = Job::default();
        for action in actions {
            match action {
                RegionAction::Advise(order) if self.is_own(order.pid) => job.orders.push(order),
                RegionAction::Advise(_) => {}
                RegionAction::Count(block) => job.count.push(block),
            }
        }
        self.turn = work(self.adviser, job, &mut self.brake);
    }
}
