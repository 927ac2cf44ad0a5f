//! The simulated machine: where policies are tried before they touch a real one.
//!
//! Problem: a policy decides about other people's memory, and its mistakes cost them. Approach: a machine that is wrong
//! in no way that matters to a policy and simple in every other. Memory is *groups* of pages that are used together;
//! each group knows when it will be used next. A workload runs on a clock of its own that stands still while it waits
//! for memory, so slowdown is what comes out and not what is put in. Reclaim, limits, swap, pressure and the monitors'
//! errors follow the kernel's in kind. All of it is deterministic from a seed.
//!
//! One step: every workload runs for as long as it gets a CPU and need not wait ([`load`]); what it uses comes into
//! memory, and others go where there is no room ([`memory`]). Then a policy may have its [turn](crate::machine::turn):
//! it observes what monitors would have reported ([`monitor`]), with the [faults] that were asked for, and the machine obeys.

pub mod churn;
pub mod faults;
pub mod load;
pub mod memory;
pub mod monitor;
pub mod outcome;
mod part;
pub mod replay;
pub mod scenario;
pub mod simulated;
pub mod watch;

pub use faults::InjectedFaults;
pub use outcome::{MachineSample, Outcome, WorkloadOutcome};
pub use scenario::Scenario;
pub use simulated::Simulated;

use crate::machine::{Observation, Policy, WorkloadAction, WorkloadPolicy, turn};
use crate::policies::AnyPolicy;

/// Runs a machine to its end under a policy, or under none.
pub fn run(mut machine: Simulated, mut policy: Option<AnyPolicy>) -> Outcome {
    while machine.step() {
        if let Some(policy) = policy.as_mut().filter(|_| machine.is_due()) {
            machine.turn(policy);
        }
    }
    machine.outcome()
}

/// Runs a machine to its end under a policy that may have run before.
pub fn under(mut machine: Simulated, policy: &mut WorkloadPolicy) -> Outcome {
    while machine.step() {
        if machine.is_due() {
            machine.workload_turn(policy);
        }
    }
    machine.outcome()
}

impl Simulated {
    /// A turn of a policy.
    pub fn turn(&mut self, policy: &mut AnyPolicy) {
        match policy {
            AnyPolicy::Workloads(policy) => self.workload_turn(policy.as_mut()),
            AnyPolicy::Regions(policy) => {
                if let Some(frame) = self.observe_regions() {
                    turn(policy.as_mut(), &frame, self);
                }
            }
        }
    }

    /// A turn of a policy of workloads.
    pub fn workload_turn<P>(&mut self, policy: &mut P)
    where
        P: Policy<Frame = Observation, Action = WorkloadAction> + ?Sized,
    {
        if let Some(frame) = self.observe() {
            turn(policy, &frame, self);
        }
    }
}

#[cfg(test)]
mod tests;
