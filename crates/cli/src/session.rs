//! Where records go, and what is printed once they end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use lowtide_engine::recording::task;
use lowtide_model::task::Task;

/// `lowtide-NAME-20261120-193000` in the current folder; of a rank `lowtide-NAME-20261120-193000-slurm-12.0-rank-3`, as all
/// start in the same second and the same folder.
#[must_use]
pub fn default_folder(name: &str) -> PathBuf {
    let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let rank = task().map_or_else(String::new, |task| format!("-{}-{}", task.run, rank(&task)));
    let now = jiff::Zoned::now();
    let name = format!("lowtide-{name}-{}{rank}", now.strftime("%Y%m%d-%H%M%S"));
    PathBuf::from(name.chars().map(plain).collect::<String>())
}

/// Where to write, having been told a folder: ranks are told the same one, and each has a folder of its own in it.
#[must_use]
pub fn folder(given: &Path) -> PathBuf {
    task().filter(|task| task.ranks > 1).map_or_else(|| given.to_path_buf(), |task| given.join(rank(&task)))
}

fn rank(task: &Task) -> String {
    format!("rank-{}", task.number())
}

/// Finishes a record and draws its page in a process of its own, so that drawing does not count as monitoring; then
/// prints the summary: text to stderr, as the program's own output has stdout, JSON to stdout because it was asked for.
///
/// # Errors
/// If the record could not be finished.
pub fn finish(dir: &Path, json: bool) -> anyhow::Result<()> {
    let mut report = myself("report");
    report.arg(dir).stdin(Stdio::null());
    if json {
        report.args(["--format", "json"]);
    } else if task().is_some_and(|task| task.rank > 0) {
        // A job has one terminal for all of its ranks, and they are much alike.
        report.stdout(Stdio::null());
    } else {
        eprintln!();
        // Child output goes where ours goes: stdout belongs to the program.
        report.stdout(rustix::io::dup(std::io::stderr())?);
    }
    if !report.status().context("the report could not be drawn")?.success() {
        anyhow::bail!("{}: the record could not be finished; run `lowtide report {}`", dir.display(), dir.display());
    }
    eprintln!("\nreport: {}", dir.join("report.html").display());
    Ok(())
}

fn myself(verb: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(verb);
    command
}
