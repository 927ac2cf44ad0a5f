//! Which source samples which workload: generations where the kernel ages cgroups, else accessed bits.

use std::collections::{BTreeMap, BTreeSet};

use lowtide_kernel::cgroup::{Cgroup, Version};
use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::mglru::{GenerationRound, MglruMonitor};
use lowtide_kernel::root::Kernel;
use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::generations::CgroupUse;
use lowtide_policy::policies::Regions;

use super::address::AddressReclaim;
use crate::workloads::Workloads;

/// Samples the idle ages of workloads.
#[derive(Debug)]
pub struct Sampling {
    kernel: Kernel,
    /// Schemes of policies that work on regions, by the policy's name.
    schemes: BTreeMap<String, Regions>,
    windows_s: Vec<u32>,
    generations: Option<MglruMonitor>,
    /// Where there are no generations, or nothing that evicts from a cgroup.
    address: Option<AddressReclaim>,
}

impl Sampling {
    /// Nothing is sampled yet.
    #[must_use]
    pub fn new(kernel: &Kernel, schemes: BTreeMap<String, Regions>, windows_s: Vec<u32>) -> Self {
        Self { kernel: kernel.clone(), schemes, windows_s, generations: None, address: None }
    }

    /// Goes on by other settings; what they leave as it was is kept.
    pub fn set(&mut self, schemes: BTreeMap<String, Regions>, windows_s: Vec<u32>) {
        if windows_s != self.windows_s {
            self.address = None;
        }
        (self.schemes, self.windows_s, self.generations) = (schemes, windows_s, None);
    }

    /// When idle ages are to be sampled next, seconds; never where they cannot be.
    #[must_use]
    pub fn next_due_s(&self) -> f64 {
        let generations_s = self.generations.as_ref().map_or(f64::INFINITY, MglruMonitor::due_s);
        self.address.as_ref().map_or(generations_s, |address| address.due_s().min(generations_s))
    }

    /// The workloads whose memory is searched by its addresses.
    pub fn address(&mut self) -> Option<&mut AddressReclaim> {
        self.address.as_mut()
    }

    /// Samples idle ages, where it is time. Whose are new.
    pub fn read(&mut self, now_s: f64, workloads: &mut Workloads) -> bool {
        let all = self.read_generations(now_s, workloads);
        let some = self.address.as_mut().map(|address| address.sample(now_s)).unwrap_or_default();
        let are_new = all || !some.is_empty();
        for (id, ages) in some {
            match (ages, workloads.get_mut(id)) {
                (Ok(ages), Some(workload)) => workload.set_ages(ages),
                (Err(error), Some(_)) if !error.is_gone() => workloads.note(format!("idle ages: {error}")),
                _ => {}
            }
        }
        are_new
    }

    fn read_generations(&mut self, now_s: f64, workloads: &mut Workloads) -> bool {
        let Some(monitor) = self.generations.as_mut().filter(|monitor| monitor.is_due(now_s)) else { return false };
        match monitor.step(now_s) {
            Ok(None) => false,
            Ok(Some(round)) => {
                let mut ages = by_path(&round);
                for (_, workload) in workloads.iter_mut() {
                    workload.set_ages(ages.remove(workload.path.as_str()).unwrap_or_default());
                }
                true
            }
            Err(error) => {
                // Opened anew at the next search: to try at once would be to try without end.
                self.generations = None;
                workloads.note(format!("idle ages could not be sampled: {error}"));
                false
            }
        }
    }

    /// Samples the workloads that need it, now that the table was searched.
    pub fn follow(&mut self, now_s: f64, workloads: &mut Workloads) {
        let aged = workloads.all().values().filter(|workload| workloads.rules().needs_ages(&workload.policy));
        let of = |workload: &crate::workloads::Workload| {
            (workload.cgroup.clone(), self.schemes.get(&workload.policy).cloned())
        };
        let aged: Vec<(Cgroup, Option<Regions>)> = aged.map(of).collect();
        let by_address =
            |(cgroup, schemes): &(Cgroup, Option<Regions>)| cgroup.version == Version::V1 || schemes.is_some();
        let (mut by_address, by_cgroup): (Vec<_>, Vec<_>) = aged.into_iter().partition(by_address);
        let by_cgroup: Vec<Cgroup> = by_cgroup.into_iter().map(|(cgroup, _)| cgroup).collect();
        if let Some(monitor) = &mut self.generations {
            let ids: BTreeSet<u64> = by_cgroup.iter().map(|cgroup| cgroup.inode).collect();
            let paths = workloads.all().values().filter(|workload| ids.contains(&workload.cgroup.inode));
            monitor.follow(paths.map(|workload| workload.path.clone()).collect());
        } else if !by_cgroup.is_empty() {
            let target = Target { cgroups: by_cgroup.clone(), ..Target::default() };
            match MglruMonitor::new(&self.kernel, &target, &self.windows_s) {
                Ok(monitor) => self.generations = Some(monitor),
                Err(error) => {
                    workloads.note(format!("no generations: {error}; idle ages are sampled by accessed bits"));
                    by_address.extend(by_cgroup.into_iter().map(|cgroup| (cgroup, None)));
                }
            }
        }
        if by_address.is_empty() {
            self.address = None;
            return;
        }
        let address = self.address.get_or_insert_with(|| AddressReclaim::new(&self.kernel, &self.windows_s));
        if let Err(error) = address.follow(&by_address, now_s) {
            workloads.note(format!("idle ages are not known: {error}"));
        }
    }
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
