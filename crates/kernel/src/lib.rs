//! How lowtide reads and changes a Linux kernel.
//!
//! **Problem.** What a workload uses is spread over dozens of kernel files and system calls, which differ between kernels and
//! cgroup versions, vanish while they are read, and outlive the process that changed them.
//!
//! **Approach.** One file per kernel interface, and no kernel path outside this crate. All files are opened by
//! [`root::Kernel`], which may be a captured tree, never writes in a dry run, and names operation and path in every error.
//! Every change is a lease in the journal ([`undo`]), taken back on exit, on a signal, or by the next start after a kill.
//! [`monitor`] turns kernel interfaces into pictures of use; [`caps`] finds out what a kernel offers. `unsafe` is in [`sys`]
//! alone.
//!
//! **Imports** `lowtide_model` only, never policy, engine or record: it measures and applies, and does not decide.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

/// Prints a line to stderr, as `eprintln!` does, which panics where nobody reads stderr any more or its disk is full: what
/// is measured, and the kernel, must not suffer from that.
#[macro_export]
macro_rules! message {
    () => { $crate::log::write("\n") };
    ($($text:tt)+) => { $crate::log::write(&(format!($($text)+) + "\n")) };
}

pub mod account;
pub mod advise;
pub mod caps;
pub mod cgroup;
pub mod clock;
pub mod damon;
pub mod damon_stat;
pub mod error;
pub mod grant;
pub mod huge;
pub mod idle_bitmap;
pub mod log;
pub mod lru_gen;
pub mod monitor;
pub mod mounts;
pub mod numa;
pub mod pagemap;
pub mod pressure;
pub mod proc;
pub mod reclaim;
pub mod refault;
pub mod root;
pub mod swap;
pub mod sys;
pub mod system;
pub mod trace;
pub mod undo;
pub mod zram;
