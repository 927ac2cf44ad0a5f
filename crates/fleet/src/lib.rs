//! What the workloads of a fleet did with their memory, and what policies would have saved and cost.
//!
//! Problem: reclaim is turned on for thousands of machines at once, and its savings and costs there are not known in advance.
//! Approach: every machine writes down, for each workload and minute, how much memory had been idle for how long and how
//! much would have been refaulted ([`telemetry`], collected by [`collect`]). A policy is then [replayed](replay) over it: the
//! same rule that acts on a machine ([`lowtide_policy::replay`]), a host at a time, so that memory stays bounded however
//! large the fleet. Settings are [searched](tune) in the same way, and fleets to try it on are [made](generate) with the
//! simulated machine.
//!
//! May import: `lowtide-model`, `lowtide-policy`, and `lowtide-record` for files and records.
//!
//! Everything that is counted is an integer, so a sum is the same in whatever order, and by however many, it was made.

#![forbid(unsafe_code)]

pub mod collect;
pub mod generate;
pub mod of_record;
pub mod replay;
pub mod store;
pub mod tally;
pub mod telemetry;
pub mod tune;
