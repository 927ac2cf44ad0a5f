//! Errors of the pattern program.

use std::io;

/// An error of the pattern file or of the machine.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// The pattern file is wrong; the text says what would be right.
    #[error("{0}")]
    Pattern(String),
    /// The pattern or the options cannot be run here.
    #[error("{0}")]
    Cannot(String),
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl PatternError {
    /// For `map_err`: adds what was being done.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// The program's exit status: 2 for a wrong pattern file, 1 for anything else.
    pub fn status(&self) -> u8 {
        if matches!(self, Self::Pattern(_)) { 2 } else { 1 }
    }
}
