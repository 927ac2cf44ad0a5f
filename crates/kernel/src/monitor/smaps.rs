//! The fallback where there is no DAMON: `clear_refs` takes back all accessed bits of a process, `smaps` later tells
//! how much was referenced since. The kernel walks all pages for either, so it is done as seldom as the price demands.
//!
//! One round clears, then reads after 1, 5, 10, … seconds: the referenced bytes are the working sets of these windows.
//! A row of the record holds only the window that was read at its time. Whoever acts on memory of some idle age has every
//! round reach that far, and is told of each mapping.

use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{AgeBin, Estimate, Picture};

use super::Target;
use crate::proc::parse_mapping;
use crate::root::{Kernel, Result, keyed};

/// Referenced bytes of one process, anonymous and file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Referenced {
    /// In anonymous mappings, heap and stacks.
    pub anon: u64,
    /// In mappings of files.
    pub file: u64,
}

/// The use of one mapping since the accessed bits were taken back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MappingUse {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Bytes in memory.
    pub resident: u64,
    /// Of them, used.
    pub referenced: u64,
    /// Bytes that are parts of huge pages.
    pub huge: u64,
    /// Whether it is a file's.
    pub file: bool,
    /// Whether its pages cannot be reclaimed: locked, device memory, pages of hugetlbfs.
    pub fixed: bool,
}

/// The mappings of an smaps file. A line that starts with an address range opens one; one whose inode is not 0 is a file's.
#[must_use]
pub fn parse_mappings(text: &str) -> Vec<MappingUse> {
    let mut mappings: Vec<MappingUse> = Vec::new();
    for line in text.lines() {
        if let Some(mapping) =
            line.split(' ').next().filter(|word| !word.ends_with(':')).and_then(|_| parse_mapping(line))
        {
            let file = line.split_whitespace().nth(4).is_some_and(|inode| inode != "0");
            mappings.push(MappingUse { start: mapping.start, end: mapping.end, file, ..MappingUse::default() });
            continue;
        }
        let Some(last) = mappings.last_mut() else { continue };
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            // Those that the kernel will not advise on (mm/madvise.c, can_madv_lru_vma).
            last.fixed = flags.split_whitespace().any(|flag| ["lo", "pf", "ht"].contains(&flag));
            continue;
        }
        match keyed(line).next() {
            Some(("Rss", bytes)) => last.resident = bytes,
            Some(("Referenced", bytes)) => last.referenced = bytes,
            Some(("AnonHugePages", bytes)) => last.huge = bytes,
            _ => {}
        }
    }
    mappings
}

/// Sums what was used.
fn referenced(mappings: &[MappingUse]) -> Referenced {
    let mut sum = Referenced::default();
    for mapping in mappings {
        *(if mapping.file { &mut sum.file } else { &mut sum.anon }) += mapping.referenced;
    }
    sum
}

/// How many windows the rounds reach: mostly the shortest, now and then ten seconds, seldom two minutes.
const REACHES: [usize; 9] = [3, 1, 1, 1, 3, 1, 1, 1, WINDOWS_S.len()];

/// The mappings of the target, when they were last looked at for whoever acts on them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// Seconds that the accessed bits had been collecting.
    pub window_s: f64,
    /// Each with its process.
    pub mappings: Vec<(u32, MappingUse)>,
}

/// The monitor.
#[derive(Debug)]
pub struct SmapsMonitor {
    kernel: Kernel,
    /// Seconds that every round reaches, at least, for whoever acts on memory of that idle age.
    reach_s: Option<f64>,
    /// Windows that every round reads and tells of each mapping; empty: those of a record, in turns.
    windows: Vec<usize>,
    cleared_s: Option<f64>,
    /// When to read in this round, and which window that is.
    readings: Vec<(f64, Option<usize>)>,
    rounds: usize,
    sets: [Option<Referenced>; WINDOWS_S.len()],
    look: Option<Look>,
}

impl SmapsMonitor {
    /// A monitor; fails if a process of the target does not let itself be cleared.
    pub fn new(kernel: &Kernel, target: &Target) -> Result<Self> {
        for pid in &target.pids {
            match kernel.check_writable(format!("/proc/{pid}/clear_refs")) {
                Err(e) if !e.is_gone() => return Err(e),
                _ => {}
            }
        }
        let sets = [None; WINDOWS_S.len()];
        let kernel = kernel.clone();
        let windows = Vec::new();
        Ok(Self { kernel, reach_s: None, windows, cleared_s: None, readings: Vec::new(), rounds: 0, sets, look: None })
    }

