//! The agent's page and its data: the server, its data, its access control and its client.

pub mod api;
pub mod client;
mod confine;
mod gate;
pub mod http;
pub mod listen;
