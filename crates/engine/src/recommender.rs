//! The recommender's configuration of the loop: what to give cgroups that run, kept current (`lowtide budget --watch`).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{Signal as Received, Signals};
use lowtide_model::WINDOWS_S;
use lowtide_model::budget::decaying::{Decaying, Need};
use lowtide_model::budget::{of_curve, share_of_work};
use lowtide_model::curve::MeasuredCosts;
use lowtide_model::target::TargetId;
use lowtide_model::units::{float, integer};
use lowtide_record::atomic::{self, Care};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use serde::Serialize;

use crate::agent::sampling::{MOST_CPU, Sampling, SamplingConfig};
use crate::agent::sinks::history::{History, Track};
use crate::calibration;
use crate::failure::{Failure, code};
use crate::metrics::Family;
use crate::scheduler::{LoopTask, Reason};
use crate::source::SourceChoice;
use crate::workloads::{By, Rules, Workload, WorkloadRule, Workloads};

/// Cgroups are observed so often, seconds.
pub const OBSERVE_S: f64 = 5.0;
/// What was not observed for so many half-lives is forgotten.
const FORGOTTEN: f64 = 8.0;

/// How it recommends.
#[derive(Debug, Clone)]
pub struct RecommendOptions {
    /// Patterns of cgroups.
    pub cgroups: Vec<String>,
    /// Seconds from one recommendation to the next.
    pub every_s: f64,
    /// What was needed so many seconds ago counts half.
    pub half_life_s: f64,
    /// A share of the time that may be lost.
    pub slowdown: f64,
    /// Bytes of swap that can be counted on.
    pub swap: u64,
    /// Where its state is kept.
    pub state: Option<PathBuf>,
}

/// What is recommended for one cgroup.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommended {
    /// The cgroup.
    pub cgroup: String,
    /// What to give it, bytes.
    pub budget_bytes: f64,
    /// What it needs now, as far as the last hour shows.
    pub need_bytes: f64,
    /// What it has.
    pub held_bytes: f64,
    /// Its limit.
    pub limit_bytes: Option<u64>,
    /// Kills for its limit since it was first observed.
    pub oom_kills: u64,
    /// Readings that it is made from.
    #[serde(rename = "looks")]
    pub readings: u64,
}

/// The newest of all cgroups, for metrics.
#[derive(Debug, Clone, Default)]
pub struct RecommendedMetrics(Arc<Mutex<Vec<Recommended>>>);

impl Collector for RecommendedMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        type Get = fn(&Recommended) -> f64;
        let gauges: [(&str, &str, Get); 3] = [
            ("lowtide_budget_recommended", "Memory to give the cgroup", |of| of.budget_bytes),
            ("lowtide_budget_need", "Memory that it needs now, as far as the last hour shows", |of| of.need_bytes),
            ("lowtide_budget_held", "Memory that is charged to it", |of| of.held_bytes),
        ];
        for (name, doc, get) in gauges {
            let values = all.iter().map(|of| (vec![("cgroup", of.cgroup.clone())], get(of)));
            Family::bytes(name, doc).encode(&mut encoder, values)?;
        }
        Ok(())
    }
}

/// What was counted of one cgroup since it was first read.
#[derive(Debug, Default)]
struct Counted {
    /// OOM kills at the last reading, and since the first.
    last_kills: Option<u64>,
    kills: u64,
    /// When the first reading was, and its CPU seconds until then.
    first: Option<(f64, f64)>,
}

impl Counted {
    /// The share of the time in which it was on a CPU; all of it where that is not known.
    fn working(&mut self, now_s: f64, cpu_s: Option<f64>) -> f64 {
        let Some(cpu_s) = cpu_s else { return 1.0 };
        let (first_s, first_cpu_s) = *self.first.get_or_insert((now_s, cpu_s));
        share_of_work(cpu_s - first_cpu_s, now_s - first_s)
    }
}

/// Seconds since 1970.
pub fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Needs by the cgroup's path, and when that was last observed: paths come again, cgroups do not.
type Needs = BTreeMap<String, (f64, Decaying)>;

fn load(path: &Path) -> anyhow::Result<Needs> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| {
            Failure::new(code::USAGE, format!("--state {}: {error}; give another file, or remove it", path.display()))
                .into()
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Needs::new()),
        Err(error) => Err(error).with_context(|| format!("--state {}", path.display())),
    }
}

