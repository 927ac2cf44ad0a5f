//! Events of the loop, and the sinks that take them.

use std::collections::BTreeMap;

use lowtide_model::kind::PerKind;
use lowtide_model::numa::{NodeRow, NodeUse};
use lowtide_model::target::TargetId;
use lowtide_model::usage::Usage;
use lowtide_policy::machine::{Brake, Observation, Reclaim, Reclaimed, WorkloadState};
use lowtide_record::{ActionRow, AgeRow, CgroupRow, Writer};

use crate::source::Frame;
use crate::workloads::Workload;

/// Something that happened. Every sink is given every event, and takes what concerns it.
#[derive(Debug)]
pub enum Event<'a> {
    /// The accounts of a recorded target were read, and which backend samples it.
    Usage(&'a Usage, &'a str),
    /// Its memory by node.
    Nodes(&'a [NodeUse]),
    /// A source was read.
    Frame(&'a Frame),
    /// Schemes were carried out on it.
    Actions(&'a [ActionRow]),
    /// The agent's workloads were observed.
    Observed(&'a Observed<'a>),
    /// An action on a workload was carried out, or tried.
    Acted(&'a ActionEvent<'a>),
    /// A scheme of a workload's policy was carried out: its title, and bytes.
    Advised(&'a Workload, &'a str, f64),
    /// Brakes that hold policies now, by the policy's name; `None` = from all of its workloads.
    Brakes(&'a [HeldBrake]),
    /// A brake of a policy took hold of a workload or of all, or let go.
    Brake {
        /// The policy.
        policy: &'a str,
        /// The workload's path, or `all`.
        workload: &'a str,
        /// Which brake.
        brake: Brake,
        /// It holds.
        holds: bool,
    },
    /// Something that could not be done or read, for the page and the log.
    Note(&'a str),
    /// Something failed.
    Error(&'a str),
    /// What else a log should have: what happened, and its figures.
    Logged(&'static str, &'a [(&'a str, String)]),
}

/// A brake that holds a policy, by its name, back from a target or from all.
pub type HeldBrake = (String, (Option<TargetId>, Brake));

/// All workloads as they were just observed.
#[derive(Debug)]
pub struct Observed<'a> {
    /// What policies decide from.
    pub observation: &'a Observation,
    /// The workloads.
    pub workloads: &'a BTreeMap<TargetId, Workload>,
    /// Processes that hints were given about, by their names.
    pub processes: &'a [(String, WorkloadState)],
    /// Idle ages are new.
    pub are_ages_new: bool,
    /// Nothing is taken: by a file, and which; or it is a dry run.
    pub stopped: bool,
    /// That file.
    pub stop_file: &'a str,
    /// Nothing is ever taken.
    pub dry_run: bool,
    /// Seconds between two turns.
    pub every_s: f64,
    /// CPU seconds so far of measuring and deciding, and of evicting.
    pub cpu_s: (f64, f64),
}

/// The result of one request to reclaim.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReclaimOutcome {
    /// For the policy.
    pub reclaimed: Reclaimed,
    /// By which interface of the kernel.
    pub by: &'static str,
    /// Seconds that it took.
    pub took_s: f64,
    /// Why less was done than was asked for.
    pub stopped: Option<String>,
}

/// The kinds of actions of the agent's policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionKind {
    /// Cold memory was reclaimed.
    Reclaim,
    /// Huge pages of it that hold mostly zeros were split.
    Split,
    /// Its memory was paged out, as it is in the background.
    PageOut,
    /// Its memory was fetched, as it is in the foreground again.
    Fetch,
    /// Its memory was protected for a time.
    Protect,
    /// It was kept small for a time.
    Limit,
    /// It was paused for a time.
    Pause,
    /// Its protection, limit or pause was ended.
    Release,
}

impl ActionKind {
    /// The word in the log and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reclaim => "reclaim",
            Self::Split => "split",
            Self::PageOut => "stow",
            Self::Fetch => "fetch",
            Self::Protect => "protect",
            Self::Limit => "limit",
            Self::Pause => "pause",
            Self::Release => "release",
        }
    }
}

/// An action on a workload, and its result.
#[derive(Debug, Clone)]
pub struct ActionEvent<'a> {
    /// Which action.
    pub kind: ActionKind,
    /// Which workload.
    pub target: TargetId,
    /// Its path, or the process.
    pub name: &'a str,
    /// The workload after it; `None` for a process that a hint was given about.
    pub workload: Option<&'a Workload>,
    /// Bytes that were asked for; `None` = all that there is.
    pub asked: Option<PerKind<f64>>,
    /// Bytes that were moved.
    pub bytes: PerKind<f64>,
    /// Processes that were advised, where it is done process by process and did not fail.
    pub processes: Option<usize>,
    /// By which interface of the kernel memory was moved; empty where none was.
    pub by: &'static str,
    /// Seconds that it took.
    pub took_s: f64,
    /// Why.
    pub reason: &'a str,
    /// Why less was done than was asked for.
    pub stopped: Option<String>,
}

impl<'a> ActionEvent<'a> {
    /// An action without figures.
    pub fn of(kind: ActionKind, target: TargetId) -> Self {
        let (asked, bytes, processes) = (None, PerKind::default(), None);
        let (workload, stopped) = (None, None);
        Self { kind, target, name: "", workload, asked, bytes, processes, by: "", took_s: 0.0, reason: "", stopped }
    }

    /// An action on a workload of the table.
    pub fn on(kind: ActionKind, workload: &'a Workload) -> Self {
        Self { name: &workload.path, workload: Some(workload), ..Self::of(kind, workload.id()) }
    }

    /// A request to reclaim.
    pub fn reclaimed(workload: &'a Workload, wanted: &'a Reclaim, outcome: &ReclaimOutcome) -> Self {
        Self {
            asked: Some(wanted.bytes),
            bytes: outcome.reclaimed.bytes,
            by: outcome.by,
            took_s: outcome.took_s,
            reason: &wanted.reason,
            stopped: outcome.stopped.clone(),
            ..Self::on(ActionKind::Reclaim, workload)
        }
    }
}

/// Takes events: a record, metrics, a log.
pub trait Sink {
    /// One event, and when it happened, seconds.
    fn take(&mut self, now_s: f64, event: &Event<'_>);
}

impl Sink for Writer {
    fn take(&mut self, now_s: f64, event: &Event<'_>) {
        match event {
            Event::Usage(usage, _) => self.add([(*usage).clone()]),
            Event::Nodes(nodes) => self.add(nodes.iter().map(|memory| NodeRow { t_s: now_s, memory: *memory })),
            Event::Actions(rows) => self.add(rows.iter().cloned()),
            Event::Frame(frame) => {
                if let Some((at_s, picture)) = frame.picture.as_ref().filter(|(_, picture)| !picture.is_partial) {
                    let t_s = picture.ages_read_s.unwrap_or(*at_s);
                    self.add(picture.ages.iter().map(|bin| AgeRow { t_s, bin: *bin }));
                }
                let cgroups = frame.cgroups.iter().flatten().cloned();
                self.add(cgroups.map(|memory| CgroupRow { t_s: now_s, memory }));
                self.add(frame.regions.iter().cloned());
                self.add(frame.episodes.iter().cloned());
            }
            _ => {}
        }
    }
}
