//! Deadlines of slices, and the phases along the time line. Pure arithmetic on nanoseconds.

use std::ops::Range;

use lowtide_model::units::count;

use crate::pattern::PatternPhase;
use crate::units::Rate;

/// A pass is cut into slices at most this far apart, so that a large hot set is swept evenly rather than in bursts.
const SLICE_NS: u64 = 20_000_000;

/// Touches per slice when nothing sets the pace.
const UNPACED_SLICE: usize = 4096;

/// A stream that falls further behind drops passes: catching up would turn one stall into a long burst that no pattern
/// asks for.
const MAX_BACKLOG_NS: u64 = 1_000_000_000;

/// The period that stands for "as fast as possible" on the time line of an unpaced run.
const NOMINAL_PERIOD_NS: u64 = 10_000_000;

/// Progress of one stream of touches through its passes.
#[derive(Debug)]
pub struct Cursor {
    period_ns: Option<u64>,
    slices: u64,
    /// Start of the present pass, on the time line from which dropped backlog has been taken out.
    pass_start: u64,
    previous_start: u64,
    slice: u64,
    done: usize,
    dropped_ns: u64,
}

impl Cursor {
    /// A stream at the start of its phase. With `virtual_time`, even the fastest rate gets deadlines, so that the order
    /// of touches does not depend on the machine's speed.
    pub fn new(rate: Rate, virtual_time: bool) -> Self {
        let period_ns = match rate {
            Rate::Every(period) => Some(period.max(1)),
            Rate::Max => virtual_time.then_some(NOMINAL_PERIOD_NS),
        };
        Cursor {
            period_ns,
            slices: period_ns.map_or(1, |p| p.div_ceil(SLICE_NS)),
            pass_start: 0,
            previous_start: 0,
            slice: 0,
            done: 0,
            dropped_ns: 0,
        }
    }

    /// When the next slice is due in the phase; `None` when it always is.
    pub fn due(&self) -> Option<u64> {
        self.period_ns.map(|period| self.pass_start + period / self.slices * self.slice)
    }

    /// Begins the slice that is due, `now` nanoseconds into the phase. Returns how late it is against the phase's first
    /// schedule.
    pub fn begin(&mut self, now: u64) -> u64 {
        let Some(due) = self.due() else {
            if self.done == 0 {
                self.pass_start = now;
            }
            return 0;
        };
        let behind = now.saturating_sub(due);
        let late = behind + self.dropped_ns;
        if behind > MAX_BACKLOG_NS && self.slice == 0 {
            self.pass_start += behind;
            self.dropped_ns += behind;
        }
        late
    }

    /// Start of the present pass and of the one before: they give the hot set.
    pub fn pass_times(&self) -> (u64, u64) {
        (self.pass_start, self.previous_start)
    }

    /// The touches of the present slice, of the `touches` of this pass.
    pub fn share(&self, touches: usize) -> Range<usize> {
        match self.period_ns {
            None => self.done..(self.done + UNPACED_SLICE).min(touches),
            Some(_) => {
                let end = u128::from(count(touches)) * (u128::from(self.slice) + 1) / u128::from(self.slices);
                self.done..usize::try_from(end).unwrap_or(touches).max(self.done)
            }
        }
    }

    /// Ends the present slice at touch `end` of `touches`; returns whether that completed a pass.
    pub fn advance(&mut self, end: usize, touches: usize) -> bool {
        self.done = end;
        self.slice += 1;
        let complete = match self.period_ns {
            None => end >= touches,
            Some(_) => self.slice >= self.slices,
        };
        if complete {
            self.previous_start = self.pass_start;
            // An unpaced pass gets its start when it begins.
            self.pass_start += self.period_ns.unwrap_or(0);
            self.slice = 0;
            self.done = 0;
        }
        complete
    }
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Phases,
    /// After so many nanoseconds; the last phase is stretched to that, or what comes later is cut off.
    After(u64),
    /// Phases repeat without end, or for so many nanoseconds.
    Repeat(Option<u64>),
    /// The last phase never ends.
    Never,
}

/// One phase's place on the time line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseSpan {
    pub phase: usize,
    /// Nanoseconds from the start of the first phase.
    pub start: u64,
    /// Where it ends; `u64::MAX` for never.
    pub end: u64,
}

