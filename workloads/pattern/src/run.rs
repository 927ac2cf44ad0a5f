//! The loop that touches, logs and sleeps. One thread, so that each log line is one exact moment.

use std::fs::File;
use std::ops::Range;

use lowtide_model::units::count;
use serde::Serialize;

use crate::area::{PatternArea, Touches};
use crate::config::TouchOrder;
use crate::hot::HotSet;
use crate::log::{TruthLog, seconds};
use crate::pattern::{Access, Pattern};
use crate::rng::Rng;
use crate::schedule::{Cursor, Ending, PhaseSpan, timeline};
use crate::sys;
use crate::truth::stamp_of;
use crate::units::usize_of;

/// Touches between two readings of the clock. All of them get the time at their beginning, so this bounds the error of
/// the account: some microseconds, or some milliseconds when every touch waits for swap.
const CHUNK: usize = 256;

/// An unpaced run that gets so far on its time line without one touch is given up as endless.
const DRY_NS: u64 = 3_600_000_000_000;

#[derive(Debug, Default, Serialize)]
pub struct Stats {
    /// Sweeps of a hot set completed, over all streams.
    pub passes: u64,
    /// Touches made, not counting those that populated.
    pub touches: u64,
    /// From the first phase's beginning to the end.
    pub seconds: f64,
    /// The furthest that any stream was behind its schedule.
    pub late_s: f64,
    pub busy_s: f64,
}

struct Stream<'p> {
    access: &'p Access,
    cursor: Cursor,
    rng: Rng,
}

pub struct PatternRun<'p> {
    pattern: &'p Pattern,
    areas: Vec<PatternArea>,
    log: Option<TruthLog<File>>,
    /// The moment from which stamps count.
    epoch: u64,
    /// The moment the first phase began.
    start: u64,
    /// Touches after which an unpaced run ends.
    work: Option<u64>,
    phase: usize,
    late_ns: u64,
    busy_ns: u64,
    log_ns: u64,
    stats: Stats,
}

impl<'p> PatternRun<'p> {
    /// A run of `pattern` in these areas. With `work`, it does not wait for time: streams follow their schedules in order
    /// until so many touches are done.
    pub fn new(pattern: &'p Pattern, areas: Vec<PatternArea>, epoch: u64, work: Option<u64>) -> Self {
        Self {
            pattern,
            areas,
            log: None,
            epoch,
            start: 0,
            work,
            phase: 0,
            late_ns: 0,
            busy_ns: 0,
            log_ns: 0,
            stats: Stats::default(),
        }
    }

    /// Writes the log of the truth there.
    pub fn with_log(self, log: Option<TruthLog<File>>) -> Self {
        Self { log, ..self }
    }

    /// Populates and runs all phases. A signal ends it early and in order.
    pub fn run(mut self, ending: Ending) -> anyhow::Result<Stats> {
        for area in &mut self.areas {
            area.populate(self.epoch)?;
        }
        self.start = sys::monotonic_ns();
        if let Some(log) = &mut self.log {
            log.header(self.pattern, &self.areas, self.start)?;
        }
        for span in timeline(&self.pattern.phases, ending) {
            self.phase = span.phase;
            if self.work.is_none() {
                self.paced(span)?
            } else {
                self.unpaced(span)?
            }
            if self.over() {
                break;
            }
        }
        self.stats.seconds = seconds(sys::monotonic_ns() - self.start);
        self.stats.late_s = seconds(self.late_ns);
        self.stats.busy_s = seconds(self.busy_ns);
        Ok(self.stats)
    }

    /// Whether nothing more is to be done.
    fn over(&self) -> bool {
        sys::stop_requested() || self.work.is_some_and(|w| self.stats.touches >= w)
    }

