//! `lowtide budget`: how much memory to give a program.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::root::Kernel;
use lowtide_model::budget::{Budget, Known, Mechanism, budgets};
use lowtide_model::stats;
use lowtide_model::units::{Share, human_bytes, human_seconds};
use serde_json::json;

use super::report::terminal;
use crate::failure::{self, Failure, code};
use crate::recommend;
use crate::report::forest;
use crate::report::text::{Grid, whole_bytes};
use crate::session;
use crate::store::{self, Record};
use crate::verify::{self, Asked, Verdicts, Verified};

/// `lowtide budget`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Records of runs that were measured before: several of the same program, for the largest and their spread
    #[arg(value_name = "RECORD", required_unless_present_any = ["command", "watch"], conflicts_with = "command")]
    records: Vec<PathBuf>,
    /// How much longer it may take
    #[arg(long, value_name = "SHARE", default_value = "2%")]
    slowdown: Share,
    /// There will be no swap where it runs: anonymous memory stays, however idle it is
    #[arg(long)]
    no_swap: bool,
    /// Run the program under each budget, too, and look for the least that holds where lowtide's does not
    #[arg(long)]
    verify: bool,
    /// Runs under each budget at most; fewer where that is certain enough
    #[arg(long, value_name = "N", default_value = "5", requires = "verify", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Look for the least that holds even if lowtide's budget does
    #[arg(long, requires = "verify")]
    least: bool,
    #[command(flatten)]
    watch: recommend::Args,
    /// Print it as this takes it, with the evidence as a comment
    #[arg(long, value_enum)]
    emit: Option<Emit>,
    /// Folder for the record of the run (default: lowtide-NAME-TIME in the current folder)
    #[arg(long, value_name = "DIR", requires = "command")]
    out: Option<PathBuf>,
    /// Print as JSON
    #[arg(long, conflicts_with = "emit")]
    json: bool,
    /// The program to measure, and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Who is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Emit {
    Systemd,
    Kubernetes,
    Slurm,
}

/// What one record says.
struct Told {
    record: PathBuf,
    command: String,
    argv: Vec<String>,
    runtime_s: f64,
    budgets: Vec<Budget>,
}

/// Tells the budgets.
///
/// # Errors
/// If the program fails, or a record does not tell any.
pub fn run(args: &Args) -> anyhow::Result<i32> {
    if !(args.slowdown.0 > 0.0 && args.slowdown.0 <= 1.0) {
        let message = format!("--slowdown {}: out of range; give a share up to 100%, for example 2%", args.slowdown);
        return Err(Failure::new(code::USAGE, message).into());
    }
    if args.watch.watch {
        return recommend::watch(&args.watch, args.slowdown, !args.no_swap, args.json);
    }
    if args.verify && args.records.len() > 1 {
        let message = "--verify: give one record, or a program".to_owned();
        return Err(Failure::new(code::USAGE, message).into());
    }
    if args.verify {
        verify::check(&Kernel::default())?;
    }
    let records = if args.command.is_empty() { args.records.clone() } else { vec![measure(args)?] };
    // Containers have no swap, as a rule.
    let mut swap = !args.no_swap && args.emit != Some(Emit::Kubernetes);
    if args.verify && swap && !verify::swaps(&Kernel::default(), false)?.contains(&true) {
        eprintln!("lowtide: no swap is on here, so that all is told and tried without; `swapon` some for both");
        swap = false;
    }
    let mut told = records.iter().map(|dir| tell(dir, args.slowdown, swap)).collect::<anyhow::Result<Vec<Told>>>()?;
    let verdicts = match told.as_mut_slice() {
        [one] if args.verify => {
            let Some(verdicts) = verify(args, one, swap)? else {
                eprintln!("lowtide: interrupted; go on with: lowtide budget {} --verify", one.record.display());
                return Ok(130);
            };
            *one = tell(&one.record, args.slowdown, swap)?;
            Some(verdicts)
        }
        _ => None,
    };
    let mut programs: Vec<&str> = told.iter().map(|one| one.command.as_str()).collect();
    programs.dedup();
    if programs.len() > 1 {
        eprintln!("lowtide: these are records of different programs: {}", programs.join("; "));
    }
    let largest = largest(&told);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(
            out,
            "{}",
            serde_json::to_string_pretty(&whole(&told, &largest, verdicts.as_ref(), args.slowdown, swap))?
        )?;
    } else if let Some(emit) = args.emit {
        let Some(own) = largest.iter().find(|budget| budget.mechanism == Mechanism::Lowtide) else {
            return Err(unknown(&records[0]).into());
        };
        out.write_all(emitted(emit, own, &told, args.slowdown, swap).as_bytes())?;
    } else {
        let mut grids = grids(&told, &largest, args.slowdown, swap);
        grids.extend(verdicts.iter().flat_map(|verdicts| verdicts.grids(unlimited(&largest))));
        for grid in &grids {
            writeln!(out, "{}", grid.text(terminal()))?;
        }
        if !largest.iter().any(|budget| budget.mechanism == Mechanism::Lowtide) {
            return Err(unknown(&records[0]).into());
        }
    }
    Ok(0)
}

