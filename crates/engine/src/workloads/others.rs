//! Others that reclaim from the same workloads (Senpai, koordlet, an operator's script): noticed by what they change, and left alone.

use lowtide_kernel::cgroup::Vitals;

/// So many changes are another agent's method, and not a setting or a single command.
const TIMES: usize = 2;
/// Seconds for which a time counts.
const COUNTS_S: f64 = 600.0;

/// What others did to one workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Others {
    /// The last `memory.high`, once it was read.
    high: Option<u64>,
    /// Pages that had gone on demand when it was read, with those that lowtide demanded since.
    on_demand: Option<u64>,
    /// When something was found that they did.
    did_s: Vec<f64>,
}

impl Others {
    /// Takes in a reading of the workload.
    pub fn observe(&mut self, vitals: &Vitals, now_s: f64) {
        // A clock that was set back must not keep what was.
        self.did_s.retain(|at_s| (0.0..COUNTS_S).contains(&(now_s - at_s)));
        let limited = vitals.high.is_some_and(|high| self.high.replace(high).is_some_and(|before| before != high));
        let demanded =
            vitals.stolen_on_demand.is_some_and(|now| self.on_demand.replace(now).is_some_and(|before| now > before));
        if limited || demanded {
            // The last ones are enough.
            self.did_s.push(now_s);
            let old = self.did_s.len().saturating_sub(TIMES);
            self.did_s.drain(..old);
        }
    }

    /// lowtide itself set `memory.high` since the last reading.
    pub fn except_limit(&mut self) {
        self.high = None;
    }

    /// lowtide itself reclaimed between these two readings.
    pub fn except(&mut self, before: &Vitals, after: &Vitals) {
        let own = after.stolen_on_demand.unwrap_or(0).saturating_sub(before.stolen_on_demand.unwrap_or(0));
        self.on_demand = self.on_demand.map(|known| known.saturating_add(own));
    }

    /// Whether another agent reclaims from this workload: each would take the other's evictions for its own.
    pub fn are_active(&self) -> bool {
        self.did_s.len() >= TIMES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_is_a_setting_and_two_are_an_agent_until_it_rests() {
        let mut others = Others::default();
        for (now_s, high, active) in [
            (0.0, Some(u64::MAX), false),
            (5.0, Some(100), false),
            (10.0, Some(100), false),
            (15.0, None, false),
            (20.0, Some(90), true),
            (25.0, Some(80), true),
            (619.0, Some(80), true),
            (626.0, Some(80), false),
        ] {
            others.observe(&Vitals { high, ..Vitals::default() }, now_s);
            assert_eq!(others.are_active(), active, "{now_s}");
        }
    }

    #[test]
    fn what_goes_on_demand_is_others_doing_but_for_what_lowtide_demanded() {
        let vitals = |on_demand| Vitals { stolen_on_demand: on_demand, ..Vitals::default() };
        let mut others = Others::default();
        for (now_s, (before, after), read, active) in [
            // Evictions before the first reading do not count.
            (0.0, (0, 0), Some(100), false),
            (5.0, (100, 160), Some(160), false),
            (10.0, (160, 200), Some(200), false),
            // Others evicted 10 after lowtide had evicted 40.
            (15.0, (200, 240), Some(250), false),
            (20.0, (250, 250), Some(250), false),
            (25.0, (250, 250), None, false),
            (30.0, (250, 250), Some(251), true),
        ] {
            others.except(&vitals(Some(before)), &vitals(Some(after)));
            others.observe(&vitals(read), now_s);
            assert_eq!(others.are_active(), active, "{now_s}");
        }
    }
}
