//! `lowtide run -- CMD`: starts a program and records it until its process tree has ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use lowtide_engine::failure::{self, Failure, code};
use lowtide_engine::recorder::{RecordOptions, RecordSubject, Recorder};
use lowtide_engine::recording;
use lowtide_engine::scheduler::{self, LoopTask, Reason};
use lowtide_engine::source::{self, Map, SourceChoice, SourceSettings};
use lowtide_kernel::account::{Accountant, Scope};
use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Ended, Reaped, Signal as Received, Signals};
use lowtide_kernel::undo::{Journal, Lease};
use lowtide_model::WINDOWS_S;
use lowtide_model::budget;
use lowtide_model::meta::{DURATION, End};
use lowtide_model::units::{Share, Size, Span, float, human_bytes};
use lowtide_record::Record;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use crate::acts::{self, Acts, SchemeReach};
use crate::launch;
use crate::output::usage;
use crate::session;

/// How accesses are measured, and at what price: what all commands share that sample one target.
#[derive(Debug, clap::Args)]
pub struct MonitorArgs {
    /// How accesses are measured: the best source that works here, or one by name
    #[arg(long, default_value = "auto", value_parser = choice())]
    pub monitor: SourceChoice,
    /// Upper bound of the price of monitoring, as a share of one CPU
    #[arg(long, value_name = "SHARE", default_value = "1%")]
    pub max_overhead: Share,
}

impl MonitorArgs {
    /// The upper bound of the price, as a share of one CPU.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn cap(&self) -> Result<f64, Failure> {
        if !(0.001..=1.0).contains(&self.max_overhead.0) {
            return Err(usage(format!(
                "--max-overhead {}: out of range; give a share from 0.1% to 100%",
                self.max_overhead
            )));
        }
        Ok(self.max_overhead.0)
    }
}

/// Options that `run` and `record` share.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// Folder for the record (default: lowtide-NAME-TIME in the current folder)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How accesses are measured.
    #[command(flatten)]
    pub by: MonitorArgs,
    /// Time between two ticks
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub interval: Span,
    /// Addresses that DAMON's map works on
    #[arg(long, value_enum, default_value = "auto", hide_possible_values = true, value_name = "auto|vaddr|paddr")]
    pub map: Map,
    /// Let the kernel tune the map's intervals until it observes this share of the possible accesses (Linux 6.15)
    #[arg(long, value_name = "SHARE")]
    pub map_goal: Option<Share>,
    /// Make generations only for these windows of the working set, of 1s 5s 10s 30s 60s 120s (mglru)
    #[arg(long, value_name = "TIME,...", value_delimiter = ',')]
    pub windows: Vec<Span>,
    /// Print the summary as JSON on stdout instead of as text on stderr
    #[arg(long)]
    pub json: bool,
}

/// Names of sources, from their registry.
fn choice() -> impl TypedValueParser<Value = SourceChoice> {
    PossibleValuesParser::new(SourceChoice::names()).map(|name| name.parse().unwrap_or_default())
}

impl Common {
    /// The recorder's options.
    ///
    /// # Errors
    /// If a value makes no sense.
    pub fn options(&self, name: &str, attached: bool) -> anyhow::Result<RecordOptions> {
        let interval_s = self.interval.0.as_secs_f64();
        if !(0.05..=3600.0).contains(&interval_s) {
            let message = format!("--interval {}: out of range; give a time from 50ms to 1h", self.interval);
            anyhow::bail!(usage(message));
        }
        let max_overhead = self.by.cap()?;
        if let Some(goal) = self.map_goal.filter(|goal| !(0.0001..=1.0).contains(&goal.0)) {
            let message = format!("--map-goal {goal}: out of range; give a share from 0.01% to 100%, for example 4%");
            anyhow::bail!(usage(message));
        }
        let seconds = |window: &Span| {
            let known = WINDOWS_S.into_iter().find(|known| window.0 == Duration::from_secs(u64::from(*known)));
            known.ok_or_else(|| {
                usage(format!("--windows {window}: not a window; there are 1s, 5s, 10s, 30s, 60s and 120s"))
            })
        };
        let windows_s = self.windows.iter().map(seconds).collect::<Result<Vec<u32>, Failure>>()?;
        let given = |dir: &PathBuf| if attached { dir.clone() } else { session::folder(dir) };
        let out = Some(self.out.as_ref().map_or_else(|| session::default_folder(name), given));
        Ok(RecordOptions {
            out,
            source: SourceSettings {
                choice: self.by.monitor,
                map: self.map,
                map_goal: self.map_goal.map(|share| share.0),
                windows_s,
                attached,
                ..SourceSettings::default()
            },
            interval_s,
            max_overhead,
            plan: None,
        })
    }
}