fn keep(path: &Path, needs: &Needs) -> anyhow::Result<()> {
    let written = serde_json::to_vec(needs).map_err(std::io::Error::from);
    let written = written.and_then(|text| atomic::write(path, Care::default(), &text));
    written.with_context(|| format!("--state {}", path.display()))
}

/// Observes cgroups, and recommends.
pub struct Recommender<'a> {
    kernel: Kernel,
    options: RecommendOptions,
    workloads: Workloads,
    sampling: Sampling,
    history: History,
    needs: Needs,
    /// By inode.
    counted: BTreeMap<TargetId, Counted>,
    metrics: RecommendedMetrics,
    /// Takes each recommendation.
    report: &'a mut dyn FnMut(&[Recommended]) -> anyhow::Result<()>,
    observe_s: f64,
    next_s: f64,
}

impl<'a> Recommender<'a> {
    /// Begins. Fails if a pattern makes no sense, or its state cannot be read.
    pub fn new(
        kernel: &Kernel,
        options: RecommendOptions,
        report: &'a mut dyn FnMut(&[Recommended]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        // No policy is asked; its name has idle ages sampled.
        let rule = |cgroup: &String| WorkloadRule {
            cgroup: cgroup.clone(),
            policy: "auto".to_owned(),
            metric: None,
            priority: 0,
            by: By::Cgroup,
            labels: BTreeMap::new(),
        };
        let rules: Vec<WorkloadRule> = options.cgroups.iter().map(rule).collect();
        let rules = Rules::new(kernel, &rules, &[])
            .map_err(|error| Failure::new(code::USAGE, format!("--watch: {error}; give a path or a pattern")))?;
        let sampling = SamplingConfig {
            monitor: SourceChoice::Auto,
            schemes: BTreeMap::new(),
            windows_s: WINDOWS_S.into_iter().filter(|window| *window >= 5).collect(),
            longest_s: 0,
            every_s: OBSERVE_S,
        };
        let now_s = kernel.awake_s();
        Ok(Self {
            kernel: kernel.clone(),
            workloads: Workloads::new(kernel, rules, calibration::load()),
            sampling: Sampling::new(kernel, sampling),
            history: History::default(),
            needs: options.state.as_deref().map(load).transpose()?.unwrap_or_default(),
            counted: BTreeMap::new(),
            metrics: RecommendedMetrics::default(),
            report,
            observe_s: now_s,
            next_s: now_s + options.every_s,
            options,
        })
    }

    /// The newest recommendations, for metrics.
    pub fn metrics(&self) -> RecommendedMetrics {
        self.metrics.clone()
    }

    fn observe(&mut self, now_s: f64) {
        let fresh = self.sampling.read(now_s, MOST_CPU, &mut self.workloads);
        let _ = self.workloads.observe(now_s);
        if std::mem::take(&mut self.workloads.is_searched) {
            self.sampling.follow(now_s, &mut self.workloads);
        }
        for note in std::mem::take(&mut self.workloads.new_notes) {
            lowtide_kernel::message!("lowtide: {note}");
        }
        self.history.observe(now_s, self.workloads.all.values().map(|of| of.reading(fresh)));
    }

    /// What to give each. `unix_s`: now, seconds since 1970.
    fn recommend(&mut self, now_s: f64, unix_s: f64) -> Vec<Recommended> {
        let (costs, half_life_s) = (calibration::load_or_sample(&self.kernel), self.options.half_life_s);
        let mut all = Vec::new();
        for (id, workload) in &self.workloads.all {
            let Some(track) = self.history.tracks.get(id) else { continue };
            let counted = self.counted.entry(*id).or_default();
            let asked = Asked { now_s, slowdown: self.options.slowdown, swap: self.options.swap, costs: &costs };
            let Some((need, limit_bytes)) = need(&self.kernel, (workload, track), counted, &asked) else { continue };
            let new = || (unix_s, Decaying::new(half_life_s));
            let (observed_s, needs) = self.needs.entry(workload.path.clone()).or_insert_with(new);
            needs.add(need.counted(), unix_s);
            *observed_s = unix_s;
            all.push(Recommended {
                cgroup: workload.path.clone(),
                budget_bytes: needs.recommended().unwrap_or(need.bytes),
                need_bytes: need.bytes,
                held_bytes: need.held,
                limit_bytes,
                oom_kills: counted.kills,
                readings: needs.readings,
            });
        }
        let there = &self.workloads.all;
        self.counted.retain(|id, _| there.contains_key(id));
        self.needs.retain(|_, (observed_s, _)| unix_s - *observed_s < FORGOTTEN * half_life_s);
        all
    }
}

