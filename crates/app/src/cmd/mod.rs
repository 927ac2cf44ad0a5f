//! One file per command.

pub mod record;
pub mod recover;
pub mod run;
