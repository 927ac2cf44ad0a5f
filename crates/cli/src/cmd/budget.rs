//! `lowtide budget`: how much memory to give a program.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::root::Kernel;
use lowtide_model::budget::{Budget, Mechanism, by};
use lowtide_model::meta::DURATION;
use lowtide_model::units::{Share, Size, Span, float, human_bytes};

use crate::budgets::emit::{Emit, emitted};
use crate::budgets::{self, Below, BudgetAnswer, Question, RecordBudget, tables};
use crate::output::{self, terminal};
use crate::recommend;
use crate::session;
use crate::verify::{self, Asked, Verdicts};
use lowtide_engine::failure::{self, Failure, code};
use lowtide_record::Record;
use lowtide_record::atomic::{self, Care};
use lowtide_report::bottom_line::{limit, sentences};
use lowtide_report::text::wrap;
use lowtide_report::{PageOpening, forest};

/// Show how much memory to give a program
#[derive(Debug, clap::Args)]
pub struct BudgetArgs {
    /// Records of earlier runs, or folders of records: of several runs of a program the largest need counts; ranks that ran
    /// on a node at the same time are added up
    #[arg(value_name = "RECORD", required_unless_present_any = ["command", "watch"], conflicts_with = "command")]
    records: Vec<PathBuf>,
    /// How much longer the program may take
    #[arg(long, value_name = "SHARE", default_value = "2%")]
    slowdown: Share,
    /// There will be no swap where it runs: anonymous memory stays, however idle it is
    #[arg(long)]
    no_swap: bool,
    /// There will be so much swap where it runs (default: what was active at the record and is here; for --emit kubernetes and
    /// slurm none)
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["no_swap", "slow_tier", "watch"])]
    with_swap: Option<Size>,
    /// How much fast memory it needs where the rest lies in slower memory, from which a page is back in this time (for example 3us)
    #[arg(long, value_name = "TIME", conflicts_with_all = ["no_swap", "verify", "emit", "watch"])]
    slow_tier: Option<Span>,
    /// Run the program under each budget, too, and search for the least that holds where lowtide's does not
    #[arg(long)]
    verify: bool,
    /// Runs under each budget at most; fewer where the result is certain earlier
    #[arg(long, value_name = "N", default_value = "5", requires = "verify", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Search for the least that holds even if lowtide's budget does
    #[arg(long, requires = "verify")]
    least: bool,
    #[command(flatten)]
    watch: recommend::WatchArgs,
    /// Print the limit in the form that this tool reads, with the evidence as a comment
    #[arg(long, value_enum)]
    emit: Option<Emit>,
    /// Folder for the record of the run (default: lowtide-NAME-TIME in the current folder)
    #[arg(long, value_name = "DIR", requires = "command")]
    out: Option<PathBuf>,
    /// End the program after this time: what it used until then counts
    #[arg(long, value_name = "TIME", requires = "command")]
    duration: Option<Span>,
    /// Print as JSON
    #[arg(long, conflicts_with = "emit")]
    json: bool,
    /// The program to measure, and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Prints the budgets.
///
/// # Errors
/// If the program fails, or a record has none.
pub fn run(args: &BudgetArgs) -> anyhow::Result<i32> {
    if !(args.slowdown.0 > 0.0 && args.slowdown.0 <= 1.0) {
        let message = format!("--slowdown {}: out of range; give a share up to 100%, for example 2%", args.slowdown);
        return Err(Failure::new(code::USAGE, message).into());
    }
    if args.watch.watch {
        let swap = if args.no_swap { 0 } else { budgets::sure_swap(&[])? };
        return recommend::watch(&args.watch, args.slowdown, swap, args.json);
    }
    let records = budgets::records(&args.records);
    if args.verify {
        check_verifiable(args, &records)?;
    }
    let records = if args.command.is_empty() { records } else { vec![measure(args)?] };
    let swap = swap_there(args, &records)?;
    if args.verify && args.with_swap.is_some_and(|size| budgets::sure_swap(&[]).is_ok_and(|here| size.0 > here)) {
        return usage("--verify: --with-swap is more than is active here; `swapon` some, or leave it out");
    }
    let below = args.slow_tier.map_or(Below::of_swap(swap), |time| Below::Slower(time.0.as_secs_f64()));
    let question = Question { slowdown: args.slowdown, below };
    let read =
        || records.iter().map(|dir| budgets::of_record(dir, question)).collect::<anyhow::Result<Vec<RecordBudget>>>();
    let mut answer = BudgetAnswer::of(read()?, question);
    let verdicts = match answer.records.as_slice() {
        [one] if args.verify => {
            let Some(verdicts) = verify(args, one, question)? else {
                lowtide_kernel::message!(
                    "lowtide: interrupted; go on with: lowtide budget {} --verify",
                    one.record.display()
                );
                return Ok(130);
            };
            answer = BudgetAnswer::of(read()?, question);
            Some(verdicts)
        }
        _ => None,
    };
    answer.doubts().iter().for_each(|doubt| lowtide_kernel::message!("lowtide: {doubt}"));
    print(args, &answer, verdicts.as_ref())
}

/// Bytes of swap that the number may count on: what was asked for, or what is sure to be there. Where it is not, a limit that
/// counts on it kills.
fn swap_there(args: &BudgetArgs, records: &[PathBuf]) -> anyhow::Result<u64> {
    if let Some(size) = args.with_swap {
        return Ok(size.0);
    }
    // Batch jobs and containers have none, as a rule.
    if args.no_swap || matches!(args.emit, Some(Emit::Kubernetes | Emit::Slurm)) {
        return Ok(0);
    }
    budgets::sure_swap(records)
}

