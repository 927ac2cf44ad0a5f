//! The command line as a library: what the `lowtide` binary and its tests are made of.

pub mod acts;
pub mod budgets;
pub mod cmd;
pub mod compare;
pub mod launch;
pub mod recommend;
pub mod session;
pub mod top;
pub mod verify;
