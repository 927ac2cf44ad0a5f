//! `lowtide record`: record a process tree, a cgroup or the whole system that is already running.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use indicatif::ProgressBar;
use lowtide_kernel::account::{Accountant, Scope};
use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::Signals;
use lowtide_model::meta::End;
use lowtide_model::units::{Span, human_bytes};
use lowtide_model::usage::Usage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::run::Common;
use crate::failure::{Failure, code};
use crate::recorder::Recorder;
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

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct TargetArgs {
    /// A process, its children, and theirs
    #[arg(long, value_name = "N")]
    pid: Option<u32>,
    /// A memory cgroup: its path, or its name below the mount point
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
    let kernel = Kernel::default();
    let (name, scope, cgroup, note) = target(&kernel, &args.target)?;
    let options = args.common.options(&name, true)?;
    let journal = session::journal(&kernel)?;
    session::check_monitor(options.monitor, &kernel)?;
    let accountant = Accountant::new(&kernel, scope, cgroup.clone());
    let command = vec!["lowtide".to_owned(), "record".to_owned(), name];
    let meta = session::meta(&kernel, command, &options, cgroup.as_ref());
    let signals = Signals::block(&[Signal::INT.as_raw(), Signal::TERM.as_raw(), Signal::HUP.as_raw()])?;
    // After the signals: a thread that was started before would die of them, and the program with it.
    let served = args.listen.map(|address| serve_at(address, &args.target)).transpose()?;
    let mut recorder = Recorder::open(&kernel, &journal, options, accountant, meta)?;
    recorder.served = served;
    if let Some(note) = note {
        recorder.note(note);
    }
    let reason = follow(&mut recorder, &signals, args.duration)?;
    let end = End { reason: reason.to_owned(), runtime_s: recorder.now_s(), ..End::default() };
    let dir = recorder.close(end);
    drop(journal);
    session::finish(&dir?, args.common.json)?;
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

/// What to record: a name for it, whose accounts, its cgroup, and what to say about that.
fn target(kernel: &Kernel, args: &TargetArgs) -> anyhow::Result<(String, Scope, Option<Cgroup>, Option<String>)> {
    if let Some(pid) = args.pid {
        let stat = proc::stat(kernel, pid).map_err(|error| match error {
            e if e.is_gone() => Failure::new(code::GONE, format!("--pid {pid}: no such process; see `ps -e`")),
            e => Failure::new(code::OTHER, format!("--pid {pid}: {e}")),
        })?;
        let scope = Scope::Tree { roots: vec![pid], own_children: false };
        let tree = Accountant::new(kernel, scope.clone(), None).pids()?;
        // A cgroup that holds nothing else tells more than the sum over processes.
        let own = Cgroup::of(kernel, pid)?.filter(|cgroup| {
            cgroup.pids(kernel).is_ok_and(|pids| !pids.is_empty() && pids.iter().all(|pid| tree.contains(pid)))
        });
        let note = own.is_none().then(|| {
            "the process shares its cgroup with others: page cache and kernel memory of its own are not known"
                .to_owned()
        });
        return Ok((format!("{}-{pid}", stat.comm), scope, own, note));
    }
    if let Some(path) = &args.cgroup {
        let cgroup = Cgroup::named(kernel, path).map_err(|error| match error {
            e if e.is_gone() => Failure::new(
                code::GONE,
                format!("--cgroup {path}: not found ({e}); give a path below the memory cgroup mount"),
            ),
            e => Failure::new(code::OTHER, format!("--cgroup {path}: {e}")),
        })?;
        let name =
            cgroup.path.file_name().map_or_else(|| "cgroup".to_owned(), |name| name.to_string_lossy().into_owned());
        return Ok((name, Scope::Cgroup, Some(cgroup), None));
    }
    Ok(("system".to_owned(), Scope::System, None, None))
}

/// Ticks until something ends it. Returns what did.
fn follow(recorder: &mut Recorder, signals: &Signals, duration: Option<Span>) -> anyhow::Result<&'static str> {
    let progress = Progress::new(std::io::stderr().is_terminal());
    let stop_s = duration.map_or(f64::INFINITY, |time| time.0.as_secs_f64());
    let mut last_s = recorder.now_s();
    loop {
        let due = recorder.next_tick_s(last_s).min(stop_s);
        let time = Timespec::try_from(Duration::from_secs_f64((due - recorder.now_s()).max(0.0)))?;
        let mut fds = [PollFd::new(signals, PollFlags::IN)];
        if poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0) && signals.next()?.is_some() {
            return Ok("interrupted");
        }
        let now_s = recorder.now_s();
        if now_s >= stop_s {
            return Ok("duration");
        }
        if now_s >= due {
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
            size(usage.rss_bytes),
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
