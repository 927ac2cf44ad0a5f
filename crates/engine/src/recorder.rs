//! The tick: accounts, monitor and governor become rows of a record. `run` and `record` differ only in their target.

mod act;
mod looks;
mod slow;

use std::path::PathBuf;
use std::time::Duration;

use lowtide_kernel::account::{Accountant, Accounts, Depth};
use lowtide_kernel::monitor::Target;
use lowtide_kernel::pressure::{Trigger, Woken};
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Signals};
use lowtide_kernel::undo::Journal;
use lowtide_model::meta::{End, Meta};
use lowtide_model::usage::Usage;
use lowtide_policy::governor::Governor;
use rustix::event::{PollFd, PollFlags};

use self::slow::Slow;
use crate::monitors::{Map, Monitor, Wish};
use crate::schemes::acting::{Acting, SchemePlan};
use crate::serve::Shared;
use lowtide_record::{RegionRow, Writer};

/// Rows are flushed at least so often, seconds: what a killed recorder loses.
const FLUSH_S: f64 = 4.5;
/// The governor looks at the costs so often, seconds.
const GOVERN_S: f64 = 5.0;
/// Proportional set sizes are read again after so long, seconds.
const PSS_EVERY_S: f64 = 10.0;
/// Going through processes and cgroups at a tick is not counted as slow work where it costs no more than this share of the cap.
const PROCESSES_SHARE: f64 = 0.1;
/// They are gone through at least so often, seconds.
const SELDOM_S: f64 = 10.0;
/// Memory stalls worth a row of their own: so long within so long.
const STALL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How to record.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the record.
    pub out: PathBuf,
    /// Which monitor.
    pub monitor: Wish,
    /// Addresses that the map works on.
    pub map: Map,
    /// Share of the possible accesses that the kernel shall tune the map's intervals for.
    pub map_goal: Option<f64>,
    /// Windows that the generations are made for; all if there are none.
    pub windows_s: Vec<u32>,
    /// Seconds between two ticks.
    pub interval_s: f64,
    /// Upper bound of the price, as a share of one CPU.
    pub max_overhead: f64,
    /// The target was running before.
    pub attached: bool,
    /// What is done to the target meanwhile.
    pub plan: Option<SchemePlan>,
}

/// A record being made.
pub struct Recorder {
    kernel: Kernel,
    journal: Journal,
    options: Options,
    /// The accounts.
    pub accountant: Accountant,
    /// What is known of the record as a whole.
    pub meta: Meta,
    writer: Writer,
    monitor: Monitor,
    monitor_taken: bool,
    governor: Governor,
    epoch_ns: u64,
    cpu_at_start_s: f64,
    kdamond_s: f64,
    slow_spent_s: f64,
    told_cost_s: f64,
    cohort: Slow,
    cache: Slow,
    map: Slow,
    pss: Slow,
    processes: Slow,
    charges: Slow,
    /// Ticks, and those at which the processes were not gone through.
    ticks: (u64, u64),
    /// Wakes when tasks of the target stall on memory; counts, and whether it has since the last tick.
    trigger: Option<Trigger>,
    /// What is done to the target meanwhile, once there is a monitor to go by.
    acting: Option<Acting>,
    /// CPU seconds of acting, once it has ended.
    acted_s: f64,
    /// CPU seconds that the map's kernel thread spent on schemes, as far as that can be told.
    kernel_acted_s: f64,
    /// When huge pages were last looked into.
    wasted_s: f64,
    stalls: u64,
    stalled: bool,
    governed_s: f64,
    flushed_s: f64,
    /// Where the newest figures are served from, if they are.
    pub served: Option<Shared>,
    /// The disk is full: recording has stopped.
    pub full: bool,
    target: Target,
}