fn usage<T>(message: &str) -> anyhow::Result<T> {
    Err(Failure::new(code::USAGE, message).into())
}

fn print(args: &BudgetArgs, answer: &BudgetAnswer, verdicts: Option<&Verdicts>) -> anyhow::Result<i32> {
    let own = answer.budget(Mechanism::Lowtide);
    if args.json {
        output::print(serde_json::to_string_pretty(&tables::json(answer, verdicts))? + "\n")?;
        return Ok(0);
    }
    if let Some(emit) = args.emit {
        let own = own.ok_or_else(|| unknown(answer))?;
        output::print(emitted(emit, own, answer))?;
        return Ok(0);
    }
    let mut text = String::new();
    if let ([one], None) = (answer.records.as_slice(), args.slow_tier) {
        let verified = own.filter(|own| own.verified);
        let verified = verified.map_or_else(String::new, |own| format!(" Runs under {} held.", limit(own.bytes)));
        let line = format!("{}{verified}", sentences(&one.bottom_line));
        writeln!(text, "{}", wrap(&line, terminal().width, ""))?;
    }
    let mut grids = tables::grids(answer);
    grids.extend(verdicts.iter().flat_map(|verdicts| verdicts.grids(unlimited(&answer.largest))));
    for grid in &grids {
        writeln!(text, "{}", grid.text(terminal()))?;
    }
    output::print(text)?;
    own.map(|_| 0).ok_or_else(|| unknown(answer).into())
}

/// That runs can be had under a budget, and compared.
fn check_verifiable(args: &BudgetArgs, records: &[PathBuf]) -> anyhow::Result<()> {
    if records.len() > 1 {
        return usage("--verify: give one record, or a program");
    }
    let ends = |record: &PathBuf| Record::open(record).ok()?.meta().end.as_ref().map(|end| end.reason != DURATION);
    if args.duration.is_some() || records.iter().any(|record| ends(record) == Some(false)) {
        return usage(
            "--verify: a program that was ended by --duration has no time to compare; let it end, or try --watch",
        );
    }
    verify::check(&Kernel::default())
}

fn unknown(answer: &BudgetAnswer) -> Failure {
    let mut silent = answer.records.iter().filter(|one| one.bytes(Mechanism::Lowtide).is_none());
    let record = silent.next().map_or_else(String::new, |one| one.record.display().to_string());
    let message = format!(
        "{record}: its memory was never counted, or it was killed for want of it, so there is no budget; measure it with lowtide run, without a limit"
    );
    Failure::new(code::IMPOSSIBLE, message)
}

fn unlimited(largest: &[Budget]) -> Option<u64> {
    by(Mechanism::Unlimited, largest).map(|budget| budget.bytes)
}

/// Runs the program under its budgets. `None` if that was interrupted.
fn verify(args: &BudgetArgs, one: &RecordBudget, question: Question) -> anyhow::Result<Option<Verdicts>> {
    let kernel = Kernel::default();
    let room = budgets::sure_swap(&[])?;
    let mut all = BTreeMap::new();
    for swap in verify::swaps(&kernel, !question.below.has_swap())? {
        let bytes = if swap { room } else { 0 };
        let question = Question { below: Below::of_swap(bytes), ..question };
        all.insert(swap, budgets::predicted(&one.record, question)?.budgets);
    }
    let here = Cgroup::of(&kernel, std::process::id()).ok().flatten();
    let limit = here.and_then(|cgroup| cgroup.lowest_limit(&kernel));
    let most = all.values().flatten().filter(|budget| budget.mechanism != Mechanism::Unlimited);
    if let (Some(limit), Some(most)) = (limit, most.map(|budget| budget.bytes).max())
        && limit < most
    {
        let limit = human_bytes(float(limit));
        lowtide_kernel::message!(
            "lowtide: a limit of {limit} is set above: no run can have more, those without a limit neither"
        );
    }
    let asked = Asked { slowdown: args.slowdown.0, runs: args.runs, least: args.least, swap_bytes: room };
    let Some(verdicts) = verify::verify(one, &all, asked)? else {
        return Ok(None);
    };
    let all: Vec<Budget> = all.into_values().flatten().collect();
    let page = one.record.join("budget.html");
    let title = format!("How much memory {} needs", one.command());
    let chapters = [verdicts.chapter(unlimited(&all))];
    let opening = PageOpening { command: "budget", title, ran: question.to_string(), answer: verdicts.sentence() };
    atomic::write(&page, Care::default(), forest::page(opening, &chapters)?.as_bytes())?;
    lowtide_kernel::message!("report: {}", page.display());
    Ok(Some(verdicts))
}

/// Runs the program once under `lowtide run`. Where its record is.
fn measure(args: &BudgetArgs) -> anyhow::Result<PathBuf> {
    let name = Path::new(&args.command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let out = args.out.clone().unwrap_or_else(|| session::default_folder(&name));
    // What the program prints is its own affair; the budget has our standard output.
    let mut command = Command::new("/proc/self/exe");
    command.arg("run").arg("--out").arg(&out);
    command.args(args.duration.iter().flat_map(|time| ["--duration".to_owned(), time.to_string()]));
    command.arg("--").args(&args.command);
    command.stdout(rustix::io::dup(std::io::stderr())?);
    let status = command.status()?;
    let was_ended = Record::open(&session::folder(&out))
        .is_ok_and(|record| record.meta().end.as_ref().is_some_and(|end| end.reason == DURATION));
    if let Some(how) = failure::ended(status.code()).filter(|_| !was_ended) {
        let message = format!("{name} {how}; what a run that fails needs is not what one that works needs");
        return Err(Failure::new(status.code().unwrap_or(code::OTHER), message).into());
    }
    lowtide_kernel::message!();
    Ok(session::folder(&out))
}
