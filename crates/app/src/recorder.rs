//! The tick: accounts, monitor and governor become rows of a record. `run` and `record` differ only in their target.

mod slow;

use std::path::PathBuf;

use lowtide_kernel::account::{Accountant, Accounts};
use lowtide_kernel::monitor::Target;
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys;
use lowtide_kernel::system::monotonic_ns;
use lowtide_kernel::undo::Journal;
use lowtide_model::cohort::Picture;
use lowtide_model::meta::{End, Meta};
use lowtide_model::units::human_bytes;
use lowtide_model::usage::Usage;
use lowtide_policy::governor::{Governor, Observation, Part};

use self::slow::Slow;
use crate::monitors::{self, Map, Monitor, Wish};
use crate::serve::Shared;
use crate::store::{RegionRow, Writer};

/// Rows are flushed at least so often, seconds: what a killed recorder loses.
const FLUSH_S: f64 = 4.5;
/// The governor looks at the costs so often, seconds.
const GOVERN_S: f64 = 5.0;
/// Slow work is done again after so long, seconds, if nothing else calls for it.
const COHORT_EVERY_S: f64 = 5.0;
const MAP_EVERY_S: f64 = 15.0;
const CACHE_EVERY_S: f64 = 15.0;
const PSS_EVERY_S: f64 = 10.0;
/// How to record.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the record.
    pub out: PathBuf,
    /// Which monitor.
    pub monitor: Wish,
    /// Addresses that the map works on.
    pub map: Map,
    /// Seconds between two ticks.
    pub interval_s: f64,
    /// Upper bound of the price, as a share of one CPU.
    pub max_overhead: f64,
    /// The target was running before.
    pub attached: bool,
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
        let epoch_ns = monotonic_ns();
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
            governed_s: 0.0,
            flushed_s: 0.0,
            served: None,
            full: false,
            target: Target::default(),
        };
        let Accounts { mut usage, .. } = recorder.accountant.read(false)?;
        usage.t_s = Some(0.0);
        recorder.writer.usage(usage);
        Ok(recorder)
    }

    /// Seconds since the start of the record.
    #[must_use]
    pub fn now_s(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "the length of a record")]
        let ns = monotonic_ns().saturating_sub(self.epoch_ns) as f64;
        ns / 1e9
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
        sys::own_cpu_s() - self.cpu_at_start_s + self.kdamond_s
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
        let before = sys::own_cpu_s();
        let result = work(self);
        let cost_s = sys::own_cpu_s() - before;
        self.slow_spent_s += cost_s;
        *slow(self) = Slow { done_s: Some(now_s), cost_s, size };
        result
    }

    /// One tick. Returns the row, for progress; `None` when nothing of the target lives any more.
    ///
    /// # Errors
    /// If the target's processes cannot be listed.
    pub fn tick(&mut self) -> anyhow::Result<Option<Usage>> {
        let now_s = self.now_s();
        let want_pss =
            self.pss.is_due(now_s, PSS_EVERY_S, self.pss.size) && self.allows_later(&self.pss, now_s) && now_s > 0.9;
        let read = |recorder: &mut Self| recorder.accountant.read(want_pss);
        let Accounts { mut usage, target } =
            if want_pss { self.pay(|r| &mut r.pss, now_s, 0.0, read)? } else { read(self)? };
        if target.pids.is_empty() && !target.system {
            return Ok(None);
        }
        self.target = target;
        usage.t_s = Some(now_s);
        self.monitor_tick(now_s, &mut usage);
        usage.monitor_cpu_s = Some(self.spent_s());
        if let Some(served) = &self.served {
            served.with(|figures| figures.take(&usage, self.monitor.name()));
        }
        self.writer.usage(usage.clone());
        if now_s - self.flushed_s >= FLUSH_S - self.options.interval_s.min(FLUSH_S) {
            self.flush(now_s);
        }
        Ok(Some(usage))
    }

    /// Takes the monitor at the first tick at which there is a target, then reads it at every tick.
    fn monitor_tick(&mut self, now_s: f64, usage: &mut Usage) {
        if !self.monitor_taken {
            // Nothing can be said of less than a second; what ends before that is spared the price.
            if now_s < 0.25 {
                return;
            }
            self.take_monitor();
        }
        let size: f64 = self.target.totals.iter().sum();
        let result = match self.monitor {
            Monitor::Damon(_) => self.damon_tick(now_s, size, usage),
            Monitor::Mglru(_) | Monitor::Smaps(_) => self.round_tick(now_s, size, usage),
            Monitor::None => Ok(()),
        };
        if let Err(error) = result {
            self.note(format!("the {} monitor stopped at {now_s:.1} s: {error}", self.monitor.name()));
            self.drain(true);
            self.monitor = Monitor::None;
        }
    }

    fn take_monitor(&mut self) {
        self.monitor_taken = true;
        let rhythm = monitors::rhythm(&self.governor.plan(), self.options.map);
        let (wish, attached) = (self.options.monitor, self.options.attached);
        match monitors::choose(wish, &self.kernel, &self.journal, &self.target, &rhythm, self.epoch_ns, attached) {
            Ok(choice) => {
                self.monitor = choice.monitor;
                self.meta.monitor.refused = choice.refused;
            }
            // A monitor that was asked for by name was tried before the program started; it can only have gone since.
            Err(failure) => self.note(failure.message),
        }
        match &self.monitor {
            Monitor::Damon(damon) if !damon.sees_cache() => self.note(
                "page cache used by read and write is in no working set or idle age: with the multi-generational LRU \
                 on (/sys/kernel/mm/lru_gen/enabled), or without /proc/kpagecgroup, DAMON does not see its use",
            ),
            Monitor::Damon(_) => {}
            Monitor::Mglru(_) => self.note(
                "page cache used by read and write counts as idle: generations tell the use of mapped pages alone",
            ),
            _ => {}
        }
        if !matches!(self.monitor, Monitor::Damon(_)) {
            self.governor.without_rhythm();
        }
        self.name_monitor();
        let _ = self.writer.meta(&self.meta);
        // What follows is the same few functions again and again, for hours.
        sys::forget_code();
    }

    fn name_monitor(&mut self) {
        let plan = self.governor.plan();
        let damon = matches!(self.monitor, Monitor::Damon(_));
        self.meta.monitor.backend = self.monitor.name().to_owned();
        self.meta.monitor.sampling_s = if damon { plan.cohort_sampling_s } else { 0.0 };
        self.meta.monitor.aggregation_s = if damon { plan.map_aggregation_s() } else { 0.0 };
    }

    fn damon_tick(&mut self, now_s: f64, size: f64, usage: &mut Usage) -> anyhow::Result<()> {
        let (looked, background_s) = self.damon(|damon, _| Ok((damon.poll()?, damon.take_background_s())))?;
        self.slow_spent_s += background_s;
        if self.cohort.is_due(now_s, COHORT_EVERY_S, size) && self.allows(&self.cohort, now_s) {
            let search = self.cache.is_due(now_s, CACHE_EVERY_S, 0.0) && self.allows_later(&self.cache, now_s);
            let slow: fn(&mut Self) -> &mut Slow = if search { |r| &mut r.cache } else { |r| &mut r.cohort };
            self.pay(slow, now_s, size, |recorder| {
                recorder.damon(|damon, target| damon.refresh_cohort(target, now_s, search))
            })?;
            self.cohort.done_s = Some(now_s);
            self.cohort.size = size;
        }
        // The map comes second: a short program may end before it has anything to say.
        if matches!(&self.monitor, Monitor::Damon(damon) if damon.map_is_lost()) {
            self.map.size = 0.0;
        }
        if now_s > 0.9 && self.map.is_due(now_s, MAP_EVERY_S, size) && self.allows_later(&self.map, now_s) {
            self.pay(
                |r| &mut r.map,
                now_s,
                size,
                |recorder| recorder.damon(|damon, target| damon.refresh_map(target)),
            )?;
        }
        if let Monitor::Damon(damon) = &mut self.monitor {
            let tell = damon.wants_to_tell();
            self.told_cost_s = tell.unwrap_or(self.told_cost_s);
            if tell.is_some_and(|cost_s| self.governor.may_spend(now_s, self.slow_spent_s, cost_s)) {
                damon.tell(now_s);
            }
            usage.watched_bytes = Some(damon.watched_bytes());
            usage.regions = Some(damon.regions());
            if let (true, Some(picture), Some(look_s)) = (looked, damon.picture(&self.target), damon.last_look_s()) {
                self.picture(look_s, &picture, usage);
            }
        }
        if now_s - self.governed_s >= GOVERN_S {
            self.govern(now_s);
        }
        Ok(())
    }

    fn damon<T>(
        &mut self,
        work: impl FnOnce(&mut lowtide_kernel::monitor::damon::DamonMonitor, &Target) -> lowtide_kernel::root::Result<T>,
    ) -> anyhow::Result<T> {
        match &mut self.monitor {
            Monitor::Damon(damon) => Ok(work(damon, &self.target)?),
            _ => anyhow::bail!("DAMON is not the monitor"),
        }
    }

    /// Monitors that work in rounds: now and then a step, each of which costs a walk over the target.
    fn round_tick(&mut self, now_s: f64, size: f64, usage: &mut Usage) -> anyhow::Result<()> {
        let due = match &self.monitor {
            Monitor::Mglru(mglru) => mglru.is_due(now_s),
            Monitor::Smaps(smaps) => smaps.is_due(now_s),
            Monitor::Damon(_) | Monitor::None => false,
        };
        if !due || !self.allows(&self.cohort, now_s) {
            return Ok(());
        }
        let step = |recorder: &mut Self| match &mut recorder.monitor {
            Monitor::Mglru(mglru) => mglru.step(now_s),
            Monitor::Smaps(smaps) => smaps.step(now_s, &recorder.target),
            Monitor::Damon(_) | Monitor::None => Ok(None),
        };
        if let Some(picture) = self.pay(|r| &mut r.cohort, now_s, size, step)? {
            self.picture(now_s, &picture, usage);
        }
        Ok(())
    }

    fn picture(&mut self, t_s: f64, picture: &Picture, usage: &mut Usage) {
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        let pages = picture.pages as f64;
        usage.cohort_pages = Some(pages);
        usage.set_working_sets(&picture.working_set);
        self.writer.ages(t_s, &picture.ages);
        if let Some(served) = &self.served {
            served.with(|figures| figures.take_ages(&picture.ages));
        }
    }

    /// Holds the price: measures what each part cost since the last time and adapts size and rhythm.
    fn govern(&mut self, now_s: f64) {
        let Monitor::Damon(damon) = &mut self.monitor else { return };
        let cost = damon.cost();
        self.kdamond_s += cost.cohort_s + cost.map_s;
        let (cohort_looks, map_looks) = damon.looks_per_s();
        let period = now_s - self.governed_s;
        let seen = Observation {
            elapsed_s: now_s,
            spent_s: sys::own_cpu_s() - self.cpu_at_start_s + self.kdamond_s,
            cohort: Part { looks_per_s: cohort_looks, cpu_per_s: cost.cohort_s / period },
            map: Part { looks_per_s: map_looks, cpu_per_s: cost.map_s / period },
        };
        self.governed_s = now_s;
        if let Some(plan) = self.governor.adapt(&seen) {
            damon.set_rhythm(&monitors::rhythm(&plan, self.options.map));
            self.cohort.size = 0.0;
            self.map.size = 0.0;
            self.name_monitor();
        }
    }

    /// Moves what the monitor saw into the record's buffers.
    fn drain(&mut self, last: bool) {
        let Monitor::Damon(damon) = &mut self.monitor else { return };
        let episodes = if last { damon.finish() } else { damon.take_episodes(true) };
        self.writer.episodes(episodes);
        for snapshot in damon.take_snapshots() {
            let (t_s, pid) = (snapshot.t_s, snapshot.pid);
            let row = |region| RegionRow::new(t_s, pid, region, damon.name_of(pid, region.start));
            self.writer.regions(snapshot.regions.iter().map(row));
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
            self.kdamond_s += cost.cohort_s + cost.map_s;
            let (foreign, unmapped) = (damon.foreign(), damon.unmapped_bytes());
            let processes = damon.unmapped_processes();
            if foreign > 0 {
                self.note(format!("DAMON reported {foreign} regions that lowtide had not set"));
            }
            if processes > 0 {
                self.note(format!("the map left out up to {processes} processes: DAMON would need too many regions"));
            }
            if unmapped > 0 {
                #[expect(clippy::cast_precision_loss, reason = "a size of memory")]
                let size = human_bytes(unmapped as f64);
                self.note(format!("the map leaves out {size} that lie in too many pieces of physical memory"));
            }
        }
        if let Monitor::Mglru(mglru) = &self.monitor {
            let (asked, missing) = mglru.asked();
            if missing * 10 > asked {
                self.note(format!("{missing} of {asked} generations asked for were not made: windows are missing"));
            }
        }
        self.drain(true);
        if let Ok(Accounts { mut usage, .. }) = self.accountant.read(false) {
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
            end.cgroup_peak_bytes = self.accountant.cgroup.as_ref().and_then(|cgroup| cgroup.peak(&self.kernel));
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
