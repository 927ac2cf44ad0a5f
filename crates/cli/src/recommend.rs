//! `lowtide budget --watch`: a recommendation for cgroups that run, kept current.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::Signals;
use lowtide_model::WINDOWS_S;
use lowtide_model::budget::decaying::{Decaying, Need};
use lowtide_model::budget::of_curve;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::units::{Share, Span, human_bytes};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use serde::Serialize;

use lowtide_engine::agent::config::{By, Config, Workload};
use lowtide_engine::agent::history::{History, Kind, Known, Seen};
use lowtide_engine::agent::watch::{Watch, Watched};
use lowtide_engine::calibration;
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::serve;

/// Cgroups are looked at so often.
const LOOK_S: f64 = 5.0;
/// What was not seen for so many half-lives is forgotten.
const FORGOTTEN: f64 = 8.0;

/// How cgroups are watched.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Keep a recommendation for running cgroups current, until a signal ends it
    #[arg(long, requires = "cgroup", conflicts_with_all = ["records", "command", "emit", "verify"])]
    pub watch: bool,
    /// Which: a path below the memory cgroup mount, `*` for one part of it, `**` for any number
    #[arg(long, value_name = "PATTERN", requires = "watch")]
    pub cgroup: Vec<String>,
    /// Time from one recommendation to the next
    #[arg(long, value_name = "TIME", default_value = "1m", requires = "watch")]
    pub every: Span,
    /// What was needed so long ago counts half
    #[arg(long, value_name = "TIME", default_value = "24h", requires = "watch")]
    pub half_life: Span,
    /// Serve OpenMetrics there
    #[arg(long, value_name = "ADDRESS:PORT", requires = "watch")]
    pub listen: Option<SocketAddr>,
    /// Keep what was learnt in this file, and go on from it
    #[arg(long, value_name = "FILE", requires = "watch")]
    pub state: Option<PathBuf>,
}

/// What is recommended for one cgroup.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Recommended {
    cgroup: String,
    /// What to give it, bytes.
    budget_bytes: f64,
    /// What it needs now, as far as the last hour tells.
    need_bytes: f64,
    /// What it has.
    held_bytes: f64,
    limit_bytes: Option<u64>,
    /// Kills for its limit since it was first seen.
    oom_kills: u64,
    looks: u64,
}

/// The newest of all cgroups, for whoever asks.
#[derive(Debug, Clone, Default)]
struct Shared(Arc<Mutex<Vec<Recommended>>>);

impl Collector for Shared {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        type Get = fn(&Recommended) -> f64;
        let gauges: [(&str, &str, Get); 3] = [
            ("lowtide_budget_recommended", "Memory to give the cgroup", |of| of.budget_bytes),
            ("lowtide_budget_need", "Memory that it needs now, as far as the last hour tells", |of| of.need_bytes),
            ("lowtide_budget_held", "Memory that is charged to it", |of| of.held_bytes),
        ];
        for (name, doc, get) in gauges {
            let mut family = encoder.encode_descriptor(name, doc, Some(&Unit::Bytes), MetricType::Gauge)?;
            for one in &all {
                family.encode_family(&[("cgroup", one.cgroup.as_str())])?.encode_gauge(&get(one))?;
            }
        }
        Ok(())
    }
}

/// What is kept of one cgroup between looks.
#[derive(Debug, Default)]
struct Before {
    kills: Option<u64>,
    all_kills: u64,
}

