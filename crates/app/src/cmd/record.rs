//! `lowtide record`: record a process tree, a cgroup or the whole system that is already running.

use std::io::IsTerminal;
use std::net::SocketAddr;

use indicatif::ProgressBar;
use lowtide_kernel::account::{Accountant, Scope};
use lowtide_kernel::cgroup::{Cgroup, Selection};
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::Signals;
use lowtide_model::meta::{DURATION, End};
use lowtide_model::units::{Span, human_bytes};
use lowtide_model::usage::Usage;
use rustix::process::Signal;

use super::run::Common;
use crate::failure::{Failure, code};
use crate::recorder::Recorder;
use crate::schemes::acts::Acts;
use crate::serve::{self, Figures, Shared};
use crate::session;

/// `lowtide record`
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// Stop after this time (default: until Ctrl-C, or until the target is gone)
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Serve the newest figures as OpenMetrics at this address, under /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    common: Common,
}

/// What is running already.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct TargetArgs {
    /// A process, its children, and theirs
    #[arg(long, value_name = "N")]
    pid: Option<u32>,
    /// A memory cgroup: its path, or its name below the mount point; with * ? [] all that match, as they come and go
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Everything on this machine
    #[arg(long)]
    system: bool,
}

/// Records until the time is over, the target is gone, or Ctrl-C.
///
/// # Errors
/// If there is no such target, or the record cannot be written.
pub fn run(args: &Args) -> anyhow::Result<i32> {
    record(&args.target, &args.common, args.duration, args.listen, None)
}

/// Records, and carries out schemes meanwhile if there are any.
///
/// # Errors
/// As [`run`]; and if nobody can carry out a scheme here.
pub(super) fn record(
    target_args: &TargetArgs,
    common: &Common,
    duration: Option<Span>,
    listen: Option<SocketAddr>,
    acts: Option<&Acts>,
) -> anyhow::Result<i32> {
    let kernel = Kernel::default();
    let (name, accountant, note) = target(&kernel, target_args)?;
    let mut options = common.options(&name, true)?;
    let journal = session::journal(&kernel)?;
    session::check_monitor(options.monitor, &kernel)?;
    let own = accountant.has_own_cgroup();
    let swap = acts.map(|acts| acts.prepare(&mut options, &kernel, &journal, target_args.system, own)).transpose()?;
    let verb = if acts.is_some() { "schemes apply" } else { "record" };
    let command = vec!["lowtide".to_owned(), verb.to_owned(), name];
    let meta = session::meta(&kernel, command, &options, &accountant.cgroups);
    let signals = Signals::block(&[Signal::INT.as_raw(), Signal::TERM.as_raw(), Signal::HUP.as_raw()])?;
    // After the signals: a thread that was started before would die of them, and the program with it.
    let served = listen.map(|address| serve_at(address, target_args)).transpose()?;
    let mut recorder = Recorder::open(&kernel, &journal, options, accountant, meta)?;
    recorder.served = served;
    if let Some(note) = note {
        recorder.note(note);
    }
    let reason = follow(&mut recorder, &signals, duration)?;
    let end = End { reason: reason.to_owned(), runtime_s: recorder.now_s(), ..End::default() };
    let dir = recorder.close(end);
    drop(swap);
    drop(journal);
    session::finish(&dir?, common.json)?;
    Ok(0)
}

/// Serves figures of the target.
fn serve_at(address: SocketAddr, target: &TargetArgs) -> anyhow::Result<Shared> {
    let label = match (target.pid, &target.cgroup) {
        (Some(pid), _) => ("pid".to_owned(), pid.to_string()),
        (None, Some(path)) => ("cgroup".to_owned(), path.clone()),
        (None, None) => ("system".to_owned(), "all".to_owned()),
    };
    let shared = Shared::default();
    shared.with(|figures| *figures = Figures::of(label));
    let bound = serve::start(address, shared.clone())?;
    eprintln!("lowtide: metrics at http://{bound}/metrics");
    Ok(shared)
}

