//! lowtide as a library: what the `lowtide` binary and its tests are made of.

pub mod agent;
pub mod budgets;
pub mod calibration;
pub mod cmd;
pub mod compare;
pub mod failure;
pub mod interchange;
pub mod launch;
pub mod monitors;
pub mod recommend;
pub mod recorder;
pub mod report;
pub mod schemes;
pub mod serve;
pub mod session;
pub mod store;
pub mod telemetry;
pub mod top;
pub mod verify;
