//! The time that a workload lost to refaults, by their prices and by its stalls.
//!
//! The price of a file's page is that of one read by itself; those that are read ahead cost a fraction of it. So file refaults cost
//! no more than some task of the workload stalled on I/O, where that is known. A stall may be reported later than its refault:
//! what refaults cost at most is owed for some seconds, and stalls settle it. Pages of swap are taken at their price: reading
//! them from memory that is compressed is CPU time, which is no stall for the kernel.

use lowtide_model::kind::PerKind;
use serde::{Deserialize, Serialize};

use crate::machine::{Observation, WorkloadState, per_kind};

/// Half of what is owed is written off in so many seconds: no stall belongs to it.
const WRITTEN_OFF_S: f64 = 3.0;
/// Refaults of the past count half for the price after so many seconds.
const PRICED_S: f64 = 60.0;
/// The price is known from refaults that would cost so many seconds, or more.
const TELLING_S: f64 = 0.01;
/// No page costs less than this part of its price.
const LEAST: f64 = 0.02;
/// What a file's page is taken to cost before any was refaulted: the kernel reads up to 32 pages ahead.
const UNKNOWN: f64 = 0.125;

/// What a target lost since the last observation, and what its pages cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lost {
    /// Seconds since then.
    pub elapsed_s: f64,
    /// Seconds lost in them.
    pub lost_s: f64,
    /// What a page costs now, as a part of its price.
    pub price: PerKind<f64>,
}

/// What is known of one target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Losses {
    #[serde(skip)]
    last_s: Option<f64>,
    #[serde(skip)]
    owed_s: f64,
    /// Seconds that file refaults cost, and would have cost at their price, lately.
    lost_s: f64,
    worst_s: f64,
}

impl Losses {
    /// Takes in a reading of the target; what it lost since the last.
    pub fn observe(&mut self, target: &WorkloadState, frame: &Observation) -> Lost {
        let elapsed_s = self.last_s.replace(frame.now_s).map_or(0.0, |last_s| (frame.now_s - last_s).max(0.0));
        let decayed = |half_s: f64| 0.5f64.powf(elapsed_s / half_s);
        let cost_s = target.refaults.zip(per_kind(&frame.costs)).map(|(pages, cost_s)| pages * cost_s);
        let stalls = target.io_pressure.map(|pressure| pressure + target.pressure.unwrap_or(0.0));
        self.owed_s = self.owed_s * decayed(WRITTEN_OFF_S) + cost_s.file;
        let lost_s = stalls.map_or(self.owed_s, |share| self.owed_s.min(share * elapsed_s));
        self.owed_s -= lost_s;
        self.lost_s = self.lost_s * decayed(PRICED_S) + lost_s;
        self.worst_s = self.worst_s * decayed(PRICED_S) + cost_s.file;
        Lost { elapsed_s, lost_s: cost_s.anon + lost_s, price: self.price() }
    }

    /// What a page costs, as a part of its price. What is owed may still be settled.
    fn price(&self) -> PerKind<f64> {
        let measured = ((self.lost_s + self.owed_s) / self.worst_s).clamp(LEAST, 1.0);
        PerKind { anon: 1.0, file: if self.worst_s > TELLING_S { measured } else { UNKNOWN } }
    }

    /// Whether a file can hold it.
    pub fn is_sound(&self) -> bool {
        [self.lost_s, self.worst_s].iter().all(|seconds| seconds.is_finite() && *seconds >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many pages refaulted, at ten microseconds of swap and a hundred of a file, and some task stalled for a share of the time.
    fn observe(losses: &mut Losses, now_s: f64, pages: [f64; 2], io_pressure: Option<f64>) -> f64 {
        let target = WorkloadState { refaults: pages.into(), io_pressure, ..WorkloadState::default() };
        losses.observe(&target, &Observation { now_s, ..Observation::default() }).lost_s
    }

    #[test]
    fn refaults_cost_their_price_where_stalls_are_not_known() {
        let mut losses = Losses::default();
        observe(&mut losses, 0.0, [0.0; 2], None);
        assert_eq!(losses.price(), PerKind { anon: 1.0, file: UNKNOWN });
        assert!((observe(&mut losses, 1.0, [10_000.0, 1_000.0], None) - 0.2).abs() < 1e-9);
        assert_eq!(losses.price(), PerKind::both(1.0));
    }

    #[test]
    fn a_stall_settles_what_files_owe_and_no_more() {
        let mut losses = Losses::default();
        observe(&mut losses, 0.0, [0.0; 2], Some(0.0));
        assert!((observe(&mut losses, 1.0, [1_000.0, 1_000.0], Some(0.0)) - 0.01).abs() < 1e-9, "swap needs no stall");
        assert!((losses.price().file - 1.0).abs() < 1e-9, "a stall may still come");
        assert!((observe(&mut losses, 2.0, [0.0; 2], Some(0.02)) - 0.02).abs() < 1e-9);
        let rest = observe(&mut losses, 3.0, [0.0; 2], Some(1.0));
        assert!((0.03..0.08).contains(&rest), "{rest}: some of it was written off");
        // What never stalled anything was cheap.
        observe(&mut losses, 4.0, [0.0, 10_000.0], Some(0.0));
        for now_s in 5..60 {
            observe(&mut losses, f64::from(now_s), [0.0; 2], Some(0.0));
        }
        assert!(losses.price().file < 0.2, "{:?}", losses.price());
    }
}
