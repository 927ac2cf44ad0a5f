//! Errors as the contract wants them: `lowtide: WHAT: WHY; FIX` on stderr, and an exit code for scripts.

use std::path::Path;

use lowtide_kernel::error::{Error, ErrorKind};
use lowtide_model::scheme::line::SyntaxError;

use lowtide_record::StoreError;

/// Exit codes of the contract.
pub mod code {
    /// Anything else.
    pub const OTHER: i32 = 1;
    /// Wrong usage.
    pub const USAGE: i32 = 2;
    /// Not possible on this kernel.
    pub const IMPOSSIBLE: i32 = 3;
    /// Not permitted.
    pub const PERMISSION: i32 = 4;
    /// Target gone or not found.
    pub const GONE: i32 = 5;
    /// Kernel interface held by someone else.
    pub const BUSY: i32 = 6;
    /// Command found but not executable, as in shells.
    pub const NOT_EXECUTABLE: i32 = 126;
    /// Command not found, as in shells.
    pub const NOT_FOUND: i32 = 127;
}

/// An error that knows its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// See [`code`].
    pub code: i32,
    /// `WHAT: WHY; FIX`.
    pub message: String,
}

impl Failure {
    /// A failure with that exit code.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// A file of the user's that cannot be read, and what to give instead.
pub fn of_file(name: &str, error: &std::io::Error, fix: &str) -> Failure {
    use std::io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    let code = match error.kind() {
        NotFound => code::GONE,
        PermissionDenied => code::PERMISSION,
        IsADirectory | NotADirectory | InvalidInput => code::USAGE,
        _ => code::OTHER,
    };
    Failure::new(code, format!("{name}: {error}; {fix}"))
}

/// A mistake in a TOML file of the user's, named with its place.
pub fn in_toml(path: &Path, text: &str, error: &toml::de::Error) -> Failure {
    let SyntaxError { line, column, message } = SyntaxError::in_toml(text, error);
    Failure::new(code::USAGE, format!("{}:{line}:{column}: {message}", path.display()))
}

/// Exit codes of failed kernel operations.
const OF_KERNEL: [(ErrorKind, i32); 4] = [
    (ErrorKind::Unsupported, code::IMPOSSIBLE),
    (ErrorKind::Permission, code::PERMISSION),
    (ErrorKind::Gone, code::GONE),
    (ErrorKind::Busy, code::BUSY),
];

/// The exit code of a failed kernel operation.
pub fn of_kernel(kind: ErrorKind) -> i32 {
    OF_KERNEL.iter().find(|(of, _)| *of == kind).map_or(code::OTHER, |(_, code)| *code)
}

/// The exit code of any error that reaches `main`.
pub fn exit_code(error: &anyhow::Error) -> i32 {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.code;
    }
    if let Some(kernel) = error.downcast_ref::<Error>() {
        return of_kernel(kernel.kind());
    }
    match error.downcast_ref::<StoreError>() {
        Some(StoreError::NotARecord { .. }) => code::GONE,
        Some(StoreError::NotWritable { .. } | StoreError::Foreign { .. }) => code::PERMISSION,
        Some(StoreError::Live(_)) => code::BUSY,
        _ => code::OTHER,
    }
}

/// An error and its causes, each once: errors of the kernel and the store contain theirs.
pub fn words(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if !text.contains(&cause) {
            text += if text.is_empty() { "" } else { ": " };
            text += &cause;
        }
    }
    text
}

/// How a program ended that did not end well: its exit code, `None` if it was killed.
pub fn ended(code: Option<i32>) -> Option<String> {
    match code {
        Some(0) => None,
        Some(code) => Some(format!("ended with exit code {code}")),
        None => Some("was killed".to_owned()),
    }
}

/// Writes an error to stderr in the form of the contract.
pub fn report(error: &anyhow::Error) {
    lowtide_kernel::message!("lowtide: {}", words(error));
}
