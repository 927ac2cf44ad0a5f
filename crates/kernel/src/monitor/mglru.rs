//! Idle ages from the multi-generational LRU: the kernel is asked for a new generation at chosen times, so that births
//! lie where the histogram's edges are to be.
//!
//! The kernel keeps four generations, hence three births before the one just made, of which the oldest bounds nothing: a
//! round yields two windows. The rounds take turns, mostly the short ones. Where the longer window is twice the shorter one,
//! births are equally far apart, and each yields both windows.

use std::collections::{BTreeMap, HashMap, HashSet};

use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{Estimate, Picture};
use lowtide_model::generations::{CgroupUse, Tally, promoted};

use super::Target;
use crate::cgroup::{Cgroup, Selection};
use crate::lru_gen::{LruGen, Lruvec};
use crate::root::{Error, Kernel, Result};

/// The two windows (s) of a round, known when it ends, after the longer one.
type Windows = (u32, u32);

const SHORT: Windows = (1, 5);
const MIDDLE: Windows = (10, 30);
const LONG: Windows = (60, 120);

/// The rounds in turn. Many programs live for a minute: a middle one comes early, after enough short ones to get past
/// the start.
const ROUNDS: [Windows; 16] =
    [SHORT, SHORT, SHORT, SHORT, MIDDLE, SHORT, SHORT, SHORT, SHORT, SHORT, MIDDLE, SHORT, SHORT, SHORT, SHORT, LONG];

/// A generation of so few seconds was made just now; the walk over a large target takes its time.
const NOW_S: f64 = 0.6;

/// A tick comes a little early or late.
const EARLY_S: f64 = 0.05;

/// When the next generation is made.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Schedule {
    started_s: f64,
    round: usize,
    /// The birth in the middle of the round is over.
    second_half: bool,
}

/// The rounds that measure one of these windows; all if none is chosen. One window alone is measured as often as it is long.
fn rounds(windows_s: &[u32]) -> Vec<Windows> {
    if let [window] = windows_s
        && let Some(shorter) = WINDOWS_S.into_iter().rfind(|shorter| shorter < window)
    {
        return vec![(shorter, *window)];
    }
    let measured = |(short, long): &Windows| windows_s.contains(short) || windows_s.contains(long);
    let chosen: Vec<Windows> = ROUNDS.into_iter().filter(measured).collect();
    if chosen.is_empty() { ROUNDS.to_vec() } else { chosen }
}

impl Schedule {
    fn due_s(&self, rounds: &[Windows]) -> f64 {
        let (short, long) = rounds[self.round % rounds.len()];
        self.started_s + f64::from(if self.second_half { long } else { long - short })
    }

    /// Takes the next step, at `now_s`; true if the windows are known now.
    fn step(&mut self, now_s: f64, (short, long): Windows) -> bool {
        if self.second_half {
            (self.started_s, self.round) = (now_s, self.round + 1);
        }
        self.second_half = !self.second_half;
        !self.second_half || long == 2 * short
    }
}

/// Which cgroups belong to the target.
#[derive(Debug)]
enum Part {
    All,
    /// These paths and what is below them. A set: there may be thousands of them, and of cgroups that are asked about.
    Below(HashSet<String>),
    Matching(Selection),
}

impl Part {
    fn holds(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Below(paths) => {
                let above = path.match_indices('/').map(|(at, _)| if at == 0 { "/" } else { &path[..at] });
                paths.contains(path) || above.into_iter().any(|above| paths.contains(above))
            }
            Self::Matching(selection) => selection.holds(path),
        }
    }
}

/// What a round found.
#[derive(Debug, Clone, Default)]
pub struct GenerationRound {
    /// The entire target.
    pub picture: Picture,
    /// Its cgroups, each with its descendants; those without memory are left out.
    pub cgroups: Vec<CgroupUse>,
}

