//! Idle ages from the multi-generational LRU: the kernel is asked for a new generation at chosen times, so that births
//! lie where the histogram's edges are to be.
//!
//! The kernel keeps four generations, hence three births before the one just made, of which the oldest bounds nothing: a
//! round yields two windows. The rounds take turns, mostly the short ones.

use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{Estimate, Picture, used_within};
use lowtide_model::generations::{Generation, histogram};

use super::Target;
use crate::lru_gen::{LruGen, Lruvec};
use crate::root::{Error, Kernel, Result};

/// One round: two windows (s), known when it ends, after the longer one.
type Round = (u32, u32);

const SHORT: Round = (1, 5);
const MIDDLE: Round = (10, 30);
const LONG: Round = (60, 120);

/// The rounds in turn. Many programs live for a minute: a middle one comes early, after enough short ones to see past
/// the start.
const ROUNDS: [Round; 16] =
    [SHORT, SHORT, SHORT, SHORT, MIDDLE, SHORT, SHORT, SHORT, SHORT, SHORT, MIDDLE, SHORT, SHORT, SHORT, SHORT, LONG];

/// A generation of so few seconds was made just now; the walk over a large target takes its time.
const NOW_S: f64 = 0.6;

/// When the next generation is made.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Schedule {
    started_s: f64,
    round: usize,
    /// The birth in the middle of the round is over.
    second_half: bool,
}

impl Schedule {
    fn round(&self) -> Round {
        ROUNDS[self.round % ROUNDS.len()]
    }

    fn due_s(&self) -> f64 {
        let (short, long) = self.round();
        self.started_s + f64::from(if self.second_half { long } else { long - short })
    }

    /// Takes the next step, at `now_s`; true if it ended a round.
    fn step(&mut self, now_s: f64) -> bool {
        if self.second_half {
            (self.started_s, self.round) = (now_s, self.round + 1);
        }
        self.second_half = !self.second_half;
        !self.second_half
    }
}

/// The monitor.
#[derive(Debug)]
pub struct MglruMonitor {
    lru: LruGen,
    /// Path of the target's cgroup below the root of all; empty for everything.
    prefix: String,
    schedule: Option<Schedule>,
    /// What was read last.
    lruvecs: Vec<Lruvec>,
    /// New generations that were asked for, and those that were not made.
    asked: (u64, u64),
}

impl MglruMonitor {
    /// A monitor of the target's cgroup, or of everything.
    pub fn new(kernel: &Kernel, target: &Target) -> Result<Self> {
        let prefix = match &target.cgroup {
            _ if target.system => String::new(),
            Some(cgroup) => cgroup.hierarchy_path(kernel)?,
            None => {
                let why = std::io::Error::other("the target has no memory cgroup of its own");
                return Err(Error::new("read generations of", "the target", why));
            }
        };
        let prefix = prefix.trim_end_matches('/').to_owned();
        Ok(Self { lru: LruGen::open(kernel)?, prefix, schedule: None, lruvecs: Vec::new(), asked: (0, 0) })
    }

    /// Whether there is something to do now.
    #[must_use]
    pub fn is_due(&self, now_s: f64) -> bool {
        // A tick comes a little early or late.
        self.schedule.is_none_or(|schedule| now_s >= schedule.due_s() - 0.05)
    }

    /// Makes a new generation everywhere in the target; at the end of a round, the picture.
    pub fn step(&mut self, now_s: f64) -> Result<Option<Picture>> {
        if self.schedule.is_none() {
            self.read()?;
        }
        // Thousands of cgroups of a machine hold nothing: they have nothing to age.
        self.lru.age(self.lruvecs.iter().filter(|lruvec| !lruvec.is_empty()))?;
        // The kernel's word is not taken for it: the ages in the file are what the picture is made from.
        self.read()?;
        let full = || self.lruvecs.iter().filter(|lruvec| !lruvec.is_empty());
        let young = |lruvec: &&Lruvec| lruvec.generations.last().is_some_and(|youngest| youngest.age_s < NOW_S);
        self.asked.0 += full().count() as u64;
        self.asked.1 += full().filter(|lruvec| !young(lruvec)).count() as u64;
        let Some(schedule) = &mut self.schedule else {
            self.schedule = Some(Schedule { started_s: now_s, round: 0, second_half: false });
            return Ok(None);
        };
        let windows = schedule.round();
        Ok(schedule.step(now_s).then(|| self.picture(windows)))
    }

