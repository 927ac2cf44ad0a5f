//! `lowtide seff`: what a Slurm job asked for, held and needed, from the records of its ranks.

use std::path::{Path, PathBuf};
use std::process::Command;

use lowtide_engine::failure::{Failure, code};
use lowtide_model::budget::Mechanism;
use lowtide_model::task::Task;
use lowtide_model::units::{Share, Size, float, human_bytes};
use lowtide_record::Record;
use lowtide_report::text::Grid;
use serde_json::json;

use crate::budgets::{self, Below, BudgetAnswer, Question};
use crate::output::{print, terminal};

/// Show what a Slurm job asked for, held and needed, from the records of its ranks
#[derive(Debug, clap::Args)]
pub struct SeffArgs {
    /// Number of the job, or of one of its steps: 12, 12.0
    #[arg(value_name = "JOBID")]
    job: String,
    /// Folder with the records, up to three folders deep
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Folders below the given one that are searched.
const DEPTH: u32 = 3;

/// Prints the figures of a job.
///
/// # Errors
/// If there is no record of it, or one cannot be read.
pub fn run(args: &SeffArgs) -> anyhow::Result<i32> {
    let mut records = Vec::new();
    find(&args.dir, &args.job, DEPTH, &mut records);
    if records.is_empty() {
        let (job, dir) = (&args.job, args.dir.display());
        let fix = "record its ranks with `srun lowtide run --out DIR -- CMD`, and give the folder with --dir";
        return Err(Failure::new(code::GONE, format!("seff: no record of job {job} below {dir}; {fix}")).into());
    }
    records.sort();
    // Slurm's nodes have no swap that a job may count on.
    let question = Question { slowdown: Share(0.02), below: Below::Nothing };
    let read = records.iter().map(|dir| budgets::of_record(dir, question)).collect::<anyhow::Result<Vec<_>>>()?;
    let answer = BudgetAnswer::of(read, question);
    answer.doubts().iter().for_each(|doubt| lowtide_kernel::message!("lowtide: {doubt}"));
    let requested = requested(&args.job);
    print(if args.json { data(args, &answer, requested) } else { text(args, &answer, requested) })?;
    Ok(0)
}

/// Records of the job below a folder. What cannot be read holds none.
fn find(dir: &Path, job: &str, depth: u32, records: &mut Vec<PathBuf>) {
    if dir.join("meta.json").exists() {
        let task = Record::open(dir).ok().and_then(|record| record.meta().task.clone());
        if task.is_some_and(|task| is_of(&task, job)) {
            records.push(dir.to_path_buf());
        }
    } else if depth > 0 {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|of| of.is_dir()));
        folders.for_each(|entry| find(&entry.path(), job, depth - 1, records));
    }
}

/// Whether a rank is of the job, or of the step.
fn is_of(task: &Task, job: &str) -> bool {
    let run = task.run.strip_prefix("slurm-");
    run.is_some_and(|run| run == job || run.split_once('.').is_some_and(|(of, _)| of == job))
}

/// Bytes that the job asked for on each node, by `sacct`. `None` where that is missing or does not know the job.
fn requested(job: &str) -> Option<u64> {
    let job = job.split('.').next()?;
    let options = ["--allocations", "--noheader", "--parsable2", "--format=ReqMem", "--jobs", job];
    let output = Command::new("sacct").args(options).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // `4G`, of older releases `4Gn` of a node; `4Gc` of a CPU says nothing of a node.
    let size = text.lines().next()?.trim().trim_end_matches('n').parse::<Size>().ok()?;
    (size.0 > 0).then_some(size.0)
}

/// Needed bytes of those that were asked for, percent.
fn efficiency(needed: Option<u64>, requested: Option<u64>) -> Option<f64> {
    Some(100.0 * float(needed?) / float(requested?))
}

fn figures(answer: &BudgetAnswer) -> [Option<u64>; 2] {
    [Mechanism::SysMaxrss, Mechanism::Lowtide].map(|mechanism| answer.budget(mechanism).map(|budget| budget.bytes))
}

fn ranks(answer: &BudgetAnswer) -> u32 {
    let all = answer.records.iter().filter_map(|one| one.task.as_ref());
    all.map(|task| task.ranks).max().unwrap_or(0)
}

fn nodes(answer: &BudgetAnswer) -> usize {
    let names = answer.records.iter().filter_map(|one| Some(&one.task.as_ref()?.node));
    names.collect::<std::collections::BTreeSet<_>>().len()
}

fn data(args: &SeffArgs, answer: &BudgetAnswer, requested: Option<u64>) -> String {
    let [held, needed] = figures(answer);
    let all = json!({
        "schema": 1,
        "job": args.job,
        "records": answer.records.iter().map(|one| &one.record).collect::<Vec<_>>(),
        "ranks": ranks(answer),
        "nodes": nodes(answer),
        "requested_bytes": requested,
        "held_bytes": held,
        "needed_bytes": needed,
        "efficiency_percent": efficiency(needed, requested),
    });
    format!("{all:#}\n")
}

fn text(args: &SeffArgs, answer: &BudgetAnswer, requested: Option<u64>) -> String {
    let [held, needed] = figures(answer);
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| human_bytes(float(bytes)));
    let (of, nodes) = (ranks(answer), nodes(answer));
    let mut grid = Grid { remarks: true, ..Grid::new("Memory of a node", &["", "", ""]) };
    let from = if requested.is_some() { "by sacct" } else { "sacct is missing, or does not know the job" };
    grid.row(["requested".to_owned(), bytes(requested), from.to_owned()]);
    grid.row(["held at most".to_owned(), bytes(held), "memory of all kinds on the largest node".to_owned()]);
    grid.row(["needed".to_owned(), bytes(needed), "the least within 2 % of slowdown, without swap".to_owned()]);
    let share = efficiency(needed, requested).map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0} %"));
    grid.row(["efficiency".to_owned(), share, "needed of requested".to_owned()]);
    let recorded = answer.records.len();
    let heading = format!("Job {}: {recorded} of {of} ranks recorded, on {nodes} nodes\n\n", args.job);
    let line = needed.map_or_else(String::new, |needed| format!("\n#SBATCH --mem={}M\n", needed.div_ceil(1 << 20)));
    heading + &grid.text(terminal()) + &line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_its_steps_and_no_others() {
        let of = |run: &str, job| is_of(&Task { run: run.to_owned(), ..Task::default() }, job);
        assert!(of("slurm-12.0", "12") && of("slurm-12.batch", "12") && of("slurm-12.0", "12.0"));
        assert!(!of("slurm-120.0", "12") && !of("slurm-12.1", "12.0") && !of("mpi", "12") && !of("slurm-1.2", "2"));
    }

    #[test]
    fn efficiency_is_what_was_needed_of_what_was_requested() {
        assert_eq!(efficiency(Some(1 << 30), Some(4 << 30)), Some(25.0));
        assert_eq!((efficiency(None, Some(1)), efficiency(Some(1), None)), (None, None));
    }
}
