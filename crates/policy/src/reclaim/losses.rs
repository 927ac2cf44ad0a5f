//! The time that a workload lost to refaults, by their prices and by its stalls.
//!
//! The price of a file's page is that of one read by itself; those that are read ahead cost a fraction of it. So file refaults cost
//! no more than some task of the workload stalled on I/O, where that is known. A stall may be reported later than its refault:
//! what refaults cost at most is owed for some seconds, and stalls settle it. Pages of swap are taken at their price: reading
//! them from memory that is compressed is CPU time, which is no stall for the kernel.

use lowtide_model::PAGE_BYTES;
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
    /// Bytes that were evicted on request and not refaulted.
    pub out: PerKind<f64>,
}

impl Lost {
    /// Seconds that a byte costs now that is refaulted.
    pub(super) fn byte_s(&self, frame: &Observation) -> PerKind<f64> {
        let prices = per_kind(&frame.costs).zip(self.price);
        prices.map(|(cost_s, part)| part * cost_s.max(1e-9) / PAGE_BYTES)
    }

    /// Seconds that it would cost to refault all that is out.
    pub(super) fn out_s(&self, frame: &Observation) -> f64 {
        self.out.zip(self.byte_s(frame)).map(|(bytes, cost_s)| bytes * cost_s).total()
    }
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
    /// Bytes that were evicted on request and not refaulted; `None` before the first reading.
    #[serde(default)]
    out: Option<PerKind<f64>>,
}

impl Losses {
    /// Takes in a reading of the target; what it lost since the last.
    pub fn observe(&mut self, target: &WorkloadState, frame: &Observation) -> Lost {
        let elapsed_s = self.last_s.replace(frame.now_s).map_or(0.0, |last_s| (frame.now_s - last_s).max(0.0));
        let decayed = |half_s: f64| 0.5f64.powf(elapsed_s / half_s);
        let cost_s = self.refaulted(target, frame).zip(per_kind(&frame.costs)).map(|(pages, cost_s)| pages * cost_s);
        let stalls = target.io_pressure.map(|pressure| pressure + target.pressure.unwrap_or(0.0));
        self.owed_s = self.owed_s * decayed(WRITTEN_OFF_S) + cost_s.file;
        let lost_s = stalls.map_or(self.owed_s, |share| self.owed_s.min(share * elapsed_s));
        self.owed_s -= lost_s;
        self.lost_s = self.lost_s * decayed(PRICED_S) + lost_s;
        self.worst_s = self.worst_s * decayed(PRICED_S) + cost_s.file;
        let out = self.out.unwrap_or_default();
        Lost { elapsed_s, lost_s: cost_s.anon + lost_s, price: self.price(), out }
    }

    /// Pages that were refaulted, and evicted on request before: a program that starts reads files that others left, and is not slowed
    /// down by what nobody did. What is paged out at the first reading may have been an agent's that left no word.
    fn refaulted(&mut self, target: &WorkloadState, frame: &Observation) -> PerKind<f64> {
        let first = PerKind { anon: target.swapped + target.refaults.anon * PAGE_BYTES, file: 0.0 };
        let there = self.out.unwrap_or(first) + frame.evicted(target.id);
        let back = target.refaults.zip(there).map(|(pages, there)| there.min(pages * PAGE_BYTES));
        let left = there.zip(back).map(|(there, back)| there - back);
        self.out = Some(PerKind { anon: left.anon.min(target.swapped), ..left });
        back.map(|bytes| bytes / PAGE_BYTES)
    }

    /// What a page costs, as a part of its price. What is owed may still be settled.
    fn price(&self) -> PerKind<f64> {
        let measured = ((self.lost_s + self.owed_s) / self.worst_s).clamp(LEAST, 1.0);
        PerKind { anon: 1.0, file: if self.worst_s > TELLING_S { measured } else { UNKNOWN } }
    }

    /// Whether a file can hold it.
    pub fn is_sound(&self) -> bool {
        let out = self.out.unwrap_or_default();
        [self.lost_s, self.worst_s, out.anon, out.file].iter().all(|of| of.is_finite() && *of >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Reclaimed;

    /// So many pages refaulted, at ten microseconds of swap and a hundred of a file, and some task stalled for a share of the time.
    fn observe(losses: &mut Losses, now_s: f64, pages: [f64; 2], io_pressure: Option<f64>) -> f64 {
        let target = WorkloadState { refaults: pages.into(), io_pressure, swapped: 1e9, ..WorkloadState::default() };
        let evicted = Reclaimed { bytes: PerKind::both(1e9), ..Reclaimed::default() };
        losses.observe(&target, &Observation { now_s, reclaimed: vec![evicted], ..Observation::default() }).lost_s
    }

    #[test]
    fn what_was_not_evicted_on_request_costs_nothing() {
        let mut losses = Losses::default();
        let mut observe = |now_s, pages: [f64; 2], swapped, evicted: [f64; 2]| {
            let target = WorkloadState { refaults: pages.into(), swapped, ..WorkloadState::default() };
            let bytes = PerKind::from(evicted).map(|pages| pages * PAGE_BYTES);
            let reclaimed = vec![Reclaimed { bytes, ..Reclaimed::default() }];
            let lost = losses.observe(&target, &Observation { now_s, reclaimed, ..Observation::default() });
            ((1e5 * lost.lost_s).round(), lost.out.map(|bytes| bytes / PAGE_BYTES))
        };
        assert_eq!(observe(0.0, [0.0, 0.0], 0.0, [0.0, 0.0]), (0.0, PerKind::default()));
        // A program that starts.
        assert_eq!(observe(1.0, [0.0, 500.0], 0.0, [0.0, 0.0]).0, 0.0);
        assert_eq!(observe(2.0, [0.0, 30.0], 8e6, [1000.0, 10.0]), (100.0, PerKind { anon: 1000.0, file: 0.0 }));
        assert_eq!(observe(3.0, [600.0, 0.0], 8e6, [0.0, 0.0]), (600.0, PerKind { anon: 400.0, file: 0.0 }));
        assert_eq!(observe(4.0, [600.0, 0.0], 8e6, [0.0, 0.0]), (400.0, PerKind::default()));
        // What is paged out before the first reading is taken to have been so on request.
        let target = WorkloadState { refaults: [10.0, 10.0].into(), swapped: 4096.0, ..WorkloadState::default() };
        let lost = Losses::default().observe(&target, &Observation::default());
        assert_eq!((lost.lost_s, lost.out.anon), (10.0 * 10e-6, 4096.0));
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
