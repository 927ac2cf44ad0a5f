//! `lowtide record`: records a process tree, a cgroup or the system that is already running.

use std::net::SocketAddr;

use indicatif::ProgressBar;
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::metrics::{self, Figures, Shared};
use lowtide_engine::recorder::{RecordSubject, Recorder, Tick};
use lowtide_engine::recording;
use lowtide_engine::scheduler::{self, LoopTask, Reason};
use lowtide_engine::source;
use lowtide_kernel::account::{Accountant, Scope};
use lowtide_kernel::cgroup::{Cgroup, Selection};
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{Signal as Received, Signals};
use lowtide_model::meta::{DURATION, End};
use lowtide_model::units::{Span, human_bytes};
use lowtide_model::usage::Usage;
use rustix::event::{PollFd, PollFlags};

use super::run::Common;
use crate::acts::{Acts, SchemeReach};
use crate::output::usage;
use crate::session;

/// Record a running process, a cgroup or the system
#[derive(Debug, clap::Args)]
pub struct RecordArgs {
    #[command(flatten)]
    attach: AttachArgs,
    /// Serve the newest readings as OpenMetrics at this address, under /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
}

/// What is recorded, how, and for how long; `record` and `schemes apply` share it.
#[derive(Debug, clap::Args)]
pub struct AttachArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Stop after this time (default: until Ctrl-C, or until the target is gone)
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    #[command(flatten)]
    common: Common,
}

/// What is running already.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct TargetArgs {
    /// A process and all its descendants
    #[arg(long, value_name = "N")]
    pid: Option<u32>,
    /// A memory cgroup: its path, or its name below the mount point; with * ? [] all that match, as they come and go
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Everything on this machine
    #[arg(long)]
    system: bool,
}

impl TargetArgs {
    /// The target that a bare word means: a number is a process, a path a cgroup. Paths begin with the mount point of
    /// cgroups, or are below it.
    ///
    /// # Errors
    /// If it is neither.
    pub(super) fn of_word(word: &str) -> Result<Self, Failure> {
        let none = Self { pid: None, cgroup: None, system: false };
        match (word.parse(), word.starts_with('/')) {
            (Ok(pid), _) => Ok(Self { pid: Some(pid), ..none }),
            (Err(_), true) => Ok(Self { cgroup: Some(word.to_owned()), ..none }),
            _ => Err(usage(format!(
                "{word}: neither a pid nor the path of a cgroup, which begins with /; give --pid, --cgroup or --system"
            ))),
        }
    }

    /// The target in words: `pid 17`, `cgroup /system.slice`, `system`.
    pub(super) fn words(&self) -> String {
        match (self.pid, &self.cgroup) {
            (Some(pid), _) => format!("pid {pid}"),
            (None, Some(path)) => format!("cgroup {path}"),
            (None, None) => "system".to_owned(),
        }
    }
}

/// Records until the time is over, the target is gone, or Ctrl-C.
///
/// # Errors
/// If there is no such target, or the record cannot be written.
pub fn run(args: &RecordArgs) -> anyhow::Result<i32> {
    record(&args.attach, args.listen, None)
}

/// Records, and carries out schemes meanwhile if there are any.
///
/// # Errors
/// As [`run`]; and if a scheme cannot be carried out here.
pub(super) fn record(args: &AttachArgs, listen: Option<SocketAddr>, acts: Option<&Acts>) -> anyhow::Result<i32> {
    let kernel = Kernel::default();
    let (name, accountant, note) = target(&kernel, &args.target)?;
    let mut options = args.common.options(&name, true)?;
    // Before anything is made that has to be given back.
    let signals = session::ending_signals()?;
    let journal = recording::journal(&kernel)?;
    source::check(options.source.choice, &kernel)?;
    let reach = SchemeReach { system: args.target.system, cgroup: accountant.has_own_cgroup() };
    let swap = acts.map(|acts| acts.prepare(&mut options, &kernel, &journal, reach)).transpose()?;
    let verb = if acts.is_some() { "schemes apply" } else { "record" };
    let command = vec!["lowtide".to_owned(), verb.to_owned(), name];
    let meta = recording::meta(&kernel, command, &options, &accountant.cgroups);
    // After the signals: a thread that was started before would die of them, and the program with it.
    let served = listen.map(|address| serve_at(address, &args.target)).transpose()?;
    let mut recorder = Recorder::open(&kernel, &journal, options, RecordSubject { accountant, meta })?;
    session::explain(&mut recorder);
    if let Some(served) = served {
        recorder.add_sink(Box::new(served));
    }
    if let Some(note) = note {
        recorder.note(note);
    }
    let mut running = Running::new(recorder, args.duration);
    let reason = scheduler::run(&kernel, &signals, &mut running)?;
    let end = End { reason: reason.to_owned(), runtime_s: running.now_s(), ..End::default() };
    running.bar.finish_and_clear();
    let dir = running.recorder.close(end);
    drop(swap);
    drop(journal);
    if let Some(dir) = dir? {
        session::finish(&dir, args.common.json)?;
    }
    Ok(0)
}

