//! The styles of live commands.

use ratatui::style::{Color, Modifier, Style};

use crate::output::terminal;

/// Styles, with colours or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Palette {
    /// Colours are wanted. Without them, bold and reversed text remain.
    pub has_colours: bool,
}

impl Palette {
    /// As `--color` and `NO_COLOR` ask for it.
    #[must_use]
    pub fn of_output() -> Self {
        let has_colours = terminal().ansi;
        // The library that writes them reads NO_COLOR by itself, but knows no --color.
        crossterm::style::force_color_output(has_colours);
        Self { has_colours }
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// Heads, and what matters most.
    #[must_use]
    pub fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What is beside the point: names of keys, times.
    #[must_use]
    pub fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The row that keys act on.
    #[must_use]
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Something is wrong.
    #[must_use]
    pub fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Memory that is held.
    #[must_use]
    pub fn held(self) -> Style {
        self.coloured(Color::Blue)
    }

    /// Memory that is used.
    #[must_use]
    pub fn used(self) -> Style {
        self.coloured(Color::Green)
    }

    /// Memory that was evicted.
    #[must_use]
    pub fn evicted(self) -> Style {
        self.coloured(Color::Yellow)
    }
}