/// Watches until a signal ends it.
///
/// # Errors
/// If a pattern makes no sense, or an address or file cannot be used.
pub fn watch(args: &Args, slowdown: Share, swap: u64, json: bool) -> anyhow::Result<i32> {
    let half_life_s = args.half_life.0.as_secs_f64();
    if args.every.0.as_secs_f64() < LOOK_S || half_life_s < args.every.0.as_secs_f64() {
        let message = format!(
            "--every {}: give 5s or more, and no more than --half-life ({}), for example 1m",
            args.every, args.half_life
        );
        return Err(Failure::new(code::USAGE, message).into());
    }
    let kernel = Kernel::default();
    let workload = |cgroup: &String| Workload {
        cgroup: cgroup.clone(),
        // Its idle ages are looked at for that; nobody is asked what to do.
        policy: "auto".to_owned(),
        metric: None,
        priority: 0,
        by: By::Cgroup,
        labels: BTreeMap::new(),
    };
    let ages =
        WINDOWS_S.iter().filter(|window| **window >= 5).map(|window| Span(Duration::from_secs(u64::from(*window))));
    let config = Config {
        every: Span(Duration::from_secs_f64(LOOK_S)),
        ages: ages.collect(),
        workload: args.cgroup.iter().map(workload).collect(),
        ..Config::default()
    };
    config.check(&kernel).map_err(|why| Failure::new(code::USAGE, format!("--watch: {why}")))?;
    let signals = Signals::block(&[Signal::INT.as_raw(), Signal::TERM.as_raw(), Signal::HUP.as_raw()])?;
    let shared = Shared::default();
    if let Some(address) = args.listen {
        eprintln!("listening address=http://{}/metrics", serve::start(address, shared.clone())?);
    }
    let mut recommender = Recommender {
        watch: Watch::new(&kernel, &config)?,
        history: History::default(),
        needs: args.state.as_deref().map(load).transpose()?.unwrap_or_default(),
        before: BTreeMap::new(),
        kernel,
        slowdown: slowdown.0,
        swap,
        half_life_s,
    };
    let start_ns = recommender.kernel.monotonic_ns();
    let every_s = args.every.0.as_secs_f64();
    let mut next_s = every_s;
    while !wait(&recommender.kernel, &signals)? {
        let now_s = recommender.kernel.seconds_since(start_ns);
        recommender.look(now_s);
        if now_s < next_s {
            continue;
        }
        next_s += every_s;
        let all = recommender.recommend(now_s, unix_s());
        tell(&all, json)?;
        *shared.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
        if let Some(path) = &args.state {
            keep(path, &recommender.needs)?;
        }
    }
    Ok(0)
}

/// Waits for the next look. True if a signal came that ends it.
fn wait(kernel: &Kernel, signals: &Signals) -> anyhow::Result<bool> {
    kernel.wait(&mut [PollFd::new(signals, PollFlags::IN)], LOOK_S)?;
    Ok(signals.next()?.is_some())
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Needs by the cgroup's path, and when that was last seen: paths come again, cgroups do not.
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
    let whole = path.with_extension("tmp");
    let write = || std::fs::write(&whole, serde_json::to_vec(needs)?).and_then(|()| std::fs::rename(&whole, path));
    write().with_context(|| format!("--state {}", path.display()))
}

fn tell(all: &[Recommended], json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        let line = serde_json::json!({ "schema": 1, "t_unix_s": unix_s(), "cgroups": all });
        writeln!(out, "{line}")?;
    } else {
        for one in all {
            let [budget, need, held] = [one.budget_bytes, one.need_bytes, one.held_bytes].map(human_bytes);
            writeln!(out, "{}: give {budget}; needs {need}, has {held}", one.cgroup)?;
        }
    }
    Ok(out.flush()?)
}

/// What is known of all cgroups.
struct Recommender {
    kernel: Kernel,
    watch: Watch,
    history: History,
    needs: Needs,
    /// By inode.
    before: BTreeMap<u64, Before>,
    slowdown: f64,
    /// Bytes of swap that can be counted on.
    swap: u64,
    half_life_s: f64,
}

