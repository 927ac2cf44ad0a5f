//! Replays policies over a fleet's telemetry, a host at a time and hosts side by side.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use lowtide_model::curve::RefaultCosts;
use lowtide_model::units::{float, rounded};
use lowtide_policy::policies::{Policies, Spec};
use lowtide_policy::replay::{Replay, ReplayState};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::store::{Fleet, FleetHost, Reader};
use crate::tally::PolicyTally;
use crate::telemetry::Batch;

/// A policy under a name.
#[derive(Debug)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The policy.
    pub replay: Replay,
}

/// Policies of a file, or those that need none, made ready.
///
/// # Errors
/// Which of them makes no sense or cannot be replayed, and why.
pub fn named(specs: Option<Policies>, costs: RefaultCosts) -> Result<Vec<Named>, String> {
    let built_in = || {
        let usual =
            Spec::built_in_names().into_iter().filter_map(|name| Some((name.to_owned(), Spec::built_in(name)?)));
        usual.filter(|(_, spec)| spec.settings().replayed().is_ok()).collect()
    };
    let named = |(name, spec): (String, Spec)| {
        let replay =
            Replay::new(&spec, costs).map_err(|error| format!("policy {name}: cannot be replayed: {error}"))?;
        Ok(Named { name, replay })
    };
    specs.unwrap_or_else(built_in).into_iter().map(named).collect()
}

/// Errors in the telemetry; the rows concerned are in no figure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Files that could not be read, or not to their end.
    pub files: u64,
    /// The first of them, and why.
    pub first: Vec<String>,
    /// Rows that cannot be true: a size below zero, a time that is none.
    pub senseless: u64,
    /// Rows no later than the one before of the same workload: written twice, or by a clock that was set back.
    pub repeated: u64,
    /// Minutes between two rows of a workload without a row.
    pub missing: u64,
    /// Rows without idle ages: nothing can be evicted of them.
    pub untold: u64,
}

/// Files that are named.
const NAMED: usize = 5;

impl Trouble {
    fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.first.extend(other.first);
        self.first.truncate(NAMED);
        self.senseless += other.senseless;
        self.repeated += other.repeated;
        self.missing += other.missing;
        self.untold += other.untold;
    }

    fn file(&mut self, path: &Path, why: &str) {
        self.files += 1;
        if self.first.len() < NAMED {
            self.first.push(format!("{}: {why}", path.display()));
        }
    }
}

/// Results of the policies for one workload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ReplayedWorkload {
    /// Its name.
    pub name: String,
    /// What the label that was asked for says of it in its first row; `None` = nothing.
    pub label: Option<String>,
    /// By policy.
    pub tallies: Vec<PolicyTally>,
}

/// Results of the policies for one host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OfHost {
    /// Its name.
    pub host: String,
    /// Its workloads, by name.
    pub workloads: Vec<ReplayedWorkload>,
    /// Errors in the telemetry.
    pub trouble: Trouble,
    /// Files that were read.
    pub files: u64,
    /// From when on, and until when: Unix time; `None` = never.
    pub span_s: Option<(f64, f64)>,
}

impl OfHost {
    /// All of its workloads together, by policy.
    pub fn tallies(&self, policies: usize) -> Vec<PolicyTally> {
        let mut all = vec![PolicyTally::default(); policies];
        for workload in &self.workloads {
            all.iter_mut().zip(&workload.tallies).for_each(|(all, tally)| all.merge(tally));
        }
        all
    }
}

/// One workload while it is replayed.
struct WorkloadReplay {
    last_s: f64,
    label: Option<String>,
    pasts: Vec<ReplayState>,
    tallies: Vec<PolicyTally>,
}

/// Replays policies over rows of one host, which are to come in their order.
pub struct HostReplay<'a> {
    policies: &'a [Named],
    by: Option<&'a str>,
    names: HashMap<String, usize>,
    runs: Vec<WorkloadReplay>,
    trouble: Trouble,
    files: u64,
    span_s: Option<(f64, f64)>,
}

