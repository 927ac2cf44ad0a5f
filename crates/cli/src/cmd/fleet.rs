//! `lowtide fleet`: policies replayed over telemetry, their settings searched, and telemetry made from other sources.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lowtide_engine::failure::{Failure, code};
use lowtide_fleet::generate::{self, FleetPlan};
use lowtide_fleet::replay::{self, Named, OfFleet, OfHost};
use lowtide_fleet::store::{self, Fleet};
use lowtide_fleet::tally::PolicyTally;
use lowtide_fleet::tune::{self, Search, TuneGoal};
use lowtide_model::curve::RefaultCosts;
use lowtide_model::units::{Share, Span, count};
use lowtide_policy::policies::Policies;
use lowtide_record::Record;
use lowtide_report::fleet::{Money, ReplayResult, Tuned, write};

use super::simulate::read;
use crate::output::{OutputArgs, print, progress, usage};

/// Replay policies over a fleet's telemetry, and search their settings
#[derive(Debug, clap::Args)]
pub struct FleetArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Calculate what policies would have saved, and at what price
    Replay(ReplayArgs),
    /// Search the settings with which a policy saves most
    Tune(TuneArgs),
    /// Make telemetry from records
    Import(ImportArgs),
    /// Make the telemetry of a simulated fleet
    Generate(GenerateArgs),
}

/// What a replay calculates with, and where its result is printed.
#[derive(Debug, clap::Args)]
struct Counting {
    /// Folder of the telemetry, with day=.../host=... in it
    dir: PathBuf,
    /// Time of a refault from swap
    #[arg(long, value_name = "TIME", default_value = "10us")]
    swap_cost: Span,
    /// Time of a refault from a file
    #[arg(long, value_name = "TIME", default_value = "100us")]
    file_cost: Span,
    /// Memory that a paged out page still takes, as a share of its size (zram, zswap); 0% for a disk
    #[arg(long, value_name = "PERCENT", default_value = "33%")]
    kept: Share,
    /// Price of a GB of memory for a month, to value the saving
    #[arg(long, value_name = "PRICE")]
    price: Option<f64>,
    /// Threads (default: one for each CPU)
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
struct ReplayArgs {
    #[command(flatten)]
    counting: Counting,
    /// File of policies (default: age, auto and promotion with their default settings)
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Group workloads by this label
    #[arg(long, value_name = "LABEL")]
    by: Option<String>,
    /// Write the result of each workload here, as CSV
    #[arg(long, value_name = "FILE")]
    workloads: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct TuneArgs {
    #[command(flatten)]
    counting: Counting,
    /// The policy: promotion, age or auto
    #[arg(long, value_name = "NAME", default_value = "promotion")]
    policy: String,
    /// Promotion rate: share of the working set that may be refaulted in a minute, at the 98th percentile
    #[arg(long, value_name = "PERCENT", default_value = "0.2%")]
    rate: Share,
    /// Candidates to try
    #[arg(long, value_name = "COUNT", default_value_t = tune::TRIES)]
    tries: usize,
    /// Seed of everything random
    #[arg(long, default_value = "1")]
    seed: u64,
}

#[derive(Debug, clap::Args)]
struct ImportArgs {
    /// Folder of the telemetry; created where there is none
    dir: PathBuf,
    /// Records; `lowtide import` makes them from other tools' recordings
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// Host of the telemetry (default: the record's)
    #[arg(long)]
    host: Option<String>,
}

#[derive(Debug, clap::Args)]
struct GenerateArgs {
    /// Folder of the telemetry; created where there is none
    dir: PathBuf,
    /// Number of machines
    #[arg(long, default_value = "10")]
    hosts: u32,
    /// Workloads of each machine
    #[arg(long, default_value = "30")]
    workloads: u32,
    /// Simulated time
    #[arg(long, value_name = "TIME", default_value = "1d")]
    duration: Span,
    /// Seed of everything random
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Threads (default: one for each CPU)
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
}

/// Runs the command.
///
/// # Errors
/// If a file has a mistake, there is no telemetry, or the output fails.
pub fn run(args: &FleetArgs) -> anyhow::Result<i32> {
    match &args.command {
        Command::Replay(args) => on(args.counting.threads, || replay(args)),
        Command::Tune(args) => on(args.counting.threads, || tune(args)),
        Command::Import(args) => import(args),
        Command::Generate(args) => on(args.threads, || generate(args)),
    }?;
    Ok(0)
}

/// Runs `work` on so many threads.
fn on(threads: Option<usize>, work: impl FnOnce() -> anyhow::Result<()> + Send) -> anyhow::Result<()> {
    rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build()?.install(work)
}

impl Counting {
    fn costs(&self) -> RefaultCosts {
        RefaultCosts { swap_s: self.swap_cost.0.as_secs_f64(), disk_s: self.file_cost.0.as_secs_f64() }
    }

