//! What the agent shows on its page and in a terminal.

use std::sync::{Arc, Mutex, PoisonError};

use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;

use super::history::{Act, History, Kind, Shown, cut};
use super::metrics::AgentMetrics;
use crate::agent::serve::api::{self, Detail, Overview, Status};
use crate::event::{Deed, Event, Observed, Sink};

/// Notes that are kept.
const NOTES: usize = 20;
/// CPU time is averaged over so long, seconds.
const CPU_OVER_S: f64 = 60.0;

/// What is shown.
#[derive(Debug)]
struct State {
    /// The agent's start, seconds since the boot: what is shown counts from then.
    start_s: f64,
    history: History,
    status: Status,
    costs: RefaultCosts,
    /// When CPU time began to be counted, and how much it was.
    cpu: Option<(f64, f64)>,
}

/// What the live page and `lowtide top` show: filled by the loop, read by others.
#[derive(Debug, Clone)]
pub struct LiveView {
    state: Arc<Mutex<State>>,
    metrics: AgentMetrics,
    kernel: Kernel,
}

impl LiveView {
    /// Nothing was observed yet. `started`: now, seconds since the boot and since 1970.
    #[must_use]
    pub fn new(kernel: &Kernel, metrics: AgentMetrics, costs: RefaultCosts, started: (f64, f64)) -> Self {
        let (start_s, started_unix_s) = started;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let status = Status { version, started_unix_s, ..Status::default() };
        let state = State { start_s, history: History::default(), status, costs, cpu: None };
        Self { state: Arc::new(Mutex::new(state)), metrics, kernel: kernel.clone() }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn observed(&self, observed: &Observed<'_>) {
        let rss_bytes = proc::status(&self.kernel, std::process::id()).map_or(0, |own| own.rss());
        let cgroups = observed.workloads.iter().map(|(id, of)| Shown {
            id: *id,
            kind: Kind::Cgroup,
            name: &of.path,
            policy: &of.policy,
            resident: of.now.resident.map(float).into(),
            swapped: float(of.now.swapped),
            kept: of.kept_bytes(),
            stalled_s: of.now.memory_some_s,
            ages: if observed.are_ages_new { &of.ages } else { &[] },
        });
        let processes = observed.processes.iter().map(|(name, target)| Shown {
            id: target.id,
            kind: Kind::Process,
            name,
            policy: api::LIFECYCLE,
            resident: target.resident.into(),
            swapped: target.swapped,
            kept: None,
            stalled_s: None,
            ages: &[],
        });
        self.with(|state| {
            let now_s = observed.observation.now_s - state.start_s;
            state.history.observe(now_s, cgroups.chain(processes));
            let status = &mut state.status;
            (status.stopped, status.dry_run) = (observed.stopped, observed.dry_run);
            (status.every_s, status.rss_bytes) = (observed.every_s, rss_bytes);
            observed.stop_file.clone_into(&mut status.stop_file);
            (status.cpu_watching_s, status.cpu_evicting_s) = observed.cpu_s;
            let both_s = observed.cpu_s.0 + observed.cpu_s.1;
            let (since_s, before_s) = *state.cpu.get_or_insert((now_s, both_s));
            let over_s = now_s - since_s;
            if over_s >= CPU_OVER_S || (status.cpu_percent.is_none() && over_s > 0.0) {
                status.cpu_percent = Some(100.0 * (both_s - before_s).max(0.0) / over_s);
            }
            if over_s >= CPU_OVER_S {
                state.cpu = Some((now_s, both_s));
            }
        });
    }

    fn note(&self, text: &str) {
        self.with(|state| {
            let notes = &mut state.status.notes;
            if notes.len() < NOTES && !notes.iter().any(|note| note == text) {
                notes.push(text.chars().take(400).collect());
            }
        });
    }

    fn acted(&self, id: TargetId, act: impl FnOnce(f64) -> Act) {
        self.with(|state| {
            let act = act(state.history.now_s());
            state.history.acted(id, act);
        });
    }

    /// All workloads.
    #[must_use]
    pub fn overview(&self) -> Overview {
        let held = self.metrics.with(|figures| figures.held.clone());
        self.with(|state| api::overview(state.status.clone(), &state.history, &held))
    }

    /// One of them, if it is there.
    #[must_use]
    pub fn detail(&self, id: TargetId) -> Option<Detail> {
        let held = self.metrics.with(|figures| figures.held.clone());
        self.with(|state| api::detail(state.status.started_unix_s, &state.history, &held, &state.costs, id))
    }

    /// The figures for metrics.
    #[must_use]
    pub fn metrics(&self) -> AgentMetrics {
        self.metrics.clone()
    }
}

impl Sink for LiveView {
    fn take(&mut self, _: f64, event: &Event<'_>) {
        let none = [0.0; 2];
        match event {
            Event::Observed(observed) => self.observed(observed),
            Event::Note(text) | Event::Error(text) => self.note(text),
            Event::Reclaimed(workload, wanted, outcome) => self.acted(workload.id(), |t_s| Act {
                t_s,
                deed: Deed::Reclaim,
                asked: Some(wanted.bytes.into()),
                bytes: outcome.reclaimed.bytes.into(),
                took_s: outcome.took_s,
                reason: cut(&wanted.reason),
                stopped: outcome.stopped.as_deref().map(cut),
            }),
            Event::Granted(workload, granted, reason) => self.acted(workload.id(), |t_s| Act {
                t_s,
                deed: granted.deed,
                asked: (granted.deed == Deed::Protect).then_some([granted.bytes, 0.0]),
                bytes: none,
                took_s: 0.0,
                reason: cut(reason),
                stopped: granted.stopped.as_deref().map(cut),
            }),
            Event::Moved(moved) => self.acted(moved.id, |t_s| Act {
                t_s,
                deed: if moved.away { Deed::Stow } else { Deed::Fetch },
                asked: None,
                bytes: moved.bytes.map(float),
                took_s: moved.took_s,
                reason: cut(moved.reason),
                stopped: if moved.dry_run { Some(cut("dry run")) } else { moved.error.as_deref().map(cut) },
            }),
            _ => {}
        }
    }
}
