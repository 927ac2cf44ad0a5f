//! Which workloads exist, and which other programs act on them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lowtide_kernel::cgroup::{Cgroup, is_below};
use lowtide_kernel::grant::{can_limit, can_protect};
use lowtide_kernel::proc::{self, ProcessId};
use lowtide_kernel::root::Kernel;
use lowtide_model::target::TargetId;

use super::{By, Workload, WorkloadRule, Workloads};

/// Cgroups are searched for so often, seconds; more often where they are observed every second.
pub(super) const SEARCH_S: f64 = 10.0;

/// Seconds between two searches where there is a turn so often.
pub(super) fn often_s(every_s: f64) -> f64 {
    (2.0 * every_s).min(SEARCH_S)
}

/// Where systemd-oomd is, if it runs; it kills at nine tenths of the swap (`SwapUsedLimit=`, oomd.conf(5)), so that the
/// share below is left free.
const KILLER: &str = "/system.slice/systemd-oomd.service";
pub(super) const SPARED: f64 = 0.2;

impl Workloads {
    /// Searches for cgroups that were made and removed, now and then.
    pub(super) fn search(&mut self, now_s: f64) {
        if self.searched_s.is_some_and(|searched_s| (0.0..often_s(self.rules.every_s)).contains(&(now_s - searched_s)))
        {
            return;
        }
        (self.searched_s, self.is_searched) = (Some(now_s), true);
        let Ok(point) = Cgroup::mount_point(&self.kernel) else { return };
        let excluded = self.excluded(&point);
        let own = Cgroup::of(&self.kernel, std::process::id()).ok().flatten();
        let own = own.map(|own| own.path_below(&point));
        let killer = Cgroup::named(&self.kernel, KILLER).and_then(|cgroup| cgroup.pids(&self.kernel));
        self.killer = killer.is_ok_and(|pids| !pids.is_empty());
        if self.killer {
            self.note("systemd-oomd kills where swap is nearly full: a fifth of it is left free".to_owned());
        }
        let mut before = std::mem::take(&mut self.all);
        let (mut paths, mut there) = (BTreeSet::new(), BTreeSet::new());
        let mut all = Vec::new();
        let rules = self.rules.rules.clone();
        for (selection, rule) in &rules {
            all.extend(selection.find(&self.kernel).unwrap_or_default().into_iter().map(|of| (of, rule)));
        }
        for (cgroup, rule) in all {
            let path = cgroup.path_below(&point);
            there.insert(path.clone());
            if overlaps(&paths, &path) {
                continue;
            }
            if rule.by == By::Cgroup && own.as_ref().is_some_and(|own| is_below(own, &path)) {
                self.note(format!("{path}: left alone, as the agent itself is in it"));
                continue;
            }
            if overlaps(&excluded, &path) {
                if !excluded.iter().any(|other| is_below(&path, other)) {
                    self.note(format!("{path}: left alone, as something below it is excluded"));
                }
                continue;
            }
            paths.insert(path.clone());
            self.take_in(&mut before, &cgroup, path, rule);
        }
        let can = |of: fn(&Kernel, &Cgroup) -> bool| {
            self.all.values().all(|workload| workload.process.is_none() && of(&self.kernel, &workload.cgroup))
        };
        (self.can_protect, self.can_limit) = (can(can_protect), can(can_limit));
        self.notes
            .retain(|note| !note.starts_with('/') || there.iter().any(|path: &String| note.starts_with(path.as_str())));
    }

    /// Takes in a cgroup, or its large processes; those that were known `before` as they were.
    fn take_in(
        &mut self,
        before: &mut BTreeMap<TargetId, Workload>,
        cgroup: &Cgroup,
        path: String,
        rule: &WorkloadRule,
    ) {
        let parts = match rule.by {
            By::Cgroup => vec![(None, path)],
            By::Process => {
                let large = large(&self.kernel, cgroup).into_iter();
                large.map(|process| (Some(process), format!("{path}#{}", process.pid))).collect()
            }
        };
        for (process, path) in parts {
            let new = Workload::new(cgroup.clone(), process, path);
            let known = before.remove(&new.id()).filter(|known| known.path == new.path).unwrap_or(new);
            let WorkloadRule { policy, metric: measure, priority, labels, .. } = rule.clone();
            self.all.insert(known.id(), Workload { policy, measure, priority, labels, ..known });
        }
    }

    /// Paths that are left alone, with all that is below them.
    fn excluded(&self, point: &Path) -> BTreeSet<String> {
        let excluded = self.rules.exclude.iter().flat_map(|selection| selection.find(&self.kernel).unwrap_or_default());
        excluded.map(|cgroup| cgroup.path_below(point)).collect()
    }
}

/// Processes of a cgroup that hold a twentieth of its memory or more, in memory and paged out: whether the others run or wait
/// makes no difference. Not this one.
fn large(kernel: &Kernel, cgroup: &Cgroup) -> Vec<ProcessId> {
    let pids = cgroup.pids(kernel).unwrap_or_default();
    let held = |pid: &u32| {
        let status = proc::status(kernel, *pid).ok()?;
        Some((*pid, status.rss().saturating_add(status.swap)))
    };
    let all: Vec<(u32, u64)> = pids.iter().filter_map(held).collect();
    let least = all.iter().map(|(_, bytes)| bytes / 20).sum::<u64>().max(1);
    let large = all.iter().filter(|(pid, bytes)| *bytes >= least && *pid != std::process::id());
    large.filter_map(|(pid, _)| Some(proc::stat(kernel, *pid).ok()?.id)).collect()
}

/// Whether a path, or what is above or below it, is among those.
fn overlaps(paths: &BTreeSet<String>, path: &str) -> bool {
    let below = format!("{}/", path.trim_end_matches('/'));
    let above = path.match_indices('/').map(|(at, _)| if at == 0 { "/" } else { &path[..at] });
    paths.contains(path)
        || above.into_iter().any(|above| paths.contains(above))
        || paths.range(below.clone()..).next().is_some_and(|next| next.starts_with(&below))
}

#[cfg(test)]
mod tests {
    use lowtide_kernel::root::Kernel;
    use lowtide_model::curve::MeasuredCosts;

    use super::super::Rules;
    use super::*;

    #[test]
    fn nothing_is_acted_on_twice_or_through_its_parent() {
        let paths: BTreeSet<String> = ["/a/b", "/c"].map(String::from).into();
        for path in ["/a/b", "/a", "/a/b/c", "/", "/c/d"] {
            assert!(overlaps(&paths, path), "{path}");
        }
        for path in ["/a/bc", "/a/c", "/d", "/ab"] {
            assert!(!overlaps(&paths, path), "{path}");
        }
        assert!(is_below("/a/b", "/a") && is_below("/a", "/a") && is_below("/a", "/") && !is_below("/ab", "/a"));
    }

    #[test]
    fn where_somebody_kills_for_full_swap_some_of_it_is_left_free() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            std::fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(path), text).unwrap();
        };
        put("proc/self/mountinfo", "30 29 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0 partition 1000 100 5\n");
        put("cg/cgroup.controllers", "memory\n");
        let mut workloads = Workloads::new(&Kernel::at(dir.path()), Rules::default(), MeasuredCosts::default());
        workloads.search(0.0);
        assert_eq!((workloads.swap_free(), workloads.new_notes.len()), (Some(900 << 10), 0));
        put("cg/system.slice/systemd-oomd.service/cgroup.procs", "77\n");
        workloads.search(20.0);
        assert_eq!(workloads.swap_free(), Some(700 << 10));
        assert!(workloads.new_notes[0].contains("systemd-oomd"));
    }
}
