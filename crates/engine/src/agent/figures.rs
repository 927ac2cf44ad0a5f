//! What the agent tells others: OpenMetrics.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use lowtide_model::curve::SIDES;
use lowtide_policy::machine::Brake;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::act::Outcome;
use super::watch::{Watched, bytes};

/// The figures of one workload.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Path of its cgroup.
    pub cgroup: String,
    /// Name of its policy.
    pub policy: String,
    /// What is known of it; `None` before the first look.
    pub watched: Option<Watched>,
    /// Bytes reclaimed so far: anonymous, file.
    pub reclaimed: [f64; SIDES],
    /// Requests so far, and those that were cut short.
    pub requests: (f64, f64),
    /// Bytes that are protected, and whether it waits.
    pub granted: (u64, bool),
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// By inode of the cgroup.
    pub rows: std::collections::BTreeMap<u64, Row>,
    /// CPU seconds of watching and deciding, and of evicting.
    pub cpu_s: (f64, f64),
    /// What holds which policy, from which workload or from all.
    pub held: Vec<(String, (Option<u64>, Brake))>,
    /// Nothing is taken at all: the file that stops it is there, or only a dry run was asked for.
    pub stopped: bool,
}

impl Figures {
    /// Takes in what came of one request.
    pub fn took(&mut self, id: u64, outcome: &Outcome) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        (0..SIDES).for_each(|side| row.reclaimed[side] += outcome.reclaimed.bytes[side]);
        row.requests.0 += 1.0;
        row.requests.1 += if outcome.stopped.is_some() { 1.0 } else { 0.0 };
    }
}

/// Figures that are being made by one thread and read by others.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<Mutex<Figures>>);

