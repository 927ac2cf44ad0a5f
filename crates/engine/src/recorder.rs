//! The recorder: accounts and a source's frames become rows of a record. `run` and `record` differ only in their target.

mod accounts;
mod act;

use std::path::PathBuf;
use std::time::Duration;

use lowtide_kernel::account::{Accountant, Accounts, Depth};
use lowtide_kernel::monitor::Target;
use lowtide_kernel::pressure::Trigger;
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys;
use lowtide_kernel::undo::Journal;
use lowtide_model::meta::{End, Meta};
use lowtide_model::usage::{FIELDS, Shape, Usage};
use lowtide_record::Writer;
use rustix::event::{PollFd, PollFlags};

use self::accounts::AccountReader;
use crate::calibration;
use crate::event::{Event, Sink};
use crate::huge_zeros::ZeroSampler;
use crate::price::Price;
use crate::schemes::acting::{Acting, SchemePlan};
use crate::source::{self, Frame, Opening, Source, SourceChoice, SourceSettings};

/// Rows are flushed at least so often, seconds: what a killed recorder loses.
const FLUSH_S: f64 = 4.5;
/// Memory stalls worth a row of their own: so long within so long.
const STALL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A source is opened so late, seconds: a shorter run is too short to sample, and is spared the price.
const OPEN_FROM_S: f64 = 0.25;

/// Huge pages are sampled for zeros so often, seconds: what is read counts as used.
const ZEROS_EVERY_S: f64 = 10.0;

/// How to record.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// Folder of the record; `None` = nothing is written, for sinks alone.
    pub out: Option<PathBuf>,
    /// Where accesses are sampled.
    pub source: SourceSettings,
    /// Seconds between two ticks.
    pub interval_s: f64,
    /// Upper bound of the price, as a share of one CPU.
    pub max_overhead: f64,
    /// Schemes that are carried out on the target.
    pub plan: Option<SchemePlan>,
}

/// Wakes when tasks of the target stall on memory.
#[derive(Debug, Default)]
struct Stalls {
    trigger: Option<Trigger>,
    count: u32,
    /// There was one since the last tick.
    new: bool,
}

/// The result of a turn.
#[derive(Debug)]
pub enum Tick {
    /// It was not time for one.
    NotDue,
    /// The accounts, as they were recorded.
    Row(Box<Usage>),
    /// Nothing of the target lives any more.
    Gone,
}

/// A record being made.
pub struct Recorder {
    kernel: Kernel,
    journal: Journal,
    options: RecordOptions,
    accounts: AccountReader,
    meta: Meta,
    writer: Option<Writer>,
    sinks: Vec<Box<dyn Sink>>,
    source: Option<Box<dyn Source>>,
    /// It was opened, or cannot be.
    is_open: bool,
    price: Price,
    epoch_ns: u64,
    /// The last tick.
    ticked_s: f64,
    stalls: Stalls,
    /// Schemes under way, once there is a source.
    acting: Option<Acting>,
    huge_zeros: ZeroSampler,
    flushed_s: f64,
    /// Rows were lost, as the disk is full: that is noted once.
    full: bool,
    target: Target,
}

/// What a recorder accounts for, and what the record says of it.
#[derive(Debug)]
pub struct RecordSubject {
    /// Reads its memory, faults and CPU time.
    pub accountant: Accountant,
    /// For `meta.json`.
    pub meta: Meta,
}

impl Recorder {
    /// Opens the record and takes the baseline: the accounts before anything was started. Fails if the folder cannot be
    /// written.
    pub fn open(
        kernel: &Kernel,
        journal: &Journal,
        options: RecordOptions,
        RecordSubject { accountant, mut meta }: RecordSubject,
    ) -> anyhow::Result<Self> {
        let epoch_ns = kernel.monotonic_ns();
        meta.started_monotonic_s = Duration::from_nanos(epoch_ns).as_secs_f64();
        meta.started_unix_s = jiff::Timestamp::now().as_duration().as_secs_f64();
        let writer = options.out.as_ref().map(|out| Writer::create(out, &meta)).transpose()?;
        let pressure = accountant.pressure_file("memory");
        // Where there is none, the figure is null; why there is no pressure is in the notes.
        let trigger = Trigger::open(kernel, &pressure, STALL.0, STALL.1).ok();
        let mut recorder = Self {
            kernel: kernel.clone(),
            journal: journal.clone(),
            accounts: AccountReader::new(accountant, options.interval_s),
            price: Price::new(options.max_overhead),
            options,
            meta,
            writer,
            sinks: Vec::new(),
            source: None,
            is_open: false,
            epoch_ns,
            ticked_s: 0.0,
            stalls: Stalls { trigger, ..Stalls::default() },
            acting: None,
            huge_zeros: ZeroSampler::new(epoch_ns, ZEROS_EVERY_S),
            flushed_s: 0.0,
            full: false,
            target: Target::default(),
        };
        let Accounts { mut usage, .. } = recorder.accounts.accountant.read(Depth::Processes)?;
        usage.t_s = Some(0.0);
        recorder.add(usage);
        Ok(recorder)
    }

