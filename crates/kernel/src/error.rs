//! Errors of kernel operations: which operation failed on which path, and of what kind that is.

use std::io;
use std::path::{Path, PathBuf};

/// What kind of failure it is. Exit codes follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The thing is gone or was never there.
    Gone,
    /// Rights are missing.
    Permission,
    /// Another program holds the interface.
    Busy,
    /// The kernel refused what was written.
    Invalid,
    /// This kernel, or the target, does not have the feature.
    Unsupported,
    /// Anything else.
    Other,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// What the kernel answered.
    #[error("{0}")]
    Kernel(#[from] io::Error),
    /// What this kernel, or the target, does not have.
    #[error("{0}")]
    Missing(String),
}

impl From<rustix::io::Errno> for Cause {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Kernel(errno.into())
    }
}

impl From<serde_json::Error> for Cause {
    fn from(error: serde_json::Error) -> Self {
        Self::Kernel(error.into())
    }
}

/// A failed kernel operation.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op} {}: {cause}", path.display())]
pub struct Error {
    /// What was tried: `read`, `write '…' to`, `list`, …
    pub op: String,
    /// The file, without the injected root.
    pub path: PathBuf,
    /// Why it failed.
    pub cause: Cause,
}

/// Result of a kernel operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Operations on things that may go at any time.
pub trait UnlessGone<T> {
    /// `None` where the thing is gone.
    fn unless_gone(self) -> Result<Option<T>>;
}

impl<T> UnlessGone<T> for Result<T> {
    fn unless_gone(self) -> Result<Option<T>> {
        match self {
            Err(error) if error.is_gone() => Ok(None),
            other => other.map(Some),
        }
    }
}

/// The outcome of an operation on something with that path; `None` where it is gone, by the error and by a second look. Who leaves
/// something behind as gone must be sure of it.
///
/// # Errors
/// The operation's, unless that is so.
pub fn if_there<T>(path: &Path, outcome: Result<T>) -> Result<Option<T>> {
    let is_missing = || path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    match outcome {
        Err(error) if error.is_gone() && is_missing() => Ok(None),
        other => other.map(Some),
    }
}

impl Error {
    /// An error of that operation on that path.
    pub fn new(op: impl Into<String>, path: impl Into<PathBuf>, cause: impl Into<Cause>) -> Self {
        Self { op: op.into(), path: path.into(), cause: cause.into() }
    }

    /// That operation on that path needs something that is not there.
    pub fn missing(op: impl Into<String>, path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self::new(op, path, Cause::Missing(what.into()))
    }

    /// An error about text that is not what the kernel documents.
    pub fn unexpected(path: impl Into<PathBuf>, what: &str) -> Self {
        Self::new("understand", path, io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
    }

    /// The kernel answered with that error number.
    pub fn os(op: impl Into<String>, path: impl Into<PathBuf>, errno: i32) -> Self {
        Self::new(op, path, io::Error::from_raw_os_error(errno))
    }

    /// Nothing of that name.
    pub fn not_found(op: impl Into<String>, path: impl Into<PathBuf>, why: &str) -> Self {
        Self::new(op, path, io::Error::new(io::ErrorKind::NotFound, why))
    }

    /// Of what kind it is.
    pub fn kind(&self) -> ErrorKind {
        let Cause::Kernel(error) = &self.cause else { return ErrorKind::Unsupported };
        match (error.raw_os_error(), error.kind()) {
            (Some(libc::ENOENT | libc::ESRCH | libc::ENODEV), _) | (_, io::ErrorKind::NotFound) => ErrorKind::Gone,
            (Some(libc::EROFS), _) | (_, io::ErrorKind::PermissionDenied) => ErrorKind::Permission,
            (Some(libc::EBUSY), _) => ErrorKind::Busy,
            (Some(libc::EINVAL), _) => ErrorKind::Invalid,
            _ => ErrorKind::Other,
        }
    }

    /// Whether another program holds the interface.
    pub fn is_busy(&self) -> bool {
        self.kind() == ErrorKind::Busy
    }

    /// Whether rights are missing.
    pub fn is_permission(&self) -> bool {
        self.kind() == ErrorKind::Permission
    }

    /// Whether the kernel refused what was written.
    pub fn is_invalid(&self) -> bool {
        self.kind() == ErrorKind::Invalid
    }

    /// Whether the thing is gone or was never there.
    pub fn is_gone(&self) -> bool {
        self.kind() == ErrorKind::Gone
    }

    /// The number that the kernel answered with, if it did.
    pub fn errno(&self) -> Option<i32> {
        match &self.cause {
            Cause::Kernel(error) => error.raw_os_error(),
            Cause::Missing(_) => None,
        }
    }

    /// Whether the kernel answered with one of these numbers.
    pub fn is_any_of(&self, numbers: &[i32]) -> bool {
        self.errno().is_some_and(|errno| numbers.contains(&errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_from_what_the_kernel_answered() {
        for (errno, kind) in [
            (libc::ENOENT, ErrorKind::Gone),
            (libc::ESRCH, ErrorKind::Gone),
            (libc::EACCES, ErrorKind::Permission),
            (libc::EPERM, ErrorKind::Permission),
            (libc::EROFS, ErrorKind::Permission),
            (libc::EBUSY, ErrorKind::Busy),
            (libc::EINVAL, ErrorKind::Invalid),
            (libc::EIO, ErrorKind::Other),
        ] {
            let error = Error::new("read", "/x", io::Error::from_raw_os_error(errno));
            assert_eq!((error.kind(), error.is_any_of(&[errno])), (kind, true), "{error}");
        }
        let missing = Error::missing("take", "DAMON", "no paddr");
        assert_eq!(
            (missing.kind(), missing.to_string().as_str()),
            (ErrorKind::Unsupported, "cannot take DAMON: no paddr")
        );
        assert!(!missing.is_any_of(&[libc::EINVAL]));
    }
}
