//! One file per command.

pub mod agent;
pub mod budget;
pub mod calibrate;
pub mod compare;
pub mod completions;
pub mod doctor;
pub mod export;
pub mod fleet;
pub mod guard;
pub mod hint;
pub mod import;
pub mod record;
pub mod recover;
pub mod report;
pub mod run;
pub mod schemes;
pub mod seff;
pub mod simulate;
pub mod top;
pub mod watch;