impl Recommender {
    fn look(&mut self, now_s: f64) {
        let fresh = self.watch.look(now_s);
        let _ = self.watch.observe(now_s);
        for note in self.watch.take_notes() {
            eprintln!("lowtide: {note}");
        }
        #[expect(clippy::cast_precision_loss, reason = "sizes of memory")]
        let seen = self.watch.found().iter().map(|(id, of)| Seen {
            id: *id,
            kind: Kind::Cgroup,
            name: &of.path,
            policy: &of.policy,
            resident: of.now.resident.map(|bytes| bytes as f64),
            swapped: of.now.swapped as f64,
            kept: None,
            stalled_s: of.now.stalled_s[0],
            ages: if fresh { &of.ages } else { &[] },
        });
        self.history.look(now_s, seen);
    }

    /// What to give each.
    fn recommend(&mut self, now_s: f64, at_s: f64) -> Vec<Recommended> {
        let costs = calibration::load().or_usual();
        let mut all = Vec::new();
        for (id, watched) in self.watch.found() {
            let Some(known) = self.history.known().get(id) else { continue };
            let before = self.before.entry(*id).or_default();
            let Some((need, limit_bytes)) =
                need(&self.kernel, watched, known, before, &costs, (now_s, self.slowdown, self.swap))
            else {
                continue;
            };
            let new = || (at_s, Decaying::new(self.half_life_s));
            let (seen_s, needs) = self.needs.entry(watched.path.clone()).or_insert_with(new);
            needs.add(need.counted(), at_s);
            *seen_s = at_s;
            all.push(Recommended {
                cgroup: watched.path.clone(),
                budget_bytes: needs.recommended().unwrap_or(need.bytes),
                need_bytes: need.bytes,
                held_bytes: need.held,
                limit_bytes,
                oom_kills: before.all_kills,
                looks: needs.looks,
            });
        }
        let found = self.watch.found();
        self.before.retain(|id, _| found.contains_key(id));
        self.needs.retain(|_, (seen_s, _)| at_s - *seen_s < FORGOTTEN * self.half_life_s);
        all
    }
}

/// What one cgroup needs, and its limit; `None` if it is gone.
#[expect(clippy::cast_precision_loss, reason = "sizes of memory")]
fn need(
    kernel: &Kernel,
    watched: &Watched,
    known: &Known,
    before: &mut Before,
    costs: &RefaultCosts,
    (now_s, slowdown, swap): (f64, f64, u64),
) -> Option<(Need, Option<u64>)> {
    let charges = watched.cgroup.charges(kernel).ok()?;
    let resident: f64 = watched.now.resident.iter().map(|bytes| *bytes as f64).sum();
    let held = charges.current.map_or(resident, |bytes| bytes as f64);
    let lists = known.curve(now_s).map_or(resident, |curve| of_curve(&curve, slowdown, costs, swap > 0));
    // With less than what cannot be paged out, somebody is killed.
    let stays = (charges.anon + charges.shmem + charges.swap).saturating_sub(swap).max(charges.unevictable);
    let lists = lists.max(stays as f64);
    let killed = charges.oom_kills.zip(before.kills).is_some_and(|(now, before)| now > before);
    if let (Some(now), Some(then)) = (charges.oom_kills, before.kills) {
        before.all_kills += now.saturating_sub(then);
    }
    before.kills = charges.oom_kills;
    let slow = known.pressure.is_some_and(|share| share > slowdown);
    let limit = watched.cgroup.lowest_limit(kernel);
    // What is on no list is the kernel's.
    let bytes = lists + (held - resident).max(0.0);
    Some((Need { bytes, held, limit: limit.map(|bytes| bytes as f64), killed, slow }, limit))
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
    fn metrics_tell_what_is_recommended() {
        let shared = Shared::default();
        shared.0.lock().unwrap().push(Recommended {
            cgroup: "/a".into(),
            budget_bytes: 3e6,
            need_bytes: 2e6,
            held_bytes: 4e6,
            limit_bytes: None,
            oom_kills: 0,
            looks: 1,
        });
        let text = serve::exposition(&shared).unwrap();
        assert!(text.contains("lowtide_budget_recommended_bytes{cgroup=\"/a\"} 3000000"), "{text}");
    }
}
