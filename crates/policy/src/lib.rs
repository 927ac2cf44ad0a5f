//! What lowtide does about memory: pure decisions, made from observations alone.
//!
//! Problem: a decision about reclaim, protection or schemes costs other people's programs time when it is wrong, and few of the
//! situations that matter can be had on a test machine. Approach: a [policy](machine::Policy) is a function from a frame to
//! actions. It reads no clock and no file, so the same code runs on a machine, on the [simulated one](sim) under injected
//! faults, and over [recordings](replay). A new policy is one file and one line of the registry in [`policies`]; the laws in
//! `sim/tests/laws.rs` are then tried on it.
//!
//! May import: `lowtide-model` only. It never reaches the kernel.

#![forbid(unsafe_code)]

pub mod governor;
pub mod guard;
pub mod lifecycle;
pub mod machine;
pub mod policies;
pub mod reclaim;
pub mod region;
pub mod replay;
pub mod saved;
pub mod schemes;
pub mod sim;
mod worth;
