//! `--listen`: the figures of a recording under way as OpenMetrics, at `/metrics`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use hyper::StatusCode;
use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{AgeBin, used_within};
use lowtide_model::generations::CgroupUse;
use lowtide_model::kind::Kind;
use lowtide_model::usage::{FIELDS, Shape, Unit as FieldUnit, Usage};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::agent::serve::http::{self, Reply, problem, reply};
use crate::agent::serve::listen::{Listener, on_this_machine};
use crate::event::{Event, Sink};
use crate::failure::{Failure, code};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The newest figures of one target. What was not measured in the last tick stays as it was measured last.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// `cgroup="…"`, `pid="…"` or `system="…"`.
    pub target: (String, String),
    /// The monitor's name.
    pub monitor: String,
    usage: Usage,
    ages: Vec<AgeBin>,
    cgroups: BTreeMap<Group, CgroupUse>,
}

/// A cgroup on a node, and whether anonymous memory is meant.
type Group = (String, u64, bool);

impl Figures {
    /// Figures of a target, none of them measured yet.
    pub fn of(target: (String, String)) -> Self {
        Self { target, ..Self::default() }
    }

    /// Takes over what a tick measured.
    pub fn take(&mut self, usage: &Usage, monitor: &str) {
        monitor.clone_into(&mut self.monitor);
        for field in FIELDS {
            if let Some(value) = (field.get)(usage) {
                (field.set)(&mut self.usage, Some(value));
            }
        }
    }

    /// Takes over an idle-age histogram.
    pub fn take_ages(&mut self, ages: &[AgeBin]) {
        ages.clone_into(&mut self.ages);
    }

    /// Takes over the use of each cgroup. Windows of another length than this time's stay as they were; what was promoted
    /// adds up; cgroups that are gone are dropped.
    pub fn take_cgroups(&mut self, rows: &[CgroupUse]) {
        let mut before = std::mem::take(&mut self.cgroups);
        for row in rows {
            let key = (row.cgroup.clone(), row.node, row.anon);
            let mut new = row.clone();
            if let Some(old) = before.remove(&key) {
                for (new, old) in new.used.iter_mut().zip(old.used) {
                    *new = new.or(old);
                }
                new.promoted += old.promoted;
            }
            self.cgroups.insert(key, new);
        }
    }

    fn labels<'a>(&'a self, more: Labels<'a>) -> Labels<'a> {
        std::iter::once((self.target.0.as_str(), self.target.1.clone())).chain(more).collect()
    }
}

/// Figures that the recorder writes and scrapes read.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<Mutex<Figures>>);