fn unknown(record: &Path) -> Failure {
    let message = format!(
        "{}: does not tell what was used, so there is no budget within a slowdown; measure it with lowtide run, for ten seconds at least",
        record.display()
    );
    Failure::new(code::IMPOSSIBLE, message)
}

fn unlimited(largest: &[Budget]) -> Option<u64> {
    largest.iter().find(|budget| budget.mechanism == Mechanism::Unlimited).map(|budget| budget.bytes)
}

/// Runs the program under its budgets. `None` if that was interrupted.
fn verify(args: &Args, one: &Told, swap: bool) -> anyhow::Result<Option<Verdicts>> {
    let kernel = Kernel::default();
    let mut budgets = BTreeMap::new();
    for swap in verify::swaps(&kernel, !swap)? {
        budgets.insert(swap, predicted(&one.record, args.slowdown, swap)?.budgets);
    }
    let here = Cgroup::of(&kernel, std::process::id()).ok().flatten();
    let limit = here.and_then(|cgroup| cgroup.lowest_limit(&kernel));
    let most = budgets.values().flatten().filter(|budget| budget.mechanism != Mechanism::Unlimited);
    if let (Some(limit), Some(most)) = (limit, most.map(|budget| budget.bytes).max())
        && limit < most
    {
        #[expect(clippy::cast_precision_loss, reason = "a size of memory")]
        let limit = human_bytes(limit as f64);
        eprintln!("lowtide: a limit of {limit} is set above: no run can have more, those without a limit neither");
    }
    let asked = Asked { slowdown: args.slowdown.0, runs: args.runs, least: args.least };
    let Some(verdicts) = verify::verify(&one.record, &one.argv, one.runtime_s, &budgets, asked)? else {
        return Ok(None);
    };
    let all: Vec<Budget> = budgets.into_values().flatten().collect();
    let page = one.record.join("budget.html");
    let title = format!("How much memory {} needs", one.command);
    let chapters = [verdicts.chapter(unlimited(&all))];
    std::fs::write(&page, forest::page(&title, &about(args.slowdown, swap), &chapters)?)?;
    eprintln!("report: {}", page.display());
    Ok(Some(verdicts))
}

