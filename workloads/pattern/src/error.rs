//! What can go wrong.

use std::io;

/// An error, and whose it is: the pattern file's or the machine's.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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

impl Error {
    /// For `map_err`: says what was being done when an input or output error came.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Io { doing, source }
    }

    /// The program's exit status: 2 for what the user wrote, 1 for what the machine did.
    pub fn status(&self) -> u8 {
        match self {
            Error::Pattern(_) => 2,
            Error::Cannot(_) | Error::Io { .. } => 1,
        }
    }
}
