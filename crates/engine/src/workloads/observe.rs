//! What was read of a workload, as policies need it.

use lowtide_kernel::cgroup::Vitals;
use lowtide_model::PAGE_BYTES;
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
            let since = |kind| float(vitals.refaults[kind].saturating_sub(workload.found_refaults[kind])) * PAGE_BYTES;
            of_resident(&workload.ages, vitals.resident.map(float), PerKind::from_fn(since))
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

/// Idle ages of no more memory than is resident, of which so many bytes were refaulted after the pages were found whose ages were
/// sampled. A cgroup that was removed keeps its page cache, and is still listed under the path that its successor has: the excess
/// belongs to the dead one, and is not used. What was refaulted is in other frames than those that are sampled, which are idle
/// since it was evicted: as much of the oldest memory counts as just used.
fn of_resident(ages: &[AgeBin], resident: PerKind<f64>, refaulted: PerKind<f64>) -> Vec<AgeBin> {
    let mut ages = ages.to_vec();
    for kind in Kind::ALL {
        let refaulted = refaulted[kind].min(resident[kind]);
        let mut left = resident[kind] - refaulted;
        let mut bins: Vec<&mut AgeBin> = ages.iter_mut().filter(|bin| bin.anon == (kind == Kind::Anon)).collect();
        // From the youngest on; what is counted in batches may be off by a little.
        for bin in &mut bins {
            bin.size.bytes = bin.size.bytes.min(left);
            left -= bin.size.bytes;
        }
        if let Some(youngest) = bins.first_mut() {
            youngest.size.bytes += refaulted;
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

    fn bytes(bins: &[(f64, f64)], resident: f64, refaulted: f64) -> Vec<f64> {
        let bin = |&(min_s, bytes)| AgeBin {
            anon: false,
            min_s,
            max_s: None,
            size: Estimate { bytes, ci95: 0.0 },
            first_touched: None,
        };
        let ages: Vec<AgeBin> = bins.iter().map(bin).collect();
        of_resident(&ages, [0.0, resident].into(), [0.0, refaulted].into()).iter().map(|bin| bin.size.bytes).collect()
    }

    #[test]
    fn the_memory_of_a_removed_cgroup_is_not_its_successors() {
        assert_eq!(bytes(&[(0.0, 2.0), (10.0, 1.0), (30.0, 6.0)], 4.0, 0.0), [2.0, 1.0, 1.0]);
    }

    #[test]
    fn what_was_refaulted_is_not_idle_however_long_its_old_frames_are() {
        // 32 in use were evicted with 64 of 128 that were idle, and came back: their old frames are idle by now.
        assert_eq!(bytes(&[(0.0, 0.0), (5.0, 160.0)], 96.0, 32.0), [32.0, 64.0]);
        // Those of which it is known are in use.
        assert_eq!(bytes(&[(0.0, 32.0), (5.0, 64.0)], 96.0, 0.0), [32.0, 64.0]);
        // What was refaulted again and again is no more than there is.
        assert_eq!(bytes(&[(0.0, 0.0), (5.0, 160.0)], 96.0, 200.0), [96.0, 0.0]);
    }
}