    fn read(&mut self) -> Result<()> {
        let (all, prefix) = (self.lru.read()?, self.prefix.as_str());
        let below = |path: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.lruvecs = all.into_iter().filter(|lruvec| below(&lruvec.path)).collect();
        Ok(())
    }

    fn picture(&self, (short, long): Round) -> Picture {
        let lists: Vec<Vec<Generation>> = self.lruvecs.iter().map(|lruvec| lruvec.generations.clone()).collect();
        let mut picture = Picture { ages: histogram(&lists, &[short, long]), ..Picture::default() };
        for (window, at) in WINDOWS_S.iter().zip(&mut picture.working_set) {
            let used = used_within(picture.ages.iter(), f64::from(*window));
            *at = used.map(|bytes| Estimate { bytes, ci95: 0.0 });
        }
        picture
    }

    /// New generations asked for, and how many of them were not made: births are not where they were wanted then, and
    /// windows are missing.
    #[must_use]
    pub fn asked(&self) -> (u64, u64) {
        self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Cgroup;

    #[test]
    fn births_lie_where_the_edges_are() {
        let mut schedule = Schedule { started_s: 10.0, round: 0, second_half: false };
        assert_eq!(schedule.due_s(), 14.0);
        assert!(!schedule.step(14.0));
        assert_eq!(schedule.due_s(), 15.0);
        assert!(schedule.step(15.0));
        assert_eq!((schedule.round, schedule.due_s()), (1, 19.0));
    }

    #[test]
    fn every_window_has_a_round() {
        let mut windows: Vec<u32> = ROUNDS.iter().flat_map(|(short, long)| [*short, *long]).collect();
        windows.sort_unstable();
        windows.dedup();
        assert_eq!(windows, WINDOWS_S);
    }

    /// A tree in which two cgroups of three belong to the target.
    #[test]
    fn a_cgroup_is_measured_with_its_descendants() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("sys/kernel/mm/lru_gen/enabled", "0x0007\n");
        let of = |id: u32, path: &str, hot: u32| {
            format!("memcg {id} {path}\n node 0\n 1 5001 90 0\n 2 5000 0 0\n 3 1000 {hot} 2\n 4 0 0 0\n")
        };
        let text = [of(1, "/", 1), of(2, "/job", 10), of(3, "/job/step", 5), of(4, "/jobless", 7)].concat();
        put("sys/kernel/debug/lru_gen", &text);
        put("proc/self/mountinfo", "30 29 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        put("cg/cgroup.controllers", "memory\n");
        put("cg/job/cgroup.procs", "");
        let kernel = Kernel::at(dir.path()).dry_run();
        let cgroup = Cgroup::named(&kernel, "/job").unwrap();
        let target = Target { cgroup: Some(cgroup), ..Target::default() };
        let mut monitor = MglruMonitor::new(&kernel, &target).unwrap();
        assert!(monitor.is_due(0.0) && monitor.step(0.0).unwrap().is_none());
        assert!(!monitor.is_due(3.0) && monitor.is_due(4.0));
        assert!(monitor.step(4.0).unwrap().is_none());
        let picture = monitor.step(5.0).unwrap().unwrap();
        assert_eq!(picture.working_set[0].unwrap().bytes, (15.0 + 4.0) * 4096.0);
        assert_eq!(picture.working_set[2], None);
        assert_eq!(monitor.asked(), (6, 0));
        let whole = MglruMonitor::new(&kernel, &Target { system: true, ..Target::default() }).unwrap();
        assert_eq!(whole.prefix, "");
    }

    #[test]
    fn a_switched_off_lru_says_so() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sys/kernel/mm/lru_gen")).unwrap();
        std::fs::write(dir.path().join("sys/kernel/mm/lru_gen/enabled"), "0x0000\n").unwrap();
        let target = Target { system: true, ..Target::default() };
        let error = MglruMonitor::new(&Kernel::at(dir.path()), &target).unwrap_err();
        assert!(error.to_string().contains("switched off"), "{error}");
    }
}
