//! `lowtide simulate`: policies tried on the simulated machine.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lowtide_model::PAGE;
use lowtide_model::units::Size;
use lowtide_policy::policies::{Policies, Spec};
use lowtide_policy::sim::memory::{EVICT_S, Memory, Swap};
use lowtide_policy::sim::monitor::Monitors;
use lowtide_policy::sim::simulated::Setup;
use lowtide_policy::sim::{self, Faults, Scenario, Simulated, replay};
use serde::de::DeserializeOwned;

use super::report::terminal;
use crate::acts::SwapTo;
use lowtide_engine::failure::{Failure, code, in_toml};
use lowtide_record::Record;
use lowtide_report::simulated::{NOTHING, Run, write};
use lowtide_report::{Format, Look};

/// `lowtide simulate`
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
    /// How to print
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file instead of the standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Regions that a policy sees of each workload where the scenario does not say.
const REGIONS: u32 = 100;

/// Simulates nothing and each policy, and prints what came of it.
///
/// # Errors
/// If a file has a mistake, the record does not tell when memory was used, or the output fails.
pub fn run(args: &SimulateArgs) -> anyhow::Result<i32> {
    let (title, mut setup) = match (&args.scenario, &args.record) {
        (Some(path), _) => (path.display().to_string(), scenario(path)?),
        (None, Some(dir)) => recorded(args, dir)?,
        (None, None) => return Err(Failure::new(code::USAGE, "simulate: give --scenario or --record").into()),
    };
    if let Some(seed) = args.seed {
        setup.seed = seed;
    }
    let policies: Policies = args.policy.as_deref().map_or_else(|| Ok(Policies::new()), read)?;
    let runs = simulate(&setup, &policies)?;
    let format = if args.json { Format::Json } else { args.format };
    let look = if args.output.is_some() { Look::default() } else { terminal() };
    let mut bytes = Vec::new();
    write(&title, &runs, format, look, &mut bytes)?;
    match &args.output {
        None => std::io::stdout().write_all(&bytes)?,
        Some(path) => fs::write(path, bytes).with_context(|| format!("simulate: {}", path.display()))?,
    }
    Ok(0)
}

fn simulate(setup: &Setup, policies: &Policies) -> anyhow::Result<Vec<Run>> {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(policies.len() as u64 + 1)
    } else {
        ProgressBar::hidden()
    };
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}")?);
    let mut runs = Vec::new();
    let all = [(NOTHING, None)].into_iter().chain(policies.iter().map(|(name, spec)| (name.as_str(), Some(spec))));
    for (name, spec) in all {
        bar.set_message(name.to_owned());
        let policy = spec
            .map(|spec| spec.build(setup.seed))
            .transpose()
            .map_err(|error| Failure::new(code::USAGE, format!("policy {name}: {error}")))?;
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
    Ok(scenario.setup().map_err(|error| Failure::new(code::USAGE, format!("{}: {error}", path.display())))?)
}

/// A TOML file; a mistake in it is named with its place.
fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text =
        fs::read_to_string(path).map_err(|error| Failure::new(code::USAGE, format!("{}: {error}", path.display())))?;
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
    let Some(mut load) = replay::load(1, &name, &ages, &lives, tick_s) else {
        let why = "the record does not tell when its memory was used";
        let fix = "record with --monitor damon, mglru or smaps";
        return Err(Failure::new(code::IMPOSSIBLE, format!("simulate: {}: {why}; {fix}", dir.display())).into());
    };
    #[expect(clippy::cast_precision_loss, reason = "a size of memory")]
    let bytes = |size: u64| size as f64;
    let runtime_s = record.usage().iter().filter_map(|row| row.t_s).fold(0.0, f64::max);
    if let Some(limit) = args.limit {
        load.limits.max = bytes(limit.0);
    }
    load.cpus = 1.0;
    let costs = meta.refault_costs.or_usual();
    let total = args.memory.map_or(meta.host.memory_bytes, |size| size.0);
    if total == 0 {
        let why = "the record does not tell how much memory its machine had";
        return Err(Failure::new(code::USAGE, format!("simulate: {}: {why}; give --memory", dir.display())).into());
    }
    let swap = args.swap.as_ref().map_or(total, |swap| swap.size().0);
    let setup = Setup {
        seed: 1,
        step_s: 1.0,
        duration_s: runtime_s,
        cpus: bytes(meta.host.cpus.max(1)),
        memory: Memory {
            total: bytes(total),
            resident: 0,
            stored: 0.0,
            swap: Swap { capacity: swap / PAGE, used: 0, zram: true, in_s: costs.swap_s },
            disk_s: costs.disk_s,
            out_s: EVICT_S,
        },
        loads: vec![load],
        turn_s: 1.0,
        monitors: Monitors::default(),
        faults: Faults::default(),
        spare: 0.0,
    };
    Ok((name, setup))
}
