//! What was read of a workload, as policies see it.

use std::collections::BTreeMap;

use lowtide_kernel::cgroup::Vitals;
use lowtide_kernel::monitor::mglru::Round;
use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::generations::CgroupUse;
use lowtide_policy::machine::Target;

use super::{Watched, bytes};

/// What a policy sees of a workload. `machine`: shares of the time that some task of the machine, and that each of two,
/// stalled on memory, which is no less than the workload's own, as a rule, where that is not told.
pub(super) fn target(
    (id, watched): (u64, &Watched),
    vitals: &Vitals,
    system_s: Option<f64>,
    machine: [Option<f64>; 2],
    now_s: f64,
) -> Target {
    let elapsed_s = now_s - watched.seen_s;
    let before = (!watched.seen_s.is_nan()).then_some(&watched.now);
    let stalled =
        |which: usize| -> Option<f64> { share(vitals.stalled_s[which]? - before?.stalled_s[which]?, elapsed_s) };
    let back =
        |side: usize| before.map_or(0.0, |before| bytes(vitals.refaults[side].saturating_sub(before.refaults[side])));
    let swapped = bytes(vitals.swapped);
    Target {
        id,
        resident: vitals.resident.map(bytes),
        swapped,
        floor: bytes(vitals.floor),
        ages: if watched.told { of_living(&watched.ages, vitals.resident.map(bytes)) } else { Vec::new() },
        pressure: stalled(0).or(machine[0]),
        io_pressure: stalled(1),
        // The share of the time in which it did not get on, at most: all its tasks stalled on memory, or were busy in the
        // kernel. How much of that was for memory that was taken from it, others must judge by what came back.
        stalled: before.and_then(|before| {
            let all_s = vitals.all_stalled_s.zip(before.all_stalled_s).map(|(now, before)| now - before);
            let all_s = all_s.or(machine[1].map(|share| share * elapsed_s))?;
            let system_s = system_s.zip(watched.system_s).map_or(0.0, |(now, before)| (now - before).max(0.0));
            share(all_s + system_s, elapsed_s)
        }),
        refaults: [back(0), back(1)],
        stored: watched.kept_of(vitals),
        metric: watched.metric,
        priority: watched.priority,
        ..Target::default()
    }
}

/// Idle ages of no more memory than there is. A cgroup that was removed keeps its page cache, and is still listed under the
/// path that its successor has: what is too much is the dead one's, and nobody uses it.
fn of_living(ages: &[AgeBin], resident: [f64; 2]) -> Vec<AgeBin> {
    let mut ages = ages.to_vec();
    for (side, resident) in resident.into_iter().enumerate() {
        let mut left = resident;
        // From the youngest on; what is counted in batches may be off by a little.
        for bin in ages.iter_mut().filter(|bin| bin.anon == (side == 0)) {
            bin.size.bytes = bin.size.bytes.min(left);
            left -= bin.size.bytes;
        }
    }
    ages
}

pub(super) fn share(part_s: f64, whole_s: f64) -> Option<f64> {
    (whole_s > 0.0).then(|| (part_s / whole_s).clamp(0.0, 1.0))
}

/// Histograms of idle ages by the cgroup's path, nodes taken together.
pub(super) fn by_path(round: &Round) -> BTreeMap<&str, Vec<AgeBin>> {
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
    fn the_memory_of_a_removed_cgroup_is_not_its_successors() {
        let bin = |min_s, bytes| AgeBin {
            anon: false,
            min_s,
            max_s: None,
            size: Estimate { bytes, ci95: 0.0 },
            first_touched: None,
        };
        let ages = of_living(&[bin(0.0, 2.0), bin(10.0, 1.0), bin(30.0, 6.0)], [0.0, 4.0]);
        assert_eq!(ages.iter().map(|bin| bin.size.bytes).collect::<Vec<f64>>(), [2.0, 1.0, 1.0]);
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
        let round = Round { cgroups, ..Round::default() };
        let ages = by_path(&round).remove("/a").unwrap();
        let of = |anon: bool| -> Vec<_> {
            let bins = ages.iter().filter(|bin| bin.anon == anon);
            bins.map(|bin| (bin.min_s, bin.max_s, bin.size.bytes)).collect()
        };
        assert_eq!(of(true), [(0.0, Some(10.0), 15.0), (10.0, None, 135.0)]);
        assert_eq!(of(false), [(0.0, Some(10.0), 1.0), (10.0, Some(30.0), 1.0), (30.0, None, 38.0)]);
    }
}
