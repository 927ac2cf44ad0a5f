//! `lowtide compare`: programs run in several configurations, side by side.

use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use lowtide_kernel::root::Kernel;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::acts::SwapTo;
use crate::compare::mix;
use crate::compare::order::{PlannedRun, order};
use crate::compare::outcome::{Outcomes, RunOutcome};
use crate::compare::published;
use crate::compare::runner::{Runner, Stop};
use crate::compare::suite::{Configuration, Suite};
use crate::compare::tables::{self, Cell, FIGURE, METRICS, Metric};
use crate::output::{self, terminal};
use crate::session;
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::recording;
use lowtide_model::interval::Change;
use lowtide_model::units::{float, human_seconds};
use lowtide_record::atomic::{self, Care};
use lowtide_record::check_owner;
use lowtide_report::PageOpening;
use lowtide_report::forest::{self, Chapter, Mark};
use lowtide_report::text::Grid;

/// Run programs in several configurations, side by side
#[derive(Debug, clap::Args)]
#[command(override_usage = "lowtide compare [OPTIONS] -- <CMD>...\n       lowtide compare [OPTIONS] --suite <FILE>")]
pub struct CompareArgs {
    /// Configurations: orig, rec, thp, schemes that are built in, and those of the suite
    #[arg(long, value_delimiter = ',', default_value = "orig,rec,thp,ethp,prcl")]
    configs: Vec<String>,
    /// Rounds: each program is run once in each configuration, after a warm-up
    #[arg(long, default_value = "5", value_name = "N")]
    runs: u32,
    /// Begin with the first round
    #[arg(long)]
    no_warm_up: bool,
    /// Programs to run, from a file
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    suite: Option<PathBuf>,
    /// Of the suite, only these programs
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Swap to a zram device of this size in all configurations
    #[arg(long, value_name = "zram:SIZE")]
    swap: Option<SwapTo>,
    /// Folder of the comparison; an interrupted one is continued (default: lowtide-compare-TIME)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of the order of the runs
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Print the totals beside those of the published evaluation of DAMON v6
    #[arg(long)]
    published: bool,
    /// Keep the record of every run
    #[arg(long)]
    keep: bool,
    /// How to print
    #[arg(long, value_enum, default_value = "text")]
    format: CompareFormat,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// A program to run
    #[arg(trailing_var_arg = true, value_name = "CMD", required_unless_present = "suite")]
    command: Vec<String>,
}

/// How the comparison is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CompareFormat {
    Text,
    Markdown,
    Csv,
    Json,
    Html,
}

/// What is compared, kept beside the runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Plan {
    schema: u32,
    suite: Suite,
    configs: Vec<Configuration>,
    runs: u32,
    #[serde(default)]
    no_warm_up: bool,
    seed: u64,
    swap: Option<String>,
}

/// Runs the comparison.
///
/// # Errors
/// If the suite has a mistake, or something that is needed cannot be had.
pub fn run(args: &CompareArgs) -> anyhow::Result<i32> {
    let plan = plan(args)?;
    let folder = args.out.clone().unwrap_or_else(|| session::default_folder("compare"));
    keep_plan(&folder, &plan)?;
    let mut outcomes = Outcomes::open(&folder.join("runs.jsonl"))?;
    let kernel = Kernel::default();
    let signals = session::ending_signals()?;
    let journal = recording::journal(&kernel)?;
    let swap = args.swap.as_ref().map(|swap| swap.begin(&kernel, &journal)).transpose()?;
    let runner =
        Runner { kernel: &kernel, journal: &journal, signals: &signals, folder: folder.clone(), keep: args.keep };
    let stopped = all_runs(&plan, &runner, &mut outcomes)?;
    drop(swap);
    drop(journal);
    if stopped {
        lowtide_kernel::message!("lowtide: interrupted; go on with the same command and --out {}", folder.display());
        return Ok(130);
    }
    let comparison = Comparison::new(&plan, &outcomes.all, args.published);
    atomic::write(&folder.join("report.html"), Care::default(), comparison.page()?.as_bytes())?;
    comparison.print(if args.json { CompareFormat::Json } else { args.format })?;
    output::note(format_args!("\nreport: {}", folder.join("report.html").display()));
    Ok(if outcomes.all.iter().any(|run| run.failure.is_some()) { code::OTHER } else { 0 })
}

