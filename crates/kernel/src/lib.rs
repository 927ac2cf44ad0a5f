//! How lowtide sees and acts: the only crate that knows a kernel path. One file per kernel interface.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

pub mod account;
pub mod advise;
pub mod caps;
pub mod cgroup;
pub mod clock;
pub mod damon;
pub mod error;
pub mod grant;
pub mod huge;
pub mod idle_bitmap;
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
