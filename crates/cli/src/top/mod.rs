//! `lowtide top`: what the agent shows, in a terminal. [`view`] holds what is shown and what a key does, [`screen`] the terminal.

pub mod screen;
pub mod table;
pub mod view;