/// What to record: a name for it, its accounts, and what to say about these.
fn target(kernel: &Kernel, args: &TargetArgs) -> anyhow::Result<(String, Accountant, Option<String>)> {
    if let Some(pid) = args.pid {
        let stat = proc::stat(kernel, pid).map_err(|error| match error {
            e if e.is_gone() => Failure::new(code::GONE, format!("--pid {pid}: no such process; see `ps -e`")),
            e => Failure::new(code::OTHER, format!("--pid {pid}: {e}")),
        })?;
        let scope = Scope::Tree { roots: vec![pid], own_children: false };
        let tree = Accountant::new(kernel, scope.clone(), Vec::new()).pids()?;
        // A cgroup that holds nothing else tells more than the sum over processes.
        let own = Cgroup::of(kernel, pid)?.filter(|cgroup| {
            cgroup.pids(kernel).is_ok_and(|pids| !pids.is_empty() && pids.iter().all(|pid| tree.contains(pid)))
        });
        let note = own.is_none().then(|| {
            "the process shares its cgroup with others: page cache and kernel memory of its own are not known"
                .to_owned()
        });
        let accountant = Accountant::new(kernel, scope, own.into_iter().collect());
        return Ok((format!("{}-{pid}", stat.comm), accountant, note));
    }
    if let Some(path) = &args.cgroup {
        return Ok((cgroup_name(path), cgroups(kernel, path)?, None));
    }
    Ok(("system".to_owned(), Accountant::new(kernel, Scope::System, Vec::new()), None))
}

/// The accounts of the cgroup at that path, or of all that match.
fn cgroups(kernel: &Kernel, path: &str) -> anyhow::Result<Accountant> {
    // A cgroup may have such letters in its name.
    let exact = Cgroup::named(kernel, path);
    if Selection::is_pattern(path) && exact.is_err() {
        let failed = |error| Failure::new(code::USAGE, format!("--cgroup {path}: {error}"));
        let selection = Selection::new(kernel, path).map_err(failed)?;
        let accountant = Accountant::following(kernel, selection)?;
        if accountant.cgroups.is_empty() {
            let message = format!("--cgroup {path}: no memory cgroup matches; a * stands for one part of a path");
            return Err(Failure::new(code::GONE, message).into());
        }
        return Ok(accountant);
    }
    let cgroup = exact.map_err(|error| match error {
        e if e.is_gone() => {
            let fix = "give a path below the memory cgroup mount";
            Failure::new(code::GONE, format!("--cgroup {path}: not found ({e}); {fix}"))
        }
        e => Failure::new(code::OTHER, format!("--cgroup {path}: {e}")),
    })?;
    Ok(Accountant::new(kernel, Scope::Cgroups, vec![cgroup]))
}

/// A name for the record of a cgroup: the last part of its path, without wildcards.
fn cgroup_name(path: &str) -> String {
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name: String = last.chars().map(|letter| if "*?[]".contains(letter) { '_' } else { letter }).collect();
    if name.is_empty() { "cgroup".to_owned() } else { name }
}

/// Ticks until something ends it. Returns what did.
fn follow(recorder: &mut Recorder, signals: &Signals, duration: Option<Span>) -> anyhow::Result<&'static str> {
    let progress = Progress::new(std::io::stderr().is_terminal());
    let stop_s = duration.map_or(f64::INFINITY, |time| time.0.as_secs_f64());
    let mut last_s = recorder.now_s();
    loop {
        let due = recorder.next_tick_s(last_s).min(stop_s);
        if recorder.wait(signals, due)? && signals.next()?.is_some() {
            return Ok("interrupted");
        }
        let now_s = recorder.now_s();
        if now_s >= stop_s {
            return Ok(DURATION);
        }
        if recorder.is_due(due) {
            last_s = now_s;
            match recorder.tick()? {
                Some(usage) => progress.show(now_s, &usage),
                None => return Ok("ended"),
            }
        }
    }
}

/// A line on a terminal that says how it goes.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(terminal: bool) -> Self {
        Self(terminal.then(ProgressBar::new_spinner))
    }

    fn show(&self, now_s: f64, usage: &Usage) {
        let Some(bar) = &self.0 else { return };
        let size = |bytes: Option<f64>| bytes.map_or_else(|| "–".to_owned(), human_bytes);
        let set = usage.working_set(10).or(usage.working_set(1)).map(|set| set.bytes);
        bar.set_message(format!(
            "{now_s:.0} s   resident {}   working set {}   Ctrl-C ends the record",
            size(usage.rss_bytes.or(usage.cgroup_bytes)),
            size(set)
        ));
        bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
