//! `lowtide compare`: programs run in several configurations, side by side.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use lowtide_kernel::root::Kernel;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::acts::SwapTo;
use crate::compare::mix;
use crate::compare::order::{Turn, order};
use crate::compare::outcome::{Outcome, Outcomes};
use crate::compare::published;
use crate::compare::runner::{Runner, Stop};
use crate::compare::suite::{Config, Suite};
use crate::compare::tables::{self, FIGURE, METRICS, Metric};
use crate::output::terminal;
use crate::session;
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::recording;
use lowtide_report::forest::{self, Chapter, Mark};
use lowtide_report::text::Grid;

/// Run programs in several configurations, side by side
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// Configurations: orig, rec, thp, schemes that are built in, and those of the suite
    #[arg(long, value_delimiter = ',', default_value = "orig,rec,thp,ethp,prcl")]
    configs: Vec<String>,
    /// Rounds: each program is run once in each configuration, after a warm-up
    #[arg(long, default_value = "5", value_name = "N")]
    runs: u32,
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
    format: Format,
    /// A program to run
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD", required_unless_present = "suite")]
    command: Vec<String>,
}

/// How the comparison is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
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
    configs: Vec<Config>,
    runs: u32,
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
    let journal = recording::journal(&kernel)?;
    let signals = session::ending_signals()?;
    let swap = args.swap.as_ref().map(|swap| swap.begin(&kernel, &journal)).transpose()?;
    let runner =
        Runner { kernel: &kernel, journal: &journal, signals: &signals, folder: folder.clone(), keep: args.keep };
    let stopped = all_runs(&plan, &runner, &mut outcomes)?;
    drop(swap);
    drop(journal);
    if stopped {
        eprintln!("lowtide: interrupted; go on with the same command and --out {}", folder.display());
        return Ok(130);
    }
    let whole = Whole { plan: &plan, runs: &outcomes.all, published: args.published };
    std::fs::write(folder.join("report.html"), whole.page()?)?;
    whole.print(args.format)?;
    eprintln!("\nreport: {}", folder.join("report.html").display());
    Ok(if outcomes.all.iter().any(|run| run.failure.is_some()) { code::OTHER } else { 0 })
}

fn plan(args: &CompareArgs) -> anyhow::Result<Plan> {
    let mut suite = match &args.suite {
        Some(path) => Suite::read(path)?,
        None => Suite::of(args.command.clone()),
    };
    suite.only(&args.only)?;
    let configs = suite.configs(&args.configs)?;
    for name in configs.iter().flat_map(|config| &config.schemes) {
        lowtide_engine::schemes::load(name)?;
    }
    let swap = args.swap.as_ref().map(ToString::to_string);
    Ok(Plan { schema: 1, suite, configs, runs: args.runs, seed: args.seed, swap })
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
            std::fs::create_dir_all(folder)?;
            Ok(std::fs::write(path, serde_json::to_string_pretty(plan)?)?)
        }
    }
}

