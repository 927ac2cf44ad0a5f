//! `lowtide top`: what the agent shows, in a terminal. [`view`] holds its words and tables, [`board`] which part of them is
//! shown and what a key does, [`draw`] draws that, and [`screen`] asks the agent meanwhile.

pub mod board;
pub mod draw;
pub mod order;
pub mod screen;
pub mod table;
pub mod view;
