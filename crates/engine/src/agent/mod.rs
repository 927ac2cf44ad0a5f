//! The agent: reclaims from the workloads of a machine what they do not need, by the policies of [`lowtide_policy`].
//!
//! [`daemon`] is its configuration of the loop: [`sampling`] and the table of [workloads](crate::workloads) make observations,
//! policies decide, [`actuator`] carries out what they ask for ([`reclaim`] by cgroup, [`address`] by ranges, [`background`] for
//! what is in the background, [`huge`] for huge pages, [`grants`] for the guard,
//! which [`alert`] wakes), and [`sinks`] make it known. [`saved`] is what it leaves to the agent
//! that comes after it; [`serve`] is its page.

mod actuator;
pub mod address;
mod alert;
mod background;
pub mod config;
pub mod daemon;
mod grants;
mod hints;
mod huge;
mod in_use;
pub(crate) mod metric;
mod reclaim;
pub(crate) mod sampling;
pub mod saved;
pub mod serve;
pub(crate) mod sinks;
pub mod socket;

pub use grants::SILENCE;
pub(crate) use sinks::Sinks;