    /// Has another sink take what is recorded.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    /// How it is measured, and the notes so far.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Adds a row that concerns the record alone.
    fn add(&mut self, usage: Usage) {
        if let Some(writer) = &mut self.writer {
            writer.add([usage]);
        }
    }

    fn publish(&mut self, now_s: f64, event: &Event<'_>) {
        if let Some(writer) = &mut self.writer {
            writer.take(now_s, event);
        }
        self.sinks.iter_mut().for_each(|sink| sink.take(now_s, event));
    }

    fn publish_frame(&mut self, now_s: f64, frame: &Frame) {
        self.publish(now_s, &Event::Frame(frame));
        if let Some(acting) = &mut self.acting {
            acting.observe(frame);
        }
    }

    /// Seconds since the start of the record.
    pub fn now_s(&self) -> f64 {
        self.kernel.seconds_since(self.epoch_ns)
    }

    /// When the next tick is due: an interval after the last, just after the source has sampled.
    pub fn next_due_s(&self) -> f64 {
        let (last_s, interval_s) = (self.ticked_s, self.options.interval_s);
        // Programs are most in motion when they begin, and many end soon.
        if last_s < 0.3 {
            return interval_s.min(if last_s < 0.1 { 0.1 } else { 0.3 }).max(last_s + 0.01);
        }
        let next_s = last_s + interval_s;
        match &self.source {
            Some(source) if interval_s >= 0.5 => source.fresh_near_s(next_s),
            _ => next_s,
        }
    }