impl Recorder {
    /// Opens the record and takes the baseline: the accounts before anything was started.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn open(
        kernel: &Kernel,
        journal: &Journal,
        options: Options,
        accountant: Accountant,
        mut meta: Meta,
    ) -> anyhow::Result<Self> {
        let epoch_ns = kernel.monotonic_ns();
        #[expect(clippy::cast_precision_loss, reason = "an uptime in nanoseconds is below 2^53 for 104 days; then µs")]
        let started = epoch_ns as f64 / 1e9;
        meta.started_monotonic_s = started;
        meta.started_unix_s = jiff::Timestamp::now().as_duration().as_secs_f64();
        let writer = Writer::create(&options.out, &meta)?;
        let mut recorder = Self {
            kernel: kernel.clone(),
            journal: journal.clone(),
            governor: Governor::new(options.max_overhead, 1.0),
            options,
            accountant,
            meta,
            writer,
            monitor: Monitor::None,
            monitor_taken: false,
            epoch_ns,
            cpu_at_start_s: sys::own_cpu_s(),
            kdamond_s: 0.0,
            slow_spent_s: 0.0,
            told_cost_s: 0.0,
            cohort: Slow::default(),
            cache: Slow::default(),
            map: Slow::default(),
            pss: Slow::default(),
            processes: Slow::default(),
            charges: Slow::default(),
            ticks: (0, 0),
            trigger: None,
            acting: None,
            acted_s: 0.0,
            kernel_acted_s: 0.0,
            wasted_s: 0.0,
            stalls: 0,
            stalled: false,
            governed_s: 0.0,
            flushed_s: 0.0,
            served: None,
            full: false,
            target: Target::default(),
        };
        let pressure = recorder.accountant.pressure_file("memory");
        // Where there is none, the figure is null; why there is no pressure is in the notes.
        recorder.trigger = Trigger::open(kernel, &pressure, STALL.0, STALL.1).ok();
        let Accounts { mut usage, .. } = recorder.accountant.read(Depth::Processes)?;
        usage.t_s = Some(0.0);
        recorder.writer.usage(usage);
        Ok(recorder)
    }

    /// Seconds since the start of the record.
    #[must_use]
    pub fn now_s(&self) -> f64 {
        self.kernel.seconds_since(self.epoch_ns)
    }

    /// When the next tick is due: an interval after the last, just after the cohort was looked at.
    #[must_use]
    pub fn next_tick_s(&self, last_s: f64) -> f64 {
        // Programs are most in motion when they begin, and many end soon.
        if last_s < 0.3 {
            return self.options.interval_s.min(if last_s < 0.1 { 0.1 } else { 0.3 }).max(last_s + 0.01);
        }
        let next = last_s + self.options.interval_s;
        let (Monitor::Damon(damon), true) = (&self.monitor, self.options.interval_s >= 0.5) else { return next };
        let sampling = self.governor.plan().cohort_sampling_s;
        let Some(look) = damon.last_look_s() else { return next };
        let looks = ((next - 0.05 - look) / sampling).round().max(1.0);
        // A kdamond sleeps a little longer than it is told.
        let aligned = look + looks * sampling + 0.04;
        if (aligned - next).abs() < 0.6 * sampling { aligned } else { next }
    }

    /// CPU seconds spent on the record so far.
    fn spent_s(&self) -> f64 {
        let acting_s = self.acting.as_ref().map_or(self.acted_s, |acting| acting.cpu_s);
        sys::own_cpu_s() - self.cpu_at_start_s + self.kdamond_s - acting_s
    }

    /// Whether the price allows slow work that cost `slow.cost_s` the last time.
    fn allows(&self, slow: &Slow, now_s: f64) -> bool {
        slow.done_s.is_none() || self.governor.may_spend(now_s, self.slow_spent_s, slow.cost_s)
    }

    /// The same for work that can wait: what the cohort needs to follow the target is kept back.
    fn allows_later(&self, slow: &Slow, now_s: f64) -> bool {
        let kept_back = self.cohort.cost_s + self.told_cost_s;
        slow.done_s.is_none() || self.governor.may_spend(now_s, self.slow_spent_s, slow.cost_s + kept_back)
    }

    /// Does slow work and notes what it cost.
    fn pay<T>(
        &mut self,
        slow: fn(&mut Self) -> &mut Slow,
        now_s: f64,
        size: f64,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = sys::thread_cpu_s();
        let result = work(self);
        let cost_s = sys::thread_cpu_s() - before;
        self.slow_spent_s += cost_s;
        *slow(self) = Slow { done_s: Some(now_s), cost_s, size };
        result
    }

    /// Reads the accounts, as deep as the price allows.
    fn accounts(&mut self, now_s: f64) -> anyhow::Result<Accounts> {
        let free_s = PROCESSES_SHARE * self.options.max_overhead * self.options.interval_s;
        // Too seldom, and new processes are not seen at all.
        let may = |slow: &Slow| {
            slow.cost_s <= free_s || slow.is_due(now_s, SELDOM_S, slow.size) || self.allows_later(slow, now_s)
        };
        // The charges of a single cgroup are read in any case: only what comes on top can be saved.
        let single = self.accountant.cgroups.len() == 1;
        let charges_s = if single { self.charges.cost_s } else { 0.0 };
        let processes = Slow { cost_s: (self.processes.cost_s - charges_s).max(0.0), ..self.processes };
        let pss = self.pss.is_due(now_s, PSS_EVERY_S, self.pss.size) && now_s > 0.9;
        let depth = if pss && self.allows_later(&self.pss, now_s) {
            Depth::Pss
        } else if !self.accountant.has_charges() || may(&processes) {
            Depth::Processes
        } else if single || may(&self.charges) {
            Depth::Charges
        } else {
            Depth::System
        };
        let before = sys::thread_cpu_s();
        let accounts = self.accountant.read(depth)?;
        let slow = Slow { done_s: Some(now_s), cost_s: sys::thread_cpu_s() - before, size: 0.0 };
        self.ticks.0 += 1;
        self.ticks.1 += u64::from(depth < Depth::Processes);
        match depth {
            Depth::System => {}
            Depth::Charges => self.charges = slow,
            Depth::Processes => self.processes = slow,
            Depth::Pss => self.pss = slow,
        }
        if depth == Depth::Pss || (depth > Depth::System && slow.cost_s > free_s) {
            self.slow_spent_s += slow.cost_s;
        }
        Ok(accounts)
    }

    /// Waits until `due_s`, a signal, or a stall of the target. True if there is a signal.
    ///
    /// # Errors
    /// If the signals cannot be waited for.
    pub fn wait(&mut self, signals: &Signals, due_s: f64) -> anyhow::Result<bool> {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        fds.extend(self.trigger.as_ref().map(|trigger| PollFd::new(trigger, Trigger::EVENTS)));
        self.kernel.wait(&mut fds, due_s - self.now_s())?;
        let signal = !fds[0].revents().is_empty();
        match fds.get(1).and_then(|fd| Trigger::woken(fd.revents())) {
            Some(Woken::Stalled) => (self.stalls, self.stalled) = (self.stalls + 1, true),
            Some(Woken::Gone) => self.trigger = None,
            None => {}
        }
        Ok(signal)
    }

    /// Whether a tick that was due at `due_s` is to be made now. A stall has one of its own.
    #[must_use]
    pub fn is_due(&self, due_s: f64) -> bool {
        self.stalled || self.now_s() >= due_s
    }

    /// One tick. Returns the row, for progress; `None` when nothing of the target lives any more.
    ///
    /// # Errors
    /// If the target's processes cannot be listed.
    pub fn tick(&mut self) -> anyhow::Result<Option<Usage>> {
        let now_s = self.now_s();
        self.stalled = false;
        let Accounts { mut usage, target, nodes } = self.accounts(now_s)?;
        if self.accountant.is_over(&target) {
            return Ok(None);
        }
        self.target = target;
        usage.t_s = Some(now_s);
        #[expect(clippy::cast_precision_loss, reason = "at most one in two seconds")]
        let stalls = self.stalls as f64;
        usage.memory_stalls = self.trigger.is_some().then_some(stalls);
        self.monitor_tick(now_s, &mut usage);
        self.act(now_s, &mut usage);
        usage.monitor_cpu_s = Some(self.spent_s());
        if let Some(served) = &self.served {
            served.with(|figures| figures.take(&usage, self.monitor.name()));
        }
        self.writer.usage(usage.clone());
        self.writer.nodes(now_s, nodes);
        if now_s - self.flushed_s >= FLUSH_S - self.options.interval_s.min(FLUSH_S) {
            self.flush(now_s);
        }
        Ok(Some(usage))
    }

    /// Moves what the monitor saw into the record's buffers.
    fn drain(&mut self, last: bool) {
        let Monitor::Damon(damon) = &mut self.monitor else { return };
        let episodes = if last { damon.finish() } else { damon.take_episodes(true) };
        self.writer.episodes(episodes);
        self.take_snapshots();
    }

    /// Moves the map's snapshots into the record's buffers, and shows them to whoever acts by them.
    fn take_snapshots(&mut self) {
        let Monitor::Damon(damon) = &mut self.monitor else { return };
        for snapshot in damon.take_snapshots() {
            let (t_s, pid) = (snapshot.t_s, snapshot.pid);
            let row = |region| RegionRow::new(t_s, pid, region, damon.name_of(pid, region.start));
            self.writer.regions(snapshot.regions.iter().map(row));
            if let Some(acting) = &mut self.acting {
                acting.saw_regions(&snapshot);
            }
        }
    }

    fn flush(&mut self, now_s: f64) {
        self.drain(false);
        self.flushed_s = now_s;
        if let Err(error) = self.writer.flush() {
            if !self.full {
                self.note(format!("rows were lost from {now_s:.0} s on: {error}"));
                eprintln!("lowtide: {error}");
            }
            self.full = true;
        }
    }

    /// Notes something that could not be seen.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.meta.notes.contains(&text) {
            self.meta.notes.push(text);
        }
    }

    /// Ends the record: last rows, what it cost, how it ended. The monitor is given back before.
    ///
    /// # Errors
    /// If the last rows could not be written.
    pub fn close(mut self, mut end: End) -> anyhow::Result<PathBuf> {
        let now_s = self.now_s();
        if let Monitor::Damon(damon) = &mut self.monitor {
            let _ = damon.poll();
            let cost = damon.cost();
            let acts = self.options.plan.as_ref().is_some_and(|plan| plan.map_on().is_some());
            let (looked_s, acted_s) = if acts { (0.0, cost.map_s) } else { (cost.map_s, 0.0) };
            self.kdamond_s += cost.cohort_s + looked_s - cost.own_s;
            self.kernel_acted_s += acted_s;
            damon.notes().into_iter().for_each(|text| self.note(text));
        }
        if let Monitor::Smaps(smaps) = &mut self.monitor
            && let Some((read_s, ages)) = smaps.finish()
        {
            self.writer.ages(read_s, &ages);
        }
        if let Monitor::Mglru(mglru) = &self.monitor {
            let (asked, missing) = mglru.asked();
            if missing * 10 > asked {
                self.note(format!("{missing} of {asked} generations asked for were not made: windows are missing"));
            }
        }
        self.stop_acting(now_s);
        let (ticks, shallow) = self.ticks;
        if shallow > 0 {
            self.note(format!(
                "going through all processes and cgroups at every tick costs too much: left out in {shallow} of {ticks}"
            ));
        }
        self.drain(true);
        if let Ok(Accounts { mut usage, .. }) = self.accountant.read(Depth::Processes) {
            // Counters of what happened since the last tick; levels of a target that is gone say nothing.
            let counters = usage.clone();
            usage = Usage { t_s: Some(now_s), monitor_cpu_s: Some(self.spent_s()), ..Usage::default() };
            for field in lowtide_model::usage::FIELDS {
                if field.shape == lowtide_model::usage::Shape::Counter && field.name != "monitor_cpu_s" {
                    (field.set)(&mut usage, (field.get)(&counters));
                }
            }
            self.writer.usage(usage);
        }
        if end.cgroup_peak_bytes.is_none() {
            end.cgroup_peak_bytes = self.accountant.peak();
        }
        let monitor = std::mem::replace(&mut self.monitor, Monitor::None);
        drop(monitor);
        // Not from getrusage: that remembers what the process was before it became lowtide.
        end.own_peak_rss_bytes = proc::status(&self.kernel, std::process::id()).map_or(0, |own| own.peak_rss);
        end.monitor_cpu_s = self.spent_s();
        self.meta.end = Some(end);
        let dir = self.options.out.clone();
        self.writer.close(&self.meta)?;
        Ok(dir)
    }
}
