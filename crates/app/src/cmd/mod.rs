//! One file per command.

pub mod doctor;
pub mod record;
pub mod recover;
pub mod report;
pub mod run;