/// The monitor.
#[derive(Debug)]
pub struct MglruMonitor {
    lru: LruGen,
    part: Part,
    rounds: Vec<Windows>,
    schedule: Option<Schedule>,
    /// What was read last.
    lruvecs: Vec<Lruvec>,
    /// Bytes promoted since the round began, by the kernel's number of cgroup and node.
    promoted: HashMap<(u64, u64), [f64; 2]>,
    /// Numbers of removed cgroups that still have pages: no process is left to use them, and they cannot be aged.
    gone: HashSet<u64>,
    /// Where others have made generations, by the same numbers, and when it was found, seconds; forgotten after the longer window.
    disturbed: HashMap<(u64, u64), f64>,
    /// New generations that were requested so far.
    pub requested: usize,
    /// Of them, those that were not made: births are not where they were wanted, and windows are missing.
    pub missing: usize,
}

impl MglruMonitor {
    /// A monitor of the target's cgroups, of those that a pattern means, or of everything; of these windows, or of all if
    /// there are none.
    pub fn new(kernel: &Kernel, target: &Target, windows_s: &[u32]) -> Result<Self> {
        let part = match &target.selection {
            _ if target.system => Part::All,
            Some(selection) => Part::Matching(selection.clone()),
            None => {
                let point = Cgroup::mount_point(kernel)?;
                Part::Below(target.cgroups.iter().map(|cgroup| cgroup.path_below(&point)).collect())
            }
        };
        if matches!(&part, Part::Below(paths) if paths.is_empty()) {
            return Err(Error::missing(
                "read generations of",
                "the target",
                "the target has no memory cgroup of its own",
            ));
        }
        Ok(Self {
            lru: LruGen::open(kernel)?,
            part,
            rounds: rounds(windows_s),
            schedule: None,
            lruvecs: Vec::new(),
            promoted: HashMap::new(),
            gone: HashSet::new(),
            disturbed: HashMap::new(),
            requested: 0,
            missing: 0,
        })
    }

    /// Measures these cgroups and their descendants from now on, by their paths.
    pub fn follow(&mut self, paths: Vec<String>) {
        self.part = Part::Below(paths.into_iter().collect());
    }

    /// When there is something to do next, seconds; at once before the first read.
    pub fn due_s(&self) -> f64 {
        self.schedule.map_or(f64::NEG_INFINITY, |schedule| schedule.due_s(&self.rounds))
    }

    /// Whether there is something to do now.
    pub fn is_due(&self, now_s: f64) -> bool {
        self.schedule.is_none_or(|schedule| now_s >= schedule.due_s(&self.rounds) - EARLY_S)
    }

    /// Makes a new generation everywhere in the target; at the end of a round, what it found.
    pub fn step(&mut self, now_s: f64) -> Result<Option<GenerationRound>> {
        if self.schedule.is_none() {
            self.read()?;
        }
        let gone = self.lru.age(self.lruvecs.iter().filter(|lruvec| self.ages(lruvec)))?;
        self.gone.extend(gone);
        // The kernel's word is not taken for it: the ages in the file are what the picture is made from.
        let before = self.read()?;
        self.forget_reused(&before);
        self.note_promoted(&before);
        self.note_disturbed(&before, now_s);
        let young = |lruvec: &&Lruvec| lruvec.generations.last().is_some_and(|youngest| youngest.age_s < NOW_S);
        let aged: Vec<&Lruvec> = self.lruvecs.iter().filter(|lruvec| self.ages(lruvec)).collect();
        let (requested, missing) = (aged.len(), aged.iter().filter(|lruvec| !young(lruvec)).count());
        (self.requested, self.missing) = (self.requested + requested, self.missing + missing);
        let Some(schedule) = &mut self.schedule else {
            self.schedule = Some(Schedule { started_s: now_s, round: 0, second_half: false });
            self.disturbed.clear();
            return Ok(None);
        };
        let windows = self.rounds[schedule.round % self.rounds.len()];
        let are_known = schedule.step(now_s, windows);
        self.disturbed.retain(|_, at_s| now_s - *at_s < f64::from(windows.1) - EARLY_S);
        if !are_known {
            return Ok(None);
        }
        let round = GenerationRound { picture: self.picture(windows), cgroups: self.cgroups(windows) };
        self.promoted.clear();
        Ok(Some(round))
    }