    /// Descriptors that wake the recorder: a stall of the target.
    pub fn wakers(&self) -> Vec<PollFd<'_>> {
        self.stalls.trigger.iter().filter_map(Trigger::waker).collect()
    }

    /// The events of these descriptors.
    pub fn woken(&mut self, events: &[PollFlags]) {
        let stalls = &mut self.stalls;
        if let (Some(trigger), Some(event)) = (&mut stalls.trigger, events.first())
            && trigger.woken(*event)
        {
            (stalls.count, stalls.new) = (stalls.count + 1, true);
        }
    }

    /// Makes a tick if one is due. A stall of the target has one of its own. Fails if the target's processes cannot be
    /// listed.
    pub fn turn(&mut self) -> anyhow::Result<Tick> {
        let now_s = self.now_s();
        if !self.stalls.new && now_s < self.next_due_s() {
            return Ok(Tick::NotDue);
        }
        self.ticked_s = now_s;
        self.tick(now_s)
    }

    fn tick(&mut self, now_s: f64) -> anyhow::Result<Tick> {
        self.stalls.new = false;
        let Accounts { mut usage, target, nodes } = self.accounts.read(now_s, &mut self.price)?;
        if self.accounts.accountant.is_over(&target) {
            return Ok(Tick::Gone);
        }
        self.target = target;
        usage.t_s = Some(now_s);
        usage.memory_stalls = self.stalls.trigger.is_some().then_some(f64::from(self.stalls.count));
        if !self.is_open && now_s >= OPEN_FROM_S {
            self.open_source();
        }
        self.sample(now_s, &mut usage);
        self.act(now_s, &mut usage);
        usage.monitor_cpu_s = Some(self.price.spent_s());
        self.publish(now_s, &Event::Usage(&usage, self.backend()));
        self.publish(now_s, &Event::Nodes(&nodes));
        if now_s - self.flushed_s >= FLUSH_S - self.options.interval_s.min(FLUSH_S) {
            self.flush(now_s);
        }
        Ok(Tick::Row(Box::new(usage)))
    }

    fn backend(&self) -> &'static str {
        self.source.as_ref().map_or("none", |source| source.backend())
    }

    fn open_source(&mut self) {
        self.is_open = true;
        let opening = Opening {
            kernel: &self.kernel,
            journal: &self.journal,
            target: &self.target,
            epoch_ns: self.epoch_ns,
            settings: &self.options.source,
            price: &self.price,
        };
        match source::open(&opening) {
            Ok(opened) => (self.source, self.meta.monitor.refused) = (opened.source, opened.refused),
            // One that was asked for by name was checked before the program started; it can only have gone since.
            Err(failure) => self.note(failure.message),
        }
        if self.options.source.choice != SourceChoice::None {
            self.note_source();
            let refused =
                self.meta.monitor.refused.iter().map(|other| ("refused", format!("{}: {}", other.backend, other.why)));
            let fields: Vec<_> = std::iter::once(("backend", self.backend().to_owned())).chain(refused).collect();
            self.publish(self.now_s(), &Event::Logged("monitor", &fields));
        }
        if !self.options.source.windows_s.is_empty() && self.backend() != "mglru" {
            self.note(format!("--windows makes no difference: the monitor is {}", self.backend()));
        }
        if self.source.as_ref().is_none_or(|source| source.intervals_s() == (0.0, 0.0)) {
            self.price.without_sampling();
        }
        self.begin_acting();
        if let Some(writer) = &self.writer {
            let _ = writer.meta(&self.meta);
        }
        // What follows is the same few functions again and again, for hours.
        sys::forget_code();
    }

    /// Notes the source in the record.
    fn note_source(&mut self) {
        self.meta.monitor.backend = self.backend().to_owned();
        let Some(source) = &self.source else { return };
        (self.meta.monitor.sampling_s, self.meta.monitor.aggregation_s) = source.intervals_s();
        source.notes().into_iter().for_each(|text| self.note(text));
    }

    /// Reads the source.
    fn sample(&mut self, now_s: f64, usage: &mut Usage) {
        let Some(source) = &mut self.source else { return };
        match source.read(now_s, &self.target, &mut self.price) {
            Ok(frame) => {
                (usage.watched_bytes, usage.regions) = (frame.watched_bytes, frame.region_count);
                if let Some((_, picture)) = &frame.picture {
                    usage.set_sampled(u64::try_from(picture.pages).unwrap_or(u64::MAX), &picture.working_set);
                }
                self.publish_frame(now_s, &frame);
            }
            Err(error) => {
                self.note(format!("the {} monitor stopped at {now_s:.1} s: {error}", self.backend()));
                self.close_source(now_s);
            }
        }
    }

    fn close_source(&mut self, now_s: f64) {
        let Some(mut source) = self.source.take() else { return };
        let frame = source.finish(&mut self.price);
        self.publish_frame(now_s, &frame);
        if let Some(acting) = &mut self.acting {
            acting.kernel_cpu_s = source.schemes_cpu_s();
        }
        self.source = Some(source);
        self.note_source();
        self.source = None;
    }

    fn flush(&mut self, now_s: f64) {
        if let Some(frame) = self.source.as_mut().map(|source| source.cut()) {
            self.publish_frame(now_s, &frame);
        }
        self.flushed_s = now_s;
        if let Some(Err(error)) = self.writer.as_mut().map(Writer::flush) {
            if !self.full {
                self.note(format!("rows were lost from {now_s:.0} s on: {error}"));
                lowtide_kernel::message!("lowtide: {error}");
            }
            self.full = true;
        }
    }

    /// Notes something that a reader of the record must know.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.meta.notes.contains(&text) {
            self.publish(self.now_s(), &Event::Note(&text));
            self.meta.notes.push(text);
        }
    }

    /// Ends the record: last rows, what it cost, how it ended; its folder, if there is one. The source's leases are given
    /// back before. Fails if the last rows could not be written.
    pub fn close(mut self, mut end: End) -> anyhow::Result<Option<PathBuf>> {
        let now_s = self.now_s();
        self.close_source(now_s);
        self.end_acting(now_s);
        if let Some(note) = self.accounts.note() {
            self.note(note);
        }
        if let Ok(Accounts { usage: counters, .. }) = self.accounts.accountant.read(Depth::Processes) {
            // Counters of what happened since the last tick; levels of a target that is gone mean nothing.
            let mut usage = Usage { t_s: Some(now_s), ..Usage::default() };
            for field in FIELDS.iter().filter(|field| field.shape == Shape::Counter) {
                (field.set)(&mut usage, (field.get)(&counters));
            }
            usage.monitor_cpu_s = Some(self.price.spent_s());
            self.add(usage);
        }
        if end.cgroup_peak_bytes.is_none() {
            end.cgroup_peak_bytes = self.accounts.accountant.peak();
        }
        self.meta.refault_costs = calibration::sample_again(&self.kernel, self.meta.refault_costs);
        // Not from getrusage: that remembers what the process was before it became lowtide.
        end.own_peak_rss_bytes = proc::status(&self.kernel, std::process::id()).map_or(0, |own| own.peak_rss);
        end.monitor_cpu_s = self.price.spent_s();
        self.meta.end = Some(end);
        let dir = self.options.out.clone();
        self.writer.map_or(Ok(()), |writer| writer.close(&self.meta))?;
        Ok(dir)
    }
}

#[cfg(test)]
mod tests;
