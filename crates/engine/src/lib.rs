//! The loop on which everything runs that watches or acts: `Source -> Frame -> Policy -> Action -> Actuator -> Event -> Sink`.
//!
//! Problem: recording, reclaiming, guarding and recommending each wait, sample, stay under a price, act and publish. Approach:
//! one [`scheduler`] waits; [`source`]s are read when they are due and pay from a [`price`]; the table of [`workloads`]
//! identifies what is observed; decisions of [`lowtide_policy`] are carried out by actuators ([`schemes`], [`agent`]); every sink
//! takes every [`event`]. [`recorder`], [`recommender`] and [`agent`] are configurations of it.
//!
//! It may import every crate but report and cli; it parses no command line.

pub mod agent;
pub mod calibration;
pub mod event;
pub mod failure;
pub mod huge_zeros;
pub mod metrics;
pub mod price;
pub mod recommender;
pub mod recorder;
pub mod recording;
pub mod scheduler;
pub mod schemes;
pub mod source;
pub mod workloads;
