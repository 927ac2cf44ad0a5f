//! The fallback where there is no DAMON: `clear_refs` takes back all accessed bits of a process, `smaps` later reports
//! how much was referenced since. The kernel walks all pages for either, so it is done as seldom as the price demands.
//!
//! A cycle clears once, then reads after 1, 2, 5, 10 and 20 seconds: nested windows that share their start, each reported
//! once, when it was read. The next cycle begins where one ends. What the target grew by meanwhile was touched for the
//! first time, not again. A cycle that began in a start-up ends with it, so that the windows after it are of steady use.

use std::collections::HashMap;
use std::time::Instant;

use lowtide_model::cohort::{AgeBin, Estimate, Picture};
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::float;
use lowtide_model::{AGE_EDGES_S, WINDOWS_S};

use super::Target;
use super::mapping_use::{MappingUse, parse_mappings};
use crate::root::{Kernel, Result, UnlessGone};

/// Bytes of both kinds.
type Kinds = PerKind<f64>;

/// What all processes together hold of one object.
#[derive(Debug, Clone, Copy, Default)]
struct Together {
    sum: u64,
    proportional: u64,
    largest: u64,
}

/// Bytes of these mappings, pages that several processes map counted once. Which pages those are `smaps` does not report, so it
/// is the sum, but no more than is there: proportional sizes add up to that where all who map it are among them, and it is no
/// less than what the largest of them has.
fn counted_once(mappings: &[(u32, MappingUse)], get: fn(&MappingUse) -> u64) -> Kinds {
    let mut objects: HashMap<(bool, (u64, u64)), Together> = HashMap::new();
    for (_, mapping) in mappings {
        let of = objects.entry((mapping.file, mapping.object)).or_default();
        of.sum = of.sum.saturating_add(get(mapping));
        of.proportional = of.proportional.saturating_add(mapping.proportional);
        of.largest = of.largest.max(mapping.resident);
    }
    let mut kinds = Kinds::default();
    for ((file, _), of) in objects {
        let bytes = float(of.sum.min(of.proportional.max(of.largest)));
        kinds[if file { Kind::File } else { Kind::Anon }] += bytes;
    }
    kinds
}

/// Seconds after the clear at which a cycle reads, and those of the occasional long one.
const CYCLE_S: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 20.0];
const LONG_CYCLE_S: [f64; 8] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0];
/// One cycle in so many is a long one.
const LONG_EVERY: usize = 3;
/// A reading is one of a window where it was made no further off than this share of it: the price may have it wait.
const NEAR: f64 = 0.1;
/// A growing target is read second by second: what it uses again while it grows is what its memory must hold then.
const GROWING_S: [f64; 1] = [1.0];
/// It grows if it gained this share in the course of a cycle, and no longer if it gained no more than that in a second.
const GREW: f64 = 0.1;
const FLAT: f64 = 0.01;
/// A cycle of chosen windows ends where this share of what there is came after its clear: the program started meanwhile, and what
/// of it is idle is found by a cycle that begins now.
const STARTED: f64 = 0.5;
/// Seconds of that at a time: what grows for ever is read as anything else for a while.
const MOST_GROWING: u32 = 20;
/// A walk over the target that is shorter than this is no longer than ticks are late; seconds.
const SHORT_S: f64 = 0.05;
/// Chosen windows up to here are read in every cycle, seconds.
const SHORT_CYCLE_S: f64 = 10.0;

/// The mappings of the target, when they were last read for schemes or reclaim.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReferencedScan {
    /// Seconds that the accessed bits had been collecting.
    pub window_s: f64,
    /// Each with its process.
    pub mappings: Vec<(u32, MappingUse)>,
}

/// What was referenced since the clear, read once.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Reading {
    /// The window that it counts as.
    window_s: f64,
    used: Kinds,
    /// Of it, what the target grew by since the clear.
    first_touched: Kinds,
    /// All that was resident.
    total: Kinds,
}

/// Bytes that each process has in memory or swapped out.
type Held = HashMap<u32, u64>;

