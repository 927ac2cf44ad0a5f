//! Where records go, which signals end a command, and what is printed once a record ends.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::output::{self, StyleArgs};
use anyhow::Context;
use lowtide_engine::event::{Event, Sink};
use lowtide_engine::recorder::Recorder;
use lowtide_engine::recording::task;
use lowtide_kernel::sys::Signals;
use lowtide_model::task::Task;
use rustix::process::Signal;

/// The signals that end a command: SIGINT, SIGTERM and SIGHUP, blocked and read from a file.
///
/// # Errors
/// If the kernel refuses.
pub fn ending_signals() -> io::Result<Signals> {
    Signals::block(&[Signal::INT, Signal::TERM, Signal::HUP].map(Signal::as_raw))
}

/// With `--verbose`, has a recorder print which monitor serves and what it notes.
pub fn explain(recorder: &mut Recorder) {
    if StyleArgs::get().is_verbose() {
        recorder.add_sink(Box::new(Explanation));
    }
}

/// Prints what a recorder notes and logs.
struct Explanation;

impl Sink for Explanation {
    fn take(&mut self, _: f64, event: &Event<'_>) {
        match event {
            Event::Note(text) => lowtide_kernel::message!("lowtide: {text}"),
            Event::Logged(what, fields) => {
                for (name, value) in *fields {
                    lowtide_kernel::message!("lowtide: {what} {name}: {value}");
                }
            }
            _ => {}
        }
    }
}

/// A name as part of a file name.
#[must_use]
pub fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// The name of a program without its folder.
#[must_use]
pub fn program_name(command: &[String]) -> String {
    let name = command.first().and_then(|program| Path::new(program).file_name());
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// `lowtide-NAME-20261120-193000` in the current folder, with `-2` and so on if there is one; of a rank `lowtide-NAME-20261120-193000-slurm-12.0-rank-3`, as all
/// ranks start in the same second and the same folder.
#[must_use]
pub fn default_folder(name: &str) -> PathBuf {
    let rank = task().map_or_else(String::new, |task| format!("-{}-{}", task.run, rank(&task)));
    let now = jiff::Zoned::now();
    let name = file_name(&format!("lowtide-{name}-{}{rank}", now.strftime("%Y%m%d-%H%M%S")));
    // Made at once, so that of several that start in one second each has its own. Where none can be made, who writes into it
    // reports why.
    let numbered = (2..1000).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered).map(PathBuf::from);
    names
        .find(|path| !matches!(std::fs::create_dir(path), Err(error) if error.kind() == io::ErrorKind::AlreadyExists))
        .unwrap_or_else(|| name.into())
}

/// The folder of a record: the given one, or of several ranks, which are all given the same, a folder for each within it.
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
    let mut report = Command::new("/proc/self/exe");
    let style = StyleArgs::get();
    report.arg("report").arg(dir).args(style.options()).stdin(Stdio::null());
    if json {
        report.args(["--format", "json"]);
    } else if style.is_quiet() || task().is_some_and(|task| task.rank > 0) {
        // A job has one terminal for all of its ranks, and they are much alike.
        report.stdout(Stdio::null());
    } else {
        lowtide_kernel::message!("");
        report.stdout(rustix::io::dup(io::stderr())?);
    }
    if !report.status().context("the report could not be drawn")?.success() {
        anyhow::bail!("{}: the record could not be finished; run `lowtide report {}`", dir.display(), dir.display());
    }
    output::note(format_args!("\nreport: {}", dir.join("report.html").display()));
    Ok(())
}
