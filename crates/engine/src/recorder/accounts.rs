//! Reading a target's accounts, as deep as the price allows.

use lowtide_kernel::account::{Accountant, Accounts, Depth};
use lowtide_kernel::root::Result;
use lowtide_kernel::sys;

use crate::price::{Price, Work};

/// Proportional set sizes are read again after so long, seconds.
const PSS_EVERY_S: f64 = 10.0;
/// And not before: many programs end soon.
const PSS_FROM_S: f64 = 0.9;
/// Reading processes and cgroups at a tick is not irregular work where it costs no more than this share of the cap.
const FREE_SHARE: f64 = 0.1;
/// They are read at least so often, seconds, or new processes would be missed altogether; less often where that alone would be
/// more than the cap.
const LEAST_EVERY_S: f64 = 10.0;
/// Proportional set sizes take no more than this share of the cap: each is a walk over all pages, which the source needs more.
const PSS_SHARE: f64 = 0.1;

/// The accounts of a target, and what reading each depth cost.
#[derive(Debug)]
pub(super) struct AccountReader {
    pub accountant: Accountant,
    interval_s: f64,
    pss: Work,
    processes: Work,
    charges: Work,
    /// Readings, and those that left the processes out.
    readings: (u64, u64),
}

impl AccountReader {
    pub fn new(accountant: Accountant, interval_s: f64) -> Self {
        let [pss, processes, charges] = [Work::default(); 3];
        Self { accountant, interval_s, pss, processes, charges, readings: (0, 0) }
    }

    /// How deep to read now.
    fn depth(&self, now_s: f64, price: &Price, free_s: f64) -> Depth {
        let may = |work: &Work| {
            let least_every_s = LEAST_EVERY_S.max(work.cost_s / price.cap);
            work.cost_s <= free_s || work.is_due(now_s, least_every_s, work.size) || price.allows_later(work, now_s)
        };
        // The charges of a single cgroup are read in any case: only what comes on top can be saved.
        let single = self.accountant.cgroups.len() == 1;
        let charges_s = if single { self.charges.cost_s } else { 0.0 };
        let processes = Work { cost_s: (self.processes.cost_s - charges_s).max(0.0), ..self.processes };
        let pss_every_s = PSS_EVERY_S.max(self.pss.cost_s / (PSS_SHARE * price.cap));
        let pss_due = now_s > PSS_FROM_S && self.pss.is_due(now_s, pss_every_s, self.pss.size);
        // What the first costs is not known; it walks over as much as the source's next step.
        let pss = Work {
            done_s: Some(now_s),
            cost_s: self.pss.done_s.map_or(price.reserve_s, |_| self.pss.cost_s),
            size: 0.0,
        };
        let is_tree = self.accountant.is_tree();
        if pss_due && price.allows_later(&pss, now_s) {
            Depth::Pss
        } else if !(is_tree || self.accountant.has_charges()) || may(&processes) {
            Depth::Processes
        } else if is_tree {
            Depth::System
        } else if single || may(&self.charges) {
            Depth::Charges
        } else {
            Depth::System
        }
    }

    /// Reads them.
    pub fn read(&mut self, now_s: f64, price: &mut Price) -> Result<Accounts> {
        let free_s = FREE_SHARE * price.cap * self.interval_s;
        let depth = self.depth(now_s, price, free_s);
        let before_s = sys::thread_cpu_s();
        let accounts = self.accountant.read(depth)?;
        let work = Work { done_s: Some(now_s), cost_s: sys::thread_cpu_s() - before_s, size: 0.0 };
        self.readings.0 += 1;
        self.readings.1 += u64::from(depth < Depth::Processes);
        if depth == Depth::Pss || (depth > Depth::System && work.cost_s > free_s) {
            price.charge(work.cost_s);
        }
        match depth {
            Depth::System => {}
            Depth::Charges => self.charges = work,
            Depth::Processes => self.processes = work,
            Depth::Pss => self.pss = work,
        }
        Ok(accounts)
    }

    /// What a reader of the record must know.
    pub fn note(&self) -> Option<String> {
        let (all, shallow) = self.readings;
        (shallow > 0).then(|| {
            format!("reading all processes and cgroups at every tick costs too much: left out in {shallow} of {all}")
        })
    }
}