impl Shared {
    /// Does something with the figures.
    pub fn with<T>(&self, work: impl FnOnce(&mut Figures) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Shared {
    fn take(&mut self, _: f64, event: &Event<'_>) {
        self.with(|figures| match event {
            Event::Usage(usage, backend) => figures.take(usage, backend),
            Event::Frame(frame) => {
                if let Some((_, picture)) = frame.picture.as_ref().filter(|(_, picture)| !picture.ages.is_empty()) {
                    figures.take_ages(&picture.ages);
                }
                if let Some(cgroups) = &frame.cgroups {
                    figures.take_cgroups(cgroups);
                }
            }
            _ => {}
        });
    }
}

impl Collector for Shared {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let figures = self.with(|figures| figures.clone());
        // Working sets and idle ages have metrics of their own.
        for field in FIELDS.iter().filter(|field| field.name != "t_s" && !field.name.starts_with("ws_")) {
            let Some(value) = (field.get)(&figures.usage) else { continue };
            let (unit, suffix) = match field.unit {
                FieldUnit::Bytes => (Some(Unit::Bytes), "_bytes"),
                FieldUnit::Seconds => (Some(Unit::Seconds), "_s"),
                FieldUnit::Count => (None, ""),
            };
            let name = format!("lowtide_{}", field.name.strip_suffix(suffix).unwrap_or(field.name));
            let (doc, counts) = (field.doc.trim_end_matches('.'), field.shape == Shape::Counter);
            Family { name: &name, doc, unit, counts }.encode(&mut encoder, [(figures.labels(Vec::new()), value)])?;
        }
        let own = |values: Vec<(Labels<'static>, f64)>| {
            values.into_iter().map(|(labels, value)| (figures.labels(labels), value)).collect::<Vec<_>>()
        };
        Family::bytes("lowtide_workingset", "Bytes touched within the window")
            .encode(&mut encoder, own(working_sets(&figures.ages)))?;
        let doc = "Half-width of the 95 % interval of the working set, both types together";
        let ci95 = |window_s| Some((vec![window(window_s)], figures.usage.working_set(window_s)?.ci95));
        let ci95 = WINDOWS_S.into_iter().filter_map(ci95).collect();
        Family::bytes("lowtide_workingset_ci95", doc).encode(&mut encoder, own(ci95))?;
        Family::bytes("lowtide_idle", "Bytes not touched for at least the age")
            .encode(&mut encoder, own(idle(&figures.ages)))?;
        figures.encode_cgroups(&mut encoder)?;
        let mut monitor =
            encoder.encode_descriptor("lowtide_monitor", "The monitor at work", None, MetricType::Info)?;
        monitor.encode_family(&figures.labels(Vec::new()))?.encode_info(&[("backend", figures.monitor.as_str())])
    }
}

impl Figures {
    /// Families of the single cgroups.
    fn encode_cgroups(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let labels = |of: &CgroupUse| {
            let kind = Kind::of(of.anon).name();
            vec![("cgroup", of.cgroup.clone()), ("node", of.node.to_string()), ("type", kind.to_owned())]
        };
        let all = || self.cgroups.values();
        Family::bytes("lowtide_cgroup_memory", "Memory of a cgroup with what is below it")
            .encode(encoder, all().map(|of| (labels(of), of.bytes)))?;
        let used = all().flat_map(|of| {
            let used = WINDOWS_S.into_iter().zip(of.used).filter_map(|(window, used)| Some((window, used?)));
            used.map(move |(window_s, used)| ([labels(of), vec![window(window_s)]].concat(), used))
        });
        Family::bytes("lowtide_cgroup_workingset", "Bytes of a cgroup touched within the window")
            .encode(encoder, used)?;
        let doc = "Bytes of a cgroup that were idle at one reading and used by the next, at most";
        Family { counts: true, ..Family::bytes("lowtide_cgroup_promoted", doc) }
            .encode(encoder, all().map(|of| (labels(of), of.promoted)))
    }
}

/// Labels of one value.
pub(crate) type Labels<'a> = Vec<(&'a str, String)>;

/// A family of metrics.
pub(crate) struct Family<'a> {
    pub name: &'a str,
    pub doc: &'a str,
    pub unit: Option<Unit>,
    /// Counters, not gauges.
    pub counts: bool,
}

impl<'a> Family<'a> {
    /// Gauges in bytes.
    pub fn bytes(name: &'a str, doc: &'a str) -> Self {
        Self { name, doc, unit: Some(Unit::Bytes), counts: false }
    }