impl<'a> HostReplay<'a> {
    /// One without rows so far. Workloads are grouped by a label, if one is given.
    pub fn new(policies: &'a [Named], by: Option<&'a str>) -> Self {
        Self {
            policies,
            by,
            names: HashMap::new(),
            runs: Vec::new(),
            trouble: Trouble::default(),
            files: 0,
            span_s: None,
        }
    }

    /// Takes in a batch.
    pub fn batch(&mut self, batch: &Batch) {
        let places: Vec<usize> = batch.workloads().map(|name| self.place(name)).collect();
        for at in 0..batch.len() {
            let Some((place, minute)) = batch.workload(at).and_then(|name| Some((places[name], batch.minute(at)?)))
            else {
                self.trouble.senseless += 1;
                continue;
            };
            let run = &mut self.runs[place];
            if run.last_s == f64::NEG_INFINITY
                && let Some(by) = self.by
            {
                run.label = batch.label(at, by);
            }
            let since_s = minute.now_s - run.last_s;
            if since_s <= 0.0 {
                self.trouble.repeated += 1;
                continue;
            }
            if since_s.is_finite() && since_s > 1.5 * minute.lasts_s {
                self.trouble.missing += rounded((since_s - minute.lasts_s) / 60.0);
            }
            run.last_s = minute.now_s;
            self.span_s = joined(self.span_s, Some((minute.now_s - minute.lasts_s, minute.now_s)));
            self.trouble.untold += u64::from(minute.idle.iter().all(|(_, idle)| idle[1..].iter().all(Option::is_none)));
            for ((named, past), tally) in self.policies.iter().zip(&mut run.pasts).zip(&mut run.tallies) {
                let effect = named.replay.minute(past, &minute);
                tally.add(&minute, &effect, named.replay.lost_s(effect.back));
            }
        }
    }

    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.names.get(name) {
            return *place;
        }
        let count = self.policies.len();
        self.runs.push(WorkloadReplay {
            last_s: f64::NEG_INFINITY,
            label: None,
            pasts: vec![ReplayState::default(); count],
            tallies: vec![PolicyTally::default(); count],
        });
        self.names.insert(name.to_owned(), self.runs.len() - 1);
        self.runs.len() - 1
    }

    /// Takes in all files of a host.
    pub fn host(&mut self, host: &FleetHost<'_>) {
        for file in host.files() {
            let path = match file {
                Ok(path) => path,
                Err(error) => {
                    self.trouble.file(Path::new(""), &error.to_string());
                    continue;
                }
            };
            self.file(&path, Reader::open(&path, self.by.is_some()));
        }
    }

    /// Takes in a file that was opened, or could not be.
    pub fn file(&mut self, path: &Path, opened: Result<Reader, String>) {
        self.files += 1;
        let read = opened.and_then(|reader| {
            for batch in reader {
                self.batch(&batch?);
            }
            Ok(())
        });
        if let Err(why) = read {
            self.trouble.file(path, &why);
        }
    }

    /// The result of it.
    pub fn end(self, host: &str) -> OfHost {
        let mut runs: Vec<Option<WorkloadReplay>> = self.runs.into_iter().map(Some).collect();
        let mut names: Vec<(String, usize)> = self.names.into_iter().collect();
        names.sort();
        let run = |(name, at): (String, usize)| {
            let WorkloadReplay { label, tallies, .. } = runs[at].take()?;
            Some(ReplayedWorkload { name, label, tallies })
        };
        let workloads = names.into_iter().filter_map(run).filter(|of| of.tallies.iter().any(|tally| tally.rows > 0));
        let (trouble, files, span_s) = (self.trouble, self.files, self.span_s);
        OfHost { host: host.to_owned(), workloads: workloads.collect(), trouble, files, span_s }
    }
}