/// Runs the program once under `lowtide run`. Where its record is.
fn measure(args: &Args) -> anyhow::Result<PathBuf> {
    let name = Path::new(&args.command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let out = args.out.clone().unwrap_or_else(|| session::default_folder(&name));
    // What the program prints is its own affair; the budget has our standard output.
    let mut command = Command::new("/proc/self/exe");
    command.arg("run").arg("--out").arg(&out).arg("--").args(&args.command);
    command.stdout(rustix::io::dup(std::io::stderr())?);
    let status = command.status()?;
    if let Some(how) = failure::ended(status.code()) {
        let message = format!("{name} {how}; what a run that fails needs is not what one that works needs");
        return Err(Failure::new(status.code().unwrap_or(code::OTHER), message).into());
    }
    eprintln!();
    Ok(out)
}

/// What a record says: what was verified counts for more than what is predicted.
fn tell(dir: &Path, slowdown: Share, swap: bool) -> anyhow::Result<Told> {
    let mut told = predicted(dir, slowdown, swap)?;
    let verified = verify::verified(dir);
    let same = |one: &&Verified| one.swap == swap && one.slowdown.total_cmp(&slowdown.0).is_eq();
    let own = told.budgets.iter_mut().find(|budget| budget.mechanism == Mechanism::Lowtide);
    if let (Some(own), Some(verified)) = (own, verified.iter().find(same)) {
        if own.bytes != verified.bytes {
            // What it is made of was told of another.
            *own = Budget { heap_bytes: None, file_bytes: None, other_bytes: None, headroom_bytes: None, ..*own };
            own.interval_bytes = None;
        }
        (own.bytes, own.verified) = (verified.bytes, true);
    }
    Ok(told)
}

fn predicted(dir: &Path, slowdown: Share, swap: bool) -> anyhow::Result<Told> {
    match store::finish(dir) {
        Ok(_) | Err(store::StoreError::Live(_)) => {}
        Err(error @ store::StoreError::NotARecord { .. }) => return Err(error.into()),
        Err(error) => eprintln!("lowtide: the record could not be finished: {error}"),
    }
    let record = Record::open(dir)?;
    let (ages, lives, rows) = (record.ages(), record.lives(), record.usage());
    let curve = record.curve(&ages);
    let known = Known {
        meta: record.meta(),
        rows: &rows,
        ages: &ages,
        episodes: &lives,
        curve: curve.as_ref(),
        tick_s: record.tick_s(),
        swap,
    };
    let told = Told {
        record: dir.to_path_buf(),
        command: record.meta().command.join(" "),
        argv: record.meta().command.clone(),
        runtime_s: record.meta().end.as_ref().map_or(0.0, |end| end.runtime_s),
        budgets: budgets(&known, slowdown.0),
    };
    record.warnings().iter().for_each(|warning| eprintln!("lowtide: {warning}"));
    Ok(told)
}

/// Of each kind the largest that any record asks for.
fn largest(told: &[Told]) -> Vec<Budget> {
    let kinds = [Mechanism::Unlimited, Mechanism::AppMaxrss, Mechanism::SysMaxrss, Mechanism::Lowtide];
    let of = |kind: Mechanism| {
        let all = told.iter().flat_map(|one| &one.budgets).filter(move |budget| budget.mechanism == kind);
        all.max_by_key(|budget| budget.bytes).copied()
    };
    kinds.into_iter().filter_map(of).collect()
}

fn about(slowdown: Share, swap: bool) -> String {
    format!("at most {slowdown} slower, {} swap", if swap { "with" } else { "without" })
}

fn grids(told: &[Told], largest: &[Budget], slowdown: Share, swap: bool) -> Vec<Grid> {
    let title = format!("How much memory to give it ({})", about(slowdown, swap));
    let mut grid = Grid::new(&title, &["", "budget", "heap", "file", "other", "95 % interval", "headroom", "set at"]);
    for budget in largest {
        let interval = budget.interval_bytes.map_or_else(
            || "-".to_owned(),
            |[low, high]| format!("{} to {}", whole_bytes(Some(low)), whole_bytes(Some(high))),
        );
        let parts = [budget.heap_bytes, budget.file_bytes, budget.other_bytes].map(whole_bytes);
        let set_at = budget.set_at_s.map_or_else(|| "-".to_owned(), human_seconds);
        grid.row(
            [
                format!("{}{}", budget.mechanism.name(), if budget.verified { ", verified" } else { "" }),
                whole_bytes(Some(budget.bytes)),
            ]
            .into_iter()
            .chain(parts)
            .chain([interval, whole_bytes(budget.headroom_bytes), set_at]),
        );
    }
    let mut grids = vec![grid];
    if told.len() > 1 {
        let mut grid = Grid::new("Record by record", &["record", "runtime", "lowtide", "App-MaxRSS", "Sys-MaxRSS"]);
        for one in told {
            let of = |kind| one.budgets.iter().find(|budget| budget.mechanism == kind).map(|budget| budget.bytes);
            let bytes = [Mechanism::Lowtide, Mechanism::AppMaxrss, Mechanism::SysMaxrss].map(of).map(whole_bytes);
            grid.row([one.record.display().to_string(), human_seconds(one.runtime_s)].into_iter().chain(bytes));
        }
        let own = own(told);
        for (name, share) in [("median", 0.5), ("90 %", 0.9), ("largest", 1.0)] {
            let value = stats::quantile(&own, share).map_or_else(|| "-".to_owned(), human_bytes);
            grid.row([name.to_owned(), String::new(), value, String::new(), String::new()]);
        }
        grids.push(grid);
    }
    grids
}

/// What each record asks for, bytes.
#[expect(clippy::cast_precision_loss, reason = "sizes of memory")]
fn own(told: &[Told]) -> Vec<f64> {
    let all = told.iter().flat_map(|one| &one.budgets).filter(|budget| budget.mechanism == Mechanism::Lowtide);
    all.map(|budget| budget.bytes as f64).collect()
}

fn whole(
    told: &[Told],
    largest: &[Budget],
    verdicts: Option<&Verdicts>,
    slowdown: Share,
    swap: bool,
) -> serde_json::Value {
    let own = own(told);
    let records: Vec<serde_json::Value> = told
        .iter()
        .map(|one| json!({ "record": one.record, "command": one.command, "runtime_s": one.runtime_s, "budgets": one.budgets }))
        .collect();
    json!({
        "schema": 1,
        "slowdown_percent": 100.0 * slowdown.0,
        "swap": swap,
        "budgets": largest,
        "lowtide_p50_bytes": stats::quantile(&own, 0.5),
        "lowtide_p90_bytes": stats::quantile(&own, 0.9),
        "verify": verdicts,
        "records": records,
    })
}

const MIB: u64 = 1 << 20;

/// The budget in others' words, with the evidence as a comment.
fn emitted(emit: Emit, own: &Budget, told: &[Told], slowdown: Share, swap: bool) -> String {
    let mib = own.bytes.div_ceil(MIB);
    let proof = if own.verified { "verified by runs under it" } else { "predicted" };
    let mut evidence = vec![format!("lowtide budget: {mib} MiB, {}, {proof}", about(slowdown, swap))];
    if let Some([low, high]) = own.interval_bytes {
        evidence.push(format!("95 % interval {} to {} MiB", low.div_ceil(MIB), high.div_ceil(MIB)));
    }
    for one in told {
        // A line of somebody else's must not end the comment.
        let command: String = one.command.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let bytes = one.budgets.iter().find(|budget| budget.mechanism == Mechanism::Lowtide).map(|budget| budget.bytes);
        let said = bytes.map_or_else(|| "no budget".to_owned(), |bytes| format!("{} MiB", bytes.div_ceil(MIB)));
        evidence.push(format!("measured {}: {command}: {said}", human_seconds(one.runtime_s)));
    }
    let evidence: String = evidence.iter().map(|line| format!("# {line}\n")).collect();
    match emit {
        Emit::Systemd => format!("{evidence}[Service]\nMemoryMax={mib}M\n"),
        Emit::Kubernetes => {
            format!("{evidence}resources:\n  requests:\n    memory: {mib}Mi\n  limits:\n    memory: {mib}Mi\n")
        }
        // A batch script's options end at the first line that is none.
        Emit::Slurm => format!("#SBATCH --mem={mib}M\n{evidence}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(mechanism: Mechanism, bytes: u64) -> Budget {
        Budget {
            mechanism,
            bytes,
            heap_bytes: Some(bytes),
            file_bytes: Some(0),
            other_bytes: Some(0),
            interval_bytes: Some([bytes - MIB, bytes]),
            headroom_bytes: Some(MIB / 2),
            set_at_s: Some(3.0),
            verified: false,
        }
    }

    fn told(bytes: u64) -> Told {
        let budgets = vec![budget(Mechanism::AppMaxrss, 2 * bytes), budget(Mechanism::Lowtide, bytes)];
        Told { record: "a".into(), command: "solve\nx".into(), argv: Vec::new(), runtime_s: 60.0, budgets }
    }

    #[test]
    fn the_largest_of_several_counts() {
        let all = [told(100 * MIB), told(300 * MIB), told(200 * MIB)];
        let largest = largest(&all);
        assert_eq!(largest.iter().map(|budget| budget.bytes / MIB).collect::<Vec<_>>(), [600, 300]);
        let value = whole(&all, &largest, None, Share(0.02), true);
        assert_eq!(value["lowtide_p50_bytes"], 200.0 * 1_048_576.0);
        assert_eq!(grids(&all, &largest, Share(0.02), true).len(), 2);
    }

    #[test]
    fn others_are_told_in_their_words_with_the_evidence() {
        let one = [told(100 * MIB + 1)];
        let own = one[0].budgets[1];
        let text = |emit| emitted(emit, &own, &one, Share(0.02), true);
        assert!(text(Emit::Systemd).ends_with("[Service]\nMemoryMax=101M\n"));
        assert!(text(Emit::Kubernetes).contains("limits:\n    memory: 101Mi"));
        assert!(text(Emit::Slurm).starts_with("#SBATCH --mem=101M\n# lowtide budget: 101 MiB"));
        assert!(
            text(Emit::Systemd)
                .lines()
                .all(|line| line.starts_with('#') || line.starts_with("[S") || line.starts_with('M'))
        );
    }
}
