//! A workload's memory as operation schemes see it: candidates in, advice out.

use lowtide_kernel::advise::Adviser;
use lowtide_kernel::cgroup::{Cgroup, is_below};
use lowtide_kernel::root::Kernel;
use lowtide_policy::machine::{Actuator, RegionAction};

use crate::schemes::worker::{Brake, Job, Turn, work};

/// The workload's memory as the schemes' operator sees it.
pub(super) struct Site<'a> {
    pub kernel: &'a Kernel,
    pub cgroup: &'a Cgroup,
    pub adviser: &'a mut Adviser,
    pub brake: Brake,
    pub turn: Turn,
}

impl Site<'_> {
    /// Whether a process is held, and still one of the workload's: numbers are given again.
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
