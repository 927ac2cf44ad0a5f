//! Workloads that come and go for days: whether what a policy remembers grows with the time that it runs.

use lowtide_model::kind::Kind;
use lowtide_model::units::float;

use super::load::{AccessPattern, Load, Part};
use super::memory::{SimulatedMemory, Swap};
use super::monitor::Monitors;
use super::simulated::{Setup, Simulated};
use super::{InjectedFaults, under};
use crate::machine::WorkloadPolicy;
use crate::saved::Saved;

/// An hour of it.
const HOUR_S: f64 = 3600.0;
const MIB: f64 = 1_048_576.0;

/// Progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Churn {
    /// Workloads that are there all the time.
    pub stay: u64,
    /// Workloads that come and go within each hour, each another one.
    pub come: u64,
    /// Seconds between two turns.
    pub turn_s: f64,
}

/// How a policy stands at the end of an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stand {
    /// Workloads that there were so far.
    pub observed: u64,
    /// Of how many it remembers something.
    pub remembered: usize,
    /// Bytes of that, in a file.
    pub bytes: usize,
    /// Pages reclaimed in this hour.
    pub reclaimed: u64,
}

impl Churn {
    /// Runs a policy for so many hours, and reports its state at the end of each.
    pub fn run(&self, policy: &mut WorkloadPolicy, hours: u32, mut report: impl FnMut(u32, Stand)) {
        (0..hours).for_each(|hour| report(hour, self.hour(policy, hour)));
    }

    fn hour(&self, policy: &mut WorkloadPolicy, hour: u32) -> Stand {
        let from_s = f64::from(hour) * HOUR_S;
        let first = self.stay + 1 + u64::from(hour) * self.come;
        let mut loads: Vec<Load> = (1..=self.stay).map(load).collect();
        for (id, number) in (first..first + self.come).zip(0u32..) {
            let mut load = load(id);
            // One after the other, each for a twelfth of the hour; the last ones end with it.
            let step_s = 11.0 / 12.0 * HOUR_S / float(self.come);
            load.start_s = from_s + f64::from(number) * step_s;
            load.stop_s = load.start_s + HOUR_S / 12.0;
            loads.push(load);
        }
        let machine = Simulated::new(setup(u64::from(hour), from_s, self.turn_s, loads)).from(from_s);
        let reclaimed = under(machine, policy).workloads.iter().map(|load| load.reclaimed.total()).sum();
        let saved: Saved = policy.save();
        let bytes = serde_json::to_vec(&saved).map_or(0, |text| text.len());
        Stand { observed: first + self.come - 1, remembered: saved.targets.len(), bytes, reclaimed }
    }
}

/// A small one: a part in use, one that is used now and then, one that is idle.
fn load(id: u64) -> Load {
    let uses = [AccessPattern::Steady(2.0), AccessPattern::Steady(60.0), AccessPattern::Idle];
    Load::new(id, "some", uses.into_iter().map(|uses| Part::new(Kind::Anon, uses, 1024, 1)).collect())
}

fn setup(seed: u64, from_s: f64, turn_s: f64, loads: Vec<Load>) -> Setup {
    let swap = Swap { capacity: 1 << 28, used: 0, zram: true, in_s: 10e-6 };
    let memory =
        SimulatedMemory { total: 1024.0 * 1024.0 * MIB, resident: 0, stored: 0.0, swap, disk_s: 100e-6, out_s: 5e-6 };
    Setup {
        seed,
        step_s: turn_s,
        duration_s: from_s + HOUR_S,
        cpus: 1e6,
        memory,
        loads,
        turn_s,
        monitors: Monitors::default(),
        faults: InjectedFaults::default(),
        spare: 0.0,
    }
}
