//! `lowtide top`: what the agent shows, in a terminal. [`view`] says what is to be seen and what
//! a key does, and [`screen`] has the terminal.

pub mod screen;
pub mod table;
pub mod view;
