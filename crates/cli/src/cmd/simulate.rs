//! `lowtide simulate`: policies tried on the simulated machine.

use std::fs;
use std::path::{Path, PathBuf};

use lowtide_engine::failure::{Failure, code, in_toml};
use lowtide_model::PAGE;
use lowtide_model::units::{Size, float};
use lowtide_policy::policies::{Policies, Spec};
use lowtide_policy::sim::memory::{EVICT_S, SimulatedMemory, Swap};
use lowtide_policy::sim::monitor::Monitors;
use lowtide_policy::sim::simulated::Setup;
use lowtide_policy::sim::{self, InjectedFaults, Scenario, Simulated, replay};
use lowtide_record::Record;
use lowtide_report::simulated::{NOTHING, Run, SimulatedRuns, write};
use serde::de::DeserializeOwned;

use crate::acts::SwapTo;
use crate::output::{OutputArgs, progress, usage};

/// Try policies on a simulated machine
#[derive(Debug, clap::Args)]
pub struct SimulateArgs {
    /// File that describes the machine and its workloads
    #[arg(long, value_name = "FILE", required_unless_present = "record")]
    scenario: Option<PathBuf>,
    /// A record: its workload, on the machine on which it was recorded
    #[arg(long, value_name = "RECORD", conflicts_with = "scenario")]
    record: Option<PathBuf>,
    /// File of policies to try; without one, only what happens without a policy
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Of a record: the machine's memory, instead of that of the recorded one
    #[arg(long, value_name = "SIZE", requires = "record")]
    memory: Option<Size>,
    /// Of a record: the workload's limit
    #[arg(long, value_name = "SIZE", requires = "record")]
    limit: Option<Size>,
    /// Of a record: swap (default: as large as the machine's memory)
    #[arg(long, value_name = "zram:SIZE", requires = "record")]
    swap: Option<SwapTo>,
    /// Seed of everything random (default: the scenario's)
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Regions of each workload that a policy is given where the scenario does not say.
const REGIONS: u32 = 100;

/// Simulates the machine without a policy and with each, and prints the results.
///
/// # Errors
/// If a file has a mistake, the record does not hold when memory was used, or the output fails.
pub fn run(args: &SimulateArgs) -> anyhow::Result<i32> {
    let (title, mut setup) = match (&args.scenario, &args.record) {
        (Some(path), _) => (path.display().to_string(), scenario(path)?),
        (None, Some(dir)) => recorded(args, dir)?,
        (None, None) => anyhow::bail!(usage("simulate: give --scenario or --record")),
    };
    if let Some(seed) = args.seed {
        setup.seed = seed;
    }
    let policies: Policies = args.policy.as_deref().map_or_else(|| Ok(Policies::new()), read)?;
    let runs = SimulatedRuns { title, runs: simulate(&setup, &policies)? };
    args.output.print(|format, terminal, out| write(&runs, format, terminal, out))?;
    Ok(0)
}

fn simulate(setup: &Setup, policies: &Policies) -> anyhow::Result<Vec<Run>> {
    let bar = progress(policies.len(), "");
    let mut runs = Vec::new();
    let all = [(NOTHING, None)].into_iter().chain(policies.iter().map(|(name, spec)| (name.as_str(), Some(spec))));
    for (name, spec) in all {
        bar.set_message(name.to_owned());
        let policy = spec
            .map(|spec| spec.build(setup.seed))
            .transpose()
            .map_err(|error| usage(format!("policy {name}: {error}")))?;
        let mut setup = setup.clone();
        if setup.monitors.regions == 0 && spec.is_some_and(Spec::wants_regions) {
            setup.monitors.regions = REGIONS;
        }
        let outcome = sim::run(Simulated::new(setup), policy);
        runs.push(Run { policy: name.to_owned(), outcome });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(runs)
}

fn scenario(path: &Path) -> anyhow::Result<Setup> {
    let scenario: Scenario = read(path)?;
    Ok(scenario.setup().map_err(|error| usage(format!("{}: {error}", path.display())))?)
}

/// A TOML file; a mistake in it is named with its place.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(path).map_err(|error| usage(format!("{}: {error}", path.display())))?;
    toml::from_str(&text).map_err(|error| in_toml(path, &text, &error).into())
}

/// The machine of a record with what ran on it.
fn recorded(args: &SimulateArgs, dir: &Path) -> anyhow::Result<(String, Setup)> {
    let record = Record::open(dir)?;
    let meta = record.meta();
    let (mut ages, lives, tick_s) = (record.ages(), record.lives(), record.tick_s());
    if ages.is_empty() {
        ages = record.ages_of_map();
    }
    let name = meta.command.join(" ");
    let Some(mut load) = replay::load(&name, &ages, &lives, tick_s) else {
        let why = "the record does not hold when its memory was used";
        let fix = "record with --monitor damon, mglru or smaps";
        return Err(Failure::new(code::IMPOSSIBLE, format!("simulate: {}: {why}; {fix}", dir.display())).into());
    };
    let runtime_s = record.usage().iter().filter_map(|row| row.t_s).fold(0.0, f64::max);
    if let Some(limit) = args.limit {
        load.limits.max = float(limit.0);
    }
    load.cpus = 1.0;
    let costs = meta.refault_costs.or_usual();
    let total = args.memory.map_or(meta.host.memory_bytes, |size| size.0);
    if total == 0 {
        let why = "the record does not hold how much memory its machine had";
        anyhow::bail!(usage(format!("simulate: {}: {why}; give --memory", dir.display())));
    }
    let swap = args.swap.as_ref().map_or(total, |swap| swap.size.0);
    let setup = Setup {
        seed: 1,
        step_s: 1.0,
        duration_s: runtime_s,
        cpus: float(meta.host.cpus.max(1)),
        memory: SimulatedMemory {
            total: float(total),
            resident: 0,
            stored: 0.0,
            swap: Swap { capacity: swap / PAGE, used: 0, zram: true, in_s: costs.swap_s },
            disk_s: costs.disk_s,
            out_s: EVICT_S,
        },
        loads: vec![load],
        turn_s: 1.0,
        monitors: Monitors::default(),
        faults: InjectedFaults::default(),
        spare: 0.0,
    };
    Ok((name, setup))
}
