//! What the agent publishes of its workloads: the state behind the live page, `lowtide top` and metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;
use lowtide_policy::machine::WorkloadState;

use super::history::{History, TargetReading};
use crate::agent::serve::api::{self, ActionTaken, AgentStatus, Detail, Overview, Shown};
use crate::event::{Event, HeldBrake, Observed, Sink};
use crate::recommender::unix_s;
use crate::workloads::Workload;

/// Notes that are kept.
const NOTES: usize = 20;
/// CPU time is averaged over so long, seconds.
const CPU_OVER_S: f64 = 60.0;

/// The table of workloads as it was observed last, and its past.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// The agent's start, as [`Kernel::awake_s`]: what is shown counts from then.
    start_s: f64,
    pub workloads: BTreeMap<TargetId, Workload>,
    /// Processes that hints were given about.
    processes: Vec<(String, WorkloadState)>,
    pub history: History,
    pub status: AgentStatus,
    /// Brakes that hold policies.
    pub held: Vec<HeldBrake>,
    pub costs: RefaultCosts,
    /// When CPU time began to be counted, and how much it was.
    cpu: Option<(f64, f64)>,
}

impl Published {
    /// All targets as they were observed last.
    pub fn shown(&self) -> impl Iterator<Item = Shown<'_>> {
        let cgroups = self.workloads.iter().map(|(id, of)| Shown {
            id: *id,
            kind: "cgroup",
            name: &of.path,
            policy: &of.policy,
            monitor: (!of.sampled_by.is_empty()).then_some(of.sampled_by),
            resident: of.now.resident.map(float),
            swapped: float(of.now.swapped),
            kept: of.kept_bytes(),
        });
        let processes = self.processes.iter().map(|(name, state)| Shown {
            id: state.id,
            kind: "process",
            name,
            policy: api::LIFECYCLE,
            monitor: None,
            resident: state.resident,
            swapped: state.swapped,
            kept: None,
        });
        cgroups.chain(processes)
    }

    fn observe(&mut self, observed: &Observed<'_>, rss_bytes: u64) {
        if self.workloads.keys().eq(observed.workloads.keys()) {
            self.workloads.values_mut().zip(observed.workloads.values()).for_each(|(own, of)| own.clone_from(of));
        } else {
            // The whole old and new table are not held at once; and one that is filled one by one is half empty.
            self.workloads.clear();
            self.workloads = observed.workloads.iter().map(|(id, workload)| (*id, workload.clone())).collect();
        }
        observed.processes.clone_into(&mut self.processes);
        let cgroups = observed.workloads.values().map(|of| of.reading(observed.are_ages_new));
        let processes = observed.processes.iter().map(|(_, state)| TargetReading {
            id: state.id,
            resident: state.resident,
            swapped: state.swapped,
            stalled_s: None,
            ages: &[],
        });
        let now_s = observed.observation.now_s - self.start_s;
        self.history.observe(now_s, cgroups.chain(processes));
        let status = &mut self.status;
        (status.now_s, status.stopped, status.dry_run) = (now_s, observed.stopped, observed.dry_run);
        (status.every_s, status.rss_bytes) = (observed.every_s, rss_bytes);
        observed.stop_file.clone_into(&mut status.stop_file);
        (status.cpu_watching_s, status.cpu_evicting_s) = observed.cpu_s;
        let both_s = observed.cpu_s.0 + observed.cpu_s.1;
        let (since_s, before_s) = *self.cpu.get_or_insert((now_s, both_s));
        let over_s = now_s - since_s;
        if over_s >= CPU_OVER_S || (status.cpu_percent.is_none() && over_s > 0.0) {
            status.cpu_percent = Some(100.0 * (both_s - before_s).max(0.0) / over_s);
        }
        if over_s >= CPU_OVER_S {
            self.cpu = Some((now_s, both_s));
        }
    }

    /// `unix_s`: now. A suspend or a step of the clock moves the start, so that what is recent has the right time; a clock that is
    /// slewed does not.
    fn set_clock(&mut self, unix_s: f64) {
        let started_unix_s = unix_s - self.status.now_s;
        if (started_unix_s - self.status.started_unix_s).abs() > 1.0 {
            self.status.started_unix_s = started_unix_s;
        }
    }

    fn note(&mut self, text: &str) {
        let notes = &mut self.status.notes;
        if notes.len() < NOTES && !notes.iter().any(|note| note == text) {
            notes.push(text.chars().take(400).collect());
        }
    }
}

/// The published state: written by the loop, read by the server.
#[derive(Debug, Clone)]
pub struct LiveView {
    state: Arc<Mutex<Published>>,
    kernel: Kernel,
}

impl LiveView {
    /// Nothing was observed yet.
    pub fn new(kernel: &Kernel, costs: RefaultCosts) -> Self {
        let start_s = kernel.awake_s();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let status = AgentStatus { version, started_unix_s: unix_s(), ..AgentStatus::default() };
        let state = Published { start_s, status, costs, ..Published::default() };
        Self { state: Arc::new(Mutex::new(state)), kernel: kernel.clone() }
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Published) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All targets.
    pub fn overview(&self) -> Overview {
        self.with(|state| api::overview(state))
    }

    /// One of them, if it is there.
    pub fn detail(&self, id: TargetId) -> Option<Detail> {
        self.with(|state| api::detail(state, id))
    }
}

impl Sink for LiveView {
    fn take(&mut self, _: f64, event: &Event<'_>) {
        match event {
            Event::Observed(observed) => {
                let rss_bytes = proc::status(&self.kernel, std::process::id()).map_or(0, |own| own.rss());
                self.with(|state| {
                    state.observe(observed, rss_bytes);
                    state.set_clock(unix_s());
                });
            }
            Event::Brakes(held) => self.with(|state| state.held = held.to_vec()),
            Event::Note(text) | Event::Error(text) => self.with(|state| state.note(text)),
            Event::Acted(action) => self.with(|state| {
                if let Some(workload) = action.workload {
                    state.workloads.insert(action.target, workload.clone());
                }
                let taken = ActionTaken::new(action, state.history.now_s);
                state.history.acted(action.target, taken);
            }),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recent_has_the_right_time_after_a_suspend() {
        let mut state = Published::default();
        let mut started_at = |now_s: f64, unix_s: f64| {
            state.status.now_s = now_s;
            state.set_clock(unix_s);
            state.status.started_unix_s
        };
        assert_eq!(started_at(0.0, 1000.0), 1000.0);
        assert_eq!(started_at(60.0, 1060.2), 1000.0, "a clock is slewed");
        assert_eq!(started_at(70.0, 4670.0), 4600.0, "suspended for an hour");
        assert_eq!(started_at(80.0, 4680.0), 4600.0);
    }
}
