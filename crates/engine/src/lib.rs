//! The loop that everything runs on which watches or acts.

pub mod agent;
pub mod calibration;
pub mod event;
pub mod failure;
pub mod huge_zeros;
pub mod price;
pub mod recorder;
pub mod recording;
pub mod scheduler;
pub mod schemes;
pub mod serve;
pub mod source;