fn plan(args: &CompareArgs) -> anyhow::Result<Plan> {
    let mut suite = match &args.suite {
        Some(path) => Suite::read(path)?,
        None => Suite::of(args.command.clone()),
    };
    suite.only(&args.only)?;
    if args.no_warm_up && !suite.mixes.is_empty() {
        let message =
            "--no-warm-up: what the programs of a mix need is measured in their warm-up; leave the option out";
        return Err(Failure::new(code::USAGE, message.to_owned()).into());
    }
    let configs = suite.configs(&args.configs)?;
    for name in configs.iter().flat_map(|config| &config.schemes) {
        lowtide_engine::schemes::load(name)?;
    }
    let swap = args.swap.as_ref().map(ToString::to_string);
    Ok(Plan { schema: 1, suite, configs, runs: args.runs, no_warm_up: args.no_warm_up, seed: args.seed, swap })
}

/// Writes the plan down; one that is there must be the same.
fn keep_plan(folder: &Path, plan: &Plan) -> anyhow::Result<()> {
    let path = folder.join("plan.json");
    match std::fs::read_to_string(&path) {
        Ok(text) if serde_json::from_str::<Plan>(&text).is_ok_and(|there| there == *plan) => Ok(()),
        Ok(_) => {
            let message = format!("--out {}: holds another comparison; give another folder", folder.display());
            Err(Failure::new(code::USAGE, message).into())
        }
        Err(_) => {
            check_owner(folder)?;
            std::fs::create_dir_all(folder)?;
            Ok(atomic::write(&path, Care::default(), &serde_json::to_vec_pretty(plan)?)?)
        }
    }
}