    fn money(&self) -> Money {
        Money { kept: self.kept.0, price: self.price }
    }

    fn fleet(&self) -> anyhow::Result<Fleet> {
        let fleet = Fleet::open(&self.dir)
            .map_err(|error| Failure::new(code::GONE, format!("fleet: {error}; give a folder of telemetry")))?;
        if fleet.is_empty() {
            let fix = "the agent writes it (docs/fleet.md), `lowtide fleet import` and `generate` make it";
            anyhow::bail!(usage(format!("fleet: {}: no day=.../host=... in it; {fix}", self.dir.display())));
        }
        Ok(fleet)
    }
}

fn replay(args: &ReplayArgs) -> anyhow::Result<()> {
    let counting = &args.counting;
    let file = args.policy.as_deref().map(read::<Policies>).transpose()?;
    let policies = replay::named(file, counting.costs()).map_err(usage)?;
    if policies.is_empty() {
        anyhow::bail!(usage("fleet: no policy in the file"));
    }
    let fleet = counting.fleet()?;
    let mut csv = args.workloads.as_deref().map(PerWorkload::create).transpose()?;
    let bar = progress(fleet.len(), "hosts");
    let mut written = Ok(());
    let mut each = |of: &OfHost| {
        bar.inc(1);
        if let (Some(csv), Ok(())) = (&mut csv, &written) {
            written = csv.host(of, &policies);
        }
    };
    let of = fleet.replay(&policies, args.by.as_deref(), &|_| true, &mut each);
    bar.finish_and_clear();
    written?;
    if let Some(csv) = csv {
        csv.end()?;
    }
    check_rows(&of)?;
    let names: Vec<&str> = policies.iter().map(|named| named.name.as_str()).collect();
    let replayed =
        ReplayResult::new(&counting.dir, &of, &names, counting.money()).by(args.by.as_deref(), &of, counting.money());
    counting.output.print(|format, terminal, out| write((&replayed, None), format, terminal, out))
}

/// That some of the telemetry could be read.
fn check_rows(of: &OfFleet) -> anyhow::Result<()> {
    if of.tallies.iter().all(|tally| tally.rows == 0) {
        let first = of.trouble.first.first().map_or("there are no rows", String::as_str);
        anyhow::bail!(usage(format!("fleet: nothing of {} files could be read: {first}", of.files)));
    }
    Ok(())
}

fn tune(args: &TuneArgs) -> anyhow::Result<()> {
    let counting = &args.counting;
    let goal = TuneGoal { rate: args.rate.0, costs: counting.costs() };
    let mut search =
        Search::new(&args.policy, goal, args.seed).map_err(|error| usage(format!("fleet tune: {error}")))?;
    let fleet = counting.fleet()?;
    // With few hosts none is held out.
    let split = fleet.len() >= tune::ENOUGH_HOSTS;
    let judge = |host: &str| !split || tune::is_judge(host);
    let bar = progress(args.tries, "candidates");
    let replay = |candidates: &[String]| -> anyhow::Result<Vec<PolicyTally>> {
        let of = fleet.replay(&tune::policies(candidates, goal.costs)?, None, &judge, &mut |_| {});
        check_rows(&of)?;
        Ok(of.tallies)
    };
    tune::run(&mut search, args.tries, replay, |tried| bar.set_position(count(tried)))?;
    bar.finish_and_clear();
    let Some(best) = search.best().cloned() else {
        let least = search.tried.iter().map(|tried| tried.rate).fold(f64::INFINITY, f64::min);
        let why = format!(
            "none of {} candidates stays within {}; the least was {:.3} %",
            search.tried.len(),
            args.rate,
            100.0 * least
        );
        anyhow::bail!(Failure::new(code::IMPOSSIBLE, format!("fleet tune: {why}; allow more with --rate")));
    };
    let named = tune::policies(std::slice::from_ref(&best.toml), goal.costs)?;
    let of = fleet.replay(&named, None, &|host| !split || !tune::is_judge(host), &mut |_| {});
    check_rows(&of)?;
    let replayed = ReplayResult::new(&counting.dir, &of, &["tuned"], counting.money());
    let tuned = Tuned::new(&search, &best, goal.rate, split);
    counting.output.print(|format, terminal, out| write((&replayed, Some(&tuned)), format, terminal, out))
}

/// The file of the results of each workload.
struct PerWorkload {
    path: PathBuf,
    csv: csv::Writer<fs::File>,
}

impl PerWorkload {
    fn create(path: &Path) -> anyhow::Result<Self> {
        let mut csv = csv::Writer::from_path(path).with_context(|| path.display().to_string())?;
        csv.write_record([
            "host",
            "workload",
            "label",
            "policy",
            "rows",
            "had_bytes",
            "cold_bytes",
            "anon_gone_bytes",
            "file_gone_bytes",
            "back_bytes",
            "lost_percent",
            "promotion_rate_p98_percent",
        ])?;
        Ok(Self { path: path.to_path_buf(), csv })
    }

