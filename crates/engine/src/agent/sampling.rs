//! Which source samples which workload: the cohort where DAMON is free, else generations where the kernel ages cgroups, else
//! accessed bits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lowtide_kernel::cgroup::{Cgroup, Version};
use lowtide_kernel::damon;
use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::cohorts::Cohorts;
use lowtide_kernel::monitor::mglru::{GenerationRound, MglruMonitor};
use lowtide_kernel::root::{Kernel, Result};
use lowtide_kernel::undo::{self, Journal};
use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::generations::CgroupUse;
use lowtide_model::units::float;
use lowtide_policy::schemes::settings::Regions;

use super::address::AddressReclaim;
use crate::source::{SourceChoice, why_not};
use crate::workloads::{Workload, Workloads};

/// Measuring and deciding takes no more of one CPU than this: with very many workloads, it is done less often.
pub const MOST_CPU: f64 = 0.01;
/// Pages that DAMON checks for all cohorts together, once a second: about 0.7 % of a CPU.
const PAGES: f64 = 4000.0;
/// Pages of one cohort, at most: they estimate a share of a quarter to within a ninth of it. Of a program whose processes come and
/// go, most are others after each walk, and DAMON takes two files a page.
const PAGES_EACH: f64 = 1000.0;
/// Workloads that have a cohort, at most: 500 pages each estimate a share of a quarter to within a seventh of it. With more
/// of them, generations are the better estimate.
const COHORTS: usize = 8;
/// A workload with a larger share of page cache that no process maps is left to generations, where DAMON cannot sample that.
const CACHE_SHARE: f64 = 0.1;
/// One that has a cohort keeps it up to this share.
const CACHE_SHARE_KEPT: f64 = 0.2;

/// What the configuration says of sampling.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingConfig {
    /// Which sources may be used.
    pub monitor: SourceChoice,
    /// Schemes of policies that work on regions, by the policy's name.
    pub schemes: BTreeMap<String, Regions>,
    /// Idle ages of the histogram, seconds; none = those that each source samples best.
    pub windows_s: Vec<u32>,
    /// The longest age that a policy asks for by name, seconds; 0 where none does.
    pub longest_s: u32,
    /// Seconds between two readings: the ages of a cohort change no more often.
    pub every_s: f64,
}

/// Idle ages by accessed bits, where none are configured: every reading walks page tables.
const SMAPS_S: [u32; 5] = [1, 2, 5, 10, 30];
/// By generations: a shorter window takes more of them, and the kernel evicts by the few that it has. There is a reading as
/// often as the longer one is long.
const MGLRU_S: [u32; 2] = [10, 30];
/// The same of a few cgroups whose policies ask for no longer age: a reading every five seconds, of ages of 5 and 10 s.
const MGLRU_FEW_S: [u32; 1] = [10];
/// So many are few: what a generation takes grows with their number.
const FEW: usize = 100;
/// The longest age that every source samples where none are configured.
pub const LONGEST: Duration = Duration::from_secs(30);

impl SamplingConfig {
    fn windows_s<'a>(&'a self, usual: &'a [u32]) -> &'a [u32] {
        if self.windows_s.is_empty() { usual } else { &self.windows_s }
    }

    /// Those of generations, of so many cgroups.
    fn of_generations(&self, cgroups: usize) -> &[u32] {
        let few = cgroups <= FEW && self.longest_s <= MGLRU_FEW_S[0];
        self.windows_s(if few { &MGLRU_FEW_S } else { &MGLRU_S })
    }
}