/// The processes that were read, at the clear or since.
#[derive(Debug, Clone, Default)]
struct Processes {
    /// The most that were there at once.
    count: usize,
    /// The most that each held.
    held: Held,
}

impl Processes {
    /// Whether half of them have exited, or freed half of what they held: programs do that before they exit. The accessed bits are
    /// gone with them, and memory that they shared with others, or that is not given back yet, is still there.
    fn are_half_gone(&mut self, now: &Held) -> bool {
        let is_there =
            |(pid, bytes): &(&u32, &u64)| self.held.get(pid).is_none_or(|had| bytes.saturating_mul(2) >= *had);
        let there = now.iter().filter(is_there).count();
        self.count = self.count.max(there).max(1);
        for (pid, bytes) in now {
            let had = self.held.entry(*pid).or_default();
            *had = (*had).max(*bytes);
        }
        there * 2 <= self.count
    }
}

/// A clear and the readings after it.
#[derive(Debug, Clone)]
struct Cycle {
    start_s: f64,
    /// Sizes at the clear, by the target's accounts.
    sizes: Kinds,
    processes: Processes,
    /// When to read, seconds after the clear, ascending.
    due: Vec<f64>,
    readings: Vec<Reading>,
}

impl Cycle {
    /// What its readings hold, and when the last of them was made: what is read when a cycle ends early is none.
    fn histogram(&self) -> Option<(f64, Vec<AgeBin>)> {
        Some((self.start_s + self.readings.last()?.window_s, histogram(&self.readings)))
    }
}

/// The monitor.
#[derive(Debug)]
pub struct SmapsMonitor {
    kernel: Kernel,
    /// Seconds that every cycle reaches, at least, for schemes and reclaim of memory of that idle age.
    reach_s: Option<f64>,
    /// Windows that every cycle reads, with each mapping; empty: those of a record.
    windows: Vec<f64>,
    cycle: Option<Cycle>,
    cycles: usize,
    /// How many cycles have been read second by second, while the target grows; it does when it starts.
    growing: Option<u32>,
    scan: Option<ReferencedScan>,
}

/// Sizes by the accounts.
fn sizes(target: &Target) -> Kinds {
    PerKind { anon: target.totals[0], file: target.totals[1] }
}

impl SmapsMonitor {
    /// A monitor; fails if a process of the target does not let itself be cleared.
    pub fn new(kernel: &Kernel, target: &Target) -> Result<Self> {
        for pid in &target.pids {
            kernel.check_writable(format!("/proc/{pid}/clear_refs")).unless_gone()?;
        }
        let kernel = kernel.clone();
        Ok(Self { kernel, reach_s: None, windows: Vec::new(), cycle: None, cycles: 0, growing: Some(0), scan: None })
    }

    /// Has every cycle reach that far, and read each mapping then.
    pub fn set_reach(&mut self, age_s: f64) {
        self.reach_s = Some(age_s);
    }

    /// Has cycles read these windows (s; of [`AGE_EDGES_S`]), with each mapping: the short ones in every cycle, all in some.
    #[must_use]
    pub fn with_windows(mut self, windows_s: &[u32]) -> Self {
        let edges = AGE_EDGES_S[1..].iter();
        self.windows = edges.filter(|edge| windows_s.contains(edge)).map(|edge| f64::from(*edge)).collect();
        self
    }

    /// When there is something to do next, seconds; at once where no cycle is under way.
    pub fn due_s(&self) -> f64 {
        let next = self.cycle.as_ref().and_then(|cycle| Some(cycle.start_s + cycle.due.first()?));
        next.unwrap_or(f64::NEG_INFINITY)
    }

    /// Whether no cycle is under way: the last is over, or none has begun.
    pub fn is_between_rounds(&self) -> bool {
        self.cycle.is_none()
    }

    /// Takes the last scan, if there was one since.
    pub fn take_scan(&mut self) -> Option<ReferencedScan> {
        self.scan.take()
    }

    /// Whether there is something to do now: a cycle to begin, or a window that has passed.
    pub fn is_due(&self, now_s: f64) -> bool {
        // A tick comes a little early or late.
        now_s >= self.due_s() - 0.05
    }