    fn host(&mut self, of: &OfHost, policies: &[Named]) -> anyhow::Result<()> {
        for workload in &of.workloads {
            for (tally, named) in workload.tallies.iter().zip(policies) {
                let mean = |sum: u128| (sum / u128::from(tally.ms.max(1))).to_string();
                let percent =
                    |share: Option<f64>| share.map_or_else(String::new, |share| format!("{:.6}", 100.0 * share));
                self.csv.write_record([
                    of.host.clone(),
                    workload.name.clone(),
                    workload.label.clone().unwrap_or_default(),
                    named.name.clone(),
                    tally.rows.to_string(),
                    mean(tally.had),
                    mean(tally.cold),
                    mean(tally.gone.anon),
                    mean(tally.gone.file),
                    tally.back.total().to_string(),
                    percent(tally.lost()),
                    percent(tally.rates.at(tune::PERCENTILE)),
                ])?;
            }
        }
        Ok(())
    }

    fn end(mut self) -> anyhow::Result<()> {
        self.csv.flush().with_context(|| self.path.display().to_string())
    }
}

fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let mut rows = 0;
    for path in &args.records {
        let record = Record::open(path)?;
        let (host, of_record) = lowtide_fleet::of_record::rows(&record);
        if of_record.is_empty() {
            let why = "the record holds no readings of memory";
            anyhow::bail!(Failure::new(code::IMPOSSIBLE, format!("fleet import: {}: {why}", path.display())));
        }
        store::write(&args.dir, args.host.as_ref().unwrap_or(&host), &of_record)?;
        rows += of_record.len();
    }
    print(format_args!("{rows} rows of {} records in {}\n", args.records.len(), args.dir.display()))
}

fn generate(args: &GenerateArgs) -> anyhow::Result<()> {
    let plan = FleetPlan {
        hosts: args.hosts,
        workloads: args.workloads,
        duration_s: args.duration.0.as_secs_f64(),
        seed: args.seed,
        ..FleetPlan::default()
    };
    let bar = progress(usize::try_from(args.hosts)?, "hosts");
    let rows = generate::fleet(&plan, &args.dir, &|_| bar.inc(1))?;
    bar.finish_and_clear();
    print(format_args!("{rows} rows of {} hosts in {}\n", args.hosts, args.dir.display()))
}
