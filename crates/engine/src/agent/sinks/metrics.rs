//! The agent's metrics: OpenMetrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use lowtide_model::curve::SIDES;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::event::{Event, HeldBrake, Sink};
use crate::workloads::Workload;

/// What is exported.
#[derive(Debug, Clone, Default)]
pub struct Exported {
    workloads: BTreeMap<TargetId, Workload>,
    /// CPU seconds of measuring and deciding, and of evicting.
    pub cpu_s: (f64, f64),
    /// Brakes that hold policies.
    pub held: Vec<HeldBrake>,
    /// Nothing is taken at all: the file that stops it is there, or only a dry run was asked for.
    stopped: bool,
}

/// The newest figures, made by one thread and read by others.
#[derive(Debug, Clone, Default)]
pub struct AgentMetrics(Arc<Mutex<Exported>>);

impl Sink for AgentMetrics {
    fn take(&mut self, _: f64, event: &Event<'_>) {
        self.with(|figures| match event {
            Event::Observed(observed) => {
                figures.workloads.clone_from(observed.workloads);
                figures.cpu_s = observed.cpu_s;
                figures.stopped = observed.stopped || observed.dry_run;
            }
            Event::Reclaimed(workload, ..) => {
                figures.workloads.insert(workload.id(), (*workload).clone());
            }
            Event::Brakes(held) => figures.held = held.to_vec(),
            _ => {}
        });
    }
}

impl AgentMetrics {
    /// Works on them.
    pub fn with<T>(&self, work: impl FnOnce(&mut Exported) -> T) -> T {
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
fn ages(of: &Workload, idle: bool) -> Values {
    let mut values = Values::new();
    for bin in of.ages.iter().filter(|bin| if idle { bin.min_s > 0.0 } else { bin.max_s.is_some() }) {
        let same = of.ages.iter().filter(|other| other.anon == bin.anon);
        let side = ("type", TYPES[usize::from(!bin.anon)].to_owned());
        let sum = |keep: &dyn Fn(&lowtide_model::cohort::AgeBin) -> bool| -> f64 {
            same.clone().filter(|other| keep(other)).map(|other| other.size.bytes).sum()
        };
        values.push(match bin.max_s {
            _ if idle => (vec![side, ("age", format!("{}s", bin.min_s))], sum(&|other| other.min_s >= bin.min_s)),
            Some(max_s) => {
                let within = sum(&|other| other.max_s.is_some_and(|other| other <= max_s));
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
    get: fn(&Workload) -> Values,
}

const fn metric(
    name: &'static str,
    doc: &'static str,
    bytes: bool,
    counts: bool,
    get: fn(&Workload) -> Values,
) -> Metric {
    Metric { name, doc, bytes, counts, get }
}

/// What is exported of each workload.
const METRICS: [Metric; 13] = [
    metric("resident", "Memory of the workload", true, false, |of| by_type(of.now.resident.map(float).into())),
    metric("swapped", "Memory of the workload that is paged out", true, false, |of| plain(float(of.now.swapped))),
    metric("kept", "What keeping it takes, as far as that is known", true, false, |of| {
        of.kept_bytes().map_or_else(Vec::new, plain)
    }),
    metric("saved_net", "What paging out saves, without what keeping it takes", true, false, |of| {
        of.kept_bytes().map_or_else(Vec::new, |kept| plain(float(of.now.swapped) - kept))
    }),
    metric("huge", "Memory in huge pages, where the policy makes them", true, false, |of| {
        of.huge.map_or_else(Vec::new, |huge| plain(huge.bytes))
    }),
    metric("huge_zero", "Memory in huge pages that holds nothing but zeros, by a sample", true, false, |of| {
        of.huge.map_or_else(Vec::new, |huge| plain(huge.zero))
    }),
    metric("workingset", "Memory used within the window", true, false, |of| ages(of, false)),
    metric("idle", "Memory not used for at least the age", true, false, |of| ages(of, true)),
    metric("refaults", "Pages that came back", false, true, |of| by_type(of.now.refaults.map(float).into())),
    metric("reclaimed", "Memory that the agent had evicted", true, true, |of| by_type(of.reclaimed.into())),
    metric("protected", "Memory that is protected for a time", true, false, |of| plain(float(of.granted.0))),
    metric("paused", "Whether it waits for its turn", false, false, |of| plain(f64::from(u8::from(of.granted.1)))),
    metric("requests", "Requests to reclaim, and those that were cut short", false, true, |of| {
        vec![
            (vec![("result", "done".to_owned())], of.requests.0 - of.requests.1),
            (vec![("result", "cut_short".to_owned())], of.requests.1),
        ]
    }),
];

impl Collector for AgentMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let figures = self.with(|figures| figures.clone());
        for metric in &METRICS {
            let kind = if metric.counts { MetricType::Counter } else { MetricType::Gauge };
            let unit = metric.bytes.then_some(&Unit::Bytes);
            let name = format!("lowtide_agent_{}", metric.name);
            let mut family = encoder.encode_descriptor(&name, metric.doc, unit, kind)?;
            for workload in figures.workloads.values() {
                for (labels, value) in (metric.get)(workload) {
                    let own = [("cgroup", workload.path.clone()), ("policy", workload.policy.clone())];
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
        let doc = "CPU time of the agent: measuring and deciding, and evicting";
        let mut cpu = encoder.encode_descriptor("lowtide_agent_cpu", doc, Some(&Unit::Seconds), MetricType::Counter)?;
        for (what, value) in [("watching", figures.cpu_s.0), ("evicting", figures.cpu_s.1)] {
            cpu.encode_family(&[("for", what)])?.encode_counter::<NoLabelSet, _, f64>(&value.max(0.0), None)?;
        }
        let doc = "Brakes that hold a policy now, from one cgroup or from all";
        let mut brakes = encoder.encode_descriptor("lowtide_agent_brake", doc, None, MetricType::Gauge)?;
        for (policy, (target, brake)) in &figures.held {
            // A process that a hint was given about has no row.
            let Some(cgroup) = target.map_or(Some(""), |id| figures.workloads.get(&id).map(|of| of.path.as_str()))
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