/// Makes the runs that were not made yet. True if it was interrupted.
fn all_runs(plan: &Plan, runner: &Runner<'_>, outcomes: &mut Outcomes) -> anyhow::Result<bool> {
    let all: Vec<&str> = plan.suite.names().collect();
    let names = |turn: &Turn| (all[turn.program].to_owned(), plan.configs[turn.config].name.clone());
    let turns = order(all.len(), plan.configs.len(), plan.runs, plan.seed).into_iter();
    let left: Vec<Turn> = turns
        .filter(|turn| mix::is_needed(&plan.suite, turn))
        .filter(|turn| {
            let (program, config) = names(turn);
            !outcomes.has(&program, &config, turn.round)
        })
        .collect();
    let bar = progress(left.len() as u64);
    let started = Instant::now();
    for (done, turn) in left.iter().enumerate() {
        let (program, config) = names(turn);
        let round = if turn.round == 0 { "warm-up".to_owned() } else { format!("round {}", turn.round) };
        if let Some(bar) = &bar {
            bar.set_message(format!("{program}, {config}, {round}"));
        }
        let work = mix::work(&plan.suite, turn.program, &outcomes.all).map_err(anyhow::Error::msg)?;
        match runner.run(&work, &plan.configs[turn.config], turn.round) {
            Ok(outcome) => {
                if let (Some(why), None) = (&outcome.failure, &bar) {
                    eprintln!("lowtide: {program}, {config}, {round}: {why}");
                }
                outcomes.add(outcome)?;
            }
            Err(Stop::Interrupted) => return Ok(true),
            Err(Stop::Impossible(error)) => return Err(error),
            Err(other) => anyhow::bail!(other),
        }
        if let Some(bar) = &bar {
            // Runs take about as long as those before them.
            #[expect(clippy::cast_precision_loss, reason = "hundreds of runs")]
            let left_s = started.elapsed().as_secs_f64() / (done + 1) as f64 * (left.len() - done - 1) as f64;
            bar.set_prefix(format!("{} left", lowtide_model::units::human_seconds(left_s)));
            bar.inc(1);
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(false)
}

fn progress(runs: u64) -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() || runs == 0 {
        return None;
    }
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} runs, {prefix}: {msg}");
    let bar = ProgressBar::new(runs);
    Some(style.map_or(bar.clone(), |style| bar.with_style(style)))
}

/// A comparison with all its runs.
struct Whole<'a> {
    plan: &'a Plan,
    runs: &'a [Outcome],
    published: bool,
}

impl Whole<'_> {
    /// What is compared: mixes, if there are any.
    fn programs(&self) -> Vec<String> {
        let suite = &self.plan.suite;
        let alone = if suite.mixes.is_empty() { 0 } else { suite.programs.len() };
        suite.names().skip(alone).map(str::to_owned).collect()
    }

    fn configs(&self) -> Vec<String> {
        self.plan.configs.iter().map(|config| config.name.clone()).collect()
    }

    fn metrics(&self) -> Vec<Metric> {
        if !self.plan.suite.mixes.is_empty() {
            // Only time can be told of several at once; the rest is in the tables of mixes.
            return METRICS[..1].to_vec();
        }
        let figure = self.plan.suite.programs.iter().any(|program| program.figure.is_some());
        METRICS.into_iter().chain(figure.then_some(FIGURE)).collect()
    }

    fn cells(&self) -> Vec<tables::Cell> {
        tables::cells(self.runs, &self.programs(), &self.configs(), &self.metrics())
    }

    fn beside(&self, cells: &[tables::Cell]) -> Option<Grid> {
        let (programs, configs) = (self.programs(), self.configs());
        let ours = |metric: &Metric, config: &str| {
            let sums = tables::totals(cells, metric, &programs, &configs);
            let at = configs.iter().position(|name| name == config)?;
            (sums[0] > 0.0).then(|| 100.0 * (sums[at] / sums[0] - 1.0))
        };
        self.published.then(|| published::grid(&METRICS, &configs, ours)).filter(|grid| !grid.rows.is_empty())
    }

    fn grids(&self) -> Vec<Grid> {
        let (programs, configs) = (self.programs(), self.configs());
        let (metrics, cells) = (self.metrics(), self.cells());
        let mut grids = mix::grids(&self.plan.suite, self.runs, &configs);
        grids.extend(metrics.iter().map(|metric| tables::means(&cells, metric, &programs, &configs)));
        grids.extend(metrics.iter().map(|metric| tables::paired(&cells, metric)));
        grids.extend(metrics.iter().map(|metric| tables::spread(&cells, metric)));
        grids.extend(tables::effects(self.runs, &programs, &configs));
        grids.extend(self.beside(&cells));
        grids.extend(tables::failures(self.runs));
        grids.into_iter().filter(|grid| !grid.rows.is_empty()).collect()
    }

    fn page(&self) -> anyhow::Result<String> {
        let (programs, configs) = (self.programs(), self.configs());
        let cells = self.cells();
        let mut chapters: Vec<Chapter> = self
            .metrics()
            .iter()
            .map(|metric| Chapter {
                title: metric.name.to_owned(),
                meaning: format!(
                    "{}: percent over orig in the same round, geometric mean and its 95 % interval.",
                    metric.about
                ),
                marks: marks(&cells, metric),
                grids: vec![
                    tables::means(&cells, metric, &programs, &configs),
                    tables::paired(&cells, metric),
                    tables::spread(&cells, metric),
                ],
                ..Chapter::default()
            })
            .collect();

        // Of programs together, how each fared comes first.
        chapters.splice(0..0, mix::chapters(&self.plan.suite, self.runs, &configs));
        let others: Vec<Grid> = tables::effects(self.runs, &programs, &configs)
            .into_iter()
            .chain(self.beside(&cells))
            .chain(tables::failures(self.runs))
            .collect();
        chapters.push(Chapter {
            title: "Effects and price".to_owned(),
            meaning: "What came of it beside time and memory.".to_owned(),
            grids: others,
            ..Chapter::default()
        });
        let title = if self.plan.suite.name.is_empty() { programs.join(", ") } else { self.plan.suite.name.clone() };
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let ran = format!("{} rounds of {} configurations on Linux {kernel}", self.plan.runs, configs.len());
        Ok(forest::page(&title, &ran, &chapters)?)
    }

    fn print(&self, format: Format) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        match format {
            Format::Text => {
                let look = terminal();
                for grid in self.grids() {
                    writeln!(out, "{}", grid.text(look))?;
                }
            }
            Format::Markdown => {
                for grid in self.grids() {
                    writeln!(out, "{}", grid.markdown())?;
                }
            }
            Format::Html => out.write_all(self.page()?.as_bytes())?,
            Format::Csv => csv(out, self.runs)?,
            Format::Json => {
                let cells: Vec<serde_json::Value> = self.cells().iter().map(cell).collect();
                let whole = json!({ "schema": 1, "plan": self.plan, "statistics": cells, "runs": self.runs });
                writeln!(out, "{}", serde_json::to_string_pretty(&whole)?)?;
            }
        }
        Ok(())
    }
}