/// From the earlier beginning to the later end.
fn joined(a: Option<(f64, f64)>, b: Option<(f64, f64)>) -> Option<(f64, f64)> {
    let (Some((from, until)), Some((begun, ended))) = (a, b) else { return a.or(b) };
    Some((from.min(begun), until.max(ended)))
}

/// Results of the policies for a fleet.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OfFleet {
    /// By policy.
    pub tallies: Vec<PolicyTally>,
    /// By host and policy: what it had, what was gone of it, milliseconds of rows, bytes that were refaulted.
    pub hosts: Vec<Vec<HostShare>>,
    /// Workloads.
    pub workloads: u64,
    /// By what the label says that was asked for: how many workloads, and the result of them by policy.
    pub labels: BTreeMap<String, (u64, Vec<PolicyTally>)>,
    /// Files that were read.
    pub files: u64,
    /// Errors in the telemetry.
    pub trouble: Trouble,
    /// From when on, and until when: Unix time; `None` = never.
    pub span_s: Option<(f64, f64)>,
}

impl OfFleet {
    /// Of no host yet.
    pub fn new(policies: usize) -> Self {
        Self { tallies: vec![PolicyTally::default(); policies], ..Self::default() }
    }

    /// Takes in a host. For the same interval they are to come in the order of their names; all else is the same in any.
    pub fn add(&mut self, of: OfHost) {
        let tallies = of.tallies(self.tallies.len());
        self.tallies.iter_mut().zip(&tallies).for_each(|(all, tally)| all.merge(tally));
        self.hosts.push(tallies.iter().map(HostShare::from).collect());
        for workload in &of.workloads {
            self.workloads += 1;
            let Some(label) = &workload.label else { continue };
            let none = || (0, vec![PolicyTally::default(); self.tallies.len()]);
            let (count, all) = self.labels.entry(label.clone()).or_insert_with(none);
            *count += 1;
            all.iter_mut().zip(&workload.tallies).for_each(|(all, tally)| all.merge(tally));
        }
        self.files += of.files;
        self.span_s = joined(self.span_s, of.span_s);
        self.trouble.merge(of.trouble);
    }

    /// Seconds from the first row to the last.
    pub fn lasts_s(&self) -> f64 {
        self.span_s.map_or(0.0, |(from_s, until_s)| until_s - from_s)
    }
}

/// One host's part of what a policy did, for the interval of the fleet's share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HostShare {
    /// Byte-milliseconds.
    pub had: f64,
    /// Byte-milliseconds.
    pub gone: f64,
}

impl From<&PolicyTally> for HostShare {
    fn from(tally: &PolicyTally) -> Self {
        Self { had: float(tally.had), gone: float(tally.gone.total()) }
    }
}

/// Hosts that are replayed before the result of them is passed on, for each thread: enough to keep all busy.
const AT_A_TIME: usize = 16;

impl Fleet {
    /// Replays policies over those hosts that `wanted` picks, on all CPUs, and groups workloads by a label if one is
    /// given. `each` hears of every host, in the order of their names.
    pub fn replay(
        &self,
        policies: &[Named],
        by: Option<&str>,
        wanted: &(dyn Fn(&str) -> bool + Sync),
        each: &mut dyn FnMut(&OfHost),
    ) -> OfFleet {
        let mut all = OfFleet::new(policies.len());
        let mut hosts = self.hosts().filter(|host| wanted(host.name));
        loop {
            let some: Vec<FleetHost<'_>> = hosts.by_ref().take(AT_A_TIME * rayon::current_num_threads()).collect();
            if some.is_empty() {
                return all;
            }
            let one = |host: &FleetHost<'_>| {
                let mut replay = HostReplay::new(policies, by);
                replay.host(host);
                replay.end(host.name)
            };
            let done: Vec<OfHost> = some.par_iter().with_max_len(1).map(one).collect();
            for of in done {
                each(&of);
                all.add(of);
            }
        }
    }
}
