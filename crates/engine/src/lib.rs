//! The loop that everything runs on which watches or acts.

pub mod agent;
pub mod calibration;
pub mod failure;
pub mod monitors;
pub mod recorder;
pub mod recording;
pub mod schemes;
pub mod serve;