/// Makes the runs that are still missing. True if it was interrupted.
fn all_runs(plan: &Plan, runner: &Runner<'_>, outcomes: &mut Outcomes) -> anyhow::Result<bool> {
    let all: Vec<&str> = plan.suite.names().collect();
    let config = |run: &PlannedRun| &plan.configs[run.config];
    let planned = order(all.len(), plan.configs.len(), plan.runs, plan.seed).into_iter();
    let left: Vec<PlannedRun> = planned
        .filter(|run| run.round > 0 || !plan.no_warm_up)
        .filter(|run| mix::is_needed(&plan.suite, run))
        .filter(|run| !outcomes.has(all[run.program], &config(run).name, run.round))
        .collect();
    let bar = ProgressBar::new(u64::try_from(left.len())?)
        .with_style(ProgressStyle::with_template("{bar:30} {pos} of {len} runs, {prefix}: {msg}")?);
    let started = Instant::now();
    for (done, run) in left.iter().enumerate() {
        // A program that fails by itself has nothing to compare.
        if outcomes.warm_up_failure(all[run.program]).is_some() {
            bar.inc(1);
            continue;
        }
        let round = if run.round == 0 { "warm-up".to_owned() } else { format!("round {}", run.round) };
        let what = format!("{}, {}, {round}", all[run.program], config(run).name);
        bar.set_message(what.clone());
        let spec = mix::spec(&plan.suite, run.program, &outcomes.all).map_err(anyhow::Error::msg)?;
        match runner.run(&spec, config(run), run.round) {
            Ok(outcome) => {
                if let (Some(why), true) = (&outcome.failure, bar.is_hidden()) {
                    lowtide_kernel::message!("lowtide: {what}: {why}");
                }
                outcomes.add(outcome)?;
            }
            Err(error) if Stop::is_interrupted(&error) => return Ok(true),
            Err(error) => return Err(error),
        }
        // Runs take about as long as those before them.
        let left_s = started.elapsed().as_secs_f64() / float(done + 1) * float(left.len() - done - 1);
        bar.set_prefix(format!("{} left", human_seconds(left_s)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let failed: Vec<String> =
        all.iter().filter_map(|program| Some(format!("{program}: {}", outcomes.warm_up_failure(program)?))).collect();
    if failed.len() == all.len() {
        anyhow::bail!("compare: the warm-up failed, so nothing was compared: {}", failed.join("; "));
    }
    for failure in failed {
        lowtide_kernel::message!("lowtide: {failure}: its warm-up failed, so it was not compared");
    }
    Ok(false)
}

/// Whatever else runs on the machine changes what is in use on it: fewer rounds say nothing of that.
const MACHINE_WIDE_ROUNDS: u32 = 3;

/// A comparison with all its runs.
struct Comparison<'a> {
    plan: &'a Plan,
    runs: &'a [RunOutcome],
    /// What is compared: mixes, if there are any.
    programs: Vec<String>,
    configs: Vec<String>,
    metrics: Vec<Metric>,
    cells: Vec<Cell>,
    published: bool,
}

impl<'a> Comparison<'a> {
    fn new(plan: &'a Plan, runs: &'a [RunOutcome], published: bool) -> Self {
        let suite = &plan.suite;
        let alone = if suite.mixes.is_empty() { 0 } else { suite.programs.len() };
        let programs: Vec<String> = suite.names().skip(alone).map(str::to_owned).collect();
        let configs: Vec<String> = plan.configs.iter().map(|config| config.name.clone()).collect();
        let figure = suite.programs.iter().any(|program| program.figure.is_some());
        let machine_wide = plan.runs >= MACHINE_WIDE_ROUNDS;
        let metrics: Vec<Metric> = match suite.mixes.as_slice() {
            [] => {
                let shown = METRICS.into_iter().filter(|metric| machine_wide || !metric.is_machine_wide);
                shown.chain(figure.then_some(FIGURE)).collect()
            }
            // Of several programs together only the time is a figure of all; the rest is in the tables of mixes.
            _ => METRICS[..1].to_vec(),
        };
        let cells = tables::cells(runs, &programs, &configs, &metrics);
        // Without swap in memory there is no net figure.
        let has_cells = |metric: &Metric| cells.iter().any(|cell| cell.metric == metric.name);
        let metrics = metrics.into_iter().filter(has_cells).collect();
        Self { plan, runs, programs, configs, metrics, cells, published }
    }

    fn means(&self, metric: &Metric) -> Grid {
        tables::means(&self.cells, metric, &self.programs, &self.configs)
    }

    /// By how many percent the total of the configuration at that place is above the first's.
    fn change_of_total(&self, metric: &Metric, at: usize) -> Option<f64> {
        let sums = tables::totals(&self.cells, metric, &self.programs, &self.configs);
        (sums[0] > 0.0).then(|| 100.0 * (sums[at] / sums[0] - 1.0))
    }

    /// The tables beside those of the metrics.
    fn others(&self) -> Vec<Grid> {
        let ours = |metric: &Metric, config: &str| {
            self.change_of_total(metric, self.configs.iter().position(|name| name == config)?)
        };
        let mut grids = tables::effects(self.runs, &self.programs, &self.configs);
        if self.published {
            grids.push(published::grid(&METRICS, &self.configs, ours));
        }
        grids.push(tables::failures(self.runs));
        grids.retain(|grid| !grid.rows.is_empty());
        grids
    }

    fn grids(&self) -> Vec<Grid> {
        let mut grids = mix::grids(&self.plan.suite, self.runs, &self.configs);
        grids.extend(self.metrics.iter().map(|metric| self.means(metric)));
        grids.extend(self.metrics.iter().map(|metric| tables::paired(&self.cells, metric)));
        grids.extend(self.metrics.iter().map(|metric| tables::spread(&self.cells, metric)));
        grids.extend(self.others());
        grids.retain(|grid| !grid.rows.is_empty());
        grids
    }

    fn page(&self) -> anyhow::Result<String> {
        let of_metric = |metric: &Metric| Chapter {
            title: metric.about.to_owned(),
            meaning: format!(
                "{}: percent over orig in the same round, geometric mean and its 95 % interval.",
                metric.name
            ),
            marks: marks(&self.cells, metric),
            grids: vec![self.means(metric), tables::paired(&self.cells, metric), tables::spread(&self.cells, metric)],
            ..Chapter::default()
        };
        let mut chapters = mix::chapters(&self.plan.suite, self.runs, &self.configs);
        chapters.extend(self.metrics.iter().map(of_metric));
        chapters.push(Chapter {
            title: "Faults, stalls and cost".to_owned(),
            meaning: "Faults, stalls, CPU time of monitoring, and what schemes saved.".to_owned(),
            grids: self.others(),
            ..Chapter::default()
        });
        let name = &self.plan.suite.name;
        let title = if name.is_empty() { self.programs.join(", ") } else { name.clone() };
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let ran = format!("{} rounds of {} configurations on Linux {kernel}", self.plan.runs, self.configs.len());
        Ok(forest::page(PageOpening { command: "compare", title, ran, answer: self.answer() }, &chapters)?)
    }

    /// What each configuration changes, in a sentence. A change of one program whose interval holds zero is none.
    fn answer(&self) -> String {
        let change = |metric: &Metric, at: usize| {
            let percent = self.change_of_total(metric, at)?;
            let alone = marks(&self.cells, metric).into_iter().find(|mark| mark.name == self.configs[at]);
            let interval = alone.filter(|_| self.programs.len() == 1).and_then(|mark| mark.interval);
            let clear = interval.is_none_or(|[low, high]| low > 0.0 || high < 0.0);
            let name = metric.about.split(',').next().unwrap_or_default().to_lowercase();
            clear.then(|| format!("{name} {percent:+.1} %"))
        };
        let each = |at: usize| {
            let changes: Vec<String> = self.metrics.iter().filter_map(|metric| change(metric, at)).collect();
            let changes = if changes.is_empty() { "no clear change".to_owned() } else { changes.join(", ") };
            format!("{}: {changes}.", self.configs[at])
        };
        let sentences: Vec<String> = (1..self.configs.len()).map(each).collect();
        format!("Compared with {}: {}", self.configs[0], sentences.join(" "))
    }

    fn print(&self, format: CompareFormat) -> anyhow::Result<()> {
        let text = match format {
            CompareFormat::Text => {
                let terminal = terminal();
                self.grids().iter().map(|grid| grid.text(terminal) + "\n").collect()
            }
            CompareFormat::Markdown => self.grids().iter().map(|grid| grid.markdown() + "\n").collect(),
            CompareFormat::Html => self.page()?,
            CompareFormat::Csv => {
                let mut csv = csv::Writer::from_writer(Vec::new());
                self.runs.iter().try_for_each(|run| csv.serialize(CsvRow::of(run)))?;
                String::from_utf8(csv.into_inner()?)?
            }
            CompareFormat::Json => {
                let all = json!({ "schema": 1, "plan": self.plan, "statistics": self.cells, "runs": self.runs });
                serde_json::to_string_pretty(&all)? + "\n"
            }
        };
        output::print(text)
    }
}

fn marks(cells: &[Cell], metric: &Metric) -> Vec<Mark> {
    let mark = |cell: &Cell| {
        let Change { mean, interval, .. } = cell.paired.filter(|_| cell.metric == metric.name)?;
        Some(Mark { group: cell.program.clone(), name: cell.config.clone(), mean, interval })
    };
    cells.iter().filter_map(mark).collect()
}

/// A run as a line of CSV.
#[derive(Debug, Serialize)]
struct CsvRow<'a> {
    program: &'a str,
    config: &'a str,
    round: u32,
    failure: Option<&'a str>,
    runtime_s: f64,
    rss_avg_bytes: Option<f64>,
    system_used_avg_bytes: Option<f64>,
    major_faults: Option<f64>,
    stalled_s: Option<f64>,
    monitor_cpu_s: Option<f64>,
    figure: Option<f64>,
    net_bytes: Option<i64>,
}

impl<'a> CsvRow<'a> {
    fn of(run: &'a RunOutcome) -> Self {
        Self {
            program: &run.program,
            config: &run.config,
            round: run.round,
            failure: run.failure.as_deref(),
            runtime_s: run.runtime_s,
            rss_avg_bytes: run.rss_bytes,
            system_used_avg_bytes: run.system_used_bytes,
            major_faults: run.major_faults,
            stalled_s: run.stalled_s,
            monitor_cpu_s: run.monitor_cpu_s,
            figure: run.figure,
            net_bytes: run.ledger.as_ref().and_then(|ledger| ledger.net_bytes),
        }
    }
}