    pub fn encode<'b>(
        self,
        encoder: &mut DescriptorEncoder,
        values: impl IntoIterator<Item = (Labels<'b>, f64)>,
    ) -> fmt::Result {
        let kind = if self.counts { MetricType::Counter } else { MetricType::Gauge };
        let mut family = encoder.encode_descriptor(self.name, self.doc, self.unit.as_ref(), kind)?;
        for (labels, value) in values {
            let mut metric = family.encode_family(&labels)?;
            if self.counts {
                metric.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
            } else {
                metric.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

fn window(window_s: u32) -> (&'static str, String) {
    ("window", format!("{window_s}s"))
}

/// Working sets by type and window, as far as the histogram has such edges.
pub(crate) fn working_sets(ages: &[AgeBin]) -> Vec<(Labels<'static>, f64)> {
    let all = WINDOWS_S.into_iter().flat_map(|window_s| Kind::ALL.map(|kind| (kind, window_s)));
    let used = all.filter_map(|(kind, window_s)| {
        let bins = ages.iter().filter(|bin| Kind::of(bin.anon) == kind);
        let labels = vec![("type", kind.name().to_owned()), window(window_s)];
        Some((labels, used_within(bins, f64::from(window_s))?))
    });
    used.collect()
}

/// Bytes that were not used for at least the age, by type and age.
pub(crate) fn idle(ages: &[AgeBin]) -> Vec<(Labels<'static>, f64)> {
    let idle = ages.iter().filter(|bin| bin.min_s > 0.0).map(|bin| {
        let older = ages.iter().filter(|other| other.anon == bin.anon && other.min_s >= bin.min_s);
        let labels = vec![("type", Kind::of(bin.anon).name().to_owned()), ("age", format!("{}s", bin.min_s))];
        (labels, older.map(|bin| bin.size.bytes).sum())
    });
    idle.collect()
}

/// The text of one scrape.
pub(crate) fn exposition(shared: &(impl Collector + Clone)) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(shared.clone()));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// The answer to one scrape.
pub(crate) fn scrape(shared: &(impl Collector + Clone)) -> Reply {
    match exposition(shared) {
        Ok(text) => reply(StatusCode::OK, OPENMETRICS, text),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &format!("the figures could not be written: {error}")),
    }
}

/// Serves the figures at `/metrics` until the process ends. Fails if the address cannot be listened on, or others than this
/// machine could come there.
pub fn start(address: SocketAddr, shared: impl Collector + Clone) -> anyhow::Result<SocketAddr> {
    if !address.ip().is_loopback() {
        let why = "others could read it there; give 127.0.0.1, or use the agent, which has a token and TLS ([serve])";
        return Err(Failure::new(code::USAGE, format!("--listen {address}: {why}")).into());
    }
    let listener = TcpListener::bind(address).with_context(|| format!("--listen {address}"))?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let gate = on_this_machine(&bound);
    http::spawn(Listener::Tcp(listener), None, move |request| {
        http::guarded(&gate, false, request, |request| match request.uri().path() {
            "/metrics" => scrape(&shared),
            _ => problem(StatusCode::NOT_FOUND, "there is nothing of that name"),
        })
    })?;
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::cohort::Estimate;

    #[test]
    fn a_scrape_holds_figures_with_their_types_and_labels() {
        let shared = Shared::default();
        let bin = |anon, min_s, max_s, bytes| AgeBin {
            anon,
            min_s,
            max_s,
            size: Estimate { bytes, ci95: 0.0 },
            first_touched: None,
        };
        shared.with(|figures| {
            *figures = Figures::of(("cgroup".into(), "/a \"b\"".into()));
            let usage =
                Usage { rss_bytes: Some(4096.0), minor_faults: Some(7.0), cpu_s: Some(1.5), ..Usage::default() };
            figures.take(&usage, "mglru");
            figures.take(&Usage { swap_bytes: Some(0.0), ..Usage::default() }, "mglru");
            figures.take_ages(&[
                bin(true, 0.0, Some(1.0), 10.0),
                bin(true, 1.0, Some(5.0), 5.0),
                bin(true, 5.0, None, 85.0),
            ]);
            let use_of =
                |used, promoted| CgroupUse { cgroup: "/a/b".into(), node: 0, anon: true, bytes: 70.0, used, promoted };
            let [mut first, mut second] = [[None; WINDOWS_S.len()]; 2];
            (first[0], second[2]) = (Some(7.0), Some(9.0));
            figures.take_cgroups(&[use_of(first, 3.0), CgroupUse { cgroup: "/gone".into(), ..use_of(first, 0.0) }]);
            figures.take_cgroups(&[use_of(second, 4.0)]);
        });
        let text = exposition(&shared).unwrap();
        for line in [
            "# TYPE lowtide_rss_bytes gauge",
            "# UNIT lowtide_rss_bytes bytes",
            r#"lowtide_rss_bytes{cgroup="/a \"b\""} 4096.0"#,
            r#"lowtide_minor_faults_total{cgroup="/a \"b\""} 7.0"#,
            r#"lowtide_cpu_seconds_total{cgroup="/a \"b\""} 1.5"#,
            r#"lowtide_workingset_bytes{cgroup="/a \"b\"",type="anon",window="5s"} 15.0"#,
            r#"lowtide_cgroup_memory_bytes{cgroup="/a/b",node="0",type="anon"} 70.0"#,
            r#"lowtide_cgroup_workingset_bytes{cgroup="/a/b",node="0",type="anon",window="1s"} 7.0"#,
            r#"lowtide_cgroup_workingset_bytes{cgroup="/a/b",node="0",type="anon",window="10s"} 9.0"#,
            r#"lowtide_cgroup_promoted_bytes_total{cgroup="/a/b",node="0",type="anon"} 7.0"#,
            r#"lowtide_idle_bytes{cgroup="/a \"b\"",type="anon",age="1s"} 90.0"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nin\n{text}");
        }
        assert!(!text.contains("/gone"), "a cgroup that is gone has no figures");
    }
}
