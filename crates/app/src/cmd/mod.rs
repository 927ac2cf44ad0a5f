//! One file per command.

pub mod calibrate;
pub mod doctor;
pub mod record;
pub mod recover;
pub mod report;
pub mod run;
