//! The side-by-side evaluation: programs run in several configurations, in turns, and what that says.

pub mod mix;
pub mod order;
pub mod outcome;
pub mod published;
pub mod runner;
pub mod scope;
pub mod suite;
pub mod tables;