    /// Has every round reach that far, and tell of each mapping then.
    pub fn look_after(&mut self, age_s: f64) {
        self.reach_s = Some(age_s);
    }

    /// Has every round read these windows (s; of [`WINDOWS_S`]), and tell of each mapping every time.
    #[must_use]
    pub fn of_windows(mut self, windows_s: &[u32]) -> Self {
        self.windows = (0..WINDOWS_S.len()).filter(|at| windows_s.contains(&WINDOWS_S[*at])).collect();
        self
    }

    /// When there is something to do next, seconds; at once where no round is under way.
    #[must_use]
    pub fn due_s(&self) -> f64 {
        let next = self.cleared_s.zip(self.readings.first());
        next.map_or(f64::NEG_INFINITY, |(cleared_s, (at_s, _))| cleared_s + at_s)
    }

    /// Whether no round is under way: the last is over, or none has begun.
    #[must_use]
    pub fn is_between_rounds(&self) -> bool {
        self.cleared_s.is_none()
    }

    /// Takes the last look, if there was one since.
    pub fn take_look(&mut self) -> Option<Look> {
        self.look.take()
    }

    /// Whether there is something to do now: a round to begin, or a window that has passed.
    #[must_use]
    pub fn is_due(&self, now_s: f64) -> bool {
        let Some(cleared) = self.cleared_s else { return true };
        // A tick comes a little early or late.
        self.readings.first().is_none_or(|(at_s, _)| now_s - cleared >= at_s - 0.05)
    }

    /// When to read in the next round.
    fn plan(&self) -> Vec<(f64, Option<usize>)> {
        if !self.windows.is_empty() {
            return self.windows.iter().map(|at| (f64::from(WINDOWS_S[*at]), Some(*at))).collect();
        }
        let reach = REACHES[self.rounds % REACHES.len()];
        let mut readings: Vec<(f64, Option<usize>)> =
            WINDOWS_S.iter().take(reach).enumerate().map(|(at, window)| (f64::from(*window), Some(at))).collect();
        if let Some(age_s) = self.reach_s {
            let window = WINDOWS_S.iter().position(|window| (f64::from(*window) - age_s).abs() < 0.05);
            if !readings.iter().any(|(at_s, _)| (at_s - age_s).abs() < 0.05) {
                readings.push((age_s, window));
            }
            // Every reading costs a walk over the target, and a long round keeps waiting whoever acts.
            let farthest = if self.rounds % 3 == 2 { age_s } else { 0.0 };
            readings.retain(|(at_s, _)| *at_s <= farthest || (at_s - age_s).abs() < 0.05);
            readings.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        }
        readings
    }

    /// Begins a round, or reads one window; then the picture of what was read in this round.
    pub fn step(&mut self, now_s: f64, target: &Target) -> Result<Option<Picture>> {
        let Some(cleared_s) = self.cleared_s else {
            self.begin(now_s, target)?;
            return Ok(None);
        };
        let mut all = Vec::new();
        let mut sum = Referenced::default();
        for pid in &target.pids {
            let text = match self.kernel.read_text(format!("/proc/{pid}/smaps")) {
                Err(e) if e.is_gone() => continue,
                other => other?,
            };
            let mappings = parse_mappings(&text);
            let Referenced { anon, file } = referenced(&mappings);
            (sum.anon, sum.file) = (sum.anon + anon, sum.file + file);
            if self.reach_s.is_some() || !self.windows.is_empty() {
                all.extend(mappings.into_iter().filter(|mapping| mapping.resident > 0).map(|mapping| (*pid, mapping)));
            }
        }
        let (at_s, window) = if self.readings.is_empty() { (0.0, None) } else { self.readings.remove(0) };
        if !self.windows.is_empty() || self.reach_s.is_some_and(|reach_s| at_s >= reach_s - 0.05) {
            self.look = Some(Look { window_s: now_s - cleared_s, mappings: all });
        }
        let picture = window.map(|window| {
            self.sets[window] = Some(sum);
            self.picture(window, target)
        });
        if self.readings.is_empty() {
            self.rounds += 1;
            self.cleared_s = None;
            if self.reach_s.is_some() {
                self.begin(now_s, target)?;
            }
        }
        Ok(picture)
    }