fn marks(cells: &[tables::Cell], metric: &Metric) -> Vec<Mark> {
    let mark = |cell: &tables::Cell| {
        let paired = cell.paired.filter(|_| cell.metric == metric.name)?;
        Some(Mark {
            group: cell.program.clone(),
            name: cell.config.clone(),
            mean: paired.mean,
            interval: paired.interval,
        })
    };
    cells.iter().filter_map(mark).collect()
}

fn cell(cell: &tables::Cell) -> serde_json::Value {
    let percent = |share: f64| 100.0 * share;
    let paired = cell.paired.map(|paired| {
        let interval = paired.interval.map(|ends| ends.map(percent));
        json!({ "mean": percent(paired.mean), "ci95": interval, "pairs": paired.pairs })
    });
    json!({
        "program": cell.program, "config": cell.config, "metric": cell.metric, "runs": cell.runs,
        "avg": cell.avg, "stdev": cell.stdev, "min": cell.min, "max": cell.max,
        "overhead_percent": cell.overhead, "paired_percent": paired,
    })
}

/// One line per run.
fn csv(out: impl Write, runs: &[Outcome]) -> anyhow::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "program",
        "config",
        "round",
        "failure",
        "runtime_s",
        "rss_avg_bytes",
        "system_used_avg_bytes",
        "major_faults",
        "stalled_s",
        "monitor_cpu_s",
        "figure",
        "net_bytes",
    ])?;
    for run in runs {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let net = run.ledger.as_ref().and_then(|ledger| ledger.net_bytes);
        csv.write_record([
            run.program.clone(),
            run.config.clone(),
            run.round.to_string(),
            run.failure.clone().unwrap_or_default(),
            run.runtime_s.to_string(),
            number(run.rss_bytes),
            number(run.system_used_bytes),
            number(run.major_faults),
            number(run.stalled_s),
            number(run.monitor_cpu_s),
            number(run.figure),
            net.map_or_else(String::new, |net| net.to_string()),
        ])?;
    }
    Ok(csv.flush()?)
}
