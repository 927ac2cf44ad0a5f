//! What measuring may cost: one cap for everything that the loop pays for.
//!
//! Problem: walks over a target, page tables and cgroups cost between nothing and seconds, and no fixed interval suits all
//! targets. Approach: irregular work is timed, and done again only when its last cost fits into what the cap has left.

use lowtide_kernel::sys;
use lowtide_policy::governor::{Governor, MonitoringCost, PartCost, Plan};

/// A change of the target's size that makes work due again.
const GROWTH: f64 = 0.05;
/// Work is not repeated sooner than this, seconds, however fast the target grows.
const SOONEST_S: f64 = 0.15;

/// Work without an interval of its own: when it was done last, and what it cost then.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// When it was done last, seconds.
    pub done_s: Option<f64>,
    /// CPU seconds it took then.
    pub cost_s: f64,
    /// The target's size then, bytes.
    pub size: f64,
}

impl Work {
    /// Whether it is due: after `every_s`, or sooner where the target's size has changed.
    pub fn is_due(&self, now_s: f64, every_s: f64, size: f64) -> bool {
        let Some(done_s) = self.done_s else { return true };
        now_s - done_s >= every_s || (self.has_grown(size) && now_s - done_s >= SOONEST_S)
    }

    /// Whether the target's size has changed since.
    pub fn has_grown(&self, size: f64) -> bool {
        (size - self.size).abs() > GROWTH * self.size.max(1.0)
    }

    /// Makes it due at the next opportunity.
    pub fn renew(&mut self) {
        self.size = 0.0;
    }
}

/// The price of one record, or of one agent's measuring.
#[derive(Debug, Clone)]
pub struct Price {
    governor: Governor,
    /// The cap, as a share of one CPU.
    pub cap: f64,
    own_at_start_s: f64,
    irregular_s: f64,
    /// CPU seconds of kernel threads that sample for it.
    pub kernel_s: f64,
    /// CPU seconds of this process that were spent on actions, which is not measuring.
    pub acted_s: f64,
    /// CPU seconds that the source's next step takes, which other work leaves to it.
    pub reserve_s: f64,
}

impl Price {
    /// `cap`: share of one CPU.
    pub fn new(cap: f64) -> Self {
        Self {
            governor: Governor::new(cap, 1.0),
            cap,
            own_at_start_s: sys::own_cpu_s(),
            irregular_s: 0.0,
            kernel_s: 0.0,
            acted_s: 0.0,
            reserve_s: 0.0,
        }
    }

    /// CPU seconds spent on measuring so far: this process and the kernel's threads.
    pub fn spent_s(&self) -> f64 {
        sys::own_cpu_s() - self.own_at_start_s + self.kernel_s - self.acted_s
    }

    /// Sizes and intervals that fit the cap.
    pub fn plan(&self) -> Plan {
        self.governor.plan()
    }

    /// A new plan, if what sampling cost in the last period calls for one.
    pub fn adapt(&mut self, now_s: f64, cohort: PartCost, map: PartCost) -> Option<Plan> {
        let spent_s = self.spent_s();
        self.governor.adapt(&MonitoringCost { elapsed_s: now_s, spent_s, cohort, map })
    }

    /// Nothing samples at an interval of its own: nearly all of the cap is for irregular work.
    pub fn without_sampling(&mut self) {
        self.governor.without_rhythm();
    }

    /// Whether the cap has so many CPU seconds left for irregular work.
    pub fn has(&self, now_s: f64, cost_s: f64) -> bool {
        self.governor.may_spend(now_s, self.irregular_s, cost_s)
    }

    /// Whether work may be done again, at what it cost the last time.
    pub fn allows(&self, work: &Work, now_s: f64) -> bool {
        work.done_s.is_none() || self.has(now_s, work.cost_s)
    }

    /// The same for work that can wait for the source's next step, also the first time.
    pub fn allows_later(&self, work: &Work, now_s: f64) -> bool {
        self.has(now_s, work.cost_s + self.reserve_s)
    }

    /// Whether more was spent so far than the cap allows, which starting does.
    pub fn owes(&self, now_s: f64) -> bool {
        self.spent_s() > self.cap * now_s
    }

    /// Counts CPU seconds of irregular work.
    pub fn charge(&mut self, cost_s: f64) {
        self.irregular_s += cost_s;
    }

    /// Does irregular work on a target of this size, and counts what it cost.
    pub fn pay<T>(&mut self, work: &mut Work, (now_s, size): (f64, f64), act: impl FnOnce() -> T) -> T {
        let before_s = sys::thread_cpu_s();
        let result = act();
        let cost_s = sys::thread_cpu_s() - before_s;
        self.charge(cost_s);
        *work = Work { done_s: Some(now_s), cost_s, size };
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_due_after_a_while_or_when_the_target_changed() {
        let mut work = Work { done_s: Some(10.0), cost_s: 0.1, size: 100.0 };
        for (now_s, size, due) in [(12.0, 100.0, false), (15.0, 100.0, true), (10.1, 200.0, false), (10.2, 94.0, true)]
        {
            assert_eq!(work.is_due(now_s, 5.0, size), due, "{now_s} {size}");
        }
        work.renew();
        assert!(work.is_due(10.2, 5.0, 100.0) && Work::default().is_due(0.0, 5.0, 0.0));
    }

    #[test]
    fn what_was_spent_is_paid_back_before_the_next_and_a_reserve_is_kept() {
        let mut price = Price::new(0.01);
        let work = Work { done_s: Some(0.0), cost_s: 0.04, size: 1.0 };
        assert!(price.allows(&work, 1.0));
        price.charge(0.13);
        // The advance is a tenth of a CPU second; a quarter of one percent comes with every second.
        assert!(!price.allows(&work, 1.0) && !price.allows(&work, 20.0) && price.allows(&work, 28.1));
        price.reserve_s = 0.02;
        assert!(!price.allows_later(&work, 28.1) && price.allows_later(&work, 36.1));
        assert!(price.allows(&Work::default(), 0.0), "the first time shows what it costs");
        assert!(!price.allows_later(&Work::default(), 19.9) && price.allows_later(&Work::default(), 20.1));
        let mut paid = Work::default();
        assert_eq!(price.pay(&mut paid, (50.0, 7.0), || 3), 3);
        assert_eq!((paid.done_s, paid.size), (Some(50.0), 7.0));
    }
}
