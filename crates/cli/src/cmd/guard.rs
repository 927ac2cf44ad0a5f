//! `lowtide guard`: keeps workloads from stealing each other's memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lowtide_kernel::root::Kernel;
use lowtide_model::units::Span;
use lowtide_policy::guard::{Detect, GuardSettings, Means};
use lowtide_policy::policies::Spec;

use super::agent::work;
use lowtide_engine::agent::config::Config;
use lowtide_engine::agent::daemon::Agent;
use lowtide_engine::agent::serve::listen::Listen;
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::workloads::{By, WorkloadRule};

/// Stop workloads from thrashing: they take turns in memory
#[derive(Debug, clap::Args)]
pub struct GuardArgs {
    /// Guard these cgroups: a path below the memory cgroup mount, `*` for one part of it, `**` for any number
    #[arg(long, value_name = "PATTERN")]
    cgroup: Vec<String>,
    /// These lose no time to the others, which are kept small for that
    #[arg(long, value_name = "PATTERN")]
    priority: Vec<String>,
    /// Leave these alone, with all that is below them
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// What takes turns: cgroups, or the large processes of these cgroups
    #[arg(long, default_value = "cgroup", value_parser = named::<By>)]
    by: By,
    /// How thrashing is detected
    #[arg(long, default_value = "auto", value_parser = named::<Detect>)]
    detect: Detect,
    /// What is done about it: one is protected (cgroup version 2), or the others are paused
    #[arg(long, default_value = "auto", value_parser = named::<Means>)]
    means: Means,
    /// Serve the live page, JSON and metrics there: 127.0.0.1:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", value_parser = named::<Listen>)]
    listen: Option<Listen>,
    /// Record what workloads hold, and who is protected, limited or waits: `lowtide report DIR timeline`
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Measure, decide and log, but protect, limit and pause nothing
    #[arg(long)]
    dry_run: bool,
}

/// What a word of a file means, on the command line.
fn named<T: serde::de::DeserializeOwned>(word: &str) -> Result<T, String> {
    let word = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(word);
    T::deserialize(word).map_err(|error| error.to_string())
}

/// What is guarded if nothing is said: services, sessions' applications, containers, and whatever else is at the top.
const USUAL: [&str; 5] = ["system.slice/*", "user.slice/*/*/*", "kubepods*/*/*", "machine.slice/*", "*"];

/// Runs until a signal ends it.
///
/// # Errors
/// If a pattern makes no sense, nothing can be granted here, or another agent is at work.
pub fn run(args: &GuardArgs) -> anyhow::Result<i32> {
    let kernel = Kernel::default();
    if !args.dry_run && !rustix::process::geteuid().is_root() {
        let why = "guard: protecting and pausing others is for root; run it as root, or with --dry-run";
        return Err(Failure::new(code::PERMISSION, why.to_owned()).into());
    }
    let config = config(args);
    config.check(&kernel).map_err(|why| Failure::new(code::USAGE, format!("guard: {why}")))?;
    let code = work(&kernel, Agent::with(&kernel, config, args.dry_run)?, args.dry_run)?;
    if let Some(out) = &args.out {
        lowtide_record::finish(out)?;
    }
    Ok(code)
}

fn config(args: &GuardArgs) -> Config {
    let settings = GuardSettings { detect: args.detect, means: args.means, ..GuardSettings::default() };
    let usual = || USUAL.map(str::to_owned).to_vec();
    let cgroups = if args.cgroup.is_empty() { usual() } else { args.cgroup.clone() };
    let first = args.priority.iter().cloned().map(|cgroup| (cgroup, 1));
    let workload = |(cgroup, priority)| WorkloadRule {
        cgroup,
        policy: "guard".to_owned(),
        metric: None,
        priority,
        by: args.by,
        labels: BTreeMap::new(),
    };
    Config {
        every: Span(Duration::from_secs(1)),
        exclude: args.exclude.clone(),
        // What it learns is of the minute.
        state_file: "".into(),
        listen: args.listen.clone(),
        out: args.out.clone(),
        policy: BTreeMap::from([("guard".to_owned(), Spec::Guard(settings))]),
        workload: first.chain(cgroups.into_iter().map(|cgroup| (cgroup, 0))).map(workload).collect(),
        ..Config::default()
    }
}