/// Run a program and record what memory it really uses
#[derive(Debug, clap::Args)]
#[command(override_usage = "lowtide run [OPTIONS] -- <CMD>...")]
pub struct RunArgs {
    #[command(flatten)]
    common: Common,
    /// Limit the program's memory (needs a cgroup of its own)
    #[arg(long, value_name = "SIZE")]
    limit: Option<Size>,
    /// End the program after this time (SIGTERM, and SIGKILL ten seconds later)
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Page none of it out to swap (needs a cgroup of its own)
    #[arg(long)]
    no_swap: bool,
    /// Make the program's cgroup below this one, which must hand the memory controller down (default: near lowtide's own)
    #[arg(long, value_name = "CGROUP")]
    below: Option<String>,
    /// Apply these operation schemes to its memory: a file, or one that is built in; see `lowtide schemes check`
    #[arg(long, value_name = "FILE|NAME")]
    scheme: Vec<String>,
    #[command(flatten)]
    acts: Acts,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

/// A program under record.
struct Run {
    recorder: Recorder,
    pid: u32,
    ended: Option<Ended>,
    max_rss_bytes: u64,
    stop: bool,
    /// Signals came: a child may have ended.
    signalled: bool,
    /// When it is to end, seconds since the start of the record, and with which signal.
    ends: Option<(f64, Signal)>,
    /// It was sent that signal.
    is_ending: bool,
    started_s: f64,
    /// It could not be recorded to its end.
    failed: bool,
}

/// Time from SIGTERM to SIGKILL, seconds.
const GRACE_S: f64 = 10.0;

/// Runs the command; returns the program's exit code.
///
/// # Errors
/// If the record cannot be written or the program cannot be started.
pub fn run(args: &RunArgs) -> anyhow::Result<i32> {
    let mut options = args.common.options(&session::program_name(&args.command), false)?;
    let acts = Acts { schemes: acts::load_all(&args.scheme)?, ..args.acts.clone() };
    let kernel = Kernel::default();
    // Before anything is made that has to be given back.
    let wanted: Vec<i32> = launch::PASSED_ON.into_iter().chain([Signal::CHILD]).map(Signal::as_raw).collect();
    let signals = Signals::block(&wanted)?;
    let journal = recording::journal(&kernel)?;
    source::check(options.source.choice, &kernel)?;
    let (own, missing) = match own_cgroup(&kernel, &journal, args.below.as_deref()) {
        Ok(own) => (Some(own), None),
        Err(why) => match &args.below {
            Some(below) => anyhow::bail!(Failure::new(code::IMPOSSIBLE, format!("--below {below}: {why}"))),
            None => (None, Some(why)),
        },
    };
    let cgroup = own.as_ref().map(|(cgroup, _)| cgroup);
    set_limits(args, &kernel, cgroup)?;
    let swap =
        acts.prepare(&mut options, &kernel, &journal, SchemeReach { system: false, cgroup: cgroup.is_some() })?;
    let scope = Scope::Tree { roots: vec![proc::stat(&kernel, std::process::id())?.id], own_children: true };
    let accountant = Accountant::new(&kernel, scope, cgroup.into_iter().cloned().collect());
    let mut meta = recording::meta(&kernel, args.command.clone(), &options, cgroup.map_or(&[], std::slice::from_ref));
    meta.limit_bytes = args.limit.map(|size| size.0);
    if args.no_swap {
        meta.host.swap_bytes = 0;
    }
    let mut recorder = Recorder::open(&kernel, &journal, options, RecordSubject { accountant, meta })?;
    session::explain(&mut recorder);
    if let Some(why) = missing {
        recorder.note(format!(
            "no cgroup of its own: {why}; page cache, kernel memory and processes that come and go between two ticks are not measured"
        ));
    }
    let procs = cgroup.map(|cgroup| kernel.path(cgroup.procs_file()));
    let (code, closed) = Run::start(recorder, args, procs.as_deref(), &signals)?.follow(&kernel, &signals)?;
    drop(swap);
    drop(own);
    drop(journal);
    if let (Some(limit), Ok(Some(dir))) = (args.limit, &closed)
        && Record::open(dir).is_ok_and(|record| budget::was_killed(&record.usage()))
    {
        let limit = human_bytes(float(limit.0));
        lowtide_kernel::message!(
            "lowtide: the kernel killed a process of the program at its limit of {limit}; give it more"
        );
    }
    // Scripts rely on the program's own code, whether or not its record could be finished.
    if let Err(error) = closed.and_then(|dir| dir.map_or(Ok(()), |dir| session::finish(&dir, args.common.json))) {
        failure::report(&error);
    }
    Ok(code)
}

/// A cgroup for the program, or why there is none.
fn own_cgroup(kernel: &Kernel, journal: &Journal, below: Option<&str>) -> Result<(Cgroup, Lease), String> {
    let name = format!("lowtide-{}", std::process::id());
    let made = match below {
        Some(parent) => {
            Cgroup::named(kernel, parent).and_then(|parent| parent.create_below(kernel, journal, &name)).map(Some)
        }
        None => Cgroup::create_own(kernel, journal, &name),
    };
    made.map_err(|error| error.to_string())?.ok_or_else(|| "no memory cgroup is mounted".to_owned())
}

/// Sets what `--limit` and `--no-swap` ask for.
fn set_limits(args: &RunArgs, kernel: &Kernel, cgroup: Option<&Cgroup>) -> anyhow::Result<()> {
    let needed = |option: &str, plain: &str| {
        let message = format!("{option}: no memory cgroup can be made here; run as root or without {plain}");
        cgroup.ok_or_else(|| Failure::new(code::IMPOSSIBLE, message))
    };
    if let Some(size) = args.limit {
        needed(&format!("--limit {size}"), "--limit")?.set_limit(kernel, size.0)?;
    }
    if args.no_swap {
        needed("--no-swap", "--no-swap")?.forbid_swap(kernel)?;
    }
    Ok(())
}

impl LoopTask for Run {
    fn now_s(&self) -> f64 {
        self.recorder.now_s()
    }

