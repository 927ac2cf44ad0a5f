//! Fleets to try things on: machines with workloads of many kinds, run on the simulated machine, that report what the agent
//! would have reported of them.
//!
//! Sizes are spread as in data centres: most workloads are small, a few are large (log-normal). What they do with it is
//! drawn for each: a part in use all the time, parts that are used the more rarely the more of them there is (Zipf),
//! something swept over now and then, and something that is not used again. Some run by day, some are batches that grow and
//! end. On average about a third is cold after two minutes, as published for a fleet (Lagar-Cavilla et al., ASPLOS'19: 32 %).

use std::path::{Path, PathBuf};

use lowtide_model::kind::Kind;
use lowtide_model::random::Random;
use lowtide_model::target::TargetId;
use lowtide_model::units::integer;
use lowtide_policy::sim::load::{AccessPattern, Foreground, Load, Part};
use lowtide_policy::sim::memory::{EVICT_S, SimulatedMemory, Swap};
use lowtide_policy::sim::monitor::Monitors;
use lowtide_policy::sim::simulated::Setup;
use lowtide_policy::sim::{InjectedFaults, Simulated};
use rayon::prelude::*;

use crate::collect::Collector;
use crate::store::{self, TelemetryError};
use crate::telemetry::TelemetryRow;

/// A fleet to be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetPlan {
    /// Machines.
    pub hosts: u32,
    /// Workloads of each.
    pub workloads: u32,
    /// Seconds.
    pub duration_s: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Seconds of a step of the simulated machines: shorter times between two uses do not happen.
    pub step_s: f64,
    /// Seconds between two readings.
    pub sampling_s: f64,
    /// Pages in each sample; 0 = all.
    pub sample: u32,
    /// When it begins, Unix time.
    pub from_unix_s: f64,
}

impl Default for FleetPlan {
    /// A few machines for a day, from the first of January 2026.
    fn default() -> Self {
        Self {
            hosts: 10,
            workloads: 30,
            duration_s: DAY_S,
            seed: 1,
            step_s: 5.0,
            sampling_s: 20.0,
            sample: Monitors::default().sample,
            from_unix_s: 1_767_225_600.0,
        }
    }
}

const DAY_S: f64 = 86_400.0;
const MIB: f64 = 1_048_576.0;
/// Groups of a part: what is used together is a 32nd of it.
const GROUPS: u32 = 32;
/// The middle size of a workload, and how far sizes are spread: the standard deviation of their logarithm.
const MIDDLE_MIB: f64 = 384.0;
const SPREAD: f64 = 1.1;

fn log_normal(middle: f64, spread: f64, random: &mut Random) -> f64 {
    middle * (spread * random.normal()).exp()
}

fn part(mib: f64, uses: AccessPattern, random: &mut Random) -> Part {
    let pages = u32::try_from(integer(mib * 256.0 / f64::from(GROUPS)).max(1)).unwrap_or(u32::MAX);
    let mut part = Part::new(Kind::of(random.chance() < 0.8), uses, pages, GROUPS);
    part.ratio = 1.5 + 3.0 * random.chance();
    part
}

/// A workload, and what kind it is.
fn workload(id: u64, duration_s: f64, random: &mut Random) -> Load {
    let mib = log_normal(MIDDLE_MIB, SPREAD, random).clamp(16.0, 65_536.0);
    let kind = random.chance();
    // How much is idle is as different as workloads are (the paper's figure 3: from a tenth to two thirds).
    let idle = 0.05 + 0.5 * random.chance() * random.chance();
    let shares: Vec<f64> =
        [(0.5, 1.5), (0.1, 0.5), (0.05, 0.3)].map(|(least, more)| least + more * random.chance()).into();
    let left = (1.0 - idle) / shares.iter().sum::<f64>();
    // Of what is not in use all the time most is used again after minutes or hours.
    let zipf_s = log_normal(10.0, 1.0, random).clamp(0.5, 120.0);
    let sweep_s = log_normal(1800.0, 1.3, random).clamp(5.0, 43_200.0);
    let uses = [
        AccessPattern::Steady(1.0 + 6.0 * random.chance()),
        AccessPattern::Zipf(zipf_s),
        AccessPattern::Sweep(sweep_s),
    ];
    let mut parts: Vec<Part> =
        shares.iter().zip(uses).map(|(share, uses)| part(mib * share * left, uses, random)).collect();
    parts.push(part(mib * idle, AccessPattern::Idle, random));
    let mut name = "service";
    let mut foreground = None;
    if kind < 0.2 {
        // Runs for some hours each day and waits for the rest.
        name = "daytime";
        let lasts_s = (6.0 + 12.0 * random.chance()) * 3600.0;
        foreground = Some(Foreground { from_s: 0.0, lasts_s, every_s: DAY_S });
    } else if kind < 0.4 {
        // One batch after the other, each with memory of its own that grows.
        name = "batch";
        let every_s = log_normal(5400.0, 0.8, random).clamp(900.0, 43_200.0);
        let own = parts.split_off(1);
        let mut from_s = every_s * random.chance();
        let mut cycle_s = 0.0;
        while from_s < duration_s && parts.len() < 200 {
            let until_s = from_s + every_s * (0.4 + 0.5 * random.chance());
            let grow_s = 0.3 * (until_s - from_s) * random.chance();
            for mut part in own.iter().cloned() {
                (part.from_s, part.grow_s, part.until_s) = (from_s, grow_s, until_s);
                parts.push(part);
            }
            from_s += every_s;
            cycle_s += every_s;
        }
        // After so many the first comes again.
        parts[1..].iter_mut().for_each(|part| part.again_s = cycle_s);
    } else if kind < 0.5 {
        // Grows for as long as it runs, and never uses older memory again.
        name = "growing";
        let last = parts.len() - 1;
        parts[last].grow_s = duration_s;
    }
    let mut load = Load::new(id, format!("/{name}.slice/{name}-{id}.service"), parts);
    (load.cpus, load.foreground) = (0.1 + random.chance(), foreground);
    load
}