    /// What is due cannot be paid for now. A window that has passed for long is not read any more, as that would be a reading of
    /// another; a cycle without one left has the next longer one.
    pub fn postpone(&mut self, now_s: f64) {
        if self.is_chosen() {
            return;
        }
        let Some(cycle) = &mut self.cycle else { return };
        let elapsed_s = now_s - cycle.start_s;
        cycle.due.retain(|due_s| elapsed_s <= (1.0 + NEAR) * due_s);
        if cycle.due.is_empty() {
            let edges = AGE_EDGES_S[1..].iter().map(|edge| f64::from(*edge));
            cycle.due.extend(edges.filter(|edge| elapsed_s <= (1.0 + NEAR) * edge).take(1));
        }
    }

    /// Follows the size of the target, at every tick. A cycle in which it begins to grow ends: what is used from then on is mostly
    /// used for the first time.
    pub fn follow(&mut self, now_s: f64, target: &Target) {
        let (size, chosen) = (sizes(target).total(), self.is_chosen());
        if let Some(cycle) = self.cycle.as_mut().filter(|_| self.growing.is_none() && !chosen)
            && size - cycle.sizes.total() > GREW * size
        {
            cycle.due = vec![now_s - cycle.start_s];
            self.growing = Some(0);
        }
    }

    /// Whether the windows were chosen.
    fn is_chosen(&self) -> bool {
        !self.windows.is_empty() || self.reach_s.is_some()
    }

    /// When to read in the next cycle.
    fn plan(&self) -> Vec<f64> {
        let is_long = self.cycles % LONG_EVERY == LONG_EVERY - 1;
        let short = || self.windows.iter().copied().filter(|window_s| is_long || *window_s <= SHORT_CYCLE_S);
        if !self.windows.is_empty() {
            return if short().next().is_some() { short().collect() } else { self.windows.clone() };
        }
        if self.growing.is_some() && !self.is_chosen() {
            return GROWING_S.to_vec();
        }
        let usual: &[f64] = if is_long { &LONG_CYCLE_S } else { &CYCLE_S };
        let Some(age_s) = self.reach_s else { return usual.to_vec() };
        // Every reading costs a walk over the target, and schemes wait for the end of a long cycle.
        let shorter = CYCLE_S.iter().copied().filter(|window_s| is_long && *window_s < age_s - 0.05);
        shorter.chain([age_s]).collect()
    }

    /// Begins a cycle, or reads one window: then the working set of that window. At the end of a cycle also its histogram.
    pub fn step(&mut self, now_s: f64, target: &Target) -> Result<Option<Picture>> {
        let Some(mut cycle) = self.cycle.take() else {
            self.begin(now_s, target, Processes::default())?;
            return Ok(None);
        };
        let began = Instant::now();
        let (mappings, held) = self.read(target)?;
        let elapsed_s = now_s - cycle.start_s;
        cycle.due.retain(|due_s| *due_s > elapsed_s + 0.05);
        let half_gone = !target.pids.is_empty() && cycle.processes.are_half_gone(&held);
        let reading = if half_gone { None } else { read_out(elapsed_s, cycle.sizes, target, &mappings) };
        let size = sizes(target).total();
        let grew = size - cycle.sizes.total() > FLAT * size;
        // A first reading that came too late is made anew: the next of one second would be that of the next cycle.
        if self.growing.is_some_and(|count| (!grew && reading.is_some()) || count >= MOST_GROWING) {
            self.growing = None;
            // A cycle of a second in which it did not grow is the first second of a longer one.
            cycle.due.extend(self.plan().into_iter().filter(|due_s| !grew && *due_s > elapsed_s + 0.05));
        }
        let new = reading.map_or(0.0, |reading| reading.first_touched.total() / reading.total.total().max(1.0));
        let started = self.is_chosen() && new > STARTED;
        let is_over = cycle.due.is_empty() || started;
        if !self.windows.is_empty() || self.reach_s.is_some_and(|reach_s| elapsed_s >= reach_s - 0.05) {
            self.scan = Some(ReferencedScan { window_s: elapsed_s, mappings });
        }
        let mut picture = Picture::default();
        if let Some(reading) = reading {
            cycle.readings.push(reading);
            if let Some(at) =
                WINDOWS_S.iter().position(|window| f64::from(*window).total_cmp(&reading.window_s).is_eq())
            {
                let bytes = reading.used.total();
                picture.working_set[at] = Some(Estimate { bytes, ci95: 0.0 });
            }
        }
        picture.is_partial = !is_over;
        if let Some((read_s, ages)) = cycle.histogram() {
            (picture.ages_read_s, picture.ages) = (Some(read_s), ages);
        }
        if is_over {
            match &mut self.growing {
                Some(count) => *count += 1,
                None => self.cycles += usize::from(!started),
            }
            if self.windows.is_empty() {
                // The walk over a large target takes a while, and the bits are cleared after it.
                let walked_s = began.elapsed().as_secs_f64();
                let processes = Processes { count: held.len(), held };
                self.begin(now_s + if walked_s > SHORT_S { walked_s } else { 0.0 }, target, processes)?;
            }
        } else {
            self.cycle = Some(cycle);
        }
        Ok(Some(picture))
    }