    fn next_due_s(&self) -> f64 {
        // A program that is not recorded any more is waited for: signals say when it ends.
        let due_s = if self.failed { self.now_s() + 60.0 } else { self.recorder.next_due_s() };
        self.ends.map_or(due_s, |(at_s, _)| due_s.min(at_s))
    }

    fn wakers(&self) -> Vec<PollFd<'_>> {
        self.recorder.wakers()
    }

    fn woken(&mut self, events: &[PollFlags]) {
        self.recorder.woken(events);
    }

    /// Passes signals on. The terminal sends its signals to the foreground process group, so the program has them already.
    fn signal(&mut self, signal: &Received) -> anyhow::Result<Option<Reason>> {
        self.signalled = true;
        let ends = [Signal::INT, Signal::TERM, Signal::HUP];
        if self.ended.is_some() && ends.iter().any(|end| end.as_raw() == signal.number) {
            // Only what the program left behind still runs; that is not ours to end.
            self.stop = true;
        } else if signal.number != Signal::CHILD.as_raw() && signal.from_process && self.ended.is_none() {
            self.pass_on(signal.number);
        }
        Ok(None)
    }

    /// Ends once nothing of the tree is left.
    fn turn(&mut self, _: &Signals) -> anyhow::Result<Option<Reason>> {
        if std::mem::take(&mut self.signalled) && !self.reap()? {
            return Ok(Some(if self.is_ending { DURATION } else { "ended" }));
        }
        if self.stop {
            return Ok(Some("interrupted"));
        }
        if self.end_in_time(self.now_s()) {
            return Ok(Some(DURATION));
        }
        if self.failed {
            return Ok(None);
        }
        // No process now does not mean the end: one may be between fork and the cgroup.
        if let Err(error) = self.recorder.turn() {
            // The program goes on, in a cgroup that is given back once it has ended.
            failure::report(&error.context("the program is not recorded any more"));
            self.failed = true;
        }
        Ok(None)
    }
}

