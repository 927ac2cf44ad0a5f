//! What can go wrong with a record, in words that say what to do.

use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

/// Why a record could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder for a new record holds something.
    #[error("{}: the folder is not empty; choose another with --out or empty it", .0.display())]
    NotEmpty(PathBuf),
    /// The file system refuses.
    #[error("{}: cannot be written ({source}); choose another place with --out", path.display())]
    NotWritable {
        /// What was to be written.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The folder is another user's, and this process is root's.
    #[error(
        "{}: belongs to user {uid}, who could have files of root overwritten; \
         choose a folder with --out that does not exist yet, or one of root's", dir.display()
    )]
    Foreign {
        /// The folder.
        dir: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// The disk is full.
    #[error("{}: no space left on the device; free some, what was written so far stays readable", .0.display())]
    NoSpace(PathBuf),
    /// There is no record.
    #[error("{}: not a record: {why}; give the folder that `lowtide run` or `lowtide record` made", dir.display())]
    NotARecord {
        /// The folder.
        dir: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// A recorder is at work.
    #[error("{}: still being recorded; it can be read, and finished once the recorder ends", .0.display())]
    Live(PathBuf),
    /// A file does not hold what it should.
    #[error("{}: unreadable: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Any other answer of the system.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// Result of the store.
pub(super) type Result<T> = std::result::Result<T, StoreError>;

/// What the system answered while a file was written; [`StoreError::on`] says which.
impl From<io::Error> for StoreError {
    fn from(source: io::Error) -> Self {
        Self::Io { path: PathBuf::new(), source }
    }
}

impl StoreError {
    /// The same about this file, where it does not say which.
    pub(super) fn on(self, path: &Path) -> Self {
        match self {
            Self::Io { path: none, source } if none.as_os_str().is_empty() => Self::write(path, source),
            other => other,
        }
    }

    /// What writing `path` met.
    pub(super) fn write(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace(path),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::NotWritable { path, source },
            _ => Self::Io { path, source },
        }
    }

    /// What reading `path` met.
    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), source }
    }

    /// What the Parquet writer met: an error of the file system comes wrapped.
    pub(super) fn parquet(path: &Path, error: ParquetError) -> Self {
        match error {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(source) => Self::write(path, *source),
                Err(other) => Self::malformed(path, other),
            },
            other => Self::malformed(path, other),
        }
    }

    /// A file that does not hold what it should.
    pub(super) fn malformed(path: &Path, why: impl ToString) -> Self {
        Self::Malformed { path: path.to_path_buf(), why: why.to_string() }
    }
}