    /// The histogram of a cycle that will not be read to its end, and when it was last read.
    pub fn finish(&mut self) -> Option<(f64, Vec<AgeBin>)> {
        self.cycle.take()?.histogram()
    }

    /// The mappings that have anything in memory, and what the processes hold that have any.
    fn read(&self, target: &Target) -> Result<(Vec<(u32, MappingUse)>, Held)> {
        let (mut all, mut held) = (Vec::new(), Held::new());
        for pid in &target.pids {
            let path = format!("/proc/{pid}/smaps");
            let Some(text) = self.kernel.read_text(path).unless_gone()? else { continue };
            let mappings = parse_mappings(&text);
            let bytes = mappings.iter().map(|mapping| mapping.resident.saturating_add(mapping.swapped));
            let bytes = bytes.fold(0, u64::saturating_add);
            if bytes > 0 {
                held.insert(*pid, bytes);
            }
            all.extend(mappings.into_iter().filter(|mapping| mapping.resident > 0).map(|mapping| (*pid, mapping)));
        }
        Ok((all, held))
    }

    /// Begins a cycle.
    fn begin(&mut self, now_s: f64, target: &Target, processes: Processes) -> Result<()> {
        for pid in &target.pids {
            self.kernel.write(format!("/proc/{pid}/clear_refs"), "1").unless_gone()?;
        }
        let (sizes, due) = (sizes(target), self.plan());
        self.cycle = Some(Cycle { start_s: now_s, sizes, processes, due, readings: Vec::new() });
        Ok(())
    }
}

/// A reading so long after the clear; `None` where that is near no edge of the histogram.
fn read_out(elapsed_s: f64, then: Kinds, target: &Target, mappings: &[(u32, MappingUse)]) -> Option<Reading> {
    let off = |edge: f64| (edge - elapsed_s).abs();
    let edges = AGE_EDGES_S[1..].iter().map(|edge| f64::from(*edge));
    let window_s = edges.min_by(|a, b| off(*a).total_cmp(&off(*b))).filter(|edge| off(*edge) <= NEAR * edge)?;
    let (mut used, mut total) =
        (counted_once(mappings, |mapping| mapping.referenced), counted_once(mappings, |mapping| mapping.resident));
    if target.exact[0] {
        total.anon = target.totals[0];
    }
    // Pages of files that others were charged for are in no budget of the target.
    total.file = target.mapped.map_or(total.file, |mapped| total.file.min(mapped));
    (used.anon, used.file) = (used.anon.min(total.anon), used.file.min(total.file));
    let now = sizes(target);
    let first_touched = PerKind::from_fn(|kind| (now[kind] - then[kind]).clamp(0.0, used[kind]));
    Some(Reading { window_s, used, first_touched, total })
}

