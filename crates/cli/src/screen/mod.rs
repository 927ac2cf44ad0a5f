//! The terminal of live commands: `top` and `watch`.
//!
//! Problem: a command that draws must give the terminal back however it ends, read keys as its peers do, and fit any size.
//! Approach: [`Screen`] takes the terminal while it lives; [`keys`] turns events into keys; [`style`] holds the few styles,
//! without colours where they are not wanted; [`popup`] draws text above the rest.

pub mod keys;
pub mod popup;
pub mod style;

use std::io::{self, IsTerminal};

use lowtide_model::units::human_seconds;
use ratatui::{DefaultTerminal, Frame};

/// Seconds without a fraction that says nothing.
#[must_use]
pub fn whole_seconds(seconds: f64) -> String {
    if (1.0..120.0).contains(&seconds) { format!("{seconds:.0} s") } else { human_seconds(seconds) }
}

/// The terminal, taken; given back when dropped, and by a panic.
#[derive(Debug)]
pub struct Screen(DefaultTerminal);

impl Screen {
    /// Whether there is a terminal to draw on and to read keys from.
    #[must_use]
    pub fn is_possible() -> bool {
        let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb
    }

    /// Takes the terminal.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn take() -> io::Result<Self> {
        ratatui::try_init().map(Self)
    }

    /// Draws; a terminal of another size than before is drawn anew.
    ///
    /// # Errors
    /// If the terminal cannot be written.
    pub fn draw(&mut self, paint: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(paint).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
