//! What the agent's loop tells those who look: made by one thread, read by others.

use std::sync::{Arc, Mutex, PoisonError};

use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_model::curve::RefaultCosts;
use lowtide_policy::machine::{Reclaim, Target};

use super::act::Outcome;
use super::api::{self, Detail, Overview, Status};
use super::figures;
use super::granting::Granted;
use super::history::{Act, History, Kind, Seen as Look, What, cut};
use super::watch::{Watched, bytes};

/// Things that could not be seen, and are kept to be told.
const NOTES: usize = 20;
/// CPU time is told over so long, seconds.
const CPU_OVER_S: f64 = 60.0;

/// What is shown.
#[derive(Debug)]
struct State {
    history: History,
    status: Status,
    costs: RefaultCosts,
    /// When CPU time began to be counted, and how much it was.
    cpu: Option<(f64, f64)>,
}

/// What the loop tells and readers see.
#[derive(Debug, Clone)]
pub struct Seen {
    state: Arc<Mutex<State>>,
    figures: figures::Shared,
    kernel: Kernel,
}

/// A turn of the loop, as it begins.
pub(super) struct Turn<'a> {
    /// Seconds since the start.
    pub now_s: f64,
    /// Idle ages are new.
    pub fresh: bool,
    /// The file that stops the agent is there.
    pub stopped: bool,
    /// Seconds between two turns.
    pub every_s: f64,
    /// That file.
    pub stop_file: String,
    /// Processes that hints were given about, by their names.
    pub trees: Vec<(String, &'a Target)>,
}

impl Seen {
    /// Nothing was seen yet. `started_unix_s`: now, seconds since 1970.
    pub(super) fn new(
        kernel: &Kernel,
        figures: figures::Shared,
        costs: RefaultCosts,
        started_unix_s: f64,
        dry_run: bool,
    ) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let status = Status { version, started_unix_s, dry_run, ..Status::default() };
        let state = State { history: History::default(), status, costs, cpu: None };
        Self { state: Arc::new(Mutex::new(state)), figures, kernel: kernel.clone() }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Something could not be seen.
    pub(super) fn note(&self, text: &str) {
        self.with(|state| {
            let notes = &mut state.status.notes;
            if notes.len() < NOTES && !notes.iter().any(|note| note == text) {
                notes.push(text.chars().take(400).collect());
            }
        });
    }

    /// A turn begins: all workloads as they were just looked at.
    pub(super) fn look<'a>(&self, turn: &Turn<'_>, found: impl Iterator<Item = (&'a u64, &'a Watched)>) {
        let rss_bytes = proc::status(&self.kernel, std::process::id()).map_or(0, |own| own.rss());
        let (watching_s, evicting_s) = self.figures.with(|figures| figures.cpu_s);
        let cgroups = found.map(|(id, of)| Look {
            id: *id,
            kind: Kind::Cgroup,
            name: &of.path,
            policy: &of.policy,
            resident: of.now.resident.map(bytes),
            swapped: bytes(of.now.swapped),
            kept: of.kept_bytes(),
            stalled_s: of.now.stalled_s[0],
            ages: if turn.fresh { &of.ages } else { &[] },
        });
        let trees = turn.trees.iter().map(|(name, target)| Look {
            id: target.id,
            kind: Kind::Process,
            name,
            policy: api::LIFECYCLE,
            resident: target.resident,
            swapped: target.swapped,
            kept: None,
            stalled_s: None,
            ages: &[],
        });
        self.with(|state| {
            state.history.look(turn.now_s, cgroups.chain(trees));
            let status = &mut state.status;
            (status.stopped, status.every_s, status.rss_bytes) = (turn.stopped, turn.every_s, rss_bytes);
            status.stop_file.clone_from(&turn.stop_file);
            (status.cpu_watching_s, status.cpu_evicting_s) = (watching_s, evicting_s);
            let both_s = watching_s + evicting_s;
            let (since_s, before_s) = *state.cpu.get_or_insert((turn.now_s, both_s));
            let over_s = turn.now_s - since_s;
            if over_s >= CPU_OVER_S || (status.cpu_percent.is_none() && over_s > 0.0) {
                status.cpu_percent = Some(100.0 * (both_s - before_s).max(0.0) / over_s);
            }
            if over_s >= CPU_OVER_S {
                state.cpu = Some((turn.now_s, both_s));
            }
        });
    }

    /// Memory was asked for.
    pub(super) fn reclaimed(&self, wanted: &Reclaim, outcome: &Outcome) {
        let (bytes, took_s) = (outcome.reclaimed.bytes, outcome.took_s);
        let stopped = outcome.stopped.as_deref().map(cut);
        self.act(wanted.target, What::Reclaim, Some(wanted.bytes), (bytes, took_s), &wanted.reason, stopped);
    }

    /// Something went to the background, or came back: `done` = bytes and seconds.
    pub(super) fn turned_over(&self, id: u64, away: bool, done: ([f64; 2], f64), reason: &str, stopped: Option<&str>) {
        self.act(id, if away { What::Stow } else { What::Fetch }, None, done, reason, stopped.map(cut));
    }

    /// Something was granted, or taken back.
    pub(super) fn granted(&self, id: u64, granted: &Granted, reason: &str) {
        let asked = (granted.what == What::Protect).then_some([granted.bytes, 0.0]);
        self.act(id, granted.what, asked, ([0.0; 2], 0.0), reason, granted.stopped.as_deref().map(cut));
    }

    fn act(
        &self,
        id: u64,
        what: What,
        asked: Option<[f64; 2]>,
        (bytes, took_s): ([f64; 2], f64),
        reason: &str,
        stopped: Option<Box<str>>,
    ) {
        self.with(|state| {
            let t_s = state.history.now_s();
            state.history.acted(id, Act { t_s, what, asked, bytes, took_s, reason: cut(reason), stopped });
        });
    }

    /// All workloads.
    #[must_use]
    pub fn overview(&self) -> Overview {
        let held = self.figures.with(|figures| figures.held.clone());
        self.with(|state| api::overview(state.status.clone(), &state.history, &held))
    }

    /// One of them, if it is there.
    #[must_use]
    pub fn detail(&self, id: u64) -> Option<Detail> {
        let held = self.figures.with(|figures| figures.held.clone());
        self.with(|state| api::detail(state.status.started_unix_s, &state.history, &held, &state.costs, id))
    }

    /// The figures for metrics.
    #[must_use]
    pub fn figures(&self) -> figures::Shared {
        self.figures.clone()
    }
}