impl LoopTask for Recommender<'_> {
    fn now_s(&self) -> f64 {
        self.kernel.awake_s()
    }

    fn next_due_s(&self) -> f64 {
        self.observe_s
    }

    fn signal(&mut self, _: &Received) -> anyhow::Result<Option<Reason>> {
        Ok(Some("interrupted"))
    }

    fn turn(&mut self, _: &Signals) -> anyhow::Result<Option<Reason>> {
        let now_s = self.now_s();
        if now_s < self.observe_s {
            return Ok(None);
        }
        self.observe_s = now_s + OBSERVE_S;
        self.observe(now_s);
        if now_s >= self.next_s {
            self.next_s += self.options.every_s;
            let all = self.recommend(now_s, unix_s());
            (self.report)(&all)?;
            *self.metrics.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
            if let Some(path) = &self.options.state {
                keep(path, &self.needs)?;
            }
        }
        Ok(None)
    }
}

/// What is asked of a need.
struct Asked<'a> {
    now_s: f64,
    slowdown: f64,
    swap: u64,
    costs: &'a MeasuredCosts,
}

/// What one cgroup needs, and its limit; `None` if it is gone.
fn need(
    kernel: &Kernel,
    (workload, track): (&Workload, &Track),
    counted: &mut Counted,
    asked: &Asked<'_>,
) -> Option<(Need, Option<u64>)> {
    let Asked { now_s, slowdown, swap, costs } = *asked;
    let charges = workload.cgroup.charges(kernel).ok()?;
    let resident: f64 = workload.now.resident.map(float).total();
    let held = charges.cgroup_bytes.unwrap_or(resident);
    // What a limit may cost is a share of its work.
    let lost = slowdown * counted.working(now_s, charges.cpu_s);
    let costs = costs.of_limits(charges.on_disk().unwrap_or(0.0));
    let lists = track.curve(now_s).map_or(resident, |curve| of_curve(&curve, lost, &costs, swap > 0));
    // With less than what cannot be paged out, a process is killed.
    let unevictable = charges.unevictable_bytes?;
    let stays = (charges.anon_bytes? + charges.shmem_bytes? + charges.swap_bytes? - float(swap)).max(unevictable);
    let lists = lists.max(stays);
    let oom_kills = charges.oom_kills.map(integer);
    let new_kills = oom_kills.zip(counted.last_kills).map_or(0, |(now, before)| now.saturating_sub(before));
    (counted.last_kills, counted.kills) = (oom_kills, counted.kills + new_kills);
    let slow = track.pressure.is_some_and(|share| share > slowdown);
    let limit = workload.cgroup.lowest_limit(kernel);
    // What is on no list is the kernel's.
    let bytes = lists + (held - resident).max(0.0);
    Some((Need { bytes, held, limit: limit.map(float), killed: new_kills > 0, slow }, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_is_there_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        assert_eq!(load(&path).unwrap(), Needs::new());
        let mut decaying = Decaying::new(60.0);
        decaying.add(5e8, 1000.0);
        let needs = Needs::from([("/a".to_owned(), (1000.0, decaying))]);
        keep(&path, &needs).unwrap();
        assert_eq!(load(&path).unwrap(), needs);
        std::fs::write(&path, "{").unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("remove it"));
    }

    #[test]
    fn work_is_counted_from_the_first_reading() {
        let mut counted = Counted::default();
        let shares = [(100.0, Some(7.0)), (110.0, Some(8.0)), (120.0, Some(57.0)), (130.0, None)];
        assert_eq!(shares.map(|(now_s, cpu_s)| counted.working(now_s, cpu_s)), [1.0, 0.1, 1.0, 1.0]);
    }

    #[test]
    fn metrics_show_what_is_recommended() {
        let shared = RecommendedMetrics::default();
        shared.0.lock().unwrap().push(Recommended {
            cgroup: "/a".into(),
            budget_bytes: 3e6,
            need_bytes: 2e6,
            held_bytes: 4e6,
            limit_bytes: None,
            oom_kills: 0,
            readings: 1,
        });
        let text = crate::metrics::exposition(&shared).unwrap();
        assert!(text.contains("lowtide_budget_recommended_bytes{cgroup=\"/a\"} 3000000"), "{text}");
    }
}