    /// Begins a round.
    fn begin(&mut self, now_s: f64, target: &Target) -> Result<()> {
        for pid in &target.pids {
            match self.kernel.write(format!("/proc/{pid}/clear_refs"), "1") {
                Err(e) if !e.is_gone() => return Err(e),
                _ => {}
            }
        }
        (self.cleared_s, self.readings) = (Some(now_s), self.plan());
        self.sets = [None; WINDOWS_S.len()];
        Ok(())
    }

    fn picture(&self, window: usize, target: &Target) -> Picture {
        #[expect(clippy::cast_precision_loss, reason = "sizes of memory")]
        let sizes = |set: &Referenced| [set.anon as f64, set.file as f64];
        let mut picture = Picture::default();
        picture.working_set[window] =
            self.sets[window].as_ref().map(|set| Estimate { bytes: sizes(set).iter().sum(), ci95: 0.0 });
        for (anon, side) in [(true, 0), (false, 1)] {
            let total = if anon { target.totals[0] } else { target.totals[1] };
            let (mut reached, mut min_s) = (0.0, 0.0);
            for (window, set) in WINDOWS_S.iter().zip(&self.sets) {
                let Some(set) = set else { continue };
                let bytes = (sizes(set)[side] - reached).max(0.0);
                let max_s = f64::from(*window);
                picture.ages.push(AgeBin { anon, min_s, max_s: Some(max_s), size: Estimate { bytes, ci95: 0.0 } });
                (reached, min_s) = (reached + bytes, max_s);
            }
            let size = Estimate { bytes: (total - reached).max(0.0), ci95: 0.0 };
            picture.ages.push(AgeBin { anon, min_s, max_s: None, size });
        }
        picture
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn anonymous_and_file_mappings_are_told_apart() {
        let text = "7f00-7f10 rw-p 00000000 00:00 0 \nRss: 8 kB\nReferenced:            4 kB\n7f20-7f30 r--p 00000000 fe:00 77 /lib/x\nReferenced:  12 kB\nVmFlags: rd\nffff-fffff rw-p 00000000 00:00 0 [stack]\nReferenced: 8 kB\n";
        let mappings = parse_mappings(text);
        assert_eq!(referenced(&mappings), Referenced { anon: 12288, file: 12288 });
        assert_eq!((mappings[0].start, mappings[0].end, mappings[0].resident), (0x7f00, 0x7f10, 8192));
        assert!(!mappings[1].fixed && mappings[1].file);
        assert!(parse_mappings("1000-2000 rw-p 0 00:00 0\nVmFlags: rd wr mr lo\n")[0].fixed);
    }

    #[test]
    fn rounds_of_chosen_windows_tell_of_mappings_at_each() {
        let monitor = SmapsMonitor::new(&Kernel::at("/nonexistent"), &Target::default()).unwrap();
        let mut monitor = monitor.of_windows(&[10, 30, 7]);
        let mut looks = Vec::new();
        for now_s in [0.0, 9.0, 10.0, 30.0, 30.5] {
            if monitor.is_due(now_s) {
                monitor.step(now_s, &Target::default()).unwrap();
            }
            looks.push((monitor.take_look().map(|look| look.window_s), monitor.is_between_rounds()));
        }
        assert_eq!(looks, [(None, false), (None, false), (Some(10.0), false), (Some(30.0), true), (None, false)]);
        assert_eq!(monitor.due_s(), 40.5);
    }

    #[test]
    fn rounds_reach_as_far_as_whoever_acts_needs() {
        let mut monitor = SmapsMonitor::new(&Kernel::at("/nonexistent"), &Target::default()).unwrap();
        assert_eq!(monitor.plan(), [(1.0, Some(0)), (5.0, Some(1)), (10.0, Some(2))]);
        monitor.look_after(2.0);
        monitor.rounds = 8;
        assert_eq!(monitor.plan(), [(1.0, Some(0)), (2.0, None)]);
        monitor.rounds = 1;
        assert_eq!(monitor.plan(), [(2.0, None)]);
        monitor.rounds = 2;
        let mut looked = Vec::new();
        for now_s in [0.0, 1.0, 2.0, 2.1, 4.0] {
            if monitor.is_due(now_s) {
                monitor.step(now_s, &Target::default()).unwrap();
            }
            looked.push(monitor.take_look().is_some());
        }
        assert_eq!(looked, [false, false, true, false, true], "a round begins where the one before ends");
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = parse_mappings(&text);
        }
    }
}