impl Shared {
    /// Works on them.
    pub fn with<T>(&self, work: impl FnOnce(&mut Figures) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

const TYPES: [&str; SIDES] = ["anon", "file"];

/// One figure of a workload, for each of some labels.
type Values = Vec<(Vec<(&'static str, String)>, f64)>;

fn by_type(values: [f64; SIDES]) -> Values {
    TYPES.into_iter().zip(values).map(|(side, value)| (vec![("type", side.to_owned())], value)).collect()
}

fn plain(value: f64) -> Values {
    vec![(Vec::new(), value)]
}

/// Bytes used within each window that is known, or idle for at least so long.
fn ages(watched: &Watched, idle: bool) -> Values {
    let mut values = Values::new();
    for bin in watched.ages.iter().filter(|bin| if idle { bin.min_s > 0.0 } else { bin.max_s.is_some() }) {
        let same = watched.ages.iter().filter(|other| other.anon == bin.anon);
        let side = ("type", TYPES[usize::from(!bin.anon)].to_owned());
        let of = |keep: &dyn Fn(&lowtide_model::cohort::AgeBin) -> bool| -> f64 {
            same.clone().filter(|other| keep(other)).map(|other| other.size.bytes).sum()
        };
        values.push(match bin.max_s {
            _ if idle => (vec![side, ("age", format!("{}s", bin.min_s))], of(&|other| other.min_s >= bin.min_s)),
            Some(max_s) => {
                let within = of(&|other| other.max_s.is_some_and(|other| other <= max_s));
                (vec![side, ("window", format!("{max_s}s"))], within)
            }
            None => continue,
        });
    }
    values
}

/// A metric of every workload.
struct Metric {
    name: &'static str,
    doc: &'static str,
    bytes: bool,
    counts: bool,
    get: fn(&Row, &Watched) -> Values,
}

const fn metric(
    name: &'static str,
    doc: &'static str,
    bytes: bool,
    counts: bool,
    get: fn(&Row, &Watched) -> Values,
) -> Metric {
    Metric { name, doc, bytes, counts, get }
}

/// What is told of each workload.
const METRICS: [Metric; 13] = [
    metric("resident", "Memory of the workload", true, false, |_, of| by_type(of.now.resident.map(bytes))),
    metric("swapped", "Memory of the workload that is paged out", true, false, |_, of| plain(bytes(of.now.swapped))),
    metric("kept", "What keeping it takes, as far as that is known", true, false, |_, of| {
        of.kept_bytes().map_or_else(Vec::new, plain)
    }),
    metric("saved_net", "What paging out saves, without what keeping it takes", true, false, |_, of| {
        of.kept_bytes().map_or_else(Vec::new, |kept| plain(bytes(of.now.swapped) - kept))
    }),
    metric("huge", "Memory in huge pages, where the policy makes them", true, false, |_, of| {
        of.huge.map_or_else(Vec::new, |huge| plain(huge.bytes))
    }),
    metric("huge_zero", "Memory in huge pages that holds nothing but zeros, by a sample", true, false, |_, of| {
        of.huge.map_or_else(Vec::new, |huge| plain(huge.zero))
    }),
    metric("workingset", "Memory used within the window", true, false, |_, of| ages(of, false)),
    metric("idle", "Memory not used for at least the age", true, false, |_, of| ages(of, true)),
    metric("refaults", "Pages that came back", false, true, |_, of| by_type(of.now.refaults.map(bytes))),
    metric("reclaimed", "Memory that the agent had evicted", true, true, |row, _| by_type(row.reclaimed)),
    metric("protected", "Memory that is protected for a time", true, false, |row, _| plain(bytes(row.granted.0))),
    metric("paused", "Whether it waits for its turn", false, false, |row, _| plain(f64::from(u8::from(row.granted.1)))),
    metric("requests", "Requests to reclaim, and those that were cut short", false, true, |row, _| {
        vec![
            (vec![("result", "done".to_owned())], row.requests.0 - row.requests.1),
            (vec![("result", "cut_short".to_owned())], row.requests.1),
        ]
    }),
];

impl Collector for Shared {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let figures = self.with(|figures| figures.clone());
        for metric in &METRICS {
            let kind = if metric.counts { MetricType::Counter } else { MetricType::Gauge };
            let unit = metric.bytes.then_some(&Unit::Bytes);
            let name = format!("lowtide_agent_{}", metric.name);
            let mut family = encoder.encode_descriptor(&name, metric.doc, unit, kind)?;
            for row in figures.rows.values() {
                let Some(watched) = &row.watched else { continue };
                for (labels, value) in (metric.get)(row, watched) {
                    let own = [("cgroup", row.cgroup.clone()), ("policy", row.policy.clone())];
                    let labels: Vec<(&str, String)> = own.into_iter().chain(labels).collect();
                    let mut one = family.encode_family(&labels)?;
                    if metric.counts {
                        one.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
                    } else {
                        one.encode_gauge(&value)?;
                    }
                }
            }
        }
        let doc = "CPU time of the agent: looking and deciding, and evicting";
        let mut cpu = encoder.encode_descriptor("lowtide_agent_cpu", doc, Some(&Unit::Seconds), MetricType::Counter)?;
        for (what, value) in [("watching", figures.cpu_s.0), ("evicting", figures.cpu_s.1)] {
            cpu.encode_family(&[("for", what)])?.encode_counter::<NoLabelSet, _, f64>(&value.max(0.0), None)?;
        }
        let doc = "Brakes that hold a policy now, from one cgroup or from all";
        let mut brakes = encoder.encode_descriptor("lowtide_agent_brake", doc, None, MetricType::Gauge)?;
        for (policy, (target, brake)) in &figures.held {
            // A process that a hint was given about has no row.
            let Some(cgroup) = target.map_or(Some(""), |id| figures.rows.get(&id).map(|row| row.cgroup.as_str()))
            else {
                continue;
            };
            let labels = [("cgroup", cgroup), ("policy", policy.as_str()), ("brake", brake.name())];
            brakes.encode_family(&labels)?.encode_gauge(&1)?;
        }
        let doc = "Whether nothing is taken at all: stopped by its file, or a dry run";
        let mut stopped = encoder.encode_descriptor("lowtide_agent_stopped", doc, None, MetricType::Gauge)?;
        stopped.encode_gauge(&u32::from(figures.stopped))
    }
}
