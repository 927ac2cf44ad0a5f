//! `lowtide fleet`: policies replayed over telemetry, their settings searched, and telemetry made of other things.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lowtide_fleet::generate::{self, Plan};
use lowtide_fleet::replay::{self, Named, OfFleet, OfHost};
use lowtide_fleet::store::{self, Fleet};
use lowtide_fleet::tally::Tally;
use lowtide_fleet::tune::{self, Goal, Search};
use lowtide_model::curve::RefaultCosts;
use lowtide_model::units::{Share, Span};
use lowtide_policy::policies::Policies;

use super::report::terminal;
use lowtide_engine::failure::{Failure, code, in_toml};
use lowtide_fleet;
use lowtide_record::Record;
use lowtide_report::fleet::{Money, Replayed, Tuned, write};
use lowtide_report::{Format, Look};

/// `lowtide fleet`
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

/// How a replay counts, and where it is told.
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

/// Runs what was asked for.
///
/// # Errors
/// If a file has a mistake, there is no telemetry, or the output fails.
pub fn run(args: &FleetArgs) -> anyhow::Result<i32> {
    match &args.command {
        Command::Replay(args) => on(args.counting.threads, || replayed(args)),
        Command::Tune(args) => on(args.counting.threads, || tuned(args)),
        Command::Import(args) => imported(args),
        Command::Generate(args) => on(args.threads, || generated(args)),
    }
}

/// On so many threads.
fn on(threads: Option<usize>, work: impl FnOnce() -> anyhow::Result<i32> + Send) -> anyhow::Result<i32> {
    rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build()?.install(work)
}

fn usage(why: impl Into<String>) -> anyhow::Error {
    Failure::new(code::USAGE, why.into()).into()
}

/// Told only to a terminal.
fn bar(length: u64, what: &'static str) -> anyhow::Result<ProgressBar> {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(length) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}")?);
    bar.set_message(what);
    Ok(bar)
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
            return Err(usage(format!("fleet: {}: no day=.../host=... in it; {fix}", self.dir.display())));
        }
        Ok(fleet)
    }

    fn tell(&self, write: impl FnOnce(Format, Look, &mut Vec<u8>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let format = if self.json { Format::Json } else { self.format };
        let look = if self.output.is_some() { Look::default() } else { terminal() };
        let mut bytes = Vec::new();
        write(format, look, &mut bytes)?;
        match &self.output {
            None => std::io::stdout().write_all(&bytes)?,
            Some(path) => fs::write(path, bytes).with_context(|| format!("fleet: {}", path.display()))?,
        }
        Ok(())
    }
}

/// Policies of a file, or those that need none.
fn policies(path: Option<&Path>, costs: RefaultCosts) -> anyhow::Result<Vec<Named>> {
    let read = |path: &Path| -> anyhow::Result<Policies> {
        let text = fs::read_to_string(path).map_err(|error| usage(format!("{}: {error}", path.display())))?;
        Ok(toml::from_str(&text).map_err(|error| in_toml(path, &text, &error))?)
    };
    replay::named(path.map(read).transpose()?, costs).map_err(usage)
}

fn replayed(args: &ReplayArgs) -> anyhow::Result<i32> {
    let counting = &args.counting;
    let policies = policies(args.policy.as_deref(), counting.costs())?;
    if policies.is_empty() {
        return Err(usage("fleet: no policy in the file"));
    }
    let fleet = counting.fleet()?;
    let mut csv = args.workloads.as_deref().map(PerWorkload::create).transpose()?;
    let bar = bar(fleet.len() as u64, "hosts")?;
    let mut failed = None;
    let mut each = |of: &OfHost| {
        bar.inc(1);
        if let Some(Err(error)) = csv.as_mut().map(|csv| csv.host(of, &policies)) {
            failed.get_or_insert(error);
        }
    };
    let of = replay::fleet(&fleet, &policies, args.by.as_deref(), &|_| true, &mut each);
    bar.finish_and_clear();
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some(csv) = csv {
        csv.end()?;
    }
    some_rows(&of)?;
    let names: Vec<&str> = policies.iter().map(|named| named.name.as_str()).collect();
    let told =
        Replayed::new(&counting.dir, &of, &names, counting.money()).by(args.by.as_deref(), &of, counting.money());
    counting.tell(|format, look, out| Ok(write(&told, None, format, look, out)?))?;
    Ok(0)
}

