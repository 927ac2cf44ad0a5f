//! The agent: reclaims from the workloads of a machine what they do not need, by the policies of [`lowtide_policy`].
//!
//! [`config`] says what it shall do; [`watch`] sees workloads come, go and fare; [`act`] carries out what policies ask
//! for; [`lifecycle`] knows who is in the background, and [`socket`] hears hints about it; [`daemon`] is the loop;
//! [`figures`] and the log are what it tells others. [`seen`] keeps a [`history`] to be looked at, [`api`] says what of it is
//! shown, and [`http`] serves that on what [`listen`] opens.
//! [`state`] is what it leaves to the agent that comes after it, [`telemetry`] what it writes down for the fleet.

pub mod act;
pub mod api;
pub mod client;
pub mod config;
pub mod daemon;
pub mod figures;
mod gate;
mod granting;
mod heed;
pub mod history;
pub mod http;
pub mod lifecycle;
pub mod listen;
mod log;
pub mod metric;
mod node;
mod others;
pub mod ranges;
pub mod schemed;
pub mod seen;
mod site;
pub mod socket;
pub mod state;
pub mod telemetry;
pub mod watch;

pub use granting::SILENCE;
