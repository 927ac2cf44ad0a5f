//! The agent's page and its data: what is served, to whom, and how it is asked for.

pub mod api;
pub mod client;
mod gate;
pub mod http;
pub mod listen;