/// The phases along the time line of a run with that ending.
pub fn timeline(phases: &[PatternPhase], ending: Ending) -> impl Iterator<Item = PhaseSpan> {
    let (rounds, cut) = match ending {
        Ending::Repeat(total) => (usize::MAX, total.unwrap_or(u64::MAX)),
        Ending::After(total) => (1, total),
        Ending::Phases | Ending::Never => (1, u64::MAX),
    };
    let mut start = 0u64;
    (0..rounds).flat_map(|_| phases.iter().enumerate()).map_while(move |(phase, of)| {
        let last = phase + 1 == phases.len();
        let end = match ending {
            Ending::After(total) if last => total,
            Ending::Never if last => u64::MAX,
            _ => start.saturating_add(of.length_ns).min(cut),
        };
        let span = (start < cut).then_some(PhaseSpan { phase, start, end });
        start = end;
        span
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn slices_spread_a_pass_evenly() {
        let mut cursor = Cursor::new(Rate::Every(50 * MS), false);
        let mut slices = Vec::new();
        for _ in 0..6 {
            let due = cursor.due().unwrap();
            assert_eq!(cursor.begin(due), 0);
            let share = cursor.share(100);
            let complete = cursor.advance(share.end, 100);
            slices.push((due / MS, share, complete));
        }
        let expected = [
            (0, 0..33, false),
            (16, 33..66, false),
            (33, 66..100, true),
            (50, 0..33, false),
            (66, 33..66, false),
            (83, 66..100, true),
        ];
        assert_eq!(slices, expected);
    }

    #[test]
    fn passes_do_not_drift() {
        let mut cursor = Cursor::new(Rate::Every(33_333_333), false);
        let mut passes = 0;
        while cursor.due().unwrap() < 10_000 * MS {
            // Always a little late: the deadlines do not move.
            assert_eq!(cursor.begin(cursor.due().unwrap() + 3 * MS), 3 * MS);
            passes += u32::from(cursor.advance(1, 1));
        }
        assert!((300..=301).contains(&passes), "{passes}");
    }

    #[test]
    fn a_long_stall_drops_passes_and_stays_on_record() {
        let mut cursor = Cursor::new(Rate::Every(10 * MS), false);
        cursor.begin(0);
        cursor.advance(1, 1);
        // Due at 10 ms, begun at 3010 ms: three seconds of passes are left out.
        assert_eq!(cursor.begin(3010 * MS), 3000 * MS);
        assert_eq!(cursor.pass_times(), (3010 * MS, 0));
        cursor.advance(1, 1);
        assert_eq!(cursor.due(), Some(3020 * MS));
        assert_eq!(cursor.begin(3020 * MS), 3000 * MS);
    }

    #[test]
    fn a_short_stall_is_caught_up() {
        let mut cursor = Cursor::new(Rate::Every(10 * MS), false);
        assert_eq!(cursor.begin(500 * MS), 500 * MS);
        cursor.advance(1, 1);
        assert_eq!(cursor.due(), Some(10 * MS));
    }

    #[test]
    fn unpaced_passes_are_sliced_by_touches() {
        let mut cursor = Cursor::new(Rate::Max, false);
        assert_eq!(cursor.due(), None);
        cursor.begin(7);
        assert_eq!(cursor.share(5000), 0..4096);
        assert!(!cursor.advance(4096, 5000));
        cursor.begin(8);
        assert_eq!(cursor.pass_times(), (7, 0));
        assert_eq!(cursor.share(5000), 4096..5000);
        assert!(cursor.advance(5000, 5000));
        cursor.begin(9);
        assert_eq!(cursor.pass_times(), (9, 7));
        assert_eq!(cursor.share(0), 0..0);
    }

    #[test]
    fn virtual_time_gives_every_stream_deadlines() {
        let mut cursor = Cursor::new(Rate::Max, true);
        assert_eq!(cursor.due(), Some(0));
        assert_eq!(cursor.share(10_000), 0..10_000);
        assert!(cursor.advance(10_000, 10_000));
        assert_eq!(cursor.due(), Some(NOMINAL_PERIOD_NS));
    }

    fn spans(ending: Ending, take: usize) -> Vec<(usize, u64, u64)> {
        let phase = |length_ns| PatternPhase { length_ns, accesses: Vec::new() };
        let phases = [phase(10), phase(20)];
        timeline(&phases, ending).take(take).map(|s| (s.phase, s.start, s.end)).collect()
    }

    #[test]
    fn phases_follow_each_other() {
        assert_eq!(spans(Ending::Phases, 9), [(0, 0, 10), (1, 10, 30)]);
        assert_eq!(spans(Ending::After(50), 9), [(0, 0, 10), (1, 10, 50)]);
        assert_eq!(spans(Ending::After(25), 9), [(0, 0, 10), (1, 10, 25)]);
        assert_eq!(spans(Ending::After(5), 9), [(0, 0, 5)]);
        assert_eq!(spans(Ending::Never, 9), [(0, 0, 10), (1, 10, u64::MAX)]);
        assert_eq!(spans(Ending::Repeat(Some(45)), 9), [(0, 0, 10), (1, 10, 30), (0, 30, 40), (1, 40, 45)]);
        assert_eq!(spans(Ending::Repeat(None), 3)[2], (0, 30, 40));
    }
}