/// Samples the idle ages of workloads.
#[derive(Debug)]
pub struct Sampling {
    kernel: Kernel,
    config: SamplingConfig,
    cohorts: Option<Cohorts>,
    /// When the cohorts' ages are to be passed on next, seconds.
    cohorts_due_s: f64,
    generations: Option<MglruMonitor>,
    /// The windows that it was opened with.
    generation_windows_s: Vec<u32>,
    /// Where there are no generations, or nothing that evicts from a cgroup.
    address: Option<AddressReclaim>,
    /// How many workloads each source samples.
    counts: [(&'static str, usize); 3],
}

/// The workloads that need ages, by what samples them.
#[derive(Debug, Default)]
struct Division {
    cohort: Vec<Cgroup>,
    generations: Vec<Cgroup>,
    address: Vec<(Cgroup, Option<Regions>)>,
}

impl Division {
    /// How many workloads each source samples.
    fn counts(&self) -> [(&'static str, usize); 3] {
        [("damon", self.cohort.len()), ("mglru", self.generations.len()), ("smaps", self.address.len())]
    }
}

impl Sampling {
    /// Nothing is sampled yet.
    pub fn new(kernel: &Kernel, config: SamplingConfig) -> Self {
        Self {
            kernel: kernel.clone(),
            config,
            cohorts: None,
            cohorts_due_s: 0.0,
            generations: None,
            generation_windows_s: Vec::new(),
            address: None,
            counts: Division::default().counts(),
        }
    }

    /// Applies another configuration; state of unchanged settings is kept.
    pub fn set(&mut self, config: SamplingConfig) {
        if config.windows_s != self.config.windows_s {
            self.address = None;
        }
        (self.config, self.generations) = (config, None);
    }

    /// When there is something to sample next, seconds; never where nothing can be.
    pub fn next_due_s(&self) -> f64 {
        let due_s = [
            self.cohorts.as_ref().map(Cohorts::due_s),
            self.generations.as_ref().map(MglruMonitor::due_s),
            self.address.as_ref().map(AddressReclaim::due_s),
        ];
        due_s.into_iter().flatten().fold(f64::INFINITY, f64::min)
    }

    /// The workloads whose memory is searched by its addresses.
    pub fn address(&mut self) -> Option<&mut AddressReclaim> {
        self.address.as_mut()
    }

    /// CPU seconds that kernel threads have spent on sampling.
    pub fn kernel_cpu_s(&mut self) -> f64 {
        self.cohorts.as_mut().map_or(0.0, Cohorts::kdamond_s)
    }

    /// Samples idle ages, where it is time; page tables are walked at no more than this share of one CPU. True if some are new.
    pub fn read(&mut self, now_s: f64, price: f64, workloads: &mut Workloads) -> bool {
        let by_cohort = self.read_cohorts(now_s, price, workloads);
        let by_generations = self.read_generations(now_s, workloads);
        let some = self.address.as_mut().map(|address| address.sample(now_s, price)).unwrap_or_default();
        let are_new = by_cohort || by_generations || !some.is_empty();
        for (id, ages) in some {
            match (ages, workloads.all.get_mut(&id)) {
                (Ok(ages), Some(workload)) => {
                    workload.pages_found();
                    workload.set_ages("smaps", ages, now_s);
                }
                (Err(error), Some(_)) if !error.is_gone() => workloads.note(format!("idle ages: {error}")),
                _ => {}
            }
        }
        are_new
    }

    fn read_cohorts(&mut self, now_s: f64, price: f64, workloads: &mut Workloads) -> bool {
        let Some(cohorts) = self.cohorts.as_mut().filter(|cohorts| now_s >= cohorts.due_s()) else { return false };
        let walked = match cohorts.step(now_s, price) {
            Ok(walked) => walked,
            Err(error) => {
                // Opened again at the next search, unless another program holds DAMON by then.
                self.cohorts = None;
                workloads.note(format!("DAMON samples no more: {error}"));
                return false;
            }
        };
        if walked {
            let all = workloads.all.values_mut();
            all.filter(|workload| cohorts.follows(workload.cgroup.inode)).for_each(Workload::pages_found);
        }
        if now_s < self.cohorts_due_s {
            return false;
        }
        let mut are_new = false;
        for (_, workload) in workloads.all.iter_mut() {
            if let Some(picture) = cohorts.picture(workload.cgroup.inode) {
                let windows_s = &self.config.windows_s;
                let ages = if windows_s.is_empty() { picture.ages } else { coarse(&picture.ages, windows_s) };
                // Pages that joined are not known for long windows yet: until they are, the ages before are the better ones.
                if workload.sampled_by == "damon" && edges(&ages) < edges(&workload.ages) {
                    continue;
                }
                // Pages are found, and taken to be new, up to a walk after they came.
                workload.set_ages("damon", ages, now_s - cohorts.pause_s());
                are_new = true;
            }
        }
        if are_new {
            self.cohorts_due_s = now_s + self.config.every_s;
        }
        are_new
    }

    fn read_generations(&mut self, now_s: f64, workloads: &mut Workloads) -> bool {
        let Some(monitor) = self.generations.as_mut().filter(|monitor| monitor.is_due(now_s)) else { return false };
        match monitor.step(now_s) {
            Ok(None) => false,
            Ok(Some(round)) => {
                let mut ages = by_path(&round);
                for (_, workload) in workloads.all.iter_mut() {
                    if let Some(ages) = ages.remove(workload.path.as_str()) {
                        workload.pages_found();
                        workload.set_ages("mglru", ages, now_s);
                    }
                }
                true
            }
            Err(error) => {
                // Opened again at the next search: to try at once would be to try without end.
                self.generations = None;
                workloads.note(format!("idle ages could not be sampled: {error}"));
                false
            }
        }
    }

    /// Samples the workloads that need it, now that the table was searched. How many each source samples, where that has changed.
    pub fn follow(&mut self, now_s: f64, workloads: &mut Workloads) -> Option<[(&'static str, usize); 3]> {
        let by_cohort = self.config.monitor.admits("damon") && self.has_damon(workloads);
        let mut division = self.divide(by_cohort, workloads);
        if let Err(error) = self.follow_by_cohort(&division.cohort) {
            self.cohorts = None;
            workloads.note(format!("no cohort: {}", why_not("damon", &self.kernel, &error)));
            division.generations.append(&mut division.cohort);
        }
        if let Err(why) = self.follow_by_generations(&division.generations, workloads) {
            workloads.note(format!("no generations: {why}; idle ages are sampled by accessed bits"));
            division.address.extend(division.generations.drain(..).map(|cgroup| (cgroup, None)));
        }
        if division.address.is_empty() {
            self.address = None;
        } else {
            let address =
                self.address.get_or_insert_with(|| AddressReclaim::new(&self.kernel, self.config.windows_s(&SMAPS_S)));
            if let Err(error) = address.follow(&division.address, now_s) {
                workloads.note(format!("idle ages are not known: {error}"));
            }
        }
        let counts = division.counts();
        (std::mem::replace(&mut self.counts, counts) != counts).then_some(counts)
    }

    /// Whether this kernel has DAMON, whoever uses it now; a note if not.
    fn has_damon(&self, workloads: &mut Workloads) -> bool {
        let probed = damon::probe(&self.kernel);
        if let Err(error) = &probed {
            workloads.note(format!("no cohort: {}", why_not("damon", &self.kernel, error)));
        }
        probed.is_ok()
    }

    /// Which source is the best for which workload. Version 1 evicts by address only, and so do schemes. Neither frames nor charges
    /// are read where nothing is sampled by cohort.
    fn divide(&self, by_cohort: bool, workloads: &Workloads) -> Division {
        let mut division = Division::default();
        let mut large = Vec::new();
        let samples_cache = by_cohort && Cohorts::samples_cache(&self.kernel);
        for workload in workloads.all.values().filter(|workload| workloads.rules.needs_ages(&workload.policy)) {
            let (cgroup, schemes) = (workload.cgroup.clone(), self.config.schemes.get(&workload.policy).cloned());
            if cgroup.version == Version::V1 || schemes.is_some() || self.only_smaps() {
                division.address.push((cgroup, schemes));
                continue;
            }
            let had = self.cohorts.as_ref().is_some_and(|cohorts| cohorts.follows(cgroup.inode));
            let most = if had { CACHE_SHARE_KEPT } else { CACHE_SHARE };
            match by_cohort.then(|| cgroup.charges(&self.kernel)) {
                Some(Ok(charges)) => {
                    let figures = [charges.anon_bytes, charges.file_bytes, charges.mapped_file_bytes];
                    let [anon, file, mapped] = figures.map(|bytes| bytes.unwrap_or(0.0));
                    let (cache, all) = (file - mapped, anon + file);
                    let fits = samples_cache || cache <= most * all || !self.config.monitor.admits("mglru");
                    large.push((fits, all, cgroup));
                }
                _ => division.generations.push(cgroup),
            }
        }
        large.sort_by(|(one, a, _), (other, b, _)| other.cmp(one).then(b.total_cmp(a)));
        for (at, (fits, _, cgroup)) in large.into_iter().enumerate() {
            let to = if fits && at < COHORTS { &mut division.cohort } else { &mut division.generations };
            to.push(cgroup);
        }
        division
    }

    fn only_smaps(&self) -> bool {
        self.config.monitor == SourceChoice::Named("smaps")
    }

    /// Takes DAMON if it is needed, and gives it back where it is not.
    fn follow_by_cohort(&mut self, cgroups: &[Cgroup]) -> Result<()> {
        if cgroups.is_empty() {
            self.cohorts = None;
            return Ok(());
        }
        if self.cohorts.is_none() {
            let journal = Journal::open(self.kernel.clone(), &undo::folder())?;
            self.cohorts = Some(Cohorts::take(&self.kernel, &journal)?);
        }
        let Some(cohorts) = &mut self.cohorts else { return Ok(()) };
        cohorts.follow(cgroups, (PAGES / float(cgroups.len())).min(PAGES_EACH))
    }

    fn follow_by_generations(&mut self, cgroups: &[Cgroup], workloads: &Workloads) -> Result<()> {
        let windows_s = self.config.of_generations(cgroups.len());
        if windows_s != self.generation_windows_s {
            self.generations = None;
        }
        if cgroups.is_empty() {
            self.generations = None;
        } else if let Some(monitor) = &mut self.generations {
            let ids: BTreeSet<u64> = cgroups.iter().map(|cgroup| cgroup.inode).collect();
            let paths = workloads.all.values().filter(|workload| ids.contains(&workload.cgroup.inode));
            monitor.follow(paths.map(|workload| workload.path.clone()).collect());
        } else {
            let target = Target { cgroups: cgroups.to_vec(), ..Target::default() };
            self.generations = Some(MglruMonitor::new(&self.kernel, &target, windows_s)?);
            self.generation_windows_s = windows_s.to_vec();
        }
        Ok(())
    }
}

/// How many windows a histogram knows.
fn edges(ages: &[AgeBin]) -> usize {
    ages.iter().filter(|bin| bin.max_s.is_some()).count()
}

/// The same histogram with the configured ages as edges, and no others.
fn coarse(ages: &[AgeBin], windows_s: &[u32]) -> Vec<AgeBin> {
    let is_edge = |edge_s: f64| windows_s.iter().any(|window| f64::from(*window).total_cmp(&edge_s).is_eq());
    let mut bins: Vec<AgeBin> = Vec::new();
    for bin in ages {
        match bins.last_mut().filter(|last| last.anon == bin.anon && !last.max_s.is_some_and(is_edge)) {
            Some(last) => {
                last.max_s = bin.max_s;
                last.size.bytes += bin.size.bytes;
                last.size.ci95 = last.size.ci95.hypot(bin.size.ci95);
            }
            None => bins.push(AgeBin { first_touched: None, ..*bin }),
        }
    }
    bins
}

/// Histograms of idle ages by the cgroup's path, nodes taken together.
fn by_path(round: &GenerationRound) -> BTreeMap<&str, Vec<AgeBin>> {
    type Sums = (f64, [Option<f64>; WINDOWS_S.len()]);
    let mut rows: BTreeMap<(&str, bool), Sums> = BTreeMap::new();
    for CgroupUse { cgroup, anon, bytes, used, .. } in &round.cgroups {
        let (total, sums) = rows.entry((cgroup, *anon)).or_insert((0.0, [Some(0.0); WINDOWS_S.len()]));
        *total += bytes;
        // A window is known where it is known of all nodes.
        for (sum, used) in sums.iter_mut().zip(used) {
            *sum = sum.zip(*used).map(|(sum, used)| sum + used);
        }
    }
    let mut all: BTreeMap<&str, Vec<AgeBin>> = BTreeMap::new();
    for ((path, anon), (total, used)) in rows {
        let bins = all.entry(path).or_default();
        let (mut reached, mut min_s) = (0.0, 0.0);
        let mut bin = |min_s, max_s, bytes: f64| {
            bins.push(AgeBin {
                anon,
                min_s,
                max_s,
                size: Estimate { bytes: bytes.max(0.0), ci95: 0.0 },
                first_touched: None,
            });
        };
        for (window, used) in WINDOWS_S.iter().zip(used).filter_map(|(window, used)| Some((f64::from(*window), used?)))
        {
            bin(min_s, Some(window), used - reached);
            (reached, min_s) = (f64::max(used, reached), window);
        }
        bin(min_s, None, total - reached);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_of_a_cohort_have_the_configured_edges_only() {
        let bin = |anon, min_s, max_s, bytes| AgeBin {
            anon,
            min_s,
            max_s,
            size: Estimate { bytes, ci95: bytes },
            first_touched: Some(0.0),
        };
        let fine = [
            bin(true, 0.0, Some(1.0), 3.0),
            bin(true, 1.0, Some(10.0), 4.0),
            bin(true, 10.0, Some(20.0), 1.0),
            bin(true, 20.0, None, 2.0),
            bin(false, 0.0, Some(10.0), 5.0),
            bin(false, 10.0, None, 6.0),
        ];
        let coarse: Vec<_> = coarse(&fine, &[10, 30])
            .iter()
            .map(|bin| (bin.anon, bin.min_s, bin.max_s, bin.size.bytes, bin.size.ci95))
            .collect();
        let expected = [
            (true, 0.0, Some(10.0), 7.0, 5.0),
            (true, 10.0, None, 3.0, 5_f64.sqrt()),
            (false, 0.0, Some(10.0), 5.0, 5.0),
            (false, 10.0, None, 6.0, 6.0),
        ];
        assert_eq!(coarse, expected);
    }

    #[test]
    fn nodes_are_taken_together_and_only_windows_known_of_all() {
        let row = |node, anon, bytes, used| CgroupUse { cgroup: "/a".into(), node, anon, bytes, used, promoted: 0.0 };
        let used = |ten: Option<f64>, thirty: Option<f64>| [None, None, ten, thirty, None, None];
        let cgroups = vec![
            row(0, true, 100.0, used(Some(10.0), Some(30.0))),
            row(1, true, 50.0, used(Some(5.0), None)),
            row(0, false, 40.0, used(Some(1.0), Some(2.0))),
        ];
        let round = GenerationRound { cgroups, ..GenerationRound::default() };
        let ages = by_path(&round).remove("/a").unwrap();
        let of = |anon: bool| -> Vec<_> {
            let bins = ages.iter().filter(|bin| bin.anon == anon);
            bins.map(|bin| (bin.min_s, bin.max_s, bin.size.bytes)).collect()
        };
        assert_eq!(of(true), [(0.0, Some(10.0), 15.0), (10.0, None, 135.0)]);
        assert_eq!(of(false), [(0.0, Some(10.0), 1.0), (10.0, Some(30.0), 1.0), (30.0, None, 38.0)]);
    }
}
