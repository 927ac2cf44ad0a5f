//! The price cap of monitoring: how many pages may be sampled, and how often, so that it costs at most a stated share of
//! one CPU, lowtide's own work and its kernel threads together.
//!
//! Problem: the cost of one sample of a page differs by an order of magnitude between machines and workloads, so no
//! fixed setting keeps to a cap. Approach: measure what each part cost per page and second in the last period and
//! scale it to its share of the cap; when fewer pages would make the answer useless, sample less often instead. Slow
//! work that has no fixed rhythm (walking page tables, proportional set sizes) is paid from what the rhythm leaves.

/// Shares of the cap. The rest, a tenth, is kept as a margin against noise.
const COHORT_SHARE: f64 = 0.40;
const MAP_SHARE: f64 = 0.25;
const SLOW_SHARE: f64 = 0.25;

/// Fewest and most pages of the cohort. Below 500 the 95 % interval of a hot eighth is wider than a quarter of it;
/// above 4,000 the gain no longer pays (the interval shrinks with the square root).
const COHORT_PAGES: (f64, f64) = (500.0, 4000.0);
/// Fewest and most regions of the map.
const MAP_REGIONS: (f64, f64) = (60.0, 1000.0);
/// Longest sampling interval of the cohort and of the map, seconds.
const COHORT_SAMPLING_MAX_S: f64 = 8.0;
const MAP_SAMPLING_MAX_S: f64 = 1.0;
/// Samples in one aggregation of the map.
const MAP_SAMPLES: f64 = 10.0;
/// Pages of the cohort until the first period has shown what they cost: a program that has just started grows, and DAMON takes
/// all of the pages again each time.
const FIRST_PAGES: f64 = 1000.0;
/// Starting costs what it costs: the allowance of so many seconds may be spent at once. It is an advance, not a gift. Of less, a
/// program that touches a gigabyte as it starts has no reading for ten seconds.
const ADVANCE_S: f64 = 10.0;
/// Until then, seconds, sampling is not reduced to pay it back.
const PAID_BACK_S: f64 = 10.0;

/// What is monitored, and how often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Pages of the cohort, at most.
    pub cohort_pages: f64,
    /// Seconds between two readings at a page.
    pub cohort_sampling_s: f64,
    /// Regions of the map, at most; 0 = no map.
    pub map_regions: f64,
    /// Seconds between two readings at a region.
    pub map_sampling_s: f64,
}

impl Plan {
    /// Seconds over which the map counts accesses.
    pub fn map_aggregation_s(&self) -> f64 {
        self.map_sampling_s * MAP_SAMPLES
    }
}

/// What a part did and cost in the last period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PartCost {
    /// Samples per second: pages or regions over the sampling interval.
    pub samples_per_s: f64,
    /// CPU seconds per second.
    pub cpu_per_s: f64,
}

/// What the governor decides from.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MonitoringCost {
    /// Seconds since the start.
    pub elapsed_s: f64,
    /// CPU seconds spent since the start, everything together.
    pub spent_s: f64,
    /// The cohort's share of the last period.
    pub cohort: PartCost,
    /// The map's share of the last period.
    pub map: PartCost,
}

/// Holds the price of monitoring under a cap.
#[derive(Debug, Clone)]
pub struct Governor {
    cap: f64,
    base_sampling_s: f64,
    slow_share: f64,
    plan: Plan,
}

impl Governor {
    /// `cap`: share of one CPU; `sampling_s`: the wished time between two samples of a page (`--interval`).
    pub fn new(cap: f64, sampling_s: f64) -> Self {
        // One sample costs 1.5 to 3 microseconds on the machines lowtide was tried on; the first plan assumes 2
        // and the first period corrects it.
        let samples_per_s = |share: f64| share * cap / 2e-6;
        let map_sampling_s = 0.2;
        let plan = Plan {
            cohort_pages: (samples_per_s(COHORT_SHARE) * sampling_s).clamp(COHORT_PAGES.0, FIRST_PAGES),
            cohort_sampling_s: sampling_s,
            map_regions: (samples_per_s(MAP_SHARE) * map_sampling_s).clamp(MAP_REGIONS.0, MAP_REGIONS.1),
            map_sampling_s,
        };
        Self { cap, base_sampling_s: sampling_s, slow_share: SLOW_SHARE, plan }
    }

    /// There is no rhythm to pay for: nearly the entire cap is for slow work.
    pub fn without_rhythm(&mut self) {
        self.slow_share = COHORT_SHARE + MAP_SHARE + SLOW_SHARE;
    }