/// Serves the newest readings of the target.
fn serve_at(address: SocketAddr, target: &TargetArgs) -> anyhow::Result<Shared> {
    let label = match (target.pid, &target.cgroup) {
        (Some(pid), _) => ("pid".to_owned(), pid.to_string()),
        (None, Some(path)) => ("cgroup".to_owned(), path.clone()),
        (None, None) => ("system".to_owned(), "all".to_owned()),
    };
    let shared = Shared::default();
    shared.with(|figures| *figures = Figures::of(label));
    let bound = metrics::start(address, shared.clone())?;
    lowtide_kernel::message!("lowtide: metrics at http://{bound}/metrics");
    Ok(shared)
}

/// What to record: a name for it, its accounts, and a note on them.
pub(super) fn target(kernel: &Kernel, args: &TargetArgs) -> anyhow::Result<(String, Accountant, Option<String>)> {
    if let Some(pid) = args.pid {
        let stat = proc::stat(kernel, pid).map_err(|error| match error {
            e if e.is_gone() => Failure::new(code::GONE, format!("--pid {pid}: no such process; see `ps -e`")),
            e => Failure::new(code::OTHER, format!("--pid {pid}: {e}")),
        })?;
        let scope = Scope::Tree { roots: vec![stat.id], own_children: false };
        let tree = Accountant::new(kernel, scope.clone(), Vec::new()).pids()?;
        // A cgroup that holds nothing else is more complete than the sum over processes.
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
        let failed = |error| usage(format!("--cgroup {path}: {error}"));
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

/// A record of something that was running before, with a line on a terminal that shows its newest readings.
struct Running {
    recorder: Recorder,
    bar: ProgressBar,
    stop_s: f64,
}

impl Running {
    fn new(recorder: Recorder, duration: Option<Span>) -> Self {
        let stop_s = duration.map_or(f64::INFINITY, |time| time.0.as_secs_f64());
        Self { recorder, bar: ProgressBar::new_spinner(), stop_s }
    }

    fn show(&self, now_s: f64, usage: &Usage) {
        let size = |bytes: Option<f64>| bytes.map_or_else(|| "–".to_owned(), human_bytes);
        let set = usage.working_set(10).or(usage.working_set(1)).map(|set| set.bytes);
        self.bar.set_message(format!(
            "{now_s:.0} s   resident {}   working set {}   Ctrl-C ends the record",
            size(usage.rss_bytes.or(usage.cgroup_bytes)),
            size(set)
        ));
        self.bar.tick();
    }
}

impl LoopTask for Running {
    fn now_s(&self) -> f64 {
        self.recorder.now_s()
    }

    fn next_due_s(&self) -> f64 {
        self.recorder.next_due_s().min(self.stop_s)
    }

    fn wakers(&self) -> Vec<PollFd<'_>> {
        self.recorder.wakers()
    }

    fn woken(&mut self, events: &[PollFlags]) {
        self.recorder.woken(events);
    }

    fn signal(&mut self, _: &Received) -> anyhow::Result<Option<Reason>> {
        Ok(Some("interrupted"))
    }

    fn turn(&mut self, _: &Signals) -> anyhow::Result<Option<Reason>> {
        let now_s = self.now_s();
        if now_s >= self.stop_s {
            return Ok(Some(DURATION));
        }
        match self.recorder.turn()? {
            Tick::Row(usage) => self.show(now_s, &usage),
            Tick::Gone => return Ok(Some("ended")),
            Tick::NotDue => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use lowtide_kernel::clock::TestClock;
    use lowtide_kernel::undo::Journal;
    use lowtide_model::meta::Meta;
    use rustix::process::Signal;

    use super::*;
    use lowtide_engine::recorder::RecordOptions;
    use lowtide_engine::source::{SourceChoice, SourceSettings};
    use lowtide_record::Record;

    const MIB: u64 = 1 << 20;

    /// A kernel that is a tree of files, with a cgroup of one process, and a clock that the test moves.
    struct Machine {
        dir: tempfile::TempDir,
        clock: TestClock,
    }

    impl Machine {
        fn new() -> Self {
            let machine = Self { dir: tempfile::tempdir().unwrap(), clock: TestClock::default() };
            machine.put("proc/self/mountinfo", "30 29 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
            machine.put("proc/meminfo", "MemTotal: 4000000 kB\nMemFree: 1000000 kB\nMemAvailable: 1500000 kB\n");
            machine.put("proc/stat", "cpu  100 0 100 1000 0 0 0 0 0 0\n");
            machine.put("proc/7/stat", "7 (job) S 1 7 7 0 -1 0 10 0 2 0 3 4 0 0 20 0 1 0 5 0 0\n");
            machine.put("cg/cgroup.controllers", "memory\n");
            machine.put("cg/job/cgroup.procs", "7\n");
            machine.put("cg/job/cgroup.events", "populated 1\n");
            machine.holds(100 * MIB);
            machine
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.dir.path().join("root").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn holds(&self, bytes: u64) {
            let kib = bytes / 1024;
            self.put(
                "proc/7/status",
                &format!("Name:\tjob\nVmHWM:\t{kib} kB\nVmRSS:\t{kib} kB\nRssAnon:\t{kib} kB\nThreads:\t1\n"),
            );
            self.put("cg/job/memory.current", &format!("{bytes}\n"));
            self.put(
                "cg/job/memory.stat",
                &format!("anon {bytes}\nfile 0\nfile_mapped 0\nshmem 0\npgfault 10\npgmajfault 2\n"),
            );
        }

        fn kernel(&self) -> Kernel {
            Kernel::at(self.dir.path().join("root")).with_clock(&self.clock)
        }

        fn record(&self) -> Running {
            let kernel = self.kernel();
            let journal = Journal::open(kernel.clone(), &self.dir.path().join("run")).unwrap();
            let cgroup = Cgroup::named(&kernel, "/job").unwrap();
            let options = RecordOptions {
                out: Some(self.dir.path().join("record")),
                source: SourceSettings { choice: SourceChoice::None, attached: true, ..SourceSettings::default() },
                interval_s: 1.0,
                // Work in seconds of a clock that stands still has no price.
                max_overhead: 1000.0,
                plan: None,
            };
            let meta = Meta { schema: lowtide_model::meta::SCHEMA, interval_s: 1.0, attached: true, ..Meta::default() };
            let accountant = Accountant::new(&kernel, Scope::Cgroups, vec![cgroup]);
            Running::new(Recorder::open(&kernel, &journal, options, RecordSubject { accountant, meta }).unwrap(), None)
        }

        /// Records until then.
        fn follow(&self, running: &mut Running, until_s: f64) -> Reason {
            running.stop_s = until_s;
            scheduler::run(&self.kernel(), &signals(), running).unwrap()
        }

        fn rows(&self) -> Vec<Usage> {
            Record::open(&self.dir.path().join("record")).unwrap().usage()
        }
    }

    fn signals() -> Signals {
        Signals::block(&[Signal::HUP.as_raw()]).unwrap()
    }

    #[test]
    fn ten_minutes_are_a_row_a_second_and_take_no_time() {
        let machine = Machine::new();
        let mut running = machine.record();
        assert_eq!(machine.follow(&mut running, 300.0), DURATION);
        machine.holds(700 * MIB);
        assert_eq!(machine.follow(&mut running, 600.0), DURATION);
        running.recorder.close(End { runtime_s: 600.0, ..End::default() }).unwrap();
        let rows = machine.rows();
        assert!((598..=604).contains(&rows.len()), "{} rows", rows.len());
        let times: Vec<f64> = rows.iter().filter_map(|row| row.t_s).collect();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        // A second and a part of one where the first call ended.
        assert_eq!(gaps.filter(|gap| *gap <= 0.0 || *gap >= 2.0).count(), 0);
        let held =
            |at: f64| rows.iter().rfind(|row| row.t_s.is_some_and(|t_s| t_s < at)).and_then(|row| row.anon_bytes);
        assert_eq!((held(299.0), held(599.0)), (Some(100e6 * 1.048576), Some(700e6 * 1.048576)));
    }

    #[test]
    fn the_time_of_a_suspend_is_a_gap() {
        let machine = Machine::new();
        let mut running = machine.record();
        machine.follow(&mut running, 10.0);
        machine.clock.advance(Duration::from_secs(3600));
        machine.follow(&mut running, 3620.0);
        running.recorder.close(End::default()).unwrap();
        let times: Vec<f64> = machine.rows().iter().filter_map(|row| row.t_s).collect();
        let gaps = times.windows(2).filter(|pair| pair[1] - pair[0] > 5.0).count();
        assert_eq!(gaps, 1, "{times:?}");
    }

    #[test]
    fn a_target_that_goes_ends_the_record() {
        let machine = Machine::new();
        let mut running = machine.record();
        machine.follow(&mut running, 20.0);
        fs::remove_dir_all(machine.dir.path().join("root/cg/job")).unwrap();
        fs::remove_dir_all(machine.dir.path().join("root/proc/7")).unwrap();
        assert_eq!(machine.follow(&mut running, 60.0), "ended");
        running.recorder.close(End::default()).unwrap();
        assert!(machine.rows().len() > 18);
    }
}