/// Telemetry of which nothing could be read says nothing.
fn some_rows(of: &OfFleet) -> anyhow::Result<()> {
    if of.tallies.iter().all(|tally| tally.rows == 0) {
        let first = of.trouble.first.first().map_or_else(|| "there are no rows".to_owned(), Clone::clone);
        return Err(usage(format!("fleet: nothing of {} files could be read: {first}", of.files)));
    }
    Ok(())
}

fn tuned(args: &TuneArgs) -> anyhow::Result<i32> {
    let counting = &args.counting;
    let goal = Goal { rate: args.rate.0, costs: counting.costs() };
    let mut search =
        Search::new(&args.policy, goal, args.seed).map_err(|error| usage(format!("fleet tune: {error}")))?;
    let fleet = counting.fleet()?;
    // With few hosts there is nobody to ask who had no say.
    let split = fleet.len() >= tune::ENOUGH_HOSTS;
    let judge = |host: &str| !split || tune::is_judge(host);
    let bar = bar(args.tries as u64, "candidates")?;
    let replay = |candidates: &[String]| -> anyhow::Result<Vec<Tally>> {
        let of = replay::fleet(&fleet, &tune::policies(candidates, goal.costs)?, None, &judge, &mut |_| {});
        some_rows(&of)?;
        Ok(of.tallies)
    };
    tune::run(&mut search, args.tries, replay, |tried| bar.set_position(tried as u64))?;
    bar.finish_and_clear();
    let Some(best) = search.best().cloned() else {
        let least = search.tried.iter().map(|tried| tried.rate).fold(f64::INFINITY, f64::min);
        let why = format!(
            "none of {} candidates stays within {}; the least was {:.3} %",
            search.tried.len(),
            args.rate,
            100.0 * least
        );
        return Err(Failure::new(code::IMPOSSIBLE, format!("fleet tune: {why}; allow more with --rate")).into());
    };
    let named = tune::policies(std::slice::from_ref(&best.toml), goal.costs)?;
    let of = replay::fleet(&fleet, &named, None, &|host| !split || !tune::is_judge(host), &mut |_| {});
    some_rows(&of)?;
    let told = Replayed::new(&counting.dir, &of, &["tuned"], counting.money());
    let tuned = Tuned::new(&search, &best, goal.rate, split);
    counting.tell(|format, look, out| Ok(write(&told, Some(&tuned), format, look, out)?))?;
    Ok(0)
}

/// What became of each workload, as it is written.
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
                    mean(tally.gone[0]),
                    mean(tally.gone[1]),
                    (tally.back[0] + tally.back[1]).to_string(),
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

fn imported(args: &ImportArgs) -> anyhow::Result<i32> {
    let mut rows = 0;
    for path in &args.records {
        let record = Record::open(path)?;
        let (host, some) = lowtide_fleet::of_record::rows(&record);
        let host = args.host.clone().unwrap_or(host);
        if some.is_empty() {
            let why = "the record tells of no memory";
            return Err(Failure::new(code::IMPOSSIBLE, format!("fleet import: {}: {why}", path.display())).into());
        }
        store::write(&args.dir, &host, &some)?;
        rows += some.len();
    }
    println!("{rows} rows of {} records in {}", args.records.len(), args.dir.display());
    Ok(0)
}

fn generated(args: &GenerateArgs) -> anyhow::Result<i32> {
    let plan = Plan {
        hosts: args.hosts,
        workloads: args.workloads,
        duration_s: args.duration.0.as_secs_f64(),
        seed: args.seed,
        ..Plan::default()
    };
    let bar = bar(u64::from(args.hosts), "hosts")?;
    let rows = generate::fleet(&plan, &args.dir, &|_| bar.inc(1))?;
    bar.finish_and_clear();
    println!("{rows} rows of {} hosts in {}", args.hosts, args.dir.display());
    Ok(0)
}