    /// The plan in force.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// A new plan, if the one in force is off by more than a fifth (a change costs too).
    pub fn adapt(&mut self, frame: &MonitoringCost) -> Option<Plan> {
        // Over the cap so far: everything is scaled down until it is paid back.
        let allowed = self.cap * frame.elapsed_s.max(PAID_BACK_S);
        let brake = if frame.spent_s > allowed { (allowed / frame.spent_s).max(0.25) } else { 1.0 };
        let mut next = self.plan;
        if let Some(samples_per_s) = affordable(&frame.cohort, self.cap * COHORT_SHARE * brake) {
            let (pages, sampling) =
                fit(samples_per_s, self.base_sampling_s, COHORT_SAMPLING_MAX_S.max(self.base_sampling_s), COHORT_PAGES);
            (next.cohort_pages, next.cohort_sampling_s) = (pages, sampling);
        }
        if let Some(samples_per_s) = affordable(&frame.map, self.cap * MAP_SHARE * brake) {
            let (regions, sampling) = fit(samples_per_s, 0.2, MAP_SAMPLING_MAX_S, MAP_REGIONS);
            (next.map_regions, next.map_sampling_s) = (regions, sampling);
        }
        let off = |old: f64, new: f64| (new - old).abs() > 0.2 * old;
        let changed = off(self.plan.cohort_pages, next.cohort_pages)
            || off(self.plan.cohort_sampling_s, next.cohort_sampling_s)
            || off(self.plan.map_regions, next.map_regions)
            || off(self.plan.map_sampling_s, next.map_sampling_s);
        changed.then(|| {
            self.plan = next;
            next
        })
    }

    /// Whether slow work that costs about `cost_s` may be done now, given what slow work has cost so far.
    pub fn may_spend(&self, elapsed_s: f64, slow_spent_s: f64, cost_s: f64) -> bool {
        slow_spent_s + cost_s <= self.cap * (ADVANCE_S + self.slow_share * elapsed_s)
    }
}

/// Samples per second that a part may take for `cpu_per_s`, at their cost in the last period.
fn affordable(part: &PartCost, cpu_per_s: f64) -> Option<f64> {
    (part.samples_per_s > 0.0 && part.cpu_per_s > 0.0).then(|| cpu_per_s * part.samples_per_s / part.cpu_per_s)
}

/// As many pages as `samples_per_s` allows at the base interval; where that is too few to be useful, the interval doubles.
fn fit(samples_per_s: f64, base_s: f64, max_s: f64, (fewest, most): (f64, f64)) -> (f64, f64) {
    let mut sampling = base_s;
    while samples_per_s * sampling < fewest && sampling * 2.0 <= max_s {
        sampling *= 2.0;
    }
    ((samples_per_s * sampling).clamp(fewest, most), sampling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine on which a sample has these costs; runs `periods` of 5 s and returns the mean cost per second of the
    /// second half.
    fn settle(cap: f64, cohort_sample_s: f64, map_sample_s: f64, slow_s: f64, periods: u32) -> (f64, Plan) {
        let mut governor = Governor::new(cap, 1.0);
        let (mut spent, mut half, mut slow) = (0.0, 0.0, 0.0);
        for period in 0..periods {
            let plan = governor.plan();
            let part = |count: f64, every: f64, cost: f64| PartCost {
                samples_per_s: count / every,
                cpu_per_s: count / every * cost,
            };
            let cohort = part(plan.cohort_pages, plan.cohort_sampling_s, cohort_sample_s);
            let map = part(plan.map_regions, plan.map_sampling_s, map_sample_s);
            let elapsed_s = f64::from(period) * 5.0;
            if governor.may_spend(elapsed_s, slow, slow_s) {
                slow += slow_s;
                spent += slow_s;
            }
            spent += 5.0 * (cohort.cpu_per_s + map.cpu_per_s);
            if period < periods / 2 {
                half = spent;
            }
            governor.adapt(&MonitoringCost { elapsed_s: elapsed_s + 5.0, spent_s: spent, cohort, map });
        }
        ((spent - half) / (f64::from(periods - periods / 2) * 5.0), governor.plan())
    }

    #[test]
    fn an_ordinary_machine_gets_two_thousand_pages_a_second() {
        let (cost, plan) = settle(0.01, 1.8e-6, 2.5e-6, 0.005, 60);
        assert!(cost <= 0.01, "{cost}");
        assert!(plan.cohort_pages >= 1800.0 && (plan.cohort_sampling_s - 1.0).abs() < 1e-9, "{plan:?}");
    }

    #[test]
    fn a_dear_machine_is_sampled_less_often() {
        let (cost, plan) = settle(0.01, 30e-6, 30e-6, 0.05, 100);
        assert!(cost <= 0.0105, "{cost}");
        assert!(plan.cohort_sampling_s >= 2.0, "{plan:?}");
    }

    proptest! {
        /// The cap holds wherever the least useful plan fits under it.
        #[test]
        fn the_cap_holds(cap in 0.005f64..0.2, cohort_us in 0.2f64..20.0, map_us in 0.2f64..20.0, slow_ms in 0.1f64..200.0) {
            let (cost, plan) = settle(cap, cohort_us * 1e-6, map_us * 1e-6, slow_ms * 1e-3, 200);
            prop_assert!(cost <= cap * 1.05, "{} of {} with {:?}", cost, cap, plan);
        }
    }
}