impl Run {
    /// Starts the program; where that fails, its empty record is removed.
    fn start(recorder: Recorder, args: &RunArgs, procs: Option<&Path>, signals: &Signals) -> anyhow::Result<Self> {
        let started_s = recorder.now_s();
        let ends = args.duration.map(|time| (started_s + time.0.as_secs_f64(), Signal::TERM));
        match launch::start(&args.command, procs, signals) {
            Ok(pid) => Ok(Self {
                recorder,
                pid,
                ended: None,
                max_rss_bytes: 0,
                stop: false,
                signalled: false,
                ends,
                is_ending: false,
                started_s,
                failed: false,
            }),
            Err(error) => {
                recording::discard(recorder);
                Err(error)
            }
        }
    }

    /// Records until nothing of the program's tree is left. Its exit code, and the folder of the closed record.
    fn follow(mut self, kernel: &Kernel, signals: &Signals) -> anyhow::Result<(i32, anyhow::Result<Option<PathBuf>>)> {
        let reason = scheduler::run(kernel, signals, &mut self)?;
        let code = self.ended.map(|ended| ended.code());
        let end = End {
            reason: if self.failed { "failed" } else { reason }.to_owned(),
            exit_code: code,
            runtime_s: self.now_s() - self.started_s,
            app_max_rss_bytes: (self.max_rss_bytes > 0).then_some(self.max_rss_bytes),
            ..End::default()
        };
        Ok((code.unwrap_or(0), self.recorder.close(end)))
    }

    /// Ends the program if it is time to. Whether recording ends: what the program left behind is not ours to end.
    fn end_in_time(&mut self, now_s: f64) -> bool {
        let Some((at, signal)) = self.ends.filter(|(at, _)| now_s >= *at) else { return false };
        if self.ended.is_some() {
            return true;
        }
        self.is_ending = true;
        self.pass_on(signal.as_raw());
        // One that does not die of this sleeps in the kernel: it is waited for, as for any that is killed.
        self.ends = Some((at + GRACE_S, Signal::KILL));
        false
    }

    /// The program has not been collected yet, so its pid is still its own.
    fn pass_on(&self, number: i32) {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        let signal = Signal::from_named_raw(number);
        if let (Some(pid), Some(signal)) = (pid, signal) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Collects what ended. False when nothing of the tree is left.
    fn reap(&mut self) -> anyhow::Result<bool> {
        loop {
            match sys::reap()? {
                Reaped::None => return Ok(false),
                Reaped::Running => return Ok(true),
                Reaped::Ended(ended) => {
                    self.max_rss_bytes = self.max_rss_bytes.max(ended.max_rss_bytes);
                    if ended.pid == self.pid {
                        self.ended = Some(ended);
                    }
                }
            }
        }
    }
}
