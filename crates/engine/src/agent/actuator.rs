//! The actuator of the agent's policies.

use std::time::Instant;

use lowtide_kernel::cgroup::Version;
use lowtide_kernel::zram;
use lowtide_model::kind::PerKind;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;
use lowtide_policy::machine::{Actuator, Reclaim, Reclaimed, WorkloadAction};

use super::Sinks;
use super::address::AddressReclaim;
use super::background::{Background, PageOutRequest, Paged, Reach};
use super::grants::{Granted, Granting};
use super::reclaim::CgroupReclaim;
use crate::event::{ActionEvent, ActionKind, Event};
use crate::workloads::{Workload, Workloads};

/// Carries out what one policy asks for.
pub(super) struct AgentActuator<'a> {
    pub now_s: f64,
    pub workloads: &'a mut Workloads,
    pub reclaim: &'a mut CgroupReclaim,
    pub address: Option<&'a mut AddressReclaim>,
    pub background: &'a mut Background,
    pub granting: &'a mut Granting,
    pub sinks: &'a mut Sinks,
    /// Results of requests, for the policy's next turn.
    pub reclaimed: Vec<Reclaimed>,
}

impl Actuator<WorkloadAction> for AgentActuator<'_> {
    fn carry_out(&mut self, mut actions: Vec<WorkloadAction>) {
        // Who waited runs again before the next one waits.
        actions.sort_by_key(|action| !matches!(action, WorkloadAction::Release { .. }));
        for action in actions {
            self.granting.beat();
            match &action {
                WorkloadAction::Reclaim(wanted) => self.reclaim(wanted),
                WorkloadAction::PageOut { target, bytes, again, reason } => {
                    let amount = PageOutRequest { bytes: *bytes, again: *again };
                    self.page(*target, Some(amount), reason)
                }
                WorkloadAction::Fetch { target, reason } => self.page(*target, None, reason),
                WorkloadAction::Protect { target, reason, .. }
                | WorkloadAction::Limit { target, reason, .. }
                | WorkloadAction::Pause { target, reason, .. }
                | WorkloadAction::Release { target, reason } => self.grant(*target, &action, reason),
            }
        }
        // Last: what is granted again must not be taken back because the turn before took long.
        for id in self.granting.expire(self.now_s) {
            self.workloads.all.get_mut(&id).map(Workload::limited);
        }
    }
}

impl AgentActuator<'_> {
    /// Reclaims from a workload: at once by its cgroup, or else in steps by addresses.
    fn reclaim(&mut self, wanted: &Reclaim) {
        let dry_run = self.reclaim.dry_run;
        if let Some(address) = self.address.as_mut().filter(|address| !dry_run && address.reclaims(wanted.target)) {
            address.want(wanted, self.now_s);
            return;
        }
        let kernel = self.reclaim.kernel.clone();
        let Some(workload) = self.workloads.all.get_mut(&wanted.target) else { return };
        // Nothing reclaims from one process of a cgroup, nor from a cgroup of version 1; what is paused is what the kernel takes
        // first.
        let paused = self.granting.of(wanted.target).paused;
        if workload.process.is_some() || (paused && workload.cgroup.version == Version::V1) {
            return;
        }
        let outcome = self.reclaim.reclaim(workload, wanted, || zram::in_use(&kernel).map(|of| (of.original, of.used)));
        workload.count(&outcome);
        self.sinks.publish(self.now_s, &Event::Acted(&ActionEvent::reclaimed(workload, wanted, &outcome)));
        self.reclaimed.push(outcome.reclaimed);
    }

    /// Protects, limits or pauses a workload, or ends that.
    fn grant(&mut self, id: TargetId, action: &WorkloadAction, reason: &str) {
        let Some(workload) = self.workloads.all.get_mut(&id) else { return };
        let before = self.granting.of(id).limited;
        // The kernel reclaims when a limit is set.
        let cpu_s = self.reclaim.kernel.thread_cpu_s();
        let granted = self.granting.act(workload, action, self.now_s);
        self.reclaim.cpu_s += self.reclaim.kernel.thread_cpu_s() - cpu_s;
        if self.granting.of(id).limited != before {
            workload.limited();
        }
        let Some(Granted { kind, bytes, stopped }) = granted else { return };
        let asked = (bytes > 0.0).then_some(PerKind { anon: bytes, file: 0.0 });
        let action = ActionEvent { asked, reason, stopped, ..ActionEvent::on(kind, workload) };
        self.sinks.publish(self.now_s, &Event::Acted(&action));
    }

    /// Goes on with a fetch that was cut short, if there is one and the turn is not over.
    pub fn fetch_rest(&mut self, id: TargetId) {
        if self.background.is_unfetched(id) && self.reclaim.may_go_on_processes() {
            self.page(id, None, "the turn before was over");
        }
    }

    /// Pages out so much of a target that is in the background, or fetches what of it is paged out.
    fn page(&mut self, id: TargetId, page_out: Option<PageOutRequest>, reason: &str) {
        let kind = if page_out.is_some() { ActionKind::PageOut } else { ActionKind::Fetch };
        let workload = self.workloads.all.get(&id);
        let name = workload.map(|workload| workload.path.clone()).or_else(|| self.background.name(id));
        let of = workload.map(|workload| (&workload.cgroup, workload.process));
        let (start, cpu_s) = (Instant::now(), self.reclaim.kernel.thread_cpu_s());
        let (reclaim, workloads) = (&*self.reclaim, &*self.workloads);
        let reach = Reach { may: &|path| !workloads.is_excluded(path), go_on: &|| reclaim.may_go_on_processes() };
        let done = match page_out {
            _ if reclaim.dry_run => Ok(Paged::default()),
            Some(request) => self.background.page_out((id, request), of, &reach),
            None => self.background.fetch(id, of, &reach),
        };
        self.reclaim.cpu_s += self.reclaim.kernel.thread_cpu_s() - cpu_s;
        let is_cut = kind == ActionKind::Fetch && self.background.is_unfetched(id);
        if kind == ActionKind::Fetch && !is_cut {
            self.background.forget(id);
        }
        let failed = done
            .as_ref()
            .err()
            .map(ToString::to_string)
            .or(is_cut.then(|| "cut short, as the turn was over; it goes on".to_owned()));
        let paged = done.as_ref().copied().unwrap_or_default();
        let action = ActionEvent {
            name: &name.unwrap_or_default(),
            workload,
            bytes: paged.bytes.map(float),
            processes: done.is_ok().then_some(paged.processes),
            by: "process_madvise",
            took_s: start.elapsed().as_secs_f64(),
            reason,
            stopped: if self.reclaim.dry_run { Some("dry run".to_owned()) } else { failed },
            ..ActionEvent::of(kind, id)
        };
        self.sinks.publish(self.now_s, &Event::Acted(&action));
    }
}
