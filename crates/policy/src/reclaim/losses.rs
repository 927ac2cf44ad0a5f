//! The time that a workload lost to refaults, by their price and by its stalls.
//!
//! A price is that of a page by itself: files that are read ahead, and memory that compresses well, cost a fraction of it. So what
//! refaults cost is no more than some task of the workload stalled, where stalls are known. A stall may be reported later than its
//! refault: what refaults cost at most is owed for some seconds, and stalls settle it.

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

/// What is known of one target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Losses {
    #[serde(skip)]
    last_s: Option<f64>,
    #[serde(skip)]
    owed_s: f64,
    /// Seconds that refaults cost, and would have cost at their prices, lately.
    lost_s: f64,
    worst_s: f64,
}

impl Losses {
    /// Takes in a reading of the target: seconds since the last, and seconds lost in them.
    pub fn observe(&mut self, target: &WorkloadState, frame: &Observation) -> (f64, f64) {
        let elapsed_s = self.last_s.replace(frame.now_s).map_or(0.0, |last_s| (frame.now_s - last_s).max(0.0));
        let decayed = |half_s: f64| 0.5f64.powf(elapsed_s / half_s);
        let worst_s = target.refaults.zip(per_kind(&frame.costs)).map(|(pages, cost_s)| pages * cost_s).total();
        let stalls = target.pressure.map(|pressure| pressure + target.io_pressure.unwrap_or(0.0));
        self.owed_s = self.owed_s * decayed(WRITTEN_OFF_S) + worst_s;
        let lost_s = stalls.map_or(self.owed_s, |share| self.owed_s.min(share * elapsed_s));
        self.owed_s -= lost_s;
        self.lost_s = self.lost_s * decayed(PRICED_S) + lost_s;
        self.worst_s = self.worst_s * decayed(PRICED_S) + worst_s;
        (elapsed_s, lost_s)
    }

    /// What a page costs, as a part of its price. What is owed may still be settled.
    pub fn price(&self) -> f64 {
        if self.worst_s > TELLING_S { ((self.lost_s + self.owed_s) / self.worst_s).clamp(LEAST, 1.0) } else { 1.0 }
    }

    /// Whether a file can hold it.
    pub fn is_sound(&self) -> bool {
        [self.lost_s, self.worst_s].iter().all(|seconds| seconds.is_finite() && *seconds >= 0.0)
    }
}
