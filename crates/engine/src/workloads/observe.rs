//! What was read of a workload, as policies need it.

use lowtide_kernel::cgroup::Vitals;
use lowtide_model::cohort::AgeBin;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::target::TargetId;
use lowtide_model::units::float;
use lowtide_policy::machine::WorkloadState;

use super::Workload;

/// A reading of a workload.
pub(super) struct Reading<'a> {
    pub now_s: f64,
    pub vitals: &'a Vitals,
    /// CPU time of its tasks in the kernel, seconds.
    pub system_s: Option<f64>,
}

/// The state of a workload for its policy. `machine`: shares of the time in which some tasks, and all tasks, of the machine were
/// stalled on memory: an upper bound for a workload whose own pressure is not reported.
pub(super) fn target(
    (id, workload): (TargetId, &Workload),
    &Reading { now_s, vitals, system_s }: &Reading<'_>,
    machine: [Option<f64>; 2],
) -> WorkloadState {
    let elapsed_s = now_s - workload.observed_s;
    let before = (!workload.observed_s.is_nan()).then_some(&workload.now);
    let stalled = |of: fn(&Vitals) -> Option<f64>| share(of(vitals)? - of(before?)?, elapsed_s);
    let back =
        |kind: Kind| before.map_or(0.0, |before| float(vitals.refaults[kind].saturating_sub(before.refaults[kind])));
    let swapped = float(vitals.swapped);
    WorkloadState {
        id,
        watched_s: now_s - workload.found_s.unwrap_or(now_s),
        resident: vitals.resident.map(float),
        swapped,
        floor: float(vitals.floor),
        ages: if workload.are_ages_new {
            of_living(&workload.ages, vitals.resident.map(float).into())
        } else {
            Vec::new()
        },
        ages_lag_s: (now_s - workload.ages_read_s).max(0.0),
        pressure: stalled(|of| of.memory_some_s).or(machine[0]),
        io_pressure: stalled(|of| of.io_some_s),
        // The share of the time in which it made no progress, at most: all its tasks stalled on memory, or were busy in the
        // kernel. How much of that was due to eviction, the policy judges by refaults.
        stalled: before.and_then(|before| {
            let all_s = vitals.memory_full_s.zip(before.memory_full_s).map(|(now, before)| now - before);
            let all_s = all_s.or(machine[1].map(|share| share * elapsed_s))?;
            let system_s = system_s.zip(workload.system_s).map_or(0.0, |(now, before)| (now - before).max(0.0));
            share(all_s + system_s, elapsed_s)
        }),
        refaults: PerKind::from_fn(back),
        stored: workload.kept_of(vitals),
        metric: workload.metric,
        priority: workload.priority,
        ..WorkloadState::default()
    }
}

/// Idle ages of no more memory than there is. A cgroup that was removed keeps its page cache, and is still listed under the
/// path that its successor has: the excess belongs to the dead one, and is not used.
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

#[cfg(test)]
mod tests {
    use lowtide_model::cohort::Estimate;

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
}
