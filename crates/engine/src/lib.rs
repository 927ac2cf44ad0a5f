//! The loop that everything runs on which watches or acts: `Source -> Frame -> Policy -> Action -> Actuator -> Event -> Sink`.
//!
//! Problem: recording, reclaiming, guarding and recommending each need to wait, to sample, to stay under a price, to act and to
//! make it known. Approach: one [`scheduler`] waits; [`source`]s are read when they are due and pay from a [`price`]; the table
//! of [`workloads`] identifies what is observed; what is decided by [`lowtide_policy`] is carried out by actuators
//! ([`schemes`], [`agent`]); what happened is an [`event`] that every sink takes. [`recorder`] and [`agent`] are configurations
//! of it. It may import every crate but report and cli; it parses no command line.

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