    fn streams(&self) -> Vec<Stream<'p>> {
        let accesses = &self.pattern.phases[self.phase].accesses;
        let cursor = |access: &Access| Cursor::new(access.rate, self.work.is_some());
        (0..).zip(accesses).map(|(n, access)| Stream { access, cursor: cursor(access), rng: Rng::new(n) }).collect()
    }

    fn paced(&mut self, span: PhaseSpan) -> anyhow::Result<()> {
        let mut streams = self.streams();
        let begin = self.start + span.start;
        let end = self.start.saturating_add(span.end);
        let mut turn = 0;
        while !self.over() {
            let now = sys::monotonic_ns();
            self.log_if_due(now)?;
            if now >= end {
                break;
            }
            let in_phase = now.saturating_sub(begin);
            let next = earliest(&streams);
            if let Some((_, n)) = next.filter(|&(due, _)| due <= in_phase) {
                self.slice(&mut streams[n], in_phase)?;
            } else if let Some(n) = tight(&streams, turn) {
                // Streams without a pace take turns whenever no other is due.
                turn = n + 1;
                self.slice(&mut streams[n], in_phase)?;
            } else {
                let due = next.map_or(end, |(due, _)| begin + due);
                let log_due = self.log.as_ref().map_or(u64::MAX, |log| log.due);
                sys::sleep_until(due.min(end).min(log_due));
            }
        }
        Ok(())
    }

    /// One phase in the order of its deadlines, without waiting for them.
    fn unpaced(&mut self, span: PhaseSpan) -> anyhow::Result<()> {
        let mut streams = self.streams();
        let mut last_touch = 0;
        while !self.over() {
            self.log_if_due(sys::monotonic_ns())?;
            let Some((due, n)) = earliest(&streams).filter(|&(due, _)| due < span.end - span.start) else {
                break;
            };
            let before = self.stats.touches;
            self.slice(&mut streams[n], due)?;
            if self.stats.touches != before {
                last_touch = due;
            } else if due - last_touch > DRY_NS {
                break;
            }
        }
        if span.end == u64::MAX && !self.over() {
            anyhow::bail!(
                "the last phase makes no more touches after {}, so that --work {} is never reached",
                self.stats.touches,
                self.work.unwrap_or(0)
            );
        }
        Ok(())
    }

    /// The next slice of `stream`, `now` nanoseconds into the phase.
    fn slice(&mut self, stream: &mut Stream<'p>, now: u64) -> anyhow::Result<()> {
        let late = stream.cursor.begin(now);
        self.late_ns = self.late_ns.max(late);
        let (at, previous) = stream.cursor.pass_times();
        let hot = stream.access.shape.at(at, previous);
        let touches = hot.touches(stream.access.stride);
        let mut share = stream.cursor.share(touches);
        let (begun, logging) = (sys::monotonic_ns(), self.log_ns);
        while !share.is_empty() && !self.over() {
            let mut end = share.end.min(share.start + CHUNK);
            if let Some(work) = self.work {
                let left = usize::try_from(work - self.stats.touches).unwrap_or(usize::MAX);
                end = end.min(share.start.saturating_add(left));
            }
            let clock = sys::monotonic_ns();
            self.log_if_due(clock)?;
            self.chunk(stream, &hot, share.start..end, clock)?;
            share.start = end;
        }
        self.busy_ns += sys::monotonic_ns() - begun - (self.log_ns - logging);
        if stream.cursor.advance(share.start, touches) && touches > 0 && share.is_empty() {
            self.stats.passes += 1;
        }
        Ok(())
    }

    /// These touches of a pass, all at the time `clock`.
    fn chunk(
        &mut self,
        stream: &mut Stream<'p>,
        hot: &HotSet,
        touches: Range<usize>,
        clock: u64,
    ) -> anyhow::Result<()> {
        let Access { stride, mode, order, .. } = *stream.access;
        let area = &mut self.areas[stream.access.area];
        let now = stamp_of(clock - self.epoch);
        self.stats.touches += count(touches.len());
        if order == TouchOrder::Sequential {
            return hot.runs(stride, touches, |offset, count| area.touch(Touches { offset, count, stride, mode }, now));
        }
        let limit = count(hot.touches(stride));
        for _ in touches {
            let (offset, _) = hot.locate(usize_of(stream.rng.below(limit)) * stride);
            area.touch(Touches { offset, count: 1, stride, mode }, now)?;
        }
        Ok(())
    }

    fn log_if_due(&mut self, now: u64) -> anyhow::Result<()> {
        if let Some(log) = self.log.as_mut().filter(|log| log.due <= now) {
            log.line(self.phase, &self.areas)?;
            self.log_ns += sys::monotonic_ns() - now;
        }
        Ok(())
    }
}

/// The earliest deadline of a stream, and that stream.
fn earliest(streams: &[Stream<'_>]) -> Option<(u64, usize)> {
    streams.iter().enumerate().filter_map(|(n, stream)| Some((stream.cursor.due()?, n))).min()
}

/// The next stream without deadlines from `turn` on, round robin.
fn tight(streams: &[Stream<'_>], turn: usize) -> Option<usize> {
    let count = streams.len();
    (turn..turn + count).map(|n| n % count).find(|&n| streams[n].cursor.due().is_none())
}
