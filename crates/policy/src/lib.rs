//! What lowtide does about memory: pure decisions, made from observations alone.
//!
//! Nothing here reads a clock or a file, so every policy runs the same on a real machine and on a simulated one.

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
