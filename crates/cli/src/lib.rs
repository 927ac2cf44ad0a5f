//! The command line as a library: what the `lowtide` binary and its tests are made of.
//!
//! Problem: people and scripts ask one question at a time: what does this program need, what is on this machine, what would
//! less memory cost. Approach: a file below [`cmd`] for each command, which reads its arguments, configures the engine or the
//! store, and prints the answer; what several commands share lies beside it. This crate may import every other crate of the
//! workspace, and none of them imports it.

pub mod acts;
pub mod budgets;
pub mod cli;
pub mod cmd;
pub mod compare;
pub mod launch;
pub mod output;
pub mod recommend;
pub mod screen;
pub mod session;
pub mod top;
pub mod verify;
pub mod watch;
