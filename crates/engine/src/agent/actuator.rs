//! The agent as the actuator of its policies.

use std::time::Instant;

use lowtide_kernel::{sys, zram};
use lowtide_model::target::TargetId;
use lowtide_policy::machine::{Actuator, Reclaim, Reclaimed, WorkloadAction};

use super::Sinks;
use super::address::AddressReclaim;
use super::background::{Background, Paged, Reach};
use super::grants::Granting;
use super::reclaim::CgroupReclaim;
use crate::event::{Event, Moved};
use crate::workloads::Workloads;

/// Carries out what one policy asks for.
pub(super) struct Hands<'a> {
    pub now_s: f64,
    pub workloads: &'a mut Workloads,
    pub reclaim: &'a mut CgroupReclaim,
    pub address: Option<&'a mut AddressReclaim>,
    pub background: &'a mut Background,
    pub granting: &'a mut Granting,
    pub sinks: &'a mut Sinks,
    /// What came of requests, for the policy's next turn.
    pub reclaimed: Vec<Reclaimed>,
}

impl Actuator<WorkloadAction> for Hands<'_> {
    fn carry_out(&mut self, actions: Vec<WorkloadAction>) {
        for action in actions {
            match &action {
                WorkloadAction::Reclaim(wanted) => self.take(wanted),
                WorkloadAction::PageOut { target, reason } => self.turn_over(*target, true, reason),
                WorkloadAction::Fetch { target, reason } => self.turn_over(*target, false, reason),
                WorkloadAction::Protect { target, reason, .. }
                | WorkloadAction::Pause { target, reason, .. }
                | WorkloadAction::Release { target, reason } => self.grant(*target, &action, reason),
            }
        }
        // Last: what is granted again must not be taken back because the turn before took long.
        self.granting.expire(self.now_s);
    }
}

impl Hands<'_> {
    /// Reclaims from a workload: at once by its cgroup, or else in steps by addresses.
    fn take(&mut self, wanted: &Reclaim) {
        let dry_run = self.reclaim.is_dry_run();
        if let Some(address) = self.address.as_mut().filter(|address| !dry_run && address.reclaims(wanted.target)) {
            address.want(wanted, self.now_s);
            return;
        }
        let kernel = self.reclaim.kernel().clone();
        let Some(workload) = self.workloads.get_mut(wanted.target) else { return };
        // Nothing reclaims from one process of a cgroup; what is paused is what the kernel takes first.
        if workload.process.is_some() {
            return;
        }
        let outcome = self.reclaim.reclaim(workload, wanted, || zram::in_use(&kernel).map(|of| (of.original, of.used)));
        workload.count(&outcome);
        self.sinks.publish(self.now_s, &Event::Reclaimed(workload, wanted, &outcome));
        self.reclaimed.push(outcome.reclaimed);
    }

    /// Has one protected, or paused, or be as it was.
    fn grant(&mut self, id: TargetId, action: &WorkloadAction, reason: &str) {
        let Some(workload) = self.workloads.all().get(&id) else { return };
        if let Some(granted) = self.granting.act(workload, action, self.now_s) {
            self.sinks.publish(self.now_s, &Event::Granted(workload, &granted, reason));
        }
    }

    /// Pages out what went to the background, or fetches it again.
    fn turn_over(&mut self, id: TargetId, away: bool, reason: &str) {
        let workload = self.workloads.all().get(&id);
        let name = workload.map(|workload| workload.path.clone()).or_else(|| self.background.name(id));
        let of = workload.map(|workload| (&workload.cgroup, workload.process));
        let (start, cpu_s, dry_run) = (Instant::now(), sys::thread_cpu_s(), self.reclaim.is_dry_run());
        let (reclaim, workloads) = (&*self.reclaim, &*self.workloads);
        let reach = Reach { may: &|path| !workloads.is_excluded(path), go_on: &|| reclaim.may_go_on_processes() };
        let done = match (dry_run, away) {
            (true, _) => Ok(Paged::default()),
            (false, true) => self.background.page_out(id, of, &reach),
            (false, false) => self.background.fetch(id, of, &reach),
        };
        self.reclaim.cpu_s += sys::thread_cpu_s() - cpu_s;
        if !away {
            self.background.forget(id);
        }
        let error = done.as_ref().err().map(ToString::to_string);
        let Paged { anon, file, processes } = done.unwrap_or_default();
        let moved = Moved {
            id,
            name: &name.unwrap_or_default(),
            away,
            bytes: [anon, file],
            processes,
            took_s: start.elapsed().as_secs_f64(),
            reason,
            error,
            dry_run,
        };
        self.sinks.publish(self.now_s, &Event::Moved(&moved));
    }
}