    /// Whether a new generation is made here. Thousands of cgroups of a machine hold nothing: they have nothing to age.
    fn ages(&self, lruvec: &Lruvec) -> bool {
        !lruvec.is_empty() && !self.gone.contains(&lruvec.memcg)
    }

    /// Reads what there is now; returns what there was.
    fn read(&mut self) -> Result<Vec<Lruvec>> {
        let mut all = self.lru.read()?;
        all.retain(|lruvec| self.part.holds(&lruvec.path));
        self.gone.retain(|memcg| all.iter().any(|lruvec| lruvec.memcg == *memcg));
        Ok(std::mem::replace(&mut self.lruvecs, all))
    }

    /// Numbers are given again: one that means another cgroup by now, or whose generations are counted again from 0, is not gone.
    fn forget_reused(&mut self, before: &[Lruvec]) {
        // By the path, too: where removed cgroups have lost their number, they all have the same.
        let key = |of: &Lruvec| (of.memcg, of.node);
        let now: HashMap<_, Option<u64>> =
            self.lruvecs.iter().map(|now| ((key(now), now.path.as_str()), now.youngest())).collect();
        let same = |old: &&Lruvec| now.get(&(key(old), &old.path)).is_some_and(|youngest| *youngest >= old.youngest());
        let still: HashSet<u64> = before.iter().filter(same).map(|old| old.memcg).collect();
        self.gone.retain(|memcg| still.contains(memcg));
    }

    fn note_promoted(&mut self, before: &[Lruvec]) {
        let before: HashMap<(u64, u64), &Lruvec> = before.iter().map(|of| ((of.memcg, of.node), of)).collect();
        for now in &self.lruvecs {
            let key = (now.memcg, now.node);
            // A number is given to another cgroup once its owner is gone.
            let Some(same) = before.get(&key).filter(|before| before.path == now.path) else { continue };
            let of = promoted(&same.generations, &now.generations);
            if of != [0.0; 2] {
                let sum = self.promoted.entry(key).or_default();
                (0..2).for_each(|side| sum[side] += of[side]);
            }
        }
    }

    /// Notes where others have made generations since the last step. They may have left anonymous memory out, as reclaim does
    /// without swap: what was in the oldest generation is then counted to the youngest, as there are only four slots.
    fn note_disturbed(&mut self, before: &[Lruvec], now_s: f64) {
        let youngest = |lruvec: &Lruvec| lruvec.youngest().unwrap_or_default();
        let before: HashMap<(u64, u64), u64> = before.iter().map(|of| ((of.memcg, of.node), youngest(of))).collect();
        // Removed cgroups may share one number, so that one's generations seem to be another's.
        for now in self.lruvecs.iter().filter(|now| !self.gone.contains(&now.memcg)) {
            let key = (now.memcg, now.node);
            if before.get(&key).is_some_and(|seq| youngest(now) > seq + 1) {
                self.disturbed.insert(key, now_s);
            }
        }
    }

    /// Adds the generations of one cgroup on one node.
    fn add(&self, lruvec: &Lruvec, tally: &mut Tally) {
        if self.disturbed.contains_key(&(lruvec.memcg, lruvec.node)) {
            tally.add_silent(&lruvec.generations);
        } else {
            tally.add(&lruvec.generations, self.gone.contains(&lruvec.memcg));
        }
    }

