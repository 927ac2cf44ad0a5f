//! The agent's metrics: OpenMetrics.

use std::fmt;

use lowtide_model::kind::PerKind;
use lowtide_model::units::float;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::view::LiveView;
use crate::metrics::{Family, Labels, idle, working_sets};
use crate::workloads::Workload;

/// Values of one workload, each with its labels.
type Values = Vec<(Labels<'static>, f64)>;

fn by_kind(values: PerKind<f64>) -> Values {
    values.iter().map(|(kind, value)| (vec![("type", kind.name().to_owned())], *value)).collect()
}

fn plain(value: impl Into<Option<f64>>) -> Values {
    value.into().map(|value| (Vec::new(), value)).into_iter().collect()
}

/// Metrics of each workload: names, docs, whether they are in bytes, whether they are counters, and values.
type WorkloadMetric = (&'static str, &'static str, bool, bool, fn(&Workload) -> Values);

const METRICS: [WorkloadMetric; 14] = [
    ("resident", "Memory of the workload", true, false, |of| by_kind(of.now.resident.map(float))),
    ("swapped", "Memory of the workload that is paged out", true, false, |of| plain(float(of.now.swapped))),
    ("kept", "What keeping it takes, as far as that is known", true, false, |of| plain(of.kept_bytes())),
    ("saved_net", "What paging out saves, without what keeping it takes", true, false, |of| {
        plain(of.kept_bytes().map(|kept| float(of.now.swapped) - kept))
    }),
    ("huge", "Memory in huge pages, where the policy makes them", true, false, |of| {
        plain(of.huge.map(|huge| huge.bytes))
    }),
    ("huge_zero", "Memory in huge pages that holds nothing but zeros, by a sample", true, false, |of| {
        plain(of.huge.map(|huge| huge.zero))
    }),
    ("workingset", "Memory used within the window", true, false, |of| working_sets(&of.ages)),
    ("idle", "Memory not used for at least the age", true, false, |of| idle(&of.ages)),
    ("refaults", "Pages that came back", false, true, |of| by_kind(of.now.refaults.map(float))),
    ("reclaimed", "Memory that the agent had evicted", true, true, |of| by_kind(of.totals.reclaimed)),
    ("protected", "Memory that is protected for a time", true, false, |of| plain(float(of.granted.protected))),
    ("limit", "Memory below which it is kept for a time; 0 while it is not", true, false, |of| {
        plain(float(of.granted.limited))
    }),
    ("paused", "Whether it waits for its turn", false, false, |of| plain(f64::from(u8::from(of.granted.paused)))),
    ("requests", "Requests to reclaim, and those that were cut short", false, true, |of| {
        let (all, short) = of.totals.requests;
        [("done", all - short), ("cut_short", short)].map(|(of, n)| (vec![("result", of.to_owned())], n)).into()
    }),
];

impl Collector for LiveView {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let (workloads, status, held) =
            self.with(|state| (state.workloads.clone(), state.status.clone(), state.held.clone()));
        for (name, doc, bytes, counts, get) in METRICS {
            let values = workloads.values().flat_map(|workload| {
                get(workload).into_iter().map(|(labels, value)| {
                    let own = [("cgroup", workload.path.clone()), ("policy", workload.policy.clone())];
                    (own.into_iter().chain(labels).collect::<Labels<'_>>(), value)
                })
            });
            let name = format!("lowtide_agent_{name}");
            Family { name: &name, doc, unit: bytes.then_some(Unit::Bytes), counts }.encode(&mut encoder, values)?;
        }
        let doc = "CPU time of the agent: measuring and deciding, and evicting";
        let cpu_s = [("watching", status.cpu_watching_s), ("evicting", status.cpu_evicting_s)];
        let cpu_s = cpu_s.map(|(of, cpu_s)| (vec![("for", of.to_owned())], cpu_s.max(0.0)));
        Family { name: "lowtide_agent_cpu", doc, unit: Some(Unit::Seconds), counts: true }
            .encode(&mut encoder, cpu_s)?;
        let doc = "Brakes that hold a policy now, from one cgroup or from all";
        let mut brakes = encoder.encode_descriptor("lowtide_agent_brake", doc, None, MetricType::Gauge)?;
        for (policy, (target, brake)) in &held {
            // A process that a hint was given about has no row.
            let cgroup = target.map_or(Some(""), |id| workloads.get(&id).map(|of| of.path.as_str()));
            let Some(cgroup) = cgroup else { continue };
            let labels = [("cgroup", cgroup), ("policy", policy.as_str()), ("brake", brake.name())];
            brakes.encode_family(&labels)?.encode_gauge(&1)?;
        }
        let doc = "Whether nothing is taken at all: stopped by its file, or a dry run";
        let mut stopped = encoder.encode_descriptor("lowtide_agent_stopped", doc, None, MetricType::Gauge)?;
        stopped.encode_gauge(&u32::from(status.stopped || status.dry_run))
    }
}