/// The simulated machine that stands for a host of the plan.
pub fn setup(plan: &FleetPlan, host: u32) -> Setup {
    // Hosts must not be alike because their seeds are.
    let seed = lowtide_model::random::mix(plan.seed ^ lowtide_model::random::mix(u64::from(host) + 1));
    let mut random = Random::new(seed);
    let loads: Vec<Load> =
        (0..plan.workloads).map(|at| workload(u64::from(at) + 1, plan.duration_s, &mut random)).collect();
    // Nothing is short: what a policy takes is what it gets.
    let pages =
        |load: &Load| load.parts.iter().map(|part| f64::from(part.group_pages) * f64::from(part.groups)).sum::<f64>();
    let total = 2.0 * 4096.0 * loads.iter().map(pages).sum::<f64>() + 1024.0 * MIB;
    let swap = Swap { capacity: 1 << 40, used: 0, zram: true, in_s: 10e-6 };
    Setup {
        seed,
        step_s: plan.step_s,
        duration_s: plan.duration_s,
        cpus: 1e6,
        memory: SimulatedMemory { total, resident: 0, stored: 0.0, swap, disk_s: 100e-6, out_s: EVICT_S },
        loads,
        turn_s: plan.sampling_s,
        monitors: Monitors { sample: plan.sample, ..Monitors::default() },
        faults: InjectedFaults::default(),
        spare: 0.0,
    }
}

/// A host's name.
pub fn host_name(host: u32) -> String {
    format!("node{host:05}")
}

/// What a host reports, day by day.
pub fn host(
    plan: &FleetPlan,
    host: u32,
    each_day: &mut dyn FnMut(&[TelemetryRow]) -> Result<(), TelemetryError>,
) -> Result<usize, TelemetryError> {
    let mut machine = Simulated::new(setup(plan, host));
    let mut collector = Collector::default();
    let (mut rows, mut count, mut until_s) = (Vec::new(), 0, DAY_S);
    while machine.step() {
        if !machine.is_due() {
            continue;
        }
        let Some(frame) = machine.observe() else { continue };
        for (id, row) in collector.observe(&frame) {
            rows.push(named(&machine, id, row, plan.from_unix_s));
        }
        if frame.now_s >= until_s {
            count += rows.len();
            each_day(&std::mem::take(&mut rows))?;
            until_s += DAY_S;
        }
    }
    rows.extend(collector.end().into_iter().map(|(id, row)| named(&machine, id, row, plan.from_unix_s)));
    count += rows.len();
    each_day(&rows)?;
    Ok(count)
}

fn named(machine: &Simulated, id: TargetId, mut row: TelemetryRow, from_unix_s: f64) -> TelemetryRow {
    row.workload = machine.loads().iter().find(|load| load.id == id).map(|load| load.name.clone()).unwrap_or_default();
    // "/batch.slice/batch-7.service"
    let kind = row.workload.split(['/', '.']).find(|part| !part.is_empty()).unwrap_or_default();
    row.labels = serde_json::json!({ "kind": kind }).to_string();
    row.minute.now_s += from_unix_s;
    row
}

/// Makes a fleet's telemetry below a folder, on all CPUs; `done` hears of each host. Number of rows.
///
/// # Errors
/// If a file cannot be written; those of other hosts may have been.
pub fn fleet(plan: &FleetPlan, dir: &Path, done: &(dyn Fn(u32) + Sync)) -> Result<usize, TelemetryError> {
    let one = |at: u32| {
        let name = host_name(at);
        let mut write = |rows: &[TelemetryRow]| store::write(dir, &name, rows).map(|_: Vec<PathBuf>| ());
        let count = host(plan, at, &mut write);
        done(at);
        count
    };
    (0..plan.hosts).into_par_iter().with_max_len(1).map(one).sum()
}