    fn picture(&self, (short, long): Windows) -> Picture {
        let mut tally = Tally::default();
        for lruvec in &self.lruvecs {
            self.add(lruvec, &mut tally);
        }
        let mut picture = Picture { ages: tally.histogram(&[short, long]), ..Picture::default() };
        for (window, at) in WINDOWS_S.iter().zip(&mut picture.working_set) {
            let used = tally.used(*window).filter(|_| [short, long].contains(window));
            *at = used.map(|[anon, file]| Estimate { bytes: anon.bytes + file.bytes, ci95: anon.ci95 + file.ci95 });
        }
        picture
    }

    /// Each cgroup with its descendants, as far as they belong to the target: the kernel lists only what is charged to
    /// each itself.
    fn cgroups(&self, (short, long): Windows) -> Vec<CgroupUse> {
        let mut sums: BTreeMap<(&str, u64), (Tally, [f64; 2])> = BTreeMap::new();
        for lruvec in self.lruvecs.iter().filter(|lruvec| !lruvec.is_empty()) {
            let path = lruvec.path.as_str();
            let promoted = self.promoted.get(&(lruvec.memcg, lruvec.node)).copied().unwrap_or_default();
            let above = path.match_indices('/').map(|(at, _)| if at == 0 { "/" } else { &path[..at] });
            for cgroup in above.chain((path != "/").then_some(path)).filter(|cgroup| self.part.holds(cgroup)) {
                let (tally, sum) = sums.entry((cgroup, lruvec.node)).or_default();
                self.add(lruvec, tally);
                (0..2).for_each(|side| sum[side] += promoted[side]);
            }
        }
        let mut rows = Vec::new();
        for ((cgroup, node), (tally, promoted)) in sums {
            let known = |window: &u32| tally.used(*window).filter(|_| [short, long].contains(window));
            for side in 0..2 {
                let used = std::array::from_fn(|at| known(&WINDOWS_S[at]).map(|used| used[side].bytes));
                rows.push(CgroupUse {
                    cgroup: cgroup.to_owned(),
                    node,
                    anon: side == 0,
                    bytes: tally.total[side],
                    used,
                    promoted: promoted[side],
                });
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn births_lie_where_the_edges_are() {
        let mut schedule = Schedule { started_s: 10.0, round: 0, second_half: false };
        assert_eq!(schedule.due_s(&ROUNDS), 14.0);
        assert!(!schedule.step(14.0, SHORT));
        assert_eq!(schedule.due_s(&ROUNDS), 15.0);
        assert!(schedule.step(15.0, SHORT));
        assert_eq!((schedule.round, schedule.due_s(&ROUNDS)), (1, 19.0));
        // Births that are equally far apart: each yields both windows.
        let (mut steady, rounds) = (Schedule { started_s: 0.0, round: 0, second_half: false }, rounds(&[10]));
        for at_s in [5.0, 10.0, 15.0, 20.0] {
            assert_eq!(steady.due_s(&rounds), at_s);
            assert!(steady.step(at_s, rounds[0]));
        }
    }

    #[test]
    fn every_window_has_a_round() {
        let mut windows: Vec<u32> = ROUNDS.iter().flat_map(|(short, long)| [*short, *long]).collect();
        windows.sort_unstable();
        windows.dedup();
        assert_eq!(windows, WINDOWS_S);
        assert_eq!(rounds(&[10, 60]), [MIDDLE, MIDDLE, LONG]);
        assert_eq!((rounds(&[10]), rounds(&[1])), (vec![(5, 10)], vec![SHORT; 13]));
        assert_eq!(rounds(&[]), ROUNDS);
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
        let target = Target { cgroups: vec![cgroup], ..Target::default() };
        let mut monitor = MglruMonitor::new(&kernel, &target, &[]).unwrap();
        assert!(monitor.is_due(0.0) && monitor.step(0.0).unwrap().is_none());
        assert!(!monitor.is_due(3.0) && monitor.is_due(4.0));
        assert!(monitor.step(4.0).unwrap().is_none());
        let GenerationRound { picture, cgroups } = monitor.step(5.0).unwrap().unwrap();
        assert_eq!(picture.working_set[0].unwrap().bytes, (15.0 + 4.0) * 4096.0);
        assert_eq!(picture.working_set[2], None);
        assert_eq!((monitor.requested, monitor.missing), (6, 0));
        let used: Vec<_> =
            cgroups.iter().map(|row| (row.cgroup.as_str(), row.anon, row.used[0], row.used[2])).collect();
        let pages = |pages: f64| Some(pages * 4096.0);
        let expected = [
            ("/job", true, pages(15.0), None),
            ("/job", false, pages(4.0), None),
            ("/job/step", true, pages(5.0), None),
            ("/job/step", false, pages(2.0), None),
        ];
        assert_eq!(used, expected, "each with what is below it");
        let system = Target { system: true, ..Target::default() };
        let mut entire = MglruMonitor::new(&kernel, &system, &[]).unwrap();
        entire.step(0.0).unwrap();
        entire.step(4.0).unwrap();
        let cgroups = entire.step(5.0).unwrap().unwrap().cgroups;
        assert_eq!((cgroups[0].cgroup.as_str(), cgroups[0].used[0]), ("/", pages(23.0)));
        let selection = Some(Selection::new(&kernel, "job/*").unwrap());
        let some = MglruMonitor::new(&kernel, &Target { selection, ..Target::default() }, &[]).unwrap();
        // Others make generations in the middle of a round: what the young ones hold then may be what the oldest held.
        let mut others = MglruMonitor::new(&kernel, &system, &[]).unwrap();
        others.step(0.0).unwrap();
        let later =
            text.replace(" 1 5001 90", " 4 5001 90").replace(" 2 5000", " 5 5000").replace(" 3 1000", " 6 1000");
        put("sys/kernel/debug/lru_gen", &later.replace(" 4 0 0 0", " 7 0 0 0"));
        others.step(4.0).unwrap();
        assert_eq!(others.step(5.0).unwrap().unwrap().picture.working_set[0], None);
        assert_eq!(["/job", "/job/step", "/job/step/a"].map(|path| some.part.holds(path)), [false, true, true]);
    }

    /// As on 6.12, where removed cgroups all have number 0; the kernel refuses to age them.
    #[test]
    fn removed_cgroups_that_share_a_number_hide_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let removed =
            |path: &str, seq: u64| format!("memcg 0 {path}\n node 0\n {seq} 9000 9 9\n {} 8000 0 0\n", seq + 1);
        put("sys/kernel/mm/lru_gen/enabled", "0x0007\n");
        let live = "memcg 1 /\n node 0\n 1 5001 90 0\n 2 5000 0 0\n 3 1000 10 2\n 4 0 0 0\n".to_owned();
        put("sys/kernel/debug/lru_gen", &[live, removed("/dead", 7), removed("/ran", 0)].concat());
        let system = Target { system: true, ..Target::default() };
        let mut monitor = MglruMonitor::new(&Kernel::at(dir.path()).dry_run(), &system, &[]).unwrap();
        monitor.gone.insert(0);
        monitor.step(0.0).unwrap();
        monitor.step(4.0).unwrap();
        let picture = monitor.step(5.0).unwrap().unwrap().picture;
        assert_eq!(picture.working_set[0].unwrap().bytes, 12.0 * 4096.0, "what is gone is in nobody's use");
    }

    #[test]
    fn a_switched_off_lru_says_so() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sys/kernel/mm/lru_gen")).unwrap();
        std::fs::write(dir.path().join("sys/kernel/mm/lru_gen/enabled"), "0x0000\n").unwrap();
        let target = Target { system: true, ..Target::default() };
        let error = MglruMonitor::new(&Kernel::at(dir.path()), &target, &[]).unwrap_err();
        assert!(error.to_string().contains("switched off"), "{error}");
    }
}