/// Nested readings as a histogram: what each window holds beyond the one before.
fn histogram(readings: &[Reading]) -> Vec<AgeBin> {
    let Some(last) = readings.last() else { return Vec::new() };
    let mut bins = Vec::new();
    for kind in Kind::ALL {
        let anon = kind == Kind::Anon;
        let (mut reached, mut new, mut min_s) = (0.0, 0.0, 0.0);
        for reading in readings {
            let (used, first) = (reading.used[kind].max(reached), reading.first_touched[kind].max(new));
            bins.push(AgeBin {
                anon,
                min_s,
                max_s: Some(reading.window_s),
                size: Estimate { bytes: used - reached, ci95: 0.0 },
                first_touched: Some((first - new).min(used - reached)),
            });
            (reached, new, min_s) = (used, first, reading.window_s);
        }
        let size = Estimate { bytes: (last.total[kind] - reached).max(0.0), ci95: 0.0 };
        bins.push(AgeBin { anon, min_s, max_s: None, size, first_touched: Some(0.0) });
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: f64 = 1_048_576.0;

    fn mapping(pid: u32, object: u64, [resident, proportional, referenced]: [u64; 3]) -> (u32, MappingUse) {
        let (object, file) = ((object, 0), true);
        (pid, MappingUse { resident, proportional, referenced, object, file, ..MappingUse::default() })
    }

    #[test]
    fn pages_that_processes_share_are_counted_once() {
        // Three workers map the same 10 and use 8 of it; a fourth has 5 of another file to itself.
        let all =
            [mapping(1, 7, [10, 4, 8]), mapping(2, 7, [10, 3, 8]), mapping(3, 7, [10, 3, 8]), mapping(4, 9, [5, 5, 5])];
        let used = counted_once(&all, |mapping| mapping.referenced);
        assert_eq!(used, PerKind { anon: 0.0, file: 15.0 }, "no more than is there, and not 29");
        assert_eq!(counted_once(&all[..1], |mapping| mapping.referenced).file, 8.0);
        // Two pairs that share different parts of a file.
        let pairs = [1, 2, 3, 4].map(|pid| mapping(pid, 7, [10, 5, 9]));
        assert_eq!(counted_once(&pairs, |mapping| mapping.referenced).file, 20.0);
        assert_eq!(counted_once(&pairs, |mapping| mapping.resident).file, 20.0);
    }

    /// Steps a monitor of no processes through these times.
    fn run(monitor: &mut SmapsMonitor, times: &[f64], size: impl Fn(f64) -> f64) -> Vec<(f64, Picture)> {
        let mut pictures = Vec::new();
        for now_s in times {
            let target = Target { totals: [size(*now_s), 0.0, 0.0], ..Target::default() };
            monitor.follow(*now_s, &target);
            if monitor.is_due(*now_s)
                && let Some(picture) = monitor.step(*now_s, &target).unwrap()
            {
                pictures.push((*now_s, picture));
            }
        }
        pictures
    }

    fn ticks(count: u32) -> Vec<f64> {
        (0..count).map(f64::from).collect()
    }

    #[test]
    fn each_window_of_a_cycle_is_reported_once_and_cycles_follow_each_other() {
        let mut monitor = SmapsMonitor::new(&Kernel::at("/nonexistent"), &Target::default()).unwrap();
        let pictures = run(&mut monitor, &ticks(46), |_| 10.0 * MIB);
        let windows: Vec<(f64, Vec<u32>)> = pictures
            .iter()
            .map(|(t_s, of)| {
                (
                    *t_s,
                    WINDOWS_S.iter().zip(&of.working_set).filter(|(_, set)| set.is_some()).map(|(w, _)| *w).collect(),
                )
            })
            .collect();
        let expected: Vec<(f64, Vec<u32>)> = [
            (1.0, vec![1]),
            (2.0, vec![]),
            (5.0, vec![5]),
            (10.0, vec![10]),
            (20.0, vec![]),
            (21.0, vec![1]),
            (22.0, vec![]),
            (25.0, vec![5]),
            (30.0, vec![10]),
            (40.0, vec![]),
            (41.0, vec![1]),
            (42.0, vec![]),
            (45.0, vec![5]),
        ]
        .into();
        assert_eq!(windows, expected);
        let edges = |picture: &Picture| -> Vec<f64> { picture.ages.iter().filter_map(|bin| bin.max_s).collect() };
        let histograms: Vec<f64> = pictures.iter().filter(|(_, of)| !of.is_partial).map(|(t_s, _)| *t_s).collect();
        assert_eq!(histograms, [20.0, 40.0], "no row repeats another");
        assert_eq!(edges(&pictures[4].1), [1.0, 2.0, 5.0, 10.0, 20.0, 1.0, 2.0, 5.0, 10.0, 20.0]);
        // The third cycle goes on to two minutes; what it had read is not lost when the target ends.
        assert_eq!(monitor.due_s(), 50.0);
        let (read_s, bins) = monitor.finish().unwrap();
        assert_eq!((read_s, bins.iter().filter(|bin| bin.anon && bin.max_s.is_some()).count()), (45.0, 3));
    }

    #[test]
    fn a_late_reading_is_one_of_the_window_that_it_was_made_after() {
        let mut monitor = SmapsMonitor::new(&Kernel::at("/nonexistent"), &Target::default()).unwrap();
        // Three seconds are near no edge: the first second is read anew.
        let pictures = run(&mut monitor, &[0.0, 3.0, 4.0, 7.0, 13.5, 34.0, 35.0], |_| MIB);
        let ends = pictures.iter().filter(|(_, of)| !of.is_partial);
        let edges: Vec<f64> = ends.flat_map(|(_, of)| &of.ages).filter_map(|bin| bin.max_s).collect();
        assert_eq!(edges, [1.0, 10.0, 30.0, 1.0, 10.0, 30.0], "nor later");
        assert!(pictures[3].1.working_set[2].is_some() && pictures[4].1.working_set[3].is_some());
    }

    #[test]
    fn a_window_that_cannot_be_paid_for_gives_way_to_the_next() {
        let mut monitor = SmapsMonitor::new(&Kernel::at("/nonexistent"), &Target::default()).unwrap();
        run(&mut monitor, &[0.0, 1.0], |_| MIB);
        assert_eq!(monitor.due_s(), 2.0);
        for (now_s, due_s) in [(2.1, 2.0), (2.5, 5.0), (12.0, 20.0), (25.0, 30.0), (100.0, 120.0)] {
            monitor.postpone(now_s);
            assert_eq!(monitor.due_s(), due_s, "at {now_s}");
        }
        // Nothing longer is known: what is read then ends the cycle.
        monitor.postpone(140.0);
        assert!(monitor.is_due(140.0));
        assert_eq!(run(&mut monitor, &[150.0], |_| MIB).len(), 1);
        assert!(!monitor.is_due(150.0));
    }

    #[test]
    fn what_grows_is_read_second_by_second() {
        let mut monitor = SmapsMonitor::new(&Kernel::at("/nonexistent"), &Target::default()).unwrap();
        let grows = |t_s: f64| MIB * (1.0 + 100.0 * t_s.min(6.0));
        let pictures = run(&mut monitor, &ticks(30), grows);
        let ends = |pictures: &[(f64, Picture)]| -> Vec<f64> {
            pictures.iter().filter(|(_, of)| !of.is_partial).map(|(t_s, _)| *t_s).collect()
        };
        // Until the sixth second; a cycle that begins then goes on, and is the first.
        assert_eq!(ends(&pictures), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 26.0]);
        let first = |from_s: f64| -> f64 {
            let bins = pictures.iter().filter(|(t_s, _)| *t_s > from_s).flat_map(|(_, of)| &of.ages);
            bins.filter_map(|bin| bin.first_touched).sum()
        };
        assert_eq!(first(6.5), 0.0);
        // What begins to grow later ends the cycle it was in.
        let mut monitor = SmapsMonitor::new(&Kernel::at("/nonexistent"), &Target::default()).unwrap();
        let later = run(&mut monitor, &ticks(30), |t_s| MIB * (100.0 + 50.0 * (t_s - 6.0).clamp(0.0, 4.0)));
        assert_eq!(ends(&later), [7.0, 8.0, 9.0, 10.0]);
        // What never ends to grow is read as anything else from time to time.
        let mut monitor = SmapsMonitor::new(&Kernel::at("/nonexistent"), &Target::default()).unwrap();
        let always = run(&mut monitor, &ticks(60), |t_s| MIB * 1.02f64.powf(t_s));
        assert_eq!(ends(&always)[..21], (1..=21).map(f64::from).collect::<Vec<f64>>());
        assert!(ends(&always)[21] > 25.0, "{:?}", ends(&always));
    }

    #[test]
    fn what_the_target_grew_by_was_not_used_again() {
        let all = [(1, MappingUse { resident: 100, referenced: 80, ..MappingUse::default() })];
        let target = Target { totals: [100.0, 0.0, 0.0], exact: [true, false, true], ..Target::default() };
        let reading = |then| read_out(5.2, PerKind { anon: then, file: 0.0 }, &target, &all).unwrap();
        assert_eq!((reading(70.0).window_s, reading(70.0).first_touched.anon), (5.0, 30.0));
        assert_eq!(reading(0.0).first_touched.anon, 80.0, "no more than was used");
        assert_eq!(reading(120.0).first_touched.anon, 0.0);
        let bins = histogram(&[reading(70.0)]);
        assert_eq!((bins[0].size.bytes, bins[0].first_touched, bins[1].size.bytes), (80.0, Some(30.0), 20.0));
    }

    /// A parent that waits for its workers holds the memory that they used.
    #[test]
    fn no_window_is_read_when_half_of_the_processes_have_exited() {
        let dir = tempfile::tempdir().unwrap();
        let smaps = |pid: u32, referenced: u32| {
            let folder = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("clear_refs"), "").unwrap();
            let text = format!("1000-9000 rw-p 0 00:00 0\nRss: 100 kB\nPss: 25 kB\nReferenced: {referenced} kB\n");
            std::fs::write(folder.join("smaps"), if referenced == 0 { String::new() } else { text }).unwrap();
        };
        let target = Target { pids: vec![1, 2, 3, 4], totals: [102_400.0, 0.0, 0.0], ..Target::default() };
        smaps(1, 1);
        (2..5).for_each(|pid| smaps(pid, 60));
        let mut monitor = SmapsMonitor::new(&Kernel::at(dir.path()), &target).unwrap();
        monitor.growing = None;
        let mut used =
            |now_s| monitor.step(now_s, &target).unwrap().and_then(|of| of.working_set.into_iter().flatten().next());
        assert_eq!(used(0.0), None);
        assert_eq!(used(1.0).unwrap().bytes, 102_400.0);
        smaps(4, 0);
        assert_eq!(used(5.0).unwrap().bytes, 102_400.0, "most are left");
        // The parent, which uses nothing, and one worker: what the others used is not counted.
        smaps(3, 0);
        assert_eq!(used(10.0), None);
    }

    #[test]
    fn processes_that_freed_half_of_what_they_held_are_as_good_as_gone() {
        let held = |bytes: [u64; 4]| (1..).zip(bytes).filter(|(_, bytes)| *bytes > 0).collect::<Held>();
        let mut processes = Processes { count: 4, held: held([100; 4]) };
        assert!(!processes.are_half_gone(&held([100, 90, 120, 40])), "one of four");
        assert!(processes.are_half_gone(&held([100, 90, 59, 40])), "two: one held 120");
        assert!(processes.are_half_gone(&held([100, 4, 0, 4])));
        // Of jobs that come and go there are as many.
        let mut jobs = Processes { count: 2, held: held([100, 100, 0, 0]) };
        assert!(!jobs.are_half_gone(&held([0, 0, 7, 7])));
        // A program that unmaps its heap before it exits.
        let mut alone = Processes { count: 1, held: held([100, 0, 0, 0]) };
        assert!(!alone.are_half_gone(&held([101, 0, 0, 0])));
        assert!(alone.are_half_gone(&held([1, 0, 0, 0])));
    }

    #[test]
    fn cycles_of_chosen_windows_read_mappings_at_each() {
        let monitor = SmapsMonitor::new(&Kernel::at("/nonexistent"), &Target::default()).unwrap();
        let mut monitor = monitor.with_windows(&[10, 30, 7]);
        let mut scans = Vec::new();
        monitor.cycles = 1;
        for now_s in [0.0, 9.0, 10.0, 10.0, 20.0, 40.0, 40.5] {
            if monitor.is_due(now_s) {
                monitor.step(now_s, &Target::default()).unwrap();
            }
            scans.push((monitor.take_scan().map(|scan| scan.window_s), monitor.is_between_rounds()));
        }
        let short = [(None, false), (None, false), (Some(10.0), true)];
        let long = [(None, false), (Some(10.0), false), (Some(30.0), true), (None, false)];
        assert_eq!(scans, [&short[..], &long[..]].concat());
        assert_eq!(monitor.due_s(), 50.5);
    }

    #[test]
    fn a_cycle_in_which_the_program_started_ends() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("proc/1");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("clear_refs"), "").unwrap();
        std::fs::write(folder.join("smaps"), "1000-9000 rw-p 0 00:00 0\nRss: 1024 kB\nReferenced: 1024 kB\n").unwrap();
        let monitor = SmapsMonitor::new(&Kernel::at(dir.path()), &Target::default()).unwrap();
        let mut monitor = monitor.with_windows(&[1, 2, 5]);
        let mut step = |now_s, anon: f64| {
            let target = Target { pids: vec![1], totals: [anon, 0.0, 0.0], exact: [true; 3], ..Target::default() };
            let picture = monitor.step(now_s, &target).unwrap();
            (picture.map(|picture| picture.is_partial), monitor.is_between_rounds())
        };
        assert_eq!([step(0.0, 0.0), step(1.0, MIB)], [(None, false), (Some(false), true)]);
        // The next grows by a third, and is read to its end.
        let steps = [step(1.0, 0.7 * MIB), step(2.0, MIB), step(3.0, MIB), step(6.0, MIB)];
        assert_eq!(steps, [(None, false), (Some(true), false), (Some(true), false), (Some(false), true)]);
    }

    #[test]
    fn cycles_reach_as_far_as_schemes_need() {
        let mut monitor = SmapsMonitor::new(&Kernel::at("/nonexistent"), &Target::default()).unwrap();
        assert_eq!(monitor.plan(), GROWING_S);
        monitor.growing = None;
        assert_eq!(monitor.plan(), CYCLE_S);
        monitor.set_reach(2.0);
        monitor.cycles = 1;
        assert_eq!(monitor.plan(), [2.0]);
        monitor.cycles = 2;
        assert_eq!(monitor.plan(), [1.0, 2.0]);
        let mut scanned = Vec::new();
        for now_s in [0.0, 1.0, 2.0, 2.1, 4.0] {
            if monitor.is_due(now_s) {
                monitor.step(now_s, &Target::default()).unwrap();
            }
            scanned.push(monitor.take_scan().is_some());
        }
        assert_eq!(scanned, [false, false, true, false, true], "a cycle begins where the one before ends");
    }

    proptest! {
        #[test]
        fn nested_windows_hold_no_less(
            readings in prop::collection::vec((0.0f64..1e9, 0.0f64..1e9, 0.0f64..1e9), 1..6),
        ) {
            let readings: Vec<Reading> = readings.iter().zip(CYCLE_S).map(|((used, first, total), window_s)| Reading {
                window_s,
                used: PerKind { anon: *used, file: 0.0 },
                first_touched: PerKind { anon: *first, file: 0.0 },
                total: PerKind { anon: *total, file: 0.0 },
            }).collect();
            for bin in histogram(&readings) {
                prop_assert!(bin.size.bytes >= 0.0);
                prop_assert!(bin.first_touched.is_some_and(|first| (0.0..=bin.size.bytes + 1e-6).contains(&first)));
            }
        }
    }
}
